//! `segue bench`: the speed of each part on its own, and a range test of learning rates.

mod generate;
mod lr;
mod pairs;
mod products;
mod sizes;
mod step;
mod task;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use segue_collectives::Communicator;
use segue_collectives::bench::{AllReduceTimings, bench_all_reduce};
use segue_configs::counted;
use segue_dataloader::{Encoded, bench_encode};
use serde_json::{Value, json};

use super::at_least_one;
use crate::failure::Failure;
use crate::folder::Force;
use crate::output::Output;

/// Arguments of `segue bench`.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    mpirun -n 2 segue bench step\n  \
    segue bench data --tokenizer tokenizers/wikitext --input text.txt")]
pub struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Training steps on random tokens: forward, backward, reduction, clipping, update.
    Step(step::StepArgs),
    /// Fine-tuning steps of an XLNet on random texts.
    Task(task::TaskArgs),
    /// A learning-rate range test: the loss of a recipe's first steps at rates that rise.
    Lr(lr::LrArgs),
    /// Writing texts with random weights, one token after the other.
    Generate(generate::GenerateArgs),
    /// Sums over ranks: in the order of the tree, the same by messages of bf16, and by the MPI library.
    Allreduce(AllreduceArgs),
    /// Tokenising text.
    Data(DataArgs),
    /// Drawing XLNet's sequences from a corpus.
    Pairs(pairs::PairsArgs),
    /// Matrix products by every routine at hand: what a step is limited by.
    Products(products::ProductsArgs),
}

#[derive(Args)]
#[command(after_help = "Example:\n  \
    mpirun -n 2 segue bench allreduce --mib 64")]
struct AllreduceArgs {
    /// Size of the summed values, in MiB.
    #[arg(long, default_value_t = 64, value_parser = at_least_one)]
    mib: usize,
    /// Number of measurements of each.
    #[arg(long, default_value_t = 20, value_parser = at_least_one)]
    repeats: usize,
}

#[derive(Args)]
#[command(after_help = "Example:\n  \
    segue bench data --tokenizer tokenizers/wikitext --input text.txt \\\n      \
    --workers 2")]
struct DataArgs {
    /// Folder of the tokenizer.
    #[arg(long)]
    tokenizer: PathBuf,
    /// Text file to tokenise.
    #[arg(long)]
    input: PathBuf,
    /// Number of threads.
    #[arg(long, default_value_t = 2, value_parser = at_least_one)]
    workers: usize,
    /// File to write the ids to, 32 bits each, little-endian: for a comparison with those of another program.
    #[arg(long)]
    ids: Option<PathBuf>,
    #[command(flatten)]
    force: Force,
}

/// Runs one benchmark.
pub fn run(args: BenchArgs, comm: &dyn Communicator, out: &Output) -> Result<Value, Failure> {
    match args.what {
        What::Step(args) => step::run(&args, comm, out),
        What::Task(args) => task::run(&args, comm, out),
        What::Lr(args) => lr::run(&args, comm, out),
        What::Generate(args) => generate::run(&args, out),
        What::Allreduce(args) => allreduce(&args, comm, out),
        What::Data(args) => data(&args, out),
        What::Pairs(args) => pairs::run(&args, out),
        What::Products(args) => products::run(&args, comm, out),
    }
}

fn allreduce(args: &AllreduceArgs, comm: &dyn Communicator, out: &Output) -> Result<Value, Failure> {
    let timings = bench_all_reduce(comm, args.mib << 20, args.repeats)?;
    let seconds = |t: &[std::time::Duration]| AllReduceTimings::median(t).as_secs_f64();
    let (tree_s, bf16_s) = (seconds(&timings.tree), seconds(&timings.short));
    let library_s = seconds(&timings.any_order);
    out.line(&format!(
        "{} MiB over {}: tree {:.2} ms, by messages of bf16 {:.2} ms, library {:.2} ms",
        args.mib,
        counted(comm.world_size(), "rank"),
        tree_s * 1e3,
        bf16_s * 1e3,
        library_s * 1e3
    ));
    Ok(json!({
        "mib": args.mib, "world": comm.world_size(), "tree_s": tree_s, "bf16_s": bf16_s, "library_s": library_s
    }))
}

fn data(args: &DataArgs, out: &Output) -> Result<Value, Failure> {
    args.force.allow(args.ids.as_deref(), "--ids")?;
    let tokenizer = segue_tokenizer::Tokenizer::load(&args.tokenizer)?;
    let text = std::fs::read_to_string(&args.input).map_err(|e| Failure::cannot_read(&args.input, &e))?;
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let Encoded { mb_per_s, ids } = bench_encode(&tokenizer, &lines, args.workers)?;
    let (peak, tokens) = (peak_rss_mb(), ids.iter().flatten().map(Vec::len).sum::<usize>());
    if let Some(path) = &args.ids {
        let bytes: Vec<u8> = ids.iter().flatten().flatten().flat_map(|id| id.to_le_bytes()).collect();
        segue_publish::write_file(path, &bytes)
            .map_err(|e| Failure::cannot_write(path, &e.source, "--ids"))?;
    }
    out.line(&format!(
        "{mb_per_s:.1} MB/s with {}, peak memory {peak:.0} MB",
        counted(args.workers, "thread")
    ));
    Ok(json!({ "mb_per_s": mb_per_s, "tokens": tokens, "workers": args.workers, "peak_rss_mb": peak }))
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
