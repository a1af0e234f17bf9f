//! A few queries of one head of one lane: what they read, and the way back.

use super::weights::{weigh, weigh_back};
use super::{SharedGradients, Sizes};
use crate::layers::attention::COLUMNS;
use crate::libtorch::{Rows, Shared, small_product};
use crate::noise::Drops;
use crate::simd::{sum_of_pairs, transpose};

/// Queries of one tile. Each reckons the distances of all of them, of which it needs those to its own keys: fewer waste less,
/// more are better products.
pub const ROWS: usize = 32;

/// The values of a [`super::Problem`].
pub struct View<'a> {
    pub sizes: Sizes,
    pub blocks: Vec<PlacedBlock<'a>>,
    /// How many weights there are.
    pub weights: usize,
    pub q: &'a [f32],
    pub k: &'a [f32],
    pub v: &'a [f32],
    pub r: &'a [f32],
    pub biases: [&'a [f32]; 2],
    pub segments: Option<[&'a [f32]; 4]>,
    pub scale: f32,
    pub drops: Option<Drops>,
}

pub struct PlacedBlock<'a> {
    pub start: usize,
    pub rows: usize,
    pub keys: usize,
    /// With whether each lane has its own.
    pub mask: Option<(&'a [f32], bool)>,
    /// Where its weights begin among those of all blocks.
    pub weights: usize,
}

/// A few queries of one head of one lane.
pub struct Tile<'a> {
    pub block: &'a PlacedBlock<'a>,
    pub head: usize,
    pub lane: usize,
    /// First query.
    pub start: usize,
    pub rows: usize,
    pub keys: usize,
    /// First row of the table of distances.
    pub first: usize,
    /// Rows of it.
    pub columns: usize,
}

impl Tile<'_> {
    /// Where query `row` of the tile begins in what its block has for all of its queries, as number `all` of such.
    fn place_in_block(&self, all: usize, row: usize) -> usize {
        (all * self.block.rows + self.start - self.block.start + row) * self.keys
    }
}

