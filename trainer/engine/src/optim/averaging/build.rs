//! The average that a configuration names.

use segue_configs::{AverageConfig, AverageKind};
use segue_kernels::Parameters;

use super::{Averaging, Exponential, NoAveraging, Tail, TwoTailed};

/// The averaging that `[average]` describes. `period` is the number of steps between evaluations (`eval.every`);
/// `parameters` are those before the first update, which some averages begin with.
pub fn build(config: &AverageConfig, period: u64, parameters: &Parameters) -> Box<dyn Averaging> {
    match config.kind {
        AverageKind::Tail if config.start == 0 && config.patience == 0 => Box::new(NoAveraging),
        AverageKind::Tail => {
            let tail =
                Tail::new(config.start, config.patience, period).begun_by(config.trigger, config.left_out());
            let tail = tail.of_every(config.every).repeated(config.repeat_every);
            Box::new(tail.in_stages(config.fine_tuning > 0))
        }
        AverageKind::Exponential => Box::new(Exponential::new(config.beta, config.warmup, parameters)),
        AverageKind::Polyak => Box::new(Exponential::polyak(parameters)),
        AverageKind::TwoTailed => Box::new(TwoTailed::new(config.variant, config.stagnation, period)),
    }
}
