//! A chunk of queries: what is known of it, and what its products give and take.

use segue_kernels::noise::Drops;
use tch::Tensor;

/// Consecutive queries, and the keys that any of them sees.
pub struct Chunk {
    /// First query.
    pub start: i64,
    /// Queries.
    pub rows: i64,
    /// Leading keys.
    pub keys: i64,
    /// Added to scores, `[lanes or 1, rows, key]`.
    pub mask: Option<Tensor>,
    /// Of each query, `[rows, 4]`: values of all blocks before its own for one head and lane, values of its block, values of its block
    /// before its own row, and leading keys that it sees. Weight j of head and lane n of `all` has number
    /// `all * first + n * second + third + j`.
    pub numbering: Tensor,
}

impl Chunk {
    /// Distances between its queries and its keys.
    pub fn columns(&self) -> i64 {
        self.keys + self.rows - 1
    }
}

/// What is known of lanes besides products.
pub struct Lanes {
    /// Segments of queries, `[lanes, query]`, and of keys, `[lanes, key]`, where they count.
    pub segments: Option<[Tensor; 2]>,
    /// Added to scores between different segments, `[all, query]`.
    pub other: Option<Tensor>,
    /// Lanes.
    pub count: i64,
    pub drops: Option<Drops>,
}

/// Scores of a chunk before they are added up.
pub struct Products {
    /// `[all, rows, keys]`.
    pub content: Tensor,
    /// `[all, rows, columns]`: query i and key j meet in column `rows - 1 - i + j`.
    pub position: Tensor,
}

/// What goes into the products of backward.
pub struct Gradients {
    /// Weights after dropout, `[all, rows, keys]`.
    pub weights: Tensor,
    /// Of scores by content, as large.
    pub of_content: Tensor,
    /// Of scores by position, `[all, rows, columns]`; 0 where no query meets a key.
    pub of_position: Tensor,
    /// Of what scores between different segments have more, `[all, rows]`.
    pub of_other: Option<Tensor>,
}
