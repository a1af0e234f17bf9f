//! One run that is killed again and again at random moments, and goes on each time: `make kills`, which takes half an hour for the
//! 2,000 kills there are unless `SEGUE_KILLS` says otherwise. `SEGUE_KILLS_SEED` begins another history.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use segue_random::{Draws, Purpose};
use segue_tests::{Workplace, alone, at_once, children, stderr, succeed, wait_for};
use serde_json::Value;

const RANKS: usize = 2;
/// Steps between checkpoints.
const EVERY: u64 = 20;
/// A rank dies at most this long after all have begun, in milliseconds: in about half of the attempts before the first step.
const WITHIN: u64 = 1500;

#[test]
#[ignore = "takes half an hour: make kills"]
fn a_run_that_is_killed_again_and_again_ends_with_the_same_bytes() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let kills = number("SEGUE_KILLS").unwrap_or(2000);
    let mut draws = Draws::new(number("SEGUE_KILLS_SEED").unwrap_or(1), Purpose::Bench, &[1]);
    let (place, begun) = (Workplace::new(), Instant::now());
    let arguments = |run: &str, steps: u64| {
        let steps = format!("train.steps={steps}");
        let every = format!("checkpoint.every={EVERY}");
        place.pretrain(run, &[&steps, &every, "eval.every=200", "log.every=1", "checkpoint.keep=2"])
    };
    let mut supervisor = Supervisor(launch(&arguments("run", 10_000_000)).spawn().expect("it starts"));
    let (mut ranks, mut lost, mut told) = (Vec::new(), Lost::default(), None);
    for kill in 1..=kills {
        wait_for("ranks of another attempt", Duration::from_secs(120), || {
            let running: Vec<u32> = children(supervisor.0.id()).into_iter().flat_map(children).collect();
            let others = running.len() == RANKS && running.iter().all(|rank| !ranks.contains(rank));
            if others {
                ranks = running;
            }
            others
        });
        // The moment is what is drawn at random; nothing is synchronised by it.
        std::thread::sleep(Duration::from_millis(draws.below(WITHIN)));
        let victim = ranks[draws.below(RANKS as u64) as usize];
        let newest = reached(&place, "run");
        let (last, at) = last_step(&place, "run");
        // What was told before the last kill has been counted.
        if at != told {
            told = at;
            lost.count(last.saturating_sub(newest));
        }
        // SAFETY: plain system call. Were the rank gone by itself, its number would hardly be another's within this second.
        unsafe { libc::kill(victim as i32, libc::SIGKILL) };
        if kill % 100 == 0 {
            let took = begun.elapsed().as_secs_f64();
            println!("{took:.0} s: {kill} kills, at step {newest}, {lost:?}");
        }
    }
    // SAFETY: plain system call, to a process of ours.
    unsafe { libc::kill(supervisor.0.id() as i32, libc::SIGTERM) };
    assert_eq!(supervisor.0.wait().expect("it ends").code(), Some(75));
    let took = begun.elapsed();
    let end = reached(&place, "run") + EVERY;
    let undisturbed = Instant::now();
    let output = launch(&arguments("whole", end)).output().expect("it runs");
    assert!(output.status.success(), "{}", stderr(&output));
    let undisturbed = undisturbed.elapsed();
    succeed(alone(&arguments("run", end)));
    place.assert_same("whole", "run");
    println!(
        "{kills} kills, {end} steps: {:.0} s, and {:.0} s where nothing happens; {lost:?}",
        took.as_secs_f64(),
        undisturbed.as_secs_f64(),
    );
    // While a checkpoint is written, training goes on.
    assert!(lost.most <= 2 * EVERY, "{lost:?}");
}

/// Steps that kills have cost.
#[derive(Debug, Default)]
struct Lost {
    all: u64,
    most: u64,
    /// How often it were more than there are between checkpoints: those made while one was written.
    beyond_one_interval: u64,
}

impl Lost {
    fn count(&mut self, steps: u64) {
        self.all += steps;
        self.most = self.most.max(steps);
        self.beyond_one_interval += u64::from(steps > EVERY);
    }
}

/// Ends with the test, however that ends.
struct Supervisor(Child);

impl Drop for Supervisor {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}

fn launch(job: &[String]) -> Command {
    let ranks = RANKS.to_string();
    let patient = ["--restarts", "1000000", "--fruitless", "1000000", "--block-after", "1000000"];
    // mpirun itself may stand still for good where a child of its dies as it begins; seen once in 600 kills.
    let mut words = vec!["launch", "--json", "-n", &ranks, "--back-off", "0", "--start-within", "30"];
    words.extend(patient);
    words.extend(job.iter().map(String::as_str).filter(|word| *word != "--json"));
    let mut command = alone(&words);
    // Whoever is left of an attempt has nothing to finish: mpirun need not wait for it.
    at_once(&mut command).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// The step of the run's newest checkpoint.
fn reached(place: &Workplace, run: &str) -> u64 {
    let latest = fs::read_link(place.path(run).join("checkpoints/latest"));
    let step = latest.ok().and_then(|name| name.to_str()?.strip_prefix("step-")?.parse().ok());
    step.unwrap_or(0)
}

/// The last step that the run tells of, and when it was told.
fn last_step(place: &Workplace, run: &str) -> (u64, Option<SystemTime>) {
    let path = place.path(run).join("metrics.jsonl");
    let told = fs::metadata(&path).and_then(|found| found.modified()).ok();
    let log = fs::read_to_string(path).unwrap_or_default();
    let lines = log.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    (lines.filter_map(|line| line["step"].as_u64()).next().unwrap_or(0), told)
}
