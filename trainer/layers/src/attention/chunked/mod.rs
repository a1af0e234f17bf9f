//! Attention with relative positions on any device, a chunk of queries at a time: products are libtorch's, and what lies between them is
//! done row by row. A chunk's scores are made again in backward, so that no more than those of one chunk are ever there.

pub(crate) mod card;
mod chunk;
mod chunks;
mod rows;

#[cfg(test)]
pub(super) mod tests;

use segue_kernels::libtorch::{Autocast, function};
use segue_kernels::noise::{Drops, Noise};
use tch::{Kind, Tensor};

use super::flash;
use super::fused::Attention;

use chunk::{Chunk, Lanes, Products};
pub use chunks::Chunks;

/// What the queries read, `[lanes, query, heads * width]` in the kind of q, with dropout of weights at `rate` where there is noise. Which
/// weights that takes, a seed says as it does in [`super::fused::attend`].
pub fn attend(attention: &Attention, chunks: &Chunks, rate: f64, noise: Option<&Noise>) -> Tensor {
    match flash::kernels(attention) {
        Some(kernels) => flash::attend(kernels, attention, chunks, rate, noise),
        None => in_chunks(attention, chunks, rate, noise),
    }
}

/// [`attend`] of queries that stand anywhere; `None` where that is not done.
pub fn attend_to_places(
    attention: &Attention,
    chunks: &Chunks,
    rate: f64,
    noise: Option<&Noise>,
) -> Option<Tensor> {
    flash::kernels(attention).map(|kernels| flash::attend(kernels, attention, chunks, rate, noise))
}

/// [`attend`] in chunks, of queries that are all positions in order.
fn in_chunks(attention: &Attention, chunks: &Chunks, rate: f64, noise: Option<&Noise>) -> Tensor {
    let drops = noise.filter(|_| rate > 0.0).map(|noise| noise.drops(rate));
    let (read, problem) = Autocast::without(|| {
        tch::no_grad(|| {
            let problem = Problem::new(attention, chunks.clone(), drops);
            (problem.forward(), problem)
        })
    });
    function(c"attention", &attention.inputs(), read, move |grad| {
        Autocast::without(|| problem.backward(&grad))
    })
}

/// The same without a graph. Heads come before lanes: `all` is `heads * lanes`.
struct Problem {
    sizes: Sizes,
    /// Kind of q, k, v and r in products, and that of sums.
    kinds: [Kind; 2],
    /// Kinds of the inputs, which their gradients have.
    of_inputs: Vec<Kind>,
    /// `[heads, lanes, query, width]`.
    q: Tensor,
    /// `[all, key, width]`.
    k: Tensor,
    v: Tensor,
    /// `[heads, width, distance]`.
    r: Tensor,
    /// u, v and, where segments count, b and s, `[heads, 1, 1, width]` in the kind of sums.
    vectors: Vec<Tensor>,
    lanes: Lanes,
    scale: f64,
    /// Of each query, `[all, query, 2]`: the largest score, and one over the sum of exponentials.
    statistics: Tensor,
    chunks: Chunks,
}

#[derive(Clone, Copy)]
struct Sizes {
    lanes: i64,
    heads: i64,
    width: i64,
    queries: i64,
    keys: i64,
    distances: i64,
    /// Of these, those that were given.
    own_distances: i64,
}

impl Problem {
    fn new(attention: &Attention, chunks: Chunks, drops: Option<Drops>) -> Self {
        let [lanes, queries, heads, width] = attention.q.size()[..] else {
            unreachable!("[lanes, query, ..]")
        };
        assert!(attention.places.is_none(), "queries are all positions, in order");
        let keys = attention.k.size()[1];
        let own_distances = attention.r.size()[0];
        let distances = own_distances.max(queries + keys - 1);
        let kind = attention.q.kind();
        let sum_kind = if kind == Kind::Double { kind } else { Kind::Float };
        let by_head = |x: &Tensor| x.detach().to_kind(kind).permute([2, 0, 1, 3]).contiguous();
        let segments = attention.segments.as_ref();
        let vectors = attention.biases.into_iter().chain(segments.iter().flat_map(|s| s.vectors));
        let vector = |vector: &Tensor| vector.detach().to_kind(sum_kind).view([heads, 1, 1, width]);
        let vectors: Vec<Tensor> = vectors.map(vector).collect();
        let q = by_head(attention.q);
        // Places of keys that nobody sees.
        let r = attention.r.detach().to_kind(kind);
        let r = r.constant_pad_nd([0, 0, 0, 0, 0, distances - own_distances]);
        let scale = attention.scale;
        // s₋ − s₊ where segments differ, nothing where they agree: a softmax does not see what all keys have alike.
        let other = segments.map(|_| {
            let own = (q.to_kind(sum_kind) + &vectors[2]) * &vectors[3];
            (own.sum_dim_intlist(3, false, None::<Kind>) * scale).view([heads * lanes, queries])
        });
        let lanes_of = Lanes {
            segments: segments.map(|s| {
                [s.of_queries, s.of_keys].map(|codes| codes.detach().to_kind(sum_kind).contiguous())
            }),
            other,
            count: lanes,
            drops,
        };
        Self {
            sizes: Sizes { lanes, heads, width, queries, keys, distances, own_distances },
            kinds: [kind, sum_kind],
            of_inputs: attention.inputs().iter().map(|input| input.kind()).collect(),
            k: by_head(attention.k).view([heads * lanes, keys, width]),
            v: by_head(attention.v).view([heads * lanes, keys, width]),
            r: r.permute([1, 2, 0]).contiguous(),
            statistics: Tensor::empty([heads * lanes, queries, 2], (sum_kind, q.device())),
            q,
            vectors,
            lanes: lanes_of,
            scale,
            chunks,
        }
    }

