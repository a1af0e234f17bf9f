use segue_configs::OwnSections;
use segue_cost::{Bounds, LOGIT_PASSES, MicroStep, PER_MULTIPLY_ADD, Parts, STATE_PASSES, saturated};
use segue_dataloader::sections::{ObjectiveConfig, SegmentConfig};

use super::keys::{CellKind, GateNormKind, LstmConfig};
use super::parameters;

/// Values that backward needs of one position of a layer, of width n each: four gates, the cell, its tanh, the output, and what feeds them.
const KEPT_OF_A_LAYER: u128 = 10;
/// The same of a quasi-recurrent layer: three gates, the cell and the output. Its inputs, and what it lays side by side of them, come to it.
const KEPT_OF_A_POOL: u128 = 5;
/// Operations that one position of a layer starts: some fifteen forward, twice as many backward.
const OPERATIONS_OF_A_STEP: f64 = 45.0;
/// The same of a quasi-recurrent layer, of all its positions at once.
const OPERATIONS_OF_A_POOL: f64 = 30.0;
/// The same of a round of a mogrifier: a gate and what it scales; a product or two, a sigmoid and two multiplications, with backward.
const KEPT_OF_A_ROUND: u128 = 2;
const OPERATIONS_OF_A_ROUND: f64 = 15.0;
/// The same of a norm of gates: for each gate the sum and what it is normed to; a norm, a gain and a bias, with backward.
const KEPT_OF_A_NORM: u128 = 2 * 4;
const OPERATIONS_OF_A_NORM: f64 = 9.0;
/// The same of vectors that scale: what they scale; a multiplication, with backward.
const OPERATIONS_OF_SCALES: f64 = 3.0;
/// Matrices of gates that may be products of factors.
const FACTORISED: [&str; 2] = ["weight_x", "weight_h"];
/// Copies of a weight that is dropped: its mask, and what is left of it.
const COPIES_OF_A_DROPPED: u128 = 2;
/// Weights that are dropped, of the state and, of a QRNN, of the inputs.
const DROPPED: [&str; 4] = ["weight_h", "weight_mh", "weight_fu", "weight_oc"];
const DROPPED_OF_A_QRNN: [&str; 1] = ["weight_x"];

/// What a micro-step of so many lanes of a recurrent language model costs.
pub fn micro_step(lanes: usize, model: &LstmConfig, own: &OwnSections) -> MicroStep {
    let segments = own.get::<SegmentConfig>();
    let sizes = Sizes {
        lanes: lanes as u128,
        samples: own.get::<ObjectiveConfig>().samples as u128,
        segment: segments.segment as u128,
        targets: segments.loss.targets(segments.segment) as u128,
    };
    of_sizes(model, sizes)
}

/// What it costs to encode `sequences` of `length` tokens as a whole.
pub fn encoding_step(model: &LstmConfig, sequences: usize, length: usize) -> MicroStep {
    let sizes = Sizes { lanes: sequences as u128, samples: 1, segment: length as u128, targets: 0 };
    MicroStep { memory_per_lane: 0, ..of_sizes(model, sizes) }
}

/// Sizes of one micro-step.
struct Sizes {
    lanes: u128,
    /// Dropout samples of each lane.
    samples: u128,
    /// Positions of a lane.
    segment: u128,
    /// Of these, the ones that a word is predicted at.
    targets: u128,
}

fn of_sizes(model: &LstmConfig, Sizes { lanes: own_lanes, samples, segment, targets }: Sizes) -> MicroStep {
    // Every sample is read as a lane of its own.
    let lanes = own_lanes * samples;
    let (layers, words) = (model.n_layer as u128, model.vocab_size as u128);
    let experts = model.mixture as u128;
    // Every matrix meets every position once, but the tables: the input's is looked up, the output's meets the targets alone.
    let pools = model.cell == CellKind::Qrnn;
    let of_layer = |name: &str| name.starts_with("layers.");
    // Of factors the products are made first, once for all positions.
    let whole = LstmConfig { gate_rank: 0, ..model.clone() };
    let matrices = |wanted: &dyn Fn(&str) -> bool| {
        let specs = parameters::specs(&whole);
        let chosen = specs.iter().filter(|spec| spec.shape.len() == 2 && wanted(&spec.name));
        chosen.map(|spec| spec.numel() as u128).sum::<u128>()
    };
    let head = matrices(&|name| name.starts_with("projection.") || name.starts_with("mixture."));
    // A split softmax scores its first words and clusters for every target, at most one cluster's words more.
    let ends = model.cluster_ends();
    let clusters = || ends.windows(2).map(|ends| (ends[1] - ends[0]) as u128);
    let first = clusters().next().unwrap_or(words) + model.cutoffs.len() as u128;
    let scores = experts * (first + clusters().skip(1).max().unwrap_or(0));
    let made = match model.gate_rank {
        0 => 0,
        _ => matrices(&|name| FACTORISED.iter().any(|weight| name.ends_with(weight))),
    };
    let products =
        PER_MULTIPLY_ADD * (lanes * segment * matrices(&of_layer) + model.gate_rank as u128 * made);
    let softmax = PER_MULTIPLY_ADD * lanes * targets * (head + scores * model.output_width() as u128);
    let least = products
        + PER_MULTIPLY_ADD * lanes * targets * (head + experts * first * model.output_width() as u128);
    let forward = Bounds { least: least as f64, most: (products + softmax) as f64 };
    let (rounds, each_layer) = (model.mogrifier_rounds as u128, || 0..model.n_layer);
    let kept = lanes * segment * each_layer().map(|layer| kept_of(model, layer)).sum::<u128>();
    let dropped: &[&str] = if pools { &DROPPED_OF_A_QRNN } else { &DROPPED };
    let masks = match model.weight_dropout > 0.0 {
        true => COPIES_OF_A_DROPPED * matrices(&|name| dropped.iter().any(|weight| name.ends_with(weight))),
        false => 0,
    };
    let logits = lanes * targets * scores;
    let copies = masks + made;
    let activations = (kept + copies + logits) as f64;
    let normed = if model.gate_norm == GateNormKind::None { 0.0 } else { OPERATIONS_OF_A_NORM };
    let scaled = if model.scale_vectors { OPERATIONS_OF_SCALES } else { 0.0 };
    let of_a_step = OPERATIONS_OF_A_STEP + rounds as f64 * OPERATIONS_OF_A_ROUND + normed + scaled;
    let steps = of_a_step * (segment * layers) as f64;
    let carried: usize = each_layer().flat_map(|layer| model.carried_widths(layer)).sum();
    let inputs: u128 = each_layer().map(|layer| model.input_width(layer) as u128).sum();
    MicroStep {
        tokens: saturated(own_lanes * segment),
        targets_per_lane: saturated(targets),
        memory_per_lane: saturated(carried as u128 * samples),
        forward,
        recomputed: 0.0,
        forward_only: 0.0,
        activations: Bounds { least: activations, most: activations },
        parts: Parts {
            products: products as f64,
            products_moved: (2 * kept) as f64,
            softmax: softmax as f64,
            states_moved: STATE_PASSES * kept as f64,
            logits_moved: LOGIT_PASSES * logits as f64,
            layers: layers as f64,
            layer_inputs: (lanes * segment * inputs) as f64,
            layer_activations: (kept + copies) as f64,
            logits: logits as f64,
            operations: if pools { OPERATIONS_OF_A_POOL * layers as f64 } else { steps },
            ..Parts::default()
        },
    }
}

