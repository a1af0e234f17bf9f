use std::path::Path;

use clap::Args;
use segue_dataloader::sections::TextEvalConfig;
use segue_language::Cut;
use segue_protocols::Walk;

use super::subject::Subject;
use crate::commands::{at_least_one, positive, some_length};
use crate::failure::Failure;

/// How a split is cut.
#[derive(Args)]
pub struct WalkArgs {
    /// Number of lanes the split is cut into, each with fresh memory; 1 gives every token all of its past [default:
    /// `eval.lanes` of the run].
    #[arg(long, value_parser = at_least_one)]
    lanes: Option<usize>,
    /// Lanes per forward pass. Ranks take turns with groups of so many; it changes the last bits of the result.
    #[arg(long, default_value_t = 1, value_parser = at_least_one)]
    group: usize,
    /// Tokens per lane and forward pass [default: those of the run].
    #[arg(long, value_parser = some_length)]
    segment: Option<usize>,
}

impl WalkArgs {
    /// The walk over a split for a model that was opened as `named` and sees what `eval` says, and in words.
    pub fn walk<M>(
        &self,
        subject: &Subject<M>,
        named: &Path,
        eval: &TextEvalConfig,
    ) -> Result<(Walk, Cut), Failure> {
        let run = subject.folder.training_config(named, &[])?;
        let recorded = run.own.get::<TextEvalConfig>();
        let lanes = self.lanes.unwrap_or(recorded.lanes);
        let segment = self.segment.unwrap_or_else(|| recorded.segment_of(&run.own.get()));
        let walk = Walk { lanes, group: self.group.min(lanes), segment, tokens: u64::MAX };
        Ok((walk, Cut::new(&subject.folder.config, eval, lanes, segment)?))
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
