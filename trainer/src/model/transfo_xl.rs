//! Transformer-XL (Dai et al. 2019; thesis section 2.1, equations for one layer in 2.1.3).
//! Parameter names are those of Hugging Face's `TransfoXLLMHeadModel`.

use segue_configs::{InitKind, MemoryStart, TransfoXlConfig};
use tch::{Kind, Tensor};

use super::adaptive::{self, AdaptiveEmbedding, AdaptiveSoftmax};
use super::attention::{Context, attention_mask, inverse_frequencies, relative_shift, sinusoids};
use super::memory::Memory;
use crate::noise::{Noise, dropout};
use crate::parameters::{Init, ParameterSpec, Parameters};

/// Mean of initial LayerNorm weights.
const NORM_MEAN: f64 = 1.0;

/// What a forward pass over one segment gives.
pub struct Output {
    /// Last layer's states, `[batch, segment, d_model]`.
    pub hidden: Tensor,
    /// The memory that the next segment reads.
    pub memory: Memory,
}

/// The language model.
pub struct TransfoXl {
    config: TransfoXlConfig,
    kind: Kind,
    /// How far queries look; evaluation may change it.
    pub context: Context,
    embedding: AdaptiveEmbedding,
    layers: Vec<Layer>,
    softmax: AdaptiveSoftmax,
}

impl TransfoXl {
    /// Every parameter of the model, in the order of the forward pass.
    pub fn specs(config: &TransfoXlConfig) -> Vec<ParameterSpec> {
        let weight = match config.init {
            InitKind::Normal => Init::Normal { mean: 0.0, std: config.init_std },
            InitKind::Uniform => Init::Uniform { range: config.init_range },
        };
        let norm = Init::Normal { mean: NORM_MEAN, std: config.init_std };
        let (d, inner) = (config.d_model as i64, config.d_inner as i64);
        let (heads, width) = (config.n_head as i64, config.head_width() as i64);
        let mut out = adaptive::specs(config, weight);
        let mut add =
            |name: String, shape: &[i64], init| out.push(ParameterSpec { name, shape: shape.to_vec(), init });
        if !config.untie_r {
            add("transformer.r_w_bias".into(), &[heads, width], weight);
            add("transformer.r_r_bias".into(), &[heads, width], weight);
        }
        for layer in 0..config.n_layer {
            let attention = format!("transformer.layers.{layer}.dec_attn");
            add(format!("{attention}.qkv_net.weight"), &[3 * heads * width, d], weight);
            add(format!("{attention}.r_net.weight"), &[heads * width, d], weight);
            if config.untie_r {
                add(format!("{attention}.r_w_bias"), &[heads, width], weight);
                add(format!("{attention}.r_r_bias"), &[heads, width], weight);
            }
            add(format!("{attention}.o_net.weight"), &[d, heads * width], weight);
            add(format!("{attention}.layer_norm.weight"), &[d], norm);
            add(format!("{attention}.layer_norm.bias"), &[d], Init::Zeros);
            let feed_forward = format!("transformer.layers.{layer}.pos_ff");
            add(format!("{feed_forward}.CoreNet.0.weight"), &[inner, d], weight);
            add(format!("{feed_forward}.CoreNet.0.bias"), &[inner], Init::Zeros);
            add(format!("{feed_forward}.CoreNet.3.weight"), &[d, inner], weight);
            add(format!("{feed_forward}.CoreNet.3.bias"), &[d], Init::Zeros);
            add(format!("{feed_forward}.layer_norm.weight"), &[d], norm);
            add(format!("{feed_forward}.layer_norm.bias"), &[d], Init::Zeros);
        }
        out
    }

    /// Names under which Hugging Face also stores a parameter: `(its name, ours)`.
    pub fn aliases(config: &TransfoXlConfig) -> Vec<(String, String)> {
        let mut out = adaptive::aliases(config);
        for layer in (0..config.n_layer).filter(|_| !config.untie_r) {
            for bias in ["r_w_bias", "r_r_bias"] {
                out.push((
                    format!("transformer.layers.{layer}.dec_attn.{bias}"),
                    format!("transformer.{bias}"),
                ));
            }
        }
        out
    }

    /// Tensors that Hugging Face stores and that follow from the configuration alone.
    pub fn buffers(config: &TransfoXlConfig) -> Vec<(String, Tensor)> {
        let mut out = vec![(
            "transformer.pos_emb.inv_freq".to_string(),
            inverse_frequencies(config.d_model as i64, Kind::Float),
        )];
        out.extend(adaptive::identity_projections(config));
        out
    }

