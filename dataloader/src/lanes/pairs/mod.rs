//! Sequences of reused text, segment A and segment B, their targets and the order in which these are predicted: what
//! XLNet is pretrained on (thesis 2.2.2; spec 2.4 to 2.8).

mod arrange;
mod edges;
mod lanes;
mod options;
mod pieces;
mod records;
mod segments;
mod spans;
mod symbols;

pub use lanes::PairLanes;
pub use options::PairOptions;
pub use pieces::PairSource;
pub use records::RecordLanes;
