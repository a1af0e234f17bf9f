use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use segue_cluster::Preemption;
use segue_collectives::Communicator;
use segue_configs::{Config, DataOrder};
use segue_dataloader::{Tokenizer, TokenizerKind};
use segue_trainer::engine::{Event, Outcome, Sources, Started, StepReport, pretrain};
use serde_json::{Value, json};

use super::{at_least_one, dry_run};
use crate::commands::eval::describe;
use crate::failure::{Failure, PREEMPTED};
use crate::output::{Output, Progress, Unit};
use crate::run_folder::{Record, describe_start, lock, start_log};

/// Arguments of `segue pretrain`.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    segue pretrain --config configs/recipes/tiny.toml run.dir=runs/tiny data.corpus=corpora/mine\n  \
    mpirun -n 4 segue pretrain --config my.toml train.lanes=64 optim.lr=1e-3\n  \
    segue pretrain --config configs/recipes/enwik8-base.toml --dry-run --ranks 2\n\n\
    The same command goes on where a killed run stopped. SIGUSR1, SIGTERM or Ctrl-C stop it after a\n\
    checkpoint, with exit code 75.")]
pub struct PretrainArgs {
    /// Recipe, a TOML file.
    #[arg(long)]
    config: Option<PathBuf>,
    /// Print the merged configuration, with the origin of each value, and exit.
    #[arg(long)]
    print_config: bool,
    /// Print parameters, memory and operations of the recipe, and exit.
    #[arg(long)]
    dry_run: bool,
    /// Number of ranks to assume in a dry run [default: those of this job].
    #[arg(long, requires = "dry_run", value_parser = at_least_one)]
    ranks: Option<usize>,
    /// Overrides of the recipe, by dotted name.
    #[arg(value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

/// Trains, and reports to stderr, `metrics.jsonl`, TensorBoard and logs.
pub fn run(args: PretrainArgs, json: bool, comm: &dyn Communicator, out: &Output) -> Result<Value, Failure> {
    let loaded = segue_configs::load(args.config.as_deref(), &args.overrides)?;
    if args.print_config {
        if comm.rank() == 0 && !json {
            print!("{}", loaded.render());
        }
        return Ok(loaded.config.to_json());
    }
    if args.dry_run {
        return dry_run::run(loaded.config, args.ranks.unwrap_or(comm.world_size()), out);
    }
    let mut config = loaded.config;
    if !config.task.name.is_empty() {
        let message = format!("task.name is `{}`\nhint: train tasks with `segue finetune`", config.task.name);
        return Err(Failure { on_all_ranks: true, ..Failure::new(78, message) });
    }
    let no_corpus = config.data.corpus.is_empty() && config.data.corpora.is_empty();
    for (key, missing) in [("run.dir", config.run.dir.is_empty()), ("data.corpus", no_corpus)] {
        if missing {
            let message = format!("{key} is not set\nhint: add {key}=FOLDER to the command or the recipe");
            return Err(Failure { on_all_ranks: true, ..Failure::new(78, message) });
        }
    }
    let sources = Sources::open(&config)?;
    config.model.fit_vocabulary(sources.tokenizer().vocab_size(), sources.tokenizer().eos_id())?;
    segue_trainer::libtorch::set_threads(config.train.threads);
    segue_trainer::libtorch::keep_freed_memory();
    let preemption = Preemption::install()?;
    let run = Path::new(&config.run.dir);
    let _lock = if comm.rank() == 0 { Some(lock(run)?) } else { None };
    start_log(run, comm.rank())?;
    let mut reporter = Reporter::new(&config, comm, out, in_characters(sources.tokenizer()));
    let outcome =
        pretrain(&config, &sources, comm, &|| preemption.requested(), &mut |event| reporter.report(event));
    let problem = reporter.finish();
    let outcome = outcome?;
    if let Some(problem) = problem {
        return Err(problem);
    }
    Ok(summary(&config, &outcome, out))
}

/// Whether tokens are characters or bytes, so that losses are told in bits per character.
fn in_characters(tokenizer: &Tokenizer) -> bool {
    matches!(tokenizer.kind(), TokenizerKind::Byte | TokenizerKind::Char)
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
        "preempted": outcome.preempted,
        "exit_code": if outcome.preempted { PREEMPTED } else { 0 },
    })
}

/// Writes what happens to all places where people look. Errors of these files do not stop training; the
/// first one is the command's failure at its end.
struct Reporter<'a> {
    config: &'a Config,
    out: &'a Output,
    rank: usize,
    characters: bool,
    attempt: u64,
    record: Option<Record>,
    bar: Option<Progress<'a>>,
    recent: Interval,
    problem: Option<Failure>,
}

/// Sums over this attempt's steps since the last report.
#[derive(Default)]
struct Interval {
    steps: u64,
    tokens: f64,
    elapsed: Duration,
    data_wait: Duration,
    communication_exposed: Duration,
    checkpoint_stall: Duration,
}

impl<'a> Reporter<'a> {
    fn new(config: &'a Config, comm: &dyn Communicator, out: &'a Output, characters: bool) -> Self {
        Self {
            config,
            out,
            rank: comm.rank(),
            characters,
            attempt: 1,
            record: None,
            bar: None,
            recent: Interval::default(),
            problem: None,
        }
    }

