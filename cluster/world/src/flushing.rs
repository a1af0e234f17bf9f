//! Waits for the disk: the only calls that may take minutes in which a process at work counts nothing.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Flushes that go on in this process, and when the last of them began.
static FLUSHES: Mutex<(usize, Option<Instant>)> = Mutex::new((0, None));

fn flushes() -> MutexGuard<'static, (usize, Option<Instant>)> {
    FLUSHES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does `call`, which waits until data are on the disk. [`flushing`] tells others of it meanwhile.
pub fn flush<T>(call: impl FnOnce() -> T) -> T {
    struct Flush;
    impl Drop for Flush {
        fn drop(&mut self) {
            flushes().0 -= 1;
        }
    }
    {
        let mut flushes = flushes();
        *flushes = (flushes.0 + 1, Some(Instant::now()));
    }
    let _flush = Flush;
    call()
}

/// How long this process has waited in a [`flush`], the last one that began; `None` where none goes on.
pub fn flushing() -> Option<Duration> {
    let (count, last) = *flushes();
    last.filter(|_| count > 0).map(|last| last.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_is_told_of_until_it_ends_however_it_ends() {
        assert_eq!(flushing(), None);
        flush(|| {
            let outer = flushing();
            flush(|| assert!(flushing().is_some()));
            assert!(outer.is_some() && flushing().is_some());
        });
        assert_eq!(flushing(), None);
        assert!(std::panic::catch_unwind(|| flush(|| panic!("on purpose"))).is_err());
        assert_eq!(flushing(), None);
    }
}
