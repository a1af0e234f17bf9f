//! Ranks as processes of one MPI job.
//!
//! The only module that calls the MPI library. It goes below `rsmpi`'s safe surface, which drops the
//! library's return codes: here every code becomes a [`CollectiveError`].
//!
//! Waiting: MPI waits by spinning, which takes the core from a thread that computes. Here a wait gives
//! the core away between two looks, and after a while pauses between them; collectives that run inside
//! the library start with such a wait for all ranks. With as many busy threads as cores, that brings
//! the cost of sums that overlap with computation down to that of the copying itself.
//!
//! The invariants that all `unsafe` blocks here lean on:
//!
//! 1. MPI is initialised, with `MPI_THREAD_MULTIPLE`, and not yet finalised: every [`Mpi`] holds the
//!    [`Universe`], whose drop finalises.
//! 2. `comm` is a valid communicator: it is `MPI_COMM_WORLD` or came from `MPI_Comm_dup` and is freed
//!    by finalisation alone.
//! 3. Pointers and counts come from one live slice, and no count exceeds `PIECE`.
//! 4. A non-blocking request is complete before the function that started it returns, or the process
//!    ends: see `Mpi::wait`.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::mpi::Threading;
use ::mpi::environment::Universe;
use ::mpi::ffi;

use crate::CollectiveError;
use crate::calls::Waiting;
use crate::communicator::{Communicator, check_peer, check_root};
use crate::deadline;
use crate::stderr::print_line;

/// Long messages are cut into pieces of this many bytes: twice as fast as one call within a node
/// (a piece stays in the cache), and far below the 2^31-1 elements that MPI's counts hold.
const PIECE: usize = 1 << 20;

/// How long a wait yields before it pauses. A piece takes about as long within a node; shorter, and
/// transfers that are under way get interrupted by pauses.
const YIELDING: Duration = Duration::from_micros(500);

/// The pause between two looks at a message that has not come.
const PAUSE: Duration = Duration::from_micros(50);

const SUCCESS: c_int = ffi::MPI_SUCCESS as c_int;

/// The tag of all messages; communicators, not tags, keep channels apart.
const TAG: c_int = 0;

