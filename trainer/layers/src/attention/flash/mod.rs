//! Attention with relative positions in one pass over the keys, on cards and in 16 bits: scores are made, weighed and added up in tiles that
//! never leave a multiprocessor (FlashAttention, Dao et al. 2022; two passes instead of sums by atomic operations, so that the same inputs
//! give the same bits). Backward makes the scores again, and writes them once for the products that add up over queries.

mod card;

#[cfg(test)]
mod tests;

use segue_kernels::cards::Kernels;
use segue_kernels::libtorch::{Autocast, function};
use segue_kernels::noise::{Drops, Noise};
use tch::{Kind, Tensor};

use super::chunked::Chunks;
use super::fused::Attention;

pub(crate) use card::SOURCES;

/// Numbers that a row is a multiple of: 16 bytes.
const ALIGNED: i64 = 8;
/// Queries of a block.
const ROWS: i64 = 64;
/// Bytes of what backward writes for products at once, about; heads are taken one after the other where it would be more.
const MOST_BYTES: i64 = 2 << 30;

/// Heads times lanes of one grid, at most.
const MOST_HEADS: i64 = 65535;

/// Kernels for this attention; `None` where there are none.
pub fn kernels(attention: &Attention) -> Option<Kernels> {
    let [lanes, _, heads, width] = attention.q.size()[..] else { unreachable!("[lanes, query, ..]") };
    let fits = width % ALIGNED == 0 && heads * lanes <= MOST_HEADS;
    fits.then(|| card::kernels(attention.q, width)).flatten()
}

/// As [`super::chunked::attend`], of queries at any places.
pub fn attend(
    kernels: Kernels,
    attention: &Attention,
    chunks: &Chunks,
    rate: f64,
    noise: Option<&Noise>,
) -> Tensor {
    attend_within(MOST_BYTES, kernels, attention, chunks, rate, noise)
}

/// [`attend`] with so many bytes for backward's products, about, and those of one head at least.
fn attend_within(
    most_bytes: i64,
    kernels: Kernels,
    attention: &Attention,
    chunks: &Chunks,
    rate: f64,
    noise: Option<&Noise>,
) -> Tensor {
    let drops = noise.filter(|_| rate > 0.0).map(|noise| noise.drops(rate));
    let (read, problem) = Autocast::without(|| {
        tch::no_grad(|| {
            let mut problem = Problem::new(kernels, attention, chunks.clone(), drops);
            problem.heads_at_once = problem.sizes.heads_within(most_bytes);
            let read = problem.forward();
            // Not the tensor that gets the graph, which keeps the problem: neither would ever be given back without a backward.
            problem.read = read.detach();
            (read, problem)
        })
    });
    function(c"attention", &attention.inputs(), read, move |grad| {
        Autocast::without(|| problem.backward(grad))
    })
}

/// The same without a graph. Heads come before lanes.
struct Problem {
    kernels: Kernels,
    sizes: Sizes,
    kind: Kind,
    /// Kinds of the inputs, which their gradients have.
    of_inputs: Vec<Kind>,
    /// `[lanes, query, heads, width]`.
    q: Tensor,
    /// `[lanes, key, heads, width]`.
    k: Tensor,
    v: Tensor,
    /// `[distance, heads, width]`.
    r: Tensor,
    /// u, v and, where segments count, b and s, `[heads, width]` in single precision.
    vectors: Vec<Tensor>,
    /// Of queries, `[lanes, query]`, and of keys, `[lanes, key]`, in single precision, where they count.
    segments: Option<[Tensor; 2]>,
    placed: Option<Placed>,
    scale: f64,
    drops: Drops,
    /// What dropout keeps, a bit a weight, as the kernels have it, `[heads, lanes, blocks, tiles of keys, threads]`.
    kept: Option<Tensor>,
    chunks: Chunks,
    /// Of each query, `[heads, lanes, query]`: the logarithm to base 2 of the sum of exponentials.
    statistics: Tensor,
    /// What was read, `[lanes, query, heads * width]`.
    read: Tensor,
    /// Heads of which backward has all weights at once.
    heads_at_once: i64,
}

#[cfg(test)]
impl Drop for Problem {
    fn drop(&mut self) {
        tests::GIVEN_BACK.set(tests::GIVEN_BACK.get() + 1);
    }
}

