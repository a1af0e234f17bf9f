//! The model: embeddings, layers, and what predicts the next word (Melis 2023, §2.1 and eq. 4.1).

use tch::{Kind, Tensor};

use super::config::{CellKind, ForgetBias, LstmConfig, Wiring};
use crate::layers::adversarial::{self, Nll};
use crate::layers::cross_entropy::Words;
use crate::layers::recurrent::{
    Cell, Elman, Gru, InputGate, Lstm, Multiplicative, Recurrent, Rewired, State,
};
use crate::layers::{AdaptiveSoftmax, Adversary, Cluster, Context, Memory, NO_DOCUMENT};
use crate::libtorch::widened;
use crate::noise::{Noise, dropout};
use crate::{Init, Kernels, ParameterSpec, Parameters};

/// Name of the input embeddings.
pub const EMBEDDING: &str = "embedding.weight";
/// Name of the output table, where it is not that.
pub const OUTPUT: &str = "output.weight";
const OUTPUT_BIAS: &str = "output.bias";
const CLUSTERS: &str = "clusters.weight";
const CLUSTERS_BIAS: &str = "clusters.bias";
const PROJECTION: &str = "projection.weight";

/// Variance of a normal distribution whose tails beyond two standard deviations are cut, so that about 1 is left.
const BEFORE_CUT: f64 = 1.3;

/// What layers and gates start from: a sum of `fan_in` terms then varies as much as a term.
fn cell_law(fan_in: i64) -> Init {
    Init::TruncatedNormal { mean: 0.0, std: (BEFORE_CUT / fan_in as f64).sqrt() }
}

/// What tables of words start from, input and output, where each is `e` wide.
pub(crate) fn table_law(e: i64) -> Init {
    Init::TruncatedNormal { mean: 0.0, std: (e as f64).powf(-0.5) }
}

/// Parameters of a layer below `prefix` whose input is `m` wide: mogrifier and cell.
pub(crate) fn layer_specs(config: &LstmConfig, prefix: &str, m: i64) -> Vec<ParameterSpec> {
    let n = config.d_model as i64;
    let mut specs = config.mogrifier().specs(prefix, m, n, cell_law);
    specs.extend(cell_specs(config, prefix, m, n));
    specs
}

/// The layer over them.
pub(crate) fn layer(config: &LstmConfig, prefix: &str, parameters: &Parameters) -> Recurrent {
    Recurrent::new(cell(config, prefix, parameters), config.mogrifier().build(prefix, parameters))
}

/// Every parameter, in the order of the forward pass.
pub fn specs(config: &LstmConfig) -> Vec<ParameterSpec> {
    let (words, n) = (config.vocab_size as i64, config.d_model as i64);
    let e = config.embed_width() as i64;
    let spec =
        |name: &str, shape: &[i64], init| ParameterSpec { name: name.into(), shape: shape.to_vec(), init };
    let table = table_law(e);
    let mut specs = vec![spec(EMBEDDING, &[words, e], table)];
    for layer in 0..config.n_layer {
        specs.extend(layer_specs(config, &prefix(layer), config.input_width(layer) as i64));
    }
    if config.projects() {
        specs.push(spec(PROJECTION, &[e, n], Init::Orthogonal));
    }
    if config.mixture > 1 {
        let experts = config.mixture as i64;
        specs.push(spec("mixture.weight", &[experts * e, n], cell_law(n)));
        specs.push(spec("mixture.bias", &[experts * e], Init::Zeros));
        specs.push(spec("mixture.prior", &[experts, n], cell_law(n)));
    }
    if !config.tie_word_embeddings {
        specs.push(spec(OUTPUT, &[words, e], table));
    }
    specs.push(spec(OUTPUT_BIAS, &[words], Init::Zeros));
    if !config.cutoffs.is_empty() {
        let tails = config.cutoffs.len() as i64;
        specs.push(spec(CLUSTERS, &[tails, e], Init::Zeros));
        specs.push(spec(CLUSTERS_BIAS, &[tails], Init::Zeros));
    }
    specs
}

fn prefix(layer: usize) -> String {
    format!("layers.{layer}.")
}