/// The MPI library and its version, such as `Open MPI v4.1.4`.
pub fn library() -> String {
    let told = ::mpi::environment::library_version().unwrap_or_default();
    let first = told.split([',', '\n', '\0']).next().unwrap_or_default();
    first.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// One rank of an MPI job.
///
/// MPI ends when the last `Mpi` of the process is dropped, which should happen on the thread that
/// called [`initialize`](Mpi::initialize): join the threads that hold duplicates first. A process that
/// exits without dropping it makes `mpirun` report a failure.
pub struct Mpi {
    comm: ffi::MPI_Comm,
    rank: usize,
    world_size: usize,
    universe: Arc<Universe>,
}

// SAFETY: a communicator handle may be used from any thread under MPI_THREAD_MULTIPLE, which
// `initialize` insists on. Two threads in a collective call on one handle at a time would mix up their
// messages, not memory.
unsafe impl Send for Mpi {}
// SAFETY: as above.
unsafe impl Sync for Mpi {}

impl Mpi {
    /// Joins the MPI job this process was started in; once in a process.
    pub fn initialize() -> Result<Mpi, CollectiveError> {
        let (universe, threading) =
            ::mpi::initialize_with_threading(Threading::Multiple).ok_or(CollectiveError::MpiUnavailable {
                reason: "it has already been initialised in this process",
                advice: "use the communicator that was returned",
            })?;
        if threading != Threading::Multiple {
            return Err(CollectiveError::MpiUnavailable {
                reason: "the library does not let several threads communicate (MPI_THREAD_MULTIPLE)",
                advice: "use an MPI library with thread support",
            });
        }
        // SAFETY: a constant of the library, set before `main`.
        let comm = unsafe { ffi::RSMPI_COMM_WORLD };
        let mpi = Mpi::with_comm(comm, Arc::new(universe), 0)?;
        // SAFETY: invariants 1 and 2; the process does not end its part in MPI while a call of it waits.
        deadline::watch(|code| unsafe { _ = ffi::MPI_Abort(ffi::RSMPI_COMM_WORLD, code) });
        Ok(mpi)
    }

    /// Takes `comm` over; `rank` is for an error before MPI has told it.
    fn with_comm(comm: ffi::MPI_Comm, universe: Arc<Universe>, rank: usize) -> Result<Mpi, CollectiveError> {
        let mut this = Mpi { comm, rank, world_size: 0, universe };
        let (mut rank, mut world_size) = (0, 0);
        // SAFETY: invariants 1 and 2; the out-pointers are live locals.
        unsafe {
            this.check(
                ffi::MPI_Comm_set_errhandler(comm, ffi::RSMPI_ERRORS_RETURN),
                "MPI_Comm_set_errhandler",
                None,
            )?;
            this.check(ffi::MPI_Comm_rank(comm, &mut rank), "MPI_Comm_rank", None)?;
            this.check(ffi::MPI_Comm_size(comm, &mut world_size), "MPI_Comm_size", None)?;
        }
        // MPI's ranks and sizes are never negative.
        this.rank = rank as usize;
        this.world_size = world_size as usize;
        Ok(this)
    }

    /// Turns a return code of `call` into a result.
    fn check(&self, code: c_int, call: &'static str, peer: Option<usize>) -> Result<(), CollectiveError> {
        if code == SUCCESS {
            return Ok(());
        }
        // More than MPI_MAX_ERROR_STRING of any library (256 in Open MPI, 512 or 1024 in MPICH).
        let mut text = [0_u8; 4096];
        let mut len = 0;
        // SAFETY: invariant 1; the library writes at most MPI_MAX_ERROR_STRING bytes.
        unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast(), &mut len) };
        let message = String::from_utf8_lossy(&text[..(len.max(0) as usize).min(text.len())]).into_owned();
        Err(CollectiveError::Mpi { rank: self.rank, peer, call, message })
    }

    /// Ends the job for an error that leaves a request open: it may still write into its buffer, so
    /// the caller must not get the buffer back.
    fn end_job(&self, error: &CollectiveError) -> ! {
        print_line(&format!("error: {error}"));
        self.abort(error.exit_code())
    }

    /// Waits for `requests`, first yielding, then with pauses, and returns their statuses. A failure,
    /// such as a message longer than its buffer, ends the job.
    fn wait<const N: usize>(
        &self,
        requests: &mut [ffi::MPI_Request; N],
        call: &'static str,
        peer: Option<usize>,
        bytes: usize,
    ) -> [ffi::MPI_Status; N] {
        let _waiting = Waiting::begin(self.rank, call, peer, bytes);
        match self.wait_until(requests, call, peer, None) {
            Some(statuses) => statuses,
            None => unreachable!("there is no end to this wait but that of the job"),
        }
    }

    /// The same, but `None` where the requests are still open at `end`.
    fn wait_until<const N: usize>(
        &self,
        requests: &mut [ffi::MPI_Request; N],
        call: &'static str,
        peer: Option<usize>,
        end: Option<Instant>,
    ) -> Option<[ffi::MPI_Status; N]> {
        // SAFETY: a status is plain integers that the library fills in.
        let mut statuses: [ffi::MPI_Status; N] = unsafe { std::mem::zeroed() };
        let start = Instant::now();
        loop {
            let mut done = 0;
            // SAFETY: invariants 1 and 4; both arrays have N elements.
            let code = unsafe {
                ffi::MPI_Testall(N as c_int, requests.as_mut_ptr(), &mut done, statuses.as_mut_ptr())
            };
            // Where only some requests failed, the code says no more than that; their statuses say what.
            let mut codes = statuses.iter().map(|status| status.MPI_ERROR);
            let failed = codes.find(|code| ![SUCCESS, ffi::MPI_ERR_PENDING as c_int].contains(code));
            if let Err(error) = self.check(failed.filter(|_| code != SUCCESS).unwrap_or(code), call, peer) {
                self.end_job(&error);
            }
            if done != 0 {
                return Some(statuses);
            }
            if end.is_some_and(|end| Instant::now() >= end) {
                return None;
            }
            if start.elapsed() < YIELDING {
                std::thread::yield_now();
            } else {
                std::thread::sleep(PAUSE);
            }
        }
    }

    fn start_send(&self, peer: usize, bytes: &[u8]) -> Result<ffi::MPI_Request, CollectiveError> {
        // SAFETY: invariants 1 to 3; the caller keeps `bytes` until `wait`.
        unsafe {
            let mut request = ffi::RSMPI_REQUEST_NULL;
            let (data, count) = (bytes.as_ptr().cast(), bytes.len() as c_int);
            let code =
                ffi::MPI_Isend(data, count, ffi::RSMPI_UINT8_T, peer as c_int, TAG, self.comm, &mut request);
            self.check(code, "MPI_Isend", Some(peer)).map(|()| request)
        }
    }

    fn start_recv(&self, peer: usize, bytes: &mut [u8]) -> Result<ffi::MPI_Request, CollectiveError> {
        // SAFETY: invariants 1 to 3; the caller keeps `bytes` until `wait`.
        unsafe {
            let mut request = ffi::RSMPI_REQUEST_NULL;
            let (data, count) = (bytes.as_mut_ptr().cast(), bytes.len() as c_int);
            let code =
                ffi::MPI_Irecv(data, count, ffi::RSMPI_UINT8_T, peer as c_int, TAG, self.comm, &mut request);
            self.check(code, "MPI_Irecv", Some(peer)).map(|()| request)
        }
    }

    /// Holds a received piece against the length that was expected.
    fn check_length(
        &self,
        status: &ffi::MPI_Status,
        expected: usize,
        peer: usize,
        during: &'static str,
    ) -> Result<(), CollectiveError> {
        let mut received = 0;
        // SAFETY: invariant 1; `status` was filled in by a completed receive.
        let code = unsafe { ffi::MPI_Get_count(status, ffi::RSMPI_UINT8_T, &mut received) };
        self.check(code, "MPI_Get_count", Some(peer))?;
        let received = received as usize;
        if received == expected {
            return Ok(());
        }
        Err(CollectiveError::LengthMismatch { rank: self.rank, peer, during, expected, received })
    }

    /// Waits with pauses until every rank is here.
    fn meet(&self) -> Result<(), CollectiveError> {
        let request = self.start_meeting()?;
        self.wait(&mut [request], "MPI_Ibarrier", None, 0);
        Ok(())
    }

    fn start_meeting(&self) -> Result<ffi::MPI_Request, CollectiveError> {
        // SAFETY: invariants 1, 2 and 4; a barrier has no buffer that a request left open could write to.
        unsafe {
            let mut request = ffi::RSMPI_REQUEST_NULL;
            self.check(ffi::MPI_Ibarrier(self.comm, &mut request), "MPI_Ibarrier", None)?;
            Ok(request)
        }
    }

    /// A call of the library that waits inside it, until every rank has made it.
    fn within(&self, call: &'static str, bytes: usize) -> Waiting {
        Waiting::begin(self.rank, call, None, bytes)
    }

    fn broadcast_pieces(&self, root: usize, bytes: &mut [u8]) -> Result<(), CollectiveError> {
        for piece in bytes.chunks_mut(PIECE) {
            let _waiting = self.within("MPI_Bcast", piece.len());
            // SAFETY: invariants 1 to 3.
            let code = unsafe {
                ffi::MPI_Bcast(
                    piece.as_mut_ptr().cast(),
                    piece.len() as c_int,
                    ffi::RSMPI_UINT8_T,
                    root as c_int,
                    self.comm,
                )
            };
            self.check(code, "MPI_Bcast", None)?;
        }
        Ok(())
    }

    /// Every rank's `value`, in rank order.
    fn all_gather_lengths(&self, value: usize) -> Result<Vec<usize>, CollectiveError> {
        let own = value as u64;
        let mut every = vec![0_u64; self.world_size];
        let _waiting = self.within("MPI_Allgather", size_of::<u64>());
        // SAFETY: invariants 1 and 2; `every` has room for one number from each rank.
        let code = unsafe {
            ffi::MPI_Allgather(
                (&raw const own).cast(),
                1,
                ffi::RSMPI_UINT64_T,
                every.as_mut_ptr().cast(),
                1,
                ffi::RSMPI_UINT64_T,
                self.comm,
            )
        };
        self.check(code, "MPI_Allgather", None)?;
        Ok(every.into_iter().map(|len| len as usize).collect())
    }

    /// Every rank's bytes, of the given lengths, at most [`PIECE`] in all.
    fn all_gather_short(&self, bytes: &[u8], lengths: &[usize]) -> Result<Vec<Vec<u8>>, CollectiveError> {
        let counts: Vec<c_int> = lengths.iter().map(|len| *len as c_int).collect();
        let starts: Vec<c_int> = counts
            .iter()
            .scan(0, |next, count| {
                let start = *next;
                *next += count;
                Some(start)
            })
            .collect();
        // One byte more than is used: the pointer of an empty Rust slice of bytes is 1, and that is
        // Open MPI's MPI_IN_PLACE, a request for something else.
        let own = [bytes, &[0]].concat();
        let mut joined = vec![0_u8; lengths.iter().sum::<usize>() + 1];
        let _waiting = self.within("MPI_Allgatherv", bytes.len());
        // SAFETY: invariants 1 to 3; counts and starts, one for each rank, tile `joined` but for its
        // last byte.
        let code = unsafe {
            ffi::MPI_Allgatherv(
                own.as_ptr().cast(),
                bytes.len() as c_int,
                ffi::RSMPI_UINT8_T,
                joined.as_mut_ptr().cast(),
                counts.as_ptr(),
                starts.as_ptr(),
                ffi::RSMPI_UINT8_T,
                self.comm,
            )
        };
        self.check(code, "MPI_Allgatherv", None)?;
        let mut rest = joined.as_slice();
        let every = lengths.iter().map(|len| {
            let (theirs, after) = rest.split_at(*len);
            rest = after;
            theirs.to_vec()
        });
        Ok(every.collect())
    }
}

