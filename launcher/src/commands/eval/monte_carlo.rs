use clap::{Args, ValueEnum};
use segue_collectives::Communicator;
use segue_configs::counted;
use segue_dataloader::Split;
use segue_engine::Watch;
use segue_language::Evaluation;
use segue_protocols::{
    AfterPasses, Mean, MonteCarloOptions, Passes, USUAL_TOKENS, Walk, best, monte_carlo, token_losses,
};
use serde_json::{Value, json};

use super::split::AttentionArgs;
use super::subject::{Subject, SubjectArgs};
use super::walk::{TemperatureArgs, WalkArgs, beginning};
use crate::failure::{Failure, USAGE};
use crate::output::{Output, Unit};

/// Arguments of `segue eval monte-carlo`.
#[derive(Args)]
#[command(after_help = "\
    Of several --rates or --exponent every combination is tried on the valid split, and the best evaluates \
    --split. Works under mpirun too; the result has the same bits at any number of ranks. Of the arithmetic mean \
    ranks share the passes, of the others the groups of lanes.\n\n\
    Examples:\n  \
    segue eval monte-carlo --model runs/lstm --split test --passes 200 \\\n      \
    --rates 0.6,0.7,0.8,0.9,1\n  \
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
    /// Exponent of the power mean; of several, the best on the valid split [default: 0.5].
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true)]
    exponent: Vec<f64>,
    /// Factor of all rates of dropout, in [0, 1]; of several, the best on the valid split.
    #[arg(long, default_value = "1", value_delimiter = ',')]
    rates: Vec<f64>,
    /// Of several rates or exponents: tokens of the valid split to search on, from its beginning; 0 for all [default: 50000].
    #[arg(long)]
    tokens: Option<u64>,
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

const USUAL_EXPONENT: f64 = 0.5;
/// Below, what powers differ by is lost in rounding.
const LEAST_EXPONENT: f64 = 1e-6;

/// What passes drop, and what is made of them.
#[derive(Debug, Clone, Copy)]
struct Point {
    rates: f64,
    mean: Mean,
}

impl Point {
    fn exponent(&self) -> Option<f64> {
        match self.mean {
            Mean::Power(exponent) => Some(exponent),
            Mean::Arithmetic | Mean::Geometric => None,
        }
    }

    fn describe(&self) -> String {
        let exponent = self.exponent().map_or(String::new(), |exponent| format!(", exponent {exponent}"));
        format!("rates times {}{exponent}", self.rates)
    }
}

/// Evaluates without dropout and with more and more passes of it.
pub fn run(args: MonteCarloArgs, comm: &dyn Communicator, out: &Output) -> Result<Value, Failure> {
    let points = points(&args)?;
    let mut subject = args.subject.open(out)?;
    let seen = args.attention.of(&subject.folder, &args.subject.model)?;
    subject.model.look(&seen);
    subject.model.set_inverse_temperature(args.temperature.temperature);
    let (walk, cut) = args.walk.walk(&subject, &args.subject.model, &seen)?;
    let (point, tried) = match points[..] {
        [only] => (only, Value::Null),
        _ => search(&points, &subject, walk, &args, comm, out)?,
    };
    let bar = out.progress(0, Unit::Steps, "without dropout");
    let mut progress = |done, whole| bar.set_of(done, whole);
    let (model, stream) = (subject.model.as_ref(), &subject.stream);
    let losses = token_losses(model, stream, &walk, comm, &mut Watch::new(&mut progress))?;
    drop(bar);
    let fixed = Evaluation::of_losses(&losses, stream);
    let folder = subject.folder.path.display();
    out.line(&format!("without dropout: {} ({cut}; weights of {folder})", fixed.describe()));
    super::check_loss(fixed.loss, &subject.folder.path)?;
    let bar = out.progress(0, Unit::Steps, "passes");
    let options = options(&args, point, walk);
    let found = monte_carlo(model, stream, &options, comm, &mut |done, whole| bar.set_of(done, whole))?;
    drop(bar);
    describe(&found, "", out);
    for after in &found {
        super::check_loss(after.loss, &subject.folder.path)?;
    }
    let mut told = json!({
        "model": subject.folder.path, "cut": cut, "mean": name(args.mean), "rates": point.rates, "seed": args.seed, "fixed": fixed,
        "passes": found,
    });
    if let Some(exponent) = point.exponent() {
        told["exponent"] = json!(exponent);
    }
    if !tried.is_null() {
        told["tried"] = tried;
    }
    Ok(told)
}

