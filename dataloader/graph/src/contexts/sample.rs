use std::ops::Range;

use segue_data_error::DataError;
use segue_random::{Draws, Permutation, Purpose};

use super::covered::Covered;
use super::labels::{LabelPair, Labelled};
use super::options::{ContextOptions, PairsPerWalk, Starts};
use crate::Graph;

/// What is drawn; the first counter of its stream.
#[derive(Clone, Copy)]
enum Source {
    Graph = 1,
    Labels = 2,
    Mixed = 3,
    Starts = 4,
}

/// A node and a context of it, or in a negative pair a node drawn in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pair {
    /// The node, whose embedding is trained: i.
    pub node: u32,
    /// The context, whose parameters are trained: c.
    pub context: u32,
    /// Whether c was found near i: γ = +1.
    pub positive: bool,
}

/// A random walk of `steps` steps, whose first node is `start`. It ends early where a node has no neighbour.
pub fn walk(graph: &Graph, start: u32, steps: usize, draws: &mut Draws) -> Vec<u32> {
    let mut nodes = vec![start];
    let mut at = start;
    for _ in 0..steps {
        let Some(next) = graph.step(at, draws.uniform()) else { break };
        nodes.push(next);
        at = next;
    }
    nodes
}

/// The sampler of contexts (Yang, Cohen and Salakhutdinov 2016, algorithm 2).
///
/// Draws are numbered over a whole run: batch `t` of `n` draws has the numbers `t n .. (t + 1) n`, and a lane takes a part of that
/// range. What a number gives is a function of the seed and the number, so there is no state, and it does not matter who draws it.
#[derive(Clone, Debug)]
pub struct Contexts<'a> {
    graph: &'a Graph,
    options: ContextOptions,
    places: Vec<(usize, usize)>,
    labelled: Labelled,
    /// `None`: all nodes.
    covered: Option<&'a Covered>,
    seed: u64,
}

