//! The trait [`Communicator`].

use std::time::Duration;

use crate::CollectiveError;

/// What ranks say to each other.
///
/// Each rank of a job holds one communicator. Calls that are marked *collective* must be made by
/// every rank, in the same order; a call of one rank waits for the others. A communicator may be
/// moved to another thread, but two threads that talk at the same time need one each: see
/// [`duplicate`](Communicator::duplicate).
///
/// Bytes are passed as they are: all ranks of a job run on machines of one byte order.
pub trait Communicator: Send + Sync {
    /// This rank, from 0 to `world_size() - 1`.
    fn rank(&self) -> usize;

    /// How many ranks the job has.
    fn world_size(&self) -> usize;

    /// Sends `send` to `peer` while receiving exactly `recv.len()` bytes from it. Both sides call it
    /// at once; the two lengths may differ, but each side's `recv` is as long as the other's `send`.
    fn exchange(&self, peer: usize, send: &[u8], recv: &mut [u8]) -> Result<(), CollectiveError>;

    /// Sends `bytes` to `peer`, which calls [`recv`](Communicator::recv). May wait until it does.
    fn send(&self, peer: usize, bytes: &[u8]) -> Result<(), CollectiveError>;

    /// Receives exactly `bytes.len()` bytes that `peer` gave to [`send`](Communicator::send).
    fn recv(&self, peer: usize, bytes: &mut [u8]) -> Result<(), CollectiveError>;

    /// Collective. Returns once every rank has called it.
    fn barrier(&self) -> Result<(), CollectiveError>;

    /// Collective. Whether every rank has called it within `patience`. Where one has not, this channel is of no more use.
    fn barrier_within(&self, patience: Duration) -> Result<bool, CollectiveError> {
        let _ = patience;
        self.barrier().map(|()| true)
    }

    /// Collective. Overwrites every rank's `bytes` with those of `root`; all have the same length.
    fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<(), CollectiveError>;

    /// Collective. Every rank's bytes, in rank order; their lengths may differ.
    fn all_gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, CollectiveError>;

    /// Collective. `root` receives every rank's bytes in rank order, their lengths may differ; the
    /// other ranks receive `None`.
    fn gather(&self, root: usize, bytes: &[u8]) -> Result<Option<Vec<Vec<u8>>>, CollectiveError>;

    /// Collective. Sums `values` over the ranks in whatever order the library likes; every rank gets
    /// the same bits, but another number of ranks, or another library, may give others. For bits that
    /// hold, [`tree_all_reduce`](crate::tree::tree_all_reduce).
    fn all_reduce_any_order(&self, values: &mut [f32]) -> Result<(), CollectiveError>;

    /// Collective. An independent channel over the same ranks, for another thread: calls on the two
    /// may overlap in time and never meet.
    fn duplicate(&self) -> Result<Box<dyn Communicator>, CollectiveError>;

    /// Ends the job on all ranks with this exit code.
    fn abort(&self, code: i32) -> !;
}

/// Refuses a peer that is outside the world or the calling rank itself.
pub(crate) fn check_peer(
    comm: &dyn Communicator,
    peer: usize,
    during: &'static str,
) -> Result<(), CollectiveError> {
    let (rank, world_size) = (comm.rank(), comm.world_size());
    if peer < world_size && peer != rank {
        return Ok(());
    }
    Err(CollectiveError::NoSuchPeer { rank, peer, world_size, during })
}

/// Refuses a root outside the world.
pub(crate) fn check_root(
    comm: &dyn Communicator,
    root: usize,
    during: &'static str,
) -> Result<(), CollectiveError> {
    if root == comm.rank() { Ok(()) } else { check_peer(comm, root, during) }
}
