//! The Transformer, in the order of its paper (Vaswani et al. 2017): embeddings with positions, encoder, decoder.

use segue_kernels::libtorch::widened;
use segue_kernels::noise::{Noise, dropout};
use segue_kernels::{Init, Kernels, ParameterSpec, Parameters};
use segue_layers::cross_entropy::Words;
use segue_layers::norm::{Norm, Stream};
use segue_layers::{NormPlace, Residual, attention_mask, position_vectors};
use tch::{Device, Kind, Tensor};

use super::keys::TranslationConfig;
use super::layer::Layer;
use super::side::{EPSILON, Side};

/// Name of the table of words, and of the bias of each in the softmax.
pub const TABLE: &str = "model.shared.weight";
pub const OUTPUT_BIAS: &str = "final_logits_bias";

/// Every parameter, in the order of the forward pass: one table of words, layers, and where norms come first one more at the end of each half.
pub fn specs(config: &TranslationConfig) -> Vec<ParameterSpec> {
    let (words, width) = (config.vocab_size as i64, config.d_model as i64);
    let spec =
        |name: &str, shape: &[i64], init| ParameterSpec { name: name.into(), shape: shape.to_vec(), init };
    let std = (width as f64).powf(-0.5);
    let mut specs = vec![spec(TABLE, &[words, width], Init::Normal { mean: 0.0, std })];
    for side in [Side::Encoder, Side::Decoder] {
        let [layers, ..] = side.sizes(config);
        specs.extend((0..layers).flat_map(|index| Layer::specs(config, side, index)));
        if config.norm == NormPlace::Pre {
            specs.extend(Residual::specs(&side.last_norm(), width));
        }
    }
    if config.output_bias {
        specs.push(spec(OUTPUT_BIAS, &[1, words], Init::Zeros));
    }
    specs
}

/// A Transformer that translates.
pub struct Transformer {
    config: TranslationConfig,
    kernels: Kernels,
    /// `[words, d_model]`
    table: Tensor,
    /// `[1, words]`
    output_bias: Option<Tensor>,
    encoder: Vec<Layer>,
    decoder: Vec<Layer>,
    /// After the layers of each half, where norms come first.
    last_norms: Option<[Norm; 2]>,
}

impl Transformer {
    /// Over `parameters`, which hold [`specs`].
    pub fn new(config: &TranslationConfig, parameters: &Parameters) -> Self {
        let layers = |side: Side| {
            let [layers, ..] = side.sizes(config);
            (0..layers).map(|index| Layer::new(config, parameters, side, index)).collect()
        };
        let norm = |side: Side| Norm::named(parameters, &side.last_norm(), EPSILON);
        Self {
            config: config.clone(),
            kernels: parameters.kernels(),
            table: parameters.get(TABLE),
            output_bias: parameters.find(OUTPUT_BIAS),
            encoder: layers(Side::Encoder),
            decoder: layers(Side::Decoder),
            last_norms: (config.norm == NormPlace::Pre).then(|| [Side::Encoder, Side::Decoder].map(norm)),
        }
    }

    /// Its configuration.
    pub fn config(&self) -> &TranslationConfig {
        &self.config
    }

    /// Device of its parameters.
    pub fn device(&self) -> Device {
        self.table.device()
    }

    /// Embeddings and positions of `ids`, `[batch, length]`, the first of which stands at position `first`: `[batch, length, d_model]`.
    fn embed(&self, ids: &Tensor, first: i64, noise: Option<&Noise>) -> Stream {
        let width = self.config.d_model as i64;
        let words = Tensor::embedding(&self.table, ids, -1, false, false);
        let scale = if self.config.scale_embedding { (width as f64).sqrt() } else { 1.0 };
        let positions = position_vectors(first, ids.size()[1], width, (words.kind(), words.device()));
        let states = dropout(words * scale + positions, self.config.dropout, noise);
        self.config.norm.stream(states, self.kernels)
    }

    fn normed(&self, stream: Stream, side: Side) -> Tensor {
        match &self.last_norms {
            Some(norms) => norms[side as usize].forward(&stream.whole),
            None => stream.whole,
        }
    }

    /// States of a source, `[batch, source]`, of which `mask`, `[batch, 1, source]`, hides padding: `[batch, source, d_model]`.
    pub fn encode(&self, ids: &Tensor, mask: Option<&Tensor>, noise: Option<&Noise>) -> Tensor {
        let mut stream = self.embed(ids, 0, noise);
        for layer in &self.encoder {
            stream = layer.forward(stream, mask, None, noise);
        }
        self.normed(stream, Side::Encoder)
    }

    /// States that predict what comes after each of `ids`, `[batch, target]`, of those who have read `source`, `[batch, source, d_model]`:
    /// `[batch, target, d_model]`. `mask` hides the source's padding.
    pub fn decode(
        &self,
        ids: &Tensor,
        source: &Tensor,
        mask: Option<&Tensor>,
        noise: Option<&Noise>,
    ) -> Tensor {
        let mut stream = self.embed(ids, 0, noise);
        let causal = attention_mask(ids.size()[1], 0, None, (Kind::Float, self.device()));
        let causal = causal.to_kind(stream.whole.kind()).unsqueeze(0);
        let source = stream.beside(source);
        for layer in &self.decoder {
            stream = layer.forward(stream, Some(&causal), Some((&source, mask)), noise);
        }
        self.normed(stream, Side::Decoder)
    }

    /// The words that states predict, and what scores them.
    pub fn words(&self) -> Words {
        Words {
            weight: self.table.shallow_clone(),
            bias: self.output_bias.as_ref().map(|bias| bias.view([-1])),
        }
    }

    /// ln P of every word by the states that predict it, `[.., d_model]`: `[.., words]`, of single precision at least.
    pub fn log_probs(&self, states: &Tensor) -> Tensor {
        let Words { weight, bias } = self.words();
        let scores = self.kernels.linear(states, &weight, bias.as_ref());
        widened(&scores).log_softmax(-1, None::<Kind>)
    }

    /// Layers of the decoder.
    pub(super) fn decoder_layers(&self) -> &[Layer] {
        &self.decoder
    }

    /// States of one more token of each text, `[rows]`, at position `position`, which the layers' `step` takes through: `[rows, d_model]`.
    pub(super) fn step(
        &self,
        last: &Tensor,
        position: i64,
        mut step: impl FnMut(usize, &Layer, Stream) -> Stream,
    ) -> Tensor {
        let mut stream = self.embed(&last.unsqueeze(1), position, None);
        for (index, layer) in self.decoder.iter().enumerate() {
            stream = step(index, layer, stream);
        }
        self.normed(stream, Side::Decoder).squeeze_dim(1)
    }
}

/// 0 where a text has a token, −∞ where it is padded, `[batch, 1, length]`; `None` where all `lengths` are `length`.
pub fn padding_mask(lengths: &[i64], length: i64, device: Device) -> Option<Tensor> {
    if lengths.iter().all(|own| *own == length) {
        return None;
    }
    let lengths = Tensor::from_slice(lengths).view([-1, 1, 1]).to_device(device);
    let hidden = Tensor::arange(length, (Kind::Int64, device)).ge_tensor(&lengths);
    Some(Tensor::zeros(hidden.size(), (Kind::Float, device)).masked_fill(&hidden, f64::NEG_INFINITY))
}

#[cfg(test)]
pub(super) mod tests;