/// Of queries that stand anywhere: their scores by distance are a product of its own.
struct Placed {
    /// `[lanes, query]` in 32 bits.
    of_queries: Tensor,
    /// (q + v) · scale, `[heads, lanes * query, width]`.
    queries: Tensor,
    /// `[heads, lanes * query, distance]`.
    scores: Tensor,
}

#[derive(Clone, Copy)]
struct Sizes {
    lanes: i64,
    heads: i64,
    width: i64,
    queries: i64,
    keys: i64,
    distances: i64,
    /// Positions of the segment.
    segment: i64,
}

impl Sizes {
    /// Blocks of queries.
    fn blocks(&self) -> i64 {
        (self.queries as u64).div_ceil(ROWS as u64) as i64
    }

    /// Tiles of keys.
    fn tiles(&self) -> i64 {
        (self.keys as u64).div_ceil(u64::from(card::KEYS)) as i64
    }

    /// Numbers of a row of weights.
    fn keys_step(&self) -> i64 {
        aligned(self.keys)
    }

    /// Numbers of a row of scores by distance.
    fn position_step(&self) -> i64 {
        aligned(self.distances)
    }

    /// Heads whose weights and gradients of scores take so many bytes.
    fn heads_within(&self, bytes: i64) -> i64 {
        let numbers = self.lanes * self.queries * (2 * self.keys_step() + self.position_step());
        (bytes / (2 * numbers).max(1)).clamp(1, self.heads)
    }
}

/// `length` rounded up to what rows are a multiple of.
fn aligned(length: i64) -> i64 {
    (length as u64).next_multiple_of(ALIGNED as u64) as i64
}

impl Problem {
    fn new(kernels: Kernels, attention: &Attention, chunks: Chunks, drops: Option<Drops>) -> Self {
        let [lanes, queries, heads, width] = attention.q.size()[..] else {
            unreachable!("[lanes, query, ..]")
        };
        let (keys, distances) = (attention.k.size()[1], attention.r.size()[0]);
        let segment = attention.places.as_ref().map_or(queries, |places| places.segment);
        let kind = attention.q.kind();
        let long = |x: &Tensor| x.detach().to_kind(Kind::Float).contiguous();
        let short = |x: &Tensor| with_aligned_rows(x.detach().to_kind(kind));
        let vectors = attention.biases.into_iter();
        let vectors = vectors.chain(attention.segments.iter().flat_map(|s| s.vectors)).map(long);
        let (q, r) = (short(attention.q), short(attention.r));
        let vectors: Vec<Tensor> = vectors.collect();
        let placed = attention.places.as_ref().map(|places| {
            let queries = ((q.to_kind(Kind::Float) + &vectors[1]) * attention.scale).to_kind(kind);
            let queries = queries.permute([2, 0, 1, 3]).reshape([heads, -1, width]);
            let all = r.permute([1, 2, 0]).constant_pad_nd([0, aligned(distances) - distances]);
            let scores = queries.bmm(&all);
            Placed { of_queries: places.of_queries.to_kind(Kind::Int).contiguous(), queries, scores }
        });
        let sizes = Sizes { lanes, heads, width, queries, keys, distances, segment };
        let bits = [heads, lanes, sizes.blocks(), sizes.tiles(), i64::from(card::THREADS)];
        Self {
            kernels,
            sizes,
            kind,
            of_inputs: attention.inputs().iter().map(|input| input.kind()).collect(),
            k: short(attention.k),
            v: short(attention.v),
            r,
            vectors,
            segments: attention.segments.as_ref().map(|s| [s.of_queries, s.of_keys].map(long)),
            placed,
            scale: attention.scale,
            kept: drops.map(|_| Tensor::empty(bits, (Kind::Int, q.device()))),
            drops: drops.unwrap_or(Drops::NONE),
            chunks,
            statistics: Tensor::empty([heads, lanes, queries], (Kind::Float, q.device())),
            read: Tensor::new(),
            heads_at_once: heads,
            q,
        }
    }

    /// What is read, `[lanes, query, heads * width]`.
    fn forward(&self) -> Tensor {
        let Sizes { lanes, heads, width, queries, .. } = self.sizes;
        let read = Tensor::empty([lanes, queries, heads * width], (self.kind, self.q.device()));
        card::forward(self, &read);
        read
    }

