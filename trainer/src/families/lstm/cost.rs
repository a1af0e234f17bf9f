use segue_configs::{Config, LossKind};

use super::config::LstmConfig;
use super::model;
use crate::cost::{Bounds, LOGIT_PASSES, MicroStep, PER_MULTIPLY_ADD, Parts, STATE_PASSES};

/// Values that backward needs of one position of a layer, of width n each: four gates, the cell, its tanh, the output, and what feeds them.
const KEPT_OF_A_LAYER: u64 = 10;
/// Operations that one position of a layer starts: some fifteen forward, twice as many backward.
const OPERATIONS_OF_A_STEP: f64 = 45.0;
/// The same of a round of a mogrifier: a gate and what it scales; a product or two, a sigmoid and two multiplications, with backward.
const KEPT_OF_A_ROUND: u64 = 2;
const OPERATIONS_OF_A_ROUND: f64 = 15.0;

/// What a micro-step of a recurrent language model costs.
pub fn micro_step(config: &Config, model: &LstmConfig) -> MicroStep {
    let samples = config.objective.samples as u64;
    // Every sample is read as a lane of its own.
    let (own_lanes, segment) = (config.train.micro_batch as u64, config.train.segment as u64);
    let lanes = own_lanes * samples;
    let targets = match config.train.loss {
        LossKind::Full => segment,
        LossKind::Half => segment.div_ceil(2),
    };
    let (n, layers, words) = (model.d_model as u64, model.n_layer as u64, model.vocab_size as u64);
    let experts = model.mixture as u64;
    // Every matrix meets every position once, but the tables: the input's is looked up, the output's meets the targets alone.
    let of_layer = |name: &str| name.starts_with("layers.");
    let matrices = |wanted: &dyn Fn(&str) -> bool| {
        let specs = model::specs(model);
        let chosen = specs.iter().filter(|spec| spec.shape.len() == 2 && wanted(&spec.name));
        chosen.map(|spec| spec.numel() as u64).sum::<u64>()
    };
    let head = matrices(&|name| name.starts_with("projection.") || name.starts_with("mixture."));
    // A split softmax scores its first words and clusters for every target, at most one cluster's words more.
    let ends = model.cluster_ends();
    let sizes = || ends.windows(2).map(|ends| (ends[1] - ends[0]) as u64);
    let first = sizes().next().unwrap_or(words) + model.cutoffs.len() as u64;
    let scores = experts * (first + sizes().skip(1).max().unwrap_or(0));
    let products = PER_MULTIPLY_ADD * lanes * segment * matrices(&of_layer);
    let softmax = PER_MULTIPLY_ADD * lanes * targets * (head + scores * model.embed_width() as u64);
    let least =
        products + PER_MULTIPLY_ADD * lanes * targets * (head + experts * first * model.embed_width() as u64);
    let forward = Bounds { least: least as f64, most: (products + softmax) as f64 };
    let rounds = model.mogrifier_rounds as u64;
    let kept = lanes * segment * layers * (KEPT_OF_A_LAYER + rounds * KEPT_OF_A_ROUND) * n;
    let logits = lanes * targets * scores;
    let activations = (kept + logits) as f64;
    MicroStep {
        tokens: own_lanes * segment,
        targets_per_lane: targets,
        memory_per_lane: 2 * layers * n * samples,
        forward,
        recomputed: 0.0,
        activations: Bounds { least: activations, most: activations },
        parts: Parts {
            products: products as f64,
            products_moved: (2 * kept) as f64,
            softmax: softmax as f64,
            states_moved: STATE_PASSES * kept as f64,
            logits_moved: LOGIT_PASSES * logits as f64,
            layers: layers as f64,
            layer_inputs: (lanes * segment * layers * n) as f64,
            layer_activations: kept as f64,
            logits: logits as f64,
            operations: (OPERATIONS_OF_A_STEP + rounds as f64 * OPERATIONS_OF_A_ROUND)
                * (segment * layers) as f64,
            ..Parts::default()
        },
    }
}
