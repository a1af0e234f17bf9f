//! What a rank says and hears, told to whoever asks.

use std::sync::Arc;
use std::time::Duration;

use crate::{CollectiveError, Communicator};

/// A communicator that tells of each call that has succeeded, its channels' too: for tests and counts of what ranks say to each other.
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// use std::sync::Arc;
/// use segue_collectives::{simulated, Communicator, Watched};
///
/// let heard = simulated::run(2, |comm| {
///     let bytes = Arc::new(AtomicUsize::new(0));
///     let counter = bytes.clone();
///     let comm = Watched::over(comm, move |_, received| _ = counter.fetch_add(received, Ordering::SeqCst)).unwrap();
///     comm.all_gather(&[7; 3]).unwrap();
///     bytes.load(Ordering::SeqCst)
/// });
/// assert_eq!(heard, [3, 3]);
/// ```
pub struct Watched {
    inner: Box<dyn Communicator>,
    told: Told,
}

/// Takes the name of a call and how many bytes of other ranks it brought.
type Told = Arc<dyn Fn(&'static str, usize) + Send + Sync>;

impl Watched {
    /// Collective. A new channel over the ranks of `comm`. `told` hears the name of each call and how many bytes of other ranks it brought; 0
    /// for a sum in any order, whose ways only the library knows.
    pub fn over(
        comm: &dyn Communicator,
        told: impl Fn(&'static str, usize) + Send + Sync + 'static,
    ) -> Result<Self, CollectiveError> {
        Ok(Self { inner: comm.duplicate()?, told: Arc::new(told) })
    }

    fn of_others(&self, all: &[Vec<u8>]) -> usize {
        all.iter().map(Vec::len).sum::<usize>() - all[self.rank()].len()
    }
}

impl Communicator for Watched {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn world_size(&self) -> usize {
        self.inner.world_size()
    }

    fn exchange(&self, peer: usize, send: &[u8], recv: &mut [u8]) -> Result<(), CollectiveError> {
        self.inner.exchange(peer, send, recv)?;
        (self.told)("exchange", recv.len());
        Ok(())
    }

    fn send(&self, peer: usize, bytes: &[u8]) -> Result<(), CollectiveError> {
        self.inner.send(peer, bytes)?;
        (self.told)("send", 0);
        Ok(())
    }

    fn recv(&self, peer: usize, bytes: &mut [u8]) -> Result<(), CollectiveError> {
        self.inner.recv(peer, bytes)?;
        (self.told)("recv", bytes.len());
        Ok(())
    }

    fn barrier(&self) -> Result<(), CollectiveError> {
        self.inner.barrier()?;
        (self.told)("barrier", 0);
        Ok(())
    }

    fn barrier_within(&self, patience: Duration) -> Result<bool, CollectiveError> {
        let met = self.inner.barrier_within(patience)?;
        (self.told)("barrier", 0);
        Ok(met)
    }

    fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<(), CollectiveError> {
        self.inner.broadcast(root, bytes)?;
        (self.told)("broadcast", if root == self.rank() { 0 } else { bytes.len() });
        Ok(())
    }

    fn all_gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, CollectiveError> {
        let all = self.inner.all_gather(bytes)?;
        (self.told)("all-gather", self.of_others(&all));
        Ok(all)
    }

    fn gather(&self, root: usize, bytes: &[u8]) -> Result<Option<Vec<Vec<u8>>>, CollectiveError> {
        let all = self.inner.gather(root, bytes)?;
        (self.told)("gather", all.as_deref().map_or(0, |all| self.of_others(all)));
        Ok(all)
    }

    fn all_reduce_any_order(&self, values: &mut [f32]) -> Result<(), CollectiveError> {
        self.inner.all_reduce_any_order(values)?;
        (self.told)("all-reduce", 0);
        Ok(())
    }

    fn duplicate(&self) -> Result<Box<dyn Communicator>, CollectiveError> {
        Ok(Box::new(Self { inner: self.inner.duplicate()?, told: Arc::clone(&self.told) }))
    }

    fn abort(&self, code: i32) -> ! {
        self.inner.abort(code)
    }
}