    /// (q + bias) · scale, `[heads, lanes, query, width]`. The scale goes to the queries, where there is least to multiply.
    fn biased(&self, bias: &Tensor) -> Tensor {
        let [kind, sum_kind] = self.kinds;
        ((self.q.to_kind(sum_kind) + bias) * self.scale).to_kind(kind)
    }

    /// `[lanes, length, heads * width]` of `[all, length, width]`.
    fn to_rows(&self, x: &Tensor, length: i64) -> Tensor {
        let Sizes { lanes, heads, width, .. } = self.sizes;
        x.view([heads, lanes, length, width]).permute([1, 2, 0, 3]).reshape([lanes, length, heads * width])
    }

    /// `[all, length, width]` of `[lanes, length, heads * width]`.
    fn of_rows(&self, x: &Tensor, length: i64) -> Tensor {
        let Sizes { lanes, heads, width, .. } = self.sizes;
        let x = x.to_kind(self.kinds[0]).view([lanes, length, heads, width]).permute([2, 0, 1, 3]);
        x.reshape([heads * lanes, length, width])
    }

    /// Chunks of about as many scores as [`Chunks::BYTES`] hold.
    fn chunks(&self) -> Vec<Chunk> {
        let Sizes { lanes, heads, queries, keys, .. } = self.sizes;
        self.chunks.cut(heads * lanes * keys * self.kinds[1].elt_size_in_bytes() as i64, queries)
    }

    /// Queries of a chunk for contents and for positions, `[all, rows, width]` and `[heads, lanes * rows, width]`.
    fn own(&self, chunk: &Chunk, for_contents: &Tensor, for_positions: &Tensor) -> [Tensor; 2] {
        let Sizes { lanes, heads, width, .. } = self.sizes;
        let own = |q: &Tensor| q.narrow(2, chunk.start, chunk.rows);
        [
            own(for_contents).reshape([heads * lanes, chunk.rows, width]),
            own(for_positions).reshape([heads, lanes * chunk.rows, width]),
        ]
    }

    /// Distances of a chunk's queries to its keys: columns of `r`, from where the last query meets key 0 to where the first meets the
    /// last key. Query i and key j of the chunk meet in column `rows - 1 - i + j`.
    fn window(&self, chunk: &Chunk) -> Tensor {
        self.r.narrow(2, self.sizes.queries - chunk.start - chunk.rows, chunk.columns())
    }

    fn products(&self, chunk: &Chunk, [q, by_position]: &[Tensor; 2]) -> Products {
        let all = self.sizes.heads * self.sizes.lanes;
        let content = self.product(q, &self.k.narrow(1, 0, chunk.keys).transpose(1, 2));
        let position = self.product(by_position, &self.window(chunk));
        Products { content, position: position.view([all, chunk.rows, chunk.columns()]) }
    }

    /// `a` `[n, i, j]` times `b` `[n, j, k]`, in the kind of sums.
    fn product(&self, a: &Tensor, b: &Tensor) -> Tensor {
        let [kind, sum_kind] = self.kinds;
        if kind == sum_kind {
            return a.bmm(b);
        }
        // Only cards have products of short numbers with long sums.
        let widened = || a.to_kind(sum_kind).bmm(&b.to_kind(sum_kind));
        match a.device() {
            tch::Device::Cuda(_) => a.f_bmm_dtype(b, sum_kind).unwrap_or_else(|_| widened()),
            _ => widened(),
        }
    }

