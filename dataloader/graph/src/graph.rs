use crate::numbers::Numbers;

/// An undirected weighted graph as compressed sparse rows, in memory or in a file that is mapped.
///
/// Row `i` lists the neighbours of node `i`: every edge stands in the rows of both its ends, a self-loop once. A neighbour may be
/// listed several times, which counts as weight.
#[derive(Clone, Debug)]
pub struct Graph {
    pub(crate) offsets: Numbers<u64>,
    pub(crate) neighbours: Numbers<u32>,
    pub(crate) weights: Option<Numbers<f32>>,
}

impl Graph {
    /// A graph of undirected edges with weights; rows are sorted by neighbour, and edges that are given more than once become one of
    /// their summed weight. Where all weights are 1, none are kept.
    ///
    /// # Errors
    ///
    /// An edge, named by its number from 0, with an end outside `0..nodes` or a weight that is not positive and finite.
    pub fn from_edges(
        nodes: usize,
        edges: impl IntoIterator<Item = (u32, u32, f32)>,
    ) -> Result<Graph, String> {
        let edges: Vec<(u32, u32, f32)> = edges.into_iter().collect();
        let mut offsets = vec![0u64; nodes + 1];
        for (number, &(from, to, weight)) in edges.iter().enumerate() {
            check_edge(nodes, from, to, weight).map_err(|why| format!("edge {number}: {why}"))?;
            offsets[from as usize + 1] += 1;
            if from != to {
                offsets[to as usize + 1] += 1;
            }
        }
        for node in 0..nodes {
            offsets[node + 1] += offsets[node];
        }
        let entries = offsets[nodes] as usize;
        let (mut neighbours, mut weights) = (vec![0u32; entries], vec![0f32; entries]);
        let mut next = offsets[..nodes].to_vec();
        for (from, to, weight) in edges {
            let mut add = |row: u32, neighbour| {
                let at = next[row as usize] as usize;
                (neighbours[at], weights[at]) = (neighbour, weight);
                next[row as usize] += 1;
            };
            add(from, to);
            if from != to {
                add(to, from);
            }
        }
        merge_rows(&mut offsets, &mut neighbours, &mut weights);
        let weights = weights.iter().any(|weight| *weight != 1.0).then(|| weights.into());
        Ok(Graph { offsets: offsets.into(), neighbours: neighbours.into(), weights })
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// Number of list entries: two for an edge, one for a self-loop.
    pub fn entries(&self) -> usize {
        self.neighbours.len()
    }

    /// Neighbours of a node; none for a node that is not there.
    pub fn neighbours(&self, node: u32) -> &[u32] {
        self.neighbours.get(self.range(node)).unwrap_or_default()
    }

    /// Weights of the entries of [`Graph::neighbours`]; `None` where all are 1.
    pub fn weights(&self, node: u32) -> Option<&[f32]> {
        let range = self.range(node);
        self.weights.as_ref().map(|weights| weights.get(range).unwrap_or_default())
    }

    /// Whether the graph has weights other than 1.
    pub fn is_weighted(&self) -> bool {
        self.weights.is_some()
    }

    /// Sum of a node's weights: its row sum of the adjacency matrix.
    pub fn degree(&self, node: u32) -> f64 {
        match self.weights(node) {
            None => self.neighbours(node).len() as f64,
            Some(weights) => weights.iter().map(|weight| f64::from(*weight)).sum(),
        }
    }

    /// The neighbour that a step of a random walk leads to: `j` with probability `a_ij / Σ a_ij'`, by inverting the distribution at
    /// `uniform` in `[0, 1)`. Takes constant time where all weights are 1, else a scan of the row. `None` where there is no neighbour.
    pub fn step(&self, node: u32, uniform: f64) -> Option<u32> {
        let neighbours = self.neighbours(node);
        let last = neighbours.len().checked_sub(1)?;
        let place = match self.weights(node) {
            None => (uniform * neighbours.len() as f64) as usize,
            Some(weights) => {
                let mut left = uniform * self.degree(node);
                let reached = weights.iter().position(|weight| {
                    left -= f64::from(*weight);
                    left < 0.0
                });
                reached.unwrap_or(last)
            }
        };
        neighbours.get(place.min(last)).copied()
    }

    /// Every undirected edge once, `(i, j, weight)` with `i ≤ j`, in the order of rows; entries that are listed several times stand
    /// several times.
    pub fn edges(&self) -> impl Iterator<Item = (u32, u32, f32)> {
        (0..self.nodes() as u32).flat_map(move |node| {
            let weights = self.weights(node);
            let row = self.neighbours(node).iter().enumerate().filter(move |(_, other)| **other >= node);
            row.map(move |(at, other)| (node, *other, weights.map_or(1.0, |weights| weights[at])))
        })
    }

    /// The graph with node `i` in the place of node `order[i]`, which is at `place_of` there. Lists keep their order; rows with
    /// weights stay sorted.
    pub(crate) fn renumbered(&self, order: &[u32], place_of: &[u32]) -> Graph {
        let mut offsets = vec![0u64];
        let mut neighbours: Vec<u32> = Vec::with_capacity(self.entries());
        let mut weights = self.weights.as_ref().map(|_| Vec::with_capacity(self.entries()));
        for node in order {
            let mut row: Vec<(u32, f32)> = self
                .neighbours(*node)
                .iter()
                .enumerate()
                .map(|(at, other)| {
                    (place_of[*other as usize], self.weights(*node).map_or(1.0, |weights| weights[at]))
                })
                .collect();
            if let Some(weights) = &mut weights {
                row.sort_by_key(|(neighbour, _)| *neighbour);
                weights.extend(row.iter().map(|(_, weight)| *weight));
            }
            neighbours.extend(row.iter().map(|(neighbour, _)| *neighbour));
            offsets.push(neighbours.len() as u64);
        }
        Graph { offsets: offsets.into(), neighbours: neighbours.into(), weights: weights.map(Numbers::from) }
    }

    /// Adds the content to a hash.
    pub(crate) fn hash_into(&self, hasher: &mut blake3::Hasher) {
        hasher.update(bytemuck::cast_slice(&self.offsets));
        hasher.update(bytemuck::cast_slice(&self.neighbours));
        hasher.update(&[u8::from(self.is_weighted())]);
        if let Some(weights) = &self.weights {
            hasher.update(bytemuck::cast_slice(weights));
        }
    }

    fn range(&self, node: u32) -> std::ops::Range<usize> {
        let at = node as usize;
        match (self.offsets.get(at), self.offsets.get(at + 1)) {
            (Some(start), Some(end)) => *start as usize..*end as usize,
            _ => 0..0,
        }
    }
}

/// What is wrong with an edge of a graph with `nodes` nodes.
pub(crate) fn check_edge(nodes: usize, from: u32, to: u32, weight: f32) -> Result<(), String> {
    for node in [from, to] {
        if node as usize >= nodes {
            return Err(format!("node {node} of a graph with {nodes} nodes"));
        }
    }
    match weight > 0.0 && weight.is_finite() {
        true => Ok(()),
        false => Err(format!("a weight of {weight}, expected a positive number")),
    }
}

/// Sorts each row by neighbour and sums the weights of equal ones, in the order in which they came, so that both rows of an edge get
/// the same bits.
fn merge_rows(offsets: &mut [u64], neighbours: &mut Vec<u32>, weights: &mut Vec<f32>) {
    let mut row: Vec<(u32, f32)> = Vec::new();
    let mut kept = 0;
    let mut start = 0;
    for offset in offsets.iter_mut().skip(1) {
        let end = *offset as usize;
        row.clear();
        row.extend(neighbours[start..end].iter().copied().zip(weights[start..end].iter().copied()));
        row.sort_by_key(|(neighbour, _)| *neighbour);
        let first = kept;
        for &(neighbour, weight) in &row {
            if kept > first && neighbours[kept - 1] == neighbour {
                weights[kept - 1] += weight;
            } else {
                (neighbours[kept], weights[kept]) = (neighbour, weight);
                kept += 1;
            }
        }
        *offset = kept as u64;
        start = end;
    }
    neighbours.truncate(kept);
    weights.truncate(kept);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_hold_both_ends_and_equal_edges_add_up() {
        let graph = Graph::from_edges(4, [(2, 0, 1.0), (0, 1, 2.0), (1, 0, 0.5), (3, 3, 1.0)]).unwrap();
        assert_eq!((graph.nodes(), graph.entries()), (4, 5));
        assert_eq!(graph.neighbours(0), [1, 2]);
        assert_eq!(graph.weights(0).unwrap(), [2.5, 1.0]);
        assert_eq!((graph.neighbours(1), graph.weights(1).unwrap()), (&[0][..], &[2.5][..]));
        assert_eq!((graph.neighbours(3), graph.neighbours(4)), (&[3][..], &[][..]));
        assert_eq!(graph.degree(0), 3.5);
        assert_eq!(graph.edges().collect::<Vec<_>>(), [(0, 1, 2.5), (0, 2, 1.0), (3, 3, 1.0)]);
    }

    #[test]
    fn a_step_inverts_the_distribution_of_the_row() {
        let weighted = Graph::from_edges(3, [(0, 1, 1.0), (0, 2, 3.0)]).unwrap();
        let plain = Graph::from_edges(3, [(0, 1, 1.0), (0, 2, 1.0)]).unwrap();
        for (uniform, one, other) in
            [(0.0, 1, 1), (0.2, 1, 1), (0.3, 2, 1), (0.6, 2, 2), (0.999_999_999, 2, 2)]
        {
            assert_eq!((weighted.step(0, uniform), plain.step(0, uniform)), (Some(one), Some(other)));
        }
        assert!(plain.weights(0).is_none() && weighted.is_weighted());
        assert_eq!(Graph::from_edges(2, []).unwrap().step(1, 0.5), None);
    }

    #[test]
    fn bad_edges_are_named() {
        for (edge, why) in [
            ((0, 3, 1.0), "edge 0: node 3 of a graph with 3 nodes"),
            ((0, 1, 0.0), "edge 0: a weight of 0, expected a positive number"),
            ((0, 1, f32::NAN), "edge 0: a weight of NaN, expected a positive number"),
        ] {
            assert_eq!(Graph::from_edges(3, [edge]).unwrap_err(), why);
        }
    }
}