impl<'a> Contexts<'a> {
    /// A sampler over a graph and labels, `(node, class)`. `covered` are the nodes that walks start at and pairs may hold, `None` for all.
    /// Walks pass through the others, and graph pairs that touch one are left out.
    ///
    /// # Errors
    ///
    /// Options out of range, labels of nodes that are not there.
    pub fn new(
        graph: &'a Graph,
        labelled: &[(u32, u32)],
        covered: Option<&'a Covered>,
        options: ContextOptions,
        seed: u64,
    ) -> Result<Contexts<'a>, DataError> {
        options.check()?;
        let nodes = graph.nodes();
        if let Some((node, _)) = labelled.iter().find(|(node, _)| *node as usize >= nodes) {
            return Err(DataError::Usage(format!("a label of node {node} of a graph with {nodes} nodes")));
        }
        if let Some(covered) = covered.filter(|covered| covered.of() != nodes) {
            return Err(DataError::Usage(format!("{} flags for a graph with {nodes} nodes", covered.of())));
        }
        let labelled = Labelled::new(labelled);
        Ok(Contexts { graph, places: options.places(), options, labelled, covered, seed })
    }

    /// What pairs are drawn.
    pub fn options(&self) -> &ContextOptions {
        &self.options
    }

    /// Pairs of the walks with these numbers, one walk after the other. A walk gives nothing where it starts at a node without
    /// neighbours, nor do pairs that touch a node that is not covered.
    pub fn graph_pairs(&self, numbers: Range<u64>) -> Vec<Pair> {
        let mut pairs = Vec::new();
        for number in numbers {
            self.add_walk(number, &mut self.draws(Source::Graph, number), &mut pairs);
        }
        pairs
    }

    /// Label pairs with these numbers. Where there is no pair of the sign that was drawn, a number gives nothing.
    pub fn label_pairs(&self, numbers: Range<u64>) -> Vec<Pair> {
        let mut pairs = Vec::new();
        for number in numbers {
            self.add_labels(&mut self.draws(Source::Labels, number), &mut pairs);
        }
        pairs
    }

    /// Each number gives the pairs of a walk with the probability [`ContextOptions::graph`], else a label pair: algorithm 2 as it is
    /// printed.
    pub fn pairs(&self, numbers: Range<u64>) -> Vec<Pair> {
        let mut pairs = Vec::new();
        for number in numbers {
            let mut draws = self.draws(Source::Mixed, number);
            match draws.uniform() < self.options.graph {
                true => self.add_walk(number, &mut draws, &mut pairs),
                false => self.add_labels(&mut draws, &mut pairs),
            }
        }
        pairs
    }

    fn draws(&self, source: Source, number: u64) -> Draws {
        Draws::new(self.seed, Purpose::Contexts, &[source as u64, number])
    }

    /// The node that a walk starts at, one that pairs may hold; `None` where there is none.
    fn start(&self, number: u64, draws: &mut Draws) -> Option<u32> {
        let nodes = self.covered.map_or(self.graph.nodes(), |covered| covered.nodes().len()) as u64;
        let (pass, place) = (number.checked_div(nodes)?, number % nodes);
        let start = match self.options.starts {
            Starts::Uniform => draws.below(nodes),
            Starts::Permuted => {
                Permutation::new(nodes, self.seed, Purpose::Contexts, &[Source::Starts as u64, pass])
                    .at(place)
            }
        };
        Some(self.covered.map_or(start as u32, |covered| covered.nodes()[start as usize]))
    }

    fn add_walk(&self, number: u64, draws: &mut Draws, pairs: &mut Vec<Pair>) {
        let Some(start) = self.start(number, draws).filter(|start| self.graph.degree(*start) > 0.0) else {
            return;
        };
        let nodes = walk(self.graph, start, self.options.walk - 1, draws);
        if nodes.len() < self.options.walk {
            // Along directed lists a walk may end early, though not in an undirected graph.
            return;
        }
        let places = match self.options.per_walk {
            PairsPerWalk::All => &self.places[..],
            PairsPerWalk::One => {
                let place = draws.below(self.places.len() as u64) as usize;
                &self.places[place..place + 1]
            }
        };
        for &(first, second) in places {
            let (node, context) = (nodes[first], nodes[second]);
            if self.covers(node) && self.covers(context) {
                let positive = draws.uniform() < self.options.positive;
                self.add_graph_pair(Pair { node, context, positive }, draws, pairs);
            }
        }
    }

    /// Adds a pair of a walk, with another context where it is negative, and the negative pairs that follow it.
    fn add_graph_pair(&self, found: Pair, draws: &mut Draws, pairs: &mut Vec<Pair>) {
        let mut negative = || Pair { context: self.candidate(draws), positive: false, ..found };
        match found.positive {
            false => pairs.push(negative()),
            true => {
                pairs.push(found);
                pairs.extend((0..self.options.negatives).map(|_| negative()));
            }
        }
    }

    fn add_labels(&self, draws: &mut Draws, pairs: &mut Vec<Pair>) {
        let positive = draws.uniform() < self.options.positive;
        let followers = if positive { self.options.negatives } else { 0 };
        let how = self.options.labels;
        let Some(LabelPair { node, context, class }) = self.labelled.pair(how, positive, draws) else {
            return;
        };
        pairs.push(Pair { node, context, positive });
        for _ in 0..followers {
            let other = self.labelled.outside(class, draws);
            pairs.extend(other.map(|context| Pair { node, context, positive: false }));
        }
    }

    fn covers(&self, node: u32) -> bool {
        self.covered.is_none_or(|covered| covered.number(node).is_some())
    }

    /// A context of a negative pair: uniform over nodes, whatever its edges.
    fn candidate(&self, draws: &mut Draws) -> u32 {
        match self.covered {
            None => draws.below(self.graph.nodes() as u64) as u32,
            Some(covered) => covered.nodes()[draws.below(covered.nodes().len() as u64) as usize],
        }
    }

    pub(super) fn parts(&self) -> (&Graph, &ContextOptions, &Labelled, Option<&Covered>) {
        (self.graph, &self.options, &self.labelled, self.covered)
    }
}
