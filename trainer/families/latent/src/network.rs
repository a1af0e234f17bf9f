//! Networks of a model with latent variables: one reads a sentence and tells what its latent variables may be, the other writes it from these (Melis 2023, §5.7.1 and §5.7.2).

mod feedforward;

use schemars::JsonSchema;
use segue_kernels::noise::Noise;
use segue_kernels::{Init, Kernels, ParameterSpec, Parameters};
use segue_layers::cross_entropy::{self, Words};
use segue_layers::recurrent::{Layer, State};
use segue_lstm::{LstmConfig, layer_below, layer_specs, table_law};
use serde::{Deserialize, Serialize};
use tch::{Kind, Tensor};

use self::feedforward::Feedforward;
use crate::latents::{Categorical, Gaussian};

/// What networks are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NetworkKind {
    /// Of sentences: a bidirectional LSTM reads one, an LSTM writes it (Melis 2023, §5.7.2).
    #[default]
    Recurrent,
    /// Of single symbols: layers with tanh (§5.7.1).
    Feedforward,
}

/// The latent variables of a sentence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LatentSizes {
    /// Normal ones, whose values the decoder reads.
    Gaussian {
        /// How many.
        count: i64,
        /// ln σ² that q has at most, if it is bounded.
        largest_log_variance: Option<f64>,
    },
    /// Ones of several values each; the decoder reads the sum of a vector for each.
    Categorical {
        /// How many.
        count: i64,
        /// Values of each.
        values: i64,
        /// Width of their vectors.
        width: i64,
    },
    /// Vectors of a codebook, the nearest ones to what the encoder tells; the decoder reads their sum.
    Codebook {
        /// How many.
        count: i64,
        /// Vectors that each may be.
        values: i64,
        /// Their width.
        width: i64,
    },
}

impl LatentSizes {
    /// Numbers that the encoder tells of a sentence.
    fn parameters(self) -> i64 {
        match self {
            Self::Gaussian { count, .. } => 2 * count,
            Self::Categorical { count, values, .. } => count * values,
            Self::Codebook { count, width, .. } => count * width,
        }
    }

    /// Width of what the decoder reads of them.
    pub fn width(self) -> i64 {
        match self {
            Self::Gaussian { count, .. } => count,
            Self::Categorical { width, .. } | Self::Codebook { width, .. } => width,
        }
    }
}

/// Sizes of both networks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sizes {
    /// What they are made of.
    pub network: NetworkKind,
    /// Tokens of the vocabulary.
    pub words: i64,
    /// Width of their vectors, in each network its own.
    pub embed: i64,
    /// Units of the encoder, in each direction or layer.
    pub encoder: i64,
    /// Units of the decoder.
    pub decoder: i64,
    /// What is between them.
    pub latents: LatentSizes,
}

impl Sizes {
    fn layer(&self, inputs: i64, units: i64) -> LstmConfig {
        LstmConfig { d_embed: inputs as usize, d_model: units as usize, n_layer: 1, ..Default::default() }
    }

    fn encoder_layer(&self) -> LstmConfig {
        self.layer(self.embed, self.encoder)
    }

    fn decoder_layer(&self) -> LstmConfig {
        self.layer(self.embed + self.latents.width(), self.decoder)
    }

    /// Parameters of the encoder.
    pub fn encoder_specs(&self) -> Vec<ParameterSpec> {
        let mut specs = vec![table(ENCODER_TABLE, [self.words, self.embed])];
        match self.network {
            NetworkKind::Recurrent => {
                let layer = self.encoder_layer();
                specs.extend(DIRECTIONS.iter().flat_map(|prefix| layer_specs(&layer, 0, prefix)));
            }
            NetworkKind::Feedforward => {
                specs.extend(Feedforward::specs(ENCODER_HIDDEN, &[self.embed, self.encoder, self.encoder]));
            }
        }
        specs.extend(affine(POSTERIOR, [self.latents.parameters(), self.encoder]));
        specs
    }

