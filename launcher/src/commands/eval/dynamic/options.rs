use clap::ValueEnum;
use segue_protocols::{DynamicOptions, GradientOf, MeanOver};

use super::DynamicArgs;
use crate::failure::{Failure, USAGE};

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub enum RuleName {
    /// Plain gradient.
    Sgd,
    /// Gradient divided by the root mean square of the gradients on the training text.
    Rms,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub enum GradientName {
    /// Mean over a segment's targets.
    Mean,
    /// Sum over them, in the mean over lanes.
    Sum,
}

impl From<GradientName> for GradientOf {
    fn from(name: GradientName) -> GradientOf {
        match name {
            GradientName::Mean => GradientOf::Mean,
            GradientName::Sum => GradientOf::Sum,
        }
    }
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub enum MeanName {
    /// Of all values of all weights.
    Values,
    /// Of tensors' means, as in Krause's program.
    Tensors,
}

impl From<MeanName> for MeanOver {
    fn from(name: MeanName) -> MeanOver {
        match name {
            MeanName::Values => MeanOver::Values,
            MeanName::Tensors => MeanOver::Tensors,
        }
    }
}

/// The constants that are given, checked.
pub fn options(args: &DynamicArgs) -> Result<DynamicOptions, Failure> {
    let lr = args.lr.unwrap_or(if args.rule == RuleName::Sgd { 0.05 } else { 5e-5 });
    for (name, value) in [("--lr", lr), ("--decay", args.decay), ("--epsilon", args.epsilon)] {
        if !(value.is_finite() && value >= 0.0) {
            return Err(Failure::new(USAGE, format!("{name} must be a number of at least 0, not {value}")));
        }
    }
    if args.older_scaling && !(args.rule == RuleName::Rms && args.mean == MeanName::Tensors) {
        let message = "--older-scaling is of --rule rms with a mean of tensors\nhint: add --mean tensors";
        return Err(Failure::new(USAGE, message));
    }
    let (decay, epsilon, segment) = (args.decay, args.epsilon, args.segment);
    Ok(DynamicOptions { lr, decay, epsilon, segment, gradient: args.gradient.into() })
}
