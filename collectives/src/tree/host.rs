//! Values in a rank's own memory, and messages of its [`Communicator`].

use std::ops::Range;

use super::regions::{Message, Place, Regions};
use crate::{CollectiveError, Communicator};

/// Values on the host. Each call is over when it returns.
pub struct Host<'a> {
    comm: &'a dyn Communicator,
    values: &'a mut [f32],
    room: &'a mut Vec<f32>,
}

impl<'a> Host<'a> {
    /// `room` grows as far as it is needed.
    pub fn new(comm: &'a dyn Communicator, values: &'a mut [f32], room: &'a mut Vec<f32>) -> Self {
        Self { comm, values, room }
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
        let comm = self.comm;
        for Message { peer, send, recv } in messages {
            let (mine, theirs) = self.pair(&Place::Values(send.clone()), recv);
            comm.exchange(*peer, bytemuck::cast_slice(mine), bytemuck::cast_slice_mut(theirs))?;
        }
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

    fn finish(&mut self) -> Result<(), CollectiveError> {
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
