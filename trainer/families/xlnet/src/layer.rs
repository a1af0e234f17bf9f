//! One layer of XLNet: two-stream relative attention, then the position-wise feed-forward, each with residual
//! and norm (Yang 2019, §2.2.2; every term in Yang et al. 2019, appendix).

mod attention;

use std::cell::LazyCell;
use std::slice;

use segue_kernels::noise::{DropsOfRows, Noise, dropout};
use segue_kernels::{Init, Kernels, ParameterSpec, Parameters};
use segue_layers::activation::{activate_map, activate_rows, takes_rows};
use segue_layers::attention::projections::{Projection, project};
use segue_layers::attention::{chunked, fused, weights_of};
use segue_layers::norm::{NORM_MEAN, Norm, Stream};
use segue_layers::recompute::States;
use tch::{Kind, Tensor};

use self::attention::Attention;
use super::plan::{Group, Plan, Targets};
use super::{Activation, XlnetConfig};

/// Biases u, v and b of attention by content, position and segment.
pub const BIASES: [&str; 3] = ["r_w_bias", "r_r_bias", "r_s_bias"];

/// Queries are few where there are at most this share of a head's width: keys and values are then not projected for them alone.
const FEW: i64 = 4;

/// States of one layer.
pub struct Streams {
    /// h, `[batch, segment, d_model]`.
    pub content: Stream,
    /// g, `[batch, targets, d_model]`.
    pub predictions: Option<Stream>,
}

impl States for Streams {
    fn into_tensors(self) -> Vec<Tensor> {
        let predictions = self.predictions.map(Stream::into_tensors).unwrap_or_default();
        self.content.into_tensors().into_iter().chain(predictions).collect()
    }

    fn of_tensors(tensors: Vec<Tensor>) -> Self {
        // Whole states of both streams are of one type, and what is rounded of them of another.
        let kind = tensors[0].kind();
        let of_predictions = tensors.iter().skip(1).position(|tensor| tensor.kind() == kind);
        let mut content = tensors;
        let predictions = of_predictions.map(|i| content.split_off(i + 1));
        Self { content: Stream::of_tensors(content), predictions: predictions.map(Stream::of_tensors) }
    }
}

/// What a card makes for the lanes of all groups at once: a product, and a cast of its weight, serve all of them, and the gradients of groups
/// are joined where a gradient of all lanes for each would be added up.
struct AtOnce {
    /// W_r R of each group, `[distance, heads, width]`.
    r: Vec<Tensor>,
    /// Queries of the content of each group, where it is wanted, `[lanes, segment, heads, width]`.
    of_content: Vec<Tensor>,
    /// The same of predictions, `[lanes, targets, heads, width]`.
    of_predictions: Vec<Tensor>,
}

pub struct Layer {
    kernels: Kernels,
    heads: i64,
    width: i64,
    d_model: i64,
    dropout: f64,
    dropatt: f64,
    activation: Activation,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    r: Tensor,
    /// u, v and b, `[heads, width]`.
    biases: [Tensor; 3],
    /// s for the same segment and for another, `[2, heads, width]`.
    seg_embed: Tensor,
    attention_norm: Norm,
    inner: (Tensor, Tensor),
    outer: (Tensor, Tensor),
    feed_forward_norm: Norm,
}

impl Layer {
    /// Parameters of layer `index`, in the order of the forward pass.
    pub fn specs(config: &XlnetConfig, index: usize, weight: Init) -> Vec<ParameterSpec> {
        let norm = Init::Normal { mean: NORM_MEAN, std: 0.0 };
        let (d, inner) = (config.d_model as i64, config.d_inner as i64);
        let (heads, width) = (config.n_head as i64, config.head_width() as i64);
        let spec = |name: &str, shape: &[i64], init| ParameterSpec {
            name: format!("transformer.layer.{index}.{name}"),
            shape: shape.to_vec(),
            init,
        };
        let mut out: Vec<_> = ["q", "k", "v", "r", "o"]
            .iter()
            .map(|name| spec(&format!("rel_attn.{name}"), &[d, heads, width], weight))
            .collect();
        if config.untie_r {
            out.extend(BIASES.map(|bias| spec(&format!("rel_attn.{bias}"), &[heads, width], weight)));
        }
        out.extend([
            spec("rel_attn.seg_embed", &[2, heads, width], weight),
            spec("rel_attn.layer_norm.weight", &[d], norm),
            spec("rel_attn.layer_norm.bias", &[d], Init::Zeros),
            spec("ff.layer_1.weight", &[inner, d], weight),
            spec("ff.layer_1.bias", &[inner], Init::Zeros),
            spec("ff.layer_2.weight", &[d, inner], weight),
            spec("ff.layer_2.bias", &[d], Init::Zeros),
            spec("ff.layer_norm.weight", &[d], norm),
            spec("ff.layer_norm.bias", &[d], Init::Zeros),
        ]);
        out
    }

