//! Attention with relative positions, tile by tile: scores, softmax, dropout and values of a few queries of one head at
//! a time, which stay in the processor's cache. For f32 on the CPU.

mod products;
mod tile;
mod view;
mod weights;

#[cfg(test)]
pub(super) mod tests;

use segue_kernels::libtorch::{Shared, as_f32, function, is_f32_slice};
use segue_kernels::noise::{Drops, Noise};
use segue_kernels::threads;
use tch::{Kind, Tensor};
use tile::Scratch;
use view::{PlacedBlock, View};

/// Queries, keys and values of one attention, and what else scores are made of:
///
/// score(i, j) = [(q_i + u)·k_j + (q_i + v)·r_{i−j} + (q_i + b)·s where i and j are of different segments] · scale + mask.
pub struct Attention<'a> {
    /// `[lanes, query, heads, width]`.
    pub q: &'a Tensor,
    /// `[lanes, key, heads, width]`.
    pub k: &'a Tensor,
    /// `[lanes, key, heads, width]`.
    pub v: &'a Tensor,
    /// Vectors of distances, `[distance, heads, width]`: that of position i to key j stands in row `segment - 1 - i + j`, where the
    /// segment's last position is the last key's. In chunks, rows that are only for keys that no query sees may be left out.
    pub r: &'a Tensor,
    /// Where queries are not the segment's positions in order.
    pub places: Option<Places<'a>>,
    /// u and v, `[heads, width]` each.
    pub biases: [&'a Tensor; 2],
    /// Where segments count.
    pub segments: Option<Segments<'a>>,
    /// What scores are multiplied by.
    pub scale: f64,
}

/// Queries that stand anywhere in a segment.
pub struct Places<'a> {
    /// The position of each, `[lanes, query]`, in i64. Those that follow each other share products: better near each other.
    pub of_queries: &'a Tensor,
    /// Positions of the segment.
    pub segment: i64,
}

/// What scores between different segments have more.
pub struct Segments<'a> {
    /// b and s, `[heads, width]` each.
    pub vectors: [&'a Tensor; 2],
    /// Segment of each query, `[lanes, query]`, in f32.
    pub of_queries: &'a Tensor,
    /// Segment of each key, `[lanes, key]`, in f32.
    pub of_keys: &'a Tensor,
}

/// Consecutive queries that look at the same leading keys.
pub struct Block {
    /// First query.
    pub start: i64,
    /// Queries.
    pub rows: i64,
    /// Leading keys that any of them may see.
    pub keys: i64,
    /// Added to scores, `[lanes or 1, query, key]`; `None` where all see all.
    pub mask: Option<Tensor>,
}

impl Block {
    /// Blocks of queries that see no key after their own position, the last of which is the last key: `mask` is
    /// `[lanes or 1, query, key]`. Short ones, as they leave out what none of their queries sees.
    pub fn causal(mask: &Tensor) -> Vec<Self> {
        let blocks = Self::causal_spans(mask.size()[1], mask.size()[2]).into_iter().map(|block| {
            let mask = mask.narrow(1, block.start, block.rows).narrow(2, 0, block.keys).contiguous();
            Self { mask: Some(mask), ..block }
        });
        blocks.collect()
    }

    /// The same blocks without masks.
    pub fn causal_spans(queries: i64, keys: i64) -> Vec<Self> {
        let blocks =
            causal_rows(queries, keys).map(|(start, rows, keys)| Self { start, rows, keys, mask: None });
        blocks.collect()
    }
}

/// First query, queries and leading keys of each block of queries that see no key after their own position.
pub fn causal_rows(queries: i64, keys: i64) -> impl Iterator<Item = (i64, i64, i64)> {
    (0..queries).step_by(view::ROWS).map(move |start| {
        let rows = (view::ROWS as i64).min(queries - start);
        (start, rows, keys - queries + start + rows)
    })
}

impl<'a> Attention<'a> {
    /// What gradients are asked for of: q, k, v, r, u, v and, where segments count, b and s.
    pub fn inputs(&self) -> Vec<&'a Tensor> {
        let mut inputs = vec![self.q, self.k, self.v, self.r];
        inputs.extend(self.biases);
        inputs.extend(self.segments.iter().flat_map(|segments| segments.vectors));
        inputs
    }
}

/// What the queries read, `[lanes, query, heads * width]`, with dropout of weights at `rate` where there is noise. `blocks`: all
/// queries, in order.
pub fn attend(attention: &Attention, blocks: &[Block], rate: f64, noise: Option<&Noise>) -> Tensor {
    let drops = noise.filter(|_| rate > 0.0).map(|noise| noise.drops(rate));
    let problem = Problem::new(attention, blocks, drops);
    // Backward needs the weights; to make them again would cost what forward did.
    let (read, weights) = problem.forward();
    let inputs = attention.inputs();
    function(c"attention", &inputs, read, move |grad| problem.backward(&grad.contiguous(), &weights))
}

