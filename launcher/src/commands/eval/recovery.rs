use std::path::{Path, PathBuf};

use clap::Args;
use segue_collectives::Communicator;
use segue_configs::counted;
use segue_dataloader::sections::TextEvalConfig;
use segue_engine::Watch;
use segue_protocols::{recovery, token_losses};
use serde_json::{Value, json};

use super::subject::{Subject, TextArgs};
use super::walk::{TemperatureArgs, WalkArgs};
use crate::failure::{Failure, USAGE};
use crate::output::{Output, Unit};

/// Arguments of `segue eval recovery`.
#[derive(Args)]
#[command(after_help = "\
    Works under mpirun too; the result has the same bits at any number of ranks.\n\n\
    Example:\n  \
    segue eval recovery --models runs/lstm runs/mogrifier \\\n      \
    --corpus corpora/wikitext2 --split test --lanes 1")]
pub struct RecoveryArgs {
    /// Models to compare, all with the tokenizer of the corpus.
    #[arg(long, num_args = 1.., required = true, value_name = "DIR")]
    models: Vec<PathBuf>,
    #[command(flatten)]
    text: TextArgs,
    /// Fraction of tokens that count as surprising: those with the highest losses, in (0, 1].
    #[arg(long, default_value_t = 0.1)]
    fraction: f64,
    #[command(flatten)]
    walk: WalkArgs,
    #[command(flatten)]
    temperature: TemperatureArgs,
}

/// Scores each model on the same text and prints how much worse than usual it predicts after a surprise.
pub fn run(args: RecoveryArgs, comm: &dyn Communicator, out: &Output) -> Result<Value, Failure> {
    if !(args.fraction > 0.0 && args.fraction <= 1.0) {
        let message = format!("--fraction {} does not lie in (0, 1]\nhint: 0.1 is usual", args.fraction);
        return Err(Failure::new(USAGE, message));
    }
    let mut rows = Vec::new();
    for model in &args.models {
        rows.push(row(model, &args, comm, out)?);
    }
    Ok(json!({ "fraction": args.fraction, "models": rows }))
}

fn row(named: &Path, args: &RecoveryArgs, comm: &dyn Communicator, out: &Output) -> Result<Value, Failure> {
    let mut subject = Subject::open(named, &args.text, out)?;
    subject.model.set_inverse_temperature(args.temperature.temperature);
    let (walk, cut) = args.walk.walk(&subject, named, &TextEvalConfig::default())?;
    let bar = out.progress(0, Unit::Steps, "evaluate");
    let mut progress = |done, whole| bar.set_of(done, whole);
    let (model, stream) = (subject.model.as_ref(), &subject.stream);
    let losses = token_losses(model, stream, &walk, comm, &mut Watch::new(&mut progress))?;
    drop(bar);
    super::check_loss(losses.iter().sum(), &subject.folder.path)?;
    let mut rest = losses.as_slice();
    let lanes: Vec<&[f64]> = walk
        .lengths(stream)?
        .into_iter()
        .map(|length| {
            let (lane, others) = rest.split_at(length.min(rest.len()));
            rest = others;
            lane
        })
        .collect();
    let found = recovery(&lanes, args.fraction).ok_or_else(|| {
        let message = format!(
            "the split has {} to predict, and recovery needs two in a lane",
            counted(losses.len(), "token")
        );
        Failure::new(USAGE, message + "\nhint: take a longer split, or fewer --lanes")
    })?;
    out.line(&format!(
        "{}: {:.4} nats after {}, {:.4} overall: {:+.4} ({cut})",
        subject.folder.path.display(),
        found.after,
        counted(found.surprises, "surprise"),
        found.overall,
        found.difference
    ));
    Ok(json!({ "model": subject.folder.path, "cut": cut, "targets": losses.len(), "recovery": found }))
}