/// Names of a cell's parameters, their shapes and starts: gates of one matrix lie one below the other.
fn cell_specs(config: &LstmConfig, prefix: &str, m: i64, n: i64) -> Vec<ParameterSpec> {
    let (x, h, bias) = (cell_law(m), cell_law(n), cell_law(n));
    let forget = match config.forget_bias {
        ForgetBias::One => Init::TruncatedNormal { mean: 1.0, std: (BEFORE_CUT / n as f64).sqrt() },
        ForgetBias::Chrono => Init::Chrono { longest: config.t_max },
    };
    // A tied input gate is no gate of its own.
    let gates = if config.input_gate == InputGate::Tied { 3 } else { 4 };
    let gated = [
        ("weight_x", vec![gates * n, m], x),
        ("weight_h", vec![gates * n, n], h),
        ("bias_f", vec![n], forget),
        ("bias", vec![(gates - 1) * n], bias),
    ];
    let parts = match config.cell {
        CellKind::Lstm => gated.to_vec(),
        CellKind::Mlstm => {
            let factors = [("weight_mx", vec![n, m], x), ("weight_mh", vec![n, n], h)];
            gated.into_iter().chain(factors).collect()
        }
        CellKind::Rewired => vec![
            ("weight_x", vec![2 * n, m], x),
            ("weight_h", vec![3 * n, n], h),
            ("weight_fu", vec![n, n], h),
            ("weight_oc", vec![n, n], h),
            ("bias", vec![2 * n], bias),
            ("bias_f", vec![n], forget),
            ("bias_o", vec![n], bias),
        ],
        CellKind::Gru => {
            vec![
                ("weight_x", vec![3 * n, m], x),
                ("weight_h", vec![3 * n, n], h),
                ("bias", vec![3 * n], bias),
            ]
        }
        CellKind::Elman => {
            vec![("weight_x", vec![n, m], x), ("weight_h", vec![n, n], h), ("bias", vec![n], bias)]
        }
    };
    let named =
        |(name, shape, init): (&str, _, _)| ParameterSpec { name: format!("{prefix}{name}"), shape, init };
    parts.into_iter().map(named).collect()
}

fn cell(config: &LstmConfig, prefix: &str, parameters: &Parameters) -> Box<dyn Cell> {
    let get = |name: &str| parameters.get(&format!("{prefix}{name}"));
    let (kernels, gate) = (parameters.kernels(), config.input_gate);
    let (weight_x, weight_h, bias) = (get("weight_x"), get("weight_h"), get("bias"));
    let lstm =
        |weight_x, weight_h, bias| Lstm { gate, weight_x, weight_h, bias_f: get("bias_f"), bias, kernels };
    match config.cell {
        CellKind::Lstm => Box::new(lstm(weight_x, weight_h, bias)),
        CellKind::Mlstm => Box::new(Multiplicative {
            inner: lstm(weight_x, weight_h, bias),
            weight_mx: get("weight_mx"),
            weight_mh: get("weight_mh"),
        }),
        CellKind::Rewired => Box::new(Rewired {
            gate,
            weight_x,
            weight_h,
            weight_fu: get("weight_fu"),
            weight_oc: get("weight_oc"),
            bias,
            bias_f: get("bias_f"),
            bias_o: get("bias_o"),
            kernels,
        }),
        CellKind::Gru => Box::new(Gru { weight_x, weight_h, bias, kernels }),
        CellKind::Elman => Box::new(Elman { weight_x, weight_h, bias, kernels }),
    }
}

/// What K softmaxes are mixed from (Yang et al. 2018).
struct Mixture {
    /// `[experts · e, n]`
    weight: Tensor,
    /// `[experts · e]`
    bias: Tensor,
    /// `[experts, n]`
    prior: Tensor,
}

