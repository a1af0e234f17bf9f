//! `segue inspect`: the contents of a file, the batches of a run, how runs went, what their ranks did, and how word vectors lie.

mod batch;
mod batches;
mod embeddings;
mod run;
mod task_batch;
mod trace;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use segue_collectives::printable_name;
use segue_configs::counted;
use segue_convert::inspect;
use serde_json::{Value, json};

use crate::commands::dry_run::grouped;
use crate::failure::Failure;
use crate::output::Output;

/// Arguments of `segue inspect`.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    segue inspect run runs/wikitext2\n  \
    segue inspect checkpoint runs/wikitext2")]
pub struct InspectArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// List the variables of a checkpoint of any format that `segue convert` reads.
    Checkpoint(CheckpointArgs),
    /// Show the batch of a lane at a step: tokens, targets, order and attention masks; of a task its first examples.
    Batch(batch::BatchArgs),
    /// Write the batches of the first steps to a file, for other programs to train on.
    Batches(batches::BatchesArgs),
    /// Show the losses and evaluations of runs, as a table and as charts.
    Run(run::RunArgs),
    /// Show what ranks spent the traced steps on, and write their spans for Perfetto.
    Trace(trace::TraceArgs),
    /// Show how the vectors that score words lie: distances to the nearest, singular values, cosines.
    Embeddings(embeddings::EmbeddingsArgs),
}

#[derive(Args)]
#[command(after_help = "Example:\n  \
    segue inspect checkpoint tf_wt103/model/model.ckpt-0")]
struct CheckpointArgs {
    /// File or folder of the checkpoint.
    path: PathBuf,
}

/// Looks at one thing.
pub fn run(args: InspectArgs, out: &Output) -> Result<Value, Failure> {
    match args.what {
        What::Checkpoint(args) => checkpoint(&args, out),
        What::Batch(args) => batch::run(&args, out),
        What::Batches(args) => batches::run(&args, out),
        What::Run(args) => run::run(&args, out),
        What::Trace(args) => trace::run(&args, out),
        What::Embeddings(args) => embeddings::run(&args, out),
    }
}

/// Prints name, type, bytes and shape of each variable; those of the optimizer have a mark.
fn checkpoint(args: &CheckpointArgs, out: &Output) -> Result<Value, Failure> {
    let listing = inspect(&args.path)?;
    let names: Vec<_> = listing.variables.iter().map(|variable| printable_name(&variable.name)).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    for (variable, name) in listing.variables.iter().zip(&names) {
        let mark = if variable.optimizer { "  (optimizer)" } else { "" };
        out.line(&format!(
            "{name:width$}  {:>6}  {:>12}  {:?}{mark}",
            variable.dtype, variable.bytes, variable.shape
        ));
    }
    let dtypes: Vec<String> =
        listing.dtypes.iter().map(|(dtype, count)| format!("{count} of {dtype}")).collect();
    out.line(&format!(
        "{} ({}) of {} bytes, {} values without the optimizer's, in {} ({}), {}",
        counted(listing.variables.len(), "variable"),
        dtypes.join(", "),
        grouped(listing.bytes as u64),
        grouped(listing.values as u64),
        listing.path.display(),
        listing.kind,
        counted(listing.files.len(), "file")
    ));
    if let Some(note) = &listing.note {
        out.line(note);
    }
    Ok(json!(listing))
}
