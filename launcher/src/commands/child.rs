//! Commands of this program, run by this program: what those that make many runs have in common.

use std::fmt;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use segue_cluster::pool::{Ended, Runner};
use segue_configs::{EvalConfig, FinetuneConfig, advice};
use segue_report::read_metrics;
use segue_tasks::TaskConfig;
use serde_json::{Value, json};

use crate::failure::{BUG, Failure, PREEMPTED, text_of};

/// Digits of the hash in names of files.
const KEY_DIGITS: usize = 12;
/// Sections of a configuration that do not change what a run computes.
const FREE_SECTIONS: [&str; 4] = ["run", "log", "checkpoint", "published"];
/// Exit codes of a process that SIGINT or SIGTERM ended, by the shell's convention: evaluations have no better
/// answer to them.
const ENDED_BY_REQUEST: [i32; 2] = [128 + 2, 128 + 15];

/// Why a job did not come to its end.
#[derive(Debug, PartialEq, Eq)]
pub enum Unfinished {
    /// Stopped on request; the same command goes on.
    Stopped,
    /// A command failed.
    Failed {
        /// Its exit code.
        code: i32,
        /// What it said last.
        why: String,
        /// Its log; none of an error of this process.
        log: Option<PathBuf>,
    },
}

/// An error, and where its log is.
pub fn with_log(why: &str, log: Option<&Path>) -> String {
    why.to_string() + &log.map_or(String::new(), |log| format!(" (log: {})", log.display()))
}

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Unfinished::Stopped => write!(f, "stopped"),
            Unfinished::Failed { code, why, log } => {
                write!(f, "failed with exit code {code}: {}", with_log(why, log.as_deref()))
            }
        }
    }
}

/// A failure of this process, as that of the job it befell.
impl From<Failure> for Unfinished {
    fn from(failure: Failure) -> Self {
        Self::Failed {
            code: i32::from(failure.code),
            why: advice::joined(&failure.message, failure.hint),
            log: None,
        }
    }
}

/// Runs this program with `arguments`, its stderr going to the end of `log`; the JSON it ends with.
pub async fn command<R>(
    runner: &Runner<'_, R>,
    arguments: &[String],
    log: &Path,
) -> Result<Value, Unfinished> {
    let failed = |code: i32, why: &str| Unfinished::Failed { code, why: why.into(), log: Some(log.into()) };
    let broken = |e: std::io::Error| Unfinished::Failed {
        code: i32::from(BUG),
        why: format!("cannot start it: {e}"),
        log: None,
    };
    let mut command = Command::new(std::env::current_exe().map_err(broken)?);
    command.args(arguments);
    let unwritable = |e: std::io::Error| Failure::cannot_write(log, &e, "--output");
    let file = append(log).map_err(unwritable)?;
    let before = file.metadata().map_err(unwritable)?.len();
    let ended = runner.run(command, file).await.map_err(broken)?;
    match ended {
        None => Err(Unfinished::Stopped),
        Some(Ended { code: 0, stdout }) => {
            let last = stdout.lines().last().and_then(|line| serde_json::from_str(line).ok());
            last.ok_or_else(|| failed(i32::from(BUG), "it exited without a result"))
        }
        Some(Ended { code, .. }) if code == i32::from(PREEMPTED) || ENDED_BY_REQUEST.contains(&code) => {
            Err(Unfinished::Stopped)
        }
        Some(Ended { code, .. }) => Err(failed(code, &last_error(log, before))),
    }
}

/// The last line of the log, from byte `start` on, that tells of an error.
fn last_error(log: &Path, start: u64) -> String {
    let log = segue_publish::read_regular(log).unwrap_or_default();
    error_of(&String::from_utf8_lossy(log.get(start as usize..).unwrap_or_default()))
}

/// The last error that a log tells of, or what a panic said, which stands on the line after the place of it.
fn error_of(log: &str) -> String {
    let messages = log.lines().map(|line| line.strip_prefix("segue: ").unwrap_or(line));
    let panic = || {
        let mut lines = log.lines().skip_while(|line| !line.contains(" panicked at "));
        Some(format!("{} {}", lines.next()?, lines.next()?))
    };
    let error = messages.rev().find(|line| line.starts_with("error")).map(String::from);
    error.or_else(panic).unwrap_or_else(|| "no error message".into())
}

