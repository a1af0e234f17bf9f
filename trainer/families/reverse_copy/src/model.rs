//! The two networks and their loss (Melis 2023, §2.3.3).

use segue_dataloader::sections::LossOver;
use segue_decode::Decoder;
use segue_engine::{Learner, Loss, Turn};
use segue_kernels::libtorch::widened;
use segue_kernels::noise::Noise;
use segue_kernels::{Compute, Init, Kernels, ParameterSpec, Parameters};
use segue_layers::cross_entropy::{self, Words};
use segue_layers::recurrent::{Layer, State};
use segue_lstm::{layer_below, layer_specs, table_law};
use tch::{Device, Kind, Tensor};

use super::keys::ReverseCopyConfig;

const ENCODER: &str = "encoder.";
const DECODER: &str = "decoder.";
const EMBEDDING: &str = "embedding.weight";
const PROJECTION: &str = "projection.weight";
const OUTPUT: &str = "output.weight";
const OUTPUT_BIAS: &str = "output.bias";

/// Every parameter, in the order of the forward pass: nothing is shared between the networks, nor between input and output.
pub fn specs(config: &ReverseCopyConfig) -> Vec<ParameterSpec> {
    let cell = config.layer();
    let (words, n, e) = (config.vocabulary(), config.d_model as i64, cell.embed_width() as i64);
    let spec = |name: String, shape: &[i64], init| ParameterSpec { name, shape: shape.to_vec(), init };
    let mut specs = Vec::new();
    for prefix in [ENCODER, DECODER] {
        specs.push(spec(format!("{prefix}{EMBEDDING}"), &[words, e], table_law(&cell, e)));
        specs.extend(layer_specs(&cell, 0, prefix));
    }
    if e != n {
        specs.push(spec(PROJECTION.into(), &[e, n], Init::Orthogonal));
    }
    specs.push(spec(OUTPUT.into(), &[words, e], table_law(&cell, e)));
    specs.push(spec(OUTPUT_BIAS.into(), &[words], Init::Zeros));
    specs
}

/// One of the networks: a table of tokens, and a layer.
struct Network {
    /// `[words, e]`
    embedding: Tensor,
    layer: Box<dyn Layer>,
}

impl Network {
    fn new(config: &ReverseCopyConfig, prefix: &str, parameters: &Parameters) -> Self {
        Self {
            embedding: parameters.get(&format!("{prefix}{EMBEDDING}")),
            layer: layer_below(&config.layer(), (0, prefix), parameters, &|weight| weight),
        }
    }

    /// Outputs, `[positions, lanes, n]`, and the state after `ids`, `[lanes, positions]`.
    fn read(&self, ids: &Tensor, start: State) -> (Tensor, State) {
        let embedded = Tensor::embedding(&self.embedding, &ids.transpose(0, 1), -1, false, false);
        self.layer.forward(&embedded, start, None)
    }
}

/// Encoder and decoder.
pub struct Copier {
    config: ReverseCopyConfig,
    encoder: Network,
    decoder: Network,
    /// `[e, n]`
    projection: Option<Tensor>,
    /// `[words, e]`
    output: Words,
    kernels: Kernels,
    /// What gradients are means over.
    loss_over: LossOver,
    parameters: Parameters,
}

/// How many strings a model writes, and how well.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Score {
    /// Σ −ln P of tokens and marks.
    pub nats: f64,
    /// Tokens that are the most probable at their places, marks not counted.
    pub tokens: f64,
    /// Strings of which all are, the mark too: those that greedy decoding writes right.
    pub strings: f64,
}

impl Copier {
    /// Over `parameters`, which hold [`specs`] and which it takes as its own.
    pub fn over(config: &ReverseCopyConfig, parameters: Parameters) -> Self {
        let output = Words { weight: parameters.get(OUTPUT), bias: Some(parameters.get(OUTPUT_BIAS)) };
        Self {
            config: config.clone(),
            encoder: Network::new(config, ENCODER, &parameters),
            decoder: Network::new(config, DECODER, &parameters),
            projection: parameters.find(PROJECTION),
            output,
            kernels: parameters.kernels(),
            loss_over: LossOver::Targets,
            parameters,
        }
    }

