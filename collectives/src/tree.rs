//! Sums over ranks in one fixed order.
//!
//! Floating-point addition is not associative, so a sum has the same bits on any number of ranks only
//! if its terms always meet in the same order. That order is one binary tree over the index of the
//! terms, built level by level: at level k the node at each index that is a multiple of 2^k adds its
//! partner at +2^(k-1), where there is one.
//!
//! ```text
//! 4 terms: (0+1)+(2+3)     5 terms: ((0+1)+(2+3))+4     7 terms: ((0+1)+(2+3))+((4+5)+6)
//! ```
//!
//! The terms of a global step are its micro-steps. A rank that takes an aligned block of 2^k of them
//! can sum the block on its own: the block is a subtree, and the tree over the ranks is what remains
//! of the whole. [`aligned_blocks`] says whether a number of ranks allows that, [`tree_sum`] is the
//! tree inside a rank, [`tree_all_reduce`] the tree over ranks.

use std::ops::Range;

use crate::{CollectiveError, Communicator};

/// Values that each rank sums in one round of [`tree_all_reduce`], 1 MiB: large enough to hide the
/// latency of a message, small enough that what was received is still in the cache when it is added.
const SLICE_LEN: usize = (1 << 20) / size_of::<f32>();

/// Adds `items` up in the order of the tree; `None` where there are none.
///
/// ```
/// use segue_collectives::tree::tree_sum;
/// let letters = ["a", "b", "c", "d", "e"].map(String::from).to_vec();
/// let sum = tree_sum(letters, |left, right| format!("({left}{right})"));
/// assert_eq!(sum.unwrap(), "(((ab)(cd))e)");
/// ```
pub fn tree_sum<T>(items: Vec<T>, mut add: impl FnMut(T, T) -> T) -> Option<T> {
    let mut level = items;
    while level.len() > 1 {
        // An odd one out moves up alone. So the shape depends on the count only, and an aligned block of 2^k
        // is a subtree.
        let mut above = Vec::with_capacity(level.len().div_ceil(2));
        let mut nodes = level.into_iter();
        while let Some(left) = nodes.next() {
            above.push(match nodes.next() {
                Some(right) => add(left, right),
                None => left,
            });
        }
        level = above;
    }
    level.pop()
}

/// How many micro-steps each of `world_size` ranks takes, if the blocks are subtrees of the tree over
/// all `micro_steps`: all of equal length, and that a power of two. One rank may take any number.
///
/// ```
/// use segue_collectives::tree::aligned_blocks;
/// assert_eq!(aligned_blocks(12, 3).unwrap(), 4);
/// assert_eq!(aligned_blocks(6, 1).unwrap(), 6);
/// let error = aligned_blocks(6, 2).unwrap_err();
/// assert!(error.hint().unwrap().contains("start 1, 3 or 6 ranks"));
/// ```
pub fn aligned_blocks(micro_steps: usize, world_size: usize) -> Result<usize, CollectiveError> {
    let block = |ranks: usize| {
        // Equal blocks whose length is a power of two begin at multiples of it: they are nodes of one level. A
        // lone rank has nothing to line up with.
        let even = ranks > 0 && micro_steps > 0 && micro_steps.is_multiple_of(ranks);
        (even && (ranks == 1 || (micro_steps / ranks).is_power_of_two())).then(|| micro_steps / ranks)
    };
    block(world_size).ok_or_else(|| CollectiveError::UnevenMicroSteps {
        micro_steps,
        world_size,
        possible: (1..=micro_steps).filter(|ranks| block(*ranks).is_some()).collect(),
    })
}

