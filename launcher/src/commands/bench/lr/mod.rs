//! `segue bench lr`: the learning-rate range test of Smith 2017 (§3.3).

mod curve;
mod report;

use std::cell::Cell;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use segue_collectives::Communicator;
use segue_configs::{
    AverageConfig, Config, EvalConfig, FinetuneConfig, NonFinite, OwnSections, RecoveryConfig, RisingRate,
};
use segue_engine::Event;
use segue_family::Job;
use segue_kernels::TrainError;
use segue_tasks::TaskConfig;
use serde_json::Value;

use self::curve::Divergence;
use self::report::{End, Made, RangeTest};
use crate::commands::{check_set, finetune, positive, pretrain};
use crate::failure::{Failure, USAGE};
use crate::folder::{Force, ResultFolder};
use crate::output::{Output, Unit};
use crate::recipes;
use crate::training::Place;

/// Lines that tell of the steps, at most.
const LINES: u64 = 10;

/// How rates follow each other.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scale {
    /// By a constant factor.
    Log,
    /// By a constant difference.
    Linear,
}

/// Arguments of `segue bench lr`.
#[derive(Args)]
#[command(after_help = "\
    The steps are the first of a run of the recipe, but for their rates. Nothing is evaluated, and no run folder or checkpoint is \
    written.\n\n\
    Examples:\n  \
    segue bench lr --config enwik8-base --output lr data.corpus=corpora/mine\n  \
    segue bench lr --model models/xlnet-base --lr-to 1e-2 --steps 200 \\\n      \
    task.name=sst2 task.data=glue/SST-2")]
pub struct LrArgs {
    /// Recipe, a TOML file, or the name of one that comes with the program (`segue recipes`) [default: every key at its default].
    #[arg(long, value_name = "FILE|NAME", value_parser = recipes::parser())]
    config: Option<PathBuf>,
    /// Model to fine-tune on the task of `task.name`, as for `segue finetune`.
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Learning rate of the first step.
    #[arg(long, value_name = "RATE", default_value = "1e-7", value_parser = positive)]
    lr_from: f64,
    /// Learning rate of the last step.
    #[arg(long, value_name = "RATE", default_value_t = 1.0, value_parser = positive)]
    lr_to: f64,
    /// Number of steps, fewer where the loss diverges.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(2..))]
    steps: u64,
    /// How the rates follow each other.
    #[arg(long, value_enum, default_value_t = Scale::Log)]
    scale: Scale,
    /// Folder for `lr.json`, `lr.csv` and `lr.svg`.
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    force: Force,
    /// Overrides of the recipe, by dotted name. `run.dir` is not read.
    #[arg(value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

impl LrArgs {
    /// Rates from end to end, as multiples of `unit`.
    fn rates(&self, unit: f64) -> RisingRate {
        RisingRate {
            from: self.lr_from / unit,
            to: self.lr_to / unit,
            steps: self.steps,
            linear: self.scale == Scale::Linear,
        }
    }
}

/// Trains a few steps at rates that rise, and tells where the loss falls. A collective call.
pub fn run(args: &LrArgs, comm: &dyn Communicator, out: &Output) -> Result<Value, Failure> {
    if args.lr_from >= args.lr_to {
        let message = format!("--lr-from is {}, and --lr-to is {}", args.lr_from, args.lr_to);
        return Err(Failure::new(USAGE, format!("{message}\nhint: let the rates rise")));
    }
    match &args.model {
        None => {
            let config = segue_families::MODELS.load(args.config.as_deref(), &args.overrides)?.config;
            let mut config = without_folder(config);
            check_pretraining(&config.task, &config.own)?;
            let place = Place::find(&config.run, &config.train, comm)?;
            let job = (segue_family::of(&config.model).open)(&mut config)?;
            Session { args, config: as_range_test(config, args), place, comm, out }.run(&*job)
        }
        Some(model) => {
            let (config, model) = finetune::configure(model, args.config.as_deref(), &args.overrides)?;
            let config = without_folder(config);
            let place = Place::find(&config.run, &config.train, comm)?;
            let tell = |line: &str| out.line(line);
            let run = finetune::TaskRun::open(config, Some(model), finetune::LEARNT_AND_SCORED, &tell)?;
            let config = as_range_test(run.config.clone(), args);
            Session { args, config, place, comm, out }.run(&run.job(String::new()))
        }
    }
}

/// Refuses a task without a model, and a model without a corpus.
fn check_pretraining(task: &FinetuneConfig, own: &OwnSections) -> Result<(), Failure> {
    if !task.name.is_empty() {
        let message = format!("task.name is `{}`, and --model is not given", task.name);
        let hint = "add --model DIR, a model folder, checkpoint or run to start from";
        return Err(Failure::new(USAGE, format!("{message}\nhint: {hint}")));
    }
    pretrain::check_pretraining(task, &own.get())?;
    check_set(&[("data.corpus", pretrain::lacks_corpus(&own.to_json()), "data.corpus=FOLDER")])
}

fn without_folder(mut config: Config) -> Config {
    config.run.dir.clear();
    config
}

/// The recipe with rising rates: its first steps, and nothing of what surrounds them or needs a folder.
fn as_range_test(mut config: Config, args: &LrArgs) -> Config {
    config.rising = Some(args.rates(config.optim.lr));
    // Not the last one of the run: an evaluation follows that.
    config.train.stop_at = args.steps;
    config.train.steps = config.train.steps.max(args.steps + 1);
    config.train.time_limit = 0.0;
    // The rate is for whole batches.
    config.train.batch_warmup = 0;
    config.eval = EvalConfig::default();
    config.average = AverageConfig::default();
    config.checkpoint.best = false;
    config.recovery = RecoveryConfig { non_finite: NonFinite::Stop, ..RecoveryConfig::default() };
    config.log.noise_scale_every = 0;
    if !config.task.name.is_empty() {
        config.change(|task: &mut TaskConfig| task.patience = 0);
    }
    config
}

/// What the steps are made with.
struct Session<'a> {
    args: &'a LrArgs,
    config: Config,
    place: Place,
    comm: &'a dyn Communicator,
    out: &'a Output,
}

