//! Values in a rank's own memory, and messages of its [`Communicator`].

use std::ops::Range;

use super::regions::{Message, Place, Regions};
use super::wire::{Wire, round, shorten, widen};
use crate::{CollectiveError, Communicator};

/// Values on the host. Each call is over when it returns.
pub struct Host<'a> {
    comm: &'a dyn Communicator,
    values: &'a mut [f32],
    room: &'a mut Vec<f32>,
    wire: Wire,
    short: Short,
}

impl<'a> Host<'a> {
    /// `room` grows as far as it is needed; messages carry what `wire` says.
    pub fn new(
        comm: &'a dyn Communicator,
        values: &'a mut [f32],
        room: &'a mut Vec<f32>,
        wire: Wire,
    ) -> Self {
        Self { comm, values, room, wire, short: Short::default() }
    }

    /// Two places that do not overlap.
    fn pair(&mut self, first: &Place, second: &Place) -> (&mut [f32], &mut [f32]) {
        match (first.clone(), second.clone()) {
            (Place::Values(a), Place::Values(b)) => two_ranges(self.values, a, b),
            (Place::Room(a), Place::Room(b)) => two_ranges(self.room, a, b),
            (Place::Values(a), Place::Room(b)) => (&mut self.values[a], &mut self.room[b]),
            (Place::Room(a), Place::Values(b)) => (&mut self.room[a], &mut self.values[b]),
        }
    }
}

impl Regions for Host<'_> {
    fn rank(&self) -> usize {
        self.comm.rank()
    }

    fn world_size(&self) -> usize {
        self.comm.world_size()
    }

    fn len(&self) -> usize {
        self.values.len()
    }

    fn begin(&mut self, room: usize) -> Result<(), CollectiveError> {
        if self.room.len() < room {
            self.room.resize(room, 0.0);
        }
        Ok(())
    }

    fn exchange(&mut self, messages: &[Message]) -> Result<(), CollectiveError> {
        let (comm, wire) = (self.comm, self.wire);
        let mut short = std::mem::take(&mut self.short);
        for Message { peer, send, recv } in messages {
            let (mine, theirs) = self.pair(&Place::Values(send.clone()), recv);
            match wire {
                Wire::F32 => {
                    comm.exchange(*peer, bytemuck::cast_slice(mine), bytemuck::cast_slice_mut(theirs))?;
                }
                Wire::Bf16 => short.exchange(comm, *peer, mine, theirs)?,
            }
        }
        self.short = short;
        Ok(())
    }

    fn add(&mut self, sums: &Place, terms: &Place) -> Result<(), CollectiveError> {
        let (sums, terms) = self.pair(sums, terms);
        for (sum, term) in sums.iter_mut().zip(terms) {
            *sum += *term;
        }
        Ok(())
    }

    fn copy(&mut self, to: &Place, from: &Place) -> Result<(), CollectiveError> {
        let (to, from) = self.pair(to, from);
        to.copy_from_slice(from);
        Ok(())
    }

    fn round(&mut self, values: &Range<usize>) -> Result<(), CollectiveError> {
        if self.wire == Wire::Bf16 {
            round(&mut self.values[values.clone()]);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), CollectiveError> {
        Ok(())
    }
}

/// Messages of 16 bits a value.
#[derive(Default)]
struct Short {
    sent: Vec<u16>,
    received: Vec<u16>,
}

impl Short {
    fn exchange(
        &mut self,
        comm: &dyn Communicator,
        peer: usize,
        mine: &[f32],
        theirs: &mut [f32],
    ) -> Result<(), CollectiveError> {
        self.sent.resize(mine.len(), 0);
        self.received.resize(theirs.len(), 0);
        shorten(mine, &mut self.sent);
        comm.exchange(peer, bytemuck::cast_slice(&self.sent), bytemuck::cast_slice_mut(&mut self.received))?;
        widen(&self.received, theirs);
        Ok(())
    }
}

/// Two disjoint ranges of `values`.
fn two_ranges(values: &mut [f32], first: Range<usize>, second: Range<usize>) -> (&mut [f32], &mut [f32]) {
    if first.end <= second.start {
        let (low, high) = values.split_at_mut(second.start);
        (&mut low[first], &mut high[..second.len()])
    } else {
        let (low, high) = values.split_at_mut(first.start);
        (&mut high[..first.len()], &mut low[second])
    }
}
