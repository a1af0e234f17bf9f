use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Bytes of memory that encoding may take over all workers. A dozen texts of a mebibyte go at once with the dearest tokenizers, which are
/// few where documents are that long, and hosts that build corpora have more.
pub(crate) const ENCODING_BYTES: u64 = 4 << 30;
/// What takes no more than this is not counted: it is little beside what a worker holds anyway, and most lines and documents are that short.
const UNCOUNTED: u64 = 4 << 20;

/// Bytes of memory that threads share: each takes what it needs, and waits where that is not left.
///
/// Nobody waits for ever. A thread takes once, for one text, and gives back before it takes again, hands a result on or waits for anything
/// else: encoding needs no other thread, and starts no task of the pool that could take in its midst. So whoever holds some goes on
/// to the end of its text. Results are consumed in order, but only when all texts of their batch are done, by a task that takes nothing:
/// whichever texts go first, the batch ends, and so does the wait of the largest text, which others may overtake until then.
pub(crate) struct MemoryBudget {
    whole: u64,
    left: Mutex<u64>,
    given_back: Condvar,
}

impl MemoryBudget {
    pub(crate) fn new(whole: u64) -> MemoryBudget {
        MemoryBudget { whole, left: Mutex::new(whole), given_back: Condvar::new() }
    }

    /// Waits until so many bytes are left and takes them, until the result is dropped. Who needs more than there are in all gets all: nobody
    /// else holds any then.
    pub(crate) fn take(&self, bytes: u64) -> Taken<'_> {
        let bytes = if bytes <= UNCOUNTED { 0 } else { bytes.min(self.whole) };
        if bytes > 0 {
            let enough = self.given_back.wait_while(self.left(), |left| *left < bytes);
            *enough.unwrap_or_else(PoisonError::into_inner) -= bytes;
        }
        Taken { budget: self, bytes }
    }

    /// A number is whole whatever thread has panicked.
    fn left(&self) -> MutexGuard<'_, u64> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes that a thread has taken.
#[must_use]
pub(crate) struct Taken<'a> {
    budget: &'a MemoryBudget,
    bytes: u64,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            *self.budget.left() += self.bytes;
            // Those that wait need different numbers of bytes: each looks for itself.
            self.budget.given_back.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread::{scope, yield_now};

    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    proptest! {
        #[test]
        fn threads_hold_no_more_than_the_whole_and_all_get_their_turn(
            needs in prop::collection::vec(prop::collection::vec(1u64..40, 1..12), 1..6), whole in 5u64..30,
        ) {
            let (budget, held, most) = (MemoryBudget::new(whole * MIB), AtomicU64::new(0), AtomicU64::new(0));
            let take_all = |needs: &[u64]| for need in needs {
                let taken = budget.take(need * MIB);
                let now = held.fetch_add(taken.bytes, Ordering::SeqCst) + taken.bytes;
                most.fetch_max(now, Ordering::SeqCst);
                yield_now();
                held.fetch_sub(taken.bytes, Ordering::SeqCst);
            };
            scope(|threads| for needs in &needs { threads.spawn(|| take_all(needs)); });
            prop_assert!(most.into_inner() <= whole * MIB);
            prop_assert_eq!(*budget.left(), whole * MIB);
        }
    }

    #[test]
    fn what_needs_more_than_the_whole_takes_all_of_it_and_a_little_takes_nothing() {
        let budget = MemoryBudget::new(10 * MIB);
        let all = budget.take(u64::MAX);
        assert_eq!((all.bytes, *budget.left()), (10 * MIB, 0));
        // Would wait for ever otherwise.
        assert_eq!(budget.take(UNCOUNTED).bytes, 0);
        drop(all);
        assert_eq!(*budget.left(), 10 * MIB);
    }

    #[test]
    fn a_panic_gives_back_what_was_taken() {
        let budget = MemoryBudget::new(10 * MIB);
        let panics = || {
            let _taken = budget.take(8 * MIB);
            panic!("as a tokenizer may");
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        assert_eq!(*budget.left(), 10 * MIB);
    }
}