    /// Widths of a decoder without recurrence, from what it reads: sums of vectors have been through a table, and one layer less.
    fn decoder_widths(&self) -> Vec<i64> {
        let layers = if matches!(self.latents, LatentSizes::Gaussian { .. }) { 2 } else { 1 };
        [self.latents.width()].into_iter().chain(std::iter::repeat_n(self.decoder, layers)).collect()
    }

    /// Parameters of the decoder.
    pub fn decoder_specs(&self) -> Vec<ParameterSpec> {
        let mut specs = Vec::new();
        if let LatentSizes::Categorical { count, values, width } = self.latents {
            specs.push(table(LATENT_TABLE, [count * values, width]));
        }
        match self.network {
            NetworkKind::Recurrent => {
                specs.push(table(DECODER_TABLE, [self.words, self.embed]));
                specs.extend(layer_specs(&self.decoder_layer(), 0, DECODER));
            }
            NetworkKind::Feedforward => {
                specs.extend(Feedforward::specs(DECODER_HIDDEN, &self.decoder_widths()))
            }
        }
        specs.extend(affine(OUTPUT, [self.words, self.decoder]));
        specs
    }
}

const ENCODER_TABLE: &str = "encoder.embedding.weight";
const DIRECTIONS: [&str; 2] = ["encoder.forward.", "encoder.backward."];
const ENCODER_HIDDEN: &str = "encoder.hidden";
const DECODER_HIDDEN: &str = "decoder.hidden";
const POSTERIOR: &str = "encoder.posterior";
const DECODER_TABLE: &str = "decoder.embedding.weight";
const LATENT_TABLE: &str = "decoder.latents.weight";
const DECODER: &str = "decoder.layer.";
const OUTPUT: &str = "decoder.output";

fn table(name: &str, shape: [i64; 2]) -> ParameterSpec {
    let init = table_law(&LstmConfig::default(), shape[1]);
    ParameterSpec { name: name.into(), shape: shape.to_vec(), init }
}

fn affine(name: &str, [outputs, inputs]: [i64; 2]) -> [ParameterSpec; 2] {
    let weight = Init::TruncatedNormal { mean: 0.0, std: (inputs as f64).powf(-0.5) };
    let spec = |part: &str, shape, init| ParameterSpec { name: format!("{name}.{part}"), shape, init };
    [spec("weight", vec![outputs, inputs], weight), spec("bias", vec![outputs], Init::Zeros)]
}

/// Sentences side by side, each with its end.
#[derive(Debug)]
pub struct Sentences {
    /// Ids of tokens, `[sentences, positions]`; behind the end of a sentence there may be any.
    pub ids: Tensor,
    /// How many tokens each has: `[sentences]`.
    pub lengths: Tensor,
    /// The id that ends sentences, and stands before the first token that is written.
    pub end: i64,
}

impl Sentences {
    /// Which places have a token: `[sentences, positions]`.
    fn are_there(&self) -> Tensor {
        let places = Tensor::arange(self.ids.size()[1], (Kind::Int64, self.ids.device()));
        places.unsqueeze(0).less_tensor(&self.lengths.unsqueeze(1))
    }

    /// The same from the last token to the first; places behind the end stay as they are.
    fn reversed(&self) -> Tensor {
        let places = Tensor::arange(self.ids.size()[1], (Kind::Int64, self.ids.device())).unsqueeze(0);
        let mirrored = self.lengths.unsqueeze(1) - 1 - &places;
        self.ids.gather(1, &mirrored.where_self(&self.are_there(), &places), false)
    }

    /// What is read before each token is written: the end, and all tokens but the last.
    fn inputs(&self) -> Tensor {
        let ends = self.ids.narrow(1, 0, 1).full_like(self.end);
        Tensor::cat(&[&ends, &self.ids.narrow(1, 0, self.ids.size()[1] - 1)], 1)
    }
}

