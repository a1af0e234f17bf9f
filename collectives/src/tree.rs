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
//! tree inside a rank, [`tree_all_reduce`] the tree over ranks; [`tree_reduce_scatter`] gives each rank a part of
//! the sums alone, and [`all_gather_slices`] brings together what each rank has made of its part.

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
            let given_away = halve(comm, round, scratch)?;
            double(comm, round, given_away)?;
        } else {
            sum_at_owners(comm, round, scratch)?;
            let len = round.len();
            deliver(comm, round, |rank| even_slice(len, world_size, rank), |_| 0..len)?;
        }
    }
    Ok(())
}

/// Collective. Sums `values` as [`tree_all_reduce`] does, to the same bits, but gives rank r the sums of `wanted[r]` alone; what
/// else its `values` hold is undefined afterwards. All ranks give the same list of ranges, one a rank, which may overlap and may be empty.
///
/// Each rank sends and receives (n-1)/n times the bytes of `values`, and then what it wants of the others' sums and they of its own.
///
/// ```
/// use segue_collectives::{simulated, tree::tree_reduce_scatter, Communicator};
/// let sums = simulated::run(3, |comm| {
///     let mut values = [1.0, 2.0, 3.0];
///     tree_reduce_scatter(comm, &mut values, &[0..1, 1..1, 1..3], &mut Vec::new()).unwrap();
///     values
/// });
/// assert_eq!((sums[0][0], &sums[2][1..]), (3.0, &[6.0, 9.0][..]));
/// ```
pub fn tree_reduce_scatter(
    comm: &dyn Communicator,
    values: &mut [f32],
    wanted: &[Range<usize>],
    scratch: &mut Vec<f32>,
) -> Result<(), CollectiveError> {
    let world_size = comm.world_size();
    assert_eq!(wanted.len(), world_size, "one range for each rank");
    if world_size == 1 {
        return Ok(());
    }
    for (number, round) in values.chunks_mut(SLICE_LEN * world_size).enumerate() {
        let (first, len) = (number * SLICE_LEN * world_size, round.len());
        let of_round = |rank: usize| {
            let here = intersection(&wanted[rank], &(first..first + len));
            here.start.saturating_sub(first)..here.end.saturating_sub(first)
        };
        if world_size.is_power_of_two() {
            halve(comm, round, scratch)?;
            deliver(comm, round, |rank| halved_slice(len, world_size, rank), of_round)?;
        } else {
            sum_at_owners(comm, round, scratch)?;
            deliver(comm, round, |rank| even_slice(len, world_size, rank), of_round)?;
        }
    }
    Ok(())
}

/// Collective. Overwrites `values[slices[r]]` on every rank with those of rank r. All ranks give the same list of slices, one a rank, which do
/// not overlap; `values` are of equal length on all ranks.
///
/// ```
/// use segue_collectives::{simulated, tree::all_gather_slices, Communicator};
/// let gathered = simulated::run(3, |comm| {
///     let mut values = [comm.rank() as f32; 4];
///     all_gather_slices(comm, &mut values, &[0..1, 1..3, 3..4]).unwrap();
///     values
/// });
/// assert_eq!(gathered, [[0.0, 1.0, 1.0, 2.0]; 3]);
/// ```
pub fn all_gather_slices(
    comm: &dyn Communicator,
    values: &mut [f32],
    slices: &[Range<usize>],
) -> Result<(), CollectiveError> {
    assert_eq!(slices.len(), comm.world_size(), "one slice for each rank");
    let len = values.len();
    deliver(comm, values, |rank| slices[rank].clone(), |_| 0..len)
}

/// For 2^k ranks: reduce-scatter by recursive halving. Ranks at distance 1, then 2, 4, ... each give the other one half of
/// what they still hold, so that after the step at distance d a value holds the sum over an aligned block of 2d ranks, one
/// level of the tree a step. This rank then holds the sums of its [`halved_slice`]. Gives what it gave away, by distance.
fn halve(
    comm: &dyn Communicator,
    values: &mut [f32],
    scratch: &mut Vec<f32>,
) -> Result<Vec<(usize, Range<usize>)>, CollectiveError> {
    let rank = comm.rank();
    let mut own = 0..values.len();
    let mut given_away = Vec::new();
    // Neighbours first, where the usual form begins with the farthest: the tree joins neighbours at its lowest
    // level, and the order of its levels is what makes the bits.
    let mut distance = 1;
    while distance < comm.world_size() {
        let (keep, give) = halves(own, rank & distance == 0);
        let received = at_least(scratch, keep.len());
        comm.exchange(rank ^ distance, as_bytes(&values[give.clone()]), as_bytes_mut(received))?;
        // Addition is commutative, so it is the same sum on either side of the pair.
        add(&mut values[keep.clone()], received);
        own = keep;
        given_away.push((distance, give));
        distance *= 2;
    }
    Ok(given_away)
}