impl View<'_> {
    pub fn tiles(&self, head: usize, lane: usize) -> impl Iterator<Item = Tile<'_>> {
        self.blocks.iter().flat_map(move |block| {
            (0..block.rows).step_by(ROWS).map(move |offset| {
                let rows = ROWS.min(block.rows - offset);
                let (start, keys) = (block.start + offset, block.keys);
                // Query i meets key j in row `queries - 1 - i + j` of the table. The last query of the tile
                // meets key 0 in the first row that the tile needs, its first query the last key in the last
                // one: `keys + rows - 1` rows for all of them. A few more, where the table has them, make the
                // width one that products like.
                let first = self.sizes.queries - start - rows;
                let columns = (keys + rows - 1).next_multiple_of(COLUMNS).min(self.sizes.distances - first);
                Tile { block, head, lane, start, rows, keys, first, columns }
            })
        })
    }

    /// Where the weights of query `row` of a tile begin.
    pub fn weights_place(&self, tile: &Tile, row: usize) -> usize {
        tile.block.weights + tile.place_in_block(tile.head * self.sizes.lanes + tile.lane, row)
    }

    /// q of query `row` of a tile.
    #[inline(always)]
    fn query(&self, tile: &Tile, row: usize) -> &[f32] {
        let Sizes { width, queries, .. } = self.sizes;
        &self.q[self.sizes.place(tile.lane, queries, tile.start + row, tile.head)..][..width]
    }

    /// A vector of a tile's head.
    #[inline(always)]
    fn of_head<'v>(&self, tile: &Tile, vectors: &'v [f32]) -> &'v [f32] {
        &vectors[tile.head * self.sizes.width..][..self.sizes.width]
    }

    /// The segment of query `row` of a tile, and those of the keys.
    #[inline(always)]
    pub fn segments(&self, tile: &Tile, row: usize) -> Option<(f32, &[f32])> {
        let [_, _, of_queries, of_keys] = self.segments?;
        let own = of_queries[tile.lane * self.sizes.queries + tile.start + row];
        Some((own, &of_keys[tile.lane * self.sizes.keys..][..tile.keys]))
    }

    /// (q + b)·s · scale of query `row` of a tile.
    #[inline(always)]
    fn other(&self, tile: &Tile, row: usize) -> f32 {
        let Some([bias, other, ..]) = self.segments else { return 0.0 };
        let (bias, other) = (self.of_head(tile, bias), self.of_head(tile, other));
        let of_query = sum_of_pairs(self.query(tile, row), other, |q, s| q * s);
        (of_query + sum_of_pairs(bias, other, |b, s| b * s)) * self.scale
    }

    /// (q + bias) · scale of a tile's queries, `[rows, width]`.
    fn biased(&self, tile: &Tile, bias: &[f32], to: &mut [f32]) {
        let bias = self.of_head(tile, bias);
        for (row, to) in to.chunks_exact_mut(self.sizes.width).take(tile.rows).enumerate() {
            for ((to, q), bias) in to.iter_mut().zip(self.query(tile, row)).zip(bias) {
                *to = (q + bias) * self.scale;
            }
        }
    }

    pub fn read(&self, tile: &Tile, scratch: &mut Scratch, to: Shared, kept: Shared) {
        let Tile { rows, keys, columns, .. } = *tile;
        let Sizes { width, queries, distances, .. } = self.sizes;
        let Scratch { scores, by_position, for_contents, for_positions, .. } = scratch;
        // The scale goes into the queries, `rows * width` values, not into the scores, `rows * keys`.
        self.biased(tile, self.biases[0], for_contents);
        self.biased(tile, self.biases[1], for_positions);
        product([rows, keys, width], (for_contents, width), (&scratch.turned, self.sizes.keys), scores);
        // Scores by distance for every query and every distance of the tile. Row i holds those of its own keys
        // from column `rows - 1 - i` on: reading from there is the shift, and nothing is moved.
        let window = (&scratch.r[tile.first..], distances);
        product([rows, columns, width], (for_positions, width), window, by_position);
        weigh(self, tile, scores, by_position, kept);
        // The scores are weights by now. Heads lie side by side in the output, so the result needs no
        // transposition.
        let place = self.sizes.place(tile.lane, queries, tile.start, tile.head);
        let v = &self.v[self.sizes.place(tile.lane, self.sizes.keys, 0, tile.head)..];
        // SAFETY: what this head reads for these queries is written here alone; `v` has as many rows as there are keys.
        unsafe {
            small_product(
                [rows, width, keys],
                Rows { start: scores.as_ptr(), stride: keys },
                Rows { start: v.as_ptr(), stride: self.sizes.stride() },
                Rows { start: to.at(place), stride: self.sizes.stride() },
                false,
            );
        }
    }

    /// Scores of query `row` of a tile, of which those by content are there.
    #[inline(always)]
    pub fn complete(&self, tile: &Tile, row: usize, scores: &mut [f32], by_position: &[f32]) {
        for (score, more) in scores.iter_mut().zip(by_position) {
            *score += more;
        }
        // s₋ − s₊ where segments differ, nothing where they agree: a softmax does not see what all keys have
        // alike.
        if let Some((own, of_keys)) = self.segments(tile, row) {
            let other = self.other(tile, row);
            for (score, segment) in scores.iter_mut().zip(of_keys) {
                *score += if *segment == own { 0.0 } else { other };
            }
        }
        if let Some((mask, by_lane)) = tile.block.mask {
            let place = tile.place_in_block(if by_lane { tile.lane } else { 0 }, row);
            for (score, hidden) in scores.iter_mut().zip(&mask[place..place + tile.keys]) {
                *score += hidden;
            }
        }
    }

    pub fn read_back(
        &self,
        tile: &Tile,
        scratch: &mut Scratch,
        (grad, weights): (&[f32], &[f32]),
        to: &SharedGradients,
    ) {
        let Tile { rows, keys, columns, lane, head, start, first, .. } = *tile;
        let Sizes { width, queries, distances, .. } = self.sizes;
        let stride = self.sizes.stride();
        let Scratch { scores, by_position, for_contents, for_positions, of_contents, of_positions, .. } =
            scratch;
        self.biased(tile, self.biases[0], for_contents);
        self.biased(tile, self.biases[1], for_positions);
        let grad = &grad[self.sizes.place(lane, queries, start, head)..];
        product([rows, keys, width], (grad, stride), (&scratch.turned, self.sizes.keys), scores);
        let Scratch { weights: dropped, others, .. } = scratch;
        weigh_back(self, tile, scores, weights, dropped, by_position, others);
        // Gradients of the queries, by contents and by positions.
        // From here on `scores` holds gradients of scores, `by_position` the same laid out by distance.
        let own_keys = self.sizes.place(lane, self.sizes.keys, 0, head);
        product([rows, width, keys], (scores, keys), (&self.k[own_keys..], stride), of_contents);
        let table = self.sizes.place(0, distances, first, head);
        product([rows, width, columns], (by_position, columns), (&self.r[table..], stride), of_positions);
        self.queries_back(tile, of_contents, of_positions, &scratch.others, to);
        // Of keys, values and distances: sums over queries.
        // Keys and distances: (gradients of scores)ᵀ times the queries, which have the scale in them. Values:
        // weightsᵀ times what came back. The left side is turned first, as products want its rows together.
        let turned = &mut scratch.transposed;
        let mut add =
            |left: &[f32], count: usize, right: &[f32], right_stride: usize, target: Shared, place: usize| {
                transpose(left, count, [rows, count], turned, rows);
                // SAFETY: `count` rows of this head from `place` on, which nobody else adds to; `right` has `rows` rows.
                unsafe {
                    small_product(
                        [count, width, rows],
                        Rows { start: turned.as_ptr(), stride: rows },
                        Rows { start: right.as_ptr(), stride: right_stride },
                        Rows { start: target.at(place), stride },
                        true,
                    );
                }
            };
        add(scores, keys, for_contents, width, to.k, own_keys);
        add(&scratch.weights, keys, grad, stride, to.v, own_keys);
        add(by_position, columns, for_positions, width, to.r, table);
    }

    /// Gradients of a tile's queries and of the vectors added to them, of those of (q + u) · scale, (q + v) · scale and
    /// (q + b)·s · scale.
    fn queries_back(
        &self,
        tile: &Tile,
        of_contents: &[f32],
        of_positions: &[f32],
        others: &[f32],
        to: &SharedGradients,
    ) {
        let Sizes { width, queries, .. } = self.sizes;
        // SAFETY: what is written to in here is this head's, of these queries or of its vectors: nobody else writes to it.
        let own = |target: Shared, place: usize| unsafe { target.slice(place..place + width) };
        // Every query has u and v added, so their gradients are sums over queries.
        let [u, v] = to.biases.map(|bias| own(bias, tile.head * width));
        for row in 0..tile.rows {
            let q = own(to.q, self.sizes.place(tile.lane, queries, tile.start + row, tile.head));
            let (contents, positions) =
                (&of_contents[row * width..][..width], &of_positions[row * width..][..width]);
            for i in 0..width {
                q[i] = (contents[i] + positions[i]) * self.scale;
                u[i] += contents[i] * self.scale;
                v[i] += positions[i] * self.scale;
            }
            if let (Some([bias, other, ..]), Some(targets)) = (self.segments, to.segments) {
                let [of_bias, of_other] = targets.map(|target| own(target, tile.head * width));
                let (bias, other) = (self.of_head(tile, bias), self.of_head(tile, other));
                // The score's part is (q + b)·s: by the rule of products each side gets the other.
                let (grad, own_q) = (others[row] * self.scale, self.query(tile, row));
                for i in 0..width {
                    q[i] += grad * other[i];
                    of_bias[i] += grad * other[i];
                    of_other[i] += grad * (own_q[i] + bias[i]);
                }
            }
        }
    }
}

