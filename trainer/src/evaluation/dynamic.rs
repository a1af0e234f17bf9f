//! Dynamic evaluation: the model is fitted to the text it is scored on, segment after segment, each scored
//! before it is learned from. Krause et al. 2018, "Dynamic evaluation of neural sequence models", sections 3
//! and 4; for Transformer-XL Krause et al. 2019, "Dynamic evaluation of Transformer language models".

use segue_data_error::DataError;
use segue_dataloader::{EvalLanes, TokenStream};
use tch::{Kind, Tensor};

use super::positions::spread_positions;
use crate::TrainError;
use crate::families::language_model::{Evaluation, NextToken};
use crate::layers::Memory;

/// How a gradient becomes a change of the weights. θ_g are the trained weights.
#[derive(Debug)]
pub enum Rule {
    /// θ ← θ − lr ∇ + decay (θ_g − θ).
    Sgd,
    /// θ ← θ − lr ∇ / (√MS_g + ε) + min(decay · √MS_g / mean √MS_g, 1) (θ_g − θ), element by element: weights that
    /// mattered little in training move fast and stay where they went.
    Rms {
        /// √MS_g, from the training text.
        statistics: GradientStatistics,
        /// ε, against gradients that were always zero.
        epsilon: f64,
    },
}

/// √MS_g of each parameter: roots of the mean squared gradients over batches of the training text.
#[derive(Debug)]
pub struct GradientStatistics {
    roots: Vec<Tensor>,
    /// Mean over all values of all parameters.
    mean: f64,
}

/// Constants of a dynamic evaluation.
#[derive(Debug, Clone, Copy)]
pub struct DynamicOptions {
    /// Learning rate, for the gradient of a segment's mean loss.
    pub lr: f64,
    /// How strongly weights are drawn back to the trained ones, per segment.
    pub decay: f64,
    /// Tokens of a segment: scored, then learned from.
    pub segment: usize,
}

impl GradientStatistics {
    /// From roots of mean squares, one tensor for each parameter.
    pub fn new(roots: Vec<Tensor>) -> Self {
        let count: usize = roots.iter().map(Tensor::numel).sum();
        let sum: f64 = roots.iter().map(|r| r.sum(Kind::Double).double_value(&[])).sum();
        Self { roots, mean: sum / count as f64 }
    }
}

/// Loss of one segment, its gradients, and the next memory.
struct Scored {
    nats: f64,
    grads: Vec<Option<Tensor>>,
    memory: Memory,
}

/// Scores a segment. `real`: targets from the left that are no padding; the gradients are those of their mean loss.
fn score_and_differentiate(
    model: &dyn NextToken,
    inputs: &[i64],
    targets: &[i64],
    real: usize,
    memory: &Memory,
) -> Result<Scored, TrainError> {
    let row = |ids: &[i64]| Tensor::from_slice(ids).unsqueeze(0);
    let (nll, memory) = model.nll(&row(inputs), &row(targets), memory);
    let losses = nll.narrow(1, 0, real as i64);
    losses.mean(None::<Kind>).f_backward()?;
    let grads = model.parameters().tensors().iter().map(crate::libtorch::take_grad).collect();
    let nats = losses.detach().to_kind(Kind::Double).sum(None::<Kind>).double_value(&[]);
    Ok(Scored { nats, grads, memory })
}

/// Gathers √MS_g from `batches` segments at even distances in a training text, each read after as many tokens as
/// the memory holds. One lane, as in the evaluation itself. `progress` gets segments done.
pub fn gradient_statistics(
    model: &dyn NextToken,
    stream: &TokenStream,
    segment: usize,
    batches: u64,
    mut progress: impl FnMut(u64),
) -> Result<GradientStatistics, TrainError> {
    let warm = model.context().mem_len.max(0) as u64;
    let needed = warm + segment as u64 + 1;
    if stream.len() < needed || batches == 0 || segment == 0 {
        let why = format!("gradient statistics need a text of at least {needed} tokens and one batch");
        return Err(DataError::Usage(why).into());
    }
    let parameters = model.parameters().tensors();
    let mut squares: Vec<Tensor> = parameters.iter().map(|p| p.detach().zeros_like()).collect();
    let starts = spread_positions(0..stream.len() - needed + 1, batches);
    for (done, start) in starts.iter().enumerate() {
        let mut ids = vec![0; needed as usize];
        stream.read(*start, &mut ids)?;
        let (context, own) = ids.split_at(warm as usize);
        let memory = read(model, context, segment);
        let scored = score_and_differentiate(model, &own[..segment], &own[1..], segment, &memory)?;
        for (sum, grad) in squares.iter_mut().zip(&scored.grads) {
            if let Some(grad) = grad {
                let _ = sum.g_add_(&(grad * grad));
            }
        }
        progress(done as u64 + 1);
    }
    let roots = squares.iter().map(|sum| (sum / starts.len() as f64).sqrt()).collect();
    Ok(GradientStatistics::new(roots))
}

/// The memory after reading `ids` from the start of a stream.
fn read(model: &dyn NextToken, ids: &[i64], segment: usize) -> Memory {
    let mut memory = model.memory_start(1);
    for part in ids.chunks(segment) {
        memory = model.read(&Tensor::from_slice(part).unsqueeze(0), &memory);
    }
    memory
}