/// After [`halve`]: all-gather by recursive doubling, the same way back. The farthest ranks exchange the least.
fn double(
    comm: &dyn Communicator,
    values: &mut [f32],
    mut given_away: Vec<(usize, Range<usize>)>,
) -> Result<(), CollectiveError> {
    let rank = comm.rank();
    let mut own = halved_slice(values.len(), comm.world_size(), rank);
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

/// What a rank keeps of `range` and what it gives away: the rank whose bit is 0 keeps the lower half, its partner the upper, so that
/// between them nothing is kept twice or lost.
fn halves(range: Range<usize>, keeps_lower: bool) -> (Range<usize>, Range<usize>) {
    let middle = range.start + range.len() / 2;
    let (lower, upper) = (range.start..middle, middle..range.end);
    if keeps_lower { (lower, upper) } else { (upper, lower) }
}

/// What is left to `rank` of `len` values after [`halve`].
fn halved_slice(len: usize, world_size: usize, rank: usize) -> Range<usize> {
    let mut own = 0..len;
    let mut distance = 1;
    while distance < world_size {
        own = halves(own, rank & distance == 0).0;
        distance *= 2;
    }
    own
}

/// For any number of ranks: reduce-scatter. Each rank receives its [`even_slice`] from every other rank and adds the terms in the order
/// of the tree.
fn sum_at_owners(
    comm: &dyn Communicator,
    values: &mut [f32],
    scratch: &mut Vec<f32>,
) -> Result<(), CollectiveError> {
    let (rank, world_size, len) = (comm.rank(), comm.world_size(), values.len());
    let own = even_slice(len, world_size, rank);
    // Every term has a place of its own, by rank, until all are there. Added up on arrival they would meet in
    // the order of the network.
    let terms = at_least(scratch, world_size * own.len());
    let term = |from: usize| from * own.len()..(from + 1) * own.len();

    terms[term(rank)].copy_from_slice(&values[own.clone()]);
    for peer in partners(rank, world_size) {
        let theirs = even_slice(len, world_size, peer);
        comm.exchange(peer, as_bytes(&values[theirs]), as_bytes_mut(&mut terms[term(peer)]))?;
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
    Ok(())
}

/// The part of `len` values that `rank` adds up in [`sum_at_owners`].
fn even_slice(len: usize, world_size: usize, rank: usize) -> Range<usize> {
    rank * len / world_size..(rank + 1) * len / world_size
}

/// Rank r holds `slice(r)` of `values` and is given what it wants, `wanted(r)`, of those of the others. Both say the same on all ranks.
fn deliver(
    comm: &dyn Communicator,
    values: &mut [f32],
    slice: impl Fn(usize) -> Range<usize>,
    wanted: impl Fn(usize) -> Range<usize>,
) -> Result<(), CollectiveError> {
    let rank = comm.rank();
    for peer in partners(rank, comm.world_size()) {
        let mine = intersection(&slice(rank), &wanted(peer));
        let theirs = intersection(&slice(peer), &wanted(rank));
        // The peer finds the same two ranges, and passes on as well.
        if !mine.is_empty() || !theirs.is_empty() {
            let (mine, theirs) = two_ranges(values, mine, theirs);
            comm.exchange(peer, as_bytes(mine), as_bytes_mut(theirs))?;
        }
    }
    Ok(())
}

/// What two ranges share; `0..0` where that is nothing.
fn intersection(one: &Range<usize>, other: &Range<usize>) -> Range<usize> {
    let (start, end) = (one.start.max(other.start), one.end.min(other.end));
    if start < end { start..end } else { 0..0 }
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

    /// Each rank's part begins in its neighbour's, some ranks want nothing, and rank 0 wants all.
    fn overlapping_parts(len: usize, world_size: usize) -> Vec<Range<usize>> {
        let part = |rank: usize| match rank {
            0 => 0..len,
            rank if rank % 3 == 2 => len..len,
            rank => (rank * len / world_size).saturating_sub(5)..(rank + 1) * len / world_size,
        };
        (0..world_size).map(part).collect()
    }

    #[test]
    fn scattered_sums_have_the_bits_of_the_naive_tree_where_they_are_wanted() {
        for world_size in 1..=9 {
            for len in [0, 1, 3, 8, 1000, 4099, SLICE_LEN * world_size + 77] {
                // The last one takes two rounds; that two worlds of either kind do is enough.
                if len > 4099 && ![2, 3].contains(&world_size) {
                    continue;
                }
                let terms: Vec<Vec<f32>> = (0..world_size).map(|rank| rough_values(len, rank)).collect();
                let expected = naive_bits(&terms);
                let one_by_one: Vec<_> =
                    (0..world_size).map(|rank| even_slice(len, world_size, rank)).collect();
                for wanted in [one_by_one, overlapping_parts(len, world_size)] {
                    simulated::run(world_size, |comm| {
                        let mut values = terms[comm.rank()].clone();
                        tree_reduce_scatter(comm, &mut values, &wanted, &mut Vec::new()).unwrap();
                        let own = wanted[comm.rank()].clone();
                        let found = values[own.clone()].iter().map(|x| x.to_bits());
                        assert!(found.eq(expected[own].iter().copied()), "{} of {world_size}", comm.rank());
                    });
                }
            }
        }
    }

    #[test]
    fn every_rank_gathers_the_slices_of_all() {
        for world_size in 1..=5 {
            // Of different lengths, one of them nothing, with a gap that nobody writes to.
            let starts: Vec<usize> =
                (0..=world_size).map(|rank: usize| rank * rank.saturating_sub(1)).collect();
            let slices: Vec<_> = starts.windows(2).map(|pair| pair[0]..pair[1] - pair[1].min(1)).collect();
            let len = starts[world_size];
            let gathered = simulated::run(world_size, |comm| {
                let mut values = vec![f32::NAN; len];
                values[slices[comm.rank()].clone()].fill(comm.rank() as f32);
                all_gather_slices(comm, &mut values, &slices).unwrap();
                values
            });
            for values in gathered {
                for (rank, slice) in slices.iter().enumerate() {
                    assert!(values[slice.clone()].iter().all(|x| *x == rank as f32), "{values:?}");
                }
                let written: usize = slices.iter().map(Range::len).sum();
                assert_eq!(values.iter().filter(|x| x.is_nan()).count(), len - written);
            }
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
