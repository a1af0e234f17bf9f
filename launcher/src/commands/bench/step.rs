use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, ValueEnum};
use segue_collectives::{Communicator, Slowed};
use segue_configs::{CollectivesKind, Config, DeviceKind, Products};
use segue_cost::RankMemory;
use segue_dataloader::sections::SegmentConfig;
use segue_engine::Engine;
use segue_language::{Frequencies, Language, build, random_batch};
use segue_report::median;
use serde_json::{Value, json};

use super::peak_rss_mb;
use super::sizes::SizeArgs;
use crate::commands::spelled::spelled;
use crate::commands::{PrecisionArg, at_least_one, device_of_rank, positive, told_kernels};
use crate::failure::{BAD_CONFIG, Failure};
use crate::output::{Output, Unit};
use crate::recipes;

/// The models there are.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Model {
    /// Transformer-XL: next-token prediction.
    TransfoXl,
    /// XLNet: permutation language modelling, two streams.
    Xlnet,
}

/// Bytes of a bucket that holds all gradients, and is full when backward has ended.
const WHOLE_MODEL: usize = 1 << 40;
/// Batches that are drawn before any step is timed. Longer runs read them again.
const BATCHES: u64 = 32;

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    mpirun -n 2 segue bench step --layers 6 --d-model 256 --micro-batch 8\n  \
    mpirun -n 2 segue bench step --model xlnet --segment 512 --mem-len 384 \\\n      \
    --micro-batch 4\n  \
    segue bench step --config configs/recipes/enwik8-base.toml --threads 2")]
