//! Ranks as threads of one process, for tests: the same calls, no launcher, faults on demand.
//!
//! Messages lie in unbounded queues, so a `send` never waits for its receiver, as it may under MPI.
//!
//! ```
//! use segue_collectives::{simulated, Communicator};
//! let neighbours = simulated::run(2, |comm| {
//!     let mut theirs = [0];
//!     comm.exchange(1 - comm.rank(), &[comm.rank() as u8], &mut theirs).unwrap();
//!     theirs[0]
//! });
//! assert_eq!(neighbours, [1, 0]);
//! ```

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use segue_world::{Receiver, Sender, channel, now, sleep};

use crate::CollectiveError;
use crate::communicator::{Communicator, check_peer, check_root};

/// How long a message to a rank is on its way; `None` where it never arrives.
pub type Link = Arc<dyn Fn(usize) -> Option<Duration> + Send + Sync>;

/// What goes wrong on a simulated rank. The default: nothing, and messages take no time.
#[derive(Clone, Default)]
pub struct Faults {
    /// The way of what it sends. Messages from one rank to another stay in order.
    pub link: Option<Link>,
    /// The rank dies at its call of this number, counted from 1 over all its channels: that call and
    /// all later ones return an error, and to the other ranks it is gone.
    pub dies_at_call: Option<u64>,
}

/// One rank of a simulated world.
pub struct Simulated {
    rank: usize,
    world_size: usize,
    links: Arc<Links>,
    life: Arc<Life>,
}

/// The message queues of one channel of one rank, by peer. A queue that its sender has left tells the
/// receiver that the peer is gone.
struct Links {
    /// `None` once this rank is dead.
    to: Mutex<Option<Vec<Sender<Message>>>>,
    from: Vec<Mutex<Receiver<Message>>>,
}

/// What the channels of one rank share.
struct Life {
    faults: Faults,
    calls: AtomicU64,
    dead: AtomicBool,
    channels: Mutex<Vec<Weak<Links>>>,
}

enum Message {
    Bytes {
        bytes: Vec<u8>,
        /// When it is there.
        arrives: Option<Instant>,
    },
    /// One end of a new queue, on its way to the rank that will send into it.
    Queue(Sender<Message>),
}

/// A world of `world_size` ranks, in rank order, each to be given to a thread of its own.
pub fn world(world_size: usize) -> Vec<Simulated> {
    world_with(vec![Faults::default(); world_size])
}

/// A world with one rank for each element of `faults`.
pub fn world_with(faults: Vec<Faults>) -> Vec<Simulated> {
    let world_size = faults.len();
    let mut to: Vec<Vec<Sender<Message>>> = (0..world_size).map(|_| Vec::new()).collect();
    let mut from: Vec<Vec<Mutex<Receiver<Message>>>> = (0..world_size).map(|_| Vec::new()).collect();
    for sender in &mut to {
        for receiver in &mut from {
            let (queue_in, queue_out) = channel();
            sender.push(queue_in);
            receiver.push(Mutex::new(queue_out));
        }
    }
    let links = to.into_iter().zip(from).map(|(to, from)| Links { to: Mutex::new(Some(to)), from });
    faults
        .into_iter()
        .zip(links)
        .enumerate()
        .map(|(rank, (faults, links))| {
            let links = Arc::new(links);
            let life = Life {
                faults,
                calls: AtomicU64::new(0),
                dead: AtomicBool::new(false),
                channels: Mutex::new(vec![Arc::downgrade(&links)]),
            };
            Simulated { rank, world_size, links, life: Arc::new(life) }
        })
        .collect()
}

/// Runs `program` on every rank of a new world and returns what each rank returned, in rank order.
///
/// # Panics
/// With the panic of a rank, once all of them have ended.
pub fn run<T: Send>(world_size: usize, program: impl Fn(&Simulated) -> T + Sync) -> Vec<T> {
    run_with(vec![Faults::default(); world_size], program)
}

