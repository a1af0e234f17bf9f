//! Scripts for PBS and LSF under a batch system that is made up: `fake.sh` in the place of their programs, on this host.

mod fake;

use std::fs;
use std::time::Duration;

use fake::FakeBatch;
use segue_tests::{Workplace, alone, repeats, succeed, wait_for};

/// Longest wait for a job.
const PATIENCE: Duration = Duration::from_secs(90);
/// Steps of 0.2 s: two micro-steps on each of two ranks.
const SLOW: &str = "export SEGUE_FAULTS='slow=100@step.backward:hit=1..'";
const STEPS: [&str; 4] = ["train.steps=60", "checkpoint.every=0", "log.every=1", "eval.every=0"];

fn rows_of(place: &Workplace, run: &str) -> usize {
    fs::read_to_string(place.path(run).join("metrics.jsonl")).unwrap_or_default().lines().count()
}

fn disturbed_at(place: &Workplace, run: &str) {
    wait_for("ten steps", PATIENCE, || rows_of(place, run) > 10);
}

/// How often a job is interrupted depends on the machine: once at least.
#[track_caller]
fn interrupted_then_done(codes: &[String], interrupted: &str) {
    let (last, before) = codes.split_last().expect("a start");
    assert!(last == "0" && !before.is_empty() && before.iter().all(|code| code == interrupted), "{codes:?}");
}

/// The exit codes of jobs that submit each other, up to the first that has nothing left to do.
fn until_done(batch: &FakeBatch) -> Vec<String> {
    let mut codes = Vec::new();
    while codes.last().is_none_or(|code| code == "75") {
        codes.extend(batch.codes_at_end(&(codes.len() + 1).to_string(), PATIENCE));
    }
    codes
}

/// A job stops in time for its limit, with a checkpoint, and is queued again: by `qrerun`, and by another submission where that is forbidden.
#[test]
fn a_pbs_job_stops_before_its_limit_and_is_queued_again() {
    let place = Workplace::new();
    succeed(alone(&place.pretrain("one", &STEPS)));
    for (run, qrerun) in [("rerun", "yes"), ("anew", "no")].into_iter().take(repeats(1, 2)) {
        let batch = FakeBatch::new(&[("FAKE_QRERUN", qrerun)]);
        let limit = ["--time", "00:00:20", "--warning", "12", "--setup", SLOW];
        let jobs = batch.submit("pbs", &place, &limit, &place.pretrain(run, &STEPS));
        assert_eq!(jobs, ["1.fake"]);
        let codes = match qrerun {
            "yes" => batch.codes_at_end("1", PATIENCE),
            _ => until_done(&batch),
        };
        // A job that calls `qrerun` is killed by it where that is allowed.
        interrupted_then_done(&codes, if qrerun == "yes" { "137" } else { "75" });
        assert!(!batch.ran_into_its_limit(), "{run}: {}", batch.said("1"));
        assert!(batch.said("1").contains("stopped after step"), "{run}: {}", batch.said("1"));
        assert!(batch.calls().contains("qrerun 1.fake\n"));
        let script = place.text("job.sh");
        let submissions = batch.calls().matches(&format!("qsub {script}\n")).count();
        assert_eq!(submissions, if qrerun == "yes" { 1 } else { codes.len() }, "{}", batch.calls());
        place.assert_same("one", run);
    }
}

/// `qsig` leaves a checkpoint and queues the job again; `qdel` leaves one and ends it, and the next submission goes on.
#[test]
#[ignore = "takes minutes: see `make test-slurm`"]
fn pbs_jobs_are_signalled_and_deleted_with_a_checkpoint() {
    let place = Workplace::new();
    succeed(alone(&place.pretrain("one", &STEPS)));
    let batch = FakeBatch::new(&[]);
    let options = ["--setup", SLOW];
    let signalled = place.pretrain("signalled", &STEPS);
    batch.submit("pbs", &place, &options, &signalled);
    disturbed_at(&place, "signalled");
    batch.run("qsig", &["-s", "SIGUSR1", "1.fake"]);
    interrupted_then_done(&batch.codes_at_end("1", PATIENCE), "137");
    place.assert_same("one", "signalled");

    let deleted = place.pretrain("deleted", &STEPS);
    batch.submit("pbs", &place, &options, &deleted);
    disturbed_at(&place, "deleted");
    batch.run("qdel", &["2.fake"]);
    assert_eq!(batch.codes_at_end("2", PATIENCE), ["143"], "{}", batch.said("2"));
    assert!(place.path("deleted/checkpoints/latest/config.json").is_file(), "{}", batch.said("2"));
    assert!(rows_of(&place, "deleted") < 60, "the job was done before it was deleted");
    assert!(!batch.calls().contains("qrerun 2"), "{}", batch.calls());
    batch.submit("pbs", &place, &options, &deleted);
    assert_eq!(batch.codes_at_end("3", PATIENCE), ["0"], "{}", batch.said("3"));
    place.assert_same("one", "deleted");
}

