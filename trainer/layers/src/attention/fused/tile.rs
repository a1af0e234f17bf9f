//! A few queries of one head of one lane: what they read, and the way back.

use segue_kernels::libtorch::{Rows, Shared};
use segue_kernels::noise::Drops;
use segue_kernels::simd::{sum_of_pairs, vectorised};

use super::products::{Across, Along, Matrix, Space, add_turned, aligned, in_tiles};
use super::weights::{weigh, weigh_back};
use super::{SharedGradients, Sizes};
use crate::attention::COLUMNS;

/// Queries of one tile. Each reckons the distances of all of them, of which it needs those to its own keys: fewer waste less,
/// more are better products.
pub const ROWS: usize = 32;
const ROWS_IN_TILES: usize = 64;

/// Queries of one tile of a longer block, of vectors so wide: more where the processor's own tiles multiply, as sums over queries are then
/// read and written less often.
fn rows_of_tile(width: usize) -> usize {
    if in_tiles(width) { ROWS_IN_TILES } else { ROWS }
}

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
    pub places: Option<&'a [usize]>,
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
    /// The last position that any of them stands at.
    pub last: usize,
    /// First row of the table of distances that products read.
    pub first: usize,
    /// Rows from there to the first that is needed: products in the processor's tiles begin at whole ones.
    pub lead: usize,
    /// Rows of the table that products read.
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
            let most = rows_of_tile(self.sizes.width);
            (0..block.rows).step_by(most).map(move |offset| {
                let rows = most.min(block.rows - offset);
                let (start, keys) = (block.start + offset, block.keys);
                // Position i meets key j in row `segment - 1 - i + j` of the table. The last position of the tile
                // meets key 0 in the first row that the tile needs, its first one the last key in the last
                // row: so many rows for all of them. A few more, where the table has them, make the width one that
                // products like.
                let (nearest, last) = self.span(lane, start, rows);
                let needed = self.sizes.segment - 1 - last;
                let first = aligned(needed, self.sizes.width);
                let lead = needed - first;
                let columns = (lead + keys + last - nearest).next_multiple_of(COLUMNS);
                let columns = columns.min(self.sizes.distances - first);
                Tile { block, head, lane, start, rows, keys, last, first, lead, columns }
            })
        })
    }

    /// The position of a query.
    #[inline(always)]
    fn position(&self, lane: usize, query: usize) -> usize {
        self.places.map_or(query, |places| places[lane * self.sizes.queries + query])
    }

    /// The first and the last position of some queries.
    fn span(&self, lane: usize, start: usize, rows: usize) -> (usize, usize) {
        let positions = (start..start + rows).map(|query| self.position(lane, query));
        positions.fold((usize::MAX, 0), |(first, last), at| (first.min(at), last.max(at)))
    }

    /// Where the scores by distance of query `row` of a tile begin, those of key 0, among all of the tile.
    #[inline(always)]
    pub fn distances_place(&self, tile: &Tile, row: usize) -> usize {
        row * tile.columns + tile.lead + tile.last - self.position(tile.lane, tile.start + row)
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
        let Sizes { width, queries, .. } = self.sizes;
        let q = &self.q[self.sizes.place(tile.lane, queries, tile.start, tile.head)..];
        add_and_scale(
            q,
            self.sizes.stride(),
            self.of_head(tile, bias),
            self.scale,
            &mut to[..tile.rows * width],
        );
    }

    /// Keys or values of a head of a lane.
    pub fn contents<'v>(&self, of: &'v [f32], head: usize, lane: usize) -> Matrix<'v> {
        let Sizes { width, keys, .. } = self.sizes;
        let values = &of[self.sizes.place(lane, keys, 0, head)..];
        Matrix { values, rows: keys, columns: width, stride: self.sizes.stride() }
    }

    /// The table of distances of a head.
    pub fn distances(&self, head: usize) -> Matrix<'_> {
        let Sizes { width, distances, .. } = self.sizes;
        Matrix {
            values: &self.r[head * width..],
            rows: distances,
            columns: width,
            stride: self.sizes.stride(),
        }
    }

    pub fn read(&self, tile: &Tile, scratch: &mut Scratch, to: Shared, kept: Shared) {
        let Tile { rows, keys, columns, .. } = *tile;
        let Sizes { width, queries, .. } = self.sizes;
        let Scratch { scores, by_position, for_contents, for_positions, space, .. } = scratch;
        // The scale goes into the queries, `rows * width` values, not into the scores, `rows * keys`.
        self.biased(tile, self.biases[0], for_contents);
        self.biased(tile, self.biases[1], for_positions);
        let queries_of = |values| Matrix::dense(values, rows, width);
        scratch.by_content.product(queries_of(for_contents), 0, keys, scores, space);
        // Scores by distance for every query and every distance of the tile. Row i holds those of its own keys
        // from one of its columns on: reading from there is the shift, and nothing is moved.
        scratch.by_distance.product(queries_of(for_positions), tile.first, columns, by_position, space);
        weigh(self, tile, scores, by_position, kept);
        // The scores are weights by now. Heads lie side by side in the output, so the result needs no
        // transposition.
        let place = self.sizes.place(tile.lane, queries, tile.start, tile.head);
        // SAFETY: what this head reads for these queries is written here alone.
        unsafe {
            let to = Rows { start: to.at(place), stride: self.sizes.stride() };
            scratch.contents.product(Matrix::dense(scores, rows, keys), 0, to, space);
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
        let Scratch { scores, by_position, for_contents, for_positions, space, .. } = scratch;
        self.biased(tile, self.biases[0], for_contents);
        self.biased(tile, self.biases[1], for_positions);
        let grad = &grad[self.sizes.place(lane, queries, start, head)..];
        let grad = Matrix { values: grad, rows, columns: width, stride };
        scratch.by_content.product(grad, 0, keys, scores, space);
        weigh_back(self, tile, scores, weights, &mut scratch.weights, by_position, &mut scratch.others);
        // From here on `scores` holds gradients of scores, `by_position` the same laid out by distance.
        let of_scores = Matrix::dense(scores, rows, keys);
        let of_distances = Matrix::dense(by_position, rows, columns);
        // Gradients of the queries, by contents and by positions.
        let own = |values: &mut [f32]| Rows { start: values[..rows * width].as_mut_ptr(), stride: width };
        // SAFETY: so many rows of the scratch.
        unsafe {
            scratch.contents.product(of_scores, 0, own(&mut scratch.of_contents), space);
            scratch.distances.product(of_distances, first, own(&mut scratch.of_positions), space);
        }
        self.queries_back(tile, &scratch.of_contents, &scratch.of_positions, &scratch.others, to);
        // Of keys, values and distances: sums over queries. Keys and distances: (gradients of scores)ᵀ times the queries, which
        // have the scale in them. Values: weightsᵀ times what came back.
        let own_keys = self.sizes.place(lane, self.sizes.keys, 0, head);
        let table = self.sizes.place(0, distances, first, head);
        let queries_of = |values| Matrix::dense(values, rows, width);
        let of_weights = Matrix::dense(&scratch.weights, rows, keys);
        // SAFETY: rows of this head, which nobody else adds to, as many as `of_…` has columns.
        unsafe {
            let rows_at = |target: Shared, place| Rows { start: target.at(place), stride };
            add_turned(of_scores, queries_of(for_contents), rows_at(to.k, own_keys), space);
            add_turned(of_weights, grad, rows_at(to.v, own_keys), space);
            add_turned(of_distances, queries_of(for_positions), rows_at(to.r, table), space);
        }
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
            query_back(contents, positions, self.scale, [&mut *q, &mut *u, &mut *v]);
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

/// (row + bias) · scale of rows that lie `stride` apart, one after the other.
#[inline(always)]
fn add_and_scale_plain(rows: &[f32], stride: usize, bias: &[f32], scale: f32, to: &mut [f32]) {
    for (row, to) in to.chunks_exact_mut(bias.len()).enumerate() {
        for ((to, value), bias) in to.iter_mut().zip(&rows[row * stride..]).zip(bias) {
            *to = (value + bias) * scale;
        }
    }
}

vectorised! {
    fn add_and_scale(rows: &[f32], stride: usize, bias: &[f32], scale: f32, to: &mut [f32]) = add_and_scale_plain;
}

/// Gradients of a query, which is written, and of the two vectors added to it, which are added to.
#[inline(always)]
fn query_back_plain(contents: &[f32], positions: &[f32], scale: f32, [q, u, v]: [&mut [f32]; 3]) {
    let vectors = q.iter_mut().zip(u).zip(v);
    for ((contents, positions), ((q, u), v)) in contents.iter().zip(positions).zip(vectors) {
        *q = (contents + positions) * scale;
        *u += contents * scale;
        *v += positions * scale;
    }
}

vectorised! {
    fn query_back(contents: &[f32], positions: &[f32], scale: f32, to: [&mut [f32]; 3]) = query_back_plain;
}

/// What one thread works in.
pub struct Scratch<'a> {
    /// Keys, or on the way back values, as queries multiply with them.
    pub by_content: Across,
    /// The table of distances of one head, likewise.
    pub by_distance: Across,
    /// Values, or on the way back keys, as weights add them up.
    pub contents: Along<'a>,
    /// The table of distances, likewise.
    pub distances: Along<'a>,
    /// (q + u) · scale and (q + v) · scale of a tile, `[rows, width]`.
    for_contents: Vec<f32>,
    for_positions: Vec<f32>,
    /// Their gradients.
    of_contents: Vec<f32>,
    of_positions: Vec<f32>,
    /// `[rows, key]`.
    scores: Vec<f32>,
    weights: Vec<f32>,
    /// `[rows, distance]`.
    by_position: Vec<f32>,
    /// Gradients of (q + b)·s · scale, `[rows]`.
    others: Vec<f32>,
    space: Space,
}

impl Scratch<'_> {
    pub fn new(sizes: Sizes) -> Self {
        let zeros = |count: usize| vec![0f32; count];
        let rows = rows_of_tile(sizes.width);
        let states = || zeros(rows * sizes.width);
        Self {
            by_content: Across::default(),
            by_distance: Across::default(),
            contents: Along::default(),
            distances: Along::default(),
            for_contents: states(),
            for_positions: states(),
            of_contents: states(),
            of_positions: states(),
            scores: zeros(rows * sizes.keys),
            weights: zeros(rows * sizes.keys),
            // A tile has no more of them than the table.
            by_position: zeros(rows * sizes.distances),
            others: zeros(rows),
            space: Space::default(),
        }
    }
}
