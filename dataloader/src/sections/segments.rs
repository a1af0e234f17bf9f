//! Keys of `[train]` that say which segments lanes read.

use schemars::JsonSchema;
use segue_configs::range::Range;
use segue_configs::{Config, ConfigError, OwnSection, no_effect, out_of_range};
use serde::{Deserialize, Serialize};

use super::{DataConfig, DataOrder, LossOver, ObjectiveConfig};

/// The longest segments there are, in tokens.
const MOST_SPREAD: f64 = 1e6;
/// Standard deviations that no drawn length is away: a normal draw from a uniform one of 53 bits stays below 8.7.
const FARTHEST: f64 = 9.0;

/// Targets that a segment takes its loss from (Yang 2019, table 2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LossKind {
    /// All. With `ext_len = segment` every target has half a window before it and none is left out.
    Full,
    /// The most recent half of the segment, rounded up.
    Half,
}

impl LossKind {
    /// How many of a segment's last targets count.
    pub fn targets(self, segment: usize) -> usize {
        match self {
            Self::Full => segment,
            Self::Half => segment.div_ceil(2),
        }
    }
}

/// What a document's end does to the memory of its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DocumentEnd {
    /// Nothing, as in the references.
    Carry,
    /// The segment after the one it lies in starts with a fresh memory.
    Reset,
    /// No position sees another document, in memory or segment.
    Mask,
}

/// Keys of `[train]`: the segments that lanes read, and which of their targets count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SegmentConfig {
    /// Tokens of a lane per step.
    #[schemars(transform = Range::read(1))]
    pub segment: usize,
    /// Tokens before the segment that are read again each step, as context without loss. The memory ends where they
    /// begin. 0 unless `data.order = "stream"`, and with `at_document_end = "reset"`.
    #[schemars(transform = Range::read(0))]
    pub ext_len: usize,
    /// Targets that count in the loss.
    pub loss: LossKind,
    /// Segments of varying length, drawn for each step: 95 % around `segment`, the others around its half, with a
    /// standard deviation of 5, at least 5 and at most `segment`.
    pub varlen: bool,
    /// Fraction of steps that draw the length of their segments around half of `segment`, the others around all of it
    /// (AWD-LSTM: 0.05). Lengths are drawn where this or `segment_spread` is above 0, in place of `varlen`, and are rounded down.
    #[schemars(transform = Range::at_least(0.0).at_most(1.0))]
    pub segment_half: f64,
    /// Standard deviation of these lengths in tokens (AWD-LSTM: 5). None is below 5.
    #[schemars(transform = Range::at_least(0.0).at_most(MOST_SPREAD).in_double())]
    pub segment_spread: f64,
    /// Longest of them; 0 for no limit.
    #[schemars(transform = Range::read(0))]
    pub segment_most: usize,
    /// Multiply the learning rate of a step with such lengths by length / `segment`.
    pub segment_rate: bool,
    /// Read what is left of a lane's epoch as one shorter segment, so that each of its tokens but the first is a target once; else it is
    /// left out. Needs `data.order = "stream"` or `"lines"`.
    pub segment_rest: bool,
    /// Probability that a lane forgets all it carries before a segment (Melis 2023: 0.01); with `objective.samples`, each sample by
    /// itself. Recurrent models alone.
    #[schemars(transform = Range::at_least(0.0).at_most(1.0))]
    pub drop_state: f64,
    /// Begin each lane at a random place of its piece, another one each epoch, and go round (the partial shuffle of Press 2019). Needs
    /// `data.order = "stream"`.
    pub roll: bool,
    /// What a document's end does to memory, in training and in its evaluations. Only `carry` unless
    /// `data.order = "stream"`.
    pub at_document_end: DocumentEnd,
}

impl Default for SegmentConfig {
    fn default() -> Self {
        Self {
            segment: 128,
            ext_len: 0,
            loss: LossKind::Full,
            varlen: false,
            segment_half: 0.0,
            segment_spread: 0.0,
            segment_most: 0,
            segment_rate: true,
            segment_rest: false,
            drop_state: 0.0,
            roll: false,
            at_document_end: DocumentEnd::Carry,
        }
    }
}

impl SegmentConfig {
    /// Whether lengths are drawn as AWD-LSTM draws them.
    pub fn draws_lengths(&self) -> bool {
        self.segment_half > 0.0 || self.segment_spread > 0.0
    }

    /// Whether steps differ in the length of their segments.
    fn varies(&self) -> bool {
        self.varlen || self.draws_lengths() || self.segment_rest
    }

