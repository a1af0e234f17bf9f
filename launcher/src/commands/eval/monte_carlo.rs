use clap::{Args, ValueEnum};
use segue_collectives::Communicator;
use segue_configs::counted;
use segue_trainer::engine::Watch;
use segue_trainer::evaluation::{AfterPasses, Mean, MonteCarloOptions, Passes, monte_carlo, token_losses};
use segue_trainer::families::language_model::Evaluation;
use serde_json::{Value, json};

use super::AttentionArgs;
use super::subject::SubjectArgs;
use super::walk::{TemperatureArgs, WalkArgs};
use crate::failure::{Failure, USAGE};
use crate::output::{Output, Unit};

/// Arguments of `segue eval monte-carlo`.
#[derive(Args)]
#[command(after_help = "\
    Works under mpirun too; the result has the same bits at any number of ranks. Of the arithmetic mean \
    ranks share the passes, of the others the groups of lanes.\n\n\
    Examples:\n  \
    segue eval monte-carlo --model runs/lstm --split test --passes 200 \\\n      \
    --rates 0.8\n  \
    mpirun -n 4 --bind-to none segue eval monte-carlo --model runs/lstm \\\n      \
    --mean geometric --lanes 4")]
pub struct MonteCarloArgs {
    #[command(flatten)]
    subject: SubjectArgs,
    /// Number of passes with dropout.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    passes: u64,
    /// Mean of what they predict.
    #[arg(long, value_enum, default_value = "arithmetic")]
    mean: MeanName,
    /// Exponent of the power mean.
    #[arg(long, default_value_t = 0.5, allow_negative_numbers = true)]
    exponent: f64,
    /// Factor of all rates of dropout, in [0, 1].
    #[arg(long, default_value_t = 1.0)]
    rates: f64,
    /// Seed of the masks.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    walk: WalkArgs,
    #[command(flatten)]
    temperature: TemperatureArgs,
    #[command(flatten)]
    attention: AttentionArgs,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum MeanName {
    /// Of probabilities; each pass carries a memory of its own.
    Arithmetic,
    /// Of log-probabilities, renormalised; all passes read from the memory of one without dropout.
    Geometric,
    /// Of powers of probabilities, renormalised; memory as for `geometric`.
    Power,
}

/// Below, what powers differ by is lost in rounding.
const LEAST_EXPONENT: f64 = 1e-6;

/// Evaluates without dropout and with more and more passes of it.
pub fn run(args: MonteCarloArgs, comm: &dyn Communicator, out: &Output) -> Result<Value, Failure> {
    let mean = mean(&args)?;
    let mut subject = args.subject.open(out)?;
    subject.model.look(&args.attention.of(&subject.folder.config)?);
    subject.model.set_inverse_temperature(args.temperature.temperature);
    let walk = args.walk.walk(&subject, &args.subject.model);
    let bar = out.progress(0, Unit::Steps, "without dropout");
    let mut progress = |done, whole| bar.set_of(done, whole);
    let (model, stream) = (subject.model.as_ref(), &subject.stream);
    let losses = token_losses(model, stream, &walk, comm, &mut Watch::new(&mut progress))?;
    drop(bar);
    let fixed = Evaluation::of_losses(&losses, stream);
    out.line(&format!("without dropout: {}", fixed.describe()));
    super::check_loss(fixed.loss, &subject.folder.path)?;
    let passes = Passes { count: args.passes, rates: args.rates, seed: args.seed };
    let options = MonteCarloOptions { walk, passes, mean };
    let bar = out.progress(0, Unit::Steps, "passes");
    let found = monte_carlo(model, stream, &options, comm, &mut |done, whole| bar.set_of(done, whole))?;
    drop(bar);
    describe(&found, "", out);
    for after in &found {
        super::check_loss(after.loss, &subject.folder.path)?;
    }
    Ok(json!({
        "model": subject.folder.path, "mean": name(args.mean), "rates": args.rates, "seed": args.seed, "fixed": fixed,
        "passes": found,
    }))
}

/// Prints what more and more passes give, each line with `what` before it.
pub(super) fn describe(found: &[AfterPasses], what: &str, out: &Output) {
    for AfterPasses { passes, loss, ppl } in found {
        out.line(&format!("{what}{}: loss {loss:.4}, perplexity {ppl:.3}", counted(*passes, "pass")));
    }
}

/// Refuses what is no factor of rates.
pub(super) fn check_rates(rates: f64) -> Result<(), Failure> {
    if !(0.0..=1.0).contains(&rates) {
        let message = format!("--rates {rates} does not lie in [0, 1]");
        return Err(Failure::new(USAGE, message + "\nhint: 0.6, 0.7, 0.8 and 0.9 are usual"));
    }
    Ok(())
}

fn name(mean: MeanName) -> &'static str {
    match mean {
        MeanName::Arithmetic => "arithmetic",
        MeanName::Geometric => "geometric",
        MeanName::Power => "power",
    }
}

fn mean(args: &MonteCarloArgs) -> Result<Mean, Failure> {
    check_rates(args.rates)?;
    match args.mean {
        MeanName::Arithmetic => Ok(Mean::Arithmetic),
        MeanName::Geometric => Ok(Mean::Geometric),
        MeanName::Power if args.exponent.is_finite() && args.exponent.abs() >= LEAST_EXPONENT => {
            Ok(Mean::Power(args.exponent))
        }
        MeanName::Power => {
            let message = format!("--exponent {} is no exponent of a mean", args.exponent);
            Err(Failure::new(
                USAGE,
                message + "\nhint: for an exponent of 0, or nearly, say --mean geometric",
            ))
        }
    }
}
