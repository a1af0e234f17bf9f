use std::cell::RefCell;
use std::path::{Path, PathBuf};

use clap::Args;
use segue_cluster::Preemption;
use segue_cluster::pool::{Event, Runner, run_all};
use segue_configs::counted;
use segue_configs::study::Study;
use segue_tuner::{Identity, Journal, State, Training, Trial};
use serde_json::{Value, json};

use self::report::Report;
use self::trial::{Outcome, Trials, content};
use super::at_least_one;
use super::child::{Unfinished, key, make_folders, with_log, write_whole};
use super::measure::{Inputs, Measure};
use crate::failure::{CHECK_FAILED, Failure, PREEMPTED};
use crate::output::{Output, Unit};
use crate::run_folder::lock;

mod best;
mod costs;
mod front;
mod noise;
mod report;
mod trial;

/// Name of the journal in a study's folder.
const JOURNAL: &str = "journal.jsonl";

/// Arguments of `segue tune`.
#[derive(Args)]
#[command(after_help = "\
    The same command goes on where a study was interrupted, as if nothing had happened. A larger number of \
    trials in the file adds to those there are. SIGTERM or Ctrl-C stop it after checkpoints, with exit code \
    75. A training that fails is tried again, and then counts as one without a loss. best.toml in the \
    study's folder is the recipe of the best trial so far.\n\n\
    Example:\n  \
    segue tune configs/studies/lstm-small.toml --workers 2 \\\n      \
    data.corpus=corpora/mine")]