    /// Layer `index` over `parameters`.
    pub fn new(config: &XlnetConfig, parameters: &Parameters, index: usize) -> Self {
        let prefix = format!("transformer.layer.{index}");
        let get = |name: &str| parameters.get(&format!("{prefix}.{name}"));
        let biases = BIASES.map(|bias| match config.untie_r {
            true => get(&format!("rel_attn.{bias}")),
            false => parameters.get(&format!("transformer.{bias}")),
        });
        let norm = |block: &str| Norm::new(parameters, &format!("{prefix}.{block}"), config.layer_norm_eps);
        Self {
            kernels: parameters.kernels(),
            heads: config.n_head as i64,
            width: config.head_width() as i64,
            d_model: config.d_model as i64,
            dropout: config.dropout,
            dropatt: config.dropatt,
            activation: config.ff_activation,
            q: get("rel_attn.q"),
            k: get("rel_attn.k"),
            v: get("rel_attn.v"),
            o: get("rel_attn.o"),
            r: get("rel_attn.r"),
            biases,
            seg_embed: get("rel_attn.seg_embed"),
            attention_norm: norm("rel_attn"),
            inner: (get("ff.layer_1.weight"), get("ff.layer_1.bias")),
            outer: (get("ff.layer_2.weight"), get("ff.layer_2.bias")),
            feed_forward_norm: norm("ff"),
        }
    }

    /// Both streams through the layer; `mem`: `[batch, mem, d_model]`. Without `content` the content stream
    /// only serves as keys and comes back as it was.
    pub fn forward(
        &self,
        streams: Streams,
        mem: &Tensor,
        plan: &Plan,
        content: bool,
        noise: Option<&Noise>,
    ) -> Streams {
        let Streams { content: h, predictions: g } = streams;
        let (own_h, mem) = (h.read(), &h.beside(mem));
        let keys = LazyCell::new(|| {
            if mem.size()[1] == 0 { own_h.shallow_clone() } else { Tensor::cat(&[mem, own_h], 1) }
        });
        // Cut once for all groups: backward joins their gradients. A `narrow` for each would clear a gradient of all lanes, fill its part of it
        // and add it to those of the others.
        let projected = LazyCell::new(|| self.keys_and_values(mem, own_h).map(|x| plan.by_lanes(&x)));
        let at_once = self.at_once(plan, content.then_some(own_h), g.as_ref());
        let at_once = at_once.as_ref();
        // s₋ − s₊, once for all that attend: its gradient takes as many operations as it does.
        let other = plan.has_segments().then(|| self.seg_embed.get(1) - self.seg_embed.get(0));
        let other = other.as_ref();
        let (mut for_h, mut for_g) = (Vec::new(), Vec::new());
        for (i, group) in plan.groups.iter().enumerate() {
            let own = |x: &Tensor| x.narrow(0, group.start, group.lanes);
            let r = at_once.map_or_else(|| self.distances(group), |all| all.r[i].shallow_clone());
            let own_projected = || projected.each_ref().map(|of_groups| &of_groups[i]);
            let attention = LazyCell::new(|| Attention::new(self, group, own_projected(), &r));
            if content {
                let q = match at_once {
                    Some(all) => all.of_content[i].shallow_clone(),
                    None => self.project(&own(own_h), &self.q),
                };
                let read = match self.kernels.chunk(&q) || self.kernels.fuse(&q) {
                    true => {
                        let [k, v] = own_projected();
                        self.read_content(group, [&q, k, v, &r], other, noise)
                    }
                    false => attention.content(&q, noise),
                };
                for_h.push(read);
            }
            if let (Some(g), Some(targets)) = (&g, &group.targets) {
                let q = match at_once {
                    Some(all) => all.of_predictions[i].shallow_clone(),
                    None => self.project(&own(g.read()), &self.q),
                };
                let few = !content && q.size()[1] <= self.width / FEW;
                let read = match few {
                    true => self.read_few(group, targets, &q, &own(&keys), &r, noise),
                    false => {
                        let [k, v] = own_projected();
                        let read = self.read_targets(group, targets, [&q, k, v, &r], (other, noise));
                        read.unwrap_or_else(|| attention.predictions(&q, targets, noise))
                    }
                };
                for_g.push(seen(read, targets.seeing.as_ref()));
            }
        }
        if let (true, Some(g)) = (content, &g)
            && let Some([content, predictions]) = self.finish_both([(&h, &for_h[..]), (g, &for_g[..])], noise)
        {
            return Streams { content, predictions: Some(predictions) };
        }
        let content = if content { self.finish(&h, &for_h, noise) } else { h.shallow_clone() };
        Streams { content, predictions: g.map(|g| self.finish(&g, &for_g, noise)) }
    }

