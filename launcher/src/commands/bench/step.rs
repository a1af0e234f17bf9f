use std::time::Instant;

use clap::{Args, ValueEnum};
use segue_collectives::Communicator;
use segue_trainer::engine::Engine;
use segue_trainer::families::language_model::{build, random_batch};
use serde_json::{Value, json};

use super::sizes::SizeArgs;
use crate::commands::at_least_one;
use crate::failure::Failure;
use crate::output::{Output, Unit};

/// The models there are.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Model {
    /// Transformer-XL: next-token prediction.
    TransfoXl,
    /// XLNet: permutation language modelling, two streams.
    Xlnet,
}

#[derive(Args)]
pub struct StepArgs {
    /// Model to train.
    #[arg(long, value_enum, default_value = "transfo-xl")]
    model: Model,
    #[command(flatten)]
    sizes: SizeArgs,
    /// Vocabulary size.
    #[arg(long, default_value_t = 8000, value_parser = at_least_one)]
    vocab: usize,
    /// Tokens per lane and step.
    #[arg(long, default_value_t = 128, value_parser = at_least_one)]
    segment: usize,
    /// Memory length, in positions.
    #[arg(long, default_value_t = 128)]
    mem: usize,
    /// XLNet: leading tokens of a segment that are kept as memory.
    #[arg(long, default_value_t = 256, value_parser = at_least_one)]
    reuse: usize,
    /// XLNet: number of predicted tokens per segment.
    #[arg(long, default_value_t = 85, value_parser = at_least_one)]
    predict: usize,
    /// Lanes per rank, in one micro-step.
    #[arg(long, default_value_t = 8, value_parser = at_least_one)]
    micro_batch: usize,
    /// Use the MPI library's all-reduce, which adds in any order.
    #[arg(long)]
    any_order: bool,
}

/// Times whole steps.
pub fn run(args: &StepArgs, comm: &dyn Communicator, out: &Output) -> Result<Value, Failure> {
    let lanes = args.micro_batch * comm.world_size();
    let mut overrides = match args.model {
        Model::TransfoXl => vec!["model.model_type=transfo-xl".to_string()],
        Model::Xlnet => vec![
            "model.model_type=xlnet".to_string(),
            format!("model.reuse_len={}", args.reuse),
            format!("pairs.num_predict={}", args.predict),
            format!("pairs.bidirectional={}", args.micro_batch.is_multiple_of(2)),
        ],
    };
    if args.model == Model::Xlnet {
        overrides.push(format!("model.dropatt={:?}", args.sizes.dropout));
    }
    overrides.extend(args.sizes.overrides());
    overrides.extend([
        format!("model.vocab_size={}", args.vocab),
        format!("model.mem_len={}", args.mem),
        format!("train.segment={}", args.segment),
        format!("train.lanes={lanes}"),
        format!("train.micro_batch={}", args.micro_batch),
        format!("train.exact={}", !args.any_order),
        "optim.lr=1e-4".to_string(),
        "schedule.kind=constant".to_string(),
    ]);
    let config = segue_trainer::families::MODELS.load(None, &overrides)?.config;
    segue_trainer::libtorch::set_threads(args.sizes.threads);
    segue_trainer::libtorch::keep_freed_memory();
    let objective = build(&config)?;
    let parameters = objective.parameters().count();
    let mut engine = Engine::new(&config, objective, comm)?;
    let bar = out.progress(args.sizes.warmup + args.sizes.steps, Unit::Steps, "bench");
    let (mut times, mut exposed, mut loss) = (Vec::new(), Vec::new(), f64::NAN);
    for step in 1..=args.sizes.warmup + args.sizes.steps {
        let batch = random_batch(&config, comm.rank(), step);
        comm.barrier()?;
        let began = Instant::now();
        let report = engine.step(step, &vec![batch])?;
        if step > args.sizes.warmup {
            times.push(began.elapsed().as_secs_f64());
            exposed.push(report.communication_exposed.as_secs_f64());
        }
        loss = report.loss;
        bar.set(step);
    }
    drop(bar);
    let (step_s, exposed_s) = (median(&mut times), median(&mut exposed));
    let tokens_per_s = (lanes * args.segment) as f64 / step_s;
    out.line(&format!(
        "{tokens_per_s:.0} tokens/s, {step_s:.4} s a step, of it {exposed_s:.4} s waiting for reductions"
    ));
    Ok(json!({
        "tokens_per_s": tokens_per_s, "step_s": step_s, "communication_exposed_s": exposed_s,
        "params": parameters, "world": comm.world_size(), "buckets": engine.bucket_count(), "loss": loss,
    }))
}

/// The value in the middle.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
