use clap::Args;
use segue_dataloader::sections::SegmentConfig;
use segue_protocols::Walk;

use super::subject::Subject;
use crate::commands::{at_least_one, positive, some_length};

/// How a split is cut.
#[derive(Args)]
pub struct WalkArgs {
    /// Number of lanes the split is cut into, each with fresh memory; 1 gives every token all of its past.
    #[arg(long, default_value_t = 4, value_parser = at_least_one)]
    lanes: usize,
    /// Lanes per forward pass. Ranks take turns with groups of so many; it changes the last bits of the result.
    #[arg(long, default_value_t = 1, value_parser = at_least_one)]
    group: usize,
    /// Tokens per lane and forward pass [default: those of the training].
    #[arg(long, value_parser = some_length)]
    segment: Option<usize>,
}

impl WalkArgs {
    /// The cut for a model, which was opened as `named`.
    pub fn walk<M>(&self, subject: &Subject<M>, named: &std::path::Path) -> Walk {
        let trained =
            || subject.folder.training_config(named, &[]).map(|config| config.own::<SegmentConfig>().segment);
        let segment = self.segment.or_else(|| trained().ok()).unwrap_or(super::SEGMENT);
        Walk { lanes: self.lanes, group: self.group.min(self.lanes), segment, tokens: u64::MAX }
    }
}

/// The same over so many tokens from the beginning of a stream, two at the least; 0 for all of them.
pub fn beginning(walk: Walk, tokens: u64) -> Walk {
    Walk { tokens: if tokens == 0 { u64::MAX } else { tokens.max(2) }, ..walk }
}

/// How sharp predictions are.
#[derive(Args)]
pub struct TemperatureArgs {
    /// Inverse temperature: scores are multiplied by it before each softmax. `segue eval temperature` looks for the best one.
    #[arg(long, default_value_t = 1.0, value_parser = positive)]
    pub temperature: f64,
}
