use std::path::PathBuf;

use clap::{Args, Subcommand};
use segue_trainer::convert::inspect;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::Output;

/// Arguments of `segue inspect`.
#[derive(Args)]
pub struct InspectArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// List the variables of a checkpoint of any format that `segue convert` reads.
    Checkpoint(CheckpointArgs),
}

#[derive(Args)]
#[command(after_help = "Example:\n  segue inspect checkpoint tf_wt103/model/model.ckpt-0")]
struct CheckpointArgs {
    /// File or folder.
    path: PathBuf,
}

/// Prints name, type and shape of each variable.
pub fn run(args: InspectArgs, out: &Output) -> Result<Value, Failure> {
    let What::Checkpoint(args) = args.what;
    let listing = inspect(&args.path)?;
    let width = listing.variables.iter().map(|variable| variable.name.len()).max().unwrap_or(0);
    for variable in &listing.variables {
        out.line(&format!("{:width$}  {:>6}  {:?}", variable.name, variable.dtype, variable.shape));
    }
    out.line(&format!(
        "{} variables in {} ({})",
        listing.variables.len(),
        listing.path.display(),
        listing.kind
    ));
    Ok(json!(listing))
}