/// Values that backward needs of one position of a layer.
fn kept_of(model: &LstmConfig, layer: usize) -> u128 {
    let n = model.state_width(layer) as u128;
    match model.cell {
        CellKind::Qrnn => {
            KEPT_OF_A_POOL * n + (model.input_width(layer) * (1 + model.window_of(layer))) as u128
        }
        _ => {
            let normed = if model.gate_norm == GateNormKind::None { 0 } else { KEPT_OF_A_NORM };
            let scaled = if model.scale_vectors { model.input_width(layer) as u128 + n } else { 0 };
            (KEPT_OF_A_LAYER + model.mogrifier_rounds as u128 * KEPT_OF_A_ROUND + normed) * n + scaled
        }
    }
}

#[cfg(test)]
mod tests {
    use segue_family::own;
    use segue_testing::{config, flops};

    use super::*;

    /// Three layers of widths 8, 8 and 3 over words of width 3, segments of 5 positions of two lanes.
    fn of(keys: &[&str]) -> MicroStep {
        let common = [
            "model.model_type=lstm",
            "model.vocab_size=10",
            "model.wiring=stack",
            "model.n_layer=3",
            "model.d_embed=3",
            "model.d_model=8",
            "model.d_last=3",
            "train.segment=5",
            "train.lanes=2",
            "train.micro_batch=2",
        ];
        let config = config::<crate::LstmConfig>(&[&common[..], keys].concat());
        micro_step(config.train.micro_batch, own(&config.model), &config.own)
    }

    /// Row S14.
    #[test]
    fn products_and_state_are_those_of_each_layer() {
        let lstm = of(&[]);
        let layers = [(10, 32, 3 + 8), (10, 32, 8 + 8), (10, 12, 8 + 3)];
        assert_eq!(lstm.parts.products, flops(&layers));
        assert_eq!(lstm.parts.softmax, flops(&[(10, 10, 3)]));
        assert_eq!(lstm.memory_per_lane, 2 * (8 + 8 + 3));
        // A mask, and what it leaves of the three matrices of the state.
        let dropped = of(&["model.weight_dropout=0.5"]);
        let more = dropped.activations.most - lstm.activations.most;
        assert_eq!(more, 2.0 * (32.0 * 8.0 + 32.0 * 8.0 + 12.0 * 3.0));
    }

    /// Factors are multiplied once, and then are the matrices of the model without them.
    /// Row M3.
    #[test]
    fn variants_cost_what_they_compute() {
        let (plain, ranked) = (of(&[]), of(&["model.gate_rank=2"]));
        let whole = 32 * (3 + 8) + 32 * (8 + 8) + 12 * (8 + 3);
        assert_eq!(ranked.parts.products, plain.parts.products + f64::from(2 * 2 * whole));
        assert_eq!(ranked.activations.most - plain.activations.most, f64::from(whole));
        // Ten positions; of each gate's places a sum and a norm, of input and state what is scaled.
        let more = |keys: &[&str]| of(keys).activations.most - plain.activations.most;
        assert_eq!(more(&["model.gate_norm=layer"]), f64::from(10 * 8 * (8 + 8 + 3)));
        assert_eq!(more(&["model.scale_vectors=true"]), f64::from(10 * ((3 + 8) + (8 + 8) + (8 + 3))));
    }

    /// Row S16.
    #[test]
    fn a_qrnn_multiplies_windows_and_carries_inputs() {
        let qrnn = of(&["model.cell=qrnn"]);
        assert_eq!(qrnn.parts.products, flops(&[(10, 24, 2 * 3), (10, 24, 8), (10, 9, 8)]));
        assert_eq!(qrnn.memory_per_lane, (3 + 8) + 8 + 3);
        assert!(qrnn.parts.operations < of(&[]).parts.operations);
    }
}
