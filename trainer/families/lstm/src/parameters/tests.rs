//! Moments of what every tensor starts from, against the table of laws of Melis 2023 and its program (specification 3.4).

use std::collections::BTreeSet;

use segue_configs::ModelSection;
use segue_kernels::Parameters;
use tch::{Kind, Tensor};

use super::super::keys::Wiring;
use super::*;

/// Values that moments are taken of.
const DRAWS: usize = 100_000;
/// Variance that a standard normal distribution keeps between −2 and 2, and how much of that lies between −1 and 1.
const KEPT: f64 = 0.773_741_3;
const WITHIN_ONE: f64 = 0.682_689_5 / 0.954_499_7;
/// How many deviations of a mean of draws pass: one of millions of right ones does not.
const SURE: f64 = 5.0;

/// The law of a row of the table.
#[derive(Clone, Copy, Debug)]
enum Law {
    /// Cut at two deviations: mean, and the deviation before the cut.
    Cut(f64, f64),
    /// ln u, u uniform in [1, T − 1], and its mean.
    Chrono(f64, f64),
    /// Orthogonal rows or columns of length 1.
    Orthogonal,
    /// This value everywhere.
    Fixed(f64),
}

/// W of cells and b: √(1.3 / fan_in) before the cut.
fn cell(fan_in: i64) -> Law {
    Law::Cut(0.0, (1.3 / fan_in as f64).sqrt())
}

/// Either factor of a product of rank k: (1 / (fan_in · k))^(1/4).
fn factor(fan_in: i64, rank: i64) -> Law {
    Law::Cut(0.0, (1.0 / (fan_in as f64 * rank as f64)).powf(0.25))
}

/// `spec` drawn with one seed after another, until there are enough values. A vector's depend on their places alone: it is drawn once, and longer.
fn drawn(spec: &ParameterSpec, law: Law) -> Vec<Tensor> {
    let (shape, seeds) = match (law, spec.shape.len()) {
        (Law::Fixed(_) | Law::Orthogonal, _) => (spec.shape.clone(), 1),
        (_, 1) => (vec![DRAWS as i64], 1),
        _ => (spec.shape.clone(), DRAWS.div_ceil(spec.numel()) as u64),
    };
    let spec = ParameterSpec { shape, ..spec.clone() };
    let draw = |seed| Parameters::initialise(vec![spec.clone()], seed, Kind::Double).tensors()[0].detach();
    (1..=seeds).map(draw).collect()
}

fn number(x: Tensor) -> f64 {
    x.double_value(&[])
}

/// What is wrong with `values` of this law, `[count]`.
fn wrong(values: &Tensor, law: Law) -> Option<String> {
    let deviations = SURE / (values.numel() as f64).sqrt();
    let mean = number(values.mean(None::<Kind>));
    let (least, most) = (number(values.min()), number(values.max()));
    let right = match law {
        Law::Cut(middle, std) => {
            let scaled = (values - middle) / std;
            let variance = number(scaled.square().mean(None::<Kind>));
            let within = number(scaled.abs().le(1.0).to_kind(Kind::Double).mean(None::<Kind>));
            // Of a square, the deviation is at most √2 times its mean.
            (mean - middle).abs() <= deviations * std
                && (variance / KEPT - 1.0).abs() <= deviations * 2f64.sqrt()
                && (within - WITHIN_ONE).abs() <= deviations * 0.5
                && number(scaled.abs().max()) <= 2.0 + 1e-6
        }
        Law::Chrono(longest, expected) => {
            least >= 0.0
                && most <= (longest - 1.0).ln() * (1.0 + 1e-7)
                && (mean - expected).abs() <= deviations
        }
        Law::Fixed(value) => least == value && most == value,
        Law::Orthogonal => unreachable!("looked at as a whole"),
    };
    (!right).then(|| format!("mean {mean}, from {least} to {most}, instead of {law:?}"))
}

