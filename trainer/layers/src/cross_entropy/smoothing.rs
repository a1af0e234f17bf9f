//! Label smoothing (Szegedy et al. 2016, §7): some of a target's probability goes to the other words.
//!
//! Public programs differ in which words get it. With a distribution q over words the loss of a position is −Σ_j q_j ln P_j: every word that
//! gets some gets the same share.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which words share what is taken from the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SmoothingForm {
    /// All, the target among them: the loss of PyTorch and OpenNMT.
    #[default]
    All,
    /// All but the target, as in fairseq.
    Others,
    /// All but the target, and the loss is counted from its least value, as in Tensor2Tensor: a constant that no gradient sees.
    OthersFromLeast,
    /// All but the target and the padding, as in JoeyNMT.
    OthersButPadding,
}

/// What a position is trained to predict: q, by word.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Distribution {
    /// Of the target.
    pub on: f64,
    /// Of each other word.
    pub off: f64,
    /// A word that gets nothing, and is never a target.
    pub without: Option<i64>,
    /// What the loss is less: the entropy of q, or 0. In nats.
    pub least: f64,
}

impl SmoothingForm {
    /// What a position predicts among `words` words, of which `padding` is one, where the share `taken` is taken from the target.
    pub fn distribution(self, taken: f64, words: usize, padding: i64) -> Distribution {
        let spread = |over: usize| taken / over.max(1) as f64;
        let others = Distribution { on: 1.0 - taken, off: spread(words - 1), without: None, least: 0.0 };
        match self {
            Self::All => {
                let off = spread(words);
                Distribution { on: 1.0 - taken + off, off, ..others }
            }
            Self::Others => others,
            Self::OthersFromLeast => {
                let nats = |p: f64| if p > 0.0 { -p * p.ln() } else { 0.0 };
                Distribution { least: nats(others.on) + (words - 1) as f64 * nats(others.off), ..others }
            }
            Self::OthersButPadding => {
                Distribution { off: spread(words.saturating_sub(2)), without: Some(padding), ..others }
            }
        }
    }
}