/// What one thread works in.
pub struct Scratch {
    /// The table of distances of one head, `[width, distance]`.
    pub r: Vec<f32>,
    /// Keys or values of one head of a lane, `[width, key]`.
    pub turned: Vec<f32>,
    /// (q + u) · scale and (q + v) · scale of a tile, `[rows, width]`.
    pub for_contents: Vec<f32>,
    pub for_positions: Vec<f32>,
    /// Their gradients.
    pub of_contents: Vec<f32>,
    pub of_positions: Vec<f32>,
    /// `[rows, key]`.
    pub scores: Vec<f32>,
    pub weights: Vec<f32>,
    /// `[rows, distance]`.
    pub by_position: Vec<f32>,
    /// Gradients of (q + b)·s · scale, `[rows]`.
    pub others: Vec<f32>,
    /// Scores, weights or those by distance, turned.
    pub transposed: Vec<f32>,
}

impl Scratch {
    pub fn new(sizes: Sizes) -> Self {
        let zeros = |count: usize| vec![0f32; count];
        let states = || zeros(ROWS * sizes.width);
        let columns = (sizes.keys + ROWS).next_multiple_of(COLUMNS);
        Self {
            r: zeros(sizes.distances * sizes.width),
            turned: zeros(sizes.keys * sizes.width),
            for_contents: states(),
            for_positions: states(),
            of_contents: states(),
            of_positions: states(),
            scores: zeros(ROWS * sizes.keys),
            weights: zeros(ROWS * sizes.keys),
            by_position: zeros(ROWS * columns),
            others: zeros(ROWS),
            transposed: zeros(ROWS * columns),
        }
    }
}

/// `c` `[m, n]` = `a` `[m, k]` times `b` `[k, n]`; `a` and `b` with values from row to row.
fn product([m, n, k]: [usize; 3], a: (&[f32], usize), b: (&[f32], usize), c: &mut [f32]) {
    let fits =
        |length: usize, rows: usize, columns: usize, stride: usize| (rows - 1) * stride + columns <= length;
    assert!(fits(a.0.len(), m, k, a.1) && fits(b.0.len(), k, n, b.1) && m * n <= c.len());
    let rows = |(values, stride): (&[f32], usize)| Rows { start: values.as_ptr(), stride };
    // SAFETY: all rows lie inside the slices.
    unsafe { small_product([m, n, k], rows(a), rows(b), Rows { start: c.as_mut_ptr(), stride: n }, false) };
}
