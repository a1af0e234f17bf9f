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
//! the sums alone, and [`all_gather_slices`] brings together what each rank has made of its part. Those three are for values on the host; [`regions`]
//! has the same three for values wherever they lie, and the one routine behind both. Where messages carry half of the
//! bytes ([`Wire`]), sums depend on the number of ranks: all of this is of messages that carry all.

mod host;
pub mod regions;
mod wire;

use std::collections::HashSet;
use std::ops::Range;

use host::Host;
pub use wire::Wire;

use crate::{CollectiveError, Communicator};

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
/// assert!(aligned_blocks(6, 2).is_err());
/// ```
pub fn aligned_blocks(micro_steps: usize, world_size: usize) -> Result<usize, CollectiveError> {
    // Equal blocks whose length is a power of two begin at multiples of it: they are nodes of one level. A
    // lone rank has nothing to line up with.
    let even = world_size > 0 && micro_steps > 0 && micro_steps.is_multiple_of(world_size);
    match even && (world_size == 1 || (micro_steps / world_size).is_power_of_two()) {
        true => Ok(micro_steps / world_size),
        false => Err(CollectiveError::UnevenMicroSteps { micro_steps, world_size }),
    }
}

/// Whether ranks meet on their own hosts before they talk to others, so that as few bytes go between hosts as can: each host has an aligned block of
/// a power of two of ranks. `hosts`: by rank, what names its host. One host has nobody to talk to.
///
/// ```
/// use segue_collectives::tree::meets_on_hosts;
/// assert!(meets_on_hosts(&[0, 0, 2, 2, 4, 4]) && meets_on_hosts(&[0, 1, 2]) && meets_on_hosts(&[0, 0, 0]));
/// // Numbered in turn; three ranks a host; hosts of different sizes; a host in two blocks.
/// for far in [&[0, 1, 0, 1][..], &[0, 0, 0, 3, 3, 3], &[0, 0, 2], &[0, 0, 2, 2, 0, 0]] {
///     assert!(!meets_on_hosts(far), "{far:?}");
/// }
/// ```
pub fn meets_on_hosts(hosts: &[usize]) -> bool {
    let block = hosts.iter().take_while(|host| **host == hosts[0]).count();
    if block == hosts.len() {
        return true;
    }
    let mut seen = HashSet::new();
    block.is_power_of_two()
        && hosts
            .chunks(block)
            .all(|own| own.len() == block && own.iter().all(|host| *host == own[0]) && seen.insert(own[0]))
}

/// Collective. Sums `values`, of equal length on all ranks, over the ranks in the order of the tree, by messages that carry what `wire` says;
/// every rank gets the sum. `scratch` holds what is received; keep it between calls to spare its
/// allocation.
///
/// Each rank sends and receives 2 (n-1)/n times as many values, as in a ring, in 2 (k + m-1) messages a round, where n = 2^k m with an
/// odd m. After an error `values` are undefined.
///
/// ```
/// use segue_collectives::{simulated, tree::{tree_all_reduce, Wire}};
/// let terms = [1e8_f32, 1.0, -1e8, 1.0];
/// let sums = simulated::run(4, |comm| {
///     let mut values = [terms[segue_collectives::Communicator::rank(comm)]];
///     tree_all_reduce(comm, &mut values, &mut Vec::new(), Wire::F32).unwrap();
///     values[0]
/// });
/// assert_eq!(sums, [(1e8_f32 + 1.0) + (-1e8 + 1.0); 4]);
/// ```
pub fn tree_all_reduce(
    comm: &dyn Communicator,
    values: &mut [f32],
    scratch: &mut Vec<f32>,
    wire: Wire,
) -> Result<(), CollectiveError> {
    regions::all_reduce(&mut Host::new(comm, values, scratch, wire))
}

/// Collective. Sums `values` as [`tree_all_reduce`] does, to the same bits, but gives rank r the sums of `wanted[r]` alone; what
/// else its `values` hold is undefined afterwards. All ranks give the same list of ranges, one a rank, which may overlap and may be empty.
///
/// Each rank sends and receives (n-1)/n times as many values, and then what it wants of the others' sums and they of its own.
///
/// ```
/// use segue_collectives::{simulated, tree::{tree_reduce_scatter, Wire}, Communicator};
/// let sums = simulated::run(3, |comm| {
///     let mut values = [1.0, 2.0, 3.0];
///     tree_reduce_scatter(comm, &mut values, &[0..1, 1..1, 1..3], &mut Vec::new(), Wire::F32).unwrap();
///     values
/// });
/// assert_eq!((sums[0][0], &sums[2][1..]), (3.0, &[6.0, 9.0][..]));
/// ```
pub fn tree_reduce_scatter(
    comm: &dyn Communicator,
    values: &mut [f32],
    wanted: &[Range<usize>],
    scratch: &mut Vec<f32>,
    wire: Wire,
) -> Result<(), CollectiveError> {
    assert_eq!(wanted.len(), comm.world_size(), "one range for each rank");
    regions::reduce_scatter(&mut Host::new(comm, values, scratch, wire), wanted)
}

/// Collective. Gives every other rank `own`, and overwrites `others[r]` with what rank r gives, which is as long. This rank's place in `others` is
/// empty. Nothing is written to `own`: others may read it meanwhile.
///
/// ```
/// use segue_collectives::{simulated, tree::all_gather_slices, Communicator};
/// let gathered = simulated::run(2, |comm| {
///     let (own, mut other) = ([comm.rank() as f32; 3], [9.0; 3]);
///     let mut others = [&mut [][..], &mut []];
///     others[1 - comm.rank()] = &mut other;
///     all_gather_slices(comm, &own, &mut others).unwrap();
///     other
/// });
/// assert_eq!(gathered, [[1.0; 3], [0.0; 3]]);
/// ```
pub fn all_gather_slices(
    comm: &dyn Communicator,
    own: &[f32],
    others: &mut [&mut [f32]],
) -> Result<(), CollectiveError> {
    assert_eq!(others.len(), comm.world_size(), "one slice for each rank");
    for peer in regions::partners(comm.rank(), comm.world_size()) {
        let theirs = &mut *others[peer];
        if !own.is_empty() || !theirs.is_empty() {
            comm.exchange(peer, bytemuck::cast_slice(own), bytemuck::cast_slice_mut(theirs))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