/// What a sentence says of its latent variables.
#[derive(Debug)]
pub enum Posterior {
    /// Of normal ones.
    Gaussian(Gaussian),
    /// Of those of several values.
    Categorical(Categorical),
    /// Of vectors of a codebook, what is to be near them: `[sentences, latents, width]`.
    Codebook(Tensor),
}

/// What reads a sentence.
enum Reading {
    /// Layers from the first token on, and from the last.
    Recurrent([Box<dyn Layer>; 2]),
    /// Layers over the first token.
    Feedforward(Feedforward),
}

/// q(z | x).
pub struct Encoder {
    latents: LatentSizes,
    table: Tensor,
    reading: Reading,
    weight: Tensor,
    bias: Tensor,
    kernels: Kernels,
}

fn zeros(like: &Tensor, lanes: i64, units: i64) -> State {
    let zeros = || Tensor::zeros([lanes, units], (like.kind(), like.device()));
    State { hidden: zeros(), cell: zeros() }
}

/// Vectors of `ids`, `[sentences, positions]`: `[positions, sentences, width]`.
fn embedded(table: &Tensor, ids: &Tensor) -> Tensor {
    Tensor::embedding(table, &ids.transpose(0, 1), -1, false, false)
}

impl Encoder {
    /// Over its parameters, which have [`Sizes::encoder_specs`].
    pub fn new(sizes: &Sizes, parameters: &Parameters) -> Self {
        let config = sizes.encoder_layer();
        let layer = |prefix: &str| layer_below(&config, (0, prefix), parameters, &|weight| weight);
        let reading = match sizes.network {
            NetworkKind::Recurrent => Reading::Recurrent(DIRECTIONS.map(layer)),
            NetworkKind::Feedforward => Reading::Feedforward(Feedforward::new(ENCODER_HIDDEN, parameters)),
        };
        Self {
            latents: sizes.latents,
            table: parameters.get(ENCODER_TABLE),
            reading,
            weight: parameters.get(&format!("{POSTERIOR}.weight")),
            bias: parameters.get(&format!("{POSTERIOR}.bias")),
            kernels: parameters.kernels(),
        }
    }

    /// What is read of each sentence, `[sentences, units]`: of layers that recur, the mean of the states behind the last token and, read backwards, the first.
    fn read(&self, sentences: &Sentences) -> Tensor {
        let layers = match &self.reading {
            Reading::Recurrent(layers) => layers,
            Reading::Feedforward(layers) => {
                let first = embedded(&self.table, &sentences.ids.narrow(1, 0, 1)).squeeze_dim(0);
                return layers.forward(first);
            }
        };
        let (count, units) = (sentences.ids.size()[0], self.weight.size()[1]);
        let last = (&sentences.lengths - 1).view([1, count, 1]).expand([1, count, units], false);
        let states = [&sentences.ids, &sentences.reversed()].map(|ids| embedded(&self.table, ids));
        let [forward, backward] = std::array::from_fn(|way| {
            let (outputs, _) = layers[way].forward(&states[way], zeros(&self.table, count, units), None);
            outputs.gather(0, &last, false).squeeze_dim(0)
        });
        (forward + backward) * 0.5
    }

    /// q(z | x) of each sentence.
    pub fn posterior(&self, sentences: &Sentences) -> Posterior {
        let told = self.kernels.linear(&self.read(sentences), &self.weight, Some(&self.bias));
        match self.latents {
            LatentSizes::Gaussian { largest_log_variance, .. } => {
                let halves = told.chunk(2, 1);
                let [mean, mut log_variance] = [0, 1].map(|half| halves[half].shallow_clone());
                if let Some(largest) = largest_log_variance {
                    log_variance = largest - (-log_variance).softplus();
                }
                Posterior::Gaussian(Gaussian { mean, log_variance })
            }
            LatentSizes::Categorical { count, values, .. } => {
                Posterior::Categorical(Categorical { logits: told.view([-1, count, values]) })
            }
            LatentSizes::Codebook { count, width, .. } => Posterior::Codebook(told.view([-1, count, width])),
        }
    }
}

