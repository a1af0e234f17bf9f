//! The values of a problem, and the tiles that they are worked on in.

use segue_kernels::noise::Drops;
use segue_kernels::simd::{sum_of_pairs, vectorised};

use super::Sizes;
use super::products::{Matrix, aligned, in_tiles};
use crate::attention::COLUMNS;

/// Queries of one tile. Position scores are computed for every distance that occurs in a tile, of which each query uses those to its own keys: fewer
/// queries waste less, more make larger matrix products.
pub const ROWS: usize = 32;
const ROWS_IN_TILES: usize = 64;

/// Queries of one tile of a longer block, of vectors so wide: more where the processor's own tiles multiply, as sums over queries are then
/// read and written less often.
pub fn rows_of_tile(width: usize) -> usize {
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
    pub fn query(&self, tile: &Tile, row: usize) -> &[f32] {
        let Sizes { width, queries, .. } = self.sizes;
        &self.q[self.sizes.place(tile.lane, queries, tile.start + row, tile.head)..][..width]
    }

    /// A vector of a tile's head.
    #[inline(always)]
    pub fn of_head<'v>(&self, tile: &Tile, vectors: &'v [f32]) -> &'v [f32] {
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
    pub fn biased(&self, tile: &Tile, bias: &[f32], to: &mut [f32]) {
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