    /// The model over `parameters`, which must hold [`TransfoXl::specs`].
    pub fn new(config: &TransfoXlConfig, parameters: &Parameters) -> Self {
        Self {
            kind: parameters.tensors()[0].kind(),
            context: Context::new(config),
            embedding: AdaptiveEmbedding::new(config, parameters),
            layers: (0..config.n_layer).map(|i| Layer::new(config, parameters, i)).collect(),
            softmax: AdaptiveSoftmax::new(config, parameters),
            config: config.clone(),
        }
    }

    /// The configuration it was built from.
    pub fn config(&self) -> &TransfoXlConfig {
        &self.config
    }

    /// Maps hidden states to probabilities.
    pub fn softmax(&self) -> &AdaptiveSoftmax {
        &self.softmax
    }

    /// Memory before the first segment of `lanes` streams.
    pub fn memory_start(&self, lanes: i64) -> Memory {
        let length = match self.config.memory_start {
            MemoryStart::Zeros => self.context.mem_len,
            MemoryStart::Empty => 0,
        };
        Memory::zeros(self.layers.len(), lanes, length, self.config.d_model as i64, self.kind)
    }

    /// Runs one segment. `ids`: `[batch, segment]`; dropout is on where there is noise.
    pub fn forward(&self, ids: &Tensor, memory: &Memory, noise: Option<&Noise>) -> Output {
        let (query, mem) = (ids.size()[1], memory.len());
        let drop = |x: Tensor| dropout(x, self.config.dropout, noise);
        let d_model = self.config.d_model as i64;
        let positions = drop(sinusoids(mem + query, self.context.clamp_len, d_model, self.kind));
        let mask = attention_mask(query, mem, self.context.same_length, self.kind);
        let mut hidden = drop(self.embedding.forward(ids));
        let mut inputs = Vec::with_capacity(self.layers.len());
        for (layer, mem) in self.layers.iter().zip(&memory.layers) {
            inputs.push(hidden.shallow_clone());
            // SG of thesis 2.1.3: no gradient leaves the segment.
            hidden = layer.forward(&hidden, &mem.detach(), &positions, &mask, noise);
        }
        Output { hidden: drop(hidden), memory: memory.extended(&inputs, self.context.mem_len) }
    }

    /// −log P of each target, in nats: `[batch, segment]` for `hidden` of `[batch, segment, d_model]`
    /// and `targets` of `[batch, segment]`.
    pub fn nll(&self, hidden: &Tensor, targets: &Tensor) -> Tensor {
        let flat = hidden.reshape([-1, self.config.d_model as i64]);
        self.softmax.nll(&flat, &targets.reshape([-1])).view(targets.size().as_slice())
    }

    /// Log-probabilities of every next token: `[batch, segment, vocab_size]`.
    pub fn log_probs(&self, hidden: &Tensor) -> Tensor {
        let size = hidden.size();
        let flat = hidden.reshape([-1, size[2]]);
        self.softmax.log_probs(&flat).view([size[0], size[1], -1])
    }
}

struct Norm {
    weight: Tensor,
    bias: Tensor,
    epsilon: f64,
}

impl Norm {
    fn new(parameters: &Parameters, prefix: &str, epsilon: f64) -> Self {
        let get = |name: &str| parameters.get(&format!("{prefix}.layer_norm.{name}"));
        Self { weight: get("weight"), bias: get("bias"), epsilon }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        x.layer_norm(self.weight.size(), Some(&self.weight), Some(&self.bias), self.epsilon, true)
    }
}

/// One layer: relative attention, then the position-wise feed-forward, each with residual and norm.
struct Layer {
    heads: i64,
    width: i64,
    /// `[3 * heads * width, d_model]`: queries, keys, values.
    qkv: Tensor,
    /// `[heads * width, d_model]`: W_{k,R}.
    r: Tensor,
    /// u and v, `[heads, width]`.
    r_w_bias: Tensor,
    r_r_bias: Tensor,
    o: Tensor,
    attention_norm: Norm,
    inner: (Tensor, Tensor),
    outer: (Tensor, Tensor),
    feed_forward_norm: Norm,
    pre_norm: bool,
    dropout: f64,
    dropatt: f64,
}

impl Layer {
    fn new(config: &TransfoXlConfig, parameters: &Parameters, index: usize) -> Self {
        let attention = format!("transformer.layers.{index}.dec_attn");
        let feed_forward = format!("transformer.layers.{index}.pos_ff");
        let get = |name: &str| parameters.get(&format!("{attention}.{name}"));
        let bias = |name: &str| {
            if config.untie_r { get(name) } else { parameters.get(&format!("transformer.{name}")) }
        };
        let linear = |i: usize| {
            let get = |name: &str| parameters.get(&format!("{feed_forward}.CoreNet.{i}.{name}"));
            (get("weight"), get("bias"))
        };
        Self {
            heads: config.n_head as i64,
            width: config.head_width() as i64,
            qkv: get("qkv_net.weight"),
            r: get("r_net.weight"),
            r_w_bias: bias("r_w_bias"),
            r_r_bias: bias("r_r_bias"),
            o: get("o_net.weight"),
            attention_norm: Norm::new(parameters, &attention, config.layer_norm_epsilon),
            inner: linear(0),
            outer: linear(3),
            feed_forward_norm: Norm::new(parameters, &feed_forward, config.layer_norm_epsilon),
            pre_norm: config.pre_lnorm,
            dropout: config.dropout,
            dropatt: config.dropatt,
        }
    }

