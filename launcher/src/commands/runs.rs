//! `segue runs`: the runs below a folder, and how far each is.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::Args;
use segue_trainer::checkpoint::{CHECKPOINTS, list};
use segue_trainer::report::read_metrics;
use segue_watch::is_held;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::Output;

/// How deep folders are looked into: a folder of projects, of experiments, of sweeps, of runs, of seeds.
const DEPTH: usize = 6;

/// Arguments of `segue runs`.
#[derive(Args)]
#[command(after_help = "Example:\n  segue runs /shared/runs")]
pub struct RunsArgs {
    /// Folder to look below.
    #[arg(default_value = "runs", value_name = "DIR")]
    folder: PathBuf,
}

/// What is to be said of a run.
struct Run {
    path: PathBuf,
    /// Model or task.
    kind: String,
    state: &'static str,
    /// Of the newest checkpoint.
    step: u64,
    steps: u64,
    loss: Option<f64>,
    /// Attempts that `segue launch` has made.
    attempts: usize,
    /// Since its last report.
    idle: Option<Duration>,
}

/// Lists the runs.
pub fn run(args: &RunsArgs, out: &Output) -> Result<Value, Failure> {
    if !args.folder.is_dir() {
        let message =
            format!("there is no folder {}\nhint: name the folder that runs lie in", args.folder.display());
        return Err(Failure::new(66, message));
    }
    let mut runs = Vec::new();
    find(&args.folder, DEPTH, &mut runs);
    let shown = |run: &Run| run.path.strip_prefix(&args.folder).unwrap_or(&run.path).display().to_string();
    let width = runs.iter().map(|run| shown(run).chars().count()).max().unwrap_or(0).max(3);
    if runs.is_empty() {
        out.line(&format!("there is no run below {}", args.folder.display()));
    } else {
        out.line(&format!(
            "{:width$}  {:12} {:8} {:>15} {:>9} {:>8}  last",
            "run", "model", "state", "step", "loss", "attempts"
        ));
    }
    for run in &runs {
        let loss = run.loss.map_or("-".into(), |loss| format!("{loss:.4}"));
        let step = format!("{}/{}", run.step, run.steps);
        let idle = run.idle.map_or("-".into(), ago);
        let (name, attempts) = (shown(run), run.attempts.max(1));
        out.line(&format!(
            "{name:width$}  {:12} {:8} {step:>15} {loss:>9} {attempts:>8}  {idle}",
            run.kind, run.state
        ));
    }
    let rows = runs.iter().map(|run| {
        json!({
            "run": run.path, "model": run.kind, "state": run.state, "step": run.step, "steps": run.steps, "loss": run.loss,
            "attempts": run.attempts.max(1), "idle_s": run.idle.map(|idle| idle.as_secs()),
        })
    });
    Ok(json!({ "folder": args.folder, "runs": rows.collect::<Vec<_>>() }))
}

/// Adds the runs in `folder`, in the order of their names. What cannot be read is no run of ours.
fn find(folder: &Path, depth: usize, runs: &mut Vec<Run>) {
    if let Some(run) = describe(folder) {
        runs.push(run);
        return;
    }
    if depth == 0 {
        return;
    }
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let is_hidden = |entry: &fs::DirEntry| entry.file_name().as_encoded_bytes().starts_with(b".");
    let mut inner: Vec<PathBuf> =
        entries.filter(|entry| is_folder(entry) && !is_hidden(entry)).map(|entry| entry.path()).collect();
    inner.sort();
    inner.iter().for_each(|inner| find(inner, depth - 1, runs));
}

/// The run in `folder`, if it is one.
fn describe(folder: &Path) -> Option<Run> {
    let metrics = folder.join("metrics.jsonl");
    if !folder.join(CHECKPOINTS).is_dir() && !metrics.is_file() {
        return None;
    }
    let config: Value = serde_json::from_str(&fs::read_to_string(folder.join("config.json")).ok()?).ok()?;
    let steps = config["train"]["steps"].as_u64()?;
    let task = config["task"]["name"].as_str().filter(|name| !name.is_empty());
    let kind = task.or(config["model"]["model_type"].as_str()).unwrap_or("-").to_string();
    let step = list(&folder.join(CHECKPOINTS)).ok().and_then(|all| Some(all.last()?.0)).unwrap_or(0);
    let rows = read_metrics(folder).unwrap_or_default();
    let loss = rows.iter().rev().find(|row| row["kind"] == "train").and_then(|row| row["loss"].as_f64());
    let reports = fs::read_dir(folder.join("launch")).into_iter().flatten().flatten();
    let is_report = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with("attempt-");
    let written = fs::metadata(&metrics).and_then(|metadata| metadata.modified()).ok();
    let state = match (is_held(folder), step >= steps) {
        (true, _) => "training",
        (false, true) => "done",
        (false, false) => "stopped",
    };
    Some(Run {
        path: folder.into(),
        kind,
        state,
        step,
        steps,
        loss,
        attempts: reports.filter(is_report).count(),
        idle: written.and_then(|written| SystemTime::now().duration_since(written).ok()),
    })
}

fn ago(idle: Duration) -> String {
    let seconds = idle.as_secs();
    match seconds {
        0..120 => format!("{seconds} s ago"),
        120..7200 => format!("{} min ago", seconds / 60),
        7200..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_found_with_what_they_have_come_to() {
        let dir = tempfile::tempdir().unwrap();
        let run = |name: &str, step: Option<u64>| {
            let folder = dir.path().join(name);
            fs::create_dir_all(folder.join(CHECKPOINTS)).unwrap();
            if let Some(step) = step {
                fs::create_dir(folder.join(CHECKPOINTS).join(format!("step-{step:08}"))).unwrap();
            }
            let config = json!({ "train": { "steps": 10 }, "model": { "model_type": "xlnet" }, "task": { "name": "" } });
            fs::write(folder.join("config.json"), config.to_string()).unwrap();
            fs::write(folder.join("metrics.jsonl"), "{\"kind\":\"train\",\"step\":4,\"loss\":2.5}\n")
                .unwrap();
            folder
        };
        run("b/seed-1", Some(10));
        let training = run("a", Some(4));
        run("c", None);
        fs::create_dir_all(dir.path().join(".hidden/checkpoints")).unwrap();
        fs::create_dir_all(dir.path().join("other/checkpoints")).unwrap();
        let lock = fs::File::create(training.join("lock")).unwrap();
        lock.try_lock().unwrap();
        let mut runs = Vec::new();
        find(dir.path(), DEPTH, &mut runs);
        let found: Vec<_> = runs
            .iter()
            .map(|run| (run.path.strip_prefix(dir.path()).unwrap().to_str().unwrap(), run.state, run.step))
            .collect();
        assert_eq!(found, [("a", "training", 4), ("b/seed-1", "done", 10), ("c", "stopped", 0)]);
        assert_eq!((runs[0].loss, runs[0].kind.as_str()), (Some(2.5), "xlnet"));
        drop(lock);
        assert!(!is_held(&training));
    }

    #[test]
    fn ages_are_told_in_the_largest_fitting_unit() {
        let told: Vec<String> = [5, 300, 10_000, 400_000].map(|s| ago(Duration::from_secs(s))).to_vec();
        assert_eq!(told, ["5 s ago", "5 min ago", "2 h ago", "4 days ago"]);
    }
}
