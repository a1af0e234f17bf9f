//! What a configuration costs, before a byte of it is made: parameters, memory of a rank, operations.
//!
//! Everything here is arithmetic on the configuration. Parameters are exact. Operations count the matrix
//! products and nothing else, two to a multiply-add; the backward pass is taken as two products for
//! each of the forward pass, also where a gradient is not needed (sinusoids, memory), and a third for
//! each in a layer that it makes again. Memory is exact for weights, gradients, optimizer and segment memory, and an estimate for activations.
//!
//! What a run costs on a given machine, in seconds and money, is a [`Plan`]: `links.rs` and `overlap.rs` reckon the sums over
//! ranks, `step_time.rs` the parts of a step, `held.rs` memory, `failures.rs` checkpoints and restarts.

mod choices;
mod failures;
mod held;
mod links;
mod overlap;
mod parts;
mod plan;
mod role;
mod step_time;

use segue_configs::{Config, Shard};
use serde::Serialize;

use crate::engine::check_ranks;
use crate::{ParameterSpec, TrainError};

pub use choices::Choices;
pub use failures::{Failures, Recovery, daly, young};
pub use held::{Held, largest_micro_batch};
pub use links::{Algorithm, Links};
pub use overlap::{Bucket, Overlap, buckets, hidden_behind};
pub use parts::{
    DROPPED_SCORE_PASSES, LAYER_OPERATIONS, LINEAR_PASSES, LOGIT_PASSES, ONE_PASS_SCORE_PASSES, Parts,
    SCORE_PASSES, STATE_PASSES, TABLE_PASSES, share_of_words,
};
pub use plan::Plan;
pub use role::{ParameterParts, Role};
pub use step_time::StepTime;

/// Bytes of a value: training is in single precision.
pub(crate) const VALUE_BYTES: u64 = 4;
/// A multiply and an add.
pub const PER_MULTIPLY_ADD: u128 = 2;
/// Of a count that may be beyond all that 64 bits have room for, the most of that.
pub(crate) fn saturated(count: u128) -> u64 {
    count.try_into().unwrap_or(u64::MAX)
}

/// The product of these counts, or the most there is.
fn product(counts: &[u64]) -> u64 {
    counts.iter().fold(1, |product, count| count.saturating_mul(product))
}

/// Products of a training step to those of its forward pass.
const TRAINING_TO_FORWARD: f64 = 3.0;

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
    /// Both plus `value`.
    pub fn plus(self, value: f64) -> Self {
        Self { least: self.least + value, most: self.most + value }
    }

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
    /// Gradients: one copy for each level of the sum over this rank's micro-steps. Where ranks divide them and have one micro-step each:
    /// this rank's part, and the largest bucket; cards hold one more of these, which is not counted, as the next sum is queued before the one before is over.
    pub gradients: u64,
    /// Adam's two moments, or this rank's part of them.
    pub optimizer: u64,
    /// The averages of the weights, where the recipe keeps any, or this rank's part of them.
    pub average: u64,
    /// Segment memory of this rank's lanes, before and after a step: one that comes to nothing is taken back.
    pub segment_memory: u64,
    /// Estimate of what one micro-step keeps for its backward pass.
    pub activations: Bounds,
}

impl RankMemory {
    /// What training of these parameters holds where lanes carry nothing from step to step, without activations. Fails where the ranks cannot
    /// share the micro-steps, as training would.
    pub fn without_carry(
        config: &Config,
        trained: &[ParameterSpec],
        ranks: usize,
    ) -> Result<Self, TrainError> {
        let micro_steps = check_ranks(&config.train, ranks)?;
        let parameters = trained.iter().map(|spec| spec.numel() as u64).sum();
        let micro_step = MicroStep::of_products(0, 0, 0.0, 0.0);
        Ok(memory(config, &micro_step, parameters, micro_steps).divided(config, trained, ranks))
    }

