//! Sequences of reused text, segment A and segment B, their targets and the order in which these are predicted: what
//! XLNet is pretrained on (Yang 2019, §2.2.2 and §2.2.3; XLNet's `data_utils.py`).

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
