use clap::{Args, ValueEnum};
use segue_dataloader::Split;
use segue_trainer::evaluation::{DynamicOptions, Rule, dynamic_evaluation, gradient_statistics};
use segue_trainer::families::language_model::Evaluation;
use serde_json::{Value, json};

use super::subject::{Subject, SubjectArgs};
use super::{AttentionArgs, SplitName};
use crate::commands::at_least_one;
use crate::failure::{Failure, USAGE};
use crate::output::{Output, Unit};

/// Learning rates and decays that `--tune` multiplies the given ones by.
const TUNE_LR: [f64; 3] = [0.3, 1.0, 3.0];
const TUNE_DECAY: [f64; 3] = [0.0, 1.0, 5.0];

/// Arguments of `segue eval dynamic`.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    segue eval dynamic --model runs/wikitext2 --split test --rule sgd --lr 0.05\n  \
    segue eval dynamic --model runs/wikitext2 --split test --rule rms --tune\n\n\
    The weights on disk stay as they are.")]
pub struct DynamicArgs {
    #[command(flatten)]
    subject: SubjectArgs,
    /// Update rule.
    #[arg(long, value_enum, default_value = "rms")]
    rule: RuleName,
    /// Learning rate, for the gradient of a segment's mean loss [default: sgd 0.05, rms 0.00005].
    #[arg(long)]
    lr: Option<f64>,
    /// Decay towards the trained weights, per segment; under `rms` times the weight's relative root mean square, at
    /// most 1.
    #[arg(long, default_value_t = 0.001)]
    decay: f64,
    /// Added to the root mean square of gradients (`rms`).
    #[arg(long, default_value_t = 2e-5)]
    epsilon: f64,
    /// Tokens to score, then to learn from.
    #[arg(long, default_value_t = 64, value_parser = at_least_one)]
    segment: usize,
    #[command(flatten)]
    attention: AttentionArgs,
    /// Split for gradient statistics, the root mean squares (`rms`).
    #[arg(long, value_enum, default_value = "train")]
    statistics_from: SplitName,
    /// Number of segments for gradient statistics (`rms`).
    #[arg(long, default_value_t = 200)]
    statistics_batches: u64,
    /// Search nine pairs of learning rate and decay around the given ones on the valid split first.
    #[arg(long)]
    tune: bool,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum RuleName {
    /// Plain gradient.
    Sgd,
    /// Gradient divided by the root mean square of the gradients on the training text.
    Rms,
}

/// Evaluates while the model adapts; prints the result beside that of the fixed model.
pub fn run(args: DynamicArgs, out: &Output) -> Result<Value, Failure> {
    let mut subject = args.subject.open(out)?;
    subject.model.look(&args.attention.of(&subject.folder.config)?);
    let mut options = options(&args)?;
    let rule = rule(&args, &subject, out)?;
    let trials = if args.tune { tune(&subject, &rule, options, out)? } else { Vec::new() };
    let best = trials.iter().min_by(|a, b| a.1.loss.total_cmp(&b.1.loss));
    if let Some((best, _)) = best {
        options = *best;
        out.line(&format!("best on valid: lr {}, decay {}", options.lr, options.decay));
    }
    let fixed = DynamicOptions { lr: 0.0, decay: 0.0, ..options };
    let before = evaluate(&subject, &subject.stream, &Rule::Sgd, fixed, "fixed", out)?;
    let after = evaluate(&subject, &subject.stream, &rule, options, "dynamic", out)?;
    out.line(&format!("fixed:   {}", before.describe()));
    out.line(&format!("dynamic: {}", after.describe()));
    Ok(json!({
        "model": subject.folder.path,
        "rule": if args.rule == RuleName::Sgd { "sgd" } else { "rms" },
        "lr": options.lr,
        "decay": options.decay,
        "segment": options.segment,
        "fixed": before,
        "dynamic": after,
        "trials": trials.iter().map(|(o, e)| json!({ "lr": o.lr, "decay": o.decay, "loss": e.loss, "ppl": e.ppl }))
            .collect::<Vec<_>>(),
    }))
}

fn options(args: &DynamicArgs) -> Result<DynamicOptions, Failure> {
    let lr = args.lr.unwrap_or(if args.rule == RuleName::Sgd { 0.05 } else { 5e-5 });
    let numbers = [("--lr", lr), ("--decay", args.decay), ("--epsilon", args.epsilon)];
    for (name, value) in numbers {
        if !(value.is_finite() && value >= 0.0) {
            return Err(Failure::new(USAGE, format!("{name} must be a number of at least 0, not {value}")));
        }
    }
    Ok(DynamicOptions { lr, decay: args.decay, segment: args.segment })
}

fn rule(args: &DynamicArgs, subject: &Subject, out: &Output) -> Result<Rule, Failure> {
    if args.rule == RuleName::Sgd {
        return Ok(Rule::Sgd);
    }
    if !subject.folder.family.attends() {
        let message = "gradient statistics begin with as much memory as attention has, and this model has none\nhint: use --rule sgd";
        return Err(Failure::new(USAGE, message));
    }
    let train = subject.corpus.tokens(args.statistics_from.into())?;
    let bar = out.progress(args.statistics_batches, Unit::Steps, "statistics");
    let batches = args.statistics_batches;
    let statistics =
        gradient_statistics(subject.model.as_ref(), &train, args.segment, batches, |done| bar.set(done))?;
    Ok(Rule::Rms { statistics, epsilon: args.epsilon })
}

/// Perplexity on the valid split at every point of a small grid.
fn tune(
    subject: &Subject,
    rule: &Rule,
    given: DynamicOptions,
    out: &Output,
) -> Result<Vec<(DynamicOptions, Evaluation)>, Failure> {
    let valid = subject.corpus.tokens(Split::Valid)?;
    let mut trials = Vec::new();
    for lr in TUNE_LR.map(|factor| factor * given.lr) {
        for decay in TUNE_DECAY.map(|factor| factor * given.decay) {
            let options = DynamicOptions { lr, decay, ..given };
            match evaluate(subject, &valid, rule, options, "tune", out) {
                Ok(result) => {
                    out.line(&format!("valid: lr {lr:.2e}, decay {decay:.2e}: perplexity {:.3}", result.ppl));
                    trials.push((options, result));
                }
                // Another point of the grid may hold.
                Err(failure) if failure.code == USAGE => {
                    out.line(&format!("valid: lr {lr:.2e}, decay {decay:.2e}: {}", failure.message));
                }
                Err(failure) => return Err(failure),
            }
        }
    }
    if trials.is_empty() {
        return Err(Failure::new(USAGE, "the weights diverged at every point of the grid\nhint: lower --lr"));
    }
    Ok(trials)
}

fn evaluate(
    subject: &Subject,
    stream: &segue_dataloader::TokenStream,
    rule: &Rule,
    options: DynamicOptions,
    label: &str,
    out: &Output,
) -> Result<Evaluation, Failure> {
    let bar = out.progress(0, Unit::Steps, label);
    let report = |done, whole| bar.set_of(done, whole);
    Ok(dynamic_evaluation(subject.model.as_ref(), stream, rule, options, report)?)
}