/// Tries all points on the beginning of the valid split. Gives the best, and what was found of each.
fn search(
    points: &[Point],
    subject: &Subject,
    walk: Walk,
    args: &MonteCarloArgs,
    comm: &dyn Communicator,
    out: &Output,
) -> Result<(Point, Value), Failure> {
    let valid = subject.tokens(Split::Valid)?;
    let walk = beginning(walk, args.tokens.unwrap_or(USUAL_TOKENS));
    let (best, tried) = best_on_valid(points, Point::describe, out, |point| {
        let bar = out.progress(0, Unit::Steps, "search");
        let mut progress = |done, whole| bar.set_of(done, whole);
        let options = options(args, *point, walk);
        Ok(monte_carlo(subject.model.as_ref(), &valid, &options, comm, &mut progress)?)
    })?;
    let Some((best, _)) = best else {
        let loss = tried.last().map_or(f64::NAN, |(_, loss)| *loss);
        return Err(super::not_a_number(loss, &subject.folder.path));
    };
    let row = |(point, loss): &(Point, f64)| json!({ "rates": point.rates, "exponent": point.exponent(), "loss": loss });
    Ok((best, tried.iter().map(row).collect()))
}

/// Points that were tried, and the loss of each after all passes.
pub(super) type Tried<T> = Vec<(T, f64)>;

/// A point, and what its passes found.
pub(super) type Best<T> = (T, Vec<AfterPasses>);

/// Tries points, by what `passes` of the valid split with each find. Gives the one of the lowest loss after all passes, the first of equal ones, with what
/// its passes found, and the loss of each; none is the best where no loss is a finite number.
pub(super) fn best_on_valid<T: Copy>(
    points: &[T],
    describe: impl Fn(&T) -> String,
    out: &Output,
    mut passes: impl FnMut(&T) -> Result<Vec<AfterPasses>, Failure>,
) -> Result<(Option<Best<T>>, Tried<T>), Failure> {
    let (mut tried, mut found) = (Vec::new(), Vec::new());
    for point in points {
        let after = passes(point)?;
        let loss = after.last().map_or(f64::NAN, |after| after.loss);
        found.push((*point, after));
        out.line(&format!("valid: {}: loss {loss:.4}, perplexity {:.3}", describe(point), loss.exp()));
        tried.push((*point, loss));
    }
    let places: Vec<usize> = (0..points.len()).collect();
    let best = best(&places, |place| tried[*place].1).map(|place| found.swap_remove(place));
    if let Some((best, _)) = &best {
        out.line(&format!("best on valid: {}", describe(best)));
    }
    Ok((best, tried))
}

fn options(args: &MonteCarloArgs, point: Point, walk: Walk) -> MonteCarloOptions {
    let passes = Passes { count: args.passes, rates: point.rates, seed: args.seed };
    MonteCarloOptions { walk, passes, mean: point.mean }
}

/// Prints what more and more passes give, each line with `what` before it.
pub(super) fn describe(found: &[AfterPasses], what: &str, out: &Output) {
    for AfterPasses { passes, loss, ppl } in found {
        out.line(&format!("{what}{}: loss {loss:.4}, perplexity {ppl:.3}", counted(*passes, "pass")));
    }
}

/// Refuses what is no factor of rates.
pub(super) fn check_rates(rates: &[f64]) -> Result<(), Failure> {
    let Some(wrong) = rates.iter().find(|rates| !(0.0..=1.0).contains(*rates)) else { return Ok(()) };
    let message = format!("--rates {wrong} does not lie in [0, 1]");
    Err(Failure::new(USAGE, message + "\nhint: 0.6, 0.7, 0.8 and 0.9 are usual"))
}

fn name(mean: MeanName) -> &'static str {
    match mean {
        MeanName::Arithmetic => "arithmetic",
        MeanName::Geometric => "geometric",
        MeanName::Power => "power",
    }
}