/// Scores a split in one lane while it adapts, memory carried along. Afterwards the weights are the trained
/// ones again. With a learning rate of 0 this is the ordinary evaluation in one lane, bit for bit.
pub fn dynamic_evaluation(
    model: &dyn NextToken,
    stream: &TokenStream,
    rule: &Rule,
    options: DynamicOptions,
    mut progress: impl FnMut(u64, u64),
) -> Result<Evaluation, TrainError> {
    let cut = EvalLanes::new(stream.len(), 1, options.segment)?;
    let weights = model.parameters().tensors();
    let trained: Vec<Tensor> = weights.iter().map(|w| w.detach().copy()).collect();
    let mut memory = model.memory_start(1);
    let mut nats = 0.0f64;
    let mut walk = || -> Result<(), TrainError> {
        for step in 0..cut.steps() {
            let batch = cut.batch(stream, 0..1, step, None)?;
            let real = batch.counts[0];
            let scored = score_and_differentiate(model, &batch.inputs, &batch.targets, real, &memory)?;
            nats += scored.nats;
            if !nats.is_finite() {
                let why = format!(
                    "the loss of segment {} is not finite at lr {}: the weights diverged; lower --lr",
                    step + 1,
                    options.lr
                );
                return Err(DataError::Usage(why).into());
            }
            memory = scored.memory;
            adapt(weights, &trained, &scored.grads, rule, options);
            progress(step + 1, cut.steps());
        }
        Ok(())
    };
    let walked = walk();
    tch::no_grad(|| {
        for (weight, trained) in weights.iter().zip(&trained) {
            weight.shallow_clone().copy_(trained);
        }
    });
    walked?;
    Ok(Evaluation::new(nats, cut.total_targets(), stream))
}

/// One update of all weights, in place.
fn adapt(
    weights: &[Tensor],
    trained: &[Tensor],
    grads: &[Option<Tensor>],
    rule: &Rule,
    options: DynamicOptions,
) {
    tch::no_grad(|| {
        for (i, (weight, trained)) in weights.iter().zip(trained).enumerate() {
            let mut change = weight.zeros_like();
            if options.decay != 0.0 {
                let rate = match rule {
                    Rule::Sgd => Tensor::from(options.decay).to_kind(weight.kind()),
                    Rule::Rms { statistics, .. } => {
                        // Above 1 a weight would overshoot the trained one.
                        (&statistics.roots[i] * (options.decay / statistics.mean)).clamp_max(1.0)
                    }
                };
                change += rate * (trained - weight);
            }
            if let Some(grad) = &grads[i] {
                change -= match rule {
                    Rule::Sgd => grad * options.lr,
                    Rule::Rms { statistics, epsilon } => {
                        grad * options.lr / (&statistics.roots[i] + *epsilon)
                    }
                };
            }
            let _ = weight.shallow_clone().g_add_(&change);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(tensor: &Tensor) -> Vec<f64> {
        Vec::<f64>::try_from(tensor).unwrap()
    }

    /// Two parameters, moved off the trained values, with these gradients.
    fn adapted(rule: &Rule, lr: f64, decay: f64) -> [Vec<f64>; 2] {
        let weights = [Tensor::from_slice(&[1.0, 2.0]), Tensor::from_slice(&[3.0])];
        let trained = [Tensor::from_slice(&[1.5, 2.0]), Tensor::from_slice(&[1.0])];
        let grads = [Some(Tensor::from_slice(&[4.0, -2.0])), Some(Tensor::from_slice(&[1.0]))];
        adapt(&weights, &trained, &grads, rule, DynamicOptions { lr, decay, segment: 1 });
        [values(&weights[0]), values(&weights[1])]
    }

    fn close(found: [Vec<f64>; 2], expected: [&[f64]; 2]) {
        for (found, expected) in found.iter().flatten().zip(expected.into_iter().flatten()) {
            assert!((found - expected).abs() < 1e-12, "{found} {expected}");
        }
    }

    #[test]
    fn sgd_is_the_rule_of_the_paper() {
        // 1 − 0.1·4 + 0.2·(1.5 − 1); 2 + 0.1·2; 3 − 0.1·1 + 0.2·(1 − 3).
        close(adapted(&Rule::Sgd, 0.1, 0.2), [&[0.7, 2.2], &[2.5]]);
    }

    #[test]
    fn rms_divides_the_gradient_and_scales_the_decay() {
        let roots = vec![Tensor::from_slice(&[2.0, 0.0]), Tensor::from_slice(&[4.0])];
        let rule = Rule::Rms { statistics: GradientStatistics::new(roots), epsilon: 0.5 };
        // Mean root 2, so relative roots 1, 0 and 2.
        // 1 − 0.1·4/2.5 + 0.2·1·0.5; 2 + 0.1·2/0.5; 3 − 0.1·1/4.5 + 0.2·2·(−2).
        close(adapted(&rule, 0.1, 0.2), [&[1.0 - 0.16 + 0.1, 2.4], &[3.0 - 0.1 / 4.5 - 0.8]]);
        // Rate 0.8·2 is cut to 1: back at the trained value.
        close(adapted(&rule, 0.0, 0.8), [&[1.0 + 0.8 * 0.5, 2.0], &[1.0]]);
    }
}
