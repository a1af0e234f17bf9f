//! Rows A1 to A5, A7 to A13, A16 and A17 of two-tailed averaging, and what averages owe to a training loop. Row A6, ranks
//! that find different losses, is in `trainer/families/tests/all/engine/averages.rs`, A14, the grid on a language model, in `trainer/tests/protocols/`, and there too A4,
//! A6 and A7 on whole runs: evaluations that leave no trace, and averages on several ranks.

mod awd;
mod baselines;
mod checkpoints;
mod evaluations;
mod lengths;
mod logistic;
mod oracle;
mod precision;
mod streams;
mod trigger;
mod two_basins;

use segue_configs::{AverageConfig, AverageKind, AverageTrigger, TwoTailedVariant};
use segue_kernels::{Init, ParameterSpec, Parameters};
use segue_random::{Purpose, Stream};
use tch::{Kind, Tensor};

use super::{Averaging, CandidateLoss, Choice, StandIn, TwoTailed, build};

/// Parameters of one tensor with these values.
fn parameters(values: &[f64], kind: Kind) -> Parameters {
    let spec = ParameterSpec { name: "w".into(), shape: vec![values.len() as i64], init: Init::Zeros };
    Parameters::from_tensors(vec![spec], vec![Tensor::from_slice(values)], kind)
}

/// Writes values into the one tensor, as an update does.
fn set(parameters: &Parameters, values: &[f64]) {
    let mut leaf = parameters.tensors()[0].shallow_clone();
    tch::no_grad(|| leaf.copy_(&Tensor::from_slice(values)));
}

/// Values of the one tensor.
fn values(tensors: &[Tensor]) -> Vec<f64> {
    Vec::try_from(tensors[0].detach().to_kind(Kind::Double).reshape([-1])).unwrap()
}

/// Evaluates every candidate in the place of the live weights and chooses, as a training loop does.
fn evaluate(
    averaging: &mut dyn Averaging,
    step: u64,
    parameters: &Parameters,
    loss: &dyn Fn(&[f64]) -> f64,
) -> Choice {
    evaluate_by(averaging, step, parameters, &|weights| loss(weights).into())
}

/// The same where decisions follow a loss of their own.
fn evaluate_by(
    averaging: &mut dyn Averaging,
    step: u64,
    parameters: &Parameters,
    loss: &dyn Fn(&[f64]) -> CandidateLoss,
) -> Choice {
    let candidates = averaging.candidates();
    let losses: Vec<CandidateLoss> = candidates
        .iter()
        .map(|candidate| {
            let _stand_in = StandIn::new(candidate.weights, parameters, parameters);
            loss(&values(parameters.tensors()))
        })
        .collect();
    averaging.observe(step, &losses, parameters)
}

/// Tells the losses of candidates by name.
fn tell(averaging: &mut dyn Averaging, step: u64, losses: &[(&str, f64)], live: &Parameters) -> Choice {
    let of = |name| losses.iter().find(|(n, _)| *n == name).unwrap().1;
    let losses: Vec<CandidateLoss> = averaging.candidates().iter().map(|c| of(c.name).into()).collect();
    averaging.observe(step, &losses, live)
}

/// The averaging of a kind, with defaults elsewhere.
fn of_kind(kind: AverageKind, parameters: &Parameters) -> Box<dyn Averaging> {
    build(&AverageConfig { kind, ..Default::default() }, 1, parameters)
}

fn two_tailed(variant: TwoTailedVariant, period: u64) -> TwoTailed {
    TwoTailed::new(variant, 3, period)
}

/// Random numbers for tests, the same everywhere.
fn stream(seed: u64, counter: u64) -> Stream {
    Stream::new(seed, Purpose::Bench, &[counter])
}

/// A mean of numbers.
fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len() as f64
}