/// Rates of the decoder's dropout.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Dropout {
    /// Of its input, with a new mask at each position.
    pub input: f64,
    /// Of its recurrent state, with one mask for all positions (Gal and Ghahramani 2016).
    pub state: f64,
    /// Of its output, before the softmax, with a new mask at each position.
    pub output: f64,
    /// All samples of a sentence have the same masks (§5.7.2).
    pub shared: bool,
}

/// What writes a sentence.
enum Writing {
    /// A table of words, and a layer that reads them one after the other.
    Recurrent(Tensor, Box<dyn Layer>),
    /// Layers over the latents, for one token.
    Feedforward(Feedforward),
}

/// p(x | z).
pub struct Decoder {
    latents: LatentSizes,
    of_latents: Option<Tensor>,
    writing: Writing,
    output: Words,
    kernels: Kernels,
}

impl Decoder {
    /// Over its parameters, which have [`Sizes::decoder_specs`].
    pub fn new(sizes: &Sizes, parameters: &Parameters) -> Self {
        let bias = Some(parameters.get(&format!("{OUTPUT}.bias")));
        let writing = match sizes.network {
            NetworkKind::Recurrent => {
                let layer = layer_below(&sizes.decoder_layer(), (0, DECODER), parameters, &|weight| weight);
                Writing::Recurrent(parameters.get(DECODER_TABLE), layer)
            }
            NetworkKind::Feedforward => Writing::Feedforward(Feedforward::new(DECODER_HIDDEN, parameters)),
        };
        Self {
            latents: sizes.latents,
            of_latents: parameters.find(LATENT_TABLE),
            writing,
            output: Words { weight: parameters.get(&format!("{OUTPUT}.weight")), bias },
            kernels: parameters.kernels(),
        }
    }

    /// What is read of latent variables at every position: `[sentences, samples, width]`, of `z`, `[sentences, samples, latents]`; of vectors of a codebook their sum
    /// stands for these.
    pub fn read_latents(&self, z: &Tensor) -> Tensor {
        match (self.latents, &self.of_latents) {
            (LatentSizes::Categorical { count, values, .. }, Some(table)) => {
                let first = Tensor::arange(count, (Kind::Int64, z.device())) * values;
                let vectors = Tensor::embedding(table, &(z + first), -1, false, false);
                vectors.sum_dim_intlist(2, false, None::<Kind>)
            }
            _ => z.shallow_clone(),
        }
    }

    /// What dropout multiplies values by in a pass over `sentences` with as many samples each.
    pub fn masks(&self, sentences: &Sentences, samples: i64, dropout: Dropout, noise: &Noise) -> Masks {
        let Writing::Recurrent(table, _) = &self.writing else { return Masks::default() };
        let (count, positions) = (sentences.ids.size()[0], sentences.ids.size()[1]);
        let each = if dropout.shared { 1 } else { samples };
        let (units, inputs) = (self.output.weight.size()[1], table.size()[1] + self.latents.width());
        let mask = |rate: f64, shape: &[i64]| (rate > 0.0).then(|| noise.drops(rate).mask(shape, table));
        Masks {
            input: mask(dropout.input, &[positions, count, each, inputs]),
            state: mask(dropout.state, &[count, each, units]),
            output: mask(dropout.output, &[positions, count, each, units]),
        }
    }

