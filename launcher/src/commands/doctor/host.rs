//! What there is to know of the host at hand.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use segue_configs::counted;
use segue_dataloader::Corpus;
use segue_engine as engine;
use segue_kernels::cards::Compiler;
use segue_kernels::libtorch;
use segue_kernels::libtorch::device::{self, Cards, NoCard};
use segue_kernels::libtorch::speed::multiplications;

use super::{Finding, State};
use crate::memory::{HostMemory, gib};
use crate::proc::line_of;

/// What a rank opens at most, with room: shards, their indices, logs, connections to other ranks.
const OPEN_FILES: u64 = 4096;
/// What ranks on one host may exchange through memory.
const SHARED_BYTES: u64 = 256 << 20;
/// Written to see how fast the disk is.
const TRIAL_BYTES: usize = 16 << 20;
/// What a corpus is called among findings, and the speed of products.
pub const CORPUS: &str = "corpus";
pub const PRODUCTS: &str = "products";
/// Side of the matrices that the processor multiplies, and for how long.
const SIDE: usize = 768;
const MEASURED: Duration = Duration::from_millis(300);
/// A processor that reaches less of what its vector unit could is shared, throttled, or served by kernels for another one.
const LEAST_SHARE: f64 = 0.4;

/// Looks at what a rank of a job needs of its host, and how fast it is.
pub fn checks(folder: &Path) -> Vec<Box<dyn Fn() -> Finding + '_>> {
    vec![
        Box::new(arithmetic),
        Box::new(products),
        Box::new(memory),
        Box::new(open_files),
        Box::new(shared_memory),
        Box::new(move || disk(folder)),
    ]
}

/// Looks at what a host has that starts jobs.
pub fn programs() -> Vec<Box<dyn Fn() -> Finding>> {
    vec![
        Box::new(|| Finding::ok("segue", env!("SEGUE_VERSION"))),
        Box::new(|| Finding::ok("libtorch", libtorch::library())),
        Box::new(processor),
        Box::new(gpus),
        Box::new(nccl),
        Box::new(mpi),
        Box::new(srun),
    ]
}

/// Cores that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn processor() -> Finding {
    let name = line_of("/proc/cpuinfo", "model name").unwrap_or_else(|| "of an unknown kind".into());
    Finding::ok("processor", format!("{name}, {} for this process", counted(cores(), "core")))
}

/// Products of whole numbers, which have no rounding, next to what they are: on every core for a while, as one core of many may be sick.
fn arithmetic() -> Finding {
    libtorch::start(1);
    let own = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    let mut cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| own.is_set(*core)).collect();
    if cores.is_empty() {
        // More than the set can name: the system chooses where they run.
        cores = (CpuSet::MAX_CPU..CpuSet::MAX_CPU + self::cores()).collect();
    }
    let wrong = std::thread::scope(|scope| {
        let threads: Vec<_> = cores.iter().map(|core| scope.spawn(|| wrong_on(*core))).collect();
        // A thread that panicked has said why on stderr.
        threads.into_iter().find_map(|thread| thread.join().unwrap_or(Some("a routine that could not go on")))
    });
    match wrong {
        None => Finding::ok(
            "arithmetic",
            format!("products of whole numbers are right on {}", counted(cores.len(), "core")),
        ),
        Some(routine) => Finding::new(
            "arithmetic",
            State::Missing,
            format!("a product of whole numbers by {routine} is wrong"),
            "take this host out of service: its processor or its memory is sick",
        ),
    }
}

/// The routine that multiplies wrongly on a core, if one does within [`MEASURED`].
fn wrong_on(core: usize) -> Option<&'static str> {
    if core < CpuSet::MAX_CPU {
        let mut only = CpuSet::new();
        only.set(core);
        // Where that is not allowed the system chooses a core.
        let _ = sched_setaffinity(None, &only);
    }
    let begun = Instant::now();
    (0..).take_while(|seed| *seed == 0 || begun.elapsed() < MEASURED).find_map(|seed| {
        let wrong = multiplications().iter().find(|routine| !routine.is_right(SIDE, seed));
        wrong.map(|routine| routine.name)
    })
}

/// Products of matrices on one core next to what its vector unit could do.
fn products() -> Finding {
    libtorch::start(1);
    let speeds = multiplications().iter().map(|routine| (routine.gflops([SIDE; 3], MEASURED), routine.name));
    let (best, by) = speeds.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((0.0, "nothing"));
    let found = format!("{best:.0} GFLOP/s on one core, by {by}");
    let finding = match reckoned_peak() {
        Some(peak) if best < LEAST_SHARE * peak => Finding::new(
            PRODUCTS,
            State::Warning,
            format!("{found}; its vector unit could do about {peak:.0}"),
            "look for other jobs on this host, and for a limit on its clock",
        ),
        _ => Finding::ok(PRODUCTS, found),
    };
    Finding { value: Some(best), ..finding }
}

