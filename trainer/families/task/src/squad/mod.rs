//! From the most probable spans of windows to answers in words, their files and their scores.

mod beam;
mod decode;
mod files;

pub use beam::SpanBeam;
pub use decode::{Candidate, DecodedQuestion, SpanLimits, decode};
pub use files::{report, write_answers};
