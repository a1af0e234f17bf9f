mod grid;
mod options;

use std::collections::BTreeMap;

use clap::Args;
use segue_collectives::Communicator;
use segue_dataloader::{Split, TokenStream};
use segue_engine::Watch;
use segue_language::{Cut, Evaluation};
use segue_protocols::{
    AfterPasses, DynamicOptions, Passes, Rule, StatisticsOptions, dynamic_passes, dynamic_trials,
    gradient_statistics,
};
use serde_json::{Value, json};

use self::grid::Grid;
use self::options::{GradientName, MeanName, RuleName};
use super::monte_carlo::{Best, Tried};
use super::split::AttentionArgs;
use super::subject::{Subject, SubjectArgs};
use super::walk::TemperatureArgs;
use super::{SplitName, monte_carlo};
use crate::commands::some_length;
use crate::failure::{Failure, NOT_A_NUMBER, USAGE};
use crate::output::{Output, Unit};

/// Tokens that a recurrent model reads before a segment of the statistics, where the command does not say.
const CONTEXT: u64 = 128;

/// Arguments of `segue eval dynamic`.
#[derive(Args)]
#[command(after_help = "\
    The weights on disk stay as they are. Works under mpirun too: ranks share the statistics' batches, the \
    points of a grid and the passes with dropout, and the result has the same bits at any number of ranks.\n\n\
    Examples:\n  \
    segue eval dynamic --model runs/wikitext2 --split test --rule rms --tune\n  \
    segue eval dynamic --model runs/lstm --split test --segment 5 \\\n      \
    --mean tensors --grid lr=3e-5,5e-5,1e-4 decay=1e-3,2e-3,5e-3\n  \
    segue eval dynamic --model runs/lstm --split test --passes 200 \\\n      \
    --rates 0.6,0.8,1")]
pub struct DynamicArgs {
    #[command(flatten)]
    subject: SubjectArgs,
    /// Update rule.
    #[arg(long, value_enum, default_value = "rms")]
    rule: RuleName,
    /// Learning rate, for the gradient of a segment [default: sgd 0.05, rms 0.00005].
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
    #[arg(long, default_value_t = 64, value_parser = some_length)]
    segment: usize,
    /// Loss whose gradient is taken, also in the statistics.
    #[arg(long, value_enum, default_value = "mean")]
    gradient: GradientName,
    /// Mean that a weight's root mean square is relative to in its decay (`rms`).
    #[arg(long, value_enum, default_value = "values")]
    mean: MeanName,
    /// Read --lr, --decay and --epsilon, and those of a grid, in the older scaling of Krause's program: sums in the place of means
    /// over the statistics' batches and over tensors.
    #[arg(long)]
    older_scaling: bool,
    #[command(flatten)]
    temperature: TemperatureArgs,
    #[command(flatten)]
    attention: AttentionArgs,
    /// Split for gradient statistics, the root mean squares (`rms`).
    #[arg(long, value_enum, default_value = "train")]
    statistics_from: SplitName,
    /// Number of batches for gradient statistics (`rms`).
    #[arg(long, default_value_t = 200)]
    statistics_batches: u64,
    /// Number of segments per batch of them.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    statistics_lanes: u64,
    /// Tokens to read before each of their segments [default: as many as the memory of attention holds; 128 without attention].
    #[arg(long)]
    statistics_context: Option<u64>,
    /// Search nine pairs of learning rate and decay around the given ones on the valid split first.
    #[arg(long, conflicts_with = "grid")]
    tune: bool,
    /// Search all combinations of these values on the valid split first: any of `lr=..`, `decay=..`, `epsilon=..` and `segment=..`.
    #[arg(long, num_args = 1.., value_name = "KEY=X,..")]
    grid: Vec<String>,
    /// Also evaluate with this many passes with dropout, in the arithmetic mean of what they predict; each adapts by itself. 0 for none.
    #[arg(long, default_value_t = 0)]
    passes: u64,
    /// Factor of all rates of dropout in these passes, in [0, 1]; of several, the best on the valid split.
    #[arg(long, default_value = "1", value_delimiter = ',', requires = "passes")]
    rates: Vec<f64>,
    /// Seed of their masks.
    #[arg(long, default_value_t = 1, requires = "passes")]
    seed: u64,
}