/// Adds a line to a log.
pub fn note(log: &Path, line: &str) -> Result<(), Failure> {
    let written = append(log).and_then(|mut file| writeln!(file, "segue: {line}"));
    written.map_err(|e| Failure::cannot_write(log, &e, "--output"))
}

fn append(path: &Path) -> std::io::Result<File> {
    segue_publish::append_regular(path)
}

/// Arguments of a training of `recipe` with `overrides`, which come to this `task` and this `train.init_from`, in the folder `run`.
pub fn training(
    task: &FinetuneConfig,
    init_from: &str,
    recipe: &Path,
    overrides: Vec<String>,
    run: &Path,
) -> Result<Vec<String>, Failure> {
    let command = if task.name.is_empty() { "pretrain" } else { "finetune" };
    let mut arguments = vec![command.into(), "--json".into(), format!("--config={}", text_of(recipe)?)];
    if !task.name.is_empty() {
        arguments.push(format!("--model={init_from}"));
    }
    arguments.extend(overrides);
    // A path as a TOML text, so that one that looks like a number stays a path.
    arguments.push(format!("run.dir={}", json!(text_of(run)?)));
    Ok(arguments)
}

/// What a run of these settings, a configuration as JSON, computes: all of them that count, and the fingerprint of its data in place of their paths:
/// of the corpus, or of a task and the model it begins with.
pub fn essence(mut settings: Value, corpus: &str) -> Value {
    if let Some(sections) = settings.as_object_mut() {
        sections.retain(|name, _| !FREE_SECTIONS.contains(&name.as_str()));
    }
    settings["data"]["corpus"] = corpus.into();
    if settings["task"]["name"] != "" {
        (settings["task"]["data"], settings["train"]["init_from"]) = (json!(""), json!(""));
    }
    forget_published_ends(&mut settings["schedule"]);
    forget_defaults(&mut settings["eval"], &json!(EvalConfig::default()), &["min_delta"]);
    forget_defaults(&mut settings["task"], &json!(TaskConfig::default()), &LATER_OF_TASK);
    settings
}

/// Keys of `[task]` that came when results had names already.
const LATER_OF_TASK: [&str; 9] = [
    "min_delta",
    "label_smoothing",
    "class_weights",
    "balance_classes",
    "freeze_embeddings",
    "freeze_layers",
    "adapter_rank",
    "adapter_alpha",
    "adapter_on",
];

/// Leaves out `keys` of a section at their `defaults`, which do what was done before there were such keys: results keep their names.
fn forget_defaults(section: &mut Value, defaults: &Value, keys: &[&str]) {
    if let Some(fields) = section.as_object_mut() {
        fields.retain(|name, value| !keys.contains(&name.as_str()) || *value != defaults[name]);
    }
}

/// Leaves out where a line ends where it is no other place than before there was a key: results keep their names.
fn forget_published_ends(schedule: &mut Value) {
    let Some(fields) = schedule.as_object_mut() else { return };
    if fields.get("kind").is_none_or(|kind| kind != "linear")
        || fields.get("end").is_some_and(|end| end == "last_step")
    {
        fields.remove("end");
    }
    fields.values_mut().for_each(forget_published_ends);
}

/// The hash of something, as names of files have it.
pub fn key(of: &Value) -> String {
    blake3::hash(of.to_string().as_bytes()).to_hex()[..KEY_DIGITS].to_string()
}

/// The rows of a run's evaluations in its `metrics.jsonl`.
pub fn evaluations_of(run: &Path) -> Result<Vec<Value>, Failure> {
    let mut rows = read_metrics(run)?;
    rows.retain(|row| row["kind"] == "eval");
    Ok(rows)
}

/// Makes folders within `output`.
pub fn make_folders(output: &Path, names: &[&str]) -> Result<(), Failure> {
    for name in names {
        let path: PathBuf = output.join(name);
        fs::create_dir_all(&path).map_err(|e| Failure::cannot_write(&path, &e, "--output"))?;
    }
    Ok(())
}

/// Writes a file whole or not at all.
pub fn write_whole(path: &Path, text: &str) -> Result<(), Failure> {
    segue_publish::write_file(path, text.as_bytes())
        .map_err(|e| Failure::cannot_write(path, &e.source, "--output"))
}

#[cfg(test)]
mod tests {
    use segue_cluster::pool::{Event, run_all};
    use segue_configs::Config;

    use super::*;
    use crate::failure::CANNOT_CREATE;

