//! Parameters of the model: names, shapes, and how they start.

use segue_kernels::{Init, ParameterSpec};
use segue_layers::norm::NORM_MEAN;
use segue_layers::recurrent::{InputGate, Scales, factor_law};
use segue_random::name_counter;

use super::keys::{CellKind, ForgetBias, GateNormKind, InitKind, InputBias, LstmConfig};

/// Name of the input embeddings.
pub const EMBEDDING: &str = "embedding.weight";
/// Of the output table, where it is not the input's.
pub const OUTPUT: &str = "output.weight";
/// Of the biases of words.
pub const OUTPUT_BIAS: &str = "output.bias";
/// Of the vectors that stand for the clusters of a split softmax.
pub const CLUSTERS: &str = "clusters.weight";
/// Of their biases.
pub const CLUSTERS_BIAS: &str = "clusters.bias";
/// Of what maps states to vectors as wide as the embeddings.
pub const PROJECTION: &str = "projection.weight";

/// Variance of a normal distribution whose tails beyond two standard deviations are cut, so that about 1 is left.
const BEFORE_CUT: f64 = 1.3;
/// Largest value of a table that starts uniform (Merity et al. 2018).
const UNIFORM_TABLE: f64 = 0.1;

/// What all names of a layer, from 0, begin with.
pub fn prefix(layer: usize) -> String {
    format!("layers.{layer}.")
}

/// What weights start from that sum `fan_in` terms for a state of width `n`: by default a sum then varies as much as a term.
fn law(config: &LstmConfig, fan_in: i64, n: i64) -> Init {
    match config.init {
        InitKind::Truncated => Init::TruncatedNormal { mean: 0.0, std: (BEFORE_CUT / fan_in as f64).sqrt() },
        InitKind::Uniform => Init::Uniform { range: (n as f64).powf(-0.5) },
    }
}

/// What tables of words of width `e` start from.
pub fn table_law(config: &LstmConfig, e: i64) -> Init {
    match config.init {
        InitKind::Truncated => Init::TruncatedNormal { mean: 0.0, std: (BEFORE_CUT / e as f64).sqrt() },
        InitKind::Uniform => Init::Uniform { range: UNIFORM_TABLE },
    }
}

/// Every parameter, in the order of the forward pass.
pub fn specs(config: &LstmConfig) -> Vec<ParameterSpec> {
    let (words, e) = (config.vocab_size as i64, config.embed_width() as i64);
    let spec =
        |name: &str, shape: &[i64], init| ParameterSpec { name: name.into(), shape: shape.to_vec(), init };
    let mut specs = vec![spec(EMBEDDING, &[words, e], table_law(config, e))];
    for layer in 0..config.n_layer {
        specs.extend(layer_specs(config, layer, &prefix(layer)));
    }
    let (last, scored) = (config.last_width() as i64, config.output_width() as i64);
    let of_last = law(config, last, last);
    if config.projects() {
        let init = if config.init == InitKind::Truncated { Init::Orthogonal } else { of_last };
        specs.push(spec(PROJECTION, &[scored, last], init));
    }
    if config.mixes() {
        let experts = config.mixture as i64;
        let bias = if config.init == InitKind::Truncated { Init::Zeros } else { of_last };
        specs.push(spec("mixture.weight", &[experts * e, last], of_last));
        specs.push(spec("mixture.bias", &[experts * e], bias));
        specs.push(spec("mixture.prior", &[experts, last], of_last));
    }
    if !config.tie_word_embeddings {
        specs.push(spec(OUTPUT, &[words, scored], table_law(config, scored)));
    }
    specs.push(spec(OUTPUT_BIAS, &[words], Init::Zeros));
    if !config.cutoffs.is_empty() {
        let tails = config.cutoffs.len() as i64;
        specs.push(spec(CLUSTERS, &[tails, scored], Init::Zeros));
        specs.push(spec(CLUSTERS_BIAS, &[tails], Init::Zeros));
    }
    specs
}

/// Parameters of a layer as layer `number` is, whose names begin with `prefix`: mogrifier and cell.
pub fn layer_specs(config: &LstmConfig, number: usize, prefix: &str) -> Vec<ParameterSpec> {
    let (m, n) = (config.input_width(number) as i64, config.state_width(number) as i64);
    let mut specs = config.mogrifier().specs(prefix, m, n, |fan_in| law(config, fan_in, n));
    if config.scale_vectors {
        specs.extend(Scales::specs(prefix, m, n));
    }
    specs.extend(cell_specs(config, prefix, m * config.window_of(number) as i64, n));
    specs
}

