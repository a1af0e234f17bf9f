//! Contexts: pairs of a node and what is near it, in walks or by its label (Yang, Cohen and Salakhutdinov 2016, algorithm 2), as the
//! paper draws them and as its public program does.

mod covered;
mod labels;
mod law;
mod options;
mod sample;

pub use covered::Covered;
pub use law::PairLaw;
pub use options::{ContextOptions, LabelPairs, PairsPerWalk, Starts};
pub use sample::{Contexts, Pair, walk};
