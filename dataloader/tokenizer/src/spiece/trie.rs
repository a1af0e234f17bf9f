/// Pieces by their bytes, to be walked one byte at a time.
///
/// The children of a node lie side by side, sorted by their byte.
#[derive(Debug)]
pub(crate) struct Trie {
    nodes: Vec<Node>,
    labels: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    /// Place of the first child in `labels`; child `i` of the list is node `i + 1`.
    first_child: u32,
    children: u32,
    value: u32,
}

/// The value of a node at which no piece ends.
const NO_VALUE: u32 = u32::MAX;

/// A place in a [`Trie`].
#[derive(Clone, Copy)]
pub(crate) struct Place(u32);

impl Trie {
    /// Builds the trie of pairs of distinct, non-empty keys and values.
    pub(crate) fn new(mut keys: Vec<(&[u8], u32)>) -> Trie {
        keys.sort_unstable();
        let mut trie = Trie { nodes: Vec::new(), labels: Vec::new() };
        trie.nodes.push(Node { first_child: 0, children: 0, value: NO_VALUE });
        // Breadth first, so that the children of one node are numbered in a row.
        let mut queue = std::collections::VecDeque::from([(0usize, 0usize, keys.len(), 0usize)]);
        while let Some((node, mut begin, end, depth)) = queue.pop_front() {
            if begin < end && keys[begin].0.len() == depth {
                trie.nodes[node].value = keys[begin].1;
                begin += 1;
            }
            trie.nodes[node].first_child = trie.labels.len() as u32;
            while begin < end {
                let label = keys[begin].0[depth];
                let group = keys[begin..end].iter().take_while(|(key, _)| key[depth] == label).count();
                trie.labels.push(label);
                trie.nodes[node].children += 1;
                queue.push_back((trie.nodes.len(), begin, begin + group, depth + 1));
                trie.nodes.push(Node { first_child: 0, children: 0, value: NO_VALUE });
                begin += group;
            }
        }
        trie
    }

    pub(crate) fn root(&self) -> Place {
        Place(0)
    }

    /// The place after one more byte, if any key goes on like that.
    pub(crate) fn step(&self, place: Place, byte: u8) -> Option<Place> {
        let node = self.nodes[place.0 as usize];
        let first = node.first_child as usize;
        let labels = &self.labels[first..first + node.children as usize];
        labels.binary_search(&byte).ok().map(|child| Place((first + child) as u32 + 1))
    }

    /// The value of the key that ends here.
    pub(crate) fn value(&self, place: Place) -> Option<u32> {
        let value = self.nodes[place.0 as usize].value;
        (value != NO_VALUE).then_some(value)
    }

    /// Length of the longest key that the text begins with.
    pub(crate) fn longest_prefix(&self, text: &[u8]) -> Option<usize> {
        let (mut place, mut longest) = (self.root(), None);
        for (i, byte) in text.iter().enumerate() {
            let Some(next) = self.step(place, *byte) else { break };
            place = next;
            if self.value(place).is_some() {
                longest = Some(i + 1);
            }
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn a_trie_finds_what_a_map_finds(
            keys in proptest::collection::btree_map(proptest::collection::vec(0u8..4, 1..6), 0u32..1000, 0..40),
            text in proptest::collection::vec(0u8..4, 0..8),
        ) {
            let keys: BTreeMap<Vec<u8>, u32> = keys;
            let trie = Trie::new(keys.iter().map(|(key, value)| (key.as_slice(), *value)).collect());
            let mut place = Some(trie.root());
            for end in 1..=text.len() {
                place = place.and_then(|place| trie.step(place, text[end - 1]));
                let found = place.and_then(|place| trie.value(place));
                prop_assert_eq!(found, keys.get(&text[..end]).copied());
            }
            let longest = (1..=text.len()).rev().find(|end| keys.contains_key(&text[..*end]));
            prop_assert_eq!(trie.longest_prefix(&text), longest);
        }
    }
}
