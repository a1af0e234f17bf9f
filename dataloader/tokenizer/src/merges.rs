use std::cmp::Ordering;
use std::collections::BinaryHeap;

use ahash::AHashMap;

/// Two neighbouring tokens.
type Pair = (u32, u32);

/// The merges of a byte-pair encoding: for a pair of tokens its rank (lower merges first) and what it becomes.
#[derive(Debug, Default)]
pub(crate) struct MergeTable {
    merges: AHashMap<Pair, (u32, u32)>,
}

/// A possible merge of the token at `place` with the one after it.
#[derive(PartialEq, Eq)]
struct Candidate {
    rank: u32,
    place: u32,
    merged: u32,
}

impl Ord for Candidate {
    /// The greatest candidate is the one of the lowest rank, and of those the leftmost.
    fn cmp(&self, other: &Candidate) -> Ordering {
        (other.rank, other.place).cmp(&(self.rank, self.place))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Candidate) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Marks the ends of the list of tokens, and tokens that were merged into their left neighbour.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Node {
    token: u32,
    previous: u32,
    next: u32,
}

/// Memory that merging reuses from word to word.
#[derive(Default)]
pub(crate) struct MergeScratch {
    nodes: Vec<Node>,
    queue: BinaryHeap<Candidate>,
    /// Places of one pair.
    round: Vec<u32>,
}

impl MergeScratch {
    fn append_rest(&self, out: &mut Vec<u32>) {
        out.extend(self.nodes.iter().map(|node| node.token).filter(|token| *token != NONE));
    }
}

impl MergeTable {
    pub(crate) fn insert(&mut self, left: u32, right: u32, rank: u32, merged: u32) {
        self.merges.insert((left, right), (rank, merged));
    }

    /// Merges the tokens of one word until nothing merges, and appends what is left.
    ///
    /// This follows the `tokenizers` crate to the letter, also in that a queued merge is still carried out when its
    /// pair has meanwhile become another one that merges to the same token.
    pub(crate) fn merge(
        &self,
        word: impl Iterator<Item = u32>,
        scratch: &mut MergeScratch,
        out: &mut Vec<u32>,
    ) {
        self.begin(word, scratch);
        while let Some(top) = scratch.queue.pop() {
            let found = self.at(top.place, &scratch.nodes);
            if found.is_some_and(|(_, merged)| merged == top.merged) {
                self.join(top.place, top.merged, scratch);
            }
        }
        scratch.append_rest(out);
    }

    /// The same as subword-nmt's `apply_bpe` does it: all places of the pair of the lowest rank, from the left, before any other pair. The other way
    /// gives other tokens where a merge makes a pair of a lower rank than its own.
    pub(crate) fn merge_in_rounds(
        &self,
        word: impl Iterator<Item = u32>,
        scratch: &mut MergeScratch,
        out: &mut Vec<u32>,
    ) {
        self.begin(word, scratch);
        let mut round = std::mem::take(&mut scratch.round);
        while let Some(Candidate { rank, place, .. }) = scratch.queue.pop() {
            round.clear();
            round.push(place);
            // Of one rank the leftmost comes first.
            while scratch.queue.peek().is_some_and(|top| top.rank == rank) {
                round.extend(scratch.queue.pop().map(|top| top.place));
            }
            for place in &round {
                if let Some((found, merged)) = self.at(*place, &scratch.nodes)
                    && found == rank
                {
                    self.join(*place, merged, scratch);
                }
            }
        }
        scratch.round = round;
        scratch.append_rest(out);
    }

    /// Lists the tokens of a word, and queues the merges of them.
    fn begin(&self, word: impl Iterator<Item = u32>, scratch: &mut MergeScratch) {
        let MergeScratch { nodes, queue, .. } = scratch;
        nodes.clear();
        queue.clear();
        for (place, token) in word.enumerate() {
            let place = place as u32;
            nodes.push(Node { token, previous: place.checked_sub(1).unwrap_or(NONE), next: place + 1 });
        }
        let Some(last) = nodes.last_mut() else { return };
        last.next = NONE;
        for (place, pair) in nodes.windows(2).enumerate() {
            self.propose((pair[0].token, pair[1].token), place as u32, queue);
        }
    }

    /// The merge of the token at a place with the one after it, where there is one.
    fn at(&self, place: u32, nodes: &[Node]) -> Option<(u32, u32)> {
        let left = nodes[place as usize];
        if left.token == NONE || left.next == NONE {
            return None;
        }
        self.merges.get(&(left.token, nodes[left.next as usize].token)).copied()
    }

    /// Merges the token at a place with the one after it, and queues the merges of what that becomes.
    fn join(&self, place: u32, merged: u32, scratch: &mut MergeScratch) {
        let MergeScratch { nodes, queue, .. } = scratch;
        let left = nodes[place as usize];
        let right = nodes[left.next as usize];
        nodes[left.next as usize].token = NONE;
        nodes[place as usize] = Node { token: merged, next: right.next, ..left };
        if right.next != NONE {
            nodes[right.next as usize].previous = place;
            self.propose((merged, nodes[right.next as usize].token), place, queue);
        }
        if left.previous != NONE {
            self.propose((nodes[left.previous as usize].token, merged), left.previous, queue);
        }
    }

    fn propose(&self, pair: Pair, place: u32, queue: &mut BinaryHeap<Candidate>) {
        if let Some((rank, merged)) = self.merges.get(&pair) {
            queue.push(Candidate { rank: *rank, place, merged: *merged });
        }
    }
}
