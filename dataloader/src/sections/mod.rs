//! Sections of recipes that families which read text own together. Which of them a family has, its entry says.

mod data;
mod eval;
mod objective;
mod pairs;
mod segments;
#[cfg(test)]
mod tests;

pub use data::{DataConfig, DataOrder};
pub use eval::TextEvalConfig;
pub use objective::{LossOver, ObjectiveConfig, ObjectiveKind};
pub use pairs::{MaskDraws, PAIR_SPECIALS, PairsConfig, SpanKind, targets_per_lane};
pub use segments::{DocumentEnd, LossKind, SegmentConfig};
use segue_configs::{ConfigError, OwnSections};

/// Refuses to read line by line, each lane from its own: a model without a state of single lanes that could wait.
pub fn check_no_episodes(own: &OwnSections) -> Result<(), ConfigError> {
    match own.get::<DataConfig>().order {
        DataOrder::Episodes => Err(own.refused("data.order", "this model is not trained that way")),
        _ => Ok(()),
    }
}