impl Session<'_> {
    /// Makes the test, and reports it.
    fn run(&self, job: &dyn Job) -> Result<Value, Failure> {
        let Self { args, config, place, comm, out } = self;
        place.check(config, job, *comm)?;
        let folder = |path| ResultFolder::of_output_of_ranks(path, args.force, *comm);
        let folder = args.output.as_deref().map(folder).transpose()?;
        let test = self.test(job)?;
        test.report(folder.as_ref().filter(|_| comm.rank() == 0), out)
    }

    /// Makes the steps, up to the one at which the loss has diverged.
    fn test(&self, job: &dyn Job) -> Result<RangeTest, Failure> {
        let Self { args, config, place, comm, out } = self;
        let rates = args.rates(1.0);
        out.line(&format!(
            "{} steps at learning rates from {:e} to {:e}",
            args.steps, args.lr_from, args.lr_to
        ));
        let bar = out.progress(args.steps, Unit::Steps, "bench");
        let tenth = args.steps.div_ceil(LINES);
        let (diverged, mut divergences) = (Cell::new(false), Vec::new());
        let (mut made, mut sources) = (Vec::new(), Vec::new());
        let outcome =
            job.train(config, place.compute(), *comm, &|| diverged.get(), &mut |event| match event {
                Event::Started(started) => sources = started.labels.sources.1,
                Event::Warning { what } => out.line(&format!("warning: {what}")),
                Event::Step { report, .. } => {
                    let lr = rates.multiple(report.step);
                    let updated = report.scaled.is_none_or(|scaled| !scaled.overflowed);
                    if divergences.len() <= report.source {
                        divergences.resize_with(report.source + 1, Divergence::default);
                    }
                    if divergences[report.source].observe(report.loss) {
                        diverged.set(true);
                    }
                    made.push(Made {
                        step: report.step,
                        lr,
                        loss: report.loss,
                        source: report.source,
                        updated,
                    });
                    bar.set(report.step);
                    let told = format!("loss {:.4}, lr {lr:.2e}", report.loss);
                    bar.message(&told);
                    // A bar is drawn on a terminal alone.
                    if report.step.is_multiple_of(tenth) {
                        out.line(&format!("step {} of {}: {told}", report.step, args.steps));
                    }
                }
                _ => {}
            });
        drop(bar);
        let end = match outcome {
            Ok(_) if diverged.get() => End::Diverged,
            Ok(_) => End::LastStep,
            // What a rate that is too high ends with.
            Err(TrainError::NonFinite { step, what, value }) if !made.is_empty() => {
                End::NotFinite(format!("{what} of step {step} is {value}"))
            }
            Err(TrainError::Spoiled { what, .. }) if !made.is_empty() => {
                End::NotFinite(format!("{what} holds a value that is not finite"))
            }
            Err(error) => return Err(Failure::from(error)),
        };
        Ok(RangeTest { rates, made, sources, end })
    }
}
