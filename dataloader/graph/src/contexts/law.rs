use super::options::ContextOptions;
use super::sample::Contexts;
use crate::Graph;

/// Probabilities of ordered pairs `(i, c)` of the nodes of a small graph: that a draw gives the pair. Where draws give nothing
/// (starts without neighbours, pairs with nodes that are not covered), they sum to less than 1.
#[derive(Clone, Debug, PartialEq)]
pub struct PairLaw {
    /// Number of nodes n.
    pub nodes: usize,
    /// Positive pairs, `[n, n]`, row i.
    pub positive: Vec<f64>,
    /// Negative pairs, `[n, n]`, row i.
    pub negative: Vec<f64>,
}

impl PairLaw {
    /// Probability that node `i` is the first of a pair.
    pub fn marginal(&self) -> Vec<f64> {
        let row = |node: usize| node * self.nodes..(node + 1) * self.nodes;
        (0..self.nodes)
            .map(|node| self.positive[row(node)].iter().chain(&self.negative[row(node)]).sum())
            .collect()
    }
}

impl Contexts<'_> {
    /// The law of the one pair of a walk, or of a uniform one of all its pairs, from powers of the transition matrix. Takes memory
    /// quadratic in the number of nodes: for tests and small graphs.
    pub fn graph_law(&self) -> PairLaw {
        let (graph, options, _, covered) = self.parts();
        let nodes = graph.nodes();
        let covers = |node: usize| covered.is_none_or(|covered| covered.number(node as u32).is_some());
        let candidates = (0..nodes).filter(|node| covers(*node)).count();
        // A walk starts at any of these alike, and gives nothing where that has no neighbour.
        let starts = |node: usize| covers(node) && graph.degree(node as u32) > 0.0;
        let start = |node: usize| if starts(node) { 1.0 / candidates as f64 } else { 0.0 };
        let near = near_law(graph, options, (0..nodes).map(start).collect());
        let mut law =
            PairLaw { nodes, positive: vec![0.0; nodes * nodes], negative: vec![0.0; nodes * nodes] };
        for (at, chance) in near.into_iter().enumerate() {
            let (node, context) = (at / nodes, at % nodes);
            if !covers(node) || !covers(context) {
                continue;
            }
            law.positive[at] += options.positive * chance;
            let each = (1.0 - options.positive) * chance / candidates as f64;
            for other in (0..nodes).filter(|other| covers(*other)) {
                law.negative[node * nodes + other] += each;
            }
        }
        law
    }

    /// The law of a label pair.
    pub fn label_law(&self) -> PairLaw {
        let (graph, options, labelled, _) = self.parts();
        let nodes = graph.nodes();
        let table = |equal: bool, share: f64| {
            let mut table = vec![0.0; nodes * nodes];
            for (node, context, chance) in labelled.law(options.labels, equal) {
                table[node as usize * nodes + context as usize] += share * chance;
            }
            table
        };
        PairLaw {
            nodes,
            positive: table(true, options.positive),
            negative: table(false, 1.0 - options.positive),
        }
    }

    /// The law of algorithm 2: of a pair of a walk with the probability [`ContextOptions::graph`], else of labels.
    pub fn law(&self) -> PairLaw {
        let share = self.options().graph;
        let (graph, labels) = (self.graph_law(), self.label_law());
        let mix = |graph: Vec<f64>, labels: Vec<f64>| {
            graph.into_iter().zip(labels).map(|(g, l)| share * g + (1.0 - share) * l).collect()
        };
        PairLaw {
            nodes: graph.nodes,
            positive: mix(graph.positive, labels.positive),
            negative: mix(graph.negative, labels.negative),
        }
    }
}

/// The law of two places of a walk, `[n, n]`: `(S_j, S_k)` with `(j, k)` uniform over the window. `start`: the law of its first node, m_0, `[n]`.
fn near_law(graph: &Graph, options: &ContextOptions, start: Vec<f64>) -> Vec<f64> {
    let nodes = graph.nodes();
    let places = options.places();
    // Where the walk is at each place: m_{j+1} = m_j T.
    let mut at: Vec<Vec<f64>> = vec![start];
    for place in 1..options.walk {
        at.push(step_all(graph, &at[place - 1]));
    }
    let mut law = vec![0.0; nodes * nodes];
    for (place, occupied) in at.iter().enumerate() {
        for first in 0..nodes {
            // From `first` at this place to wherever the walk is some steps later.
            let mut ahead = vec![0.0; nodes];
            ahead[first] = occupied[first];
            for later in place..options.walk.min(place.saturating_add(options.window).saturating_add(1)) {
                if later > place {
                    ahead = step_all(graph, &ahead);
                } else if !options.within {
                    continue;
                }
                for (second, chance) in ahead.iter().enumerate() {
                    law[first * nodes + second] += chance / places.len() as f64;
                    if later > place {
                        law[second * nodes + first] += chance / places.len() as f64;
                    }
                }
            }
        }
    }
    law
}

/// One step of the walk: `m T` with `T_ij = a_ij / Σ a_ij'`.
fn step_all(graph: &Graph, from: &[f64]) -> Vec<f64> {
    let mut to = vec![0.0; from.len()];
    for (node, mass) in from.iter().enumerate().filter(|(_, mass)| **mass > 0.0) {
        let weights = graph.weights(node as u32);
        let degree = graph.degree(node as u32);
        for (entry, neighbour) in graph.neighbours(node as u32).iter().enumerate() {
            let weight = weights.map_or(1.0, |weights| f64::from(weights[entry]));
            to[*neighbour as usize] += mass * weight / degree;
        }
    }
    to
}
