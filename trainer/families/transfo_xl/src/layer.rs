//! One layer of Transformer-XL: attention over memory and segment, then the position-wise feed-forward,
//! each with residual and norm (Yang 2019, §2.1.3).

use segue_kernels::noise::{Noise, dropout};
use segue_kernels::{Init, Kernels, ParameterSpec, Parameters};
use segue_layers::Activation;
use segue_layers::activation::activate_map;
use segue_layers::attention::chunked::{self, Chunks};
use segue_layers::attention::projections::{Projection, project};
use segue_layers::attention::{drop_causal_weights, fused, relative_shift, weights_of};
use segue_layers::norm::{NORM_MEAN, Norm, Stream};
use tch::{Device, Kind, Tensor};

use super::config::TransfoXlConfig;
use super::encoding::{Encoding, Positions, drop_states};
use super::window::Window;

/// What each query may see.
pub struct Visible {
    /// `[1 or batch, query, key]`: 0 where a query may see a key, else −∞.
    mask: Tensor,
    /// The same for attention in tiles.
    blocks: Vec<fused::Block>,
    /// The same for attention in chunks.
    chunks: Option<Chunks>,
}

impl Visible {
    /// By a mask of numbers, for layers that compute with `kernels`.
    pub fn new(mask: Tensor, kernels: Kernels) -> Self {
        let chunks = kernels.chunk(&mask).then(|| Chunks::causal(&mask));
        let tiles = kernels == Kernels::Fused && mask.kind() == Kind::Float && mask.device() == Device::Cpu;
        let blocks = if tiles && chunks.is_none() { fused::Block::causal(&mask) } else { Vec::new() };
        Self { mask, blocks, chunks }
    }
}

pub struct Layer {
    config: TransfoXlConfig,
    kernels: Kernels,
    /// `[3 * heads * width, d_model]`: queries, keys, values.
    qkv: Tensor,
    encoding: Encoding,
    o: Tensor,
    attention_norm: Norm,
    inner: (Tensor, Tensor),
    outer: (Tensor, Tensor),
    feed_forward_norm: Norm,
}

impl Layer {
    /// Parameters of layer `index`, in the order of the forward pass.
    pub fn specs(config: &TransfoXlConfig, index: usize, weight: Init) -> Vec<ParameterSpec> {
        let norm = Init::Normal { mean: NORM_MEAN, std: config.init_std };
        let (d, inner) = (config.d_model as i64, config.d_inner as i64);
        let all = (config.n_head * config.head_width()) as i64;
        let attention = format!("transformer.layers.{index}.dec_attn");
        let feed_forward = format!("transformer.layers.{index}.pos_ff");
        let spec = |name: String, shape: &[i64], init| ParameterSpec { name, shape: shape.to_vec(), init };
        let mut out = vec![spec(format!("{attention}.qkv_net.weight"), &[3 * all, d], weight)];
        out.extend(Encoding::specs(config, index, weight));
        out.extend([
            spec(format!("{attention}.o_net.weight"), &[d, all], weight),
            spec(format!("{attention}.layer_norm.weight"), &[d], norm),
            spec(format!("{attention}.layer_norm.bias"), &[d], Init::Zeros),
            spec(format!("{feed_forward}.CoreNet.0.weight"), &[inner, d], weight),
            spec(format!("{feed_forward}.CoreNet.0.bias"), &[inner], Init::Zeros),
            spec(format!("{feed_forward}.CoreNet.3.weight"), &[d, inner], weight),
            spec(format!("{feed_forward}.CoreNet.3.bias"), &[d], Init::Zeros),
            spec(format!("{feed_forward}.layer_norm.weight"), &[d], norm),
            spec(format!("{feed_forward}.layer_norm.bias"), &[d], Init::Zeros),
        ]);
        out
    }

    /// Layer `index` over `parameters`.
    pub fn new(config: &TransfoXlConfig, parameters: &Parameters, index: usize) -> Self {
        let attention = format!("transformer.layers.{index}.dec_attn");
        let feed_forward = format!("transformer.layers.{index}.pos_ff");
        let linear = |i: usize| {
            let get = |name: &str| parameters.get(&format!("{feed_forward}.CoreNet.{i}.{name}"));
            (get("weight"), get("bias"))
        };
        Self {
            config: config.clone(),
            kernels: parameters.kernels(),
            qkv: parameters.get(&format!("{attention}.qkv_net.weight")),
            encoding: Encoding::new(config, parameters, index),
            o: parameters.get(&format!("{attention}.o_net.weight")),
            attention_norm: Norm::new(parameters, &attention, config.layer_norm_epsilon),
            inner: linear(0),
            outer: linear(3),
            feed_forward_norm: Norm::new(parameters, &feed_forward, config.layer_norm_epsilon),
        }
    }

    /// What layers read of states `[batch, query, d_model]`: each other's norms round them, where norms come last.
    pub fn stream(config: &TransfoXlConfig, hidden: Tensor, kernels: Kernels) -> Stream {
        if config.pre_lnorm || config.variational {
            Stream::from(hidden)
        } else {
            Stream::new(hidden, kernels)
        }
    }