    fn report(&mut self, event: Event) {
        if let Err(failure) = self.write(event) {
            self.out.line(&format!("warning: {}", failure.message));
            self.problem.get_or_insert(failure);
        }
    }

    fn finish(self) -> Option<Failure> {
        self.problem
    }

    fn write(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::Started(started) => self.started(&started),
            Event::Step { report, tokens, due, elapsed, data_wait, checkpoint_stall } => {
                let recent = &mut self.recent;
                recent.steps += 1;
                recent.tokens += match self.config.data.order {
                    // Every token is read, few are targets.
                    DataOrder::Pairs | DataOrder::Records => {
                        (self.config.train.lanes * self.config.train.segment) as f64
                    }
                    DataOrder::Stream | DataOrder::Sentences => report.targets,
                };
                recent.elapsed += elapsed;
                recent.data_wait += data_wait;
                recent.communication_exposed += report.communication_exposed;
                recent.checkpoint_stall += checkpoint_stall;
                if let Some(bar) = &self.bar {
                    bar.set(report.step);
                }
                due.map_or(Ok(()), |sum| self.interval(&report, tokens, sum.nats / sum.targets))
            }
            Event::Evaluated { step, evaluation } => {
                self.out.line(&format!("step {step}: validation: {}", describe(&evaluation)));
                tracing::info!(
                    rank = self.rank,
                    step,
                    loss = evaluation.loss,
                    ppl = evaluation.ppl,
                    "evaluated"
                );
                let mut row = json!({ "kind": "eval", "step": step, "attempt": self.attempt });
                merge(&mut row, &json!(evaluation));
                self.row(&row)?;
                let mut values = vec![("valid/loss", evaluation.loss), ("valid/ppl", evaluation.ppl)];
                values.extend(evaluation.of_text.map(|text| ("valid/bpc", text.bits_per_char)));
                values.extend(evaluation.of_pairs.map(|pairs| ("valid/accuracy", pairs.accuracy)));
                self.scalars(step, &values)
            }
            Event::Checkpointed { path } => {
                tracing::info!(rank = self.rank, path = %path.display(), "checkpointed");
                Ok(())
            }
        }
    }

    fn started(&mut self, started: &Started) -> Result<(), Failure> {
        self.attempt = started.attempt;
        describe_start(started, "targets", self.out);
        tracing::info!(
            rank = self.rank,
            step = started.step,
            attempt = started.attempt,
            world_size = started.world_size,
            "started"
        );
        if self.rank != 0 {
            return Ok(());
        }
        self.record = Some(Record::open(self.config, started.step)?);
        let bar = self.out.progress(started.steps, Unit::Steps, "train");
        bar.resume_at(started.step);
        self.bar = Some(bar);
        Ok(())
    }

    /// Reports the steps since the last report.
    fn interval(&mut self, report: &StepReport, tokens: u64, loss: f64) -> Result<(), Failure> {
        let recent = std::mem::take(&mut self.recent);
        let seconds = recent.elapsed.as_secs_f64();
        let tokens_per_s = recent.tokens / seconds;
        let (name, value) =
            if self.characters { ("bpc", loss / std::f64::consts::LN_2) } else { ("ppl", loss.exp()) };
        let step = report.step;
        let text = format!("loss {loss:.4}, {name} {value:.2}, {tokens_per_s:.0} tokens/s");
        if let Some(bar) = &self.bar {
            bar.message(&text);
        }
        self.out.line(&format!(
            "step {step}/{}: {text}, lr {:.2e}, gradient norm {:.3}",
            self.config.train.steps, report.lr, report.grad_norm
        ));
        tracing::info!(rank = self.rank, step, loss, tokens_per_s, grad_norm = report.grad_norm, "step");
        self.row(&json!({
            "kind": "train",
            "step": step,
            "attempt": self.attempt,
            "tokens": tokens,
            "loss": loss,
            name: value,
            "lr": report.lr,
            "grad_norm": report.grad_norm,
            "tokens_per_s": tokens_per_s,
            "step_s": seconds / recent.steps as f64,
            "data_wait_s": recent.data_wait.as_secs_f64(),
            "communication_exposed_s": recent.communication_exposed.as_secs_f64(),
            "checkpoint_stall_s": recent.checkpoint_stall.as_secs_f64(),
        }))?;
        let tag = format!("train/{name}");
        self.scalars(
            step,
            &[
                ("train/loss", loss),
                (tag.as_str(), value),
                ("train/lr", report.lr),
                ("train/gradient_norm", report.grad_norm),
                ("speed/tokens_per_s", tokens_per_s),
            ],
        )
    }

    fn row(&mut self, row: &Value) -> Result<(), Failure> {
        self.record.as_mut().map_or(Ok(()), |record| record.row(row))
    }

    fn scalars(&mut self, step: u64, values: &[(&str, f64)]) -> Result<(), Failure> {
        self.record.as_mut().map_or(Ok(()), |record| record.scalars(step, values))
    }
}

fn merge(row: &mut Value, more: &Value) {
    if let (Some(row), Some(more)) = (row.as_object_mut(), more.as_object()) {
        row.extend(more.clone());
    }
}
