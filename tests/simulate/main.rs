//! A simulated cluster: whole jobs in one process, each history a function of its seed.
//!
//! `make simulate SEEDS=N` runs many; `make simulate SEED=N` tells one history in full.
//!
//! Every history has to end with the bytes of the run that nothing befell, or with an exit code that is documented and that something
//! led to. On the way, an attempt that nothing befell ends well, a checkpoint that was told to be written is there whatever happens to the
//! power, no checkpoint holds what is no number, and no rank writes into a run that a later attempt has.

mod cluster;
mod disk;
mod plan;
mod plants;
mod schedule;

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::Instant;

use cluster::{End, Job, run};
use disk::Disk;
use plan::{Kind, Plan};
use plants::{Plant, SEGMENT};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use schedule::{ProcessState, World};
use segue_collectives::local::Local;
use segue_configs::Config;
use segue_dataloader::{BuildOptions, Preset, build};
use segue_engine::checkpoint::{CHECKPOINTS, list, read_tensors};
use segue_families::MODELS;
use segue_publish::clean_up;
use segue_random::{Draws, Purpose};
use segue_tests::{files_of, repeats, text};
use segue_world::enter;
use tch::Tensor;
use tempfile::TempDir;

/// Steps of a job.
const STEPS: u64 = 12;
/// Points and waits that a job of one rank comes by, about, for each of its ranks.
const VISITS: u64 = 360;
/// Histories of `make simulate`.
const MANY: u64 = 10_000;
/// Histories within which a planted bug has to be found.
const SOON: u64 = 500;
/// Exit codes of a training command, as docs/book/src/reference/exit-codes.md has them.
const DOCUMENTED: [i32; 14] = [0, 64, 65, 66, 69, 70, 73, 74, 75, 78, 80, 81, 82, 137];

/// A corpus, and how a job over it ends that nothing befalls.
struct Scene {
    folder: TempDir,
    expected: BTreeMap<String, Vec<u8>>,
}

fn scene() -> &'static Scene {
    static SCENE: OnceLock<Scene> = OnceLock::new();
    SCENE.get_or_init(|| {
        segue_kernels::libtorch::set_threads(1);
        let folder = in_memory();
        let input = folder.path().join("text");
        fs::write(&input, text(6_000, 1)).unwrap();
        build(&BuildOptions::new(Preset::Enwik8, vec![input], folder.path().join("corpus")), &()).unwrap();
        let run = folder.path().join("alone");
        let mut config = config(folder.path(), &run);
        let job = (segue_family::of(&config.model).open)(&mut config).unwrap();
        job.train(&config, segue_kernels::Compute::CPU, &Local, &|| false, &mut |_| {}).unwrap();
        let expected = last_checkpoint(&run);
        Scene { folder, expected }
    })
}

/// A folder in memory, where there is one: the disk is the simulation's.
fn in_memory() -> TempDir {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => tempfile::tempdir_in(memory).unwrap(),
        false => tempfile::tempdir().unwrap(),
    }
}

fn config(scene: &Path, run: &Path) -> Config {
    let keys = [
        "model.d_model=8",
        "model.n_head=1",
        "model.d_inner=8",
        "model.n_layer=1",
        "model.mem_len=4",
        "model.dropout=0.1",
        "train.lanes=4",
        "train.micro_batch=1",
        "train.bucket_bytes=2048",
        "train.check_replicas_every=1",
        "optim.lr=0.01",
        "schedule.kind=constant",
        "average.kind=exponential",
        "eval.every=6",
        "eval.lanes=2",
        "checkpoint.every=3",
        "checkpoint.keep=2",
        "log.every=1",
    ];
    let own = [
        format!("train.segment={SEGMENT}"),
        format!("eval.segment={SEGMENT}"),
        format!("train.steps={STEPS}"),
        format!("run.dir={}", run.display()),
        format!("data.corpus={}", scene.join("corpus").display()),
    ];
    let all: Vec<String> = keys.iter().map(|key| key.to_string()).chain(own).collect();
    MODELS.load(None, &all).unwrap().config
}

/// What counts of a run's last checkpoint.
fn last_checkpoint(run: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = files_of(&run.join(format!("checkpoints/step-{STEPS:08}")));
    files.retain(|name, _| name.ends_with(".safetensors"));
    files
}