    #[test]
    fn a_log_that_cannot_be_opened_is_an_output_that_cannot_be_made() {
        let dir = tempfile::tempdir().unwrap();
        let mut ended = None;
        // A folder is no file to append to.
        let work =
            async |_, runner: &Runner<'_, Result<Value, Unfinished>>| command(runner, &[], dir.path()).await;
        run_all(1, 1, &|| false, work, &mut |event| {
            if let Event::Finished(_, result) = event {
                ended = Some(result);
            }
        })
        .unwrap();
        let Some(Err(Unfinished::Failed { code, why, .. })) = ended else { panic!("{ended:?}") };
        assert_eq!(code, i32::from(CANNOT_CREATE));
        assert!(why.starts_with(&format!("cannot write {}: ", dir.path().display())), "{why}");
        assert!(why.ends_with("\nhint: choose a writable --output"), "{why}");
    }

    fn key_of(keys: &[&str]) -> String {
        let overrides: Vec<String> = keys.iter().map(|k| k.to_string()).collect();
        key(&essence(segue_families::MODELS.load(None, &overrides).unwrap().config.to_json(), "corpus"))
    }

    #[test]
    fn the_last_error_of_a_log_or_what_a_panic_said_is_told() {
        let panic = "note: 1\nthread 'main' (7) panicked at a.rs:1:2:\nno such place\nstack backtrace:\n";
        let told = "thread 'main' (7) panicked at a.rs:1:2: no such place";
        assert_eq!(error_of(panic), told);
        assert_eq!(error_of(&format!("segue: error: one\n{panic}error: two\nhint: three")), "error: two");
        assert_eq!(error_of("a line"), "no error message");
    }

    /// A model and files that lie elsewhere are the same where their fingerprint is.
    #[test]
    fn a_task_is_trained_by_fine_tuning_and_named_by_what_it_reads() {
        let config = |keys: &[&str]| {
            let keys: Vec<String> = keys.iter().map(|key| key.to_string()).collect();
            segue_families::MODELS.load(None, &keys).unwrap().config
        };
        let (here, there) =
            (["task.name=rte", "task.data=a", "train.init_from=b"], ["task.name=rte", "task.data=c"]);
        let essence = |keys: &[&str], data: &str| essence(config(keys).to_json(), data);
        assert_eq!(essence(&here, "data"), essence(&there, "data"));
        assert_ne!(essence(&here, "data"), essence(&here, "other data"));
        assert_ne!(essence(&["train.init_from=b"], ""), essence(&[], ""));
        let arguments = |keys: &[&str]| {
            let Config { task, train, .. } = config(keys);
            let (recipe, run) = (Path::new("r.toml"), Path::new("run"));
            training(&task, &train.init_from, recipe, vec!["x.y=1".into()], run).unwrap()
        };
        assert_eq!(
            arguments(&here),
            ["finetune", "--json", "--config=r.toml", "--model=b", "x.y=1", "run.dir=\"run\""]
        );
        assert_eq!(arguments(&[])[..3], ["pretrain", "--json", "--config=r.toml"]);
    }

    #[test]
    fn results_are_named_by_what_they_depend_on() {
        assert_eq!(key_of(&[]), key_of(&["run.dir=elsewhere", "log.every=3", "data.corpus=moved"]));
        let ends = |keys: &[&str]| {
            let keys: Vec<String> = keys.iter().map(|key| key.to_string()).collect();
            essence(segue_families::MODELS.load(None, &keys).unwrap().config.to_json(), "corpus")["schedule"]
                ["end"]
                .clone()
        };
        // Names from before there was this key.
        assert!(ends(&[]).is_null() && ends(&["schedule.kind=linear", "schedule.end=last_step"]).is_null());
        assert_eq!(ends(&["schedule.kind=linear"]), "after_last_step");
        let task = |keys: &[&str]| {
            let keys: Vec<String> = keys.iter().map(|key| key.to_string()).collect();
            essence(segue_families::MODELS.load(None, &keys).unwrap().config.to_json(), "corpus")["task"]
                .clone()
        };
        let plain = task(&[]);
        assert!(LATER_OF_TASK.iter().all(|key| plain[key].is_null()) && !plain["patience"].is_null());
        assert_eq!(task(&["task.freeze_layers=2"])["freeze_layers"], 2);
        for change in
            ["train.steps=7", "train.seed=2", "task.label_smoothing=0.1", "model.d_inner=8", "optim.lr=1e-3"]
        {
            assert_ne!(key_of(&[]), key_of(&[change]), "{change}");
        }
    }
}
