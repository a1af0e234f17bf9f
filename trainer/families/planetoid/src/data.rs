//! The graph that a run reads, and the batches that are drawn of it.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use segue_configs::ConfigError;
use segue_data_error::DataError;
use segue_dataloader::Reader;
use segue_graph::{ContextOptions, Contexts, Covered, NodeData, Pair};
use segue_kernels::TrainError;
use segue_random::{Draws, Permutation, Purpose};
use tch::Tensor;

use super::config::{self, PlanetoidConfig};
use super::features::Bags;
use super::model::{Network, Nodes};
use super::sections::{DataConfig, TurnsConfig};
use super::turns::Task;
use super::variant::Variant;

/// What one micro-step trains on.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// Labelled nodes with their classes.
    Labelled(Vec<(u32, u32)>),
    /// Pairs of an anchor and a context, by the context's number among the contexts, and the sign γ of each.
    Pairs {
        /// Anchor and context.
        pairs: Vec<(u32, u32)>,
        /// 1 for true pairs, −1 for drawn ones.
        signs: Vec<f32>,
    },
    /// Edges, `(i, j, a_ij)`.
    Edges(Vec<(u32, u32, f32)>),
    /// Nodes that labels spread to.
    Nodes(Range<usize>),
}

/// A graph with its labels and features, and what a run makes of it once.
pub struct Material {
    /// The data set.
    pub data: NodeData,
    /// Labelled nodes with their classes.
    pub labelled: Vec<(u32, u32)>,
    /// The nodes that contexts are of; `None` where they are of all.
    covered: Option<Covered>,
    /// How labels spread, where they do.
    spread: Spread,
    /// Both directions of every edge between nodes that training sees, where penalties are paid for them.
    edges: Vec<(u32, u32, f32)>,
}

impl Material {
    /// Opens the graph that `config` names, and fits `own`, which takes such turns, to it.
    pub fn open(
        config: &DataConfig,
        turns: &TurnsConfig,
        own: &mut PlanetoidConfig,
    ) -> Result<Self, TrainError> {
        if config.corpus.is_empty() {
            let what = "data.corpus is not set\nhint: add data.corpus=FOLDER of a graph to the command or the recipe";
            return Err(TrainError::Layout(what.into()));
        }
        let material = Self::of(config.open(Path::new(&config.corpus), own.variant)?, own)?;
        if material.labelled.is_empty() {
            let what = format!("the graph `{}` has no labelled nodes to train on", material.data.name);
            return Err(TrainError::Layout(what));
        }
        let pays = own.variant.has_penalty() && own.lambda > 0.0 && turns.context_steps > 0.0;
        if pays && material.edges.is_empty() {
            let what = "joins no two nodes whose features training sees: a penalty along edges has none";
            let hint = "give the features of unlabelled nodes, or take model.variant=features";
            let graph = &material.data.name;
            return Err(TrainError::Layout(format!("the graph `{graph}` {what}\nhint: {hint}")));
        }
        Ok(material)
    }

    /// The same of data that is open, which needs no labels where nothing is trained.
    pub fn of(data: NodeData, own: &mut PlanetoidConfig) -> Result<Self, TrainError> {
        // Without features Planetoid-T is Planetoid-G, of which Yang 2019, table 3.8, has one row for both.
        if own.variant == Variant::Transductive && data.has_no_features() {
            own.variant = Variant::Graph;
        }
        let labelled = data.labelled();
        let seen =
            || Covered::new(data.seen.iter().zip(&data.has_features).map(|(seen, known)| *seen && *known));
        let covered = own.variant.is_inductive().then(seen);
        let visible = |node: u32| covered.as_ref().is_none_or(|covered| covered.number(node).is_some());
        let count = covered.as_ref().map_or(data.nodes(), |covered| covered.nodes().len());
        let edges = if own.variant.has_penalty() {
            let both = |(i, j, a): (u32, u32, f32)| [(i, j, a), (j, i, a)];
            let seen = |edge: &(u32, u32, f32)| visible(edge.0) && visible(edge.1);
            data.graph.edges().filter(|edge| edge.0 != edge.1 && seen(edge)).flat_map(both).collect()
        } else {
            Vec::new()
        };
        for (key, own, found) in [
            ("model.nodes", &mut own.nodes, data.nodes()),
            ("model.features", &mut own.features, data.features.columns),
            ("model.classes", &mut own.classes, data.classes),
            ("model.context_nodes", &mut own.context_nodes, count),
        ] {
            fit(key, own, found)?;
        }
        let spread =
            if own.variant.spreads() { Spread::of(&data, &labelled, own) } else { Spread::default() };
        Ok(Self { data, labelled, covered, spread, edges })
    }

