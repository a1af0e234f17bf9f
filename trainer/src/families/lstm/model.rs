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
const OUTPUT: &str = "output.weight";
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

/// Every parameter, in the order of the forward pass.
pub fn specs(config: &LstmConfig) -> Vec<ParameterSpec> {
    let (words, n) = (config.vocab_size as i64, config.d_model as i64);
    let e = config.embed_width() as i64;
    let spec =
        |name: &str, shape: &[i64], init| ParameterSpec { name: name.into(), shape: shape.to_vec(), init };
    let table = Init::TruncatedNormal { mean: 0.0, std: (e as f64).powf(-0.5) };
    let mut specs = vec![spec(EMBEDDING, &[words, e], table)];
    for layer in 0..config.n_layer {
        let (prefix, m) = (prefix(layer), config.input_width(layer) as i64);
        specs.extend(config.mogrifier().specs(&prefix, m, n, cell_law));
        specs.extend(cell_specs(config, &prefix, m, n));
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
        let layer = |layer: usize| {
            let prefix = prefix(layer);
            Recurrent::new(cell(config, &prefix, parameters), config.mogrifier().build(&prefix, parameters))
        };
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
mod tests {
    use super::*;
    use tch::Device;

    const WORDS: i64 = 11;

    fn small() -> LstmConfig {
        LstmConfig { vocab_size: WORDS as usize, d_model: 8, ..Default::default() }
    }

    fn model(config: &LstmConfig) -> Model {
        Model::new(config, &parameters(config))
    }

    fn parameters(config: &LstmConfig) -> Parameters {
        Parameters::initialise(specs(config), 5, Kind::Double)
    }

    fn ids(lanes: i64, segment: i64) -> Tensor {
        (Tensor::arange(lanes * segment, (Kind::Int64, Device::Cpu)) * 7)
            .remainder(WORDS)
            .view([lanes, segment])
    }

    fn hidden(config: &LstmConfig) -> Tensor {
        let model = model(config);
        model.forward(&ids(2, 9), &model.memory_start(2), None).hidden.detach()
    }

    fn difference(one: &Tensor, other: &Tensor) -> f64 {
        (one - other).abs().max().double_value(&[])
    }

    /// Melis 2023, §4.1: for two layers both wirings are the same network, and for three they are not.
    #[test]
    fn m06_wirings_agree_for_two_layers_alone() {
        let wired = |n_layer, wiring| hidden(&LstmConfig { n_layer, wiring, ..small() });
        assert!(difference(&wired(2, Wiring::Skip), &wired(2, Wiring::Residual)) < 1e-12);
        assert!(difference(&wired(3, Wiring::Skip), &wired(3, Wiring::Residual)) > 1e-3);
    }

    /// The embedding is no part of the sum of layers: where these give nothing, words have the probabilities of their biases.
    #[test]
    fn m06_layers_that_give_nothing_leave_the_biases() {
        let config = small();
        let parameters = parameters(&config);
        tch::no_grad(|| {
            for (spec, tensor) in parameters.specs().iter().zip(parameters.tensors()) {
                let mut tensor = tensor.shallow_clone();
                if spec.name.starts_with("layers.") {
                    let _ = tensor.zero_();
                } else if spec.name == OUTPUT_BIAS {
                    tensor.copy_(&Tensor::arange(WORDS, (Kind::Double, Device::Cpu)));
                }
            }
        });
        let model = Model::new(&config, &parameters);
        let out = model.forward(&ids(1, 3), &model.memory_start(1), None);
        let expected = Tensor::arange(WORDS, (Kind::Double, Device::Cpu)).log_softmax(-1, None::<Kind>);
        assert!(difference(&model.log_probs(&out.hidden), &expected.expand([1, 3, WORDS], false)) < 1e-12);
    }

    /// −ln P by targets is what the probabilities of all words say, which add up to 1.
    #[test]
    fn m06_losses_are_those_of_probabilities() {
        let configs = [
            small(),
            LstmConfig { mixture: 2, ..small() },
            LstmConfig { input_embedding_ratio: 0.5, tie_word_embeddings: false, ..small() },
        ];
        for config in configs {
            let model = model(&config);
            let (ids, memory) = (ids(2, 9), model.memory_start(2));
            let hidden = model.forward(&ids, &memory, None).hidden;
            let log_probs = model.log_probs(&hidden);
            assert!(
                difference(&log_probs.exp().sum_dim_intlist(-1, false, None::<Kind>), &Tensor::from(1.0))
                    < 1e-12
            );
            let expected = -log_probs.gather(2, &ids.unsqueeze(2), false).squeeze_dim(2);
            assert!(difference(&model.nll(&hidden, &ids, None), &expected) < 1e-12, "{config:?}");
        }
    }

    /// Reference numbers of two softmaxes with weights softmax(0.4, −0.2) over three words.
    #[test]
    fn m06_a_mixture_of_softmaxes_gives_the_reference_numbers() {
        let row = |values: &[f64]| Tensor::from_slice(values);
        // At an inverse temperature of 0.9.
        let scores = Tensor::stack(&[row(&[2.0, 0.5, -1.0]), row(&[-0.5, 1.0, 0.0])], 0) * 0.9;
        let log_priors = row(&[0.4, -0.2]).log_softmax(-1, None::<Kind>);
        let mixed = mix(&scores.unsqueeze(0), &log_priors.unsqueeze(0));
        let expected = row(&[-0.612671782, -1.082042871, -2.126982523]);
        assert!(difference(&mixed.squeeze_dim(0), &expected) < 1e-9, "{mixed}");
    }

    /// A segment read at once, or in pieces with the state between them.
    #[test]
    fn m08_a_carried_state_makes_pieces_a_whole() {
        for cell in [CellKind::Lstm, CellKind::Mlstm, CellKind::Rewired, CellKind::Gru, CellKind::Elman] {
            let model = model(&LstmConfig { cell, mogrifier_rounds: 2, ..small() });
            let ids = ids(2, 50);
            let whole = model.forward(&ids, &model.memory_start(2), None);
            let (mut memory, mut pieces) = (model.memory_start(2), Vec::new());
            for start in (0..50).step_by(5) {
                let out = model.forward(&ids.narrow(1, start, 5), &memory, None);
                memory = out.memory;
                pieces.push(out.hidden);
            }
            assert!(difference(&Tensor::cat(&pieces, 1), &whole.hidden) < 1e-12, "{cell:?}");
            for (piece, whole) in memory.layers.iter().zip(&whole.memory.layers) {
                assert!(difference(piece, whole) < 1e-12, "{cell:?}");
            }
        }
    }

    /// The mask of the state is one for all positions of a segment, another for each lane and each layer; without noise there is none.
    #[test]
    fn m05_the_mask_of_the_state_is_drawn_once_a_segment() {
        let config = LstmConfig { state_dropout: 0.5, d_model: 512, ..small() };
        let model = model(&config);
        let state = Tensor::zeros([2, 512], (Kind::Double, Device::Cpu));
        let noise = Noise::new(3);
        let [first, second] = [(), ()].map(|()| model.state_mask(&state, Some(&noise)).unwrap());
        assert!(difference(&first, &second) > 1.0);
        assert!(difference(&first.get(0), &first.get(1)) > 1.0);
        let again = model.state_mask(&state, Some(&Noise::new(3))).unwrap();
        assert!(again.equal(&first));
        assert!(model.state_mask(&state, None).is_none());
    }

    /// Two layers and every kind of dropout, against cells stepped one by one: masks of input and layers are drawn for each position, that of the
    /// state once for each layer, and what is carried is not masked.
    #[test]
    fn m05_dropout_acts_where_the_equations_have_it() {
        for wiring in [Wiring::Skip, Wiring::Residual] {
            let rates = if wiring == Wiring::Skip { (0.3, 0.0) } else { (0.0, 0.3) };
            let config = LstmConfig {
                wiring,
                cell: CellKind::Rewired,
                input_dropout: 0.3,
                inter_layer_dropout: rates.0,
                cell_output_dropout: rates.1,
                state_dropout: 0.3,
                output_dropout: 0.3,
                ..small()
            };
            let parameters = parameters(&config);
            let model = Model::new(&config, &parameters);
            let ids = ids(2, 5);
            let found = model.forward(&ids, &model.memory_start(2), Some(&Noise::new(7)));
            let noise = Noise::new(7);
            let drop = |x: &Tensor| dropout(x.shallow_clone(), 0.3, Some(&noise));
            let zeros = || Tensor::zeros([2, 8], (Kind::Double, Device::Cpu));
            let embedded = Tensor::embedding(&model.embedding, &ids.transpose(0, 1), -1, false, false);
            let mut input = drop(&embedded);
            let mut sum = Tensor::zeros([5, 2, 8], (Kind::Double, Device::Cpu));
            for layer in 0..2 {
                if layer == 1 && wiring == Wiring::Skip {
                    input = drop(&input);
                }
                let mask = drop(&zeros().ones_like());
                let cell = cell(&config, &prefix(layer), &parameters);
                let mut state = State { hidden: zeros(), cell: zeros() };
                let step = |position: i64| {
                    let seen = &state.hidden * &mask;
                    state = cell.step(&cell.read(&input.get(position)), &seen, &state.cell, Some(&mask));
                    state.hidden.shallow_clone()
                };
                let outputs = Tensor::stack(&(0..5).map(step).collect::<Vec<_>>(), 0);
                let added = if wiring == Wiring::Skip { outputs.shallow_clone() } else { drop(&outputs) };
                sum += added;
                input = if wiring == Wiring::Skip { outputs } else { sum.copy() };
            }
            assert!(difference(&drop(&sum).transpose(0, 1), &found.hidden) < 1e-12, "{wiring:?}");
        }
    }

    /// With nothing to drop, noise changes no bit.
    #[test]
    fn m05_rates_of_zero_change_no_bit() {
        let model = model(&LstmConfig { mogrifier_rounds: 2, ..small() });
        let (ids, memory) = (ids(2, 9), model.memory_start(2));
        let [with, without] = [Some(&Noise::new(1)), None].map(|noise| {
            let out = model.forward(&ids, &memory, noise);
            model.nll(&out.hidden, &ids, noise)
        });
        assert!(with.equal(&without));
    }

    /// A tied table's gradient is the sum of those of its two uses.
    #[test]
    fn m06_a_tied_table_gets_the_gradients_of_both_uses() {
        let gradients = |tie_word_embeddings| {
            let config = LstmConfig { tie_word_embeddings, ..small() };
            let mut parameters = parameters(&config);
            if !tie_word_embeddings {
                let tensors = parameters.specs().iter().map(|spec| {
                    let name = if spec.name == OUTPUT { EMBEDDING } else { &spec.name };
                    parameters.get(name).detach().copy()
                });
                parameters = Parameters::from_tensors(specs(&config), tensors.collect(), Kind::Double);
            }
            let model = Model::new(&config, &parameters);
            let out = model.forward(&ids(2, 9), &model.memory_start(2), None);
            model.nll(&out.hidden, &ids(2, 9), None).sum(None::<Kind>).backward();
            [EMBEDDING, OUTPUT].map(|name| parameters.find(name).map(|table| table.grad()))
        };
        let [Some(tied), None] = gradients(true) else { panic!("one table") };
        let [Some(input), Some(output)] = gradients(false) else { panic!("two tables") };
        assert!(difference(&tied, &(input + output)) < 1e-12);
    }
}
