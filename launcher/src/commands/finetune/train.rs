use std::path::Path;

use segue_collectives::Communicator;
use segue_configs::{Config, check_unique, counted};
use segue_engine::Outcome;
use segue_kernels::Compute;
use segue_language::ModelFolder;
use segue_report::Interval;
use segue_task::{Finetuning, SplitScores, TaskFolder, beats};
use segue_tasks::{TaskConfig, TaskSplits};
use serde_json::{Value, json};

use super::collapse::warn_of_collapse;
use super::predict::Answerer;
use super::{FinetuneArgs, TaskRun};
use crate::failure::{Failure, PREEMPTED, USAGE};
use crate::folder::ResultFolder;
use crate::output::Output;
use crate::run_folder::lock_run;
use crate::training::{Place, Training, check_run_dir, early_end, end_of};

/// Trains with one seed or with several, from the model that is `named` on the command line.
pub fn run(
    args: &FinetuneArgs,
    config: Config,
    named: ModelFolder,
    comm: &dyn Communicator,
    out: &Output,
) -> Result<Value, Failure> {
    check_run_dir(config.run.dir.as_ref())?;
    if !args.seeds.is_empty() {
        // The run of one that is named twice would count twice, and seeds would seem to agree.
        check_unique("--seeds", args.seeds.iter().map(u64::to_string))
            .map_err(|why| Failure::new(USAGE, why))?;
    }
    let place = Place::find(&config.run, &config.train, comm)?;
    let begins_as_named =
        args.models.first().is_some_and(|model| *model == Path::new(&config.train.init_from));
    let splits = TaskSplits { train: true, dev: true, test: true };
    // An override may name another model.
    let named = begins_as_named.then_some(named);
    let run = TaskRun::open(config, named, splits, &|line| out.line(line))?;
    let config = run.config.clone();
    let on = match place.compute() {
        Compute::CPU => format!("{} each, CPU", counted(config.train.threads, "thread")),
        _ => "GPU".to_string(),
    };
    let hardware = format!("{}, {on}", counted(comm.world_size(), "rank"));
    let job = run.job(hardware);
    let training = Training::begin(place, &config, &job, comm, out)?;
    let runs = Runs { job, training, comm, out };
    if args.seeds.is_empty() {
        return runs.train(config).map(|run| run.json());
    }
    let base = &config.run.dir;
    let mut trained = Vec::new();
    for &seed in &args.seeds {
        let name = format!("seed-{seed}");
        let mut config = config.clone();
        config.train.seed = seed;
        config.run.dir = Path::new(base).join(&name).display().to_string();
        out.line(&format!("seed {seed}:"));
        // Its own lock says which of the seeds is trained now.
        let _lock = match comm.rank() {
            0 => {
                ResultFolder::create_own(Path::new(base), name)?;
                Some(lock_run(Path::new(&config.run.dir))?)
            }
            _ => None,
        };
        let run = runs.train(config)?;
        let preempted = run.outcome.preempted;
        trained.push((seed, run));
        if preempted {
            break;
        }
    }
    compare(base, &trained, comm, out)
}

/// What all seeds share.
struct Runs<'a> {
    job: Finetuning<'a>,
    training: Training<'a>,
    comm: &'a dyn Communicator,
    out: &'a Output,
}

/// One training and what came of it.
struct Trained {
    run: String,
    /// Steps of the whole run.
    steps: u64,
    outcome: Outcome,
    scores: Vec<SplitScores>,
}

impl Trained {
    fn json(&self) -> Value {
        let Outcome { step, loss, best, preempted, stopped_early, .. } = &self.outcome;
        json!({
            "run": self.run, "step": step, "steps": self.steps, "loss": loss, "preempted": preempted, "stopped_early": stopped_early.is_some(),
            "best_step": best.map(|(step, _)| step), "best": best.map(|(_, value)| value),
            "scores": self.scores,
            "exit_code": if *preempted { PREEMPTED } else { 0 },
        })
    }
}