    /// Gradients of q, k, v, r, u, v and, where segments count, b and s; `grad`: `[lanes, query, heads * width]`.
    fn backward(&self, grad: Tensor) -> Vec<Option<Tensor>> {
        let Sizes { lanes, heads, width, queries, .. } = self.sizes;
        let grad =
            with_aligned_rows(grad.to_kind(self.kind).view([lanes, queries, heads, width]).contiguous());
        let of_q = Tensor::empty([lanes, queries, heads, width], (self.kind, self.q.device()));
        let mut parts: Vec<Vec<Tensor>> = Vec::new();
        let at_once = self.heads_at_once;
        for first in (0..heads).step_by(at_once as usize) {
            parts.push(self.backward_of(first, at_once.min(heads - first), &grad, &of_q));
        }
        let joined = |i: usize| match &parts[..] {
            [one] => one[i].shallow_clone(),
            parts => Tensor::cat(&parts.iter().map(|part| &part[i]).collect::<Vec<_>>(), 0),
        };
        let by_row = |x: Tensor| x.permute([1, 2, 0, 3]);
        let mut found = vec![of_q, by_row(joined(0)), by_row(joined(1)), joined(2).permute([1, 0, 2])];
        found.extend((3..parts[0].len()).map(joined));
        let found = found.into_iter().zip(&self.of_inputs);
        found.map(|(gradient, kind)| Some(gradient.to_kind(*kind))).collect()
    }

    /// Gradients of `heads` heads from `first` on, heads first: k and v, `[heads, lanes, key, width]`, r, `[heads, distance, width]`, and
    /// the vectors, `[heads, width]`. That of q goes to its heads of `of_q`.
    fn backward_of(&self, first: i64, heads: i64, grad: &Tensor, of_q: &Tensor) -> Vec<Tensor> {
        let Sizes { lanes, width, queries, keys, distances, .. } = self.sizes;
        let made = card::backward(self, first, heads, grad, of_q);
        let over_queries = |weights: &Tensor, right: &Tensor| {
            weights.narrow(2, 0, keys).transpose(1, 2).bmm(right).view([heads, lanes, keys, width])
        };
        let of_k = over_queries(&made.of_contents, &made.contents);
        let of_v = over_queries(&made.weights, &made.grads);
        let of_scores = made.of_positions.view([heads, lanes * queries, -1]);
        let positions = match &self.placed {
            Some(placed) => placed.queries.narrow(0, first, heads),
            None => made.positions.view([heads, lanes * queries, width]),
        };
        let of_r = of_scores.transpose(1, 2).bmm(&positions).narrow(1, 0, distances);
        let sums = made.of_vectors.view([heads, -1, 3, width]);
        let sums = sums.sum_dim_intlist([1i64].as_slice(), false, None::<Kind>);
        let [of_u, mut of_w, of_s] = [0, 1, 2].map(|i| sums.select(1, i));
        if self.placed.is_some() {
            let r = self.r.narrow(1, first, heads).permute([1, 0, 2]);
            let by_position = of_scores.narrow(2, 0, distances).bmm(&r) * self.scale;
            let by_row = by_position.view([heads, lanes, queries, width]).permute([1, 2, 0, 3]);
            let _ = of_q.narrow(2, first, heads).g_add_(&by_row);
            of_w = by_position.sum_dim_intlist([1i64].as_slice(), false, Kind::Float);
        }
        let mut found = vec![of_k, of_v, of_r, of_u, of_w];
        if let ([u, _, b, s], Some(other)) = (&self.vectors[..], &made.of_other) {
            // The score's part is (q + b)·s: by the rule of products each side gets the other. The kernel has q + u in the place of q + b.
            let own = |vector: &Tensor| vector.narrow(0, first, heads);
            let other =
                other.view([heads, -1]).sum_dim_intlist([1i64].as_slice(), true, None::<Kind>) * self.scale;
            found.push(&other * own(s));
            found.push(of_s + other * (own(b) - own(u)));
        }
        found
    }
}

/// With rows, along the last two axes, that have no gaps and begin at multiples of 16 bytes.
fn with_aligned_rows(x: Tensor) -> Tensor {
    let (size, stride) = (x.size(), x.stride());
    let [.., heads, width] = size[..] else { unreachable!("[.., heads, width]") };
    let [before @ .., of_head, 1] = &stride[..] else { return x.contiguous() };
    let aligned = before.iter().all(|step| step % ALIGNED == 0) && (x.data_ptr() as usize).is_multiple_of(16);
    if aligned && (*of_head == width || heads == 1) { x } else { x.contiguous() }
}
