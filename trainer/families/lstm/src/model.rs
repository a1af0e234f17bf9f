//! The model: embeddings, layers, and what predicts the next word (Melis 2023, §2.1 and eq. 4.1).

use segue_kernels::libtorch::stream::put;
use segue_kernels::libtorch::widened;
use segue_kernels::noise::{Noise, dropout, locked_dropout, row_dropout};
use segue_kernels::{Awaited, Kernels, Options, Parameters};
use segue_layers::adversarial::{self, Nll};
use segue_layers::cross_entropy::Words;
use segue_layers::recurrent::{Layer, State};
use segue_layers::{AdaptiveSoftmax, Adversary, Cluster, Context, Ids, Memory, NO_DOCUMENT};
use tch::{Kind, Tensor};

use super::keys::{LstmConfig, Wiring};
use super::layer;
use super::parameters::{CLUSTERS, CLUSTERS_BIAS, EMBEDDING, OUTPUT, OUTPUT_BIAS, PROJECTION};

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
    embedding: Awaited<Tensor>,
    layers: Vec<Awaited<Box<dyn Layer>>>,
    /// What they are built over, again where their weights are dropped.
    parameters: Parameters,
    /// `[e, n]`
    projection: Awaited<Option<Tensor>>,
    mixture: Awaited<Option<Mixture>>,
    /// `[vocab_size, e]`
    output: Awaited<Tensor>,
    /// `[vocab_size]`
    bias: Awaited<Tensor>,
    /// Of all words, or split; not that of a mixture.
    softmax: Awaited<AdaptiveSoftmax>,
    kernels: Kernels,
    /// Of all that is made while it computes.
    options: Options,
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

/// Positions of all lanes one below the other: `[lanes, segment, n]` to `[lanes · segment, n]`.
fn flat(hidden: &Tensor) -> Tensor {
    hidden.reshape([-1, hidden.size()[2]])
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
    /// The same before its dropout.
    pub undropped: Tensor,
    /// The embeddings, and the output of each layer, without dropout: `[lanes, segment, ..]` each.
    pub layers: Vec<Tensor>,
    /// The state after it, cut off from the graph.
    pub memory: Memory,
}