/// Collective. Sums `values`, of equal length on all ranks, over the ranks in the order of the tree;
/// every rank gets the sum. `scratch` holds what is received; keep it between calls to spare its
/// allocation.
///
/// Each rank sends and receives 2 (n-1)/n times the bytes of `values`, as in a ring. After an error
/// `values` are undefined.
///
/// ```
/// use segue_collectives::{simulated, tree::tree_all_reduce};
/// let terms = [1e8_f32, 1.0, -1e8, 1.0];
/// let sums = simulated::run(4, |comm| {
///     let mut values = [terms[segue_collectives::Communicator::rank(comm)]];
///     tree_all_reduce(comm, &mut values, &mut Vec::new()).unwrap();
///     values[0]
/// });
/// assert_eq!(sums, [(1e8_f32 + 1.0) + (-1e8 + 1.0); 4]);
/// ```
pub fn tree_all_reduce(
    comm: &dyn Communicator,
    values: &mut [f32],
    scratch: &mut Vec<f32>,
) -> Result<(), CollectiveError> {
    let world_size = comm.world_size();
    if world_size == 1 {
        return Ok(());
    }
    // All ranks cut alike, as their values are of equal length, and no element's sum depends on where it is
    // cut.
    for round in values.chunks_mut(SLICE_LEN * world_size) {
        if world_size.is_power_of_two() {
            halve_and_double(comm, round, scratch)?;
        } else {
            sum_at_owners(comm, round, scratch)?;
        }
    }
    Ok(())
}

/// For 2^k ranks. Reduce-scatter by recursive halving: ranks at distance 1, then 2, 4, ... each give
/// the other one half of what they still hold, so that after the step at distance d a value holds the
/// sum over an aligned block of 2d ranks, one level of the tree a step. Then all-gather by recursive
/// doubling, the same way back. The farthest ranks exchange the least.
fn halve_and_double(
    comm: &dyn Communicator,
    values: &mut [f32],
    scratch: &mut Vec<f32>,
) -> Result<(), CollectiveError> {
    let rank = comm.rank();
    let mut own = 0..values.len();
    let mut given_away = Vec::new();
    // Neighbours first, where the usual form begins with the farthest: the tree joins neighbours at its lowest
    // level, and the order of its levels is what makes the bits.
    let mut distance = 1;
    while distance < comm.world_size() {
        let middle = own.start + own.len() / 2;
        let (lower, upper) = (own.start..middle, middle..own.end);
        // The rank whose bit is 0 keeps the lower half, its partner the upper: between them nothing is kept
        // twice or lost.
        let (keep, give) = if rank & distance == 0 { (lower, upper) } else { (upper, lower) };
        let received = at_least(scratch, keep.len());
        comm.exchange(rank ^ distance, as_bytes(&values[give.clone()]), as_bytes_mut(received))?;
        // Addition is commutative, so it is the same sum on either side of the pair.
        add(&mut values[keep.clone()], received);
        own = keep;
        given_away.push((distance, give));
        distance *= 2;
    }
    // The partner of each step now holds the sum of exactly the half that was given to it: so the same pairs,
    // last first.
    while let Some((distance, other)) = given_away.pop() {
        let joined = own.start.min(other.start)..own.end.max(other.end);
        let (mine, theirs) = two_ranges(values, own, other);
        comm.exchange(rank ^ distance, as_bytes(mine), as_bytes_mut(theirs))?;
        own = joined;
    }
    Ok(())
}

/// For any number of ranks. Each rank owns one slice: it receives that slice from every other rank,
/// adds the terms in the order of the tree, and gives the sum to every other rank.
fn sum_at_owners(
    comm: &dyn Communicator,
    values: &mut [f32],
    scratch: &mut Vec<f32>,
) -> Result<(), CollectiveError> {
    let (rank, world_size, len) = (comm.rank(), comm.world_size(), values.len());
    let slice = |owner: usize| owner * len / world_size..(owner + 1) * len / world_size;
    let own = slice(rank);
    // Every term has a place of its own, by rank, until all are there. Added up on arrival they would meet in
    // the order of the network.
    let terms = at_least(scratch, world_size * own.len());
    let term = |from: usize| from * own.len()..(from + 1) * own.len();

    terms[term(rank)].copy_from_slice(&values[own.clone()]);
    for peer in partners(rank, world_size) {
        comm.exchange(peer, as_bytes(&values[slice(peer)]), as_bytes_mut(&mut terms[term(peer)]))?;
    }
    let mut distance = 1;
    while distance < world_size {
        // A node without a partner at this distance is left as it is: the odd one out of `tree_sum`.
        for node in (0..world_size - distance).step_by(2 * distance) {
            let (sum, other) = two_ranges(terms, term(node), term(node + distance));
            add(sum, other);
        }
        distance *= 2;
    }
    values[own.clone()].copy_from_slice(&terms[term(0)]);
    for peer in partners(rank, world_size) {
        let (mine, theirs) = two_ranges(values, own.clone(), slice(peer));
        comm.exchange(peer, as_bytes(mine), as_bytes_mut(theirs))?;
    }
    Ok(())
}

