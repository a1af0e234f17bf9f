//! Ranks that exchange what lies on their cards, through NCCL.
//!
//! The library is loaded when it is asked for, so that the program runs on hosts without it. A [`Nccl`] comes out of a
//! [`Communicator`] of the host, which hands out the id. It passes on memory of cards and knows no tensors: who has them
//! says where they lie, and on which stream. No function of NCCL waits for another rank: each is asked for its end again and again, so that a
//! rank whose peer is gone learns of it, or gives up when the job's [`deadline`](crate::deadline) is over. [`CardLink::wait`] looks for the end
//! of what was queued, and for what NCCL has found out of its peers meanwhile.
//!
//! The invariants that all `unsafe` blocks here lean on:
//!
//! 1. Functions are those of the library of that name, as its header declares them ([`library`]).
//! 2. `comm` came from `ncclCommInitRankConfig`, or is null, and is given back by `drop` alone.
//! 3. Memory and streams are the caller's word.

pub mod library;

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use library::{Code, Comm, Config, FLOAT, IN_PROGRESS, Library, SUCCESS, SUM, UniqueId};

use crate::calls::Waiting;
use crate::{CollectiveError, Communicator, deadline};

/// The call in which ranks meet.
const INIT: &str = "ncclCommInitRankConfig";

/// How long a wait yields before it pauses, and the pause between two looks.
const YIELDING: Duration = Duration::from_micros(500);
const PAUSE: Duration = Duration::from_micros(50);

/// A stream of a card, as its driver calls it.
#[derive(Debug, Clone, Copy)]
pub struct CardStream(pub *mut c_void);

/// What goes to a peer and comes from it, in values of four bytes. A side without values is left out, on both ranks.
#[derive(Debug, Clone, Copy)]
pub struct Stretch {
    /// The other rank.
    pub peer: usize,
    /// What is sent, and how many values that are.
    pub send: (*const f32, usize),
    /// Where what comes goes, likewise.
    pub recv: (*mut f32, usize),
}

/// Messages between ranks of what lies on a device.
pub trait CardLink: Send {
    /// Queues all `stretches`, each with another peer.
    ///
    /// # Safety
    /// The memory is the device's, as long as said, and stays until the stream is through; nothing that is written overlaps with another stretch.
    unsafe fn exchange(&self, stretches: &[Stretch], stream: CardStream) -> Result<(), CollectiveError>;

    /// Queues the sum of `len` values over ranks, in whatever order.
    ///
    /// # Safety
    /// As for [`exchange`](Self::exchange).
    unsafe fn all_reduce(
        &self,
        values: *mut f32,
        len: usize,
        stream: CardStream,
    ) -> Result<(), CollectiveError>;

    /// Waits until `done`, as a call that [`deadline`](crate::deadline) sees.
    fn wait(&self, done: &mut dyn FnMut() -> Result<bool, String>) -> Result<(), CollectiveError>;
}

/// One rank of a job whose ranks have a card each.
pub struct Nccl {
    library: Library,
    comm: Comm,
    rank: usize,
    world_size: usize,
    /// How long a call may go on without an answer of the other ranks.
    patience: Option<Duration>,
}

// SAFETY: NCCL lets any thread use a communicator, one at a time; there is no way to share one here.
unsafe impl Send for Nccl {}

impl Nccl {
    /// Collective. Joins the ranks of `host` with the cards that their threads have chosen. The inner error is the same on all ranks: why the first
    /// of them that failed cannot.
    pub fn open(library: &Library, host: &dyn Communicator) -> Result<Result<Self, String>, CollectiveError> {
        Self::open_within(deadline::limit(), library, host)
    }

