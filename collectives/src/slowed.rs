//! A link of a chosen speed between ranks that have a faster one: what a job would wait for on another network.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use segue_world::{now, sleep};

use crate::{CollectiveError, Communicator};

/// A communicator whose messages take the time that a link of so many bytes a second would.
///
/// A rank has one link for all its channels, full duplex: two messages of one direction follow each other, and an exchange takes the
/// time of its longer side. The time goes by without a processor, as the transfers of a network card do.
pub struct Slowed {
    inner: Box<dyn Communicator>,
    link: Arc<Link>,
}

/// What a message takes over a link that is too slow to reckon with.
const FOR_EVER: Duration = Duration::from_secs(1 << 32);

struct Link {
    bytes_per_s: f64,
    /// When the last message is through.
    free: Mutex<Instant>,
}

impl Slowed {
    /// Collective. A new channel over the ranks of `comm`, with a link of `bytes_per_s` at each rank.
    pub fn over(comm: &dyn Communicator, bytes_per_s: f64) -> Result<Self, CollectiveError> {
        let link = Link { bytes_per_s, free: Mutex::new(now()) };
        Ok(Self { inner: comm.duplicate()?, link: Arc::new(link) })
    }

    /// Waits as long as `bytes` take that go out, or come in where more do. It comes before the message itself: so nobody has one before its time,
    /// however long the other side has waited for it.
    fn pass(&self, bytes: usize) {
        let through = self.link.through(now(), bytes);
        if let Some(left) = through.checked_duration_since(now()) {
            sleep(left);
        }
    }
}

impl Link {
    /// When a message of `bytes` is through that asked for the link at `began`.
    fn through(&self, began: Instant, bytes: usize) -> Instant {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        *free = began.max(*free)
            + Duration::try_from_secs_f64(bytes as f64 / self.bytes_per_s).unwrap_or(FOR_EVER);
        *free
    }
}

impl Communicator for Slowed {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn world_size(&self) -> usize {
        self.inner.world_size()
    }

    fn exchange(&self, peer: usize, send: &[u8], recv: &mut [u8]) -> Result<(), CollectiveError> {
        self.pass(send.len().max(recv.len()));
        self.inner.exchange(peer, send, recv)
    }

    fn send(&self, peer: usize, bytes: &[u8]) -> Result<(), CollectiveError> {
        self.pass(bytes.len());
        self.inner.send(peer, bytes)
    }

    fn recv(&self, peer: usize, bytes: &mut [u8]) -> Result<(), CollectiveError> {
        self.inner.recv(peer, bytes)
    }

    fn barrier(&self) -> Result<(), CollectiveError> {
        self.inner.barrier()
    }

    fn barrier_within(&self, patience: Duration) -> Result<bool, CollectiveError> {
        self.inner.barrier_within(patience)
    }

    /// As along a chain: a rank passes on once what it receives.
    fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<(), CollectiveError> {
        self.pass(bytes.len());
        self.inner.broadcast(root, bytes)
    }

    fn all_gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, CollectiveError> {
        let every = self.inner.all_gather(bytes)?;
        self.pass(every.iter().map(Vec::len).sum::<usize>() - bytes.len());
        Ok(every)
    }

    fn gather(&self, root: usize, bytes: &[u8]) -> Result<Option<Vec<Vec<u8>>>, CollectiveError> {
        let every = self.inner.gather(root, bytes)?;
        let received = every.as_ref().map(|every| every.iter().map(Vec::len).sum::<usize>() - bytes.len());
        self.pass(received.unwrap_or(bytes.len()));
        Ok(every)
    }

    /// As in a ring: a rank sends and receives 2 (n − 1)/n times the bytes.
    fn all_reduce_any_order(&self, values: &mut [f32]) -> Result<(), CollectiveError> {
        let ranks = self.world_size();
        self.pass(2 * size_of_val(values) * (ranks - 1) / ranks);
        self.inner.all_reduce_any_order(values)
    }

    fn duplicate(&self) -> Result<Box<dyn Communicator>, CollectiveError> {
        Ok(Box::new(Self { inner: self.inner.duplicate()?, link: Arc::clone(&self.link) }))
    }

    fn abort(&self, code: i32) -> ! {
        self.inner.abort(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated;
    use crate::tree::{Wire, tree_all_reduce};

    /// Bytes a second at which the messages here take milliseconds.
    const SLOW: f64 = 1e6;

    #[test]
    fn messages_take_the_time_of_the_link_and_keep_their_bytes() {
        let times = simulated::run(2, |comm| {
            let slowed = Slowed::over(comm, SLOW).unwrap();
            let mut values = vec![comm.rank() as f32; 2000];
            let began = Instant::now();
            tree_all_reduce(&slowed, &mut values, &mut Vec::new(), Wire::F32).unwrap();
            assert_eq!(values, [1.0; 2000]);
            began.elapsed()
        });
        // Two exchanges of half of the 8,000 bytes.
        assert!(times.iter().all(|time| *time >= Duration::from_millis(8)), "{times:?}");
    }

    #[test]
    fn channels_of_a_rank_share_its_link() {
        let link = Link { bytes_per_s: SLOW, free: Mutex::new(now()) };
        let began = now();
        assert_eq!(link.through(began, 3000) - began, Duration::from_millis(3));
        assert_eq!(link.through(began, 2000) - began, Duration::from_millis(5));
    }
}