/// Two fused multiplications a cycle, as most have that are made for computing.
fn reckoned_peak() -> Option<f64> {
    let megahertz: f64 = line_of("/proc/cpuinfo", "cpu MHz")?.parse().ok()?;
    let flags = line_of("/proc/cpuinfo", "flags")?;
    let has = |flag: &str| flags.split(' ').any(|known| known == flag);
    let lanes = if has("avx512f") {
        16.0
    } else if has("avx2") {
        8.0
    } else {
        return None;
    };
    Some(megahertz / 1000.0 * lanes * 4.0)
}

fn memory() -> Finding {
    let Some(HostMemory { total, free, limit, .. }) = HostMemory::read() else {
        return Finding::new("memory", State::Warning, "the kernel does not tell", "");
    };
    let limited = limit.map_or(String::new(), |limit| format!("; this process may take {}", gib(limit)));
    Finding::ok("memory", format!("{}, {} of it free{limited}", gib(total), gib(free)))
}

/// What a program says.
fn says_all(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// The first line that it says.
fn says(program: &str, args: &[&str]) -> Option<String> {
    says_all(program, args).map(|text| text.lines().next().unwrap_or_default().trim().to_string())
}

/// Two ranks that sum something up.
fn mpi() -> Finding {
    let Some(version) = says("mpirun", &["--version"]) else {
        let advice = "install it for several ranks: apt-get install openmpi-bin (Debian, Ubuntu), or the module of your site";
        return Finding::new("mpirun", State::Missing, "it is not there", advice);
    };
    let Ok(program) = std::env::current_exe() else { return Finding::ok("mpirun", version) };
    // On a sick host it may wait for ever.
    let mut trial = Command::new("timeout");
    trial.args(["60", "mpirun", "-n", "2", "--oversubscribe", "--bind-to", "none"]);
    if fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0) {
        trial.arg("--allow-run-as-root");
    }
    trial.arg(program).args(["bench", "allreduce", "--mib", "1", "--json"]).stdin(Stdio::null());
    match trial.output() {
        Ok(output) if output.status.success() => {
            Finding::ok("mpirun", format!("{version}; two ranks talk to each other"))
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let last = said
                .lines()
                .rev()
                .find(|line| !line.trim().is_empty())
                .unwrap_or("it said nothing")
                .to_string();
            let advice = "try it by hand: mpirun -n 2 segue bench allreduce";
            Finding::new(
                "mpirun",
                State::Missing,
                format!("{version}; two ranks could not be started: {last}"),
                advice,
            )
        }
        Err(error) => Finding::new("mpirun", State::Missing, error.to_string(), ""),
    }
}

fn srun() -> Finding {
    match says("srun", &["--version"]) {
        Some(version) => Finding::ok("srun", version),
        None => Finding::new("srun", State::None, "this is no host of a Slurm cluster", ""),
    }
}

/// Cards, and whether libtorch can use them.
fn gpus() -> Finding {
    let names = says_all("nvidia-smi", &["--query-gpu=name", "--format=csv,noheader"]).unwrap_or_default();
    let names = names.replace('\n', ", ");
    match device::load() {
        Cards::Some(count) => {
            let found = format!("{count} that libtorch can use ({names})");
            match Compiler::get() {
                Ok(_) => Finding::ok("GPU", format!("{found}, and a compiler for kernels of Segue's own")),
                Err(why) => Finding::new(
                    "GPU",
                    State::Warning,
                    format!("{found}, without a compiler for kernels of Segue's own: {why}"),
                    "install the package nvidia-cuda-nvrtc beside torch: pip install 'nvidia-cuda-nvrtc==13.*'",
                ),
            }
        }
        Cards::None(NoCard::Driver(why)) => {
            let could = match device::load_library() {
                Ok(()) => "libtorch could use one",
                Err(NoCard::Build(_)) => "libtorch was built without CUDA",
                Err(_) => "libtorch's part for cards cannot be loaded",
            };
            Finding::new("GPU", State::None, format!("none ({why}); {could}"), "")
        }
        Cards::None(why) => {
            let advice = match why {
                NoCard::Build(_) => {
                    "take libtorch from a torch that was built for CUDA, as `pip install torch==2.11.0` brings it"
                }
                NoCard::Hidden => "look at CUDA_VISIBLE_DEVICES, and at the driver's version: nvidia-smi",
                NoCard::Driver(_) | NoCard::Library(_) => "look at what the message names",
            };
            Finding::new("GPU", State::Warning, format!("{names}: {why}"), advice)
        }
    }
}