    /// Nodes that a ranking is of: all that are not trained on, of which a model that reads features alone leaves out those without any.
    pub fn candidates(&self, variant: Variant) -> Vec<u32> {
        let mut open = match variant.is_inductive() {
            true => self.data.has_features.clone(),
            false => vec![true; self.data.nodes()],
        };
        self.data.train.iter().for_each(|node| open[*node as usize] = false);
        (0u32..).zip(open).filter_map(|(node, open)| open.then_some(node)).collect()
    }

    /// The number of a node among those that contexts are of, if it is one.
    fn context_of(&self, node: u32) -> Option<u32> {
        self.covered.as_ref().map_or(Some(node), |covered| covered.number(node))
    }

    /// Nodes as `network` takes them.
    pub fn nodes(&self, network: &Network, numbers: &[u32]) -> Nodes {
        let features = network.config.variant.reads_features();
        Nodes {
            numbers: self::numbers(numbers),
            features: features.then(|| Bags::of(&self.data.features, numbers)),
        }
    }

    /// Share of each class among labelled nodes: `[classes]`, f32.
    pub fn prior(&self) -> Tensor {
        let mut shares = vec![0f32; self.data.classes];
        for (_, class) in &self.labelled {
            shares[*class as usize] += 1.0 / self.labelled.len() as f32;
        }
        Tensor::from_slice(&shares)
    }

    /// Labels of `nodes`, `[nodes, classes]`, after one more round from `labels`, `[all, classes]`.
    pub fn spread(&self, labels: &Tensor, nodes: Range<usize>) -> Tensor {
        let Spread { shares, known } = &self.spread;
        let row = |node: usize| match shares[node].as_slice() {
            [] => (&[][..], &[][..]),
            shares => (self.data.graph.neighbours(node as u32), shares),
        };
        let classes = self.data.classes;
        let known = Tensor::from_slice(&known[nodes.start * classes..nodes.end * classes]);
        let known = known.view([nodes.len() as i64, -1]).to_kind(labels.kind());
        Bags::new(nodes.map(row)).times(labels) + known
    }
}

/// Numbers of nodes or classes as a tensor: i64.
pub fn numbers(numbers: &[u32]) -> Tensor {
    let numbers: Vec<i64> = numbers.iter().map(|number| i64::from(*number)).collect();
    Tensor::from_slice(&numbers)
}

/// How labels spread: what each node gets of its neighbours, and of what it is known to be.
///
/// Propagation (Zhu et al. 2003): the mean of the neighbours' labels by the weights of edges; where the class is known, that alone. Spreading
/// (Zhou et al. 2004): α times the sum of theirs by weights `a_ij / √(d_i d_j)`, and 1 − α times the known class.
#[derive(Default)]
struct Spread {
    /// By node: a share for each of its neighbours; none where its class is all that counts.
    shares: Vec<Vec<f32>>,
    /// What comes of known classes: `[nodes, classes]`, row by row.
    known: Vec<f32>,
}

impl Spread {
    fn of(data: &NodeData, labelled: &[(u32, u32)], config: &PlanetoidConfig) -> Self {
        let (graph, clamped) = (&data.graph, config.variant == Variant::LabelPropagation);
        let share = |node: u32| -> Vec<f32> {
            let weight = |at: usize| f64::from(graph.weights(node).map_or(1.0, |weights| weights[at]));
            let over = |other: u32| match clamped {
                true => graph.degree(node),
                false => (graph.degree(node) * graph.degree(other)).sqrt() / config.alpha,
            };
            let neighbours = graph.neighbours(node).iter().enumerate();
            neighbours.map(|(at, other)| (weight(at) / over(*other)) as f32).collect()
        };
        let mut shares: Vec<Vec<f32>> = (0..data.nodes() as u32).map(share).collect();
        let mut known = vec![0.0; data.nodes() * data.classes];
        for &(node, class) in labelled {
            known[node as usize * data.classes + class as usize] =
                if clamped { 1.0 } else { 1.0 - config.alpha as f32 };
            if clamped {
                shares[node as usize].clear();
            }
        }
        Self { shares, known }
    }
}

/// Takes a size from the data where the recipe leaves it open.
fn fit(key: &'static str, own: &mut usize, found: usize) -> Result<(), ConfigError> {
    if *own != 0 && *own != found {
        let why = format!("the graph has {found}\nhint: leave {key} out");
        return Err(segue_configs::out_of_range(key, *own, &why));
    }
    *own = found;
    Ok(())
}