/// The other ranks in an order in which all ranks can pair up at once: in turn t those whose ranks add
/// up to t modulo the world, as in a round-robin tournament.
fn partners(rank: usize, world_size: usize) -> impl Iterator<Item = usize> {
    // If a's partner in turn t is t − a, then its partner's is t − (t − a) = a: pairs agree, so no exchange
    // waits for a third rank.
    (0..world_size).map(move |turn| (turn + world_size - rank) % world_size).filter(move |peer| *peer != rank)
}

/// `sums += terms`, element by element.
fn add(sums: &mut [f32], terms: &[f32]) {
    for (sum, term) in sums.iter_mut().zip(terms) {
        *sum += *term;
    }
}

/// Two disjoint ranges of `values`.
fn two_ranges(values: &mut [f32], first: Range<usize>, second: Range<usize>) -> (&mut [f32], &mut [f32]) {
    if first.end <= second.start {
        let (low, high) = values.split_at_mut(second.start);
        (&mut low[first], &mut high[..second.len()])
    } else {
        let (low, high) = values.split_at_mut(first.start);
        (&mut high[..first.len()], &mut low[second])
    }
}

/// The first `len` values of `scratch`, grown where it is shorter.
fn at_least(scratch: &mut Vec<f32>, len: usize) -> &mut [f32] {
    if scratch.len() < len {
        scratch.resize(len, 0.0);
    }
    &mut scratch[..len]
}

fn as_bytes(values: &[f32]) -> &[u8] {
    bytemuck::cast_slice(values)
}

