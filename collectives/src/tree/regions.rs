//! The sums of the tree over values wherever they lie: the one place that says which ranks exchange what, and what is added to what.
//!
//! Ranks are a number `2^k · m` with an odd m. Aligned blocks of 2^k ranks halve among themselves, neighbours first, so that each rank holds
//! the sums over its block of its part of the values: k levels of the tree. Ranks that stand at the same place of their blocks hold the same part;
//! these m bring the rest of the tree together. Where ranks are numbered by host and 2^j of them share one, the first j levels stay inside of the host,
//! and each rank takes a 2^j-th of the values to other hosts.

use std::ops::Range;

use crate::CollectiveError;

/// Values that each rank sums in one round, 1 MiB: large enough to hide the latency of a message, small enough that what was received is
/// still in the cache when it is added.
pub(super) const SLICE_LEN: usize = (1 << 20) / size_of::<f32>();

/// A stretch of a rank's memory, counted in values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Of the values that are summed.
    Values(Range<usize>),
    /// Of the room beside them.
    Room(Range<usize>),
}

/// What a rank gives another one, and what it gets from it. Either may be empty; what is sent here is as long as what the peer receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The other rank.
    pub peer: usize,
    /// Which of this rank's values.
    pub send: Range<usize>,
    /// Where those of the peer go.
    pub recv: Place,
}

/// A rank's values, room beside them, and messages between ranks that pass on stretches of them.
///
/// Calls are made in the same order on all ranks. Each takes effect behind the one before it, perhaps after it has returned: what comes of
/// them is there after [`finish`](Regions::finish), or when whoever has the places has waited for it. After an error the values are undefined.
pub trait Regions {
    /// This rank, from 0 to `world_size() - 1`.
    fn rank(&self) -> usize;

    /// How many ranks the job has.
    fn world_size(&self) -> usize;

    /// Number of values; the same on all ranks.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes room for so many values. What follows comes behind whatever makes the values that are summed.
    fn begin(&mut self, room: usize) -> Result<(), CollectiveError>;

    /// Exchanges all `messages`, each with another peer, in an order in which all ranks can pair up. No stretch of one overlaps with one of another
    /// that is written to.
    fn exchange(&mut self, messages: &[Message]) -> Result<(), CollectiveError>;

    /// `sums += terms`, value by value, each sum rounded once. The two do not overlap.
    fn add(&mut self, sums: &Place, terms: &Place) -> Result<(), CollectiveError>;

    /// `to = from`. The two do not overlap.
    fn copy(&mut self, to: &Place, from: &Place) -> Result<(), CollectiveError>;

    /// Rounds values to what [`exchange`](Regions::exchange) passes on of them, so that who sends them holds what the others are given.
    fn round(&mut self, values: &Range<usize>) -> Result<(), CollectiveError>;

    /// Waits until all calls have taken effect, where whoever has the places does not do so before it looks at them.
    fn finish(&mut self) -> Result<(), CollectiveError>;
}

/// Collective. Every rank gets the sums of the values over ranks, in the order of the tree.
pub fn all_reduce(regions: &mut dyn Regions) -> Result<(), CollectiveError> {
    rounds(regions, |regions, round, blocks| {
        let given_away = sum(regions, round, blocks)?;
        let (len, first) = (round.len(), round.start);
        let others = blocks.counterparts().filter_map(|peer| {
            let [mine, theirs] = [blocks.rank, peer].map(|rank| moved(blocks.summed_by(rank, len), first));
            message(peer, mine, theirs)
        });
        regions.exchange(&others.collect::<Vec<_>>())?;
        double(regions, round, blocks, given_away)
    })
}

/// Collective. Rank r gets the sums of `wanted[r]`; the others of its values are undefined afterwards.
pub fn reduce_scatter(regions: &mut dyn Regions, wanted: &[Range<usize>]) -> Result<(), CollectiveError> {
    rounds(regions, |regions, round, blocks| {
        sum(regions, round, blocks)?;
        let (len, first) = (round.len(), round.start);
        let slice = |rank| moved(blocks.summed_by(rank, len), first);
        deliver(regions, slice, |rank| intersection(&wanted[rank], round))
    })
}

/// Collective. Overwrites `slices[r]` of every rank's values with those of rank r.
pub fn all_gather(regions: &mut dyn Regions, slices: &[Range<usize>]) -> Result<(), CollectiveError> {
    let len = regions.len();
    regions.begin(0)?;
    deliver(regions, |rank| slices[rank].clone(), |_| 0..len)?;
    regions.finish()
}

