//! What a configuration costs, before a byte of it is made: parameters, memory of a rank, operations.
//!
//! Everything here is arithmetic on the configuration. Parameters are exact. Operations count the matrix
//! products and nothing else, two to a multiply-add; the backward pass is taken as two products for
//! each of the forward pass, also where a gradient is not needed (sinusoids, memory). Memory is exact
//! for weights, gradients, optimizer and segment memory, and an estimate for activations.

use segue_configs::{AttnType, Config, LossKind, ModelConfig, TransfoXlConfig};
use serde::Serialize;

use crate::TrainError;
use crate::engine::check_ranks;
use crate::model;

/// Bytes of a value: training is in single precision.
const VALUE_BYTES: u64 = 4;
/// Means that Adam keeps of each parameter.
const ADAM_MEANS: u64 = 2;
/// A multiply and an add.
const PER_MULTIPLY_ADD: u64 = 2;
/// Products of a training step to those of its forward pass.
const TRAINING_TO_FORWARD: f64 = 3.0;

/// Parameters by part of the model. A tensor that serves twice counts once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ParameterParts {
    /// Tables of the input.
    pub embedding: u64,
    /// Projections between the widths of clusters and the model, of input and output.
    pub projections: u64,
    /// Attention and feed-forward, with biases u and v and learned positions.
    pub layers: u64,
    /// Biases and cluster rows of the output, and its tables where they are not the input's.
    pub softmax: u64,
}

impl ParameterParts {
    /// Counts the parameters that [`model::specs`] lists.
    pub fn of(config: &ModelConfig) -> Self {
        let mut parts = Self::default();
        for spec in model::specs(config) {
            let part = match spec.name.as_str() {
                name if name.contains("_projs.") => &mut parts.projections,
                name if name.starts_with("transformer.word_emb.") => &mut parts.embedding,
                name if name.starts_with("crit.") => &mut parts.softmax,
                _ => &mut parts.layers,
            };
            *part += spec.numel() as u64;
        }
        parts
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.embedding + self.projections + self.layers + self.softmax
    }
}

/// What depends on how frequent words are, between two bounds. Both are the same without an adaptive
/// softmax.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bounds {
    /// Every token is of the first cluster.
    pub least: f64,
    /// Every token is of the cluster that costs most.
    pub most: f64,
}

impl Bounds {
    /// Both times `factor`.
    pub fn times(self, factor: f64) -> Self {
        Self { least: self.least * factor, most: self.most * factor }
    }
}

/// Bytes that one rank holds while it trains.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RankMemory {
    /// Weights.
    pub weights: u64,
    /// Gradients: one copy for each level of the sum over this rank's micro-steps.
    pub gradients: u64,
    /// Adam's two means.
    pub optimizer: u64,
    /// The mean of weights, where the recipe takes one.
    pub average: u64,
    /// Segment memory of this rank's lanes.
    pub segment_memory: u64,
    /// Estimate of what one micro-step keeps for its backward pass.
    pub activations: Bounds,
}

impl RankMemory {
    /// The sum.
    pub fn total(&self) -> Bounds {
        let fixed = self.weights + self.gradients + self.optimizer + self.average + self.segment_memory;
        Bounds { least: fixed as f64 + self.activations.least, most: fixed as f64 + self.activations.most }
    }
}

/// What a run costs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cost {
    /// Ranks it is spread over.
    pub ranks: usize,
    /// Micro-steps of each rank in a step.
    pub micro_steps_per_rank: usize,
    /// Number of parameters.
    pub parameters: u64,
    /// The same by part.
    pub parameters_by_part: ParameterParts,
    /// Bytes on each rank.
    pub memory_per_rank: RankMemory,
    /// Operations of a forward pass for each token.
    pub forward_flops_per_token: Bounds,
    /// Operations of training for each token.
    pub training_flops_per_token: Bounds,
    /// Tokens read in a step, over all ranks.
    pub tokens_per_step: u64,
    /// Of these, the ones that a loss is taken of.
    pub targets_per_step: u64,
    /// Steps.
    pub steps: u64,
    /// Tokens of the whole run.
    pub tokens: u64,
    /// Operations of the whole run.
    pub flops: Bounds,
}