/// NCCL: which one and where, or what is missing. Hosts without a card do not need it.
fn nccl() -> Finding {
    match engine::nccl() {
        Ok(library) => Finding::ok("NCCL", format!("{}, {}", library.version(), library.place().display())),
        Err(why) if matches!(device::load(), Cards::None(_)) => {
            Finding::new("NCCL", State::None, why.to_string(), "")
        }
        Err(why) => Finding::new(
            "NCCL",
            State::Warning,
            why.to_string(),
            "for several ranks with a card each take it from torch's own packages, as `pip install torch==2.11.0` brings it; without it sums \
             go through the memory of hosts",
        ),
    }
}

fn open_files() -> Finding {
    let text = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"));
    let soft: Option<u64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    match soft {
        Some(files) if files < OPEN_FILES => {
            let found = format!("{files} for a process");
            Finding::new(
                "open files",
                State::Warning,
                found,
                "raise it where a corpus has thousands of shards: ulimit -n 65536",
            )
        }
        Some(files) => Finding::ok("open files", format!("{files} for a process")),
        None => Finding::ok("open files", "no limit"),
    }
}

/// What `df` says is free at a path, in bytes.
fn free_at(path: &Path) -> Option<u64> {
    let output = Command::new("df").args(["--output=avail", "-B1"]).arg(path).output().ok()?;
    String::from_utf8_lossy(&output.stdout).lines().nth(1)?.trim().parse().ok()
}

fn shared_memory() -> Finding {
    match free_at(Path::new("/dev/shm")) {
        Some(free) if free < SHARED_BYTES => Finding::new(
            "shared memory",
            State::Warning,
            format!("{} MiB free in /dev/shm", free >> 20),
            "give a container more, such as --shm-size=1g: ranks on one host talk through it",
        ),
        Some(free) => Finding::ok("shared memory", format!("{} free in /dev/shm", gib(free))),
        None => Finding::new(
            "shared memory",
            State::Warning,
            "there is no /dev/shm",
            "ranks on one host talk through it",
        ),
    }
}

/// Whether a corpus is there: its fingerprint.
pub fn corpus(folder: &Path) -> Finding {
    match Corpus::open_lazily(folder) {
        Ok(corpus) => Finding::ok(CORPUS, format!("{}: {}", folder.display(), corpus.fingerprint())),
        Err(error) => {
            Finding::new(CORPUS, State::Missing, error.to_string(), "copy it to this host, or mount it")
        }
    }
}

/// Whether a run can lie in `folder`: written, flushed, locked.
fn disk(folder: &Path) -> Finding {
    let attempt = || -> std::io::Result<(f64, bool)> {
        // Without a name from the start, so that nothing is left behind by whoever is killed here.
        let mut file = tempfile::tempfile_in(folder)?;
        let begun = Instant::now();
        file.write_all(&vec![1; TRIAL_BYTES])?;
        file.sync_all()?;
        Ok((TRIAL_BYTES as f64 / 1e6 / begun.elapsed().as_secs_f64(), file.try_lock().is_ok()))
    };
    let tried = attempt();
    let place = folder.display();
    match tried {
        Ok((speed, true)) => {
            let free = free_at(folder).map_or(String::new(), |free| format!(", {} free", gib(free)));
            Finding::ok("disk", format!("{place}: {speed:.0} MB/s written and flushed{free}"))
        }
        Ok((_, false)) => Finding::new(
            "disk",
            State::Warning,
            format!("{place}: no locks"),
            "nothing keeps two jobs out of one run folder there; mount it with locks",
        ),
        Err(error) => {
            Finding::new("disk", State::Missing, format!("{place}: {error}"), "choose a writable --folder")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_can_hold_runs_is_told_from_one_that_cannot() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(disk(dir.path()).state, State::Ok);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let gone = disk(&dir.path().join("gone"));
        assert_eq!(
            (gone.state, gone.advice.as_deref()),
            (State::Missing, Some("choose a writable --folder"))
        );
    }

    #[test]
    fn what_is_not_needed_is_no_illness() {
        assert!(says("no-such-program", &[]).is_none());
        assert_eq!(says("echo", &["a b"]).as_deref(), Some("a b"));
        assert!(processor().found.contains(" core") && memory().found.contains("GiB"));
    }
}
