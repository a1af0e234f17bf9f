use std::time::Duration;

use clap::Args;
use segue_collectives::Communicator;
use segue_trainer::libtorch::speed::{MULTIPLICATIONS, Shape};
use serde_json::{Value, json};

use crate::commands::at_least_one;
use crate::failure::Failure;
use crate::output::{Output, Unit};

/// Squares that a core's own cache holds and that it does not, and two layers of the steps that `make bench` races.
const SHAPES: [Shape; 5] =
    [[256, 256, 256], [768, 768, 768], [1536, 1536, 1536], [1024, 256, 1024], [1024, 1024, 256]];

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
    let bar = out.progress((MULTIPLICATIONS.len() * SHAPES.len()) as u64, Unit::Steps, "bench");
    let mut rows = Vec::new();
    for routine in &MULTIPLICATIONS {
        for shape in SHAPES {
            comm.barrier()?;
            let own = routine.gflops(shape, Duration::from_millis(args.ms as u64));
            let all = comm.all_gather(&own.to_le_bytes())?;
            let of_rank = |bytes: &Vec<u8>| f64::from_le_bytes(std::array::from_fn(|i| bytes[i]));
            rows.push((routine.name, shape, all.iter().map(of_rank).sum::<f64>()));
            bar.set(rows.len() as u64);
        }
    }
    drop(bar);
    for (routine, [m, k, n], gflops) in &rows {
        out.line(&format!("{gflops:8.1} GFLOP/s  {m:>4} x {k:>4} times {k:>4} x {n:>4}  {routine}"));
    }
    let best = rows.iter().map(|row| row.2).fold(0.0, f64::max);
    out.line(&format!("{best:8.1} GFLOP/s at best, all ranks together"));
    let row = |&(routine, shape, gflops): &(&str, Shape, f64)| json!({ "routine": routine, "shape": shape, "gflops": gflops });
    Ok(json!({
        "best_gflops": best, "world": comm.world_size(), "threads": args.threads,
        "products": rows.iter().map(row).collect::<Vec<_>>(),
    }))
}