    /// On a card; `h` where content is wanted.
    fn at_once(&self, plan: &Plan, h: Option<&Tensor>, g: Option<&Stream>) -> Option<AtOnce> {
        let positions = plan.positions.as_ref().filter(|x| self.kernels.chunk(x))?;
        let queries = |states: &Tensor| plan.by_lanes(&self.project(states, &self.q));
        Some(AtOnce {
            r: plan.by_distances(&self.of_distances(positions)),
            of_content: h.map(queries).unwrap_or_default(),
            of_predictions: g.map(|g| queries(g.read())).unwrap_or_default(),
        })
    }

    /// `[batch, length, heads, width]` of `[batch, length, d_model]`.
    fn project(&self, x: &Tensor, weight: &Tensor) -> Tensor {
        let size = x.size();
        self.kernels.linear(x, &self.matrix(weight), None).view([size[0], size[1], self.heads, self.width])
    }

    /// Keys and values of memory and segment, `[batch, mem + segment, heads, width]` each.
    fn keys_and_values(&self, mem: &Tensor, h: &Tensor) -> [Tensor; 2] {
        let weights = [&self.k, &self.v].map(|weight| self.matrix(weight));
        let map = |i: usize| Projection { weight: &weights[i], of_memory: true };
        project(self.kernels, mem, h, [map(0), map(1)], None).map(|x| {
            let size = x.size();
            x.view([size[0], size[1], self.heads, self.width])
        })
    }

    /// `[heads * width, d_model]` of `[d_model, heads, width]`.
    fn matrix(&self, weight: &Tensor) -> Tensor {
        weight.view([self.d_model, self.heads * self.width]).tr()
    }

    /// W_r R of a group's distances, `[distance, heads, width]`.
    fn distances(&self, group: &Group) -> Tensor {
        self.of_distances(&group.positions)
    }

    /// The same of a table, `[distance, d_model]`.
    fn of_distances(&self, positions: &Tensor) -> Tensor {
        let r = self.r.view([self.d_model, self.heads * self.width]);
        positions.mm(&r).view([-1, self.heads, self.width])
    }

    /// What the content stream of a group reads, `[lanes, segment, heads * width]`, of q, k, v, `[lanes, .., heads, width]`, and r,
    /// `[distance, heads, width]`, without scores of all pairs at once.
    fn read_content(
        &self,
        group: &Group,
        projected: [&Tensor; 4],
        other: Option<&Tensor>,
        noise: Option<&Noise>,
    ) -> Tensor {
        let (segment, keys) = (projected[0].size()[1], projected[1].size()[1]);
        let ids = group.segments.as_ref().map(|segments| segments.ids.narrow(1, keys - segment, segment));
        self.attend(group, projected, (None, ids.as_ref()), other, |attention| match &group.chunks {
            Some(chunks) => chunked::attend(attention, chunks, self.dropatt, noise),
            None => fused::attend(attention, &group.blocks, self.dropatt, noise),
        })
    }

