use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use segue_cluster::{Preemption, host_identity};
use segue_collectives::consensus::ranks_of_host;
use segue_collectives::{Communicator, deadline};
use segue_configs::Config;
use segue_trainer::engine::{Event, Outcome};
use segue_trainer::families;
use segue_trainer::{Compute, missing_kernels};
use serde_json::{Value, json};

use super::{at_least_one, dry_run, place_among, print_text};
use crate::failure::{BAD_CONFIG, Failure, PREEMPTED};
use crate::memory;
use crate::output::Output;
use crate::reporter::Reporter;
use crate::run_folder::{lock, start_log};

/// Arguments of `segue pretrain`.
#[derive(Args)]
#[command(after_help = "\
    The same command goes on where a killed run stopped. SIGUSR1, SIGTERM or Ctrl-C stop it after a \
    checkpoint, with exit code 75.\n\n\
    Examples:\n  \
    segue pretrain --config configs/recipes/tiny.toml run.dir=runs/tiny \\\n      \
    data.corpus=corpora/mine\n  \
    mpirun -n 4 segue pretrain --config my.toml train.lanes=64 optim.lr=1e-3\n  \
    segue pretrain --config configs/recipes/enwik8-base.toml --dry-run --ranks 2")]
pub struct PretrainArgs {
    /// Recipe, a TOML file [default: every key at its default].
    #[arg(long)]
    config: Option<PathBuf>,
    /// Print the merged configuration as TOML, with the origin of each value, and exit.
    #[arg(long)]
    print_config: bool,
    /// Print parameters, bytes per rank and operations of the recipe, next to what `[published]` says, and exit. Reads
    /// no corpus, unless the recipe leaves the vocabulary to it, and makes no weights. Exit code 1 if
    /// `published.parameters` differs.
    #[arg(long)]
    dry_run: bool,
    /// Number of ranks to assume in a dry run [default: those of this job].
    #[arg(long, requires = "dry_run", value_parser = at_least_one)]
    ranks: Option<usize>,
    /// Overrides of the recipe, by dotted name. The value is TOML; what is not TOML is a string, and a key of a text
    /// takes the value as it stands.
    #[arg(value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

/// Trains, and reports to stderr, `metrics.jsonl`, TensorBoard and logs.
pub fn run(args: PretrainArgs, json: bool, comm: &dyn Communicator, out: &Output) -> Result<Value, Failure> {
    let loaded = families::MODELS.load(args.config.as_deref(), &args.overrides)?;
    if args.print_config {
        if comm.rank() == 0 && !json {
            print_text(loaded.render().as_bytes())?;
        }
        return Ok(loaded.config.to_json());
    }
    if args.dry_run {
        return dry_run::run(loaded.config, args.ranks.unwrap_or(comm.world_size()), out);
    }
    let mut config = loaded.config;
    if !config.task.name.is_empty() {
        let message = format!("task.name is `{}`\nhint: train tasks with `segue finetune`", config.task.name);
        return Err(Failure::new(BAD_CONFIG, message));
    }
    if config.run.dir.is_empty() {
        let message = "run.dir is not set\nhint: add run.dir=FOLDER to the command or the recipe";
        return Err(Failure::new(BAD_CONFIG, message));
    }
    deadline::set(Duration::from_secs(config.train.deadline));
    // Hosts may have copies of their own.
    let ranks = ranks_of_host(comm, &host_identity())?;
    let place = place_among(&ranks, comm.rank());
    let compute = Compute::choose(config.train.device, place)?.allow_tf32(config.train.tf32);
    let job = (families::of(&config.model).open)(&mut config)?;
    segue_trainer::libtorch::set_threads(config.train.threads);
    segue_trainer::libtorch::keep_freed_memory();
    let preemption = Preemption::install()?;
    let run = Path::new(&config.run.dir);
    if compute == Compute::CPU {
        memory::check(&config, ranks.len(), comm.world_size())?;
    }
    if ranks.first() == Some(&comm.rank()) {
        job.check_data()?;
    }
    let _lock = match comm.rank() {
        0 => Some(lock(run)?),
        _ => None,
    };
    start_log(run, comm.rank(), config.log.trace_steps > 0)?;
    let mut reporter = Reporter::new(&config, comm, out);
    if let Some(why) = Compute::without_card(config.train.device) {
        let what = format!("this computes on the processor: {why}");
        reporter.report(Event::Warning { what });
    }
    let mut told = BTreeSet::new();
    let outcome = job.train(&config, compute, comm, &|| preemption.requested(), &mut |event| {
        reporter.report(event);
        tell_missing_kernels(&mut told, &mut reporter);
    });
    let problem = reporter.finish(outcome.as_ref().ok());
    let outcome = outcome?;
    if let Some(problem) = problem {
        return Err(problem);
    }
    Ok(summary(&config, &outcome, out))
}

/// Reports why a card goes without kernels of Segue's own, each reason once.
fn tell_missing_kernels(told: &mut BTreeSet<String>, reporter: &mut Reporter) {
    for missing in missing_kernels() {
        if told.insert(missing.why.clone()) {
            reporter.report(Event::Warning { what: missing.to_string() });
        }
    }
}

fn summary(config: &Config, outcome: &Outcome, out: &Output) -> Value {
    if outcome.preempted {
        out.line(&format!(
            "stopped after step {} with a checkpoint; run the same command to resume",
            outcome.step
        ));
    } else {
        out.line(&format!(
            "step {} of {} is done; all files are in {}",
            outcome.step, config.train.steps, config.run.dir
        ));
    }
    json!({
        "run": config.run.dir,
        "step": outcome.step,
        "loss": outcome.loss,
        "evaluation": outcome.evaluation,
        "best": outcome.best.map(|(_, value)| value),
        "best_step": outcome.best.map(|(step, _)| step),
        "preempted": outcome.preempted,
        "exit_code": if outcome.preempted { PREEMPTED } else { 0 },
    })
}