/// Every rate with every mean.
fn points(args: &MonteCarloArgs) -> Result<Vec<Point>, Failure> {
    check_rates(&args.rates)?;
    let means = match args.mean {
        MeanName::Arithmetic => vec![Mean::Arithmetic],
        MeanName::Geometric => vec![Mean::Geometric],
        MeanName::Power if args.exponent.is_empty() => vec![Mean::Power(USUAL_EXPONENT)],
        MeanName::Power => args.exponent.iter().map(|exponent| power(*exponent)).collect::<Result<_, _>>()?,
    };
    if args.mean != MeanName::Power && !args.exponent.is_empty() {
        return Err(Failure::new(USAGE, "--exponent is that of a power mean\nhint: add --mean power"));
    }
    if args.tokens.is_some() && args.rates.len() * means.len() == 1 {
        let message = "--tokens is of a search, and there is one combination alone\nhint: give several --rates or --exponent";
        return Err(Failure::new(USAGE, message));
    }
    let with = |rates: &f64| {
        let rates = *rates;
        means.iter().map(move |mean| Point { rates, mean: *mean })
    };
    Ok(args.rates.iter().flat_map(with).collect())
}

fn power(exponent: f64) -> Result<Mean, Failure> {
    if exponent.is_finite() && exponent.abs() >= LEAST_EXPONENT {
        return Ok(Mean::Power(exponent));
    }
    let message = format!("--exponent {exponent} is no exponent of a mean");
    Err(Failure::new(USAGE, message + "\nhint: for an exponent of 0, or nearly, say --mean geometric"))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Called {
        #[command(flatten)]
        args: MonteCarloArgs,
    }

    fn called(words: &[&str]) -> Result<Vec<Point>, String> {
        let words = [&["monte-carlo", "--model", "run"], words].concat();
        let called = Called::try_parse_from(words).map_err(|error| error.to_string())?;
        points(&called.args).map_err(|failure| failure.text(None))
    }

    /// Row M14.
    #[test]
    fn exponents_may_be_negative_and_several() {
        let exponents = |words: &[&str]| -> Vec<_> {
            called(&[&["--mean", "power"], words].concat()).unwrap().iter().map(Point::exponent).collect()
        };
        assert_eq!(exponents(&["--exponent", "-1,0.5"]), [Some(-1.0), Some(0.5)]);
        assert_eq!(exponents(&["--exponent", "-2"]), [Some(-2.0)]);
        assert_eq!(exponents(&[]), [Some(0.5)]);
    }

    #[test]
    fn the_best_point_is_the_first_of_the_lowest_loss_with_what_its_passes_found() {
        let out = Output::new(1);
        let after = |loss: f64| vec![AfterPasses { passes: 2, loss, ppl: loss.exp() }];
        let of = |losses: &[f64]| {
            let made = Cell::new(0);
            let points: Vec<usize> = (0..losses.len()).collect();
            let passes = |point: &usize| {
                made.set(made.get() + 1);
                Ok(after(losses[*point]))
            };
            let (best, tried) = best_on_valid(&points, usize::to_string, &out, passes).unwrap();
            assert_eq!((made.get(), tried.len()), (losses.len(), losses.len()));
            best
        };
        assert_eq!(of(&[2.5, f64::NAN, 1.5, 1.5]), Some((2, after(1.5))));
        assert_eq!(of(&[f64::NAN, f64::INFINITY]), None);
    }

    #[test]
    fn options_that_would_do_nothing_are_refused() {
        for (words, says) in [
            (&["--exponent", "2"][..], "--mean power"),
            (&["--mean", "geometric", "--exponent", "0.5"], "--mean power"),
            (&["--tokens", "300"], "--rates"),
            (&["--mean", "power", "--exponent", "2", "--tokens", "300"], "--rates"),
            (&["--mean", "power", "--exponent", "--tokens"], "--tokens"),
        ] {
            let message = called(words).unwrap_err();
            assert!(message.contains(says), "{words:?}: {message}");
        }
        assert_eq!(called(&["--rates", "0.6,1", "--tokens", "300"]).unwrap().len(), 2);
    }
}