fn assert_orthogonal(name: &str, matrix: &Tensor) {
    let short =
        if matrix.size()[0] <= matrix.size()[1] { matrix.shallow_clone() } else { matrix.transpose(0, 1) };
    let off =
        short.matmul(&short.transpose(0, 1)) - Tensor::eye(short.size()[0], (Kind::Double, short.device()));
    assert!(number(off.abs().max()) < 1e-6, "{name}");
}

/// Draws the parameters of `specs`, whose laws `law` says by name, and holds each block of `n` rows by itself. What starts alike, has one shape and
/// is held to one law is drawn once: `known` are those that were.
fn check(specs: &[ParameterSpec], n: i64, known: &mut BTreeSet<String>, law: impl Fn(&str) -> Law) {
    for spec in specs {
        let law = law(&spec.name);
        let of_layer = spec.name.starts_with("layers.");
        if !known.insert(format!("{:?}, {:?}, {law:?}, {of_layer}", spec.init, spec.shape)) {
            continue;
        }
        let draws = drawn(spec, law);
        if let Law::Orthogonal = law {
            draws.iter().for_each(|matrix| assert_orthogonal(&spec.name, matrix));
            continue;
        }
        let rows = draws[0].size()[0];
        let gates = spec.shape.len() > 1 && of_layer && rows % n == 0;
        let block = if gates { n } else { rows };
        for gate in 0..rows / block {
            let part = |tensor: &Tensor| tensor.narrow(0, gate * block, block).reshape([-1]);
            let values = Tensor::cat(&draws.iter().map(part).collect::<Vec<_>>(), 0);
            if let Some(wrong) = wrong(&values, law) {
                panic!("{}, block {gate}: {wrong}", spec.name);
            }
        }
    }
}

/// Two layers of 200, embeddings of 100, 300 words.
fn plain() -> LstmConfig {
    LstmConfig { vocab_size: 300, d_model: 200, input_embedding_ratio: 0.5, ..Default::default() }
}

/// Width of the input of the layer that `name` is of.
fn input_width(name: &str) -> i64 {
    if name.starts_with("layers.0.") { 100 } else { 200 }
}

/// Laws of the tensors of `config`, chapter 2's where it does not say otherwise.
fn expected(config: &LstmConfig, name: &str) -> Law {
    let (m, n, e) = (input_width(name), 200, 100);
    let after = name.rsplit_once('.').map_or(name, |(_, last)| last);
    if let Some((_, gate)) = name.split_once(".mogrifier.") {
        // Rounds of odd number read the state, those of even number the input.
        let read = if gate.starts_with(['1', '3', '5']) { n } else { m };
        return match after {
            "bias" => Law::Fixed(0.0),
            "weight" => cell(read),
            _ => factor(read, config.mogrifier_rank),
        };
    }
    match (name, after) {
        ("embedding.weight", _) => cell(e),
        // Of what it is summed over.
        ("output.weight", _) => cell(e),
        ("projection.weight", _) => Law::Orthogonal,
        ("output.bias" | "mixture.bias", _) => Law::Fixed(0.0),
        ("mixture.weight" | "mixture.prior", _) => cell(n),
        (_, "weight_x_left" | "weight_x_right") => factor(m, config.gate_rank as i64),
        (_, "weight_h_left" | "weight_h_right") => factor(n, config.gate_rank as i64),
        (_, "weight_x") => cell(m),
        // Ours: what the state of an mLSTM is multiplied by starts as large as 1.
        (_, "weight_mx") => cell(1),
        (_, "weight_h" | "weight_mh" | "weight_fu" | "weight_oc") => cell(n),
        (_, "bias_f") if config.forget_bias == ForgetBias::Chrono => Law::Chrono(32.0, 2.548_453_445),
        (_, "bias_f") => Law::Cut(1.0, (1.3 / n as f64).sqrt()),
        (_, "bias" | "bias_o") => cell(n),
        // Beside the biases of the input, which have the law.
        (_, "bias_fh" | "bias_h") => Law::Fixed(0.0),
        (_, "scale_x" | "scale_h") | (_, "weight") => Law::Fixed(1.0),
        _ => panic!("{name} is in no row of the table"),
    }
}

