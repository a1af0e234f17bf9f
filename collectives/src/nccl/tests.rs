//! What is around NCCL, over a library that does as it is told.

use std::ffi::{CStr, c_char};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use super::library::Functions;
use super::*;
use crate::simulated;

/// `ncclRemoteError`.
const REMOTE: Code = 6;
/// The rank that cannot join; none where negative.
static UNABLE: AtomicI32 = AtomicI32::new(-1);
static OPEN: AtomicUsize = AtomicUsize::new(0);

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

unsafe extern "C" fn init(comm: *mut Comm, ranks: c_int, id: UniqueId, rank: c_int) -> Code {
    assert!(id.0 == [7; 128] && (0..ranks).contains(&rank));
    if rank == UNABLE.load(Ordering::SeqCst) {
        return REMOTE;
    }
    OPEN.fetch_add(1, Ordering::SeqCst);
    unsafe { *comm = Box::into_raw(Box::new(0)).cast() };
    SUCCESS
}

unsafe extern "C" fn abort(comm: Comm) -> Code {
    OPEN.fetch_sub(1, Ordering::SeqCst);
    drop(unsafe { Box::from_raw(comm.cast::<i32>()) });
    SUCCESS
}

/// All is well twice, and then a peer is gone.
unsafe extern "C" fn async_error(comm: Comm, found: *mut Code) -> Code {
    let looks = unsafe { &mut *comm.cast::<i32>() };
    *looks += 1;
    unsafe { *found = [SUCCESS, IN_PROGRESS, REMOTE][(*looks as usize - 1).min(2)] };
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
    SUCCESS
}

fn library() -> Library {
    let functions = Functions {
        get_version: version,
        get_unique_id: unique_id,
        comm_init_rank: init,
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

/// One test, as the library is one for the process: joining, a rank that cannot, a peer that dies in the middle.
#[test]
fn ranks_join_together_or_not_at_all_and_learn_of_a_peer_that_dies() {
    assert_eq!(library().version(), "2.28.9");
    simulated::run(3, |comm| {
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
    assert_eq!(OPEN.load(Ordering::SeqCst), 0, "communicators are given back");

    UNABLE.store(1, Ordering::SeqCst);
    for why in simulated::run(3, |comm| Nccl::open(&library(), comm).unwrap().err().unwrap()) {
        assert_eq!(why, "rank 1: remote process exited");
    }
    assert_eq!(OPEN.load(Ordering::SeqCst), 0, "of those that could join too");

    let mut without_id = library();
    Arc::get_mut(&mut without_id.functions).unwrap().get_unique_id = no_id;
    for why in simulated::run(3, |comm| Nccl::open(&without_id, comm).unwrap().err().unwrap()) {
        assert_eq!(why, "rank 0: remote process exited");
    }
}