    /// Tokens of the longest segment that a step may have.
    pub fn longest(&self) -> usize {
        match (self.draws_lengths(), self.segment_most) {
            (false, _) => self.segment,
            (true, 0) => self.segment.saturating_add((FARTHEST * self.segment_spread).ceil() as usize).max(5),
            (true, most) => most,
        }
    }

    /// Tokens that a step shows at most: the context and the longest segment.
    pub fn most_shown(&self) -> usize {
        self.ext_len.saturating_add(self.longest())
    }

    /// Refuses keys that the order of reading leaves without effect, and orders that they cannot be combined with.
    fn check_order(&self, order: DataOrder) -> Result<(), ConfigError> {
        if order != DataOrder::Stream {
            if self.roll {
                return Err(no_effect("train.roll", true, "needs data.order = \"stream\""));
            }
            if self.at_document_end != DocumentEnd::Carry {
                let why = "only data.order = \"stream\" knows where documents end; the others support carry";
                return Err(out_of_range("train.at_document_end", "other than carry", why));
            }
            if self.ext_len > 0 {
                return Err(out_of_range("train.ext_len", self.ext_len, "needs data.order = \"stream\""));
            }
        }
        if self.at_document_end == DocumentEnd::Reset && self.ext_len > 0 {
            let why = "with train.at_document_end = \"reset\" the context would still show the old document\n\
                       hint: use \"mask\"";
            return Err(out_of_range("train.ext_len", self.ext_len, why));
        }
        Ok(())
    }

    fn check_lengths(&self, order: DataOrder) -> Result<(), ConfigError> {
        if self.segment_rest && !matches!(order, DataOrder::Stream | DataOrder::Lines) {
            let why = "needs data.order = \"stream\" or \"lines\"";
            return Err(no_effect("train.segment_rest", true, why));
        }
        let key = if self.segment_half > 0.0 { "train.segment_half" } else { "train.segment_spread" };
        let value = if self.segment_half > 0.0 { self.segment_half } else { self.segment_spread };
        match self.draws_lengths() {
            false if self.segment_most > 0 || !self.segment_rate => {
                let why = "needs lengths that are drawn: train.segment_half or train.segment_spread above 0";
                Err(match self.segment_most {
                    0 => no_effect("train.segment_rate", false, why),
                    most => no_effect("train.segment_most", most, why),
                })
            }
            true if self.varlen => {
                Err(out_of_range(key, value, "draws other lengths than train.varlen: choose one of them"))
            }
            true if order.in_pairs() || order == DataOrder::Episodes => {
                let why = "needs data.order = \"stream\", \"lines\" or \"sentences\"";
                Err(out_of_range(key, value, why))
            }
            _ => Ok(()),
        }
    }

    /// Lanes of a step have as many targets as their lines leave them.
    fn check_episodes(&self, objective: &ObjectiveConfig) -> Result<(), ConfigError> {
        let refuse = |key: &'static str, value: &str| {
            let why = "has no meaning with data.order = \"episodes\", where lanes differ in targets";
            Err(out_of_range(key, value, why))
        };
        if self.varlen {
            return refuse("train.varlen", "true");
        }
        if self.loss == LossKind::Half {
            return refuse("train.loss", "half");
        }
        if objective.loss_over == LossOver::Lanes {
            return refuse("objective.loss_over", "lanes");
        }
        // Penalties are means over the positions of a micro-step, of which a short line leaves some empty.
        for (key, value) in [
            ("train.drop_state", self.drop_state),
            ("objective.activation_penalty", objective.activation_penalty),
            ("objective.slowness_penalty", objective.slowness_penalty),
        ] {
            if value > 0.0 {
                return refuse(key, &value.to_string());
            }
        }
        Ok(())
    }
}

impl OwnSection for SegmentConfig {
    const NAME: &'static str = "train";
    const TITLE: &'static str = "segments";

    fn check_run(&self, config: &Config) -> Result<(), ConfigError> {
        let order = config.own.get::<DataConfig>().order;
        self.check_order(order)?;
        self.check_lengths(order)?;
        if config.train.batch_warmup > 0 && (self.varies() || self.ext_len > 0) {
            let why = "needs train.varlen = false, train.ext_len = 0 and none of train.segment_half, train.segment_spread and \
                       train.segment_rest: segments of one length in every step";
            return Err(out_of_range("train.batch_warmup", config.train.batch_warmup, why));
        }
        match order {
            DataOrder::Episodes => self.check_episodes(&config.own.get::<ObjectiveConfig>()),
            _ => Ok(()),
        }
    }
}
