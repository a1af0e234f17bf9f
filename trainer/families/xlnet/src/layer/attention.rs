//! Attention made of products over tensors: where no loop of several threads takes it.

use segue_kernels::noise::{Drops, Noise};
use segue_layers::attention::{drop_weights, even_columns, weights_of};
use tch::Tensor;

use super::{Layer, scale};
use crate::plan::{Group, Segments, Targets};

/// Rows whose scores by distance are one product: each row gets the scores of all their distances and uses those to
/// its own keys. Fewer waste less, more are better products.
const WINDOW_ROWS: i64 = 64;

/// Attention of the lanes of one group: keys, values and distances, projected once for both streams.
///
/// score(i, j) = [(q_i + u)·k_j + (q_i + v)·(W_r R_{i−j}) + (q_i + b)·s_ij] / √width. The segment
/// term is left out where i and j are of one segment and (q_i + b)·(s₋ − s₊) elsewhere: the same up to a
/// constant of each row, which the softmax does not see.
pub struct Attention<'a> {
    layer: &'a Layer,
    group: &'a Group,
    /// `[heads * lanes, width (+ segments), key]`, with the codes of segments.
    k: Tensor,
    /// `[heads * lanes, key, width]`.
    v: Tensor,
    /// W_r R over √width, `[heads, width, distance]`.
    r: Tensor,
    /// s₋ − s₊, `[heads, 1, width, 1]`.
    s: Tensor,
    keys: i64,
}

impl<'a> Attention<'a> {
    /// `k` and `v`: `[lanes, key, heads, width]`; `r`: `[distance, heads, width]`.
    pub fn new(layer: &'a Layer, group: &'a Group, [k, v]: [&Tensor; 2], r: &Tensor) -> Self {
        let (heads, width, lanes) = (layer.heads, layer.width, group.lanes);
        let keys = k.size()[1];
        let by_head = |x: &Tensor| x.permute([2, 0, 1, 3]); // [heads, lanes, key, width]
        let mut k = by_head(k);
        if let Some(codes) = group.segments.as_ref().map(Segments::codes) {
            k = Tensor::cat(&[k, codes.keys.unsqueeze(0).expand([heads, -1, -1, -1], false)], 3);
        }
        Self {
            k: k.reshape([heads * lanes, keys, -1]).transpose(1, 2),
            v: by_head(v).reshape([heads * lanes, keys, width]),
            r: (r * scale(layer)).permute([1, 2, 0]).contiguous(),
            s: (layer.seg_embed.get(1) - layer.seg_embed.get(0)).view([heads, 1, width, 1]),
            layer,
            group,
            keys,
        }
    }

    /// Queries by head, `[heads, lanes, length, width]` of `[lanes, length, heads, width]`.
    fn queries(&self, q: &Tensor) -> Tensor {
        q.permute([2, 0, 1, 3]).contiguous()
    }

    /// `q`, `[heads, lanes, length, width]`, plus u, v or b.
    fn biased(&self, q: &Tensor, bias: &Tensor) -> Tensor {
        q + bias.view([self.layer.heads, 1, 1, self.layer.width])
    }

    /// `q` for the products with contents, with the segment term's share: `[heads, lanes, length, width (+ segments)]`.
    fn content_queries(&self, q: &Tensor, codes: Option<&Tensor>) -> Tensor {
        let [u, _, b] = &self.layer.biases;
        let by_content = self.biased(q, u);
        match codes {
            None => by_content,
            Some(codes) => {
                // (q + b)·s, without q + b in full.
                let of_bias = b.view([self.layer.heads, 1, 1, self.layer.width]).matmul(&self.s);
                let by_segment = (q.matmul(&self.s) + of_bias) * codes.unsqueeze(0);
                Tensor::cat(&[by_content, by_segment], 3)
            }
        }
    }

    /// What the content stream reads, `[lanes, segment, heads * width]`; `q`: `[lanes, segment, heads, width]`.
    pub fn content(&self, q: &Tensor, noise: Option<&Noise>) -> Tensor {
        let segment = q.size()[1];
        let q = self.queries(q);
        let by_content =
            self.content_queries(&q, self.group.segments.as_ref().map(|segments| &segments.codes().queries));
        let by_position = self.biased(&q, &self.layer.biases[1]);
        // One place of the noise for all blocks, as attention in tiles has it.
        let (drops, mut first) = (self.drops(noise), 0);
        let read: Vec<Tensor> = self
            .group
            .blocks
            .iter()
            .map(|block| {
                let (rows, keys) = (block.rows, block.keys);
                let own = |q: &Tensor| q.narrow(2, block.start, rows);
                let aligned = self.aligned(&own(&by_position), segment - block.start, keys);
                let q = self.by_lane(&own(&by_content));
                let scores = aligned.baddbmm(&q, &self.k.narrow(2, 0, keys), 1.0, scale(self.layer));
                self.read(scores, block.mask.as_ref(), keys, drops, &mut first)
            })
            .collect();
        self.to_rows(&Tensor::cat(&read, 2))
    }