    /// The same where `ranks` ranks divide what `train.shard` says.
    fn divided(self, config: &Config, specs: &[ParameterSpec], ranks: usize) -> Self {
        let part = |bytes: u64| bytes.div_ceil(ranks as u64);
        let largest =
            specs.iter().map(|spec| product(&[spec.numel() as u64, VALUE_BYTES])).max().unwrap_or(0);
        let bucket = largest.max(config.train.bucket_bytes as u64).min(self.weights);
        // While micro-steps add up, each rank has gradients of all parameters.
        let gradients = match config.train.shard {
            Shard::Gradients if ranks > 1 && self.gradients == self.weights => {
                part(self.weights).saturating_add(bucket).min(self.gradients)
            }
            _ => self.gradients,
        };
        if config.train.shard == Shard::None {
            return Self { gradients, ..self };
        }
        Self { gradients, optimizer: part(self.optimizer), average: part(self.average), ..self }
    }

    /// The sum.
    pub fn total(&self) -> Bounds {
        let kinds = [self.weights, self.gradients, self.optimizer, self.average, self.segment_memory];
        let fixed = kinds.into_iter().fold(0, u64::saturating_add);
        Bounds { least: fixed as f64 + self.activations.least, most: fixed as f64 + self.activations.most }
    }
}

/// Bytes of a checkpoint: the values of its tensors. Names, documents and tokenizer come to little beside them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CheckpointCost {
    /// On disk, once averages of the weights have begun.
    pub disk: u64,
    /// Of them, what lanes carry.
    pub carry: u64,
    /// That rank 0 holds beside its training until it is written: copies of all but the carry, and the carry of its own lanes. Of moments and
    /// averages that ranks divide, its part.
    pub held_by_rank_0: u64,
    /// That each other rank holds: the carry of its own lanes, and its part of what ranks divide. Before that part is copied, its weights as they
    /// were trained, where rank 0 gathers an average that ranks divide: whichever is more.
    pub held_by_others: u64,
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
    /// Bytes of a checkpoint.
    pub checkpoint: CheckpointCost,
    /// Operations of a forward pass for each token.
    pub forward_flops_per_token: Bounds,
    /// Operations of training for each token.
    pub training_flops_per_token: Bounds,
    /// Tokens read in a step of all lanes, over all ranks.
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
    /// Works out what a run costs on `ranks` ranks. Fails where the ranks cannot share the micro-steps, as training would.
    pub fn new(config: &Config, work: &Work, ranks: usize) -> Result<Self, TrainError> {
        let Work { specs, roles, micro_step } = work;
        let micro_steps_per_rank = check_ranks(&config.train, ranks)?;
        let parameters_by_part = ParameterParts::of(specs, roles);
        let forward = micro_step.forward.times(1.0 / micro_step.tokens as f64);
        let training =
            forward.times(TRAINING_TO_FORWARD).plus(micro_step.recomputed / micro_step.tokens as f64);
        let tokens_per_step = product(&[micro_step.tokens, config.micro_steps() as u64]);
        let tokens = product(&[micro_step.tokens, config.micro_steps_of_run()]);
        Ok(Self {
            ranks,
            micro_steps_per_rank,
            parameters: parameters_by_part.total(),
            parameters_by_part,
            memory_per_rank: memory(config, micro_step, parameters_by_part.total(), micro_steps_per_rank)
                .divided(config, specs, ranks),
            checkpoint: checkpoint(config, micro_step, parameters_by_part.total(), ranks),
            forward_flops_per_token: forward,
            training_flops_per_token: training,
            tokens_per_step,
            targets_per_step: product(&[config.train.lanes as u64, micro_step.targets_per_lane]),
            steps: config.train.steps,
            tokens,
            flops: training.times(tokens as f64),
        })
    }
}

/// What a run trains, and what that takes: all that its family has to say of its cost.
pub struct Work {
    /// Every parameter, in the order of the forward pass.
    pub specs: Vec<ParameterSpec>,
    /// What each of them is for.
    pub roles: Vec<Role>,
    /// One micro-step over them.
    pub micro_step: MicroStep,
}

impl Work {
    /// `role` says of a parameter's name what it is for.
    pub fn new(specs: Vec<ParameterSpec>, micro_step: MicroStep, role: impl Fn(&str) -> Role) -> Self {
        let roles = specs.iter().map(|spec| role(&spec.name)).collect();
        Self { specs, roles, micro_step }
    }
}