fn as_bytes_mut(values: &mut [f32]) -> &mut [u8] {
    bytemuck::cast_slice_mut(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated;
    use proptest::prelude::*;

    /// The tree a second way, top down: the left branch is the largest power of two below the count.
    fn naive(terms: &[f32]) -> f32 {
        match terms {
            [] => panic!("no terms"),
            [term] => *term,
            _ => {
                let left = terms.len().next_power_of_two() / 2;
                naive(&terms[..left]) + naive(&terms[left..])
            }
        }
    }

    /// What every rank must hold: `terms[rank][i]` summed over ranks, as bits.
    fn naive_bits(terms: &[Vec<f32>]) -> Vec<u32> {
        (0..terms[0].len())
            .map(|i| naive(&terms.iter().map(|values| values[i]).collect::<Vec<_>>()).to_bits())
            .collect()
    }

    fn all_reduce_bits(terms: &[Vec<f32>]) -> Vec<Vec<u32>> {
        simulated::run(terms.len(), |comm| {
            let mut values = terms[comm.rank()].clone();
            tree_all_reduce(comm, &mut values, &mut Vec::new()).unwrap();
            values.into_iter().map(f32::to_bits).collect()
        })
    }

    /// Reproducible values of very different sizes and both signs, so that a wrong order shows.
    fn rough_values(len: usize, rank: usize) -> Vec<f32> {
        let mut state = (rank as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut draw = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        (0..len)
            .map(|_| (draw() as f32 / 2f32.powi(30) - 1.0) * 10f32.powi((draw() % 9) as i32 - 4))
            .collect()
    }

    #[test]
    fn five_and_seven_terms_meet_in_the_documented_order() {
        let letters = |n: u8| (0..n).map(|i| i.to_string()).collect();
        let bracket = |left, right| format!("({left}{right})");
        assert_eq!(tree_sum(letters(5), bracket).unwrap(), "(((01)(23))4)");
        assert_eq!(tree_sum(letters(7), bracket).unwrap(), "(((01)(23))((45)6))");
        assert_eq!(tree_sum(letters(0), bracket), None);
    }

    #[test]
    fn any_number_of_ranks_gives_the_bits_of_the_naive_tree() {
        for world_size in 1..=9 {
            for len in [0, 1, 2, 3, 7, 8, 64, 1000, 4099] {
                let terms: Vec<Vec<f32>> = (0..world_size).map(|rank| rough_values(len, rank)).collect();
                let expected = naive_bits(&terms);
                for (rank, bits) in all_reduce_bits(&terms).into_iter().enumerate() {
                    assert!(bits == expected, "rank {rank} of {world_size}, {len} values");
                }
            }
        }
    }

    /// 256 ranks in 8 exchanges each way; 200, which is no power of two, in one of 199 messages.
    #[test]
    fn hundreds_of_ranks_give_the_bits_of_the_naive_tree() {
        for world_size in [200, 256] {
            let terms: Vec<Vec<f32>> = (0..world_size).map(|rank| rough_values(1000, rank)).collect();
            let expected = naive_bits(&terms);
            assert!(all_reduce_bits(&terms).into_iter().all(|bits| bits == expected), "{world_size} ranks");
        }
    }

    #[test]
    fn several_rounds_give_the_same_bits_as_one() {
        for world_size in [2, 3, 4] {
            let len = SLICE_LEN * world_size * 2 + 4321;
            let terms: Vec<Vec<f32>> = (0..world_size).map(|rank| rough_values(len, rank)).collect();
            let expected = naive_bits(&terms);
            assert!(all_reduce_bits(&terms).into_iter().all(|bits| bits == expected), "{world_size} ranks");
        }
    }

    #[test]
    fn scratch_of_another_call_does_not_matter() {
        let sums = simulated::run(3, |comm| {
            let mut scratch = vec![f32::NAN; 100];
            let mut values = vec![1.0; 7];
            tree_all_reduce(comm, &mut values, &mut scratch).unwrap();
            tree_all_reduce(comm, &mut values, &mut scratch).unwrap();
            values
        });
        assert_eq!(sums, vec![vec![9.0; 7]; 3]);
    }

    #[test]
    fn a_rank_that_dies_ends_the_sum_on_all_ranks() {
        for world_size in [2, 3, 4, 5, 8] {
            for dies_at in 1..=3 {
                let mut faults = vec![simulated::Faults::default(); world_size];
                faults[world_size - 1].dies_at_call = Some(dies_at);
                let results = simulated::run_with(faults, |comm| {
                    let mut values = vec![1.0; 64];
                    (0..3).try_for_each(|_| tree_all_reduce(comm, &mut values, &mut Vec::new()))
                });
                assert!(results.iter().all(|result| result.as_ref().is_err_and(|e| e.exit_code() == 69)));
            }
        }
    }

    #[test]
    fn aligned_blocks_summed_by_ranks_give_the_bits_of_the_whole_tree() {
        for micro_steps in 1..=48 {
            let terms = rough_values(micro_steps, 7);
            let whole = naive(&terms).to_bits();
            for world_size in 1..=micro_steps {
                let Ok(block) = aligned_blocks(micro_steps, world_size) else { continue };
                let by_rank = terms
                    .chunks(block)
                    .map(|block| tree_sum(block.to_vec(), |a, b| a + b).unwrap())
                    .collect();
                let sum: f32 = tree_sum(by_rank, |a, b| a + b).unwrap();
                assert_eq!(sum.to_bits(), whole, "{micro_steps} micro-steps on {world_size} ranks");
            }
        }
    }

    #[test]
    fn a_split_that_is_no_subtree_says_what_to_change() {
        let error = aligned_blocks(12, 4).unwrap_err();
        assert_eq!(error.exit_code(), 78);
        let message = error.to_string();
        assert!(message.contains("12 micro-steps cannot be shared by 4 ranks"), "{message}");
        assert!(error.hint().unwrap().starts_with("start 1, 3, 6 or 12 ranks"), "{error:?}");
        assert!(aligned_blocks(4, 8).is_err());
        assert!(aligned_blocks(4, 0).is_err());
        assert!(aligned_blocks(0, 1).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn the_bits_are_those_of_the_naive_tree(
            (world_size, values) in (1usize..=9).prop_flat_map(|world_size| {
                let values = prop::collection::vec(-1e30f32..1e30, 0..300);
                (Just(world_size), values)
            })
        ) {
            let terms: Vec<Vec<f32>> =
                values.chunks_exact((values.len() / world_size).max(1)).take(world_size).map(<[f32]>::to_vec).collect();
            prop_assume!(terms.len() == world_size);
            let expected = naive_bits(&terms);
            for bits in all_reduce_bits(&terms) {
                prop_assert_eq!(&bits, &expected);
            }
        }
    }
}
