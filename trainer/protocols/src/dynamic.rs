//! Dynamic evaluation: the model is fitted to the text it is scored on, segment after segment, each scored
//! before it is learned from. Krause et al. 2018, "Dynamic evaluation of neural sequence models", sections 3
//! and 4; for Transformer-XL Krause et al. 2019, "Dynamic evaluation of Transformer language models".

use segue_collectives::Communicator;
use segue_dataloader::{EvalLanes, TokenStream};
use segue_engine::{Share, Watch};
use segue_kernels::TrainError;
use segue_kernels::noise::Noise;
use segue_language::{Evaluation, NextToken};
use tch::{Kind, Tensor};

use super::gradient::{GradientOf, score_and_differentiate};
use super::monte_carlo::{AfterPasses, Passes, sums_of_passes};
use super::statistics::GradientStatistics;

/// How a gradient becomes a change of the weights. θ_g are the trained weights.
#[derive(Debug)]
pub enum Rule {
    /// θ ← θ − lr ∇ + decay (θ_g − θ).
    Sgd,
    /// θ ← θ − lr ∇ / (√MS_g + ε) + min(decay · √MS_g / mean √MS_g, 1) (θ_g − θ), element by element: weights that
    /// mattered little in training move fast and stay where they went. √MS_g is from the training text.
    Rms(GradientStatistics),
}

/// Constants of a dynamic evaluation.
#[derive(Debug, Clone, Copy)]
pub struct DynamicOptions {
    /// Learning rate, for the gradient of a segment.
    pub lr: f64,
    /// How strongly weights are drawn back to the trained ones, per segment.
    pub decay: f64,
    /// ε of [`Rule::Rms`], against gradients that were always zero.
    pub epsilon: f64,
    /// Tokens of a segment: scored, then learned from.
    pub segment: usize,
    /// What of it is differentiated.
    pub gradient: GradientOf,
}

impl DynamicOptions {
    /// The same for constants in the older scaling of Krause's program, whose √MS_g is the root of the sum of squares over `batches` and whose
    /// mean is a sum over `tensors` parameters: decay / tensors, lr and ε / √batches.
    pub fn from_older_scaling(self, tensors: usize, batches: u64) -> Self {
        let root = (batches as f64).sqrt();
        Self { lr: self.lr / root, epsilon: self.epsilon / root, decay: self.decay / tensors as f64, ..self }
    }
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
    let mut done = 0;
    let nats = adapt_along(model, stream, (rule, options), None, &mut |_| {
        done += 1;
        progress(done, cut.steps());
        Ok(())
    })?;
    let found = Evaluation::new(nats, cut.total_targets(), stream);
    // A loss may be finite whose perplexity is not.
    match found.ppl.is_finite() {
        true => Ok(found),
        false => Err(TrainError::AdaptationDiverged { segment: cut.steps(), lr: options.lr }),
    }
}