    /// `hidden`: `[batch, query, d_model]`, `mem`: `[batch, mem, d_model]`, `positions`:
    /// `[mem + query, d_model]` by falling distance, `mask`: `[query, mem + query]`.
    fn forward(
        &self,
        hidden: &Tensor,
        mem: &Tensor,
        positions: &Tensor,
        mask: &Tensor,
        noise: Option<&Noise>,
    ) -> Tensor {
        let attended = dropout(self.attend(hidden, mem, positions, mask, noise), self.dropout, noise);
        let hidden = self.normed(&self.attention_norm, &(hidden + attended));
        let fed =
            if self.pre_norm { self.feed_forward_norm.forward(&hidden) } else { hidden.shallow_clone() };
        let inner = dropout(fed.linear(&self.inner.0, Some(&self.inner.1)).relu(), self.dropout, noise);
        let fed = dropout(inner.linear(&self.outer.0, Some(&self.outer.1)), self.dropout, noise);
        self.normed(&self.feed_forward_norm, &(hidden + fed))
    }

    fn normed(&self, norm: &Norm, residual: &Tensor) -> Tensor {
        if self.pre_norm { residual.shallow_clone() } else { norm.forward(residual) }
    }

    /// Attention of the segment over memory and itself, `[batch, query, d_model]`.
    fn attend(
        &self,
        hidden: &Tensor,
        mem: &Tensor,
        positions: &Tensor,
        mask: &Tensor,
        noise: Option<&Noise>,
    ) -> Tensor {
        let (batch, query) = (hidden.size()[0], hidden.size()[1]);
        let (heads, width, key) = (self.heads, self.width, mem.size()[1] + query);
        let all = heads * width;
        let mut context = Tensor::cat(&[mem, hidden], 1); // [batch, key, d_model]
        if self.pre_norm {
            context = self.attention_norm.forward(&context);
        }
        let own = context.narrow(1, key - query, query);
        // Heads before lanes, so that one product serves the position term of all lanes of a head.
        let split = |x: Tensor, length: i64| x.view([batch, length, heads, width]);
        let by_head =
            |x: Tensor, length: i64| x.permute([2, 0, 1, 3]).reshape([heads * batch, length, width]);
        let q = split(own.linear::<&Tensor>(&self.qkv.narrow(0, 0, all), None), query);
        let k = by_head(split(context.linear::<&Tensor>(&self.qkv.narrow(0, all, all), None), key), key);
        let v = by_head(split(context.linear::<&Tensor>(&self.qkv.narrow(0, 2 * all, all), None), key), key);
        // The scale goes to the queries, where there is least to multiply.
        let scale = 1.0 / (width as f64).sqrt();
        let q_content = by_head((&q + &self.r_w_bias) * scale, query); // terms (a) + (c)
        let q_position = by_head((&q + &self.r_r_bias) * scale, query); // terms (b) + (d)
        let mut scores = relative_shift(&self.position_scores(&q_position, positions, batch)).baddbmm(
            &q_content,
            &k.transpose(1, 2),
            1.0,
            1.0,
        ); // [heads * batch, query, key]
        let _ = scores.g_add_(mask);
        let weights = dropout(scores.softmax(-1, None::<Kind>), self.dropatt, noise);
        let read = weights.bmm(&v).view([heads, batch, query, width]).permute([1, 2, 0, 3]);
        read.reshape([batch, query, all]).linear::<&Tensor>(&self.o, None)
    }

    /// Scores of all queries at all distances, unshifted with the padding column in front:
    /// `[heads * batch, query, key + 1]`. The zero row of the table makes the padding.
    fn position_scores(&self, q: &Tensor, positions: &Tensor, batch: i64) -> Tensor {
        let (heads, width, query) = (self.heads, self.width, q.size()[1]);
        let key = positions.size()[0];
        let table = positions.linear::<&Tensor>(&self.r, None); // [key, heads * width]
        let table = table.constant_pad_nd([0, 0, 1, 0]).view([key + 1, heads, width]).permute([1, 2, 0]);
        q.view([heads, batch * query, width]).bmm(&table).view([heads * batch, query, key + 1])
    }
}
