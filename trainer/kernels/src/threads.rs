//! Threads for a rank's own loops.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

static COUNT: AtomicUsize = AtomicUsize::new(1);
static POOL: OnceLock<Option<ThreadPool>> = OnceLock::new();

/// How many threads [`for_each`] uses; what is set after its first use has no effect.
pub fn set_count(threads: usize) {
    COUNT.store(threads, Ordering::Relaxed);
}

/// How many threads [`for_each`] uses at most.
pub fn count() -> usize {
    COUNT.load(Ordering::Relaxed).max(1)
}

/// Calls `f(0)` to `f(count - 1)`, on several threads where there are: no call may depend on another.
pub fn for_each(count: usize, f: impl Fn(usize) + Sync + Send) {
    match idle_pool() {
        Some(pool) => pool.install(|| (0..count).into_par_iter().for_each(f)),
        None => (0..count).for_each(f),
    }
}

/// Calls `f` with each of `items`, as [`for_each`] does: with parts of a slice, say, that are written to.
pub fn for_each_of<T: Send>(items: Vec<T>, f: impl Fn(T) + Sync + Send) {
    match idle_pool() {
        Some(pool) => pool.install(|| items.into_par_iter().for_each(f)),
        None => items.into_iter().for_each(f),
    }
}

/// The threads, unless the caller is one of them: it would take up other calls of the outer loop while it waits for its own.
fn idle_pool() -> Option<&'static ThreadPool> {
    pool().filter(|_| rayon::current_thread_index().is_none())
}

/// The threads, where there are several: without, the caller does all the work.
fn pool() -> Option<&'static ThreadPool> {
    let build = || {
        let threads = COUNT.load(Ordering::Relaxed);
        (threads > 1).then(|| ThreadPoolBuilder::new().num_threads(threads).build().ok()).flatten()
    };
    POOL.get_or_init(build).as_ref()
}

/// Values that are worth a call of their own.
pub const PART: usize = 1 << 15;

/// Calls `f` with consecutive parts of 0 to `count`, `size` long but for the last, as [`for_each`] does.
pub fn for_each_part(count: usize, size: usize, f: impl Fn(Range<usize>) + Sync + Send) {
    for_each(count.div_ceil(size), |part| f(part * size..count.min((part + 1) * size)));
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn parts_cover_all_once() {
        for count in [0, 1, 9, 10, 11, 35] {
            let parts = Mutex::new(Vec::new());
            for_each_part(count, 10, |part| parts.lock().unwrap().push(part));
            let mut parts = parts.into_inner().unwrap();
            parts.sort_by_key(|part| part.start);
            assert!(parts.iter().all(|part| (1..=10).contains(&part.len())));
            assert!(parts.into_iter().flatten().eq(0..count));
        }
    }
}