    /// The same, where a call is given up that has waited for `patience`; for ever where that is `None`.
    fn open_within(
        patience: Option<Duration>,
        library: &Library,
        host: &dyn Communicator,
    ) -> Result<Result<Self, String>, CollectiveError> {
        let (rank, world_size) = (host.rank(), host.world_size());
        // The id, and whether there is one.
        let mut handed = [0; 129];
        let own = if rank == 0 { library.unique_id() } else { Ok([0; 128]) };
        if let (0, Ok(id)) = (rank, &own) {
            handed[0] = 1;
            handed[1..].copy_from_slice(id);
        }
        host.broadcast(0, &mut handed)?;
        if handed[0] == 0 {
            // Rank 0 alone knows why.
            let mut why = own.err().unwrap_or_default().into_bytes();
            why.resize(256, b' ');
            host.broadcast(0, &mut why)?;
            return Ok(Err(format!("rank 0: {}", String::from_utf8_lossy(&why).trim())));
        }
        let mut id = UniqueId([0; 128]);
        id.0.copy_from_slice(&handed[1..]);
        let mut nccl = Self { library: library.clone(), comm: null_mut(), rank, world_size, patience };
        // A call that fails at once is heard of before anybody waits for the others.
        let code = nccl.begin(id);
        let begun = if code == IN_PROGRESS { Ok(()) } else { library.check(code) };
        if let Some(why) = first_failure(host, &begun)? {
            return Ok(Err(why));
        }
        let waiting = Waiting::begin(rank, INIT, None, 0);
        let settled = nccl.settled(code, INIT, None);
        drop(waiting);
        let joined = match settled {
            Ok(()) => Ok(nccl),
            // The others may be where no word of this rank reaches them. Each has the same deadline.
            Err(error @ CollectiveError::Overdue { .. }) => return Err(error),
            // Given back before anybody is told: those that still wait for this rank see that it has gone.
            Err(error) => {
                drop(nccl);
                Err(error.message())
            }
        };
        // One whose call failed must not leave the others with a communicator that nobody answers on.
        Ok(match first_failure(host, &joined)? {
            Some(why) => Err(why),
            None => joined,
        })
    }

    /// Begins to join the others.
    fn begin(&mut self, id: UniqueId) -> Code {
        let (init, config) = (self.library.functions.comm_init_rank_config, Config::WITHOUT_WAITING);
        // SAFETY: invariant 1; writes the communicator, and reads the configuration.
        unsafe { init(&mut self.comm, self.world_size as c_int, id, self.rank as c_int, &config) }
    }

    fn check(&self, code: Code, call: &'static str, peer: Option<usize>) -> Result<(), CollectiveError> {
        let failed = |message| CollectiveError::Nccl { rank: self.rank, peer, call, message };
        self.library.check(code).map_err(failed)
    }

    /// Waits until `call`, which has given `code`, is through: it may have work in another thread yet. Whoever calls it is [`Waiting`].
    fn settled(&self, code: Code, call: &'static str, peer: Option<usize>) -> Result<(), CollectiveError> {
        if code != IN_PROGRESS {
            return self.check(code, call, peer);
        }
        let start = Instant::now();
        loop {
            match self.state()? {
                IN_PROGRESS => {}
                code => return self.check(code, call, peer),
            }
            if let Some(patience) =
                self.patience.filter(|patience| deadline::waited(start.elapsed()) >= *patience)
            {
                deadline::finish();
                return Err(CollectiveError::Overdue { rank: self.rank, call, seconds: patience.as_secs() });
            }
            pause(start);
        }
    }

    /// What NCCL says of the communicator: that a call goes on, that all is well, or what has gone wrong, such as a peer that is gone.
    fn state(&self) -> Result<Code, CollectiveError> {
        let mut found = SUCCESS;
        // SAFETY: invariants 1 and 2; writes a code.
        let code = unsafe { (self.library.functions.comm_get_async_error)(self.comm, &mut found) };
        self.check(code, "ncclCommGetAsyncError", None).map(|()| found)
    }

    /// What NCCL has found out since, such as a peer that is gone.
    fn check_peers(&self) -> Result<(), CollectiveError> {
        match self.state()? {
            IN_PROGRESS => Ok(()),
            found => self.check(found, "a sum over cards", None),
        }
    }

    /// What `stretches` ask for, between the calls that make a group of it.
    unsafe fn queue(&self, stretches: &[Stretch], stream: CardStream) -> Result<(), CollectiveError> {
        let functions = &self.library.functions;
        for Stretch { peer, send: (send, sent), recv: (recv, received) } in stretches {
            let to = *peer as c_int;
            if *sent > 0 {
                // SAFETY: invariants 1 to 3.
                let code = unsafe { (functions.send)(send.cast(), *sent, FLOAT, to, self.comm, stream.0) };
                self.check(in_group(code), "ncclSend", Some(*peer))?;
            }
            if *received > 0 {
                // SAFETY: invariants 1 to 3.
                let code =
                    unsafe { (functions.recv)(recv.cast(), *received, FLOAT, to, self.comm, stream.0) };
                self.check(in_group(code), "ncclRecv", Some(*peer))?;
            }
        }
        Ok(())
    }
}

