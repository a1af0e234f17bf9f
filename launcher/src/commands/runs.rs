//! `segue runs`: the runs below a folder, and how far each is.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use segue_collectives::printable_name;
use segue_engine::checkpoint::CHECKPOINTS;
use segue_watch::{RunState, Runs, now};
use serde_json::{Value, json};

use crate::failure::{Failure, NO_INPUT};
use crate::output::Output;

/// How deep folders are looked into: a folder of projects, of experiments, of sweeps, of runs, of seeds.
const DEPTH: usize = 6;

/// Arguments of `segue runs`.
#[derive(Args)]
#[command(after_help = "Example:\n  \
    segue runs /shared/runs")]
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
    state: RunState,
    /// Of the newest checkpoint.
    step: u64,
    steps: u64,
    loss: Option<f64>,
    /// As far as its rows and `segue launch` tell.
    attempts: u64,
    /// Since its last report.
    idle: Option<Duration>,
}

/// Lists the runs.
pub fn run(args: &RunsArgs, out: &Output) -> Result<Value, Failure> {
    if !args.folder.is_dir() {
        let message =
            format!("there is no folder {}\nhint: name the folder that runs lie in", args.folder.display());
        return Err(Failure::new(NO_INPUT, message));
    }
    let mut runs = Vec::new();
    find(&args.folder, DEPTH, &mut runs);
    let shown = |run: &Run| shown_name(&run.path, &args.folder);
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
            printable_name(&run.kind),
            run.state.name()
        ));
    }
    let rows = runs.iter().map(|run| {
        json!({
            "run": run.path, "model": run.kind, "state": run.state.name(), "step": run.step, "steps": run.steps, "loss": run.loss,
            "attempts": run.attempts.max(1), "idle_s": run.idle.map(|idle| idle.as_secs()),
        })
    });
    Ok(json!({ "folder": args.folder, "runs": rows.collect::<Vec<_>>() }))
}

/// What a run below `folder` goes by.
fn name<'a>(run: &'a Path, folder: &Path) -> &'a Path {
    match run.strip_prefix(folder) {
        Ok(below) if below != Path::new("") => below,
        // It is that folder.
        _ => run.file_name().map_or(run, Path::new),
    }
}

/// What a run below `folder` goes by in a table.
fn shown_name(run: &Path, folder: &Path) -> String {
    printable_name(&name(run, folder).display().to_string()).into_owned()
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
    if !folder.join(CHECKPOINTS).is_dir() && !folder.join("metrics.jsonl").is_file() {
        return None;
    }
    let mut runs = Runs::open(&[folder.to_path_buf()]).ok()?;
    let view = runs.look().next()?;
    let since = |at: f64| Duration::try_from_secs_f64(now() - at).unwrap_or_default();
    (view.steps > 0).then(|| Run {
        path: folder.into(),
        kind: if view.model.is_empty() { "-".into() } else { view.model.clone() },
        state: view.state,
        step: view.checkpoints.last().copied().unwrap_or(0),
        steps: view.steps,
        loss: view.last("train/loss"),
        attempts: view.attempts_made(),
        idle: view.updated.map(since),
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
    use segue_watch::DONE_FILE;

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
            let row = json!({ "kind": "train", "step": 4, "attempt": 2, "loss": 2.5 });
            fs::write(folder.join("metrics.jsonl"), format!("{row}\n")).unwrap();
            folder
        };
        let report = |folder: &str, attempt: u64| {
            let folder = dir.path().join(folder).join("launch");
            fs::create_dir_all(&folder).unwrap();
            let report = json!({ "attempt": attempt }).to_string();
            fs::write(folder.join(format!("attempt-{attempt:04}.json")), report).unwrap();
        };
        run("b/seed-1", Some(10));
        (1..=3).for_each(|attempt| report("b", attempt));
        let training = run("a", Some(4));
        report("a", 1);
        run("c", None);
        fs::write(run("d", Some(4)).join(DONE_FILE), "").unwrap();
        fs::create_dir_all(dir.path().join(".hidden/checkpoints")).unwrap();
        fs::create_dir_all(dir.path().join("other/checkpoints")).unwrap();
        let lock = fs::File::create(training.join("lock")).unwrap();
        lock.try_lock().unwrap();
        let mut runs = Vec::new();
        find(dir.path(), DEPTH, &mut runs);
        let name = |run: &Run| name(&run.path, dir.path()).display().to_string();
        let found: Vec<_> =
            runs.iter().map(|run| (name(run), run.state.name(), run.step, run.attempts)).collect();
        // The second attempt of `a` has no report yet, and those of a seed are with the other seeds'.
        let expected = [
            ("a", "training", 4, 2),
            ("b/seed-1", "done", 10, 3),
            ("c", "stopped", 0, 2),
            ("d", "done", 4, 2),
        ];
        assert_eq!(
            found,
            expected.map(|(name, state, step, attempts)| (name.to_string(), state, step, attempts))
        );
        assert_eq!((runs[0].loss, runs[0].kind.as_str()), (Some(2.5), "xlnet"));
        assert!(runs[0].idle.is_some());
    }

    #[test]
    fn a_folder_that_is_a_run_goes_by_its_own_name() {
        let folder = Path::new("runs/mine");
        assert_eq!(name(folder, folder), Path::new("mine"));
        assert_eq!(name(Path::new("."), Path::new(".")), Path::new("."));
        assert_eq!(name(&folder.join("seed-1"), folder), Path::new("seed-1"));
        assert_eq!(shown_name(&folder.join("a\nb"), folder), r"a\u{a}b");
    }

    #[test]
    fn ages_are_told_in_the_largest_fitting_unit() {
        let told: Vec<String> = [5, 300, 10_000, 400_000].map(|s| ago(Duration::from_secs(s))).to_vec();
        assert_eq!(told, ["5 s ago", "5 min ago", "2 h ago", "4 days ago"]);
    }
}