impl Runs<'_> {
    /// Trains with one seed, then answers every split that is not trained on with the best model.
    fn train(&self, config: Config) -> Result<Trained, Failure> {
        let run = Path::new(&config.run.dir);
        let outcome = self.training.train(&config, &self.job)?;
        let mut trained =
            Trained { run: config.run.dir.clone(), steps: config.train.steps, outcome, scores: Vec::new() };
        if trained.outcome.preempted {
            let step = trained.outcome.step;
            self.out.line(&format!(
                "stopped after step {step} with a checkpoint; run the same command to \
                    resume"
            ));
            return Ok(trained);
        }
        let mut best = TaskFolder::open(&segue_families::MODELS, run)?;
        best.folder.passed_over.iter().for_each(|why| self.out.line(&format!("warning: skipped: {why}")));
        best.folder.compute = self.training.compute();
        let task = config.own.get::<TaskConfig>();
        let model = best.load(&task)?;
        if !self.job.tasks.iter().all(|data| data.dev.is_empty() && data.test.is_empty()) {
            self.out.line(&format!("scores of the model in {}:", best.folder.path.display()));
        }
        let folder = ResultFolder::create_own(run, "predictions")?;
        let answerer = Answerer {
            tasks: self.job.tasks,
            task: &task,
            micro_batch: config.train.micro_batch,
            comm: self.comm,
            out: self.out,
        };
        trained.scores = answerer.answer(&[model], &folder)?;
        if self.comm.rank() == 0 {
            folder.write("scores.json", &format!("{:#}\n", json!(trained.scores)))?;
        }
        warn_of_collapse(&trained.scores, run, self.out);
        if trained.outcome.best.is_none() && !trained.scores.is_empty() {
            self.out.line(
                "warning: no evaluation gave a number to choose by, so that the last checkpoint answers",
            );
        }
        if let Some(why) = early_end(&trained.outcome, "task.patience", task.min_delta) {
            self.out.line(&why);
        }
        if trained.outcome.step != trained.steps && trained.outcome.stopped_early.is_none() {
            self.out.line(&end_of(trained.outcome.step, &config.train));
        }
        self.out.line(&format!("best step is {}; all files are in {}", best_step(&trained), run.display()));
        Ok(trained)
    }
}

fn best_step(trained: &Trained) -> u64 {
    trained.outcome.best.map_or(trained.outcome.step, |(step, _)| step)
}

/// Median, best and interval over seeds of every metric, in `summary.json` and as a table.
fn compare(
    base: &str,
    runs: &[(u64, Trained)],
    comm: &dyn Communicator,
    out: &Output,
) -> Result<Value, Failure> {
    let preempted = runs.iter().any(|(_, run)| run.outcome.preempted);
    let done: Vec<&(u64, Trained)> = runs.iter().filter(|(_, run)| !run.outcome.preempted).collect();
    let mut rows = Vec::new();
    for (split_number, split) in done.first().map_or(&[][..], |(_, run)| &run.scores).iter().enumerate() {
        for metric in &split.metrics {
            let of = |run: &Trained| run.scores[split_number].metric(&metric.name);
            let values: Vec<f64> = done.iter().filter_map(|(_, run)| of(run)).collect();
            let Some(interval) = Interval::of(&values) else { continue };
            let found = done.iter().filter_map(|(seed, run)| Some((*seed, of(run)?)));
            let best = found
                .reduce(|best, other| if beats(&metric.name, other.1, best.1) { other } else { best })
                .filter(|(_, value)| value.is_finite());
            let name = format!("{} {} {}", split.task, split.split, metric.name);
            out.line(&format!("{name}: median {}", interval.text_with_median()));
            rows.push(json!({
                "task": split.task, "split": split.split, "metric": metric.name, "values": values,
                "median": interval.median, "mean": interval.mean, "half_width": interval.half_width,
                "best_seed": best.map(|(seed, _)| seed), "best": best.map(|(_, value)| value),
            }));
        }
    }
    let result = json!({
        "run": base, "seeds": runs.iter().map(|(seed, _)| seed).collect::<Vec<_>>(), "metrics": rows,
        "runs": runs.iter().map(|(_, run)| run.json()).collect::<Vec<_>>(),
        "exit_code": if preempted { PREEMPTED } else { 0 },
    });
    if comm.rank() == 0 && !preempted {
        ResultFolder::create(Path::new(base))?.write("summary.json", &format!("{result:#}\n"))?;
    }
    Ok(result)
}
