use std::time::Duration;

use clap::Args;
use segue_collectives::Communicator;
use segue_kernels::libtorch::speed::{Shape, multiplications};
use serde_json::{Value, json};

use crate::commands::at_least_one;
use crate::failure::Failure;
use crate::output::{Output, Unit};

/// Squares that a core's own cache holds and that it does not, and two layers of the steps that `make bench` races.
const SHAPES: [Shape; 5] =
    [[256, 256, 256], [768, 768, 768], [1536, 1536, 1536], [1024, 256, 1024], [1024, 1024, 256]];

/// The longest side of a product: a matrix of that many rows and columns fills 17 GB.
const MOST_SIDE: usize = 1 << 16;

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    mpirun -n 2 segue bench products\n  \
    segue bench products --threads 2 --shape 1400x650x2600")]
pub struct ProductsArgs {
    /// Threads of a rank.
    #[arg(long, default_value_t = 1, value_parser = at_least_one)]
    threads: usize,
    /// Milliseconds of each measurement.
    #[arg(long, default_value_t = 500, value_parser = at_least_one)]
    ms: usize,
    /// Rows, depth and columns of a product to time instead of the usual ones, such as 1400x650x2600; may be repeated.
    #[arg(long = "shape", value_name = "MxKxN", value_parser = shape)]
    shapes: Vec<Shape>,
}

fn shape(text: &str) -> Result<Shape, String> {
    let sides: Option<Vec<usize>> = text
        .split('x')
        .map(|side| side.parse().ok().filter(|&side| (1..=MOST_SIDE).contains(&side)))
        .collect();
    let sides = sides.and_then(|sides| Shape::try_from(sides).ok());
    sides.ok_or_else(|| format!("not three sides from 1 to {MOST_SIDE}, such as 1400x650x2600"))
}

/// Times matrix products on all ranks at once, which is what their steps compete for.
pub fn run(args: &ProductsArgs, comm: &dyn Communicator, out: &Output) -> Result<Value, Failure> {
    segue_kernels::libtorch::start(args.threads);
    segue_kernels::libtorch::keep_freed_memory();
    let shapes = if args.shapes.is_empty() { &SHAPES[..] } else { &args.shapes };
    let bar = out.progress((multiplications().len() * shapes.len()) as u64, Unit::Steps, "bench");
    let mut rows = Vec::new();
    for routine in multiplications() {
        for &shape in shapes {
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