/// Evaluates while the model adapts; prints the result beside that of the fixed model.
pub fn run(args: DynamicArgs, comm: &dyn Communicator, out: &Output) -> Result<Value, Failure> {
    let (mut options, grid) = (options::options(&args)?, Grid::of(&args)?);
    check_rates(&args)?;
    let mut subject = args.subject.open(out)?;
    let seen = args.attention.of(&subject.folder, &args.subject.model)?;
    subject.model.look(&seen);
    subject.model.set_inverse_temperature(args.temperature.temperature);
    let rule_of = |segment: usize| -> Result<(usize, Rule), Failure> {
        Ok((segment, rule(&args, segment, &subject, comm, out)?))
    };
    let rules = grid.segments(options).into_iter().map(rule_of).collect::<Result<BTreeMap<_, _>, _>>()?;
    let job = Job { rules, subject: &subject, args: &args, comm, out };
    let points = grid.points(options);
    let trials = if grid.is_searched() { job.search(&points)? } else { Vec::new() };
    let best = trials.iter().filter_map(|(options, trial)| Some((*options, trial.as_ref().ok()?.loss)));
    match best.min_by(|a, b| a.1.total_cmp(&b.1)) {
        Some((best, _)) => {
            options = best;
            out.line(&format!("best on valid: {}", grid.describe(&options)));
        }
        None if grid.is_searched() => {
            let message = "the weights diverged at every point of the grid\nhint: lower --lr";
            return Err(Failure::new(NOT_A_NUMBER, message));
        }
        None => {}
    }
    let (best, tried) = job.best_rates(options)?;
    let (before, after) = job.before_and_after(options)?;
    // Each token is learned from once, in the order of the text: there is one lane.
    let cut = Cut::new(&subject.folder.config, &seen, 1, options.segment)?;
    let folder = subject.folder.path.display();
    out.line(&format!("fixed:   {} ({cut}; weights of {folder})", before.describe()));
    out.line(&format!("dynamic: {} ({cut})", after.describe()));
    let rates = best.as_ref().map_or(args.rates[0], |(rates, _)| *rates);
    let passes = match best {
        _ if args.passes == 0 => Vec::new(),
        // The search has made them.
        Some((_, passes)) if args.subject.text.split == SplitName::Valid => passes,
        _ => job.with_dropout(&subject.stream, options, rates, "passes")?,
    };
    monte_carlo::describe(&passes, "dynamic, ", out);
    if passes.iter().any(|after| after.loss.is_nan()) {
        out.line("the weights diverged in a pass with dropout: lower --lr");
    }
    let point = |o: &DynamicOptions| json!({ "lr": o.lr, "decay": o.decay, "epsilon": o.epsilon, "segment": o.segment });
    let trial = |(options, trial): &Trial| {
        let mut row = point(options);
        let evaluation = trial.as_ref().ok()?;
        row["loss"] = json!(evaluation.loss);
        row["ppl"] = json!(evaluation.ppl);
        Some(row)
    };
    let diverged = trials.iter().filter(|(_, trial)| trial.is_err()).map(|(options, _)| point(options));
    let mut told = json!({
        "model": subject.folder.path,
        "cut": cut,
        "rule": if args.rule == RuleName::Sgd { "sgd" } else { "rms" },
        "lr": options.lr,
        "decay": options.decay,
        "epsilon": options.epsilon,
        "segment": options.segment,
        "statistics_batches": job.statistics_batches(&options),
        "fixed": before,
        "dynamic": after,
        "passes": passes,
        "trials": trials.iter().filter_map(trial).collect::<Vec<_>>(),
        "diverged": diverged.collect::<Vec<_>>(),
    });
    if args.passes > 0 {
        told["rates"] = json!(rates);
    }
    if !tried.is_empty() {
        let row = |(rates, loss): &(f64, f64)| json!({ "rates": rates, "loss": loss });
        told["tried"] = tried.iter().map(row).collect();
    }
    Ok(told)
}

/// A point of a grid, and its evaluation or why there is none.
type Trial = (DynamicOptions, Result<Evaluation, String>);

/// What is evaluated, and by whom.
struct Job<'a> {
    /// By the length of segments, which gradients are of.
    rules: BTreeMap<usize, Rule>,
    subject: &'a Subject,
    args: &'a DynamicArgs,
    comm: &'a dyn Communicator,
    out: &'a Output,
}