    /// What is read, `[lanes, query, heads * width]`.
    fn forward(&self) -> Tensor {
        let [for_contents, for_positions] = [0, 1].map(|i| self.biased(&self.vectors[i]));
        let read = self.chunks().into_iter().map(|chunk| {
            let products = self.products(&chunk, &self.own(&chunk, &for_contents, &for_positions));
            let statistics = self.statistics.narrow(1, chunk.start, chunk.rows);
            let weights = rows::weights(&chunk, &self.lanes, products, &statistics, self.kinds[0]);
            weights.bmm(&self.v.narrow(1, 0, chunk.keys))
        });
        let read: Vec<Tensor> = read.collect();
        self.to_rows(&Tensor::cat(&read, 1), self.sizes.queries)
    }

    /// Gradients of q, k, v, r, u, v and, where segments count, b and s; `grad`: `[lanes, query, heads * width]`.
    fn backward(&self, grad: &Tensor) -> Vec<Option<Tensor>> {
        let Sizes { lanes, heads, width, queries, keys, distances, own_distances } = self.sizes;
        let options = (self.kinds[1], self.q.device());
        let [for_contents, for_positions] = [0, 1].map(|i| self.biased(&self.vectors[i]));
        let grad = self.of_rows(grad, queries);
        let zeros = |shape: [i64; 3]| Tensor::zeros(shape, options);
        let (of_k, of_v) = (zeros([heads * lanes, keys, width]), zeros([heads * lanes, keys, width]));
        let of_r = zeros([heads, distances, width]);
        let (mut of_contents, mut of_positions, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for chunk in self.chunks() {
            let own = self.own(&chunk, &for_contents, &for_positions);
            let grad = grad.narrow(1, chunk.start, chunk.rows);
            let products = self.products(&chunk, &own);
            let of_weights = self.product(&grad, &self.v.narrow(1, 0, chunk.keys).transpose(1, 2));
            let statistics = self.statistics.narrow(1, chunk.start, chunk.rows);
            let found =
                rows::gradients(&chunk, &self.lanes, products, of_weights, &statistics, self.kinds[0]);
            let of_positions_flat = found.of_position.view([heads, lanes * chunk.rows, chunk.columns()]);
            let add = |to: &Tensor, left: &Tensor, right: &Tensor| {
                let _ = to.shallow_clone().g_add_(&self.product(&left.transpose(1, 2), right));
            };
            add(&of_v.narrow(1, 0, chunk.keys), &found.weights, &grad);
            add(&of_k.narrow(1, 0, chunk.keys), &found.of_content, &own[0]);
            let window = self.window(&chunk);
            let first = queries - chunk.start - chunk.rows;
            add(&of_r.narrow(1, first, chunk.columns()), &of_positions_flat, &own[1]);
            of_contents.push(self.product(&found.of_content, &self.k.narrow(1, 0, chunk.keys)));
            let of_position = self.product(&of_positions_flat, &window.transpose(1, 2));
            of_positions.push(of_position.view([heads * lanes, chunk.rows, width]));
            others.extend(found.of_other);
        }
        let of_queries =
            |parts: Vec<Tensor>| Tensor::cat(&parts, 1).view([heads, lanes, queries, width]) * self.scale;
        let (of_contents, of_positions) = (of_queries(of_contents), of_queries(of_positions));
        // Every query has u and v added, so their gradients are sums over queries.
        let of_vector =
            |of: &Tensor| of.sum_dim_intlist([1i64, 2].as_slice(), false, None::<Kind>).view([heads, width]);
        let mut of_vectors = vec![of_vector(&of_contents), of_vector(&of_positions)];
        let mut of_q = of_contents + of_positions;
        if let [_, _, bias, other] = &self.vectors[..] {
            // The score's part is (q + b)·s: by the rule of products each side gets the other.
            let grad = Tensor::cat(&others, 1).view([heads, lanes, queries, 1]) * self.scale;
            let of_biased = &grad * other;
            of_vectors.push(of_vector(&of_biased));
            of_vectors.push(of_vector(&(grad * (self.q.to_kind(self.kinds[1]) + bias))));
            of_q += of_biased;
        }
        let by_position = |x: &Tensor, length| self.to_rows(x, length).view([lanes, length, heads, width]);
        let of_q = by_position(&of_q.view([heads * lanes, queries, width]), queries);
        let found = [
            of_q,
            by_position(&of_k, keys),
            by_position(&of_v, keys),
            of_r.narrow(1, 0, own_distances).permute([1, 0, 2]),
        ];
        let found = found.into_iter().chain(of_vectors).zip(&self.of_inputs);
        found.map(|(gradient, kind)| Some(gradient.to_kind(*kind))).collect()
    }
}
