use crate::Graph;

/// What a graph consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphCounts {
    /// Nodes.
    pub nodes: usize,
    /// Entries of neighbour lists.
    pub entries: usize,
    /// Pairs of different nodes that are neighbours.
    pub edges: usize,
    /// Nodes that are their own neighbours.
    pub self_loops: usize,
    /// List entries that repeat one before them.
    pub duplicates: usize,
    /// Connected components.
    pub components: usize,
    /// Nodes of the largest component.
    pub largest: usize,
    /// Nodes without a list entry.
    pub isolated: usize,
    /// Nodes whose only neighbour is themselves.
    pub alone: usize,
}

impl Graph {
    /// Counts nodes, edges and components.
    pub fn counts(&self) -> GraphCounts {
        let nodes = self.nodes();
        let mut counts = GraphCounts {
            nodes,
            entries: self.entries(),
            edges: 0,
            self_loops: 0,
            duplicates: 0,
            components: 0,
            largest: 0,
            isolated: 0,
            alone: 0,
        };
        let mut sets = Sets::new(nodes);
        let mut row = Vec::new();
        for node in 0..nodes as u32 {
            row.clear();
            row.extend_from_slice(self.neighbours(node));
            row.sort_unstable();
            row.dedup();
            let own = usize::from(row.binary_search(&node).is_ok());
            counts.duplicates += self.neighbours(node).len() - row.len();
            counts.self_loops += own;
            counts.isolated += usize::from(row.is_empty());
            counts.alone += usize::from(row.len() == 1 && own == 1);
            counts.edges += row.iter().filter(|other| **other > node).count();
            row.iter().for_each(|other| sets.join(node, *other));
        }
        (counts.components, counts.largest) = sets.count();
        counts
    }
}

/// Disjoint sets of nodes: a forest in which each node points to a lower one, or to itself.
struct Sets(Vec<u32>);

impl Sets {
    fn new(nodes: usize) -> Sets {
        Sets((0..nodes as u32).collect())
    }

    /// The lowest node of a set; halves the way to it.
    fn root(&mut self, mut node: u32) -> u32 {
        while self.0[node as usize] != node {
            let above = self.0[self.0[node as usize] as usize];
            self.0[node as usize] = above;
            node = above;
        }
        node
    }

    fn join(&mut self, one: u32, other: u32) {
        let (one, other) = (self.root(one), self.root(other));
        self.0[one.max(other) as usize] = one.min(other);
    }

    /// Number of sets, and nodes of the largest.
    fn count(mut self) -> (usize, usize) {
        let mut sizes = vec![0usize; self.0.len()];
        for node in 0..self.0.len() as u32 {
            sizes[self.root(node) as usize] += 1;
        }
        (sizes.iter().filter(|size| **size > 0).count(), sizes.iter().copied().max().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Asymmetry;

    #[test]
    fn each_kind_of_entry_counts_once() {
        // 0-1 twice, 1-2, 3 alone with itself, 4 without anything, 5-6 and 6 with itself.
        let lists = vec![vec![1, 1], vec![0, 0, 2], vec![1], vec![3], vec![], vec![6], vec![5, 6]];
        let counts = Graph::from_lists(lists, Asymmetry::Refuse).unwrap().counts();
        let expected = GraphCounts {
            nodes: 7,
            entries: 10,
            edges: 3,
            self_loops: 2,
            duplicates: 2,
            components: 4,
            largest: 3,
            isolated: 1,
            alone: 1,
        };
        assert_eq!(counts, expected);
    }
}
