//! Keys of `[eval]` that say how text is evaluated while training.

use schemars::JsonSchema;
use segue_configs::range::{MOST_READ, Range};
use segue_configs::{Config, ConfigError, OwnSection, TrainConfig, no_effect, out_of_range};
use serde::{Deserialize, Serialize};

use super::{DataConfig, DataOrder, SegmentConfig};

/// Keys of `[eval]`: the pieces that text is cut into, and what the model sees of what came before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TextEvalConfig {
    /// Parallel pieces the split is cut into; 1 gives every token its whole past. With pairs: made up to a multiple of
    /// `train.micro_batch`.
    #[schemars(transform = Range::read(1))]
    pub lanes: usize,
    /// Pieces in one forward pass; ranks take groups of so many in turn. 0: the largest groups that give every rank that the run
    /// could have one, at most `train.micro_batch`. With pairs it is always that. The last bits of a result depend on it, and
    /// its speed: where few ranks are used of many possible ones, larger groups are faster.
    #[schemars(transform = Range::read(0))]
    pub group: usize,
    /// With pairs: sequences of each lane that are evaluated, once with memory and once without; 0 for all that the
    /// split has.
    pub steps: u64,
    /// Tokens of a piece per forward pass; 0 for `train.segment`.
    #[schemars(transform = Range::read(0))]
    pub segment: usize,
    /// Tokens before each segment that are read again, as context.
    #[schemars(transform = Range::read(0))]
    pub ext_len: usize,
    /// Positions of memory; below 0 for the model's.
    #[schemars(transform = Range::any().at_most(MOST_READ))]
    pub mem_len: i64,
    /// Same-length attention while evaluating, with a memory of at least 1; a model that has it keeps it.
    pub same_length: bool,
    /// Clamp of distances while evaluating; -1 for none, 0 for the model's.
    #[schemars(transform = Range::any().at_most(MOST_READ))]
    pub clamp_len: i64,
}

impl Default for TextEvalConfig {
    fn default() -> Self {
        Self {
            lanes: 4,
            group: 0,
            steps: 0,
            segment: 0,
            ext_len: 0,
            mem_len: -1,
            same_length: false,
            clamp_len: 0,
        }
    }
}

impl TextEvalConfig {
    /// Pieces of one forward pass. Of the run's keys alone, so that a result does not depend on the number of ranks.
    pub fn lanes_per_group(&self, train: &TrainConfig) -> usize {
        let most_ranks = (train.lanes / train.micro_batch).max(1);
        match self.group {
            0 => (self.lanes / most_ranks).clamp(1, train.micro_batch),
            group => group.min(self.lanes),
        }
    }

    /// Tokens of a piece in one forward pass of a run's evaluation.
    pub fn segment_of(&self, train: &SegmentConfig) -> usize {
        if self.segment == 0 { train.segment } else { self.segment }
    }
}

impl OwnSection for TextEvalConfig {
    const NAME: &'static str = "eval";
    const TITLE: &'static str = "text";

    fn check_run(&self, config: &Config) -> Result<(), ConfigError> {
        let order = config.own.get::<DataConfig>().order;
        if order == DataOrder::Lines && self.ext_len >= self.segment_of(&config.own.get()) {
            let why = "with data.order = \"lines\" it is shorter than a segment: nothing comes before a lane's first line";
            return Err(out_of_range("eval.ext_len", self.ext_len, why));
        }
        if self.steps > 0 && !order.in_pairs() {
            let why = "needs data.order = \"pairs\" or \"records\": every token of a stream is evaluated";
            return Err(no_effect("eval.steps", self.steps, why));
        }
        if self.same_length && (self.mem_len == 0 || self.mem_len < 0 && config.model.mem_len() == 0) {
            return Err(no_effect("eval.same_length", true, "needs a memory of at least 1"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_that_there_could_be_evaluates_a_group_where_there_are_lanes_enough() {
        for (lanes, micro_batch, pieces, group) in [
            (8, 2, 4, 1),
            (32, 16, 16, 8),
            (4, 4, 16, 4),
            (256, 8, 10, 1),
            (2, 1, 4, 1),
            (64, 32, 7, 3),
            (1, 1, 1, 1),
        ] {
            let train = TrainConfig { lanes, micro_batch, ..TrainConfig::default() };
            let eval = TextEvalConfig { lanes: pieces, ..TextEvalConfig::default() };
            assert_eq!(
                eval.lanes_per_group(&train),
                group,
                "{lanes} lanes by {micro_batch}, {pieces} pieces"
            );
            let groups = pieces.div_ceil(group);
            assert!(groups >= (lanes / micro_batch).min(pieces) && group <= micro_batch);
            let given = TextEvalConfig { group: 5, ..eval };
            assert_eq!(given.lanes_per_group(&train), 5.min(pieces));
        }
    }
}