impl Cost {
    /// Works out what `config` costs on `ranks` ranks. `model.vocab_size` has to be known. Fails where
    /// the ranks cannot share the micro-steps, as training would.
    pub fn of(config: &Config, ranks: usize) -> Result<Self, TrainError> {
        let model = config
            .model
            .transfo_xl()
            .ok_or_else(|| TrainError::Layout("only the cost of Transformer-XL is known".into()))?;
        let micro_steps_per_rank = check_ranks(&config.train, ranks)?;
        let parameters_by_part = ParameterParts::of(&config.model);
        let shape = Shape::new(config, model);
        let forward = shape.forward_flops().times(1.0 / shape.tokens() as f64);
        let training = forward.times(TRAINING_TO_FORWARD);
        let tokens_per_step = (config.train.lanes * config.train.segment) as u64;
        let tokens = tokens_per_step * config.train.steps;
        Ok(Self {
            ranks,
            micro_steps_per_rank,
            parameters: parameters_by_part.total(),
            parameters_by_part,
            memory_per_rank: memory(config, &shape, parameters_by_part.total(), micro_steps_per_rank),
            forward_flops_per_token: forward,
            training_flops_per_token: training,
            tokens_per_step,
            targets_per_step: config.train.lanes as u64 * shape.targets,
            steps: config.train.steps,
            tokens,
            flops: training.times(tokens as f64),
        })
    }
}

fn memory(config: &Config, shape: &Shape, parameters: u64, micro_steps: usize) -> RankMemory {
    let weights = parameters * VALUE_BYTES;
    // The sum over micro-steps is a binary counter: one partial sum for each of its digits, and the
    // gradient that comes in.
    let copies = u64::from(micro_steps.ilog2()) + 1;
    let lanes = (micro_steps * config.train.micro_batch) as u64;
    let averages = config.average.start > 0 || config.average.patience > 0;
    RankMemory {
        weights,
        gradients: copies * weights,
        optimizer: ADAM_MEANS * weights,
        average: if averages { weights } else { 0 },
        segment_memory: lanes * shape.layers * shape.memory * shape.d_model * VALUE_BYTES,
        activations: shape.activations().times(VALUE_BYTES as f64),
    }
}

/// A cluster of the vocabulary.
struct Cluster {
    words: u64,
    width: u64,
    projected: bool,
}

/// Sizes of one micro-step.
struct Shape {
    lanes: u64,
    segment: u64,
    /// Positions that are queries: the segment and what is read again before it.
    query: u64,
    /// Positions of memory.
    memory: u64,
    /// Targets of a lane that count.
    targets: u64,
    layers: u64,
    d_model: u64,
    d_inner: u64,
    heads: u64,
    /// Width of all heads together.
    attention: u64,
    /// Distances are projected for the whole micro-step (relative positions).
    projects_positions: bool,
    /// Queries meet positions apart from keys.
    scores_positions: bool,
    keeps_dropped_attention: bool,
    clusters: Vec<Cluster>,
}

impl Shape {
    fn new(config: &Config, model: &TransfoXlConfig) -> Self {
        let train = &config.train;
        let wide = |n: usize| n as u64;
        Self {
            lanes: wide(train.micro_batch),
            segment: wide(train.segment),
            query: wide(train.ext_len + train.segment),
            memory: wide(model.mem_len),
            targets: wide(match train.loss {
                LossKind::Full => train.segment,
                LossKind::Half => train.segment.div_ceil(2),
            }),
            layers: wide(model.n_layer),
            d_model: wide(model.d_model),
            d_inner: wide(model.d_inner),
            heads: wide(model.n_head),
            attention: wide(model.n_head * model.head_width()),
            projects_positions: model.attn_type == AttnType::Relative,
            scores_positions: matches!(model.attn_type, AttnType::Relative | AttnType::Shaw),
            keeps_dropped_attention: model.dropatt > 0.0,
            clusters: model::cluster_shapes(model)
                .into_iter()
                .map(|(words, width, projected)| Cluster { words, width, projected })
                .collect(),
        }
    }

    /// Tokens of the micro-step.
    fn tokens(&self) -> u64 {
        self.lanes * self.segment
    }

    /// Keys of one lane.
    fn keys(&self) -> u64 {
        self.memory + self.query
    }

