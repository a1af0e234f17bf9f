//! Whatever can happen to a run in weeks, one after the other: `make soak`, which takes 20 minutes, or as many as `SEGUE_SOAK_MINUTES`
//! says. `SEGUE_SOAK_SEED` begins another history. Beside it, whatever strangers can do to a supervisor and a page: `strangers.rs`.

mod strangers;

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use segue_random::{Draws, Purpose};
use segue_tests::{Workplace, alone, children, end_where_stuck, mpirun, stderr, succeed};

/// Steps of a run, between two checkpoints, and of one attempt at most.
const STEPS: u64 = 240;
const EVERY: u64 = 8;
const ATTEMPT: u64 = 60;

/// Arguments that train in the run folder of that name.
type Arguments<'a> = &'a dyn Fn(&str) -> Vec<String>;

/// What ends an attempt, or what it survives.
#[derive(Clone, Copy)]
enum Trouble {
    /// SIGKILL of one rank at a random moment, from outside.
    Kill,
    /// SIGKILL of one rank at a named point of a random step.
    KillAt(&'static str),
    /// SIGTERM of one rank at a named point: all stop with a checkpoint.
    TermAt(&'static str),
    /// SIGSTOP of one rank, and SIGCONT a little later: nothing but time is lost.
    Pause,
    /// A disk that is full for a while.
    Full,
    /// A disk that fails at one call.
    Broken(&'static str),
    /// A gradient that is not a number: the run stops, and the command is run again.
    Nan,
    /// A bit of a weight flips on one rank of several.
    Flip,
    /// None.
    Nothing,
}

const TROUBLES: [(&str, Trouble); 16] = [
    ("SIGKILL at a random moment", Trouble::Kill),
    ("SIGKILL at a random moment", Trouble::Kill),
    ("SIGKILL in backward", Trouble::KillAt("step.backward")),
    ("SIGKILL before an update", Trouble::KillAt("step.update")),
    ("SIGKILL in an evaluation", Trouble::KillAt("evaluation.part")),
    ("SIGKILL while a checkpoint is staged", Trouble::KillAt("checkpoint.stage")),
    ("SIGKILL before a file is flushed", Trouble::KillAt("folder.sync-file")),
    ("SIGKILL before a checkpoint is renamed", Trouble::KillAt("folder.rename")),
    ("SIGTERM in forward", Trouble::TermAt("step.forward")),
    ("SIGTERM in an evaluation", Trouble::TermAt("evaluation.part")),
    ("SIGSTOP and SIGCONT", Trouble::Pause),
    ("full disk", Trouble::Full),
    ("I/O error of a rename", Trouble::Broken("folder.rename")),
    ("gradient that is not a number", Trouble::Nan),
    ("flipped bit in a weight", Trouble::Flip),
    ("nothing", Trouble::Nothing),
];

#[test]
#[ignore = "takes 20 minutes: make soak"]
fn mixed_faults_leave_no_trace() {
    let limit = limit();
    let mut draws = Draws::new(number("SEGUE_SOAK_SEED").unwrap_or(1.0) as u64, Purpose::Bench, &[]);
    let (place, begun) = (Workplace::new(), Instant::now());
    let steps = [format!("train.steps={STEPS}"), format!("checkpoint.every={EVERY}"), "eval.every=20".into()];
    let check = "train.check_replicas_every=1".to_string();
    let common: Vec<&str> = steps.iter().chain([&check]).map(String::as_str).collect();
    // As many steps as an epoch has twenty.
    let task: Vec<&str> = common[1..].iter().copied().chain(["task.epochs=12"]).collect();
    let kinds: [(&str, Arguments); 3] = [
        ("transfo-xl", &|run| place.pretrain(run, &common)),
        ("xlnet", &|run| place.pretrain_xlnet(run, &common)),
        ("task", &|run| place.finetune(run, &task)),
    ];
    for (kind, command) in kinds {
        succeed(alone(&command(&format!("{kind}-whole"))));
    }
    let (mut suffered, mut attempts, mut rounds) = (BTreeMap::new(), 0, 0);
    while begun.elapsed() < limit {
        for (kind, command) in kinds {
            let run = format!("{kind}-{rounds}");
            let args = command(&run);
            while reached(&place, &run) < STEPS {
                attempts += 1;
                assert!(attempts < 20_000, "{run} does not come to its end");
                let (name, trouble) = TROUBLES[draws.below(TROUBLES.len() as u64) as usize];
                attempt(&args, trouble, reached(&place, &run), &mut draws);
                *suffered.entry(name).or_insert(0) += 1;
            }
            place.assert_same(&format!("{kind}-whole"), &run);
            fs::remove_dir_all(place.path(&run)).expect("a run of ours");
        }
        rounds += 1;
        println!(
            "{:.0} s: {rounds} rounds of three runs, {attempts} attempts: {suffered:?}",
            begun.elapsed().as_secs_f64()
        );
    }
}

/// A number of the environment.
fn number(name: &str) -> Option<f64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// How long a soak takes, or may take.
fn limit() -> Duration {
    Duration::from_secs_f64(60.0 * number("SEGUE_SOAK_MINUTES").unwrap_or(20.0))
}

/// The step of the run's last checkpoint.
fn reached(place: &Workplace, run: &str) -> u64 {
    let latest = fs::read_link(place.path(run).join("checkpoints/latest"));
    let step = latest.ok().and_then(|name| name.to_str()?.strip_prefix("step-")?.parse().ok());
    step.unwrap_or(0)
}

/// Starts the run once, on one rank or several. A code that is not documented fails the test.
fn attempt(args: &[String], trouble: Trouble, reached: u64, draws: &mut Draws) {
    let ranks = [1, 2, 2, 4][draws.below(4) as usize];
    let (rank, step) = (draws.below(ranks), reached + 1 + draws.below(2 * EVERY));
    let plan = match trouble {
        Trouble::KillAt(point) => format!("kill@{point}:rank={rank}:step={step}"),
        Trouble::TermAt(point) => format!("term@{point}:rank={rank}:step={step}"),
        Trouble::Full => {
            format!("no-space@tensors.write:rank={rank}:hit={}..{}", 1 + draws.below(8), 8 + draws.below(8))
        }
        Trouble::Broken(point) => format!("io-error@{point}:hit={}", 1 + draws.below(3)),
        Trouble::Nan => format!("nan@gradient:step={step}"),
        Trouble::Flip => format!("flip@weights:rank={rank}:step={step}"),
        Trouble::Kill | Trouble::Pause | Trouble::Nothing => String::new(),
    };
    // A flip on the one rank there is shows nowhere: that is what several ranks are compared for.
    let plan = if ranks == 1 && matches!(trouble, Trouble::Flip) { String::new() } else { plan };
    let stop_at = format!("train.stop_at={}", (reached + 1 + draws.below(ATTEMPT)).min(STEPS));
    let args = [args, &[stop_at]].concat();
    let mut command = if ranks == 1 { alone(&args) } else { mpirun(ranks as usize, &args) };
    command.env("SEGUE_FAULTS", &plan).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let job = command.spawn().expect("the job starts");
    let _guard = (ranks > 1).then(|| end_where_stuck(job.id()));
    if let Trouble::Kill | Trouble::Pause = trouble {
        let moment = Duration::from_millis(300 + draws.below(2500));
        disturb(job.id(), ranks, rank as usize, moment, matches!(trouble, Trouble::Pause));
    }
    let output = job.wait_with_output().expect("the job ends");
    // 69: another rank is gone; 137: a rank that was killed, as mpirun tells it; none: the process itself was.
    let documented = [None, Some(0), Some(69), Some(74), Some(75), Some(80), Some(81), Some(137)];
    assert!(documented.contains(&output.status.code()), "{plan}: {:?}\n{}", output.status, stderr(&output));
}

/// Kills a rank after `moment`, or stops it for a while.
fn disturb(job: u32, ranks: u64, rank: usize, moment: Duration, pause: bool) {
    // The moment is what is drawn at random; nothing is synchronised by it.
    std::thread::sleep(moment);
    let of_job = if ranks == 1 { vec![job] } else { children(job) };
    let Some(victim) = of_job.get(rank).copied() else { return };
    let signal = |name: &str| {
        // A rank that has ended by now hears nothing.
        let _ = Command::new("kill").args([name, &victim.to_string()]).stderr(Stdio::null()).status();
    };
    match pause {
        false => signal("-KILL"),
        true => {
            signal("-STOP");
            std::thread::sleep(Duration::from_millis(400));
            signal("-CONT");
        }
    }
}
