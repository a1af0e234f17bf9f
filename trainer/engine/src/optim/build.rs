//! The update rule that a configuration names.

use segue_configs::{OptimConfig, OptimKind};
use segue_kernels::Parameters;

use super::adam::Adam;
use super::lamb::Lamb;
use super::optimizer::Optimizer;
use super::piece::Piece;
use super::sgd::Sgd;

/// The configured update rule with fresh state for these pieces of `parameters`. LAMB needs whole parameters, which the configuration is held to
/// (`train.shard`).
pub fn build(config: &OptimConfig, parameters: &Parameters, pieces: Vec<Piece>) -> Box<dyn Optimizer> {
    match config.kind {
        OptimKind::Adam | OptimKind::Adamw | OptimKind::Rmsprop | OptimKind::Radam => {
            Box::new(Adam::of_pieces(config, parameters, pieces))
        }
        OptimKind::Sgd => Box::new(Sgd::of_pieces(config, parameters, pieces)),
        OptimKind::Lamb => Box::new(Lamb::new(config, parameters)),
    }
}

/// Whether an update leaves rows that have no gradient as they are, and depends on none of them: gradients of tables may be sparse then. Rules
/// with moments move rows without a gradient too, decay does, and clipping takes a norm whose rounding is the whole table's.
pub fn updates_rows(config: &OptimConfig) -> bool {
    config.kind == OptimKind::Sgd && config.weight_decay == 0.0 && config.l2 == 0.0 && config.clip == 0.0
}