    /// The same of the query stream, `[lanes, targets, heads * width]`; `None` where there is no such attention to places.
    fn read_targets(
        &self,
        group: &Group,
        targets: &Targets,
        projected: [&Tensor; 4],
        (other, noise): (Option<&Tensor>, Option<&Noise>),
    ) -> Option<Tensor> {
        let places = fused::Places { of_queries: &targets.at, segment: group.segment };
        let ids = group.segments.as_ref().and_then(|segments| segments.ids_of_targets.as_ref());
        self.attend(group, projected, (Some(places), ids), other, |attention| match &targets.chunks {
            Some(chunks) if self.kernels.chunk(attention.q) => {
                chunked::attend_to_places(attention, chunks, self.dropatt, noise)
            }
            _ => self
                .kernels
                .fuse(attention.q)
                .then(|| fused::attend(attention, slice::from_ref(&targets.block), self.dropatt, noise)),
        })
    }

    /// Attention to keys of a group, by queries at some places and of some segments; `other` is s₋ − s₊, where segments count.
    fn attend<T>(
        &self,
        group: &Group,
        [q, k, v, r]: [&Tensor; 4],
        (places, of_queries): (Option<fused::Places>, Option<&Tensor>),
        other: Option<&Tensor>,
        with: impl Fn(&fused::Attention) -> T,
    ) -> T {
        let [u, by_position, by_segment] = &self.biases;
        let segments = group.segments.as_ref().zip(of_queries).zip(other);
        let segments = segments.map(|((of_keys, of_queries), other)| fused::Segments {
            vectors: [by_segment, other],
            of_queries,
            of_keys: &of_keys.ids,
        });
        let (biases, scale) = ([u, by_position], scale(self));
        with(&fused::Attention { q, k, v, r, places, biases, segments, scale })
    }

    /// What few queries read, `[lanes, targets, heads * width]`, of `keys` `[lanes, key, d_model]` that have not been
    /// projected: q·(W_k h) is (q W_k)·h, and Σ a (W_v h) is W_v Σ a h.
    fn read_few(
        &self,
        group: &Group,
        targets: &Targets,
        q: &Tensor,
        keys: &Tensor,
        r: &Tensor,
        noise: Option<&Noise>,
    ) -> Tensor {
        let (lanes, rows, heads, width) = (group.lanes, q.size()[1], self.heads, self.width);
        let [u, v, b] = &self.biases;
        // Heads first where weights differ by head, lanes first where keys differ by lane.
        let by_head = |x: Tensor| x.permute([2, 0, 1, 3]).reshape([heads, lanes * rows, -1]);
        let by_lane = |x: Tensor| {
            x.view([heads, lanes, rows, -1]).permute([1, 0, 2, 3]).reshape([lanes, heads * rows, -1])
        };
        let w = |weight: &Tensor| weight.view([self.d_model, heads, width]).permute([1, 0, 2]);
        let by_content = by_lane(by_head(q + u).bmm(&w(&self.k).transpose(1, 2))).bmm(&keys.transpose(1, 2));
        let by_distance = by_head(q + v).bmm(&r.permute([1, 2, 0])).view([heads, lanes, rows, -1]);
        let distances = targets.distances.unsqueeze(0).expand([heads, -1, -1, -1], false);
        let mut scores = by_content + by_lane(by_distance.gather(3, &distances, false));
        if let Some(segments) = &group.segments
            && let Some(of_targets) = &segments.ids_of_targets
        {
            let s = (self.seg_embed.get(1) - self.seg_embed.get(0)).view([heads, width]);
            let other = ((q + b) * s).sum_dim_intlist(3, false, None::<Kind>); // [lanes, targets, heads]
            let of_keys = segments.ids.unsqueeze(1);
            let differs = of_targets.unsqueeze(2).not_equal_tensor(&of_keys).to_kind(other.kind()); // [lanes, targets, key]
            let other = other.permute([0, 2, 1]).unsqueeze(3) * differs.unsqueeze(1);
            scores += other.reshape(scores.size());
        }
        let scores = scores * scale(self);
        if let Some(mask) = &targets.block.mask {
            let _ = scores.view([lanes, heads, rows, -1]).g_add_(&mask.unsqueeze(1));
        }
        let weights = dropout(weights_of(&scores), self.dropatt, noise);
        let read = weights.bmm(keys).view([lanes, heads, rows, -1]).permute([1, 0, 2, 3]);
        let read = read.reshape([heads, lanes * rows, -1]).bmm(&w(&self.v));
        read.view([heads, lanes, rows, width]).permute([1, 2, 0, 3]).reshape([lanes, rows, heads * width])
    }

