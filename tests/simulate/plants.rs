//! Bugs that are planted, to see that they are found.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use segue_collectives::{CollectiveError, Communicator};
use serde_json::Value;

use crate::schedule::{Process, World};

/// A bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    Nothing,
    /// Files are renamed before they are synced.
    NoSync,
    /// A rank to which the system has refused something leaves out the next call that all ranks make.
    SkipsACall,
    /// What is saved of where lanes stand is where they stood a step before.
    LateCursor,
    /// Nobody hears of values that are not finite, which a checkpoint then holds.
    UnseenNan,
}

impl Plant {
    /// What a rank speaks through.
    pub fn over(
        self,
        comm: impl Communicator + 'static,
        world: Arc<World>,
        process: Process,
    ) -> Box<dyn Communicator> {
        match self {
            Self::Nothing | Self::NoSync => Box::new(comm),
            plant => {
                Box::new(Bent { comm: Box::new(comm), plant, world, process, done: AtomicBool::new(false) })
            }
        }
    }
}

struct Bent {
    comm: Box<dyn Communicator>,
    plant: Plant,
    world: Arc<World>,
    process: Process,
    done: AtomicBool,
}

impl Communicator for Bent {
    fn rank(&self) -> usize {
        self.comm.rank()
    }

    fn world_size(&self) -> usize {
        self.comm.world_size()
    }

    fn exchange(&self, peer: usize, send: &[u8], recv: &mut [u8]) -> Result<(), CollectiveError> {
        self.comm.exchange(peer, send, recv)
    }

    fn send(&self, peer: usize, bytes: &[u8]) -> Result<(), CollectiveError> {
        self.comm.send(peer, bytes)
    }

    fn recv(&self, peer: usize, bytes: &mut [u8]) -> Result<(), CollectiveError> {
        self.comm.recv(peer, bytes)
    }

    fn barrier(&self) -> Result<(), CollectiveError> {
        self.comm.barrier()
    }

    fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<(), CollectiveError> {
        self.comm.broadcast(root, bytes)
    }

    fn all_gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, CollectiveError> {
        let was_refused = self.world.was_refused(self.process);
        if self.plant == Plant::SkipsACall && was_refused && !self.done.swap(true, Ordering::Relaxed) {
            return Ok(vec![bytes.to_vec(); self.world_size()]);
        }
        match (self.plant, serde_json::from_slice::<Value>(bytes)) {
            (Plant::UnseenNan, Ok(Value::Object(mut look))) if look.contains_key("not_finite") => {
                look.insert("not_finite".into(), Value::Null);
                self.comm.all_gather(&serde_json::to_vec(&look).unwrap_or_default())
            }
            (Plant::LateCursor, Ok(Value::Array(mut lanes))) if !lanes.is_empty() => {
                for lane in &mut lanes {
                    if let Some(offset) = lane["offset"].as_u64() {
                        lane["offset"] = offset.saturating_sub(SEGMENT).into();
                    }
                }
                self.comm.all_gather(&serde_json::to_vec(&lanes).unwrap_or_default())
            }
            _ => self.comm.all_gather(bytes),
        }
    }

    fn gather(&self, root: usize, bytes: &[u8]) -> Result<Option<Vec<Vec<u8>>>, CollectiveError> {
        self.comm.gather(root, bytes)
    }

    fn all_reduce_any_order(&self, values: &mut [f32]) -> Result<(), CollectiveError> {
        self.comm.all_reduce_any_order(values)
    }

    fn duplicate(&self) -> Result<Box<dyn Communicator>, CollectiveError> {
        self.comm.duplicate()
    }

    fn abort(&self, code: i32) -> ! {
        self.comm.abort(code)
    }
}

/// Inputs of a lane in a step.
pub const SEGMENT: u64 = 4;