/// A parameter below a layer's prefix: name, shape, start.
type Part = (&'static str, Vec<i64>, Init);

/// What the `[n, fan_in]` matrices of so many gates are products of, each of its own two: left ones `[gates · n, rank]`, right ones
/// `[gates · rank, fan_in]`.
fn factors([left, right]: [&'static str; 2], [gates, n, fan_in]: [i64; 3], rank: i64) -> Vec<Part> {
    let init = factor_law(fan_in, rank);
    vec![(left, vec![gates * n, rank], init), (right, vec![gates * rank, fan_in], init)]
}

/// Names of a cell's parameters, their shapes and starts, where it reads `m` values of the input: gates of one matrix lie one below the
/// other. With `two_biases`, `bias_fh` and `bias_h` are the biases of the state beside those of the input, `bias_f` and `bias`, of the same
/// gates in the same order: forget gate; candidate, output gate, input gate. With a `gate_rank`, each of an LSTM's matrices is two factors
/// ([`factors`]); with a `gate_norm`, `layer_norm.weight` has a gain for each row of its gates.
fn cell_specs(config: &LstmConfig, prefix: &str, m: i64, n: i64) -> Vec<ParameterSpec> {
    // A quasi-recurrent layer is linear in its input before it pools, and starts like a linear layer.
    let of_uniform = if config.cell == CellKind::Qrnn { m } else { n };
    let (x, h, bias) = (law(config, m, of_uniform), law(config, n, n), law(config, n, of_uniform));
    let forget = match (config.init, config.forget_bias) {
        (InitKind::Uniform, _) => bias,
        (_, ForgetBias::One) => Init::TruncatedNormal { mean: 1.0, std: (BEFORE_CUT / n as f64).sqrt() },
        (_, ForgetBias::Chrono) => Init::Chrono { longest: config.t_max },
    };
    // How a vector of biases starts in which those of the input gate are the n values from `first` on.
    let with_input = |first: i64| match (config.input_bias, forget, bias) {
        (InputBias::Opposite, Init::Chrono { longest }, Init::TruncatedNormal { std, .. }) => {
            let of = name_counter(&format!("{prefix}bias_f"));
            Init::OppositeChrono { std, first: first as usize, count: n as usize, longest, of }
        }
        _ => bias,
    };
    // A tied input gate is no gate of its own.
    let gates = if config.input_gate == InputGate::Tied { 3 } else { 4 };
    let matrices = match config.gate_rank as i64 {
        0 => vec![("weight_x", vec![gates * n, m], x), ("weight_h", vec![gates * n, n], h)],
        rank => {
            let of = |names, fan_in| factors(names, [gates, n, fan_in], rank);
            [of(["weight_x_left", "weight_x_right"], m), of(["weight_h_left", "weight_h_right"], n)].concat()
        }
    };
    let gain = Init::Normal { mean: NORM_MEAN, std: 0.0 };
    let norm =
        (config.gate_norm == GateNormKind::Layer).then(|| ("layer_norm.weight", vec![gates * n], gain));
    let biases = [("bias_f", vec![n], forget), ("bias", vec![(gates - 1) * n], with_input(2 * n))];
    let gated: Vec<_> = matrices.into_iter().chain(norm).chain(biases).collect();
    let second = if config.init == InitKind::Truncated { Init::Zeros } else { bias };
    let of_state = [("bias_fh", vec![n], second), ("bias_h", vec![(gates - 1) * n], second)];
    let plain = |rows: i64| {
        let of_state = config.two_biases.then(|| ("bias_h", vec![rows], second));
        let parts =
            [("weight_x", vec![rows, m], x), ("weight_h", vec![rows, n], h), ("bias", vec![rows], bias)];
        parts.into_iter().chain(of_state).collect()
    };
    let parts = match config.cell {
        CellKind::Lstm if config.two_biases => gated.into_iter().chain(of_state).collect(),
        CellKind::Lstm => gated,
        CellKind::Mlstm => {
            // Inputs start with a variance of about 1/m: what they multiply the state by is then as large as 1, and the state is not lost.
            let of_inputs = match config.init {
                InitKind::Truncated => law(config, 1, n),
                InitKind::Uniform => x,
            };
            let factors = [("weight_mx", vec![n, m], of_inputs), ("weight_mh", vec![n, n], h)];
            gated.into_iter().chain(factors).collect()
        }
        CellKind::Rewired => vec![
            ("weight_x", vec![2 * n, m], x),
            ("weight_h", vec![3 * n, n], h),
            ("weight_fu", vec![n, n], h),
            ("weight_oc", vec![n, n], h),
            ("bias", vec![2 * n], with_input(0)),
            ("bias_f", vec![n], forget),
            ("bias_o", vec![n], bias),
        ],
        CellKind::Gru => plain(3 * n),
        CellKind::Elman => plain(n),
        CellKind::Qrnn => {
            vec![("weight_x", vec![3 * n, m], x), ("bias_f", vec![n], forget), ("bias", vec![2 * n], bias)]
        }
    };
    let named = |(name, shape, init): Part| ParameterSpec { name: format!("{prefix}{name}"), shape, init };
    parts.into_iter().map(named).collect()
}

#[cfg(test)]
mod tests;