/// What one micro-step costs, whatever the model.
pub struct MicroStep {
    /// Tokens it reads.
    pub tokens: u64,
    /// Targets of a lane that count.
    pub targets_per_lane: u64,
    /// Values of segment memory of a lane.
    pub memory_per_lane: u64,
    /// Operations of the forward pass, with a memory that is full.
    pub forward: Bounds,
    /// Of them, those that the backward pass makes again.
    pub recomputed: f64,
    /// Values that the backward pass needs.
    pub activations: Bounds,
    /// The same by kind of kernel, for words as frequent as in text.
    pub parts: Parts,
}

impl MicroStep {
    /// One without segment memory whose forward pass is products of `forward` operations, and keeps `activations` values.
    pub fn of_products(tokens: u64, targets_per_lane: u64, forward: f64, activations: f64) -> Self {
        let exactly = |value| Bounds { least: value, most: value };
        Self {
            tokens,
            targets_per_lane,
            memory_per_lane: 0,
            forward: exactly(forward),
            recomputed: 0.0,
            activations: exactly(activations),
            parts: Parts::of_products(forward, activations),
        }
    }
}

fn memory(config: &Config, micro_step: &MicroStep, parameters: u64, micro_steps: usize) -> RankMemory {
    let weights = product(&[parameters, VALUE_BYTES]);
    // The sum over micro-steps is a binary counter: one partial sum for each of its digits, and the
    // gradient that comes in.
    let copies = u64::from(micro_steps.ilog2()) + 1;
    let lanes = (micro_steps * config.train.micro_batch) as u64;
    RankMemory {
        weights,
        gradients: product(&[copies, weights]),
        optimizer: product(&[config.optim.tables(), weights]),
        average: product(&[config.average.copies(), weights]),
        segment_memory: product(&[2, lanes, micro_step.memory_per_lane, VALUE_BYTES]),
        activations: micro_step.activations.times(VALUE_BYTES as f64),
    }
}

