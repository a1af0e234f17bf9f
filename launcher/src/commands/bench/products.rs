use std::time::Duration;

use clap::Args;
use segue_collectives::Communicator;
use segue_trainer::libtorch::speed::LIBRARIES;
use serde_json::{Value, json};

use crate::commands::at_least_one;
use crate::failure::Failure;
use crate::output::{Output, Unit};

/// Sizes of the matrices: what a core's own cache holds, and what it does not.
const SIZES: [usize; 3] = [256, 768, 1536];

#[derive(Args)]
pub struct ProductsArgs {
    /// Threads of a rank.
    #[arg(long, default_value_t = 1, value_parser = at_least_one)]
    threads: usize,
    /// Milliseconds of each measurement.
    #[arg(long, default_value_t = 500, value_parser = at_least_one)]
    ms: usize,
}

/// Times matrix products on all ranks at once, which is what their steps compete for.
pub fn run(args: &ProductsArgs, comm: &dyn Communicator, out: &Output) -> Result<Value, Failure> {
    segue_trainer::libtorch::set_threads(args.threads);
    segue_trainer::libtorch::keep_freed_memory();
    let bar = out.progress((LIBRARIES.len() * SIZES.len()) as u64, Unit::Steps, "bench");
    let mut rows = Vec::new();
    for library in &LIBRARIES {
        for size in SIZES {
            comm.barrier()?;
            let own = library.gflops(size, Duration::from_millis(args.ms as u64));
            let all = comm.all_gather(&own.to_le_bytes())?;
            let of_rank = |bytes: &Vec<u8>| f64::from_le_bytes(std::array::from_fn(|i| bytes[i]));
            rows.push((library.name, size, all.iter().map(of_rank).sum::<f64>()));
            bar.set(rows.len() as u64);
        }
    }
    drop(bar);
    for (library, size, gflops) in &rows {
        out.line(&format!("{gflops:8.1} GFLOP/s  {size:>5} x {size:<5}  {library}"));
    }
    let best = rows.iter().map(|row| row.2).fold(0.0, f64::max);
    out.line(&format!("{best:8.1} GFLOP/s at best, all ranks together"));
    let row = |&(library, size, gflops): &(&str, usize, f64)| json!({ "library": library, "size": size, "gflops": gflops });
    Ok(json!({
        "best_gflops": best, "world": comm.world_size(), "threads": args.threads,
        "products": rows.iter().map(row).collect::<Vec<_>>(),
    }))
}