pub struct TuneArgs {
    /// Study, a TOML file.
    study: PathBuf,
    /// Number of concurrent trials.
    #[arg(long, alias = "jobs", default_value_t = 1, value_parser = at_least_one)]
    workers: usize,
    /// Folder for runs, journal and report [default: the study's `output`].
    #[arg(long)]
    output: Option<PathBuf>,
    /// List the trials so far and exit.
    #[arg(long)]
    list: bool,
    /// Try trials and reruns that failed again.
    #[arg(long, conflicts_with = "list")]
    retry: bool,
    /// Overrides of every trial, by dotted name.
    #[arg(value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

/// A job that did not come to its end: its name, and why.
type Unended = (String, Unfinished);

/// Makes trials, then reruns of the best, and writes the report.
pub fn run(args: TuneArgs, out: &Output) -> Result<Value, Failure> {
    let study = Study::load(&segue_families::MODELS, &args.study, &args.overrides)?;
    let output = args.output.unwrap_or_else(|| study.output.clone());
    let inputs = Inputs::of(study.base.clone())?;
    let identity = identity(&study, &inputs.fingerprint);
    let open = || Journal::open(&output.join(JOURNAL), &identity, study.space.parameters().len());
    if args.list {
        return Ok(list(&open()?, &inputs.measure, out));
    }
    if inputs.measure == Measure::Loss {
        let mut base = study.base.clone();
        (segue_family::of(&base.model).open)(&mut base)?.check_validation(&base)?;
    }
    let preemption = Preemption::install()?;
    let _lock = lock(&output)?;
    make_folders(&output, &["runs", "logs"])?;
    let mut journal = open()?;
    if args.retry {
        out.line(&format!("trying {} again", counted(journal.retry()?, "failed run")));
    }
    if let Some(metric) = inputs.measure.of_task() {
        out.line(&format!(
            "trials are judged by {}, of which {} is better",
            metric.name,
            inputs.measure.side()
        ));
    } else if !study.base.checkpoint.best {
        out.line("checkpoint.best is false: no trial keeps the model of its best evaluation, by which it is judged");
    }
    let journal = RefCell::new(journal);
    let trials = Trials { study: &study, output: &output, inputs: &inputs, journal: &journal };
    let mut unfinished = make_trials(&trials, args.workers, &preemption, out)?;
    unfinished.extend(make_reruns(&trials, args.workers, &preemption, out)?);
    let journal = journal.borrow();
    let report = Report::new(&study, &inputs, &journal, &output)?;
    best::write(&study, &inputs.measure, &journal, &output)?;
    for (file, text) in report.files() {
        write_whole(&output.join(file), &text)?;
    }
    if let Some(failure) = trials.hopeless() {
        return Err(failure);
    }
    let stopped = preemption.requested() || unfinished.iter().any(|(_, why)| *why == Unfinished::Stopped);
    unfinished.retain(|(_, why)| *why != Unfinished::Stopped);
    Ok(finish(&report, (&study, &journal), &unfinished, stopped, &output, out))
}

/// All that proposals and their losses depend on.
fn identity(study: &Study, corpus: &str) -> Identity {
    let (base, rules) = (content(study.base.to_json(), corpus), study.rules());
    let name = key(&json!({ "base": base, "rules": rules }));
    let mut of = base;
    if let (Some(all), Value::Object(rules)) = (of.as_object_mut(), rules) {
        all.extend(rules);
    }
    Identity { name, of }
}

/// Goes on with trials that are open, and makes new ones up to the study's number.
fn make_trials(
    trials: &Trials,
    workers: usize,
    preemption: &Preemption,
    out: &Output,
) -> Result<Vec<Unended>, Failure> {
    let (open, begun) = {
        let journal = trials.journal.borrow();
        (journal.pending(), journal.trials().len())
    };
    let wanted = open.len() + trials.study.trials.saturating_sub(begun);
    let number = |i: usize| open.get(i).copied().unwrap_or(begun + i - open.len().min(i));
    let name = |i: usize| name_of(Training { trial: number(i), seed: None });
    let work = async |i: usize, runner: &Runner<'_, Outcome>| trials.work(open.get(i).copied(), runner).await;
    let done = (begun - open.len()) as u64;
    let stop = || preemption.requested() || trials.hopeless().is_some();
    work_off((wanted, done, "tune"), &name, work, workers, &stop, out)
}

/// Trains the best settings with other seeds, once all trials have ended.
fn make_reruns(
    trials: &Trials,
    workers: usize,
    preemption: &Preemption,
    out: &Output,
) -> Result<Vec<Unended>, Failure> {
    let (best, seeds) = {
        let journal = trials.journal.borrow();
        let complete = journal.trials().len() >= trials.study.trials && journal.pending().is_empty();
        let Some(best) = journal.best().filter(|_| complete).map(|best| best.asked.trial) else {
            return Ok(Vec::new());
        };
        let made: Vec<u64> = journal.reruns(best).iter().map(|rerun| rerun.seed).collect();
        (best, seeds(trials.study).filter(|seed| !made.contains(seed)).collect::<Vec<u64>>())
    };
    let name = |i: usize| name_of(Training { trial: best, seed: Some(seeds[i]) });
    let work = async |i: usize, runner: &Runner<'_, Outcome>| trials.rerun(best, seeds[i], runner).await;
    let done = (trials.study.reruns - seeds.len()) as u64;
    work_off((seeds.len(), done, "reruns"), &name, work, workers, &|| preemption.requested(), out)
}

/// Seeds of reruns: those that follow the one of the trials.
fn seeds(study: &Study) -> impl Iterator<Item = u64> {
    let first = study.base.train.seed;
    // Seeds have 63 bits.
    (1..=study.reruns as u64).map(move |i| (first + i) & (u64::MAX >> 1))
}

/// Runs `count` jobs after `done` others; those that did not come to their end.
fn work_off(
    (count, done, label): (usize, u64, &str),
    name: &dyn Fn(usize) -> String,
    work: impl AsyncFn(usize, &Runner<'_, Outcome>) -> Outcome,
    workers: usize,
    stop: &dyn Fn() -> bool,
    out: &Output,
) -> Result<Vec<Unended>, Failure> {
    let bar = out.progress(done + count as u64, Unit::Steps, label);
    bar.resume_at(done);
    let (mut ended, mut unended) = (done, Vec::new());
    let mut hear = |event: Event<Outcome>| match event {
        Event::Started(i) => bar.message(&name(i)),
        Event::Progress(_) => {}
        Event::Finished(i, outcome) => {
            ended += 1;
            bar.set(ended);
            match outcome {
                Ok(words) => out.line(&format!("{}: {words}", name(i))),
                Err(unfinished) => {
                    out.line(&format!("{}: {unfinished}", name(i)));
                    unended.push((name(i), unfinished));
                }
            }
        }
    };
    run_all(count, workers, stop, work, &mut hear)?;
    Ok(unended)
}

fn finish(
    report: &Report,
    (study, journal): (&Study, &Journal),
    failed: &[Unended],
    stopped: bool,
    output: &Path,
    out: &Output,
) -> Value {
    let told = journal.trials().iter().filter(|trial| trial.told.is_some()).count();
    let best = journal.best();
    let reruns = best.map_or(0, |best| journal.reruns(best.asked.trial).len());
    let missing_reruns = best.map_or(0, |_| study.reruns.saturating_sub(reruns));
    let open = study.trials.saturating_sub(told) + missing_reruns;
    // What this process could not go on with is open too, and tried again by the same command.
    let stopped = stopped && open > failed.len();
    let code = match (failed.is_empty(), best) {
        _ if stopped => PREEMPTED,
        (true, Some(_)) => 0,
        _ => CHECK_FAILED,
    };
    match best {
        Some(best) => {
            out.line(&format!("best: trial {}, {}", best.asked.trial, report.in_words(best)));
            report::edges(study, best).iter().for_each(|line| out.line(line));
        }
        None => out.line(&format!("no trial has a {} yet", report.measure().name())),
    }
    if stopped {
        out.line(&format!("stopped with {} left; run the same command to resume", counted(open, "run")));
    }
    let failures = failures(journal, failed);
    if !failures.is_empty() {
        out.line(&format!(
            "{} failed; report.md tells of each, and --retry tries again",
            counted(failures.len(), "run")
        ));
    }
    out.line(&format!("report and charts are in {}", output.display()));
    json!({ "output": output, "summary": report.summary(), "failed": failures, "open": open, "exit_code": code })
}

/// Runs that ended with an error for good, and those that this process could not go on with.
fn failures(journal: &Journal, unfinished: &[Unended]) -> Vec<Value> {
    let of_trials = journal.trials().iter().filter_map(|trial| {
        Some((Training { trial: trial.asked.trial, seed: None }, trial.cause()?.clone()))
    });
    let of_reruns =
        journal.trials().iter().flat_map(|trial| journal.reruns(trial.asked.trial)).filter_map(|rerun| {
            Some((Training { trial: rerun.trial, seed: Some(rerun.seed) }, rerun.cause?))
        });
    let known = of_trials
        .chain(of_reruns)
        .map(|(of, cause)| json!({ "name": name_of(of), "code": cause.code, "why": cause.why }));
    let others = unfinished.iter().filter_map(|(name, why)| match why {
        Unfinished::Failed { code, why, log } => {
            Some(json!({ "name": name, "code": code, "why": with_log(why, log.as_deref()) }))
        }
        Unfinished::Stopped => None,
    });
    known.chain(others).collect()
}

/// A training in words.
fn name_of(training: Training) -> String {
    let seed = training.seed.map_or(String::new(), |seed| format!(", seed {seed}"));
    format!("trial {}{seed}", training.trial)
}

fn list(journal: &Journal, measure: &Measure, out: &Output) -> Value {
    let rows = journal.trials().iter().map(|trial| {
        let (asked, state) = (&trial.asked, state_of(trial));
        let settings = report::in_words(asked, " ");
        let value = trial.loss().map(|cost| measure.cost(cost));
        let loss = value.map_or(String::new(), |value| format!(" {},", measure.words(value)));
        let cause = trial.cause().map_or(String::new(), |cause| format!(" exit code {}, {},", cause.code, cause.why));
        out.line(&format!("trial {}: {state},{loss}{cause} {settings}", asked.trial));
        json!({
            "trial": asked.trial, "by": asked.by, "state": state, "loss": trial.loss().filter(|_| *measure == Measure::Loss), "value": value, "cause": trial.cause(),
            "settings": asked.settings,
        })
    });
    json!({ "trials": rows.collect::<Vec<_>>(), "measure": measure.to_json() })
}

/// In a word.
fn state_of(trial: &Trial) -> &'static str {
    match trial.told.as_ref().map(|told| told.state) {
        Some(State::Done) => "done",
        Some(State::Stopped) => "stopped",
        Some(State::Infeasible) => "infeasible",
        None => "open",
    }
}
