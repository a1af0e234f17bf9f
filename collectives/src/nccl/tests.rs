//! What is around NCCL, over a library that does as it is told.

use std::collections::VecDeque;
use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::library::Functions;
use super::*;
use crate::simulated;

/// `ncclRemoteError`.
const REMOTE: Code = 6;

/// How ranks meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meeting {
    /// All join after a while; the third look at the peers after that finds one gone.
    Together,
    /// All join after a while, and stay.
    ForGood,
    /// Rank 1 fails at once.
    RefusedAtOnce,
    /// Rank 1 fails after a while; the others learn of it when its communicator is given back, and never otherwise.
    RefusedLater,
    /// Rank 1 never comes: no call of the others ends.
    NeverMet,
}

static MEETING: Mutex<Meeting> = Mutex::new(Meeting::Together);
static OPEN: AtomicUsize = AtomicUsize::new(0);
/// Whether rank 1 has given its communicator back.
static GONE: AtomicBool = AtomicBool::new(false);

/// What a communicator of the stand-in knows.
struct Known {
    rank: c_int,
    /// What the next looks find; then what `at_last` says.
    looks: VecDeque<Code>,
    at_last: Code,
}

unsafe extern "C" fn version(version: *mut c_int) -> Code {
    unsafe { *version = 22809 };
    SUCCESS
}

unsafe extern "C" fn unique_id(id: *mut UniqueId) -> Code {
    unsafe { (*id).0.fill(7) };
    SUCCESS
}

unsafe extern "C" fn no_id(_: *mut UniqueId) -> Code {
    REMOTE
}

unsafe extern "C" fn init(
    comm: *mut Comm,
    ranks: c_int,
    id: UniqueId,
    rank: c_int,
    config: *const Config,
) -> Code {
    // A C program would read four numbers: the size, the magic number, the version and whether to block.
    let header = unsafe { std::slice::from_raw_parts(config.cast::<u32>(), 5) };
    assert_eq!(header, [24, 0, 0xcafe_beef, 21400, 0]);
    assert!(id.0 == [7; 128] && (0..ranks).contains(&rank));
    let meeting = *MEETING.lock().unwrap();
    let (looks, at_last): (&[Code], Code) = match (meeting, rank) {
        (Meeting::RefusedAtOnce, 1) => return REMOTE,
        (Meeting::RefusedLater, 1) => (&[IN_PROGRESS, REMOTE], REMOTE),
        (Meeting::RefusedLater | Meeting::NeverMet | Meeting::RefusedAtOnce, _) => (&[], IN_PROGRESS),
        (Meeting::Together, _) => {
            (&[IN_PROGRESS, IN_PROGRESS, SUCCESS, SUCCESS, IN_PROGRESS, REMOTE], REMOTE)
        }
        (Meeting::ForGood, _) => (&[IN_PROGRESS, SUCCESS, IN_PROGRESS, IN_PROGRESS], SUCCESS),
    };
    OPEN.fetch_add(1, Ordering::SeqCst);
    let known = Known { rank, looks: looks.iter().copied().collect(), at_last };
    unsafe { *comm = Box::into_raw(Box::new(known)).cast() };
    IN_PROGRESS
}

unsafe extern "C" fn abort(comm: Comm) -> Code {
    OPEN.fetch_sub(1, Ordering::SeqCst);
    let known = unsafe { Box::from_raw(comm.cast::<Known>()) };
    if known.rank == 1 && known.at_last == REMOTE {
        GONE.store(true, Ordering::SeqCst);
    }
    SUCCESS
}

unsafe extern "C" fn async_error(comm: Comm, found: *mut Code) -> Code {
    let known = unsafe { &mut *comm.cast::<Known>() };
    let heard = known.rank != 1 && GONE.load(Ordering::SeqCst);
    let next = known.looks.pop_front().unwrap_or(if heard { REMOTE } else { known.at_last });
    unsafe { *found = next };
    SUCCESS
}

unsafe extern "C" fn error_string(code: Code) -> *const c_char {
    let text: &CStr = if code == REMOTE { c"remote process exited" } else { c"something else" };
    text.as_ptr()
}

unsafe extern "C" fn nothing() -> Code {
    SUCCESS
}

unsafe extern "C" fn send(_: *const c_void, _: usize, _: c_int, _: c_int, _: Comm, _: *mut c_void) -> Code {
    SUCCESS
}

unsafe extern "C" fn recv(_: *mut c_void, _: usize, _: c_int, _: c_int, _: Comm, _: *mut c_void) -> Code {
    REMOTE
}

unsafe extern "C" fn all_reduce(
    _: *const c_void,
    _: *mut c_void,
    _: usize,
    _: c_int,
    _: c_int,
    _: Comm,
    _: *mut c_void,
) -> Code {
    IN_PROGRESS
}