/// Does `work` to one stretch of the values after the other. All ranks cut alike, as their values are of equal length, and no value's
/// sum depends on where it is cut.
fn rounds(
    regions: &mut dyn Regions,
    work: impl Fn(&mut dyn Regions, &Range<usize>, &Blocks) -> Result<(), CollectiveError>,
) -> Result<(), CollectiveError> {
    let blocks = Blocks::new(regions.rank(), regions.world_size());
    if blocks.ranks() == 1 {
        return Ok(());
    }
    let (len, round) = (regions.len(), SLICE_LEN * blocks.ranks());
    regions.begin(blocks.room(round.min(len)))?;
    for first in (0..len).step_by(round) {
        work(regions, &(first..(first + round).min(len)), &blocks)?;
    }
    regions.finish()
}

/// How ranks come together: in aligned blocks of a power of two, and across these.
struct Blocks {
    rank: usize,
    /// Ranks of a block: the largest power of two that divides the number of ranks.
    size: usize,
    /// How many there are, an odd number.
    count: usize,
}

impl Blocks {
    fn new(rank: usize, world_size: usize) -> Self {
        let size = 1 << world_size.trailing_zeros();
        Self { rank, size, count: world_size / size }
    }

    fn ranks(&self) -> usize {
        self.size * self.count
    }

    /// What is received before it is added, at most, of so many values.
    fn room(&self, len: usize) -> usize {
        let halved = if self.size > 1 { len.div_ceil(2) } else { 0 };
        // Each of the slices may be one value longer than their mean.
        let gathered = if self.count > 1 { len.div_ceil(self.size) + self.count } else { 0 };
        halved.max(gathered)
    }

    /// The ranks at this rank's place in the other blocks, in an order in which all can pair up at once.
    fn counterparts(&self) -> impl Iterator<Item = usize> {
        let (place, size) = (self.rank % self.size, self.size);
        partners(self.rank / size, self.count).map(move |block| block * size + place)
    }

    /// What `rank` of a block holds of `len` values after [`halve`].
    fn halved(&self, rank: usize, len: usize) -> Range<usize> {
        let mut own = 0..len;
        let mut distance = 1;
        while distance < self.size {
            own = halves(own, rank & distance == 0).0;
            distance *= 2;
        }
        own
    }

    /// What `rank` sums of `len` values.
    fn summed_by(&self, rank: usize, len: usize) -> Range<usize> {
        let own = self.halved(rank, len);
        moved(even_slice(own.len(), self.count, rank / self.size), own.start)
    }
}

/// Sums a round: this rank then holds the sums of what [`Blocks::summed_by`] says, as others will be given them. Gives what it gave away inside
/// of its block, by distance.
fn sum(
    regions: &mut dyn Regions,
    round: &Range<usize>,
    blocks: &Blocks,
) -> Result<Vec<(usize, Range<usize>)>, CollectiveError> {
    let given_away = halve(regions, round, blocks)?;
    if blocks.count > 1 {
        sum_at_owners(regions, round, blocks)?;
    }
    regions.round(&moved(blocks.summed_by(blocks.rank, round.len()), round.start))?;
    Ok(given_away)
}

/// Inside of a block: reduce-scatter by recursive halving. Ranks at distance 1, then 2, 4, ... each give the other one half of
/// what they still hold, so that after the step at distance d a value holds the sum over an aligned block of 2d ranks, one
/// level of the tree a step.
fn halve(
    regions: &mut dyn Regions,
    round: &Range<usize>,
    blocks: &Blocks,
) -> Result<Vec<(usize, Range<usize>)>, CollectiveError> {
    let mut own = round.clone();
    let mut given_away = Vec::new();
    // Neighbours first, where the usual form begins with the farthest: the tree joins neighbours at its lowest
    // level, and the order of its levels is what makes the bits.
    let mut distance = 1;
    while distance < blocks.size {
        let (keep, give) = halves(own, blocks.rank & distance == 0);
        let received = Place::Room(0..keep.len());
        let message = Message { peer: blocks.rank ^ distance, send: give.clone(), recv: received.clone() };
        regions.exchange(&[message])?;
        // As the other's term has been: a sum would depend on who makes it otherwise.
        regions.round(&keep)?;
        // Addition is commutative, so it is the same sum on either side of the pair.
        regions.add(&Place::Values(keep.clone()), &received)?;
        own = keep;
        given_away.push((distance, give));
        distance *= 2;
    }
    Ok(given_away)
}

