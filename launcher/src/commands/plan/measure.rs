//! A description of the machine at hand, from short measurements.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use segue_collectives::Communicator;
use segue_collectives::bench::{AllReduceTimings, bench_all_reduce};
use segue_configs::{ByPrecision, Machine, MachineKind, counted};
use segue_kernels::libtorch;
use segue_kernels::libtorch::speed::multiplications;
use segue_report::median;
use serde_json::{Value, json};

use crate::commands::doctor::cores;
use crate::failure::Failure;
use crate::memory::HostMemory;
use crate::output::{Output, Unit};
use crate::proc::line_of;

/// Sides of matrices that are multiplied, and for how long each.
const SIDES: [usize; 2] = [256, 768];
const MULTIPLIED: Duration = Duration::from_millis(150);
/// What is copied to see how fast memory is: more than caches hold.
const COPIED_BYTES: usize = 64 << 20;
const COPIES: usize = 5;
/// What ranks add up: long enough for the links alone to count, and so short that only the begin does.
const LONG_SUM: usize = 32 << 20;
const SHORT_SUM: usize = 1 << 10;
const SUMS: usize = 7;
/// Written to see how fast the disk is.
const WRITTEN_BYTES: usize = 64 << 20;
/// Where kernels' and links' fractions come from: they were fitted on it.
const FITTED: &str = "two-core-xeon";

/// Measures, and writes the description to `path`.
pub fn write(path: &Path, comm: &dyn Communicator, out: &Output) -> Result<Value, Failure> {
    let machine = machine(comm, out)?;
    if comm.rank() == 0 {
        segue_publish::write_file(path, to_toml(&machine, comm.world_size()).as_bytes())
            .map_err(|e| Failure::cannot_write(path, &e.source, "--measure"))?;
        out.line(&format!("{}: {}", path.display(), machine.about));
    }
    Ok(json!({ "file": path, "machine": machine }))
}

/// Measures: a collective call. All ranks compute at once, as they do in a step.
pub fn machine(comm: &dyn Communicator, out: &Output) -> Result<Machine, Failure> {
    libtorch::start(1);
    libtorch::keep_freed_memory();
    let known = Machine::load(FITTED)?;
    let bar = out.progress(4, Unit::Steps, "measure");
    let ranks = if comm.world_size() > 1 { comm.world_size() } else { cores() };
    let flops = products(comm)?;
    bar.set(1);
    let (alone, together) = (copy_rate(1), copies(comm)?);
    bar.set(2);
    let (inside, latency) = match comm.world_size() {
        // Nobody to add to: each byte of a sum is read twice and written twice.
        1 => (together / ranks as f64 / 4.0, known.latency.inside),
        _ => links(comm)?,
    };
    bar.set(3);
    let disk = written().unwrap_or(known.bandwidth.disk);
    drop(bar);
    let mut machine = known;
    machine.about = format!("{} of {}, one rank each", counted(ranks, "core"), processor());
    machine.kind = MachineKind::Cpu;
    machine.ranks = ranks;
    machine.memory =
        HostMemory::read().map(|host| host.total as f64).unwrap_or(machine.memory * machine.ranks as f64)
            / ranks as f64;
    machine.peak = ByPrecision { f32: flops, tf32: None, bf16: None, fp16: None };
    machine.bandwidth.memory = alone;
    machine.bandwidth.node_memory = Some(together);
    machine.bandwidth.inside = inside;
    machine.bandwidth.host = alone;
    machine.bandwidth.disk = disk;
    machine.latency.inside = latency;
    Ok(machine)
}

/// Operations a second of a rank by the best routine, while all multiply; the mean over ranks.
fn products(comm: &dyn Communicator) -> Result<f64, Failure> {
    comm.barrier()?;
    let speeds =
        multiplications().iter().flat_map(|routine| SIDES.map(|side| routine.gflops([side; 3], MULTIPLIED)));
    let own = speeds.fold(0.0, f64::max) * 1e9;
    Ok(sum(comm, own)? / comm.world_size() as f64)
}

/// Bytes a second that a node copies, while all of its ranks do.
fn copies(comm: &dyn Communicator) -> Result<f64, Failure> {
    if comm.world_size() == 1 {
        return Ok(copy_rate(cores()));
    }
    comm.barrier()?;
    let own = copy_rate(1);
    sum(comm, own)
}