    /// Operations of a forward pass of the whole micro-step, with a memory that is full:
    /// 2·(embedding + layers·layer + softmax).
    fn forward_flops(&self) -> Bounds {
        let layers = self.layers * self.layer_products();
        let (embedding, softmax) = (self.embedding_products(), self.softmax_products());
        let flops =
            |[embedding, softmax]: [u64; 2]| (PER_MULTIPLY_ADD * (embedding + layers + softmax)) as f64;
        Bounds { least: flops([embedding.0, softmax.0]), most: flops([embedding.1, softmax.1]) }
    }

    /// Multiply-adds of one layer (thesis 2.1.3), with B lanes, Q queries, K keys, d = `d_model`,
    /// a = heads · width, f = `d_inner`: queries BQda, keys and values 2BKda, distances Kda once for all
    /// lanes, scores by content and by position BQKa each, reading BQKa, output BQad, feed-forward 2BQdf.
    fn layer_products(&self) -> u64 {
        let (d, a) = (self.d_model, self.attention);
        let (queries, keys) = (self.lanes * self.query, self.lanes * self.keys());
        let pairs = queries * self.keys();
        let projections = 2 * queries * d * a + 2 * keys * d * a;
        let positions = if self.projects_positions { self.keys() * d * a } else { 0 };
        let position_scores = if self.scores_positions { pairs * a } else { 0 };
        projections + positions + position_scores + 2 * pairs * a + 2 * queries * d * self.d_inner
    }

    /// Multiply-adds that bring embeddings to the model's width: least and most.
    fn embedding_products(&self) -> (u64, u64) {
        let of = |c: &Cluster| if c.projected { self.lanes * self.query * self.d_model * c.width } else { 0 };
        (of(&self.clusters[0]), self.clusters.iter().map(of).max().unwrap_or(0))
    }

    /// Multiply-adds of the output: the head for every target, and for the upper bound the costliest tail
    /// for every target too.
    fn softmax_products(&self) -> (u64, u64) {
        let scored = self.lanes * self.targets;
        let of = |cluster: &Cluster, entries: u64| {
            let projection = if cluster.projected { self.d_model * cluster.width } else { 0 };
            scored * (projection + cluster.width * entries)
        };
        let head = of(&self.clusters[0], self.head_entries());
        let tail = self.clusters[1..].iter().map(|c| of(c, c.words)).max().unwrap_or(0);
        (head, head + tail)
    }

    /// Words of the first cluster, and one entry for each tail.
    fn head_entries(&self) -> u64 {
        self.clusters[0].words + self.clusters.len() as u64 - 1
    }