/// Steps of the checkpoints of a run, not of those set aside, that hold a NaN or an infinity. A file that cannot be read is found by whoever resumes.
fn spoiled_checkpoints(run: &Path) -> Vec<u64> {
    let is_spoiled = |tensor: &Tensor| !tensor.isfinite().all().int64_value(&[]).is_positive();
    let is_spoiled = |folder: &Path| {
        let files = files_of(folder).into_keys().filter(|name| name.ends_with(".safetensors"));
        let tables = files.filter_map(|name| read_tensors(&folder.join(name)).ok());
        tables.flat_map(|table| table.tensors.into_values()).any(|tensor| is_spoiled(&tensor))
    };
    let checkpoints = list(&run.join(CHECKPOINTS)).unwrap_or_default();
    checkpoints.into_iter().filter(|(_, folder)| is_spoiled(folder)).map(|(step, _)| step).collect()
}

/// How a history went.
struct History {
    end: End,
    violations: Vec<String>,
    trace: u64,
    story: String,
}

/// What a history begins with.
struct Beginning {
    ranks: usize,
    min_ranks: usize,
    spare: usize,
    plan: Plan,
}

impl Beginning {
    fn of(seed: u64) -> Self {
        let mut draws = Draws::new(seed, Purpose::Simulation, &[1]);
        let ranks = [1, 2, 4, 4][draws.below(4) as usize];
        let min_ranks = [1, ranks][draws.below(2) as usize];
        let spare = draws.below(2) as usize;
        // Alone, no rank can tell that a bit is another.
        let compared = min_ranks > 1;
        let plan = Plan::draw(&mut draws, ranks, VISITS * ranks as u64, compared);
        Self { ranks, min_ranks, spare, plan }
    }

    fn has_nan(&self) -> bool {
        self.plan.faults.iter().any(|fault| fault.kind == Kind::Nan)
    }
}

fn history(seed: u64, plant: Plant, tell: bool) -> History {
    let scene = scene();
    let Beginning { ranks, min_ranks, spare, plan } = Beginning::of(seed);
    let faults = plan.faults.clone();
    let run_folder = scene.folder.path().join(format!("{plant:?}-{seed}-{}", number()));
    fs::create_dir(&run_folder).unwrap();
    let config = config(scene.folder.path(), &run_folder);
    let world = World::new(seed, plan, Disk::new(&run_folder, plant == Plant::NoSync), tell);
    let end = run(&Job { config: &config, ranks, min_ranks, spare, plant }, &world);
    let mut state = world.state();
    let has = |wanted: fn(Kind) -> bool| faults.iter().any(|fault| wanted(fault.kind));
    let read_only =
        |kind| matches!(kind, Kind::Refuse { error, .. } if error == rustix::io::Errno::ROFS.raw_os_error());
    match end.code {
        0 if last_checkpoint(&run_folder) != scene.expected => {
            state.violation("it ends with other bytes".into())
        }
        0 => {}
        80 if has(|kind| kind == Kind::Nan) => {}
        // Out of reach, a process that stands still holds the run.
        75 => state.violation("whoever asked it to stop has started it again, and it does not end".into()),
        82 if !has(|kind| matches!(kind, Kind::Stop | Kind::Cut)) => {
            state.violation("nothing stood still, and it ends with 82".into())
        }
        81 if !has(|kind| matches!(kind, Kind::Flip | Kind::Nan)) => {
            state.violation("nothing was spoiled, and it ends with 81".into())
        }
        73 if has(read_only) || has(|kind| kind == Kind::Stop) && has(|kind| kind == Kind::Cut) => {}
        code @ (64 | 65 | 66 | 73 | 78 | 80) => {
            state.violation(format!("nothing leads to its end with {code}"))
        }
        code if !DOCUMENTED.contains(&code) => {
            state.violation(format!("no document tells of its end with {code}"))
        }
        _ => {}
    }
    for step in spoiled_checkpoints(&run_folder) {
        state.violation(format!("the checkpoint of step {step} holds what is no number"));
    }
    let (violations, trace, visits) = (state.violations.clone(), state.trace, state.plan.visits);
    let story = state.story().replace(&run_folder.display().to_string(), "RUN");
    drop(state);
    let _ = fs::remove_dir_all(&run_folder);
    History {
        end,
        violations,
        trace,
        story: format!("{faults:#?}\n{ranks} ranks, at least {min_ranks}; {visits} visits\n{story}"),
    }
}