/// A recurrent language model.
pub struct Model {
    config: LstmConfig,
    /// `[vocab_size, e]`
    embedding: Tensor,
    layers: Vec<Recurrent>,
    /// `[e, n]`
    projection: Option<Tensor>,
    mixture: Option<Mixture>,
    /// `[vocab_size, e]`
    output: Tensor,
    /// `[vocab_size]`
    bias: Tensor,
    /// Of all words, or split; not that of a mixture.
    softmax: AdaptiveSoftmax,
    kernels: Kernels,
    /// Standard deviation of the noise that is added to embeddings where there is noise.
    pub input_noise: f64,
    /// Trajectories of each lane, which dropout tells apart: their states lie one after another in a memory that starts here.
    pub samples: i64,
    /// Whether the state lives on after a segment: where `mem_len` is not 0.
    pub context: Context,
    /// Whether lanes may have to forget by themselves.
    pub keeps_marks: bool,
}

/// Each row of `x` `times` times, one after another.
fn repeated(x: &Tensor, times: i64) -> Tensor {
    x.repeat_interleave_self_int(times, 0, None::<i64>)
}

/// −ln of the mean of probabilities, `[lanes, segment]`, of −ln of each, `[lanes, samples, segment]`.
pub(super) fn over_samples(nll: &Tensor) -> Tensor {
    (nll.size()[1] as f64).ln() - (-nll).logsumexp(1, false)
}

/// ln of the mean of softmaxes, `[n, words]`, of `scores`, `[n, experts, words]`, by their weights, of which `log_priors` are the logarithms,
/// `[n, experts]`.
fn mix(scores: &Tensor, log_priors: &Tensor) -> Tensor {
    (scores.log_softmax(-1, None::<Kind>) + log_priors.unsqueeze(-1)).logsumexp(1, false)
}

/// What a segment gives.
pub struct Output {
    /// What predicts the next word: `[lanes, segment, n]`.
    pub hidden: Tensor,
    /// The embeddings, and the output of each layer, without dropout: `[lanes, segment, ..]` each.
    pub layers: Vec<Tensor>,
    /// The state after it, cut off from the graph.
    pub memory: Memory,
}

impl Model {
    /// Over `parameters`, which hold [`specs`].
    pub fn new(config: &LstmConfig, parameters: &Parameters) -> Self {
        let layer = |number: usize| layer(config, &prefix(number), parameters);
        let mixture = (config.mixture > 1).then(|| Mixture {
            weight: parameters.get("mixture.weight"),
            bias: parameters.get("mixture.bias"),
            prior: parameters.get("mixture.prior"),
        });
        let output = parameters.find(OUTPUT).unwrap_or_else(|| parameters.get(EMBEDDING));
        let bias = parameters.get(OUTPUT_BIAS);
        let cluster = |_| Cluster {
            weight: output.shallow_clone(),
            bias: bias.shallow_clone(),
            projection: None,
            kernels: parameters.kernels(),
        };
        let tails =
            parameters.find(CLUSTERS).map(|weight| Words { weight, bias: parameters.find(CLUSTERS_BIAS) });
        let ends: Vec<i64> = config.cluster_ends().iter().map(|&end| end as i64).collect();
        let softmax = AdaptiveSoftmax::new((1..ends.len()).map(cluster).collect(), tails, ends);
        Self {
            embedding: parameters.get(EMBEDDING),
            layers: (0..config.n_layer).map(layer).collect(),
            projection: parameters.find(PROJECTION),
            mixture,
            output,
            bias,
            softmax,
            kernels: parameters.kernels(),
            input_noise: 0.0,
            samples: 1,
            context: Context { mem_len: 1, clamp_len: 0, same_length: None },
            keeps_marks: false,
            config: config.clone(),
        }
    }

    /// What it was built from.
    pub fn config(&self) -> &LstmConfig {
        &self.config
    }

    /// h and c of each layer, all zero: `[lanes, samples, n]` each.
    pub fn memory_start(&self, lanes: i64) -> Memory {
        let options = (self.embedding.kind(), self.embedding.device());
        let memory =
            Memory::zeros(2 * self.config.n_layer, lanes, self.samples, self.config.d_model as i64, options);
        if self.keeps_marks { memory.marked(NO_DOCUMENT) } else { memory }
    }

