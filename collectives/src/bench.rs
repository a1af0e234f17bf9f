//! Time of an all-reduce.

use std::time::{Duration, Instant};

use crate::tree::{Wire, tree_all_reduce};
use crate::{CollectiveError, Communicator};

/// What [`bench_all_reduce`] measured on this rank.
#[derive(Debug, Clone)]
pub struct AllReduceTimings {
    /// Bytes summed in each call.
    pub bytes: usize,
    /// Ranks that took part.
    pub world_size: usize,
    /// Each call of [`tree_all_reduce`], in the order they were made.
    pub tree: Vec<Duration>,
    /// The same by messages of bfloat16.
    pub short: Vec<Duration>,
    /// Each call of [`Communicator::all_reduce_any_order`], likewise.
    pub any_order: Vec<Duration>,
}

impl AllReduceTimings {
    /// The middle one of `timings`, of an even number of them the mean of the two there; zero where there are none.
    pub fn median(timings: &[Duration]) -> Duration {
        let mut sorted = timings.to_vec();
        sorted.sort_unstable();
        let Some(last) = sorted.len().checked_sub(1) else { return Duration::ZERO };
        let middle = sorted.len() / 2;
        (sorted[last - middle] + sorted[middle]) / 2
    }
}

/// Collective. Times the three ways to sum `bytes` (rounded down to whole `f32`s) over the ranks,
/// alternating, `repeats` times each after one unmeasured round. Each call starts at a barrier.
pub fn bench_all_reduce(
    comm: &dyn Communicator,
    bytes: usize,
    repeats: usize,
) -> Result<AllReduceTimings, CollectiveError> {
    let mut values = vec![0.0; bytes / size_of::<f32>()];
    let mut scratch = Vec::new();
    let mut timings = AllReduceTimings {
        bytes: values.len() * size_of::<f32>(),
        world_size: comm.world_size(),
        tree: Vec::with_capacity(repeats),
        short: Vec::with_capacity(repeats),
        any_order: Vec::with_capacity(repeats),
    };
    for round in 0..=repeats {
        let mut by_tree = |wire| timed(comm, || tree_all_reduce(comm, &mut values, &mut scratch, wire));
        let (tree, short) = (by_tree(Wire::F32)?, by_tree(Wire::Bf16)?);
        let by_library = timed(comm, || comm.all_reduce_any_order(&mut values))?;
        if round > 0 {
            timings.tree.push(tree);
            timings.short.push(short);
            timings.any_order.push(by_library);
        }
    }
    Ok(timings)
}

fn timed(
    comm: &dyn Communicator,
    call: impl FnOnce() -> Result<(), CollectiveError>,
) -> Result<Duration, CollectiveError> {
    comm.barrier()?;
    let start = Instant::now();
    call()?;
    Ok(start.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated;

    #[test]
    fn every_repeat_is_reported() {
        for timings in simulated::run(3, |comm| bench_all_reduce(comm, 4001, 5).unwrap()) {
            assert_eq!((timings.bytes, timings.world_size), (4000, 3));
            assert_eq!((timings.tree.len(), timings.short.len(), timings.any_order.len()), (5, 5, 5));
        }
    }

    #[test]
    fn the_median_is_the_middle_one() {
        let timings = [3, 1, 2].map(Duration::from_millis);
        assert_eq!(AllReduceTimings::median(&timings), Duration::from_millis(2));
        let timings = [3, 1, 2, 8].map(Duration::from_millis);
        assert_eq!(AllReduceTimings::median(&timings), Duration::from_micros(2500));
        assert_eq!(AllReduceTimings::median(&[]), Duration::ZERO);
    }
}
