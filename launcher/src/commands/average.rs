use std::path::{Path, PathBuf};

use clap::Args;
use segue_configs::counted;
use segue_engine::checkpoint::{self, CHECKPOINTS};
use serde_json::{Value, json};

use super::at_least_one;
use crate::failure::{Failure, NO_INPUT};
use crate::output::Output;

/// Arguments of `segue average`.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    segue average --run runs/mine --last 3 --output averaged\n  \
    segue average runs/mine/checkpoints/step-00001000 \\\n      \
    runs/mine/checkpoints/step-00001500 --output averaged")]
pub struct AverageArgs {
    /// Checkpoints, or folders in Hugging Face's layout, of one model.
    #[arg(value_name = "DIR", required_unless_present = "run", conflicts_with = "run")]
    sources: Vec<PathBuf>,
    /// Run folder: average its newest checkpoints.
    #[arg(long)]
    run: Option<PathBuf>,
    /// Number of checkpoints to average [default: all].
    #[arg(long, requires = "run", value_parser = at_least_one)]
    last: Option<usize>,
    /// Folder for the averaged model, which must not exist.
    #[arg(long)]
    output: PathBuf,
}

/// Averages the weights into a model folder.
pub fn run(args: AverageArgs, out: &Output) -> Result<Value, Failure> {
    let sources = match &args.run {
        None => args.sources,
        Some(run) => newest(run, args.last)?,
    };
    segue_language::average(&segue_families::MODELS, &sources, &args.output)?
        .iter()
        .for_each(|note| out.line(note));
    out.line(&format!(
        "the mean of {} is in {}",
        counted(sources.len(), "checkpoint"),
        args.output.display()
    ));
    Ok(json!({ "sources": sources, "output": args.output }))
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
