//! Ranks that exchange what lies on their cards, through NCCL.
//!
//! The library is loaded when it is asked for, so that the program runs on hosts without it. A [`Nccl`] comes out of a
//! [`Communicator`] of the host, which hands out the id. It passes on memory of cards and knows no tensors: who has them
//! says where they lie, and on which stream. All calls return at once; [`CardLink::wait`] looks for their end, and for what NCCL
//! has found out of its peers meanwhile.
//!
//! The invariants that all `unsafe` blocks here lean on:
//!
//! 1. Functions are those of the library of that name, as its header declares them ([`library`]).
//! 2. `comm` came from `ncclCommInitRank` and is given back by `drop` alone.
//! 3. Memory and streams are the caller's word.

pub mod library;

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use library::{Code, Comm, FLOAT, IN_PROGRESS, Library, SUCCESS, SUM, UniqueId};

use crate::calls::Waiting;
use crate::{CollectiveError, Communicator};

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
}

// SAFETY: NCCL lets any thread use a communicator, one at a time; there is no way to share one here.
unsafe impl Send for Nccl {}

impl Nccl {
    /// Collective. Joins the ranks of `host` with the cards that their threads have chosen. The inner error is the same on all ranks: why the first
    /// of them that failed cannot.
    pub fn open(library: &Library, host: &dyn Communicator) -> Result<Result<Self, String>, CollectiveError> {
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
        let (mut comm, waiting) = (null_mut(), Waiting::begin(rank, "ncclCommInitRank", None, 0));
        let init = library.functions.comm_init_rank;
        // SAFETY: invariant 1; writes the communicator.
        let code = unsafe { init(&mut comm, world_size as c_int, id, rank as c_int) };
        drop(waiting);
        let joined = library.check(code).map(|()| Self { library: library.clone(), comm, rank, world_size });
        let said = joined.as_ref().err().map_or("", String::as_str);
        // One whose call failed must not leave the others with a communicator that nobody answers on. Where it failed before the others have met
        // it, these wait in that call until NCCL or the deadline ends it.
        let all = host.all_gather(said.as_bytes())?;
        let failed = all.iter().position(|said| !said.is_empty());
        Ok(match failed {
            Some(rank) => Err(format!("rank {rank}: {}", String::from_utf8_lossy(&all[rank]))),
            None => joined,
        })
    }

    fn check(&self, code: Code, call: &'static str, peer: Option<usize>) -> Result<(), CollectiveError> {
        let failed = |message| CollectiveError::Nccl { rank: self.rank, peer, call, message };
        self.library.check(code).map_err(failed)
    }

    /// What NCCL has found out since, such as a peer that is gone.
    fn check_peers(&self) -> Result<(), CollectiveError> {
        let mut found = SUCCESS;
        // SAFETY: invariants 1 and 2; writes a code.
        let code = unsafe { (self.library.functions.comm_get_async_error)(self.comm, &mut found) };
        self.check(code, "ncclCommGetAsyncError", None)?;
        if found == IN_PROGRESS { Ok(()) } else { self.check(found, "a sum over cards", None) }
    }

    /// What `stretches` ask for, between the calls that make a group of it.
    unsafe fn queue(&self, stretches: &[Stretch], stream: CardStream) -> Result<(), CollectiveError> {
        let functions = &self.library.functions;
        for Stretch { peer, send: (send, sent), recv: (recv, received) } in stretches {
            let to = *peer as c_int;
            if *sent > 0 {
                // SAFETY: invariants 1 to 3.
                let code = unsafe { (functions.send)(send.cast(), *sent, FLOAT, to, self.comm, stream.0) };
                self.check(code, "ncclSend", Some(*peer))?;
            }
            if *received > 0 {
                // SAFETY: invariants 1 to 3.
                let code =
                    unsafe { (functions.recv)(recv.cast(), *received, FLOAT, to, self.comm, stream.0) };
                self.check(code, "ncclRecv", Some(*peer))?;
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
        // A group that was begun is ended in any case: all that this thread calls later would fall into it.
        // SAFETY: invariant 1.
        let ended = self.check(unsafe { (functions.group_end)() }, "ncclGroupEnd", None);
        queued.and(ended)
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
        self.check(code, "ncclAllReduce", None)
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
            if start.elapsed() < YIELDING {
                std::thread::yield_now();
            } else {
                std::thread::sleep(PAUSE);
            }
        }
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        // Not `ncclCommDestroy`, which may wait for ranks that never come. Nothing is lost: either the job ends with an error, or each rank has waited
        // for its last sum, and the ranks have agreed on something since.
        // SAFETY: invariants 1 and 2.
        unsafe { (self.library.functions.comm_abort)(self.comm) };
    }
}

#[cfg(test)]
mod tests;
