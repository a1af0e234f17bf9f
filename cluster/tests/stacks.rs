//! Threads tell where they are without allocating: one may be interrupted within an allocation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use segue_cluster::stacks::of_threads;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's, with a count for each thread.
struct Counting;

// SAFETY: the system's allocator does all the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn a_thread_allocates_nothing_to_tell_where_it_is() {
    let (ready, is_ready) = channel();
    let work = move || {
        ready.send(()).unwrap();
        let before = ALLOCATIONS.get();
        // Neither a channel nor a lock, which may allocate themselves.
        thread::park();
        ALLOCATIONS.get() - before
    };
    let asked = thread::Builder::new().name("asked".into()).spawn(work).unwrap();
    is_ready.recv().unwrap();
    let told = loop {
        let threads = of_threads(Duration::from_secs(10));
        let told = threads.into_iter().find(|thread| thread.name == "asked");
        // It may not have come to its rest yet.
        if let Some(told) = told.filter(|told| told.stack.iter().any(|call| call.contains("park"))) {
            break told;
        }
    };
    assert!(told.stack.len() > 2, "{told:?}");
    asked.thread().unpark();
    assert_eq!(asked.join().unwrap(), 0);
}