/// [`run`] in a world with [`Faults`].
pub fn run_with<T: Send>(faults: Vec<Faults>, program: impl Fn(&Simulated) -> T + Sync) -> Vec<T> {
    let program = &program;
    std::thread::scope(|scope| {
        let ranks: Vec<_> =
            world_with(faults).into_iter().map(|comm| scope.spawn(move || program(&comm))).collect();
        let results: Vec<_> = ranks.into_iter().map(|rank| rank.join()).collect();
        results
            .into_iter()
            .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

impl Simulated {
    /// Counts a call, and ends this rank when its time has come. `peer` is whom the error will name.
    fn begin_call(&self, peer: usize, during: &'static str) -> Result<(), CollectiveError> {
        let call = self.life.calls.fetch_add(1, Ordering::SeqCst) + 1;
        if self.life.faults.dies_at_call == Some(call) {
            self.life.end();
        }
        if self.life.dead.load(Ordering::SeqCst) {
            return Err(self.gone(peer, during));
        }
        Ok(())
    }

    /// [`begin_call`](Self::begin_call) for a call without a peer.
    fn begin_collective(&self, during: &'static str) -> Result<(), CollectiveError> {
        self.begin_call((self.rank + 1) % self.world_size, during)
    }

    fn gone(&self, peer: usize, during: &'static str) -> CollectiveError {
        CollectiveError::PeerGone { rank: self.rank, peer, during }
    }

    fn push(&self, peer: usize, message: Message, during: &'static str) -> Result<(), CollectiveError> {
        let to = lock(&self.links.to);
        let queue = to.as_ref().map(|to| &to[peer]).ok_or_else(|| self.gone(peer, during))?;
        queue.send(message).map_err(|_| self.gone(peer, during))
    }

    /// How long a message to `peer` is on its way; `None` where it never arrives.
    fn delay(&self, peer: usize) -> Option<Duration> {
        match self.life.faults.link.as_ref().filter(|_| peer != self.rank) {
            Some(link) => link(peer),
            None => Some(Duration::ZERO),
        }
    }

    fn pop(&self, peer: usize, during: &'static str) -> Result<Message, CollectiveError> {
        lock(&self.links.from[peer]).recv().map_err(|_| self.gone(peer, during))
    }

    fn push_bytes(&self, peer: usize, bytes: &[u8], during: &'static str) -> Result<(), CollectiveError> {
        let Some(delay) = self.delay(peer) else { return Ok(()) };
        let arrives = (!delay.is_zero()).then(|| now() + delay);
        self.push(peer, Message::Bytes { bytes: bytes.to_vec(), arrives }, during)
    }

    fn pop_bytes(&self, peer: usize, during: &'static str) -> Result<Vec<u8>, CollectiveError> {
        match self.pop(peer, during)? {
            Message::Bytes { bytes, arrives } => {
                if let Some(left) = arrives.and_then(|arrives| arrives.checked_duration_since(now())) {
                    sleep(left);
                }
                Ok(bytes)
            }
            Message::Queue(_) => {
                panic!("rank {peer} duplicates its channel while rank {} is in {during}", self.rank)
            }
        }
    }

    fn pop_into(&self, peer: usize, bytes: &mut [u8], during: &'static str) -> Result<(), CollectiveError> {
        let received = self.pop_bytes(peer, during)?;
        if received.len() != bytes.len() {
            return Err(CollectiveError::LengthMismatch {
                rank: self.rank,
                peer,
                during,
                expected: bytes.len(),
                received: received.len(),
            });
        }
        bytes.copy_from_slice(&received);
        Ok(())
    }

    fn every_ranks_bytes(&self, bytes: &[u8], during: &'static str) -> Result<Vec<Vec<u8>>, CollectiveError> {
        (0..self.world_size).try_for_each(|peer| self.push_bytes(peer, bytes, during))?;
        (0..self.world_size).map(|peer| self.pop_bytes(peer, during)).collect()
    }
}

impl Life {
    fn end(&self) {
        self.dead.store(true, Ordering::SeqCst);
        for links in lock(&self.channels).iter().filter_map(Weak::upgrade) {
            lock(&links.to).take();
        }
    }
}

impl Communicator for Simulated {
    fn rank(&self) -> usize {
        self.rank
    }

    fn world_size(&self) -> usize {
        self.world_size
    }

    fn exchange(&self, peer: usize, send: &[u8], recv: &mut [u8]) -> Result<(), CollectiveError> {
        check_peer(self, peer, "exchange")?;
        self.begin_call(peer, "exchange")?;
        self.push_bytes(peer, send, "exchange")?;
        self.pop_into(peer, recv, "exchange")
    }

    fn send(&self, peer: usize, bytes: &[u8]) -> Result<(), CollectiveError> {
        check_peer(self, peer, "send")?;
        self.begin_call(peer, "send")?;
        self.push_bytes(peer, bytes, "send")
    }

    fn recv(&self, peer: usize, bytes: &mut [u8]) -> Result<(), CollectiveError> {
        check_peer(self, peer, "recv")?;
        self.begin_call(peer, "recv")?;
        self.pop_into(peer, bytes, "recv")
    }

    fn barrier(&self) -> Result<(), CollectiveError> {
        self.begin_collective("barrier")?;
        self.every_ranks_bytes(&[], "barrier").map(drop)
    }

    fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<(), CollectiveError> {
        check_root(self, root, "broadcast")?;
        self.begin_call(root, "broadcast")?;
        if self.rank != root {
            return self.pop_into(root, bytes, "broadcast");
        }
        (0..self.world_size)
            .filter(|peer| *peer != root)
            .try_for_each(|peer| self.push_bytes(peer, bytes, "broadcast"))
    }

    fn all_gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, CollectiveError> {
        self.begin_collective("all_gather")?;
        self.every_ranks_bytes(bytes, "all_gather")
    }

    fn gather(&self, root: usize, bytes: &[u8]) -> Result<Option<Vec<Vec<u8>>>, CollectiveError> {
        check_root(self, root, "gather")?;
        self.begin_call(root, "gather")?;
        self.push_bytes(root, bytes, "gather")?;
        if self.rank != root {
            return Ok(None);
        }
        (0..self.world_size).map(|peer| self.pop_bytes(peer, "gather")).collect::<Result<_, _>>().map(Some)
    }

    /// Adds from the last rank down to the first: not the order of the tree, so that code which
    /// needs the tree's bits and calls this one is found out.
    fn all_reduce_any_order(&self, values: &mut [f32]) -> Result<(), CollectiveError> {
        self.begin_collective("all_reduce_any_order")?;
        let every = self.every_ranks_bytes(bytemuck::cast_slice(values), "all_reduce_any_order")?;
        values.fill(0.0);
        for (peer, bytes) in every.iter().enumerate().rev() {
            let theirs: &[f32] =
                bytemuck::try_cast_slice(bytes).map_err(|_| CollectiveError::LengthMismatch {
                    rank: self.rank,
                    peer,
                    during: "all_reduce_any_order",
                    expected: size_of_val(values),
                    received: bytes.len(),
                })?;
            values.iter_mut().zip(theirs).for_each(|(sum, value)| *sum += value);
        }
        Ok(())
    }

    fn duplicate(&self) -> Result<Box<dyn Communicator>, CollectiveError> {
        self.begin_collective("duplicate")?;
        let mut from = Vec::with_capacity(self.world_size);
        for peer in 0..self.world_size {
            let (queue_in, queue_out) = channel();
            if self.delay(peer).is_some() {
                self.push(peer, Message::Queue(queue_in), "duplicate")?;
            }
            from.push(Mutex::new(queue_out));
        }
        let to = (0..self.world_size)
            .map(|peer| match self.pop(peer, "duplicate")? {
                Message::Queue(queue) => Ok(queue),
                Message::Bytes { .. } => panic!("rank {peer} sends while rank {} is in duplicate", self.rank),
            })
            .collect::<Result<_, CollectiveError>>()?;
        let links = Arc::new(Links { to: Mutex::new(Some(to)), from });
        lock(&self.life.channels).push(Arc::downgrade(&links));
        if self.life.dead.load(Ordering::SeqCst) {
            lock(&links.to).take();
        }
        Ok(Box::new(Simulated {
            rank: self.rank,
            world_size: self.world_size,
            links,
            life: Arc::clone(&self.life),
        }))
    }

    /// This rank is gone for the others, which end with their errors, and its thread unwinds with
    /// `code` as payload.
    fn abort(&self, code: i32) -> ! {
        self.life.end();
        std::panic::resume_unwind(Box::new(code))
    }
}

/// A rank that panicked left its queues as they were; the others may go on until they miss it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dies_at(rank: usize, call: u64, world_size: usize) -> Vec<Faults> {
        (0..world_size)
            .map(|other| Faults { dies_at_call: (other == rank).then_some(call), ..Faults::default() })
            .collect()
    }

    #[test]
    fn collectives_keep_rank_order_and_lengths() {
        for world_size in 1..=5 {
            let own = |rank: usize| vec![rank as u8; rank];
            let every: Vec<Vec<u8>> = (0..world_size).map(own).collect();
            let root = world_size - 1;
            run(world_size, |comm| {
                assert_eq!(comm.all_gather(&own(comm.rank())).unwrap(), every);
                let gathered = comm.gather(root, &own(comm.rank())).unwrap();
                assert_eq!(gathered, (comm.rank() == root).then(|| every.clone()));
                let mut bytes = [comm.rank() as u8; 3];
                comm.broadcast(root, &mut bytes).unwrap();
                assert_eq!(bytes, [root as u8; 3]);
                let mut values = [1.0, comm.rank() as f32];
                comm.all_reduce_any_order(&mut values).unwrap();
                assert_eq!(values, [world_size as f32, (0..world_size).sum::<usize>() as f32]);
                comm.barrier().unwrap();
            });
        }
    }

    #[test]
    fn a_duplicate_is_a_channel_of_its_own() {
        run(2, |comm| {
            let duplicate = comm.duplicate().unwrap();
            let peer = 1 - comm.rank();
            comm.send(peer, b"main").unwrap();
            duplicate.send(peer, b"other").unwrap();
            let (mut on_main, mut on_duplicate) = ([0; 4], [0; 5]);
            duplicate.recv(peer, &mut on_duplicate).unwrap();
            comm.recv(peer, &mut on_main).unwrap();
            assert_eq!((&on_main, &on_duplicate), (b"main", b"other"));
        });
    }

    #[test]
    fn the_death_of_a_rank_reaches_all_ranks() {
        for world_size in 2..=4 {
            let results = run_with(dies_at(1, 3, world_size), |comm| {
                (0..10).map(|_| comm.barrier()).take_while(Result::is_ok).count()
            });
            assert_eq!(results, vec![2; world_size]);
        }
    }

    #[test]
    fn the_error_names_the_rank_that_died() {
        let results = run_with(dies_at(1, 1, 2), |comm| comm.exchange(1 - comm.rank(), &[1], &mut [0]));
        let gone = |rank, peer| Err(CollectiveError::PeerGone { rank, peer, during: "exchange" });
        assert_eq!(results, [gone(0, 1), gone(1, 0)]);
    }

    #[test]
    fn death_wakes_a_thread_that_waits_on_a_duplicate() {
        // Call 1 is the duplicate itself, call 2 the exchange at which rank 0 dies.
        run_with(dies_at(0, 2, 2), |comm| {
            let duplicate = comm.duplicate().unwrap();
            if comm.rank() == 0 {
                comm.exchange(1, &[], &mut []).unwrap_err();
            } else {
                duplicate.recv(0, &mut [0]).unwrap_err();
            }
        });
    }

    #[test]
    fn lengths_that_disagree_are_an_error() {
        let results = run(2, |comm| comm.exchange(1 - comm.rank(), &[0; 3], &mut [0; 4]));
        let expected = CollectiveError::LengthMismatch {
            rank: 1,
            peer: 0,
            during: "exchange",
            expected: 4,
            received: 3,
        };
        assert_eq!(results[1], Err(expected));
    }

    #[test]
    fn a_delay_holds_the_bytes_back() {
        let delay = Duration::from_millis(2);
        let link: Link = Arc::new(move |_| Some(delay));
        let faults = vec![Faults { link: Some(link), ..Faults::default() }; 2];
        let start = std::time::Instant::now();
        run_with(faults, |comm| comm.exchange(1 - comm.rank(), &[0; 20], &mut [0; 20]).unwrap());
        assert!(start.elapsed() >= delay);
    }

    #[test]
    fn abort_unwinds_with_the_code() {
        let panic = std::panic::catch_unwind(|| {
            run(2, |comm| if comm.rank() == 0 { comm.abort(82) } else { comm.barrier().unwrap_err() })
        })
        .unwrap_err();
        assert_eq!(panic.downcast_ref::<i32>(), Some(&82));
    }
}
