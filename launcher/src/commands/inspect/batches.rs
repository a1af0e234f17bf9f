use std::path::PathBuf;

use clap::Args;
use segue_configs::{Config, counted};
use segue_dataloader::LaneCursor;
use segue_engine::checkpoint::publish_tensors;
use segue_language::{Sources, micro_batches, open_lanes};
use serde_json::{Value, json};

use crate::commands::at_least_one;
use crate::failure::Failure;
use crate::folder::Force;
use crate::output::{Output, Unit};
use crate::recipes;

/// Arguments of `segue inspect batches`.
#[derive(Args)]
#[command(after_help = "\
    Tensors are named `step00001.micro00000.NAME`, steps from 1. NAME is input_ids [lanes, segment] and \
    targets [lanes, targets], and for sequences of pairs segments and ranks [lanes, segment], positions and \
    weights [lanes, targets], follows [lanes] and reversed [1], the number of lanes at the end that read \
    backwards.\n\n\
    Example:\n  \
    segue inspect batches --config xlnet.toml --steps 50 \\\n      \
    --output batches.safetensors data.corpus=corpora/wiki")]
pub struct BatchesArgs {
    /// Recipe, a TOML file, or the name of one that comes with the program (`segue recipes`).
    #[arg(long, value_name = "FILE|NAME", value_parser = recipes::parser())]
    config: Option<PathBuf>,
    /// Steps from the first on.
    #[arg(long, default_value_t = 1, value_parser = at_least_one)]
    steps: usize,
    /// safetensors file to write.
    #[arg(long)]
    output: PathBuf,
    #[command(flatten)]
    force: Force,
    /// Overrides of the recipe, by dotted name.
    #[arg(value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

/// Writes the batches of a run's first steps, for other programs to train on.
pub fn run(args: &BatchesArgs, out: &Output) -> Result<Value, Failure> {
    args.force.allow(args.output.as_path(), "--output")?;
    let config = segue_families::MODELS.load(args.config.as_deref(), &args.overrides)?.config;
    let Config { train, model, own, .. } = &config;
    let sources = Sources::open(train, model, own)?;
    let lanes = open_lanes(train, model, own, &sources)?;
    let bar = out.progress(args.steps as u64, Unit::Steps, "read");
    let mut cursors = vec![LaneCursor::default(); config.train.lanes];
    let mut tensors = Vec::new();
    for step in 1..=args.steps as u64 {
        let batch = lanes.batch(0..config.train.lanes, &cursors, step)?;
        for (number, micro) in micro_batches(&batch, config.train.micro_batch).iter().enumerate() {
            tensors.extend(micro.named(&format!("step{step:05}.micro{number:05}")));
        }
        cursors = batch.cursors_after;
        bar.set(step);
    }
    publish_tensors(&args.output, &tensors)?;
    out.line(&format!("{} in {}", counted(args.steps, "step"), args.output.display()));
    Ok(json!({ "steps": args.steps, "tensors": tensors.len(), "output": args.output }))
}