/// The same without a graph.
struct Problem {
    sizes: Sizes,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    r: Tensor,
    /// Positions of queries, lane after lane, where they are not all in order.
    places: Option<Vec<usize>>,
    biases: [Tensor; 2],
    /// b, s, segments of queries, segments of keys.
    segments: Option<[Tensor; 4]>,
    blocks: Vec<Block>,
    scale: f32,
    drops: Option<Drops>,
}

#[derive(Clone, Copy)]
struct Sizes {
    lanes: usize,
    heads: usize,
    width: usize,
    queries: usize,
    /// Positions that queries stand at.
    segment: usize,
    keys: usize,
    distances: usize,
}

impl Sizes {
    /// Values from one position of a lane to the next.
    fn stride(self) -> usize {
        self.heads * self.width
    }

    /// Where head `head` of position `position` of a lane of `length` positions begins.
    fn place(self, lane: usize, length: usize, position: usize, head: usize) -> usize {
        ((lane * length + position) * self.heads + head) * self.width
    }
}

impl Problem {
    fn new(attention: &Attention, blocks: &[Block], drops: Option<Drops>) -> Self {
        // The loops below index flat slices. A contiguous tensor is not copied.
        let plain = |tensor: &Tensor| tensor.detach().contiguous();
        let size = |tensor: &Tensor, i: usize| tensor.size()[i] as usize;
        let (q, k, v, r) = (plain(attention.q), plain(attention.k), plain(attention.v), plain(attention.r));
        let sizes = Sizes {
            lanes: size(&q, 0),
            heads: size(&q, 2),
            width: size(&q, 3),
            queries: size(&q, 1),
            segment: attention.places.as_ref().map_or(size(&q, 1), |places| places.segment as usize),
            keys: size(&k, 1),
            distances: size(&r, 0),
        };
        let segments = attention.segments.as_ref();
        let places = attention.places.as_ref().map(|places| positions(places, [sizes.lanes, sizes.queries]));
        let problem = Self {
            sizes,
            places,
            biases: attention.biases.map(plain),
            segments: segments.map(|s| [s.vectors[0], s.vectors[1], s.of_queries, s.of_keys].map(plain)),
            blocks: blocks
                .iter()
                .map(|block| Block { mask: block.mask.as_ref().map(plain), ..*block })
                .collect(),
            q,
            k,
            v,
            r,
            scale: attention.scale as f32,
            drops,
        };
        problem.check();
        problem
    }

    /// All that the unsafe code below relies on.
    fn check(&self) {
        let is = |tensor: &Tensor, sizes: &[usize]| {
            let sizes: Vec<i64> = sizes.iter().map(|&size| size as i64).collect();
            assert!(tensor.size() == sizes && is_f32_slice(tensor), "{:?} is not {sizes:?}", tensor.size());
        };
        let Sizes { lanes, heads, width, queries, segment, keys, distances } = self.sizes;
        is(&self.q, &[lanes, queries, heads, width]);
        is(&self.k, &[lanes, keys, heads, width]);
        is(&self.v, &[lanes, keys, heads, width]);
        is(&self.r, &[distances, heads, width]);
        self.biases.iter().for_each(|bias| is(bias, &[heads, width]));
        if let Some([bias, other, of_queries, of_keys]) = &self.segments {
            is(bias, &[heads, width]);
            is(other, &[heads, width]);
            is(of_queries, &[lanes, queries]);
            is(of_keys, &[lanes, keys]);
        }
        // Blocks partition the queries: each query's row of the output and of the weights is written once,
        // hence without a lock.
        let mut next = 0;
        for block in &self.blocks {
            assert!(block.start == next && block.rows > 0 && block.keys > 0 && block.keys as usize <= keys);
            next += block.rows;
            if let Some(mask) = &block.mask {
                let of = mask.size()[0] as usize;
                assert!(of == lanes || of == 1, "a mask of {of} lanes for {lanes}");
                is(mask, &[of, block.rows as usize, block.keys as usize]);
            }
        }
        assert!(next as usize == queries);
        // The farthest distance that any pair of position and key has stands in row `segment - 1 + keys - 1`.
        assert!(distances + 1 >= segment + keys);
        assert!(self.places.iter().flatten().all(|&place| place < segment), "a query outside of {segment}");
    }