/// Scores a split in one lane while it adapts, with masks of dropout by the number of the segment where there are any: the sum over targets. Calls
/// `scored` after each segment with −ln P of its targets, `[1, targets]`. Afterwards the weights are the trained ones again.
fn adapt_along(
    model: &dyn NextToken,
    stream: &TokenStream,
    (rule, options): (&Rule, DynamicOptions),
    masks: Option<&dyn Fn(u64) -> Noise>,
    scored: &mut dyn FnMut(&Tensor) -> Result<(), TrainError>,
) -> Result<f64, TrainError> {
    let cut = EvalLanes::new(stream.len(), 1, options.segment)?;
    let weights = model.parameters().tensors();
    let trained: Vec<Tensor> = weights.iter().map(|w| w.detach().copy()).collect();
    let mut memory = model.memory_start(1);
    let mut nats = 0.0f64;
    let mut walk = || -> Result<(), TrainError> {
        for step in 0..cut.steps() {
            let batch = cut.batch(stream, 0..1, step, None)?;
            let real = batch.counts[0];
            let row = |ids: &[i64]| Tensor::from_slice(ids).unsqueeze(0);
            let ids = (&row(&batch.inputs), &row(&batch.targets));
            let noise = masks.map(|masks| masks(step));
            let found = score_and_differentiate(model, ids, real, options.gradient, &memory, noise.as_ref())?;
            nats += found.nats;
            if !nats.is_finite() {
                return Err(TrainError::AdaptationDiverged { segment: step + 1, lr: options.lr });
            }
            memory = found.memory;
            adapt(weights, &trained, &found.grads, rule, options);
            scored(&found.losses)?;
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
    Ok(nats)
}

/// The same with dropout, many times: what the first 1, 2, 5, .. passes predict together, in the arithmetic mean of the probabilities of each target
/// (Melis 2023, §2.2.2 and the MC rows of tables 2.1 and 2.2). A pass has a memory of its own and begins with the trained weights; it is scored
/// with its masks, and learns from the same gradient. Those masks are the masks of [`monte_carlo`](super::monte_carlo), whose arithmetic mean in one
/// lane this is with a learning rate of 0, bit for bit. Where the weights diverge in a pass, what it and later ones predict together is no number.
/// Ranks take turns with passes. A collective call.
pub fn dynamic_passes(
    model: &dyn NextToken,
    stream: &TokenStream,
    (rule, options): (&Rule, DynamicOptions),
    passes: Passes,
    comm: &dyn Communicator,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<AfterPasses>, TrainError> {
    let cut = EvalLanes::new(stream.len(), 1, options.segment)?;
    let sums = sums_of_passes(passes, cut.steps(), comm, progress, |pass, done| {
        let mut losses = Vec::with_capacity(cut.total_targets() as usize);
        let masks = |step| passes.masks(pass, 0, step);
        let mut steps = 0;
        let walked = adapt_along(model, stream, (rule, options), Some(&masks), &mut |scored| {
            losses.extend(Vec::<f64>::try_from(scored.to_kind(Kind::Double).view([-1]))?);
            steps += 1;
            done()
        });
        match walked {
            Ok(_) => {}
            // The other ranks count on all of its segments.
            Err(TrainError::AdaptationDiverged { .. }) => {
                (steps..cut.steps()).try_for_each(|_| done())?;
                losses.resize(cut.total_targets() as usize, f64::NAN);
            }
            Err(other) => return Err(other),
        }
        Ok(losses)
    })?;
    Ok(passes.after(sums, cut.total_targets()))
}

/// What becomes of several rules and constants on a split, in their order: the evaluation of each, or why it has none: weights that
/// diverged. Ranks take turns with them. A collective call.
pub fn dynamic_trials(
    model: &dyn NextToken,
    stream: &TokenStream,
    trials: &[(&Rule, DynamicOptions)],
    comm: &dyn Communicator,
    watch: &mut Watch,
) -> Result<Vec<Result<Evaluation, String>>, TrainError> {
    // The shortest has the most steps: every rank answers as many questions as that asks for.
    let segment = trials.iter().map(|(_, options)| options.segment).min().unwrap_or(1);
    let cut = EvalLanes::new(stream.len(), 1, segment)?;
    let share = Share::new(comm, trials.len());
    let own = share.each(cut.steps(), watch, |trial, done| {
        let (rule, options) = trials[trial];
        let (mut stopped, mut before) = (Ok(()), 0);
        let mut advance = |steps| {
            (before..steps).for_each(|_| _ = stopped.is_ok().then(|| stopped = done()));
            before = steps;
        };
        let found = dynamic_evaluation(model, stream, rule, options, |steps, _| advance(steps));
        // Longer segments, and weights that diverge, take fewer.
        advance(cut.steps());
        stopped?;
        match found {
            Ok(evaluation) => Ok(evaluation.nats.to_le_bytes().to_vec()),
            Err(why @ TrainError::AdaptationDiverged { .. }) => {
                Ok([&[0; 8], why.to_string().as_bytes()].concat())
            }
            Err(other) => Err(other),
        }
    })?;
    let outcome = |bytes: Vec<u8>| match bytes.split_first_chunk::<8>() {
        Some((nats, [])) => Ok(Evaluation::new(f64::from_le_bytes(*nats), cut.total_targets(), stream)),
        Some((_, why)) => Err(String::from_utf8_lossy(why).into_owned()),
        None => Err("no rank evaluated it".into()),
    };
    Ok(share.collect(&own)?.into_iter().map(outcome).collect())
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
                    // Above 1 a weight would overshoot the trained one.
                    Rule::Rms(statistics) => statistics.decay(i, options.decay).clamp_max(1.0),
                };
                change += rate * (trained - weight);
            }
            if let Some(grad) = &grads[i] {
                change -= match rule {
                    Rule::Sgd => grad * options.lr,
                    Rule::Rms(statistics) => grad * options.lr / (&statistics.roots()[i] + options.epsilon),
                };
            }
            let _ = weight.shallow_clone().g_add_(&change);
        }
    });
}

#[cfg(test)]
mod tests;