fn library() -> Library {
    let functions = Functions {
        get_version: version,
        get_unique_id: unique_id,
        comm_init_rank_config: init,
        comm_abort: abort,
        comm_get_async_error: async_error,
        get_error_string: error_string,
        group_start: nothing,
        group_end: nothing,
        send,
        recv,
        all_reduce,
    };
    Library { functions: Arc::new(functions), place: "of a test".into(), version: 22809 }
}

/// Lets three ranks meet so, and gives what each finds in `f`. All communicators are given back afterwards.
fn meet<T: Send>(meeting: Meeting, f: impl Fn(&simulated::Simulated) -> T + Sync) -> Vec<T> {
    *MEETING.lock().unwrap() = meeting;
    GONE.store(false, Ordering::SeqCst);
    let found = simulated::run(3, f);
    assert_eq!(OPEN.load(Ordering::SeqCst), 0, "communicators are given back: {meeting:?}");
    found
}

/// Why no rank has joined the others.
fn refused(meeting: Meeting) -> Vec<String> {
    meet(meeting, |comm| Nccl::open(&library(), comm).unwrap().err().unwrap())
}

/// One test, as the library is one for the process: joining, a rank that cannot, one that never comes, a peer that dies in the middle.
#[test]
fn ranks_join_together_or_not_at_all_and_learn_of_a_peer_that_dies() {
    assert_eq!(library().version(), "2.28.9");
    meet(Meeting::Together, |comm| {
        let nccl = Nccl::open(&library(), comm).unwrap().unwrap();
        let mut looks = 0;
        nccl.wait(&mut || {
            looks += 1;
            Ok(looks == 2)
        })
        .unwrap();
        // The third look at the peers finds one gone, whatever the card says.
        let error = nccl.wait(&mut || Ok(false)).unwrap_err();
        assert_eq!(error.exit_code(), 69);
        assert!(error.to_string().ends_with("failed: remote process exited"), "{error}");
        let error = nccl.wait(&mut || Err("the card has stopped".into())).unwrap_err();
        assert!(error.to_string().contains("the card has stopped"), "{error}");
        let (peer, mut value) = ((comm.rank() + 1) % 3, 0f32);
        let stretch = Stretch { peer, send: (&raw const value, 1), recv: (&raw mut value, 1) };
        // SAFETY: nothing looks at the memory.
        let error = unsafe { nccl.exchange(&[stretch], CardStream(null_mut())) }.unwrap_err();
        assert!(error.to_string().contains(&format!("ncclRecv with rank {peer} failed")), "{error}");
        let unknown = Stretch { peer: 3, ..stretch };
        // SAFETY: as above.
        let error = unsafe { nccl.exchange(&[unknown], CardStream(null_mut())) }.unwrap_err();
        assert_eq!(error.exit_code(), 70);
    });

    meet(Meeting::ForGood, |comm| {
        let nccl = Nccl::open(&library(), comm).unwrap().unwrap();
        // It goes on in another thread for two looks; behind it a mark on the stream is behind the sum.
        // SAFETY: nothing looks at the memory.
        unsafe { nccl.all_reduce(null_mut(), 0, CardStream(null_mut())) }.unwrap();
        // SAFETY: as above.
        let known = unsafe { &*nccl.comm.cast::<Known>() };
        assert!(known.looks.is_empty(), "{:?}", known.looks);
    });

    for meeting in [Meeting::RefusedAtOnce, Meeting::RefusedLater] {
        // The first rank that knows of it is named: where they wait for rank 1, all find out.
        let expected = if meeting == Meeting::RefusedAtOnce { 1 } else { 0 };
        for why in refused(meeting) {
            assert_eq!(why, format!("rank {expected}: remote process exited"), "{meeting:?}");
        }
    }

    let patience = Some(Duration::from_millis(30));
    let overdue =
        meet(Meeting::NeverMet, |comm| Nccl::open_within(patience, &library(), comm).err().unwrap());
    for (rank, error) in overdue.into_iter().enumerate() {
        let text = format!("rank {rank}: ncclCommInitRankConfig has waited 0 s for other ranks");
        assert_eq!((error.to_string(), error.exit_code()), (text, 82));
        assert!(error.hint().unwrap().contains("train.deadline"));
    }

    let mut without_id = library();
    Arc::get_mut(&mut without_id.functions).unwrap().get_unique_id = no_id;
    for why in meet(Meeting::Together, |comm| Nccl::open(&without_id, comm).unwrap().err().unwrap()) {
        assert_eq!(why, "rank 0: remote process exited");
    }
}