/// The part of `len` bytes that travels as the message of this number; empty beyond the end.
fn piece_range(len: usize, number: usize) -> std::ops::Range<usize> {
    (number * PIECE).min(len)..((number + 1) * PIECE).min(len)
}

impl Communicator for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn world_size(&self) -> usize {
        self.world_size
    }

    fn exchange(&self, peer: usize, send: &[u8], recv: &mut [u8]) -> Result<(), CollectiveError> {
        check_peer(self, peer, "exchange")?;
        for number in 0.. {
            let (out, into) = (piece_range(send.len(), number), piece_range(recv.len(), number));
            // A side with nothing left to say, or nothing at all, says so with an empty message.
            if out.is_empty() && into.is_empty() && number > 0 {
                break;
            }
            let (out, into) = (&send[out], &mut recv[into]);
            let receiving = self.start_recv(peer, into)?;
            let sending = self.start_send(peer, out).unwrap_or_else(|error| self.end_job(&error));
            let statuses = self.wait(&mut [receiving, sending], "MPI_Sendrecv", Some(peer), out.len());
            self.check_length(&statuses[0], into.len(), peer, "exchange")?;
        }
        Ok(())
    }

    fn send(&self, peer: usize, bytes: &[u8]) -> Result<(), CollectiveError> {
        check_peer(self, peer, "send")?;
        for number in 0.. {
            let piece = &bytes[piece_range(bytes.len(), number)];
            if piece.is_empty() && number > 0 {
                break;
            }
            let request = self.start_send(peer, piece)?;
            self.wait(&mut [request], "MPI_Send", Some(peer), piece.len());
        }
        Ok(())
    }

    fn recv(&self, peer: usize, bytes: &mut [u8]) -> Result<(), CollectiveError> {
        check_peer(self, peer, "recv")?;
        let len = bytes.len();
        for number in 0.. {
            let piece = &mut bytes[piece_range(len, number)];
            if piece.is_empty() && number > 0 {
                break;
            }
            let request = self.start_recv(peer, piece)?;
            let statuses = self.wait(&mut [request], "MPI_Recv", Some(peer), piece.len());
            self.check_length(&statuses[0], piece.len(), peer, "recv")?;
        }
        Ok(())
    }

    fn barrier(&self) -> Result<(), CollectiveError> {
        self.meet()
    }

    fn barrier_within(&self, patience: Duration) -> Result<bool, CollectiveError> {
        let (request, end) = (self.start_meeting()?, Instant::now() + patience);
        Ok(self.wait_until(&mut [request], "MPI_Ibarrier", None, Some(end)).is_some())
    }

    fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<(), CollectiveError> {
        check_root(self, root, "broadcast")?;
        self.meet()?;
        self.broadcast_pieces(root, bytes)
    }

    fn all_gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, CollectiveError> {
        self.meet()?;
        let lengths = self.all_gather_lengths(bytes.len())?;
        if lengths.iter().sum::<usize>() <= PIECE {
            return self.all_gather_short(bytes, &lengths);
        }
        let mut every: Vec<Vec<u8>> = lengths.into_iter().map(|len| vec![0; len]).collect();
        every[self.rank].copy_from_slice(bytes);
        for (root, theirs) in every.iter_mut().enumerate() {
            self.broadcast_pieces(root, theirs)?;
        }
        Ok(every)
    }

    fn gather(&self, root: usize, bytes: &[u8]) -> Result<Option<Vec<Vec<u8>>>, CollectiveError> {
        check_root(self, root, "gather")?;
        self.meet()?;
        let lengths = self.all_gather_lengths(bytes.len())?;
        if self.rank != root {
            return self.send(root, bytes).map(|()| None);
        }
        let mut every: Vec<Vec<u8>> = lengths.into_iter().map(|len| vec![0; len]).collect();
        every[root].copy_from_slice(bytes);
        for peer in (0..self.world_size).filter(|peer| *peer != root) {
            self.recv(peer, &mut every[peer])?;
        }
        Ok(Some(every))
    }

    fn all_reduce_any_order(&self, values: &mut [f32]) -> Result<(), CollectiveError> {
        self.meet()?;
        // MPI reads one buffer and writes another; MPI_IN_PLACE is a C macro that has no Rust name.
        let mut own = Vec::new();
        for piece in values.chunks_mut(PIECE / size_of::<f32>()) {
            own.clear();
            own.extend_from_slice(piece);
            let _waiting = self.within("MPI_Allreduce", size_of_val(piece));
            // SAFETY: invariants 1 to 3; `own` is as long as `piece`.
            let code = unsafe {
                ffi::MPI_Allreduce(
                    own.as_ptr().cast(),
                    piece.as_mut_ptr().cast(),
                    piece.len() as c_int,
                    ffi::RSMPI_FLOAT,
                    ffi::RSMPI_SUM,
                    self.comm,
                )
            };
            self.check(code, "MPI_Allreduce", None)?;
        }
        Ok(())
    }

    fn duplicate(&self) -> Result<Box<dyn Communicator>, CollectiveError> {
        self.meet()?;
        let _waiting = self.within("MPI_Comm_dup", 0);
        // SAFETY: invariants 1 and 2; the out-pointer is a live local.
        let comm = unsafe {
            let mut comm = ffi::RSMPI_COMM_NULL;
            self.check(ffi::MPI_Comm_dup(self.comm, &mut comm), "MPI_Comm_dup", None)?;
            comm
        };
        Ok(Box::new(Mpi::with_comm(comm, Arc::clone(&self.universe), self.rank)?))
    }

    fn abort(&self, code: i32) -> ! {
        // SAFETY: invariants 1 and 2.
        unsafe { ffi::MPI_Abort(self.comm, code) };
        // Reached only where MPI_Abort itself fails.
        std::process::exit(code)
    }
}