impl Model {
    /// Over `parameters`, which hold [`specs`](super::specs).
    pub fn new(config: &LstmConfig, parameters: &Parameters) -> Self {
        let mixture = |parameters: &Parameters| {
            config.mixes().then(|| Mixture {
                weight: parameters.get("mixture.weight"),
                bias: parameters.get("mixture.bias"),
                prior: parameters.get("mixture.prior"),
            })
        };
        let output =
            |parameters: &Parameters| parameters.find(OUTPUT).unwrap_or_else(|| parameters.get(EMBEDDING));
        let softmax = |parameters: &Parameters| {
            let cluster = |_| Cluster {
                weight: output(parameters),
                bias: parameters.get(OUTPUT_BIAS),
                projection: None,
                kernels: parameters.kernels(),
            };
            let tails = parameters
                .find(CLUSTERS)
                .map(|weight| Words { weight, bias: parameters.find(CLUSTERS_BIAS) });
            let ends: Vec<i64> = config.cluster_ends().iter().map(|&end| end as i64).collect();
            AdaptiveSoftmax::new((1..ends.len()).map(cluster).collect(), tails, ends)
        };
        let layer = |number| {
            parameters.awaited(|parameters| layer::layer(config, number, parameters, &|weight| weight))
        };
        Self {
            embedding: parameters.awaited(|parameters| parameters.get(EMBEDDING)),
            layers: (0..config.n_layer).map(layer).collect(),
            parameters: parameters.with_kernels(parameters.kernels()),
            projection: parameters.awaited(|parameters| parameters.find(PROJECTION)),
            mixture: parameters.awaited(mixture),
            output: parameters.awaited(output),
            bias: parameters.awaited(|parameters| parameters.get(OUTPUT_BIAS)),
            softmax: parameters.awaited(softmax),
            kernels: parameters.kernels(),
            options: parameters.options(),
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

    /// What each layer carries, all zero: `[lanes, samples, width]` each, of [`LstmConfig::carried_widths`].
    pub fn memory_start(&self, lanes: i64) -> Memory {
        let zeros = |width: usize| Tensor::zeros([lanes, self.samples, width as i64], self.options);
        let widths = (0..self.config.n_layer).flat_map(|layer| self.config.carried_widths(layer));
        let memory = Memory { layers: widths.map(zeros).collect(), documents: None };
        if self.keeps_marks { memory.marked(NO_DOCUMENT) } else { memory }
    }

    /// Reads `ids`, `[lanes, segment]`, from the state in `memory` on. Dropout is on where there is noise. Of a memory with several samples a
    /// lane, what comes out has a row for each, those of a lane one after another.
    pub fn forward(&self, ids: &Tensor, memory: &Memory, noise: Option<&Noise>) -> Output {
        let config = &self.config;
        let samples = memory.len().max(1);
        let rows = if samples > 1 { repeated(ids, samples) } else { ids.shallow_clone() }.transpose(0, 1);
        let dropped = self.dropped_layers(noise);
        let embedded = Tensor::embedding(&self.embedding, &rows, -1, false, false);
        let words = row_dropout(embedded.shallow_clone(), &rows, config.embedding_dropout, noise);
        let mut input = self.drop_positions(self.disturbed(&words, noise), config.input_dropout, noise);
        let (mut layers, mut states) = (vec![embedded], Vec::new());
        let mut sum: Option<Tensor> = None;
        for number in 0..self.layers.len() {
            let layer = dropped.as_ref().map_or_else(|| &*self.layers[number], |dropped| &dropped[number]);
            if number > 0 {
                input = self.drop_positions(input, config.inter_layer_dropout, noise);
            }
            let (state, mask) = self.start_of(number, memory, noise);
            let (outputs, state) = layer.forward(&input, state, mask.as_ref());
            layers.push(outputs.shallow_clone());
            let added = self.drop_positions(outputs.shallow_clone(), config.cell_output_dropout, noise);
            let total = match sum {
                Some(sum) if config.wiring != Wiring::Stack => sum + added,
                _ => added,
            };
            input = match config.wiring {
                Wiring::Skip | Wiring::Stack => outputs,
                Wiring::Residual => total.shallow_clone(),
            };
            sum = Some(total);
            states.extend([state.hidden, state.cell]);
        }
        let undropped = sum.unwrap_or(input);
        let hidden = self.drop_positions(undropped.shallow_clone(), config.output_dropout, noise);
        Output {
            hidden: hidden.transpose(0, 1),
            undropped: undropped.transpose(0, 1),
            layers: layers.iter().map(|layer| layer.transpose(0, 1)).collect(),
            memory: self.carried(&states, memory),
        }
    }

    /// The layers with weights dropped for one pass; none where nothing is dropped.
    fn dropped_layers(&self, noise: Option<&Noise>) -> Option<Vec<Box<dyn Layer>>> {
        let rate = self.config.weight_dropout;
        let noise = noise.filter(|_| rate > 0.0)?;
        Some(layer::layers(&self.config, &self.parameters, &|weight| dropout(weight, rate, Some(noise))))
    }

    /// `x`, `[positions, lanes, width]`, with dropout.
    fn drop_positions(&self, x: Tensor, rate: f64, noise: Option<&Noise>) -> Tensor {
        if self.config.locked_dropout { locked_dropout(x, 0, rate, noise) } else { dropout(x, rate, noise) }
    }

    /// What layer `number` starts from, and the mask of its state.
    fn start_of(&self, number: usize, memory: &Memory, noise: Option<&Noise>) -> (State, Option<Tensor>) {
        let [hidden, cell] = [0, 1].map(|part| {
            let table = &memory.layers[2 * number + part];
            let size = table.size();
            table.reshape([size[0] * size[1], size[2]])
        });
        let mask = self.state_mask(&hidden, noise);
        (State { hidden, cell }, mask)
    }

    /// Gates f, i and o of each layer that has such gates, `[lanes, segment, n]` each, and the memory after `ids`. No dropout.
    pub fn gates(&self, ids: &Tensor, memory: &Memory) -> (Vec<[Tensor; 3]>, Memory) {
        let output = self.forward(ids, memory, None);
        let mut gates = Vec::new();
        // Layers are read again, each from what it was given: the output of the one below, or the sum of all below.
        let mut input = output.layers[0].transpose(0, 1);
        for (number, layer) in self.layers.iter().enumerate() {
            let (start, _) = self.start_of(number, memory, None);
            let opened = layer.gates(&input, start);
            gates.extend(opened.map(|gates| gates.map(|gate| gate.transpose(0, 1))));
            let own = output.layers[number + 1].transpose(0, 1);
            input = match self.config.wiring {
                Wiring::Residual if number > 0 => input + own,
                _ => own,
            };
        }
        (gates, output.memory)
    }

    /// Embeddings with noise, where there is any.
    pub(super) fn disturbed(&self, embedded: &Tensor, noise: Option<&Noise>) -> Tensor {
        match noise.filter(|_| self.input_noise > 0.0) {
            Some(noise) => {
                let drawn = put(noise.normal(&embedded.size()), embedded.device()) * self.input_noise;
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
        let table = |state: &Tensor| {
            let size = state.size();
            state.detach().view([lanes, size[0] / lanes, size[1]])
        };
        let layers = states.iter().map(table).collect();
        Memory { layers, documents: before.documents.as_ref().map(Tensor::shallow_clone) }
    }

    /// Sets what scores are multiplied by before each softmax, those of a mixture and of clusters too; 1 in training.
    pub fn set_inverse_temperature(&mut self, factor: f64) {
        self.softmax.inverse_temperature = factor;
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
        targets: impl Into<Ids>,
        noise: Option<&Noise>,
        adversary: Option<&Adversary>,
    ) -> Nll {
        let known = targets.into();
        let targets = known.here();
        let (lanes, rows) = (targets.size()[0], hidden.size()[0]);
        let samples = rows / lanes;
        let flat = |ids: &Tensor| match samples > 1 {
            true => repeated(ids, samples).reshape([-1]),
            false => ids.reshape([-1]),
        };
        let flat_ids = known.map(flat);
        let flat_targets = flat_ids.here();
        let nll = match (&*self.mixture, adversary) {
            (Some(mixture), Some(adversary)) if adversary.moves() => {
                self.mixed_against(mixture, hidden, flat_targets, noise, adversary)
            }
            // Mixed from scores of all words, which other kernels round otherwise.
            (Some(mixture), _) => {
                let log_probs = self.mixed(mixture, hidden, noise);
                let nll = -log_probs.gather(1, &flat_targets.unsqueeze(1), false).squeeze_dim(1);
                Nll::unmoved(nll, adversary)
            }
            (None, _) => self.softmax.nll(&self.projected(hidden, noise), flat_ids, adversary),
        };
        if samples > 1 {
            let each = [lanes, samples, targets.size()[1]];
            return nll.map(|nll| over_samples(&nll.view(each)));
        }
        nll.map(|nll| nll.view(targets.size().as_slice()))
    }

    /// ln P of every next word: `[lanes, segment, vocab_size]`, for `hidden` of `[lanes, segment, n]`.
    pub fn log_probs(&self, hidden: &Tensor) -> Tensor {
        self.log_probs_with(hidden, None)
    }

    /// The same with dropout of what is projected where there is noise.
    pub fn log_probs_with(&self, hidden: &Tensor, noise: Option<&Noise>) -> Tensor {
        let size = hidden.size();
        let log_probs = match &*self.mixture {
            Some(mixture) => self.mixed(mixture, hidden, noise),
            None => self.softmax.log_probs(&self.projected(hidden, noise)),
        };
        log_probs.view([size[0], size[1], -1])
    }

    /// `[lanes, segment, n]` to vectors as wide as the embeddings, `[lanes · segment, e]`.
    fn projected(&self, hidden: &Tensor, noise: Option<&Noise>) -> Tensor {
        let flat = flat(hidden);
        match &*self.projection {
            Some(projection) => {
                self.drop_projected(self.kernels.linear(&flat, projection, None), hidden.size()[0], noise)
            }
            None => flat,
        }
    }

    /// What is projected, `[lanes · segment, width]`, with dropout.
    fn drop_projected(&self, x: Tensor, lanes: i64, noise: Option<&Noise>) -> Tensor {
        let rate = self.config.projected_dropout();
        if !self.config.locked_dropout {
            return dropout(x, rate, noise);
        }
        let size = x.size();
        locked_dropout(x.view([lanes, -1, size[1]]), 1, rate, noise).view(size.as_slice())
    }

    /// `[.., e]` to scores of all words.
    fn scores(&self, vectors: &Tensor) -> Tensor {
        let scores = widened(&self.kernels.linear(vectors, &self.output, Some(&self.bias)));
        match self.softmax.inverse_temperature {
            1.0 => scores,
            factor => scores * factor,
        }
    }

    /// ln Σ_k π_k softmax(E tanh(W_k y + b_k) + b), `[lanes · segment, vocab_size]`, of `hidden`, `[lanes, segment, n]` (Yang et al. 2018,
    /// eq. 4).
    fn mixed(&self, mixture: &Mixture, hidden: &Tensor, noise: Option<&Noise>) -> Tensor {
        let (vectors, log_priors) = self.experts(mixture, hidden, noise);
        mix(&self.scores(&vectors), &log_priors)
    }

    /// What experts say, `[lanes · segment, experts, e]`, and the logarithms of their weights, `[lanes · segment, experts]`.
    fn experts(&self, mixture: &Mixture, hidden: &Tensor, noise: Option<&Noise>) -> (Tensor, Tensor) {
        let (experts, e) = (mixture.prior.size()[0], self.output.size()[1]);
        let flat = flat(hidden);
        let vectors = self.kernels.linear(&flat, &mixture.weight, Some(&mixture.bias)).tanh();
        let vectors = self.drop_projected(vectors, hidden.size()[0], noise).view([-1, experts, e]);
        let log_priors =
            widened(&self.kernels.linear(&flat, &mixture.prior, None)).log_softmax(-1, None::<Kind>);
        (vectors, log_priors)
    }

    /// −ln P of `targets`, `[lanes · segment]`, of a mixture in whose every softmax the target's vector moves against that expert's own.
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