/// Bytes read and written a second by `threads` threads that copy at once.
fn copy_rate(threads: usize) -> f64 {
    let copy = || {
        let (from, mut to) = (vec![1u8; COPIED_BYTES], vec![0u8; COPIED_BYTES]);
        let seconds: Vec<f64> = (0..COPIES)
            .map(|_| {
                let begun = Instant::now();
                to.copy_from_slice(std::hint::black_box(&from));
                std::hint::black_box(&mut to);
                begun.elapsed().as_secs_f64()
            })
            .collect();
        2.0 * COPIED_BYTES as f64 / median(&seconds)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(copy)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).sum()
    })
}

/// Bytes a second from a rank to the others, and seconds of a message, in sums in the order of the tree.
fn links(comm: &dyn Communicator) -> Result<(f64, f64), Failure> {
    let time = |bytes| -> Result<f64, Failure> {
        let timings = bench_all_reduce(comm, bytes, SUMS)?;
        Ok(AllReduceTimings::median(&timings.tree).as_secs_f64())
    };
    let (short, long) = (time(SHORT_SUM)?, time(LONG_SUM)?);
    let ranks = comm.world_size() as f64;
    let rounds = 2.0 * ranks.log2().ceil();
    let sent = 2.0 * (ranks - 1.0) / ranks * LONG_SUM as f64;
    // Ranks time on their own: the mean, so that all describe the same machine.
    let mean = |value: f64| Ok::<f64, Failure>(sum(comm, value)? / ranks);
    Ok((mean(sent / (long - short).max(1e-9))?, mean(short / rounds)?))
}

fn sum(comm: &dyn Communicator, own: f64) -> Result<f64, Failure> {
    let all = comm.all_gather(&own.to_le_bytes())?;
    Ok(all.iter().map(|bytes| f64::from_le_bytes(std::array::from_fn(|i| bytes[i]))).sum())
}

/// Bytes a second that are written to the folder at hand, and flushed; none where that cannot be.
fn written() -> Option<f64> {
    let mut file = tempfile::tempfile_in(".").ok()?;
    let bytes = vec![1; WRITTEN_BYTES];
    let begun = Instant::now();
    file.write_all(&bytes).ok()?;
    file.sync_all().ok()?;
    Some(WRITTEN_BYTES as f64 / begun.elapsed().as_secs_f64())
}

fn processor() -> String {
    line_of("/proc/cpuinfo", "model name").unwrap_or_else(|| "an unknown processor".into())
}

/// The description as a file, with what was not measured marked.
fn to_toml(machine: &Machine, world: usize) -> String {
    let (bandwidth, achieved) = (&machine.bandwidth, &machine.achieved);
    let ranks_of_it = counted(world, "rank");
    let links = if world > 1 { "measured" } else { "a guess: measure under mpirun" };
    format!(
        r#"# Written by `segue plan --measure` on {ranks_of_it}. Price, failures, links between nodes: fill in yours.

about = "{about}"
kind = "cpu"
ranks = {ranks}
memory = {memory:.3e}
price = {price:?}
mtbf_hours = {mtbf:?}
restart = {restart:?}

[peak]
f32 = {f32:.4e}

[bandwidth]
memory = {alone:.4e}
node_memory = {together:.4e}
inside = {inside:.4e}    # {links}
between = {between:.4e}  # not measured
host = {host:.4e}
disk = {disk:.4e}

[latency]
inside = {latency:.3e}
between = {between_latency:.3e}  # not measured
kernel = {kernel:?}

# What kernels reach of these: fitted on another host with two cores.
[achieved]
products = {{ f32 = {products:?} }}
attention = {attention:?}
memory = {of_memory:?}
links = {of_links:?}
"#,
        about = machine.about.replace(['"', '\\'], " "),
        ranks = machine.ranks,
        memory = machine.memory,
        price = machine.price,
        mtbf = machine.mtbf_hours,
        restart = machine.restart,
        f32 = machine.peak.f32,
        alone = bandwidth.memory,
        together = bandwidth.node_memory.unwrap_or(bandwidth.memory),
        inside = bandwidth.inside,
        between = bandwidth.between,
        host = bandwidth.host,
        disk = bandwidth.disk,
        latency = machine.latency.inside,
        between_latency = machine.latency.between,
        kernel = machine.latency.kernel,
        products = achieved.products.f32,
        attention = achieved.attention,
        of_memory = achieved.memory,
        of_links = achieved.links,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_read_as_it_was_written() {
        let mut machine = Machine::load(FITTED).unwrap();
        machine.about = "2 \"cores\"".into();
        machine.bandwidth.disk = 123_450_000.0;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.toml");
        std::fs::write(&path, to_toml(&machine, 2)).unwrap();
        let read = Machine::load(path.to_str().unwrap()).unwrap();
        machine.about = "2  cores ".into();
        assert_eq!(read, machine);
    }
}