    /// Reads `ids`, `[lanes, segment]`, from the state in `memory` on. Dropout is on where there is noise. Of a memory with several samples a
    /// lane, what comes out has a row for each, those of a lane one after another.
    pub fn forward(&self, ids: &Tensor, memory: &Memory, noise: Option<&Noise>) -> Output {
        let config = &self.config;
        let samples = memory.len().max(1);
        let rows = if samples > 1 { repeated(ids, samples) } else { ids.shallow_clone() };
        let embedded = Tensor::embedding(&self.embedding, &rows.transpose(0, 1), -1, false, false);
        let mut input = dropout(self.disturbed(&embedded, noise), config.input_dropout, noise);
        let (mut layers, mut states) = (vec![embedded], Vec::new());
        let mut sum: Option<Tensor> = None;
        for (number, layer) in self.layers.iter().enumerate() {
            if number > 0 && config.wiring == Wiring::Skip {
                input = dropout(input, config.inter_layer_dropout, noise);
            }
            let state = |part: usize| memory.layers[2 * number + part].reshape([-1, config.d_model as i64]);
            let start = State { hidden: state(0), cell: state(1) };
            let mask = self.state_mask(&start.hidden, noise);
            let (outputs, state) = layer.forward(&input, start, mask.as_ref());
            layers.push(outputs.shallow_clone());
            let added = match config.wiring {
                Wiring::Skip => outputs.shallow_clone(),
                Wiring::Residual => dropout(outputs.shallow_clone(), config.cell_output_dropout, noise),
            };
            let total = sum.map_or_else(|| added.shallow_clone(), |sum| sum + &added);
            input = match config.wiring {
                Wiring::Skip => outputs,
                Wiring::Residual => total.shallow_clone(),
            };
            sum = Some(total);
            states.extend([state.hidden, state.cell]);
        }
        let hidden = dropout(sum.unwrap_or(input), config.output_dropout, noise);
        Output {
            hidden: hidden.transpose(0, 1),
            layers: layers.iter().map(|layer| layer.transpose(0, 1)).collect(),
            memory: self.carried(&states, memory),
        }
    }

    /// Embeddings with noise, where there is any.
    pub(super) fn disturbed(&self, embedded: &Tensor, noise: Option<&Noise>) -> Tensor {
        match noise.filter(|_| self.input_noise > 0.0) {
            Some(noise) => {
                let drawn = noise.normal(&embedded.size()).to_device(embedded.device()) * self.input_noise;
                embedded + drawn.to_kind(embedded.kind())
            }
            None => embedded.shallow_clone(),
        }
    }

    /// One mask for all positions of a segment, `[lanes, n]`; none where nothing is dropped.
    fn state_mask(&self, state: &Tensor, noise: Option<&Noise>) -> Option<Tensor> {
        let rate = self.config.state_dropout;
        let noise = noise.filter(|_| rate > 0.0)?;
        Some(dropout(state.ones_like(), rate, Some(noise)))
    }

    /// What lanes carry to their next segment.
    fn carried(&self, states: &[Tensor], before: &Memory) -> Memory {
        if self.context.mem_len == 0 {
            let lanes = before.layers[0].size()[0];
            return self.memory_start(lanes);
        }
        let lanes = before.layers[0].size()[0];
        let layers = states.iter().map(|state| state.detach().view([lanes, -1, self.config.d_model as i64]));
        let layers = layers.collect();
        Memory { layers, documents: before.documents.as_ref().map(Tensor::shallow_clone) }
    }

    /// −ln P of each target, `[lanes, segment]`, for `hidden` of `[lanes, segment, n]` and `targets` of `[lanes, segment]`.
    pub fn nll(&self, hidden: &Tensor, targets: &Tensor, noise: Option<&Noise>) -> Tensor {
        self.trained_nll(hidden, targets, noise, None).trained
    }