pub struct StepArgs {
    /// Model to train.
    #[arg(long, value_enum, default_value = "transfo-xl")]
    model: Model,
    #[command(flatten)]
    sizes: SizeArgs,
    /// Vocabulary size.
    #[arg(long, alias = "vocab", default_value_t = 8000, value_parser = at_least_one)]
    vocab_size: usize,
    /// Tokens per lane and step.
    #[arg(long, default_value_t = 128, value_parser = at_least_one)]
    segment: usize,
    /// Memory length, in positions.
    #[arg(long, alias = "mem", default_value_t = 128)]
    mem_len: usize,
    /// XLNet: leading tokens of a segment that are kept as memory.
    #[arg(long, default_value_t = 256, value_parser = at_least_one)]
    reuse: usize,
    /// XLNet: number of predicted tokens per segment.
    #[arg(long, default_value_t = 85, value_parser = at_least_one)]
    predict: usize,
    /// Recipe whose model and shapes are timed in the place of the options above and below that name sizes.
    #[arg(long, value_name = "FILE|NAME", value_parser = recipes::parser())]
    config: Option<PathBuf>,
    /// Where to compute.
    #[arg(long, value_parser = spelled::<DeviceKind>(), default_value = "cpu")]
    device: DeviceKind,
    /// Precision of products, in the place of the recipe's `train.precision` and `train.tf32`.
    #[arg(long, value_enum)]
    precision: Option<PrecisionArg>,
    /// Lanes per rank, in one micro-step.
    #[arg(long, default_value_t = 8, value_parser = at_least_one)]
    micro_batch: usize,
    /// Keep only the inputs of layers for backward, and make each layer again there.
    #[arg(long)]
    recompute: bool,
    /// Use the MPI library's all-reduce, which adds in any order.
    #[arg(long)]
    any_order: bool,
    /// Add up over ranks as a link of so many GB/s would [default: at this machine's own speed].
    #[arg(long, value_name = "GB_PER_S", value_parser = positive)]
    link: Option<f64>,
    /// Begin the sums over ranks when backward has ended: their whole time is exposed.
    #[arg(long)]
    no_overlap: bool,
    /// Draw words by Zipf's law, as text has them, and not all alike.
    #[arg(long)]
    zipf: bool,
    /// Other settings, e.g. `model.div_val=4`.
    #[arg(value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

impl StepArgs {
    /// The model that the options describe, as overrides of a configuration.
    fn model_and_sizes(&self) -> Vec<String> {
        let mut overrides = match self.model {
            Model::TransfoXl => vec!["model.model_type=transfo-xl".to_string()],
            Model::Xlnet => vec![
                "model.model_type=xlnet".to_string(),
                format!("model.reuse_len={}", self.reuse),
                format!("pairs.num_predict={}", self.predict),
                format!("pairs.bidirectional={}", self.micro_batch.is_multiple_of(2)),
                format!("model.dropatt={:?}", self.sizes.dropout),
            ],
        };
        overrides.extend(self.sizes.overrides());
        overrides.extend([
            format!("model.vocab_size={}", self.vocab_size),
            format!("model.mem_len={}", self.mem_len),
            format!("train.segment={}", self.segment),
        ]);
        overrides
    }
}

/// Times whole steps.
pub fn run(args: &StepArgs, comm: &dyn Communicator, out: &Output) -> Result<Value, Failure> {
    let compute = device_of_rank(args.device, comm, out)?;
    let lanes = args.micro_batch * comm.world_size();
    let mut overrides = if args.config.is_none() { args.model_and_sizes() } else { Vec::new() };
    overrides.extend([
        format!("train.lanes={lanes}"),
        format!("train.micro_batch={}", args.micro_batch),
        format!("train.exact={}", !args.any_order),
        format!("train.recompute={}", args.recompute),
        "optim.lr=1e-4".to_string(),
        "schedule.kind=constant".to_string(),
    ]);
    if args.no_overlap {
        overrides.push(format!("train.bucket_bytes={WHOLE_MODEL}"));
    }
    overrides.extend_from_slice(&args.overrides);
    let mut config = segue_families::MODELS.load(args.config.as_deref(), &overrides)?.config;
    segue_families::need::<Language>(&config.model)?;
    (segue_family::of(&config.model).fit)(&mut config)?;
    if let Some(precision) = args.precision {
        let Products { precision, tf32 } = precision.into();
        (config.train.precision, config.train.tf32) = (precision, tf32);
    }
    if args.link.is_some() {
        add_up_on_hosts(&mut config)?;
    }
    let compute = compute.allow_tf32(config.train.tf32);
    segue_kernels::libtorch::start(args.sizes.threads);
    segue_kernels::libtorch::keep_freed_memory();
    let words = if args.zipf { Frequencies::Zipf } else { Frequencies::Uniform };
    let total = args.sizes.warmup + args.sizes.steps;
    let Config { train, model, own, .. } = &config;
    let draw = |step| vec![random_batch(train, model, own, words, comm.rank(), step).to(compute.device())];
    let batches: Vec<_> = (1..=total.min(BATCHES)).map(draw).collect();
    let at_rest_mb =
        peak_rss_mb() + state_mb(&segue_family::cost(&config, comm.world_size())?.memory_per_rank);
    let objective = build(&config, compute)?;
    let parameters = objective.parameters().count();
    let slowed = args.link.map(|gb_per_s| Slowed::over(comm, gb_per_s * 1e9)).transpose()?;
    let mut engine = Engine::new(&config, objective, slowed.as_ref().map_or(comm, |slowed| slowed))?;
    let bar = out.progress(total, Unit::Steps, "bench");
    let (mut times, mut exposed, mut losses) = (Vec::new(), Vec::new(), Vec::new());
    comm.barrier()?;
    let mut began = Instant::now();
    for step in 1..=total {
        comm.barrier()?;
        let report = engine.step(step, &batches[((step - 1) % BATCHES) as usize])?;
        // From one end to the next: a card is still at this step's update, which the next one waits for.
        let ended = Instant::now();
        if step > args.sizes.warmup {
            times.push((ended - began).as_secs_f64());
            exposed.push(report.communication_exposed.as_secs_f64());
        }
        began = ended;
        losses.push(report.loss);
        bar.set(step);
    }
    drop(bar);
    let (step_s, exposed_s) = (median(&times), median(&exposed));
    times.sort_by(f64::total_cmp);
    let slowest = times.get(times.len() * 95 / 100).copied();
    let tokens_per_s = (lanes * own.get::<SegmentConfig>().segment) as f64 / step_s;
    out.line(&format!(
        "{tokens_per_s:.0} tokens/s, {step_s:.4} s a step, of it {exposed_s:.4} s waiting for reductions"
    ));
    let kernels = told_kernels(compute, out);
    Ok(json!({
        "tokens_per_s": tokens_per_s, "step_s": step_s, "communication_exposed_s": exposed_s,
        "step_p95_s": slowest, "params": parameters, "world": comm.world_size(), "buckets": engine.bucket_count(),
        "peak_rss_mb": peak_rss_mb(), "peak_above_state_mb": peak_rss_mb() - at_rest_mb, "peak_bytes": compute.peak_bytes()?,
        "first_loss": losses.first(), "loss": losses.last(), "kernels": kernels,
    }))
}

/// Lets ranks add up in the memory of hosts, where a link can be slowed.
fn add_up_on_hosts(config: &mut Config) -> Result<(), Failure> {
    if config.train.collectives == CollectivesKind::Nccl {
        let message = "--link slows sums in the memory of hosts, and train.collectives is `nccl`\nhint: leave one of them out";
        return Err(Failure::new(BAD_CONFIG, message));
    }
    config.train.collectives = CollectivesKind::Host;
    Ok(())
}

/// Weights, gradients, moments and memory of segments on each rank: what is there whether a step is under way or not.
fn state_mb(memory: &RankMemory) -> f64 {
    (memory.total().least - memory.activations.least) / (1 << 20) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slower_link_is_one_between_hosts() {
        let config = |kind: &str| {
            let overrides = [format!("train.collectives={kind}")];
            segue_families::MODELS.load(None, &overrides).unwrap().config
        };
        for kind in ["auto", "host"] {
            let mut config = config(kind);
            add_up_on_hosts(&mut config).unwrap();
            assert_eq!(config.train.collectives, CollectivesKind::Host);
        }
        let refused = add_up_on_hosts(&mut config("nccl")).unwrap_err();
        assert!(refused.message.contains("--link"), "{}", refused.message);
    }
}
