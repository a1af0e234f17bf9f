//! `segue bench`: how fast the parts are, alone.

mod pairs;

use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, Subcommand};
use segue_collectives::Communicator;
use segue_collectives::bench::{AllReduceTimings, bench_all_reduce};
use segue_configs::Config;
use segue_dataloader::seed::{Purpose, Stream};
use segue_trainer::engine::Engine;
use segue_trainer::objective::{self, Batch};
use serde_json::{Value, json};
use tch::Tensor;

use super::at_least_one;
use crate::failure::Failure;
use crate::output::{Output, Unit};

/// Arguments of `segue bench`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  mpirun -n 2 segue bench step --layers 6 --d-model 256 --micro-batch 8\n  \
    mpirun -n 2 segue bench allreduce --mib 64\n  segue bench data --tokenizer DIR --input text.txt --workers 2"
)]
pub struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Training steps of a Transformer-XL on random tokens: forward, backward, reduction, clip, update.
    Step(StepArgs),
    /// Sums over ranks: ours in the order of the tree, and the library's.
    Allreduce(AllreduceArgs),
    /// Text to token ids.
    Data(DataArgs),
    /// Sequences for XLNet out of a corpus.
    Pairs(pairs::PairsArgs),
}

#[derive(Args)]
struct StepArgs {
    /// Layers.
    #[arg(long, default_value_t = 6, value_parser = at_least_one)]
    layers: usize,
    /// Width of hidden states.
    #[arg(long, default_value_t = 256, value_parser = at_least_one)]
    d_model: usize,
    /// Attention heads.
    #[arg(long, default_value_t = 4, value_parser = at_least_one)]
    heads: usize,
    /// Width of the feed-forward layer.
    #[arg(long, default_value_t = 1024, value_parser = at_least_one)]
    d_inner: usize,
    /// Entries of the vocabulary.
    #[arg(long, default_value_t = 8000, value_parser = at_least_one)]
    vocab: usize,
    /// Tokens of a lane per step.
    #[arg(long, default_value_t = 128, value_parser = at_least_one)]
    segment: usize,
    /// Positions of memory.
    #[arg(long, default_value_t = 128)]
    mem: usize,
    /// Lanes of each rank, in one micro-step.
    #[arg(long, default_value_t = 8, value_parser = at_least_one)]
    micro_batch: usize,
    /// Dropout rate.
    #[arg(long, default_value_t = 0.1)]
    dropout: f64,
    /// Timed steps.
    #[arg(long, default_value_t = 8)]
    steps: u64,
    /// Steps before the timed ones.
    #[arg(long, default_value_t = 2)]
    warmup: u64,
    /// Threads of libtorch in each rank.
    #[arg(long, default_value_t = 1, value_parser = at_least_one)]
    threads: usize,
    /// Let the library's all-reduce add in any order.
    #[arg(long)]
    any_order: bool,
}

#[derive(Args)]
struct AllreduceArgs {
    /// Size of the sum.
    #[arg(long, default_value_t = 64, value_parser = at_least_one)]
    mib: usize,
    /// Times each is measured.
    #[arg(long, default_value_t = 20, value_parser = at_least_one)]
    repeats: usize,
}

#[derive(Args)]
struct DataArgs {
    /// Tokenizer folder.
    #[arg(long)]
    tokenizer: PathBuf,
    /// Text file.
    #[arg(long)]
    input: PathBuf,
    /// Threads.
    #[arg(long, default_value_t = 2, value_parser = at_least_one)]
    workers: usize,
}

/// Runs one benchmark.
pub fn run(args: BenchArgs, comm: &dyn Communicator, out: &Output) -> Result<Value, Failure> {
    match args.what {
        What::Step(args) => step(&args, comm, out),
        What::Allreduce(args) => allreduce(&args, comm, out),
        What::Data(args) => data(&args, out),
        What::Pairs(args) => pairs::run(&args, out),
    }
}