    /// The same as it is trained against an adversary. Where `hidden` has several samples of each lane, the mean of their probabilities
    /// counts (Melis 2023, §4.3).
    pub fn trained_nll(
        &self,
        hidden: &Tensor,
        targets: &Tensor,
        noise: Option<&Noise>,
        adversary: Option<&Adversary>,
    ) -> Nll {
        let (lanes, rows) = (targets.size()[0], hidden.size()[0]);
        let samples = rows / lanes;
        let flat = hidden.reshape([-1, self.config.d_model as i64]);
        let flat_targets = if samples > 1 { repeated(targets, samples) } else { targets.shallow_clone() };
        let flat_targets = flat_targets.reshape([-1]);
        let nll = match (&self.mixture, adversary) {
            (Some(mixture), None) => {
                let log_probs = self.mixed(mixture, &flat, noise);
                Nll::of(-log_probs.gather(1, &flat_targets.unsqueeze(1), false).squeeze_dim(1))
            }
            (Some(mixture), Some(adversary)) => {
                self.mixed_against(mixture, &flat, &flat_targets, noise, adversary)
            }
            (None, _) => self.softmax.nll(&self.projected(&flat, noise), &flat_targets, adversary),
        };
        if samples > 1 {
            let each = [lanes, samples, targets.size()[1]];
            return nll.map(|nll| over_samples(&nll.view(each)));
        }
        nll.map(|nll| nll.view(targets.size().as_slice()))
    }

    /// ln P of every next word: `[lanes, segment, vocab_size]`, for `hidden` of `[lanes, segment, n]`.
    pub fn log_probs(&self, hidden: &Tensor) -> Tensor {
        let size = hidden.size();
        let flat = hidden.reshape([-1, size[2]]);
        let log_probs = match &self.mixture {
            Some(mixture) => self.mixed(mixture, &flat, None),
            None => self.softmax.log_probs(&self.projected(&flat, None)),
        };
        log_probs.view([size[0], size[1], -1])
    }

    /// `[n, d_model]` to vectors as wide as the embeddings.
    fn projected(&self, hidden: &Tensor, noise: Option<&Noise>) -> Tensor {
        match &self.projection {
            Some(projection) => {
                dropout(self.kernels.linear(hidden, projection, None), self.config.projected_dropout(), noise)
            }
            None => hidden.shallow_clone(),
        }
    }

    /// `[.., e]` to scores of all words.
    fn scores(&self, vectors: &Tensor) -> Tensor {
        widened(&self.kernels.linear(vectors, &self.output, Some(&self.bias)))
    }

    /// ln Σ_k π_k softmax(E tanh(W_k y + b_k) + b), `[n, vocab_size]` (Yang et al. 2018, eq. 4).
    fn mixed(&self, mixture: &Mixture, hidden: &Tensor, noise: Option<&Noise>) -> Tensor {
        let (vectors, log_priors) = self.experts(mixture, hidden, noise);
        mix(&self.scores(&vectors), &log_priors)
    }

    /// What experts say, `[n, experts, e]`, and the logarithms of their weights, `[n, experts]`.
    fn experts(&self, mixture: &Mixture, hidden: &Tensor, noise: Option<&Noise>) -> (Tensor, Tensor) {
        let (experts, e) = (mixture.prior.size()[0], self.output.size()[1]);
        let vectors = self.kernels.linear(hidden, &mixture.weight, Some(&mixture.bias)).tanh();
        let vectors = dropout(vectors, self.config.projected_dropout(), noise).view([-1, experts, e]);
        let log_priors =
            widened(&self.kernels.linear(hidden, &mixture.prior, None)).log_softmax(-1, None::<Kind>);
        (vectors, log_priors)
    }

    /// −ln P of `targets`, `[n]`, of a mixture in whose every softmax the target's vector moves against that expert's own.
    fn mixed_against(
        &self,
        mixture: &Mixture,
        hidden: &Tensor,
        targets: &Tensor,
        noise: Option<&Noise>,
        adversary: &Adversary,
    ) -> Nll {
        let (vectors, log_priors) = self.experts(mixture, hidden, noise);
        let (experts, e) = (vectors.size()[1], vectors.size()[2]);
        let words = Words { weight: self.output.shallow_clone(), bias: Some(self.bias.shallow_clone()) };
        let each = adversarial::nll(
            self.kernels,
            &vectors.reshape([-1, e]),
            &[words],
            &repeated(targets, experts),
            Some(adversary),
        );
        each.map(|nll| -(&log_priors - nll.view([-1, experts])).logsumexp(1, false))
    }

    /// The table whose rows score words, `[vocab_size, e]`.
    pub fn output(&self) -> &Tensor {
        &self.output
    }
}

#[cfg(test)]
mod tests;