    /// With fresh weights, where `compute` says.
    pub fn new(copy: &ReverseCopyConfig, loss_over: LossOver, seed: u64, compute: Compute) -> Self {
        let parameters = Parameters::initialise(specs(copy), seed, Kind::Float);
        Self { loss_over, ..Self::over(copy, parameters.to(compute.device())) }
    }

    /// The same for strings of another length.
    pub fn of_length(mut self, length: usize) -> Self {
        self.config.length = length;
        self
    }

    /// What it is.
    pub fn config(&self) -> &ReverseCopyConfig {
        &self.config
    }

    /// Where it lives.
    pub fn device(&self) -> Device {
        self.output.weight.device()
    }

    /// `strings` strings of which nothing was read.
    pub fn copying(&self, strings: i64) -> Copying<'_> {
        Copying { copier: self, state: self.start(strings), writes: false }
    }

    /// The state before the first token, of so many lanes.
    fn start(&self, lanes: i64) -> State {
        let options = (self.output.weight.kind(), self.output.weight.device());
        let zeros = || Tensor::zeros([lanes, self.config.d_model as i64], options);
        State { hidden: zeros(), cell: zeros() }
    }

    /// `strings`, `[lanes, length]`, with the mark behind each.
    fn ended(&self, strings: &Tensor) -> Tensor {
        let marks = strings.narrow(1, 0, 1).full_like(self.config.end());
        Tensor::cat(&[strings, &marks], 1)
    }

    /// What is to be written of `strings`, `[lanes, length]`: the tokens from the last to the first, and the mark.
    fn targets(&self, strings: &Tensor) -> Tensor {
        self.ended(&strings.flip([1]))
    }

    /// What the decoder reads before each of `targets`, `[lanes, positions]`: the mark, and all but the last of them.
    fn inputs(&self, targets: &Tensor) -> Tensor {
        let marks = targets.narrow(1, 0, 1).full_like(self.config.end());
        Tensor::cat(&[&marks, &targets.narrow(1, 0, targets.size()[1] - 1)], 1)
    }

    /// What predicts the token after each of `inputs`, `[lanes, positions]`, of those who have read `strings`, `[lanes, length]`, whole:
    /// `[positions, lanes, e]`.
    fn predicting(&self, strings: &Tensor, inputs: &Tensor) -> Tensor {
        let (_, read) = self.encoder.read(&self.ended(strings), self.start(strings.size()[0]));
        let (states, _) = self.decoder.read(inputs, read);
        self.projected(states)
    }

    /// What predicts tokens, `[positions, lanes, e]`, of the decoder's outputs, `[positions, lanes, n]`.
    fn projected(&self, states: Tensor) -> Tensor {
        match &self.projection {
            Some(projection) => self.kernels.linear(&states, projection, None),
            None => states,
        }
    }

    /// ln P of every token by what predicts it, `[positions, lanes, e]`: `[positions, lanes, words]`.
    fn scored(&self, vectors: &Tensor) -> Tensor {
        let scores = self.kernels.linear(vectors, &self.output.weight, self.output.bias.as_ref());
        widened(&scores).log_softmax(-1, None::<Kind>)
    }

    /// ln P of every token after each of `inputs`, `[lanes, positions]`: `[lanes, positions, words]`.
    fn log_probs(&self, strings: &Tensor, inputs: &Tensor) -> Tensor {
        self.scored(&self.predicting(strings, inputs)).transpose(0, 1)
    }

    /// −ln P of each target, `[positions · lanes]`.
    fn nll(&self, strings: &Tensor) -> Tensor {
        let targets = self.targets(strings);
        let vectors = self.predicting(strings, &self.inputs(&targets));
        let flat = vectors.reshape([-1, vectors.size()[2]]);
        let flat_targets = targets.transpose(0, 1).reshape([-1]);
        let words = [self.output.map(Tensor::shallow_clone)];
        cross_entropy::nll(self.kernels, &flat, &words, &flat_targets, None)
    }

    /// How well it writes `strings`, `[lanes, length]`.
    pub fn score(&self, strings: &Tensor) -> Score {
        let _no_graph = tch::no_grad_guard();
        let targets = self.targets(strings);
        let log_probs = self.log_probs(strings, &self.inputs(&targets));
        let right = log_probs.argmax(-1, false).eq_tensor(&targets);
        let sum = |x: &Tensor| x.sum(Kind::Double).double_value(&[]);
        Score {
            nats: -sum(&log_probs.gather(2, &targets.unsqueeze(2), false)),
            tokens: sum(&right.narrow(1, 0, self.config.length as i64)),
            strings: sum(&right.all_dim(1, false)),
        }
    }
}