impl Job<'_> {
    /// How the weights change at a point, whose length of segments is one of the grid's.
    fn rule(&self, options: &DynamicOptions) -> &Rule {
        &self.rules[&options.segment]
    }

    /// Perplexity on the valid split at every point of a grid, or why there is none.
    fn search(&self, points: &[DynamicOptions]) -> Result<Vec<Trial>, Failure> {
        let valid = self.subject.tokens(Split::Valid)?;
        let trials: Vec<_> = points.iter().map(|options| (self.rule(options), *options)).collect();
        let found = self.evaluate(&valid, &trials, "tune")?;
        for (options, result) in points.iter().zip(&found) {
            let point = format!("valid: lr {:.2e}, decay {:.2e}", options.lr, options.decay);
            let epsilon = format!(", epsilon {:.2e}", options.epsilon);
            let varies = points.iter().any(|other| other.epsilon != options.epsilon);
            let lengths = points.iter().any(|other| other.segment != options.segment);
            let segment = if lengths { format!(", segments of {}", options.segment) } else { String::new() };
            let outcome = match result {
                Ok(evaluation) => format!("perplexity {:.3}", evaluation.ppl),
                Err(why) => why.clone(),
            };
            let epsilon = if varies { epsilon.as_str() } else { "" };
            self.out.line(&format!("{point}{epsilon}{segment}: {outcome}"));
        }
        Ok(points.iter().copied().zip(found).collect())
    }

    /// The split of the command with fixed weights, and with weights that adapt.
    fn before_and_after(&self, options: DynamicOptions) -> Result<(Evaluation, Evaluation), Failure> {
        let fixed = DynamicOptions { lr: 0.0, decay: 0.0, ..options };
        let trials = [(&Rule::Sgd, fixed), (self.rule(&options), options)];
        let mut found = self.evaluate(&self.subject.stream, &trials, "dynamic")?.into_iter();
        let mut next = || found.next().unwrap_or_else(|| unreachable!("each of two trials has an outcome"));
        // Weights that nothing moves do not diverge.
        let before = next().map_err(|_| super::not_a_number(f64::NAN, &self.subject.folder.path))?;
        Ok((before, next().map_err(|why| Failure::new(NOT_A_NUMBER, why + "\nhint: lower --lr"))?))
    }

    /// Of several factors of rates of dropout the best on the valid split, with its passes there, and the loss of each. None is where weights diverge with
    /// each: the first is taken then.
    fn best_rates(&self, options: DynamicOptions) -> Result<(Option<Best<f64>>, Tried<f64>), Failure> {
        if self.args.rates.len() == 1 {
            return Ok((None, Vec::new()));
        }
        let valid = self.subject.tokens(Split::Valid)?;
        let describe = |rates: &f64| format!("rates times {rates}");
        let passes = |rates: &f64| self.with_dropout(&valid, options, *rates, "search");
        let (best, tried) = monte_carlo::best_on_valid(&self.args.rates, describe, self.out, passes)?;
        if best.is_none() {
            self.out.line("the weights diverged at each of --rates, of which the first is taken: lower --lr");
        }
        Ok((best, tried))
    }

    /// A split in passes with dropout that adapt.
    fn with_dropout(
        &self,
        stream: &TokenStream,
        options: DynamicOptions,
        rates: f64,
        label: &str,
    ) -> Result<Vec<AfterPasses>, Failure> {
        let passes = Passes { count: self.args.passes, rates, seed: self.args.seed };
        let bar = self.out.progress(0, Unit::Steps, label);
        let mut report = |done, whole| bar.set_of(done, whole);
        let of = (self.rule(&options), self.scaled(options));
        Ok(dynamic_passes(self.subject.model.as_ref(), stream, of, passes, self.comm, &mut report)?)
    }

    /// Batches that gradients were gathered from for these segments, where they were.
    fn statistics_batches(&self, options: &DynamicOptions) -> Option<u64> {
        match self.rule(options) {
            Rule::Rms(statistics) => Some(statistics.batches),
            Rule::Sgd => None,
        }
    }

    /// The constants as the evaluation takes them.
    fn scaled(&self, options: DynamicOptions) -> DynamicOptions {
        let tensors = self.subject.model.parameters().tensors().len();
        match self.args.older_scaling {
            true => options.from_older_scaling(tensors, self.statistics_batches(&options).unwrap_or(1)),
            false => options,
        }
    }

    fn evaluate(
        &self,
        stream: &TokenStream,
        trials: &[(&Rule, DynamicOptions)],
        label: &str,
    ) -> Result<Vec<Result<Evaluation, String>>, Failure> {
        let trials: Vec<_> = trials.iter().map(|(rule, options)| (*rule, self.scaled(*options))).collect();
        let bar = self.out.progress(0, Unit::Steps, label);
        let mut report = |done, whole| bar.set_of(done, whole);
        let mut watch = Watch::new(&mut report);
        Ok(dynamic_trials(self.subject.model.as_ref(), stream, &trials, self.comm, &mut watch)?)
    }
}

/// Refuses what is no factor of rates, and factors for no passes.
fn check_rates(args: &DynamicArgs) -> Result<(), Failure> {
    if args.passes == 0 && args.rates != [1.0] {
        let message = "--rates are those of passes with dropout, and there are none\nhint: give --passes";
        return Err(Failure::new(USAGE, message));
    }
    monte_carlo::check_rates(&args.rates)
}

fn rule(
    args: &DynamicArgs,
    segment: usize,
    subject: &Subject,
    comm: &dyn Communicator,
    out: &Output,
) -> Result<Rule, Failure> {
    if args.rule == RuleName::Sgd {
        return Ok(Rule::Sgd);
    }
    let train = subject.tokens(args.statistics_from.into())?;
    let own_context = match subject.folder.next_tokens()?.attends() {
        true => subject.model.context().mem_len.max(0) as u64,
        false => CONTEXT,
    };
    let options = StatisticsOptions {
        segment,
        lanes: args.statistics_lanes,
        batches: args.statistics_batches,
        context: args.statistics_context.unwrap_or(own_context),
        gradient: args.gradient.into(),
        mean: args.mean.into(),
    };
    let bar = out.progress(args.statistics_batches, Unit::Steps, "statistics");
    let model = subject.model.as_ref();
    Ok(Rule::Rms(gradient_statistics(model, &train, &options, comm, |done| bar.set(done))?))
}