fn number() -> u64 {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

/// Runs the histories of all `seeds`, one on each processor at a time; says how they ended.
fn histories(seeds: Range<u64>) -> BTreeMap<i32, u64> {
    let (begun, next, ends) = (Instant::now(), AtomicU64::new(seeds.start), Mutex::new(BTreeMap::new()));
    let all = seeds.end - seeds.start;
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let history = history(seed, Plant::Nothing, false);
            assert!(
                history.violations.is_empty(),
                "seed {seed}: {}\n`make simulate SEED={seed}` tells its history",
                history.violations.join("\n")
            );
            *ends.lock().unwrap().entry(history.end.code).or_insert(0) += 1;
            let done = seed + 1 - seeds.start;
            if done.is_multiple_of(1000) {
                eprintln!("{done} of {all} histories in {:.0} s", begun.elapsed().as_secs_f64());
            }
        }
    };
    thread::scope(|scope| {
        let processors = thread::available_parallelism().map_or(1, |count| count.get());
        (0..processors).for_each(|_| _ = scope.spawn(work));
    });
    let ends = ends.into_inner().unwrap();
    eprintln!("{all} histories in {:.0} s; by exit code: {ends:?}", begun.elapsed().as_secs_f64());
    ends
}

#[test]
fn every_history_ends_with_the_bytes_of_the_undisturbed_run_or_with_a_documented_code() {
    let few = repeats(50, 200) as u64;
    let ends = histories(0..few);
    assert!(ends[&0] > few / 2, "few get to their end: {ends:?}");
}

/// `make simulate SEEDS=N FROM=SEED`, and with `SEED=N` one alone, in words.
#[test]
#[ignore = "takes long: see `make simulate`"]
fn many_histories() {
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    match number("SEED") {
        Some(seed) => tell(seed),
        None => {
            let first = number("FROM").unwrap_or(0);
            histories(first..first + number("SEEDS").unwrap_or(MANY));
        }
    }
}

fn tell(seed: u64) {
    let history = history(seed, Plant::Nothing, true);
    eprintln!("{}{:?}", history.story, history.end);
    assert!(history.violations.is_empty(), "{:#?}", history.violations);
}

#[test]
fn one_seed_is_one_history() {
    for seed in 0..12 {
        let (one, other) = (history(seed, Plant::Nothing, true), history(seed, Plant::Nothing, true));
        assert_eq!((one.end, one.trace), (other.end, other.trace), "seed {seed}");
        assert!(one.story == other.story, "seed {seed}");
    }
}

#[test]
fn planted_bugs_are_found_soon() {
    for plant in [Plant::NoSync, Plant::SkipsACall, Plant::LateCursor, Plant::UnseenNan] {
        // No other history has what this one hides.
        let shows = |seed: &u64| plant != Plant::UnseenNan || Beginning::of(*seed).has_nan();
        let found = (0..SOON).filter(shows).find_map(|seed| {
            let violations = history(seed, plant, false).violations;
            violations.into_iter().next().map(|what| (seed, what))
        });
        let (seed, what) = found.unwrap_or_else(|| panic!("{plant:?} is not found within {SOON} histories"));
        eprintln!("{plant:?} is found by seed {seed}: {}", what.lines().next().unwrap_or_default());
    }
}

/// The folder that a killed writer was replacing goes only once its replacement is on the disk (found by seed 5118).
#[test]
fn an_exchange_is_on_the_disk_before_the_old_folder_goes() {
    for seed in 0..64 {
        let dir = in_memory();
        let (target, part) = (dir.path().join("model"), dir.path().join(".model.part"));
        for (folder, text) in [(&target, "old"), (&part, "new")] {
            fs::create_dir(folder).unwrap();
            ["a", "b"].iter().for_each(|name| fs::write(folder.join(name), text).unwrap());
        }
        let world = World::new(seed, Plan::default(), Disk::new(dir.path(), false), false);
        // As it is when the writer is killed right after the exchange.
        renameat_with(CWD, &target, CWD, &part, RenameFlags::EXCHANGE).unwrap();
        let (_, thread) = world.new_process(ProcessState::default());
        enter(world.clone(), thread, || clean_up(dir.path(), |_| true).unwrap());
        let mut state = world.state();
        let state = &mut *state;
        state.disk.lose_power(&mut state.draws);
        let files = files_of(&target);
        assert!(["old", "new"].iter().any(|text| files.values().all(|file| file == text.as_bytes())));
        assert_eq!(files.len(), 2, "seed {seed}: {files:?}");
    }
}