    /// Scores by distance to the first `keys` keys, `[heads * lanes, rows, keys]`, of `q`, `[heads, lanes, rows, width]`, whose
    /// first row has `left` rows of the segment from itself on.
    fn aligned(&self, q: &Tensor, left: i64, keys: i64) -> Tensor {
        let all = q.size()[2];
        let parts = (0..all).step_by(WINDOW_ROWS as usize).map(|start| {
            let rows = WINDOW_ROWS.min(all - start);
            // Distances of these rows to the keys: columns of the table from this one on.
            let first = left - start - rows;
            let window = self.r.narrow(2, first, even_columns(keys + rows - 1));
            let by_distance = self.by_head(&q.narrow(2, start, rows)).bmm(&window);
            shift(&by_distance, self.layer.heads * self.group.lanes, rows, keys)
        });
        Tensor::cat(&parts.collect::<Vec<_>>(), 1)
    }

    /// What the query stream reads, `[lanes, targets, heads * width]`; `q`: `[lanes, targets, heads, width]`.
    pub fn predictions(&self, q: &Tensor, targets: &Targets, noise: Option<&Noise>) -> Tensor {
        let (heads, lanes, rows) = (self.layer.heads, self.group.lanes, q.size()[1]);
        let codes = self.group.segments.as_ref().and_then(|segments| segments.codes().targets.as_ref());
        let q = self.queries(q);
        let by_distance = self.by_head(&self.biased(&q, &self.layer.biases[1])).bmm(&self.r);
        let by_distance = by_distance.view([heads, lanes, rows, -1]);
        let distances = targets.distances.unsqueeze(0).expand([heads, -1, -1, -1], false);
        let aligned = by_distance.gather(3, &distances, false).view([heads * lanes, rows, self.keys]);
        let q = self.by_lane(&self.content_queries(&q, codes));
        let scores = aligned.baddbmm(&q, &self.k, 1.0, scale(self.layer));
        let mask = targets.block.mask.as_ref();
        self.to_rows(&self.read(scores, mask, self.keys, self.drops(noise), &mut 0))
    }

    /// What the next place of the pass drops of weights.
    fn drops(&self, noise: Option<&Noise>) -> Option<Drops> {
        let rate = self.layer.dropatt;
        noise.filter(|_| rate > 0.0).map(|noise| noise.drops(rate))
    }

    /// Masks, normalises, drops, and reads values: `[heads, lanes, query, width]` of scores
    /// `[heads * lanes, query, keys]`; `first` as in [`drop_weights`].
    fn read(
        &self,
        scores: Tensor,
        mask: Option<&Tensor>,
        keys: i64,
        drops: Option<Drops>,
        first: &mut usize,
    ) -> Tensor {
        let (heads, lanes, rows) = (self.layer.heads, self.group.lanes, scores.size()[1]);
        if let Some(mask) = mask {
            let _ = scores.view([heads, lanes, rows, keys]).g_add_(mask);
        }
        let weights = drop_weights(weights_of(&scores), drops, first);
        weights.bmm(&self.v.narrow(1, 0, keys)).view([heads, lanes, rows, -1])
    }

    /// `[heads, lanes * length, width]`: one product serves the position term of all lanes of a head.
    fn by_head(&self, q: &Tensor) -> Tensor {
        q.reshape([self.layer.heads, -1, self.layer.width])
    }

    /// `[heads * lanes, length, width]`.
    fn by_lane(&self, q: &Tensor) -> Tensor {
        let size = q.size();
        q.reshape([size[0] * size[1], size[2], size[3]])
    }

    /// `[lanes, length, heads * width]` of `[heads, lanes, length, width]`.
    fn to_rows(&self, read: &Tensor) -> Tensor {
        let size = read.size();
        read.permute([1, 2, 0, 3]).reshape([size[1], size[2], size[0] * size[3]])
    }
}

/// Aligns scores by distance without a copy: `[n, rows, keys]` of `[.., rows, columns]`, contiguous, whose columns, at least
/// `keys + rows - 1`, hold falling distances. Row i begins `rows - 1 - i` columns in, so that its column j is the score at
/// distance `keys - rows + i - j` of the window.
fn shift(scores: &Tensor, n: i64, rows: i64, keys: i64) -> Tensor {
    let columns = scores.size()[2];
    scores.as_strided([n, rows, keys], [rows * columns, columns - 1, 1], rows - 1)
}