    /// `hidden`: `[batch, query, d_model]`, `mem`: `[batch, mem, d_model]`.
    pub fn forward(
        &self,
        hidden: Stream,
        mem: &Tensor,
        positions: &Positions,
        visible: &Visible,
        noise: Option<&Noise>,
    ) -> Stream {
        let (hidden, mem) = match self.encoding.added(positions) {
            Some(added) => {
                let (before, query) = (mem.size()[1], hidden.whole.size()[1]);
                let own = hidden.of_same_types(&hidden.whole + added.narrow(0, before, query));
                (own, mem + added.narrow(0, 0, before))
            }
            None => (hidden, mem.shallow_clone()),
        };
        let read = self.attend(hidden.read(), &hidden.beside(&mem), positions, visible, noise);
        let attended = self.normed_sum(&self.attention_norm, &read, (&self.o, None), &hidden, noise);
        self.feed_forward(&attended, noise)
    }

    /// The position-wise half of the layer, with residual and norm.
    fn feed_forward(&self, hidden: &Stream, noise: Option<&Noise>) -> Stream {
        let fed = if self.config.pre_lnorm {
            self.feed_forward_norm.forward(&hidden.whole)
        } else {
            hidden.read().shallow_clone()
        };
        let inner = match self.config.variational {
            true => {
                let inner = self.linear(&fed, &self.inner.0, Some(&self.inner.1));
                drop_states(&self.config, inner.relu(), noise)
            }
            false => {
                activate_map(self.kernels, &fed, &self.inner, Activation::Relu, self.config.dropout, noise)
            }
        };
        let (weight, bias) = &self.outer;
        self.normed_sum(&self.feed_forward_norm, &inner, (weight, Some(bias)), hidden, noise)
    }

    /// Keys of the distances that `positions` are for, `[heads, width, distances]`, the farthest first, where the layer has
    /// any.
    pub(super) fn position_keys(&self, positions: &Positions) -> Option<Tensor> {
        Some(self.encoding.position_keys(positions)?.permute([1, 2, 0]).contiguous())
    }

    /// Keys and values of the last `limit` states that it has read, `[lanes, positions, d_model]`.
    pub(super) fn window(&self, read: &Tensor, limit: i64) -> Window {
        let normed = self.normed_first(read);
        let [_, key, value] = self.projections(&normed);
        Window::new(&key, &value, limit)
    }

    /// States of one more position, `[lanes, d_model]` as `hidden` is; `window` takes it in. No graph, no dropout.
    pub(super) fn step(&self, hidden: &Tensor, window: &mut Window, position_keys: &Tensor) -> Tensor {
        tch::no_grad(|| {
            let (read, hidden) = (
                self.attend_from(&hidden.unsqueeze(1), window, position_keys),
                Stream::from(hidden.shallow_clone()),
            );
            let attended = self.normed_sum(&self.attention_norm, &read, (&self.o, None), &hidden, None);
            self.feed_forward(&attended, None).whole
        })
    }

    /// What one position, `[lanes, 1, d_model]`, reads of those of `window`: `[lanes, heads * width]`.
    fn attend_from(&self, hidden: &Tensor, window: &mut Window, position_keys: &Tensor) -> Tensor {
        let [query, key, value] = self.projections(&self.normed_first(hidden)); // [heads * lanes, 1, width]
        let [keys, values] = window.push(&key, &value);
        let Some([u, v]) = self.encoding.biases() else {
            unreachable!("only relative attention has windows")
        };
        let [heads, width] = u.size()[..] else { unreachable!("[heads, width]") };
        let (rows, seen, distances) = (query.size()[0], keys.size()[1], position_keys.size()[2]);
        let query = query.view([heads, -1, width]);
        let plus = |bias: &Tensor| (&query + bias.unsqueeze(1)) / (width as f64).sqrt();
        let by_distance = plus(v).bmm(&position_keys.narrow(2, distances - seen, seen)).view([rows, 1, seen]);
        let scores = by_distance.baddbmm(&plus(u).view([rows, 1, width]), &keys.transpose(1, 2), 1.0, 1.0);
        let read = weights_of(&scores).bmm(&values).view([heads, -1, width]);
        read.transpose(0, 1).reshape([-1, heads * width])
    }

    /// Queries, keys and values of states `[lanes, positions, d_model]`: `[heads * lanes, positions, width]` each.
    fn projections(&self, states: &Tensor) -> [Tensor; 3] {
        let (lanes, positions) = (states.size()[0], states.size()[1]);
        let (heads, width) = (self.config.n_head as i64, self.config.head_width() as i64);
        let all = self.linear(states, &self.qkv, None).view([lanes, positions, 3, heads, width]);
        [0, 1, 2].map(|i| all.select(2, i).permute([2, 0, 1, 3]).reshape([heads * lanes, positions, width]))
    }

    /// `x`, normed where norms come first.
    fn normed_first(&self, x: &Tensor) -> Tensor {
        if self.config.pre_lnorm { self.attention_norm.forward(x) } else { x.shallow_clone() }
    }

    fn linear(&self, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
        self.kernels.linear(x, weight, bias)
    }