impl CardLink for Nccl {
    unsafe fn exchange(&self, stretches: &[Stretch], stream: CardStream) -> Result<(), CollectiveError> {
        for stretch in stretches {
            let known = stretch.peer < self.world_size && stretch.peer != self.rank;
            if !known {
                let (rank, peer, world_size) = (self.rank, stretch.peer, self.world_size);
                return Err(CollectiveError::NoSuchPeer { rank, peer, world_size, during: "exchange" });
            }
        }
        let functions = &self.library.functions;
        let bytes = stretches.iter().map(|stretch| stretch.send.1 * size_of::<f32>()).sum();
        // The first messages between two ranks open their connection, and wait for the peer to do so.
        let _waiting = Waiting::begin(self.rank, "ncclGroupEnd", None, bytes);
        // SAFETY: invariant 1.
        self.check(unsafe { (functions.group_start)() }, "ncclGroupStart", None)?;
        // SAFETY: invariant 3.
        let queued = unsafe { self.queue(stretches, stream) };
        // A group that was begun is ended in any case: all that this thread calls later would fall into it. What it holds is on the stream, and
        // other calls may come, when it is through.
        // SAFETY: invariant 1.
        let code = unsafe { (functions.group_end)() };
        queued.and_then(|()| self.settled(code, "ncclGroupEnd", None))
    }

    unsafe fn all_reduce(
        &self,
        values: *mut f32,
        len: usize,
        stream: CardStream,
    ) -> Result<(), CollectiveError> {
        let _waiting = Waiting::begin(self.rank, "ncclAllReduce", None, len * size_of::<f32>());
        let all_reduce = self.library.functions.all_reduce;
        // SAFETY: invariants 1 to 3; in place, as the header allows.
        let code = unsafe { all_reduce(values.cast(), values.cast(), len, FLOAT, SUM, self.comm, stream.0) };
        self.settled(code, "ncclAllReduce", None)
    }

    fn wait(&self, done: &mut dyn FnMut() -> Result<bool, String>) -> Result<(), CollectiveError> {
        let _waiting = Waiting::begin(self.rank, "a sum over cards", None, 0);
        let start = Instant::now();
        loop {
            let failed = |message| CollectiveError::Nccl {
                rank: self.rank,
                peer: None,
                call: "a sum over cards",
                message,
            };
            if done().map_err(failed)? {
                return Ok(());
            }
            self.check_peers()?;
            pause(start);
        }
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        // Not `ncclCommDestroy`, which may wait for ranks that never come. Nothing is lost: either the job ends with an error, or each rank has waited
        // for its last sum, and the ranks have agreed on something since.
        if !self.comm.is_null() {
            let _waiting = Waiting::begin(self.rank, "ncclCommAbort", None, 0);
            // SAFETY: invariants 1 and 2.
            unsafe { (self.library.functions.comm_abort)(self.comm) };
        }
    }
}

/// Collective. Why the first rank that failed did, the same on all; `None` where none has.
fn first_failure<T>(
    host: &dyn Communicator,
    own: &Result<T, String>,
) -> Result<Option<String>, CollectiveError> {
    let said = own.as_ref().err().map_or("", String::as_str);
    let all = host.all_gather(said.as_bytes())?;
    let failed = all.iter().position(|said| !said.is_empty());
    Ok(failed.map(|rank| format!("rank {rank}: {}", String::from_utf8_lossy(&all[rank]))))
}

/// The code of a call inside of a group, which ends with the group.
fn in_group(code: Code) -> Code {
    if code == IN_PROGRESS { SUCCESS } else { code }
}

/// Between two looks of a wait that began then.
fn pause(start: Instant) {
    if start.elapsed() < YIELDING {
        std::thread::yield_now();
    } else {
        std::thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests;
