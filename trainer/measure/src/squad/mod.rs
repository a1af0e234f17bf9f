//! The official scores of SQuAD 1.1 and 2.0: exact match and F1 of answers, and the threshold on being unanswerable.

mod answer;
mod report;
mod scored;
mod threshold;

pub use answer::{Rules, exact_match, f1, normalized};
pub use report::{Report, summarize};
pub use scored::{Scored, Solution, score};
pub use threshold::{BestThreshold, best_threshold};