/// Draws the parts of one rank's micro-steps. A batch is a function of (seed, task, its number), and its micro-steps are consecutive parts
/// of it.
pub struct PartReader {
    /// What is drawn from.
    pub material: Arc<Material>,
    /// How.
    pub config: PlanetoidConfig,
    /// How much for a step.
    pub turns: TurnsConfig,
    /// Seed of the run.
    pub seed: u64,
    /// What is drawn.
    pub task: Task,
    /// Micro-steps of this rank, numbered over the job.
    pub micro_steps: Range<usize>,
    /// Micro-steps of the job.
    pub of: usize,
}

impl Reader for PartReader {
    type Batch = Vec<Part>;

    fn read(&mut self, nth: u64) -> Result<Vec<Part>, DataError> {
        let sampler = match self.task {
            Task::Supervised => None,
            _ if self.config.variant.has_penalty() => None,
            _ => Some(self.sampler()?),
        };
        Ok(self.micro_steps.clone().map(|micro_step| self.part(nth, micro_step, sampler.as_ref())).collect())
    }
}

impl PartReader {
    fn sampler(&self) -> Result<Contexts<'_>, DataError> {
        let Material { data, labelled, covered, .. } = self.material.as_ref();
        Contexts::new(&data.graph, labelled, covered.as_ref(), options(&self.config), self.seed)
    }

    fn part(&self, nth: u64, micro_step: usize, sampler: Option<&Contexts>) -> Part {
        let material = self.material.as_ref();
        // Of `size` things of each batch, those of this micro-step, numbered over all batches.
        let own = |size: usize| {
            let at = |micro_step: usize| (nth - 1) * size as u64 + (micro_step * size / self.of) as u64;
            at(micro_step)..at(micro_step + 1)
        };
        match (self.task, sampler) {
            (Task::Contexts, Some(sampler)) => self.pairs(sampler.pairs(own(self.turns.context_batch))),
            (_, Some(sampler)) => self.pairs(sampler.label_pairs(own(self.turns.label_batch))),
            (Task::Supervised, None) if self.config.variant.spreads() => {
                let at = |micro_step: usize| micro_step * material.data.nodes() / self.of;
                Part::Nodes(at(micro_step)..at(micro_step + 1))
            }
            (Task::Supervised, None) => {
                let count = material.labelled.len() as u64;
                let size = self.turns.batch.min(material.labelled.len());
                let node = |number: u64| {
                    let order = Permutation::new(count, self.seed, Purpose::Examples, &[number / count]);
                    material.labelled[order.at(number % count) as usize]
                };
                Part::Labelled(own(size).map(node).collect())
            }
            (_, None) => {
                let edge = |number: u64| {
                    let mut draws = Draws::new(self.seed, Purpose::Synthetic, &[self.task as u64, number]);
                    material.edges.get(draws.below(material.edges.len() as u64) as usize).copied()
                };
                Part::Edges(own(self.turns.context_batch).filter_map(edge).collect())
            }
        }
    }

    /// Pairs by the contexts' numbers among those there are.
    fn pairs(&self, drawn: Vec<Pair>) -> Part {
        // Labelled nodes whose features nobody knows are not among them.
        let known = |pair: &Pair| {
            self.material.context_of(pair.node)?;
            let context = self.material.context_of(pair.context)?;
            Some(((pair.node, context), if pair.positive { 1.0 } else { -1.0 }))
        };
        let (pairs, signs) = drawn.iter().filter_map(known).unzip();
        Part::Pairs { pairs, signs }
    }
}

/// What pairs the configuration asks for.
fn options(config: &PlanetoidConfig) -> ContextOptions {
    let told_apart = config.contexts == config::Contexts::Negative;
    ContextOptions {
        positive: if told_apart && config.negatives == 0 { config.r1 } else { 1.0 },
        graph: config.r2,
        walk: config.walk_nodes,
        window: config.window,
        within: config.self_pairs,
        per_walk: match config.pairs_per_walk {
            config::PairsPerWalk::All => segue_graph::PairsPerWalk::All,
            config::PairsPerWalk::One => segue_graph::PairsPerWalk::One,
        },
        negatives: config.negatives,
        labels: match config.label_pairs {
            config::LabelPairs::Anchor => segue_graph::LabelPairs::AnchorFirst,
            config::LabelPairs::Uniform => segue_graph::LabelPairs::UniformPairs,
        },
        starts: match config.starts {
            config::Starts::Permuted => segue_graph::Starts::Permuted,
            config::Starts::Uniform => segue_graph::Starts::Uniform,
        },
    }
}
