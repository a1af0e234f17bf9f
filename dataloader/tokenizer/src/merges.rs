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
        let MergeScratch { nodes, queue } = scratch;
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
        while let Some(top) = queue.pop() {
            let left = nodes[top.place as usize];
            if left.token == NONE || left.next == NONE {
                continue;
            }
            let right = nodes[left.next as usize];
            if self.merges.get(&(left.token, right.token)).is_none_or(|(_, merged)| *merged != top.merged) {
                continue;
            }
            nodes[left.next as usize].token = NONE;
            nodes[top.place as usize] = Node { token: top.merged, next: right.next, ..left };
            if right.next != NONE {
                nodes[right.next as usize].previous = top.place;
                self.propose((top.merged, nodes[right.next as usize].token), top.place, queue);
            }
            if left.previous != NONE {
                self.propose((nodes[left.previous as usize].token, top.merged), left.previous, queue);
            }
        }
        out.extend(nodes.iter().map(|node| node.token).filter(|token| *token != NONE));
    }

    fn propose(&self, pair: Pair, place: u32, queue: &mut BinaryHeap<Candidate>) {
        if let Some((rank, merged)) = self.merges.get(&pair) {
            queue.push(Candidate { rank: *rank, place, merged: *merged });
        }
    }
}