/// Jobs of a chain begin where the one before stopped; those that find nothing to do change nothing.
#[test]
#[ignore = "takes minutes: see `make test-slurm`"]
fn a_chain_of_pbs_jobs_goes_on_from_one_to_the_next() {
    let place = Workplace::new();
    succeed(alone(&place.pretrain("one", &STEPS)));
    let batch = FakeBatch::new(&[]);
    let options = ["--time", "00:00:20", "--warning", "12", "--setup", SLOW, "--chain", "6"];
    let jobs = batch.submit("pbs", &place, &options, &place.pretrain("run", &STEPS));
    assert_eq!(jobs, ["1.fake", "2.fake", "3.fake", "4.fake", "5.fake", "6.fake"]);
    let codes: Vec<String> =
        (1..=6).map(|job| batch.codes_at_end(&job.to_string(), PATIENCE).concat()).collect();
    let done = codes.iter().position(|code| code == "0").expect("a job that made the last step");
    interrupted_then_done(&codes[..=done], "75");
    // On a busy machine one may be told to stop before it finds that there is nothing to do.
    assert!(codes[done..].iter().all(|code| ["0", "75"].contains(&code.as_str())), "{codes:?}");
    assert!(batch.calls().contains("qsub -W depend=afterany:2.fake "), "{}", batch.calls());
    assert!(!batch.calls().contains("qrerun"), "{}", batch.calls());
    place.assert_same("one", "run");
}

#[test]
#[ignore = "takes minutes: see `make test-slurm`"]
fn jobs_of_a_pbs_array_are_runs_of_their_own() {
    let place = Workplace::new();
    let seeded = |seed: &str| [&STEPS[..], &[&format!("train.seed={seed}")]].concat().join("\n");
    let words = |text: &str| text.lines().map(String::from).collect::<Vec<_>>();
    let train = |run: &str, seed: &str| {
        let steps = words(&seeded(seed));
        place.pretrain(run, &steps.iter().map(String::as_str).collect::<Vec<_>>())
    };
    for seed in ["1", "2"] {
        succeed(alone(&train(&format!("one-{seed}"), seed)));
    }
    let batch = FakeBatch::new(&[]);
    assert_eq!(
        batch.submit("pbs", &place, &["--array", "1-2"], &train("run-{index}", "{index}")),
        ["1[].fake"]
    );
    for seed in ["1", "2"] {
        let job = format!("1[{seed}]");
        assert_eq!(batch.codes_at_end(&job, PATIENCE), ["0"], "{}", batch.said(&job));
        place.assert_same(&format!("one-{seed}"), &format!("run-{seed}"));
    }
}

/// The others of the array are not run again with it.
#[test]
#[ignore = "takes minutes: see `make test-slurm`"]
fn a_job_of_a_pbs_array_is_queued_again_alone() {
    let place = Workplace::new();
    succeed(alone(&place.pretrain("one", &STEPS)));
    for (run, qrerun) in [("rerun", "yes"), ("anew", "no")] {
        let batch = FakeBatch::new(&[("FAKE_QRERUN", qrerun)]);
        let (of_each, second) = (format!("{run}-{{index}}"), format!("{run}-2"));
        let options = ["--array", "1-2", "--setup", SLOW];
        batch.submit("pbs", &place, &options, &place.pretrain(&of_each, &STEPS));
        disturbed_at(&place, &second);
        batch.run("qsig", &["-s", "SIGUSR1", "1[2].fake"]);
        assert_eq!(batch.codes_at_end("1[1]", PATIENCE), ["0"], "{}", batch.said("1[1]"));
        let codes = batch.codes_at_end("1[2]", PATIENCE);
        match qrerun {
            "yes" => interrupted_then_done(&codes, "137"),
            _ => {
                assert_eq!(codes, ["75"], "{}", batch.said("1[2]"));
                assert_eq!(batch.codes_at_end("2[2]", PATIENCE), ["0"], "{}", batch.said("2[2]"));
                assert!(batch.calls().contains("qsub -J 2-3:2 ") && batch.said("2[3]").is_empty());
            }
        }
        place.assert_same("one", &format!("{run}-1"));
        place.assert_same("one", &second);
    }
}

/// LSF warns a job, and queues it again by its exit code. A minute has five seconds here.
#[test]
fn an_lsf_job_is_warned_before_its_limit_and_queued_again() {
    let place = Workplace::new();
    succeed(alone(&place.pretrain("one", &STEPS)));
    let batch = FakeBatch::new(&[("FAKE_MINUTE", "5")]);
    let options = ["--time", "00:04:00", "--warning", "120", "--setup", SLOW];
    let jobs = batch.submit("lsf", &place, &options, &place.pretrain("run", &STEPS));
    assert_eq!(jobs, ["1"]);
    interrupted_then_done(&batch.codes_at_end("1", PATIENCE), "75");
    assert!(!batch.ran_into_its_limit(), "{}", batch.said("1"));
    place.assert_same("one", "run");
}