    /// What tokens are scored by, `[positions, sentences, samples, units]`, where `inputs` are read, `[sentences, positions]`, beside `latents`,
    /// `[sentences, samples, width]`; and the state behind them.
    fn states(
        &self,
        inputs: &Tensor,
        latents: &Tensor,
        state: Option<State>,
        masks: &Masks,
    ) -> (Tensor, Option<State>) {
        let (count, positions) = (inputs.size()[0], inputs.size()[1]);
        let (samples, units) = (latents.size()[1], self.output.weight.size()[1]);
        let (table, layer) = match &self.writing {
            Writing::Recurrent(table, layer) => (table, layer),
            Writing::Feedforward(layers) => {
                return (layers.forward(latents.shallow_clone()).unsqueeze(0), None);
            }
        };
        let words = embedded(table, inputs).unsqueeze(2).expand([positions, count, samples, -1], false);
        let latents = latents.unsqueeze(0).expand([positions, count, samples, -1], false);
        let inputs = dropped(Tensor::cat(&[&words, &latents], 3), masks.input.as_ref());
        let of_states = |mask: &Tensor| mask.expand([count, samples, units], false).reshape([-1, units]);
        let mask = masks.state.as_ref().map(of_states);
        let inputs = inputs.reshape([positions, count * samples, -1]);
        let state = state.unwrap_or_else(|| zeros(table, count * samples, units));
        let (states, state) = layer.forward(&inputs, state, mask.as_ref());
        (dropped(states.view([positions, count, samples, units]), masks.output.as_ref()), Some(state))
    }

    /// −ln P of each token of each sentence written from each sample: `[positions, sentences, samples]`, 0 behind its end.
    pub fn token_losses(&self, sentences: &Sentences, z: &Tensor, masks: &Masks) -> Tensor {
        let (count, positions) = (sentences.ids.size()[0], sentences.ids.size()[1]);
        let samples = z.size()[1];
        let (states, _) = self.states(&sentences.inputs(), &self.read_latents(z), None, masks);
        let targets = sentences.ids.transpose(0, 1).unsqueeze(2).expand([positions, count, samples], false);
        let parts = [self.output.map(Tensor::shallow_clone)];
        // What fills sentences up is not scored: more than a third of all in a batch of captions.
        let there = sentences.are_there().transpose(0, 1).unsqueeze(2);
        let there = there.expand([positions, count, samples], false).reshape([-1]).nonzero().squeeze_dim(1);
        let scored = |all: Tensor| all.index_select(0, &there);
        let (states, targets) = (scored(states.flatten(0, 2)), scored(targets.reshape([-1])));
        let losses = cross_entropy::nll(self.kernels, &states, &parts, &targets, None);
        let all = losses.new_zeros([positions * count * samples], (losses.kind(), losses.device()));
        all.index_add(0, &there, &losses).view([positions, count, samples])
    }

    /// ln P of the token after `last`, `[texts]`, and after those that have led to `state`, written from `latents`, `[texts, 1, width]`: `[texts, words]`; and
    /// the state behind it.
    pub fn step(&self, last: &Tensor, latents: &Tensor, state: Option<State>) -> (Tensor, Option<State>) {
        let (states, state) = self.states(&last.unsqueeze(1), latents, state, &Masks::default());
        let Words { weight, bias } = &self.output;
        let scores = self.kernels.linear(&states.squeeze_dim(2).squeeze_dim(0), weight, bias.as_ref());
        (scores.log_softmax(-1, None::<Kind>), state)
    }

    /// ln p(x | z), `[sentences, samples]`.
    pub fn likelihood(&self, sentences: &Sentences, z: &Tensor, masks: &Masks) -> Tensor {
        -self.token_losses(sentences, z, masks).sum_dim_intlist(0, false, None::<Kind>)
    }
}

/// What dropout multiplies values by, where it does: samples of a sentence have masks of their own or one together.
#[derive(Debug, Default)]
pub struct Masks {
    /// Of the input: `[positions, sentences, samples or 1, width]`.
    input: Option<Tensor>,
    /// Of the recurrent state: `[sentences, samples or 1, units]`.
    state: Option<Tensor>,
    /// Of the output: `[positions, sentences, samples or 1, units]`.
    output: Option<Tensor>,
}

fn dropped(x: Tensor, mask: Option<&Tensor>) -> Tensor {
    match mask {
        Some(mask) => x * mask,
        None => x,
    }
}

#[cfg(test)]
mod tests;