/// Weights are stored as the model and, where they are averaged, as what training goes on from.
fn checkpoint(config: &Config, micro_step: &MicroStep, parameters: u64, ranks: usize) -> CheckpointCost {
    let alike = product(&[1 + config.average.copies() + config.optim.tables(), parameters, VALUE_BYTES]);
    let carry = product(&[config.train.lanes as u64, micro_step.memory_per_lane, VALUE_BYTES]);
    let own = carry / ranks as u64;
    // The average that is the model is whole on rank 0.
    let tables = config.optim.tables() + config.average.copies().saturating_sub(1);
    let divided = product(&[tables, parameters, VALUE_BYTES]);
    let part = divided.div_ceil(ranks as u64);
    // While an average stands in for the weights. Rank 0 has let go of that copy before it makes its second one of the model's size.
    let held = if config.average.copies() > 0 { product(&[parameters, VALUE_BYTES]) } else { 0 };
    // Copies of it that rank 0 has and the others have.
    let (first, others) = match config.train.shard {
        Shard::None => (divided, 0),
        _ => (part, if ranks > 1 { part.max(held) } else { 0 }),
    };
    CheckpointCost {
        disk: alike.saturating_add(carry),
        carry,
        held_by_rank_0: (alike - divided).saturating_add(first).saturating_add(own),
        held_by_others: own.saturating_add(others),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::families::cost;
    use std::path::PathBuf;

    pub fn config(keys: &[&str]) -> Config {
        let overrides: Vec<String> = keys.iter().map(|k| k.to_string()).collect();
        crate::families::MODELS.load(None, &overrides).unwrap().config
    }

    /// Sum of 2·m·n·k over products written out one by one.
    pub fn flops(products: &[(u64, u64, u64)]) -> f64 {
        products.iter().map(|(m, n, k)| 2 * m * n * k).sum::<u64>() as f64
    }

    fn recipes() -> PathBuf {
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/recipes"))
    }

    fn recipe(name: &str, keys: &[&str]) -> Config {
        let overrides: Vec<String> = keys.iter().map(|k| k.to_string()).collect();
        crate::families::MODELS.load(Some(&recipes().join(name)), &overrides).unwrap().config
    }

    fn parameters(name: &str, keys: &[&str]) -> u64 {
        cost(&recipe(name, keys), 1).unwrap().parameters
    }

    /// The integers of the reference programs' own counts (docs/references.md).
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
            let mut config = recipe(&name, &[]);
            if config.model.vocab_size() == 0 {
                continue;
            }
            // Widths within a budget follow from it.
            config.model.fit_vocabulary(0, None).unwrap();
            let cost = cost(&config, 1).unwrap_or_else(|e| panic!("{name}: {e}"));
            let published = &config.published;
            if published.parameters > 0 {
                assert_eq!(cost.parameters, published.parameters, "{name}");
            }
            // Yang 2019 rounds to millions, or to hundredths or tenths of a billion. Its 257M are those
            // of 16 of the 18 layers; Al-Rfou's 44M hold the auxiliary outputs too.
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
        let parts = cost(&config(&keys), 1).unwrap().parameters_by_part;
        assert_eq!(parts.embedding, 4 * 4 + 6 * 2);
        // Input 4x4 and 4x2; output 4x4, the tail's being the input's.
        assert_eq!(parts.projections, 16 + 8 + 16);
        assert_eq!(parts.softmax, 10 + 4 + 1);
        // qkv, r, o; u and v; two norms; feed-forward with biases.
        assert_eq!(parts.layers, 5 * 16 + 2 * 4 + 4 * 4 + 2 * 32 + 8 + 4);
        let untied =
            [&keys[..], &["model.tie_word_embeddings=false", "model.proj_share_all_but_first=false"]];
        let more = cost(&config(&untied.concat()), 1).unwrap().parameters;
        assert_eq!(more, parts.total() + (16 + 12) + 8);
    }

    /// By hand: a layer has weights of inputs, of states, and biases of four gates.
    #[test]
    fn parameters_of_a_recurrent_model_are_told_by_part() {
        let keys = [
            "model.model_type=lstm",
            "model.vocab_size=10",
            "model.d_model=4",
            "model.d_embed=3",
            "model.n_layer=2",
        ];
        let parts = cost(&config(&keys), 1).unwrap().parameters_by_part;
        assert_eq!((parts.embedding, parts.projections, parts.softmax, parts.head), (10 * 3, 4 * 3, 10, 0));
        let gates = |inputs: u64| 4 * (4 * inputs + 4 * 4 + 4);
        assert_eq!(parts.layers, gates(3) + gates(4));
        // The last layer's gradient is there before the first one's, and the input's comes last.
        let work = crate::families::work(&config(&keys)).unwrap();
        let ready = |name: &str| {
            let place = work.specs.iter().position(|spec| spec.name.starts_with(name)).unwrap();
            work.roles[place].ready(0.5, 2.0)
        };
        assert_eq!(["output.", "layers.1.", "layers.0.", "embedding."].map(ready), [0.5, 0.75, 1.0, 1.0]);
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
        let cost = cost(&config, 2).unwrap();
        let step = cost.training_flops_per_token.most * cost.tokens_per_step as f64;
        assert_eq!((step / 1e9).round(), 109.0);
    }

    #[test]
    fn recomputed_layers_cost_a_forward_pass_and_keep_their_inputs() {
        for (model, rows) in [("transfo-xl", 128), ("xlnet", 128 + 20)] {
            let at = |layers: u64, recompute: bool| {
                let keys = [
                    format!("model.model_type={model}"),
                    format!("model.n_layer={layers}"),
                    format!("train.recompute={recompute}"),
                    "model.vocab_size=100".into(),
                    "model.d_model=64".into(),
                    "model.n_head=4".into(),
                    "train.segment=128".into(),
                    "train.lanes=8".into(),
                    "train.micro_batch=8".into(),
                ];
                let pairs = ["model.reuse_len=64".to_string(), "pairs.num_predict=20".into()];
                let keys = keys.iter().chain(pairs.iter().filter(|_| model == "xlnet"));
                cost(&config(&keys.map(String::as_str).collect::<Vec<_>>()), 1).unwrap()
            };
            // Two layers are made again, the last is not.
            let more = at(3, true).training_flops_per_token.most - at(3, false).training_flops_per_token.most;
            let two = at(3, false).forward_flops_per_token.most - at(1, false).forward_flops_per_token.most;
            assert!((more / two - 1.0).abs() < 1e-9, "{model}: {more} and {two}");
            assert_eq!(at(3, true).forward_flops_per_token, at(3, false).forward_flops_per_token);
            let activations = |layers| at(layers, true).memory_per_rank.activations.most;
            assert_eq!(
                activations(7) - activations(3),
                4.0 * (8 * rows * 64 * VALUE_BYTES) as f64,
                "{model}"
            );
            assert!(activations(7) < 0.4 * at(7, false).memory_per_rank.activations.most);
        }
    }

    #[test]
    fn memory_of_a_rank_is_that_of_its_lanes() {
        let config = config(&["model.vocab_size=100", "train.lanes=32", "train.micro_batch=4"]);
        let (one, four) = (cost(&config, 1).unwrap(), cost(&config, 4).unwrap());
        let weights = one.parameters * 4;
        // 8 micro-steps: sums of 1, 2, 4 and 8. On four ranks each has 2: sums of 1 and 2.
        assert_eq!(one.memory_per_rank.gradients, 4 * weights);
        assert_eq!(four.memory_per_rank.gradients, 2 * weights);
        assert_eq!(one.memory_per_rank.segment_memory, 2 * 32 * 6 * 128 * 256 * 4);
        assert_eq!(four.memory_per_rank.segment_memory, one.memory_per_rank.segment_memory / 4);
        let checkpoint = four.checkpoint;
        assert_eq!(checkpoint.carry, 32 * 6 * 128 * 256 * 4);
        assert_eq!(checkpoint.disk, 3 * weights + checkpoint.carry);
        assert_eq!(checkpoint.held_by_rank_0, 3 * weights + checkpoint.carry / 4);
        assert_eq!(checkpoint.held_by_others, checkpoint.carry / 4);
        assert!(cost(&config, 3).unwrap_err().to_string().contains("3 ranks do not divide"));
    }

    #[test]
    fn ranks_that_divide_moments_and_gradients_hold_a_part_of_each() {
        let costs = |shard: &str, lanes: &str| {
            let config = config(&[
                "model.vocab_size=100",
                "train.micro_batch=4",
                "train.bucket_bytes=4",
                shard,
                lanes,
            ]);
            (cost(&config, 1).unwrap(), cost(&config, 4).unwrap())
        };
        for shard in ["train.shard=optimizer", "train.shard=gradients"] {
            let (one, four) = costs(shard, "train.lanes=32");
            let weights = one.parameters * 4;
            assert_eq!(one.memory_per_rank.optimizer, 2 * weights);
            assert_eq!(four.memory_per_rank.optimizer, weights / 2);
            // Two micro-steps a rank: sums of 1 and 2.
            assert_eq!(four.memory_per_rank.gradients, 2 * weights);
            assert_eq!(four.checkpoint.disk, one.checkpoint.disk);
            assert_eq!(four.checkpoint.held_by_rank_0, weights * 3 / 2 + four.checkpoint.carry / 4);
            assert_eq!(four.checkpoint.held_by_others, weights / 2 + four.checkpoint.carry / 4);
        }
        // An average is gathered in the place of the trained weights, of which each rank keeps a copy meanwhile.
        let keys = ["model.vocab_size=100", "train.micro_batch=4", "train.lanes=32", "average.kind=polyak"];
        let held = |shard: &str| cost(&config(&[&keys[..], &[shard]].concat()), 4).unwrap();
        let (alike, divided) = (held("train.shard=none"), held("train.shard=optimizer"));
        assert_eq!(alike.checkpoint.held_by_others, alike.checkpoint.carry / 4);
        assert_eq!(divided.checkpoint.held_by_others, alike.checkpoint.carry / 4 + alike.parameters * 4);
        let (_, four) = costs("train.shard=gradients", "train.lanes=16");
        // The largest parameter, a feed-forward matrix, is a bucket of its own.
        assert_eq!(four.memory_per_rank.gradients, four.parameters + 256 * 1024 * 4);
        let (_, four) = costs("train.shard=optimizer", "train.lanes=16");
        assert_eq!(four.memory_per_rank.gradients, 4 * four.parameters);
    }
}