fn step(args: &StepArgs, comm: &dyn Communicator, out: &Output) -> Result<Value, Failure> {
    let lanes = args.micro_batch * comm.world_size();
    let overrides = [
        format!("model.n_layer={}", args.layers),
        format!("model.d_model={}", args.d_model),
        format!("model.n_head={}", args.heads),
        format!("model.d_inner={}", args.d_inner),
        format!("model.vocab_size={}", args.vocab),
        format!("model.mem_len={}", args.mem),
        format!("model.dropout={:?}", args.dropout),
        format!("train.segment={}", args.segment),
        format!("train.lanes={lanes}"),
        format!("train.micro_batch={}", args.micro_batch),
        format!("train.exact={}", !args.any_order),
        "optim.lr=1e-4".to_string(),
        "schedule.kind=constant".to_string(),
    ];
    let config = segue_configs::load(None, &overrides)?.config;
    segue_trainer::libtorch::set_threads(args.threads);
    segue_trainer::libtorch::keep_freed_memory();
    let objective = objective::build(&config);
    let parameters = objective.parameters().count();
    let mut engine = Engine::new(&config, objective, comm)?;
    let bar = out.progress(args.warmup + args.steps, Unit::Steps, "bench");
    let (mut times, mut exposed, mut loss) = (Vec::new(), Vec::new(), f64::NAN);
    for step in 1..=args.warmup + args.steps {
        let batch = random_batch(&config, comm.rank(), step);
        comm.barrier()?;
        let began = Instant::now();
        let report = engine.step(step, &[batch])?;
        if step > args.warmup {
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

/// Uniform random tokens, each its own target's predecessor by chance alone.
fn random_batch(config: &Config, rank: usize, step: u64) -> Batch {
    let stream = Stream::new(config.train.seed, Purpose::Bench, &[rank as u64, step]);
    let size = config.train.micro_batch * config.train.segment;
    let shape = [config.train.micro_batch as i64, config.train.segment as i64];
    let draw = |offset: usize| {
        let ids: Vec<i64> = (0..size)
            .map(|i| (stream.bits((offset + i) as u64) % config.model.vocab_size() as u64) as i64)
            .collect();
        Tensor::from_slice(&ids).view(shape)
    };
    Batch::new(draw(0), draw(size))
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn allreduce(args: &AllreduceArgs, comm: &dyn Communicator, out: &Output) -> Result<Value, Failure> {
    let timings = bench_all_reduce(comm, args.mib << 20, args.repeats)?;
    let seconds = |t: &[std::time::Duration]| AllReduceTimings::median(t).as_secs_f64();
    let (tree_s, library_s) = (seconds(&timings.tree), seconds(&timings.any_order));
    out.line(&format!(
        "{} MiB over {} ranks: tree {:.2} ms, library {:.2} ms",
        args.mib,
        comm.world_size(),
        tree_s * 1e3,
        library_s * 1e3
    ));
    Ok(json!({ "mib": args.mib, "world": comm.world_size(), "tree_s": tree_s, "library_s": library_s }))
}

fn data(args: &DataArgs, out: &Output) -> Result<Value, Failure> {
    let tokenizer = segue_dataloader::Tokenizer::load(&args.tokenizer)?;
    let text = std::fs::read_to_string(&args.input)
        .map_err(|e| Failure::new(66, format!("cannot read {}: {e}", args.input.display())))?;
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mb_per_s = segue_dataloader::bench_encode(&tokenizer, &lines, args.workers)?;
    let peak = peak_rss_mb();
    out.line(&format!("{mb_per_s:.1} MB/s with {} threads, peak memory {peak:.0} MB", args.workers));
    Ok(json!({ "mb_per_s": mb_per_s, "workers": args.workers, "peak_rss_mb": peak }))
}

/// Largest resident set of this process so far.
fn peak_rss_mb() -> f64 {
    // SAFETY: `getrusage` fills the struct it is given; all-zero is a valid value of it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    usage.ru_maxrss as f64 / 1024.0
}
