use std::path::{Path, PathBuf};

use clap::Args;
use segue_configs::counted;
use segue_engine::checkpoint::{self, CHECKPOINTS};
use serde_json::{Value, json};

use super::at_least_one;
use super::eval::task_of;
use crate::failure::{BAD_CONFIG, Failure, NO_INPUT, USAGE};
use crate::output::Output;

/// Arguments of `segue average`.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    segue average --run runs/mine --last 3 --output averaged\n  \
    segue average runs/mine/checkpoints/step-00001000 \\\n      \
    runs/mine/checkpoints/step-00001500 --output averaged")]
pub struct AverageArgs {
    /// Checkpoints, or folders in Hugging Face's layout, of one model; a single run folder, as with --run.
    #[arg(value_name = "DIR", required_unless_present = "run", conflicts_with = "run")]
    sources: Vec<PathBuf>,
    /// Run folder: average its newest checkpoints.
    #[arg(long)]
    run: Option<PathBuf>,
    /// Number of checkpoints to average [default: all].
    #[arg(long, value_parser = at_least_one)]
    last: Option<usize>,
    /// Folder for the averaged model, which must not exist.
    #[arg(long)]
    output: PathBuf,
}

/// Averages the weights into a model folder.
pub fn run(args: AverageArgs, out: &Output) -> Result<Value, Failure> {
    if let Some(run) = run_of(&args) {
        refuse_tuned(run, !task_of(run).is_empty())?;
    }
    let sources = match (run_of(&args), args.last) {
        (Some(run), last) => newest(run, last)?,
        (None, None) => args.sources,
        (None, Some(last)) => {
            let message = format!("--last {last} counts the checkpoints of a run, and no run is given");
            let hint = "give one run folder, `segue average --run RUN --last N`, or leave out --last";
            return Err(Failure::new(USAGE, format!("{message}\nhint: {hint}")));
        }
    };
    sources.iter().try_for_each(|folder| refuse_tuned(folder, segue_task::is_fine_tuned(folder)))?;
    segue_family::average(&segue_families::MODELS, &sources, &args.output)?
        .iter()
        .for_each(|note| out.line(note));
    out.line(&format!(
        "the mean of {} is in {}",
        counted(sources.len(), "checkpoint"),
        args.output.display()
    ));
    Ok(json!({ "sources": sources, "output": args.output }))
}

/// Refuses a run or a model that was fine-tuned.
fn refuse_tuned(of: &Path, is_tuned: bool) -> Result<(), Failure> {
    if !is_tuned {
        return Ok(());
    }
    let message = format!("{} was fine-tuned, and an average has no heads", of.display());
    let hint = "let models answer together, segue finetune --predict --model A --model B, or train with average.kind";
    Err(Failure::new(BAD_CONFIG, format!("{message}\nhint: {hint}")))
}

/// The run whose checkpoints are averaged, by its option or as the only folder given.
fn run_of(args: &AverageArgs) -> Option<&Path> {
    let only = match args.sources.as_slice() {
        [only] if only.join(CHECKPOINTS).is_dir() => Some(only),
        _ => None,
    };
    args.run.as_ref().or(only).map(PathBuf::as_path)
}

/// The newest `count` checkpoints of a run, oldest first.
fn newest(run: &Path, count: Option<usize>) -> Result<Vec<PathBuf>, Failure> {
    let checkpoints = run.join(CHECKPOINTS);
    let all = checkpoint::list(&checkpoints)?;
    let count = count.unwrap_or(all.len());
    if all.is_empty() || all.len() < count {
        let message = format!(
            "{} holds {}, not {}\nhint: lower --last, or train with a larger checkpoint.keep",
            checkpoints.display(),
            counted(all.len(), "checkpoint"),
            count.max(1)
        );
        return Err(Failure::new(NO_INPUT, message));
    }
    let surplus = all.len() - count;
    Ok(all.into_iter().skip(surplus).map(|(_, path)| path).collect())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: AverageArgs,
    }

    fn args(words: &[&str]) -> AverageArgs {
        Line::parse_from([&["average", "--output", "none"], words].concat()).args
    }

    /// The last two of three, whichever way the run is named.
    #[test]
    fn a_run_folder_stands_for_its_checkpoints() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().to_str().unwrap();
        for step in 1..4 {
            fs::create_dir_all(dir.path().join(format!("{CHECKPOINTS}/step-{step:08}"))).unwrap();
        }
        for words in [["--run", run].as_slice(), &[run]] {
            let args = args(&[words, &["--last", "2"]].concat());
            let found = newest(run_of(&args).unwrap(), args.last).unwrap();
            let names: Vec<_> = found.iter().map(|path| path.file_name().unwrap()).collect();
            assert_eq!(names, ["step-00000002", "step-00000003"]);
        }
        assert_eq!(run_of(&args(&[run, run])), None);
    }

    /// Whatever number of checkpoints it holds.
    #[test]
    fn a_run_on_a_task_is_refused_as_such() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join(CHECKPOINTS).join("step-00000001")).unwrap();
        fs::write(dir.path().join("config.json"), r#"{"train": {}, "task": {"name": "sst2"}}"#).unwrap();
        let refused = run(args(&[dir.path().to_str().unwrap(), "--last", "9"]), &Output::new(0)).unwrap_err();
        assert!(refused.message.ends_with("was fine-tuned, and an average has no heads"), "{refused:?}");
        assert!(!refused.hint.unwrap().contains("checkpoint.keep"));
    }

    #[test]
    fn a_number_of_checkpoints_of_no_run_is_refused() {
        let refused = run(args(&["a/step-00000001", "--last", "2"]), &Output::new(0)).unwrap_err();
        assert_eq!(refused.code, USAGE);
        assert!(refused.hint.unwrap().contains("segue average --run RUN --last N"));
    }
}