/// After [`halve`]: all-gather by recursive doubling, the same way back. The farthest ranks exchange the least.
fn double(
    regions: &mut dyn Regions,
    round: &Range<usize>,
    blocks: &Blocks,
    mut given_away: Vec<(usize, Range<usize>)>,
) -> Result<(), CollectiveError> {
    let mut own = moved(blocks.halved(blocks.rank, round.len()), round.start);
    // The partner of each step now holds the sum of exactly the half that was given to it: so the same pairs,
    // last first.
    while let Some((distance, other)) = given_away.pop() {
        let joined = own.start.min(other.start)..own.end.max(other.end);
        let recv = Place::Values(other);
        regions.exchange(&[Message { peer: blocks.rank ^ distance, send: own, recv }])?;
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

/// Across blocks: reduce-scatter of what a place of the blocks holds. Each rank receives its slice from every counterpart and adds the
/// terms in the order of the tree.
fn sum_at_owners(
    regions: &mut dyn Regions,
    round: &Range<usize>,
    blocks: &Blocks,
) -> Result<(), CollectiveError> {
    let slice = |rank| moved(blocks.summed_by(rank, round.len()), round.start);
    let own = slice(blocks.rank);
    // Every term has a place of its own, by block, until all are there. Added up on arrival they would meet in
    // the order of the network.
    let term = |block: usize| Place::Room(block * own.len()..(block + 1) * own.len());
    regions.round(&own)?;
    regions.copy(&term(blocks.rank / blocks.size), &Place::Values(own.clone()))?;
    let message = |peer| Message { peer, send: slice(peer), recv: term(peer / blocks.size) };
    regions.exchange(&blocks.counterparts().map(message).collect::<Vec<_>>())?;
    let mut distance = 1;
    while distance < blocks.count {
        // A node without a partner at this distance is left as it is: the odd one out of `tree_sum`.
        for node in (0..blocks.count - distance).step_by(2 * distance) {
            regions.add(&term(node), &term(node + distance))?;
        }
        distance *= 2;
    }
    regions.copy(&Place::Values(own.clone()), &term(0))
}

/// The part of `len` values that the one of this number takes, of so many.
pub(super) fn even_slice(len: usize, count: usize, number: usize) -> Range<usize> {
    number * len / count..(number + 1) * len / count
}

/// Rank r holds `slice(r)` of the values and is given what it wants, `wanted(r)`, of those of the others. Both say the same on all ranks.
fn deliver(
    regions: &mut dyn Regions,
    slice: impl Fn(usize) -> Range<usize>,
    wanted: impl Fn(usize) -> Range<usize>,
) -> Result<(), CollectiveError> {
    let rank = regions.rank();
    let messages = partners(rank, regions.world_size()).filter_map(|peer| {
        message(peer, intersection(&slice(rank), &wanted(peer)), intersection(&slice(peer), &wanted(rank)))
    });
    regions.exchange(&messages.collect::<Vec<_>>())
}

/// What goes to and comes from a peer. The peer finds the same two ranges; where both are empty it passes on as well.
fn message(peer: usize, send: Range<usize>, recv: Range<usize>) -> Option<Message> {
    let empty = send.is_empty() && recv.is_empty();
    (!empty).then_some(Message { peer, send, recv: Place::Values(recv) })
}

/// What two ranges share; `0..0` where that is nothing.
fn intersection(one: &Range<usize>, other: &Range<usize>) -> Range<usize> {
    let (start, end) = (one.start.max(other.start), one.end.min(other.end));
    if start < end { start..end } else { 0..0 }
}

/// A range so many places further up.
fn moved(range: Range<usize>, by: usize) -> Range<usize> {
    range.start + by..range.end + by
}

/// The others of `count` in an order in which all can pair up at once: in turn t those whose numbers add
/// up to t modulo the count, as in a round-robin tournament.
pub(super) fn partners(number: usize, count: usize) -> impl Iterator<Item = usize> {
    // If a's partner in turn t is t − a, then its partner's is t − (t − a) = a: pairs agree, so no exchange
    // waits for a third one.
    (0..count).map(move |turn| (turn + count - number) % count).filter(move |peer| *peer != number)
}