    fn view(&self) -> View<'_> {
        // SAFETY: a view lives as long as one pass. A pass writes to tensors that it makes itself, and its caller, who holds
        // whatever other handles there are, waits for it.
        let values = |tensor| unsafe { as_f32(tensor) };
        let mut place = 0;
        let blocks = self.blocks.iter().map(|block| {
            let (start, rows, keys) = (block.start as usize, block.rows as usize, block.keys as usize);
            // Blocks see different numbers of keys, so the weights of one follow those of the one before,
            // without gaps.
            let weights = place;
            place += self.sizes.lanes * self.sizes.heads * rows * keys;
            let mask = block.mask.as_ref().map(|mask| (values(mask), mask.size()[0] > 1));
            PlacedBlock { start, rows, keys, mask, weights }
        });
        View {
            sizes: self.sizes,
            blocks: blocks.collect(),
            weights: place,
            q: values(&self.q),
            k: values(&self.k),
            v: values(&self.v),
            r: values(&self.r),
            places: self.places.as_deref(),
            biases: self.biases.each_ref().map(values),
            segments: self.segments.as_ref().map(|all| all.each_ref().map(values)),
            scale: self.scale,
            drops: self.drops,
        }
    }

    /// What is read, and the weights: those that dropout has taken stand negated.
    fn forward(&self) -> (Tensor, Tensor) {
        let (view, sizes) = (self.view(), self.sizes);
        let Sizes { lanes, heads, width, queries, .. } = sizes;
        let empty = |sizes: &[usize]| {
            let sizes: Vec<i64> = sizes.iter().map(|&size| size as i64).collect();
            Tensor::empty(sizes, (Kind::Float, tch::Device::Cpu))
        };
        let (mut read, mut weights) = (empty(&[lanes, queries, heads * width]), empty(&[view.weights]));
        let (to, kept) = (Shared::of(&mut read), Shared::of(&mut weights));
        // A head belongs to one thread whole: its table of distances is turned once and serves all lanes, and
        // no two threads write to one place.
        threads::for_each(heads, |head| {
            let mut scratch = Scratch::new(sizes);
            scratch.by_distance.lay(view.distances(head));
            for lane in 0..lanes {
                scratch.by_content.lay(view.contents(view.k, head, lane));
                scratch.contents.lay(view.contents(view.v, head, lane));
                for tile in view.tiles(head, lane) {
                    view.read(&tile, &mut scratch, to, kept);
                }
            }
        });
        (read, weights)
    }

    /// Gradients of q, k, v, r, u, v and, where segments count, b and s; `grad`: `[lanes, query, heads * width]`.
    fn backward(&self, grad: &Tensor, weights: &Tensor) -> Vec<Option<Tensor>> {
        let (view, sizes) = (self.view(), self.sizes);
        let Sizes { lanes, heads, .. } = sizes;
        let mut grads = Gradients {
            // A tile writes the gradient of its own queries once. All others are sums over tiles.
            q: self.q.empty_like(),
            k: self.k.zeros_like(),
            v: self.v.zeros_like(),
            r: self.r.zeros_like(),
            biases: self.biases.each_ref().map(Tensor::zeros_like),
            segments: self.segments.as_ref().map(|[bias, other, ..]| [bias, other].map(Tensor::zeros_like)),
        };
        let to = grads.shared();
        // SAFETY: as in `view`.
        let (grad, weights) = unsafe { (as_f32(grad), as_f32(weights)) };
        assert!(grad.len() == view.q.len() && weights.len() == view.weights);
        // By head once more: sums over queries and lanes then have one order, whatever the number of threads.
        threads::for_each(heads, |head| {
            let mut scratch = Scratch::new(sizes);
            scratch.distances.lay(view.distances(head));
            for lane in 0..lanes {
                // The gradient of a weight is the product of what came back with its value: values are laid out as
                // keys were before.
                scratch.by_content.lay(view.contents(view.v, head, lane));
                scratch.contents.lay(view.contents(view.k, head, lane));
                for tile in view.tiles(head, lane) {
                    view.read_back(&tile, &mut scratch, (grad, weights), &to);
                }
            }
        });
        let Gradients { q, k, v, r, biases, segments } = grads;
        [q, k, v, r].into_iter().chain(biases).chain(segments.into_iter().flatten()).map(Some).collect()
    }
}

/// The positions of `[lanes, queries]`, lane after lane.
fn positions(places: &Places, sizes: [usize; 2]) -> Vec<usize> {
    let of_queries = places.of_queries;
    assert!(of_queries.size() == sizes.map(|size| size as i64), "{:?} is not {sizes:?}", of_queries.size());
    let mut all = vec![0i64; of_queries.numel()];
    let count = all.len();
    of_queries.to_device(tch::Device::Cpu).copy_data(&mut all, count);
    // A negative one is refused as too large.
    all.into_iter().map(|place| usize::try_from(place).unwrap_or(usize::MAX)).collect()
}

struct Gradients {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    r: Tensor,
    biases: [Tensor; 2],
    segments: Option<[Tensor; 2]>,
}

struct SharedGradients {
    q: Shared,
    k: Shared,
    v: Shared,
    r: Shared,
    biases: [Shared; 2],
    segments: Option<[Shared; 2]>,
}

impl Gradients {
    fn shared(&mut self) -> SharedGradients {
        SharedGradients {
            q: Shared::of(&mut self.q),
            k: Shared::of(&mut self.k),
            v: Shared::of(&mut self.v),
            r: Shared::of(&mut self.r),
            biases: self.biases.each_mut().map(Shared::of),
            segments: self.segments.as_mut().map(|both| both.each_mut().map(Shared::of)),
        }
    }
}
