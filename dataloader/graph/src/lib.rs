//! Graphs whose nodes are classified (Yang, Cohen and Salakhutdinov 2016): neighbour lists, sparse features, labels and splits from
//! the files in which they are published, and random walks and contexts over them. Nothing here knows tensors.
//!
//! [`NodeData::open`] reads a data set. [`Contexts`] draws pairs of nodes, each of which is a function of a seed and a number.

mod contexts;
mod counts;
mod data;
mod graph;
mod limit;
mod lines;
mod lists;
mod nell;
mod numbers;
mod open;
mod pickles;
mod recall;
mod rows;
mod split;
mod store;
mod text;

pub use contexts::{
    ContextOptions, Contexts, Covered, LabelPairs, Pair, PairLaw, PairsPerWalk, Starts, walk,
};
pub use counts::GraphCounts;
pub use data::{NodeData, Setting};
pub use graph::Graph;
pub use lists::{Asymmetry, BadList};
pub use nell::EntityGraph;
pub use open::OpenOptions;
pub use recall::{Recall, rank_nodes};
pub use rows::SparseRows;
pub use split::Split;
pub use text::{GraphForm, read_index};