    /// What a linear map makes of `x`, with dropout, added to the residual stream; normed there where norms come last.
    fn normed_sum(
        &self,
        norm: &Norm,
        x: &Tensor,
        map: (&Tensor, Option<&Tensor>),
        residual: &Stream,
        noise: Option<&Noise>,
    ) -> Stream {
        let sum = || &residual.whole + drop_states(&self.config, self.linear(x, map.0, map.1), noise);
        match (self.config.pre_lnorm, self.config.variational) {
            (true, _) => Stream::from(sum()),
            (false, true) => Stream::from(norm.forward(&sum())),
            (false, false) => norm.of_mapped_sum(x, map, residual, self.config.dropout, noise),
        }
    }

    /// What the segment reads of memory and itself, `[batch, query, heads * width]`.
    fn attend(
        &self,
        hidden: &Tensor,
        mem: &Tensor,
        positions: &Positions,
        visible: &Visible,
        noise: Option<&Noise>,
    ) -> Tensor {
        let (batch, query) = (hidden.size()[0], hidden.size()[1]);
        let (heads, width) = (self.config.n_head as i64, self.config.head_width() as i64);
        let (key, all) = (mem.size()[1] + query, heads * width);
        let (mem, own) = (self.normed_first(mem), self.normed_first(hidden));
        let weights = self.qkv.chunk(3, 0);
        let map = |i: usize| Projection { weight: &weights[i], of_memory: i > 0 };
        let [q, k, v] = project(self.kernels, &mem, &own, [map(0), map(1), map(2)], Some(&self.qkv));
        // Heads before lanes, so that one product serves the position term of all lanes of a head.
        let split = |x: Tensor, length: i64| x.view([batch, length, heads, width]);
        let by_head =
            |x: Tensor, length: i64| x.permute([2, 0, 1, 3]).reshape([heads * batch, length, width]);
        let (q, k, v) = (split(q, query), split(k, key), split(v, key));
        // The scale goes to the queries, where there is least to multiply.
        let scale = 1.0 / (width as f64).sqrt();
        if let Some(biases) = self.encoding.biases()
            && let Some(r) = self.encoding.position_keys(positions)
            && (visible.chunks.is_some() || self.kernels.fuse(&q))
        {
            let r = &match visible.chunks {
                Some(_) => r,
                // Places of keys that come after the query, which nobody sees.
                None => r.constant_pad_nd([0, 0, 0, 0, 0, query]),
            };
            let (q, k, v) = (&q, &k, &v);
            let attention = fused::Attention { q, k, v, r, places: None, biases, segments: None, scale };
            return match &visible.chunks {
                Some(chunks) => chunked::attend(&attention, chunks, self.config.dropatt, noise),
                None => fused::attend(&attention, &visible.blocks, self.config.dropatt, noise),
            };
        }
        let (k, v) = (by_head(k, key), by_head(v, key));
        let q_content = by_head(self.encoding.content_query(&q) * scale, query);
        let k = k.transpose(1, 2);
        let scores = match self.encoding.position_query(&q) {
            Some(q) => {
                let q = by_head(q * scale, query);
                let by_distance = self.position_scores(&q, positions, scale, batch);
                relative_shift(&by_distance).baddbmm(&q_content, &k, 1.0, 1.0)
            }
            None => q_content.bmm(&k),
        }; // [heads * batch, query, key]
        let _ = scores.view([heads, batch, query, key]).g_add_(&visible.mask);
        let weights = weights_of(&scores);
        let weights = match self.encoding.biases() {
            // What attention in tiles would drop.
            Some(_) => {
                let rate = self.config.dropatt;
                drop_causal_weights(weights, noise.filter(|_| rate > 0.0).map(|noise| noise.drops(rate)))
            }
            None => dropout(weights, self.config.dropatt, noise),
        };
        let read = weights.bmm(&v).view([heads, batch, query, width]).permute([1, 2, 0, 3]);
        read.reshape([batch, query, all])
    }

    /// Scores of all queries at all distances, unshifted with the padding column in front:
    /// `[heads * batch, query, key + 1]`. The zero row of the table makes the padding. `q`:
    /// `[heads * batch, query, width]`, scaled.
    fn position_scores(&self, q: &Tensor, positions: &Positions, scale: f64, batch: i64) -> Tensor {
        let Some(keys) = self.encoding.position_keys(positions) else {
            unreachable!("an encoding with a position query has position keys");
        };
        let [key, heads, width] = keys.size()[..] else { unreachable!("[key, heads, width]") };
        let query = q.size()[1];
        let keys = keys.constant_pad_nd([0, 0, 0, 0, 1, 0]).permute([1, 2, 0]);
        let q = q.view([heads, batch * query, width]);
        let scores = match self.encoding.distance_bias(positions) {
            Some(bias) => {
                let bias = (bias * scale).constant_pad_nd([1, 0]).unsqueeze(1);
                bias.baddbmm(&q, &keys, 1.0, 1.0)
            }
            None => q.bmm(&keys),
        };
        scores.view([heads * batch, query, key + 1])
    }
}