/// Row M12.
#[test]
fn every_tensor_has_the_moments_of_its_law() {
    let of = |cell| LstmConfig { cell, ..plain() };
    let chrono = |config| LstmConfig { forget_bias: ForgetBias::Chrono, ..config };
    let mut known = BTreeSet::new();
    for config in [
        LstmConfig { mogrifier_rounds: 2, two_biases: true, ..plain() },
        chrono(LstmConfig { mogrifier_rounds: 5, mogrifier_rank: 8, ..of(CellKind::Rewired) }),
        LstmConfig { tie_word_embeddings: false, scale_vectors: true, ..of(CellKind::Mlstm) },
        LstmConfig { gate_rank: 4, gate_norm: GateNormKind::Layer, mixture: 2, ..chrono(plain()) },
        LstmConfig { input_gate: InputGate::Tied, ..plain() },
        of(CellKind::Gru),
        of(CellKind::Elman),
        chrono(of(CellKind::Qrnn)),
    ] {
        config.check().unwrap();
        let window = if config.cell == CellKind::Qrnn { config.window as i64 } else { 1 };
        let law = |name: &str| match (name, config.cell) {
            // A quasi-recurrent layer is the sum over its window.
            ("layers.0.weight_x", CellKind::Qrnn) => cell(100 * window),
            ("layers.0.bias", CellKind::Qrnn) => cell(100 * window),
            ("layers.1.bias", CellKind::Qrnn) => cell(200),
            _ => expected(&config, name),
        };
        check(&specs(&config), 200, &mut known, law);
    }
}

/// Tallec and Ollivier 2018, eq. 16: b^i = −b^f, to the bit, and all other biases as they are.
/// Row M12.
#[test]
fn input_gates_may_start_opposite_to_forget_gates() {
    for cell in [CellKind::Lstm, CellKind::Mlstm, CellKind::Rewired] {
        let plain = LstmConfig { forget_bias: ForgetBias::Chrono, t_max: 60.0, cell, ..plain() };
        let opposite = LstmConfig { input_bias: InputBias::Opposite, ..plain.clone() };
        opposite.check().unwrap();
        let drawn = |config: &LstmConfig| Parameters::initialise(specs(config), 3, Kind::Float);
        let (plain, opposite) = (drawn(&plain), drawn(&opposite));
        // Rows of j, o and i; of a rewired cell those of i and j.
        let (first, others) = if cell == CellKind::Rewired { (0, 200..400) } else { (400, 0..400) };
        for layer in 0..2 {
            let bias = format!("layers.{layer}.bias");
            let [before, after] = [&plain, &opposite].map(|parameters| parameters.get(&bias));
            let forget = opposite.get(&format!("{bias}_f"));
            assert!(after.narrow(0, first, 200).equal(&-forget), "{cell:?}");
            let rest = |bias: &Tensor| bias.narrow(0, others.start, others.end - others.start);
            assert!(rest(&after).equal(&rest(&before)), "{cell:?}");
        }
        // Nothing else has changed.
        for (spec, (one, other)) in plain.specs().iter().zip(plain.tensors().iter().zip(opposite.tensors())) {
            assert!(spec.name.ends_with(".bias") && spec.name.starts_with("layers.") || one.equal(other));
        }
    }
}

/// Nothing projects the state of a stack without tied embeddings: its output table is as wide as the state that it scores.
/// Row M12.
#[test]
fn a_table_of_its_own_has_the_law_of_what_it_is_summed_over() {
    let config = LstmConfig { wiring: Wiring::Stack, tie_word_embeddings: false, ..plain() };
    let specs = specs(&config);
    let of = |name: &str| specs.iter().filter(|spec| spec.name == name).cloned().collect::<Vec<_>>();
    let mut known = BTreeSet::new();
    check(&of(EMBEDDING), 200, &mut known, |_| cell(100));
    check(&of(OUTPUT), 200, &mut known, |_| cell(200));
    assert!(of(PROJECTION).is_empty());
}