    /// [`Layer::finish`] of two streams on a card, where all of it goes row by row: one product each, one cast of its weight and one gradient of that
    /// serve both. `None` where there are no kernels for it.
    fn finish_both(&self, streams: [(&Stream, &[Tensor]); 2], noise: Option<&Noise>) -> Option<[Stream; 2]> {
        let [(h, of_h), (g, of_g)] = streams;
        let taken = self.attention_norm.takes_rows(&of_h[0])
            && self.feed_forward_norm.takes_rows(&of_h[0])
            && takes_rows(self.kernels, &of_h[0]);
        if !taken {
            return None;
        }
        let rows = |x: &Tensor| x.reshape([-1, x.size()[2]]);
        let joined = |parts: &[&Tensor]| Tensor::cat(&parts.iter().map(|x| rows(x)).collect::<Vec<_>>(), 0);
        let o = self.o.view([self.d_model, self.heads * self.width]);
        let read = joined(&of_h.iter().chain(of_g).collect::<Vec<_>>());
        // Of what is short only its type counts here: the norm leaves its own.
        let residual =
            Stream { whole: joined(&[&h.whole, &g.whole]), short: h.short.as_ref().map(Tensor::detach) };
        let counts = [&h.whole, &g.whole].map(|x| x.size()[0] * x.size()[1]);
        // In the order in which each stream would draw.
        let draw = || [0; 3].map(|_| Noise::drops_of(noise, self.dropout));
        let (first, second) = (draw(), draw());
        let drops = |i: usize| DropsOfRows::parted(first[i], counts[0], second[i]);
        let hidden = self.attention_norm.of_mapped_rows(&read, (&o, None), &residual, drops(0))?;
        let inner = activate_rows(self.kernels, hidden.read(), &self.inner, self.activation, drops(1))?;
        let outer = (&self.outer.0, Some(&self.outer.1));
        let states = self.feed_forward_norm.of_mapped_rows(&inner, outer, &hidden, drops(2))?;
        let cut = |x: &Tensor| x.split_with_sizes(&counts[..], 0);
        let (whole, short) = (cut(&states.whole), states.short.as_ref().map(cut));
        let part = |i: usize, size: Vec<i64>| Stream {
            whole: whole[i].view(&size[..]),
            short: short.as_ref().map(|short| short[i].view(&size[..])),
        };
        Some([part(0, h.whole.size()), part(1, g.whole.size())])
    }

    /// Output projection, residual, norm, feed-forward. `read`: what attention has read, by group,
    /// `[lanes, length, heads * width]` each.
    fn finish(&self, stream: &Stream, read: &[Tensor], noise: Option<&Noise>) -> Stream {
        let o = self.o.view([self.d_model, self.heads * self.width]);
        let read = match read {
            [all] if self.kernels.chunk(all) => all.shallow_clone(),
            _ => Tensor::cat(read, 0),
        };
        let hidden = self.attention_norm.of_mapped_sum(&read, (&o, None), stream, self.dropout, noise);
        let inner =
            activate_map(self.kernels, hidden.read(), &self.inner, self.activation, self.dropout, noise);
        let outer = (&self.outer.0, Some(&self.outer.1));
        self.feed_forward_norm.of_mapped_sum(&inner, outer, &hidden, self.dropout, noise)
    }
}

/// What was read, `[lanes, query, heads * width]`, with zeros in rows that had nothing to see.
fn seen(read: Tensor, seeing: Option<&Tensor>) -> Tensor {
    match seeing {
        Some(seeing) => read * seeing,
        None => read,
    }
}

/// What scores are multiplied by, 1 / √width.
fn scale(layer: &Layer) -> f64 {
    1.0 / (layer.width as f64).sqrt()
}