    /// Values that the backward pass needs. In each layer: the input, with memory before it, queries
    /// twice, keys, values and what was read, attention weights (twice under dropout), the inner states
    /// before and after dropout, and six tensors of the model's width around the residuals and norms. At
    /// the output, logits and their softmax.
    fn activations(&self) -> Bounds {
        let (queries, keys) = (self.lanes * self.query, self.lanes * self.keys());
        let weights = (1 + u64::from(self.keeps_dropped_attention)) * self.heads * queries * self.keys();
        let layer = keys * (self.d_model + 2 * self.attention)
            + queries * (6 * self.d_model + 3 * self.attention + 2 * self.d_inner)
            + weights;
        let scored = self.lanes * self.targets;
        let head = 2 * scored * self.head_entries();
        let tail = self.clusters[1..].iter().map(|c| 2 * scored * c.words).max().unwrap_or(0);
        let inside = (self.layers * layer) as f64;
        Bounds { least: inside + head as f64, most: inside + (head + tail) as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn config(keys: &[&str]) -> Config {
        let overrides: Vec<String> = keys.iter().map(|k| k.to_string()).collect();
        segue_configs::load(None, &overrides).unwrap().config
    }

    fn recipes() -> PathBuf {
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/recipes"))
    }

    fn recipe(name: &str, keys: &[&str]) -> Config {
        let overrides: Vec<String> = keys.iter().map(|k| k.to_string()).collect();
        segue_configs::load(Some(&recipes().join(name)), &overrides).unwrap().config
    }

    fn parameters(name: &str, keys: &[&str]) -> u64 {
        Cost::of(&recipe(name, keys), 1).unwrap().parameters
    }

    /// The integers of the references' own counts (spec 7.6).
    #[test]
    fn t26_recipes_have_the_published_parameters() {
        for (name, keys, count) in [
            ("enwik8-base.toml", &[][..], 41_055_436),
            ("enwik8-large.toml", &[], 277_231_820),
            ("text8-large.toml", &[], 277_050_395),
            ("wikitext103-base.toml", &[], 151_107_538),
            ("wikitext103-base.toml", &["model.untie_r=true"], 151_119_838),
            ("wikitext103-large.toml", &[], 285_170_506),
            ("wikitext103-large.toml", &["model.n_layer=16"], 257_889_098),
            ("lm1b-base.toml", &[], 466_962_273),
            ("lm1b-large.toml", &[], 838_078_041),
        ] {
            assert_eq!(parameters(name, keys), count, "{name} {keys:?}");
        }
    }

    #[test]
    fn t26_every_recipe_agrees_with_what_it_says_is_published() {
        let mut seen = 0;
        for entry in std::fs::read_dir(recipes()).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let config = recipe(&name, &[]);
            if config.model.vocab_size() == 0 {
                continue;
            }
            let cost = Cost::of(&config, 1).unwrap_or_else(|e| panic!("{name}: {e}"));
            let published = &config.published;
            if published.parameters > 0 {
                assert_eq!(cost.parameters, published.parameters, "{name}");
            }
            // The thesis rounds to millions, or to hundredths or tenths of a billion. Its 257M are those
            // of 16 of the 18 layers (spec, section 5); Al-Rfou's 44M hold the auxiliary outputs too.
            let rounded = cost.parameters as f64;
            let close = match published.thesis_parameters.as_str() {
                "" => true,
                "257M" => name == "wikitext103-large.toml",
                "44M" => name == "alrfou-enwik8.toml",
                text if text.ends_with('B') => {
                    let billions: f64 = text.trim_end_matches('B').parse().unwrap();
                    (rounded / 1e9 - billions).abs() < 0.05
                }
                text => {
                    let millions: f64 = text.trim_end_matches('M').parse().unwrap();
                    (rounded / 1e6 - millions).abs() < 1.0
                }
            };
            assert!(close, "{name}: {} against {}", cost.parameters, published.thesis_parameters);
            seen += 1;
        }
        assert!(seen >= 17, "only {seen} recipes say their vocabulary");
    }

    #[test]
    fn t13_tied_and_shared_parameters_count_once() {
        // By hand: 10 words of width 4; tail of 6 words of width 2.
        let keys = [
            "model.vocab_size=10",
            "model.cutoffs=[4]",
            "model.div_val=2",
            "model.d_model=4",
            "model.n_head=1",
            "model.d_inner=8",
            "model.n_layer=1",
            "model.untie_r=false",
        ];
        let parts = Cost::of(&config(&keys), 1).unwrap().parameters_by_part;
        assert_eq!(parts.embedding, 4 * 4 + 6 * 2);
        // Input 4x4 and 4x2; output 4x4, the tail's being the input's.
        assert_eq!(parts.projections, 16 + 8 + 16);
        assert_eq!(parts.softmax, 10 + 4 + 1);
        // qkv, r, o; u and v; two norms; feed-forward with biases.
        assert_eq!(parts.layers, 5 * 16 + 2 * 4 + 4 * 4 + 2 * 32 + 8 + 4);
        let untied =
            [&keys[..], &["model.tie_word_embeddings=false", "model.proj_share_all_but_first=false"]];
        let more = Cost::of(&config(&untied.concat()), 1).unwrap().parameters;
        assert_eq!(more, parts.total() + (16 + 12) + 8);
    }

    /// Sum of 2·m·n·k over products written out one by one.
    fn flops(products: &[(u64, u64, u64)]) -> f64 {
        products.iter().map(|(m, n, k)| 2 * m * n * k).sum::<u64>() as f64
    }

    #[test]
    fn operations_are_those_of_the_products_written_out() {
        let config = config(&[
            "model.vocab_size=11",
            "model.cutoffs=[5]",
            "model.div_val=2",
            "model.d_model=6",
            "model.n_head=2",
            "model.d_head=4",
            "model.d_inner=10",
            "model.n_layer=1",
            "model.mem_len=3",
            "train.segment=5",
            "train.lanes=2",
            "train.micro_batch=2",
        ]);
        let mut layer = Vec::new();
        for _lane in 0..2 {
            layer.push((5, 8, 6)); // queries
            layer.extend([(8, 8, 6), (8, 8, 6)]); // keys, values of memory and segment
            for _head in 0..2 {
                layer.extend([(5, 8, 4), (5, 8, 4), (5, 4, 8)]); // content, position, reading
            }
            layer.push((5, 6, 8)); // output
            layer.extend([(5, 10, 6), (5, 6, 10)]); // feed-forward
        }
        layer.push((8, 8, 6)); // distances, once for both lanes
        let frequent = [(10, 6, 6), (10, 6, 6), (10, 6, 6)]; // in, out, head of 5 words and a tail
        let rare = [(10, 6, 6), (10, 6, 6), (10, 6, 6), (10, 3, 6), (10, 6, 3)];
        let cost = Cost::of(&config, 1).unwrap();
        let [least, most] =
            [&frequent[..], &rare[..]].map(|softmax| flops(&[&layer, softmax].concat()) / 10.0);
        assert_eq!(cost.forward_flops_per_token, Bounds { least, most });
        assert_eq!(cost.training_flops_per_token, Bounds { least: 3.0 * least, most: 3.0 * most });
        assert_eq!(cost.flops.least, 3.0 * least * 10.0 * 1000.0);
    }

    #[test]
    fn context_half_loss_and_other_encodings_change_their_products_alone() {
        let keys = [
            "model.vocab_size=9",
            "model.d_model=4",
            "model.n_head=1",
            "model.d_inner=8",
            "model.n_layer=1",
            "model.mem_len=0",
            "train.segment=6",
            "train.lanes=1",
            "train.micro_batch=1",
        ];
        let micro_step = |more: &[&str]| {
            let cost = Cost::of(&config(&[&keys[..], more].concat()), 1).unwrap();
            cost.forward_flops_per_token.most * 6.0
        };
        let layer = [(6, 4, 4), (6, 4, 4), (6, 4, 4), (6, 6, 4), (6, 4, 6), (6, 4, 4), (6, 8, 4), (6, 4, 8)];
        let relative = [(6, 4, 4), (6, 6, 4)]; // distances, position scores
        let base = flops(&layer) + flops(&relative) + flops(&[(6, 9, 4)]);
        assert_eq!(micro_step(&[]), base);
        assert_eq!(micro_step(&["train.loss=half"]), base - flops(&[(3, 9, 4)]));
        assert_eq!(micro_step(&["model.attn_type=shaw"]), base - flops(&relative[..1]));
        assert_eq!(micro_step(&["model.attn_type=absolute"]), base - flops(&relative));
        assert_eq!(micro_step(&["model.attn_type=learned"]), base - flops(&relative));
        // Six more queries and keys, no more targets.
        let longer = |(m, n, k): &(u64, u64, u64)| {
            (2 * m, if *n == 6 { 12 } else { *n }, if *k == 6 { 12 } else { *k })
        };
        let all: Vec<_> = layer.iter().chain(&relative).map(longer).chain([(6, 9, 4)]).collect();
        assert_eq!(micro_step(&["train.ext_len=6"]), flops(&all));
    }

    /// docs/measurements.md: a step of `bench step` with 16 lanes is 109 GFLOP.
    #[test]
    fn operations_are_those_of_the_measured_step() {
        let config = config(&[
            "model.vocab_size=8000",
            "model.d_model=256",
            "model.d_inner=1024",
            "model.n_layer=6",
            "train.lanes=16",
            "train.micro_batch=8",
        ]);
        let cost = Cost::of(&config, 2).unwrap();
        let step = cost.training_flops_per_token.most * cost.tokens_per_step as f64;
        assert_eq!((step / 1e9).round(), 109.0);
    }

    #[test]
    fn memory_of_a_rank_is_that_of_its_lanes() {
        let config = config(&["model.vocab_size=100", "train.lanes=32", "train.micro_batch=4"]);
        let (one, four) = (Cost::of(&config, 1).unwrap(), Cost::of(&config, 4).unwrap());
        let weights = one.parameters * 4;
        // 8 micro-steps: sums of 1, 2, 4 and 8. On four ranks each has 2: sums of 1 and 2.
        assert_eq!(one.memory_per_rank.gradients, 4 * weights);
        assert_eq!(four.memory_per_rank.gradients, 2 * weights);
        assert_eq!(one.memory_per_rank.segment_memory, 32 * 6 * 128 * 256 * 4);
        assert_eq!(four.memory_per_rank.segment_memory, one.memory_per_rank.segment_memory / 4);
        assert!(Cost::of(&config, 3).unwrap_err().to_string().contains("3 ranks do not divide"));
    }
}
