//! A few queries of one head of one lane: what they read, and the way back.

use segue_kernels::libtorch::{Rows, Shared};
use segue_kernels::simd::vectorised;

use super::products::{Across, Along, Matrix, Space, add_turned};
use super::view::{Tile, View, rows_of_tile};
use super::weights::{weigh, weigh_back};
use super::{SharedGradients, Sizes};

impl View<'_> {
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
