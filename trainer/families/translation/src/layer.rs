//! A layer of either half: attention to the text itself, in the decoder to the source, and a feed-forward block (Vaswani et al. 2017, §3.1).

use segue_kernels::noise::Noise;
use segue_kernels::{Init, Kernels, ParameterSpec, Parameters};
use segue_layers::activation::activate_map;
use segue_layers::attention::multi_head::{Map, MultiHead};
use segue_layers::norm::Stream;
use segue_layers::{Activation, Residual};
use tch::Tensor;

use super::keys::TranslationConfig;
use super::side::{EPSILON, Side};

/// Uniform with variance 2 / (in + out) (Glorot and Bengio 2010, eq. 16).
fn glorot([out, width]: [i64; 2]) -> Init {
    Init::Uniform { range: (6.0 / (out + width) as f64).sqrt() }
}

/// A layer of encoder or decoder.
pub struct Layer {
    attention: (MultiHead, Residual),
    /// Of the decoder: attention to the source.
    to_source: Option<(MultiHead, Residual)>,
    feed_forward: FeedForward,
    around: Residual,
}

impl Layer {
    /// Parameters of layer `index`, in the order of the forward pass.
    pub fn specs(config: &TranslationConfig, side: Side, index: usize) -> Vec<ParameterSpec> {
        let (prefix, width) = (side.layer(index), config.d_model as i64);
        let attention = |name: &str| {
            let name = format!("{prefix}.{name}");
            let mut specs = MultiHead::specs(&name, width, glorot([width; 2]), config.attention_bias);
            specs.extend(Residual::specs(&format!("{name}_layer_norm"), width));
            specs
        };
        let mut specs = attention("self_attn");
        if side == Side::Decoder {
            specs.extend(attention("encoder_attn"));
        }
        let [.., inner] = side.sizes(config);
        specs.extend(FeedForward::specs(&prefix, width, inner as i64));
        specs.extend(Residual::specs(&format!("{prefix}.final_layer_norm"), width));
        specs
    }

    /// Layer `index` over `parameters`.
    pub fn new(config: &TranslationConfig, parameters: &Parameters, side: Side, index: usize) -> Self {
        let (prefix, [_, heads, _]) = (side.layer(index), side.sizes(config));
        let residual = |name: String| Residual::new(parameters, &name, EPSILON, config.norm, config.dropout);
        let attention = |name: &str| {
            let name = format!("{prefix}.{name}");
            let heads = MultiHead::new(parameters, &name, heads as i64, config.attention_dropout);
            (heads, residual(format!("{name}_layer_norm")))
        };
        Self {
            attention: attention("self_attn"),
            to_source: (side == Side::Decoder).then(|| attention("encoder_attn")),
            feed_forward: FeedForward::new(config, parameters, &prefix),
            around: residual(format!("{prefix}.final_layer_norm")),
        }
    }

    /// States `[batch, length, d_model]` after this layer. `mask` hides positions of the text itself; of a decoder `source` is what it reads, and what hides
    /// padding there.
    pub fn forward(
        &self,
        stream: Stream,
        mask: Option<&Tensor>,
        source: Option<(&Tensor, Option<&Tensor>)>,
        noise: Option<&Noise>,
    ) -> Stream {
        let (heads, around) = &self.attention;
        let own = around.input(&stream);
        let read = heads.read(&own, &heads.key_values(&own), mask, noise);
        let mut stream = around.add(&read, &heads.out, &stream, noise);
        if let (Some((heads, around)), Some((source, mask))) = (&self.to_source, source) {
            let read = heads.read(&around.input(&stream), &heads.key_values(source), mask, noise);
            stream = around.add(&read, &heads.out, &stream, noise);
        }
        self.feed(stream, noise)
    }

    /// The feed-forward block with its surroundings.
    pub fn feed(&self, stream: Stream, noise: Option<&Noise>) -> Stream {
        let inner = self.feed_forward.inner(&self.around.input(&stream), noise);
        self.around.add(&inner, &self.feed_forward.outer, &stream, noise)
    }

    /// Attention to the text itself.
    pub fn attention(&self) -> &(MultiHead, Residual) {
        &self.attention
    }

    /// Attention to the source, of a decoder's layer.
    pub fn to_source(&self) -> Option<&(MultiHead, Residual)> {
        self.to_source.as_ref()
    }
}

/// Two linear maps with an activation between them: `PREFIX.fc1`, `PREFIX.fc2`.
pub struct FeedForward {
    kernels: Kernels,
    /// `[inner, d_model]`, `[inner]`
    first: (Tensor, Tensor),
    outer: Map,
    activation: Activation,
    rate: f64,
}

impl FeedForward {
    fn specs(prefix: &str, width: i64, inner: i64) -> Vec<ParameterSpec> {
        let map = |name: &str, shape| Map::specs(&format!("{prefix}.{name}"), shape, glorot(shape), true);
        [map("fc1", [inner, width]), map("fc2", [width, inner])].concat()
    }

    fn new(config: &TranslationConfig, parameters: &Parameters, prefix: &str) -> Self {
        let get = |name: &str| parameters.get(&format!("{prefix}.fc1.{name}"));
        Self {
            kernels: parameters.kernels(),
            first: (get("weight"), get("bias")),
            outer: Map::new(parameters, &format!("{prefix}.fc2")),
            activation: config.activation_function,
            rate: config.activation_dropout,
        }
    }

    /// What the outer map reads, `[.., inner]`.
    fn inner(&self, x: &Tensor, noise: Option<&Noise>) -> Tensor {
        activate_map(self.kernels, x, &self.first, self.activation, self.rate, noise)
    }
}