/// Strings that are being copied, a row each.
pub struct Copying<'a> {
    copier: &'a Copier,
    /// Of the encoder while strings are read, then of the decoder.
    state: State,
    /// Whether the strings were read whole.
    writes: bool,
}

impl Copying<'_> {
    /// Lets one of the networks read `ids`, `[rows, positions]`; gives its outputs, `[positions, rows, n]`.
    fn read_by(&mut self, network: &Network, ids: &Tensor) -> Tensor {
        let _no_graph = tch::no_grad_guard();
        let (hidden, cell) = (self.state.hidden.shallow_clone(), self.state.cell.shallow_clone());
        let (states, after) = network.read(ids, State { hidden, cell });
        self.state = after;
        states
    }
}

impl Decoder for Copying<'_> {
    fn read(&mut self, ids: &Tensor) {
        let network = if self.writes { &self.copier.decoder } else { &self.copier.encoder };
        let _ = self.read_by(network, ids);
    }

    /// The first token is the mark: it ends what the encoder reads, and begins what the decoder writes.
    fn step(&mut self, last: &Tensor) -> Tensor {
        let (copier, ids) = (self.copier, last.unsqueeze(1));
        if !std::mem::replace(&mut self.writes, true) {
            let _ = self.read_by(&copier.encoder, &ids);
        }
        let states = self.read_by(&copier.decoder, &ids);
        tch::no_grad(|| copier.scored(&copier.projected(states)).squeeze_dim(0))
    }

    fn keep(&mut self, rows: &Tensor) {
        let State { hidden, cell } = &self.state;
        self.state = State { hidden: hidden.index_select(0, rows), cell: cell.index_select(0, rows) };
    }

    fn device(&self) -> Device {
        self.copier.device()
    }
}

impl Learner for Copier {
    /// Strings, `[micro_batch, length]` of each micro-step.
    type Batch = Vec<Tensor>;
    /// A string knows nothing of those before it.
    type Carry = ();

    fn networks(&self) -> Vec<(&'static str, &Parameters)> {
        vec![("model", &self.parameters)]
    }

    fn start(&self, _: i64) {}

    fn loss(&self, _: &Turn, batch: &Vec<Tensor>, micro_step: usize, (): &(), _: &Noise) -> Loss<()> {
        let nll = self.nll(&batch[micro_step]);
        let (sum, weight) = (nll.sum(None::<Kind>), nll.numel() as f64);
        let loss = Loss::of(sum, weight, None, ());
        match self.loss_over {
            LossOver::Targets => loss,
            // What is trained is divided by targets, of which each string has so many.
            LossOver::Lanes => {
                let objectives = vec![&loss.reported * self.config.targets() as f64];
                Loss { objectives, ..loss }
            }
        }
    }
}

#[cfg(test)]
mod tests;
