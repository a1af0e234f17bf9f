//! A real Slurm on this machine, with two nodes: what a batch system does to a job. `make test-slurm` installs it and runs these.

mod cluster;

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use cluster::{PATIENCE, Slurm};
use segue_tests::{Workplace, alone, finish, stderr, succeed, wait_for};

/// A job that is long enough to be disturbed.
const STEPS: [&str; 4] = ["train.steps=900", "checkpoint.every=300", "log.every=1", "eval.every=0"];

fn rows_of(run: &Path) -> usize {
    fs::read_to_string(run.join("metrics.jsonl")).unwrap_or_default().lines().count()
}

/// Panics unless the job has said all of these words.
#[track_caller]
fn said(place: &Workplace, words: &[&str]) {
    let said = fs::read_to_string(place.path("job.out")).expect("the job's output");
    for words in words {
        assert!(said.contains(words), "`{words}` is not in what the job said:\n{said}");
    }
}

/// Ranks that `srun` starts are those of one job, and one that dies ends it: by the flag, and through PMIx without it.
#[test]
fn srun_starts_a_job_and_ends_it_where_a_rank_dies() {
    let Some(slurm) = Slurm::start() else { return };
    let place = Workplace::new();
    let steps = ["train.steps=6", "checkpoint.every=2", "log.every=1"];
    succeed(alone(&place.pretrain("one", &steps)));
    for (run, options) in [("flag", &["--kill-on-bad-exit=1"][..]), ("no-flag", &[])] {
        let args = place.pretrain(run, &steps);
        let mut killed = slurm.srun(options, &args);
        killed.env("SEGUE_FAULTS", "kill@step.backward:rank=1:step=5");
        let ended = finish(killed);
        assert_eq!(ended.status.code(), Some(137), "{run}: {}", stderr(&ended));
        assert!(rows_of(&place.path(run)) > 0, "{run}: no step was made");
        let again = finish(slurm.srun(options, &args));
        assert!(again.status.success(), "{run}: {}", stderr(&again));
        place.assert_same("one", run);
    }
}

/// The signal that Slurm sends before a time limit leaves a checkpoint, and 75.
#[test]
fn a_signal_through_slurm_stops_a_job_with_a_checkpoint() {
    let Some(slurm) = Slurm::start() else { return };
    let place = Workplace::new();
    let endless =
        place.pretrain("run", &["train.steps=1000000", "log.every=1", "checkpoint.every=0", "eval.every=0"]);
    let mut job = slurm
        .srun(&["--job-name=endless"], &endless)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("srun starts");
    wait_for("ten steps", PATIENCE, || rows_of(&place.path("run")) > 10);
    slurm.cancel(&["--signal=USR1", "--name=endless"]);
    assert_eq!(job.wait().expect("srun ends").code(), Some(75));
    assert!(place.path("run/checkpoints/latest/config.json").is_file());
}

/// A signal to the script of a job, to its ranks or to both leads to a checkpoint, and the job is queued again and goes on to its end.
#[test]
#[ignore = "takes minutes: see `make test-slurm`"]
fn a_batch_job_that_is_signalled_is_queued_again_and_goes_on() {
    let Some(slurm) = Slurm::start() else { return };
    let place = Workplace::new();
    succeed(alone(&place.pretrain("one", &STEPS)));
    for (run, to) in [("script", Some("--batch")), ("ranks", None), ("both", Some("--full"))] {
        let job = slurm.submit(&place, &[], &place.pretrain(run, &STEPS));
        wait_for("ten steps", PATIENCE, || rows_of(&place.path(run)) > 10);
        slurm.cancel(&[to.as_slice(), &["--signal=USR1", &job]].concat());
        let first = place.path(&format!("{run}/launch/attempt-0001.json"));
        wait_for("the first attempt's report", PATIENCE, || first.is_file());
        assert_eq!(slurm.wait_for_end(&job, 2 * PATIENCE), ["COMPLETED"], "{run}");
        said(&place, &["start 1", "stopped after step", "start 2", "step 900 of 900 is done"]);
        place.assert_same("one", run);
        fs::remove_file(place.path("job.out")).expect("the job's output");
    }
}

/// Slurm itself warns the job before its time limit: it is queued again with a checkpoint, as often as it takes.
#[test]
#[ignore = "takes minutes: see `make test-slurm`"]
fn a_batch_job_is_warned_before_its_time_limit_and_goes_on() {
    let Some(slurm) = Slurm::start() else { return };
    let place = Workplace::new();
    let begun = Instant::now();
    let slow = "slow=100@step.backward:hit=1..";
    let steps = ["train.steps=250", "checkpoint.every=0", "log.every=1", "eval.every=0"];
    succeed(alone(&place.pretrain("one", &steps)));
    let options =
        ["--time", "00:01:00", "--warning", "20", "--setup", &format!("export SEGUE_FAULTS='{slow}'")];
    let job = slurm.submit(&place, &options, &place.pretrain("run", &steps));
    assert_eq!(slurm.wait_for_end(&job, 5 * PATIENCE), ["COMPLETED"]);
    println!("warned, queued again and done: {} s", begun.elapsed().as_secs());
    said(&place, &["stopped after step", "start 2", "step 250 of 250 is done"]);
    place.assert_same("one", "run");
}

/// `scancel` ends a job for good, with a checkpoint; the next submission goes on from there.
#[test]
fn a_batch_job_that_is_cancelled_leaves_a_checkpoint_for_the_next_submission() {
    let Some(slurm) = Slurm::start() else { return };
    let place = Workplace::new();
    let steps = ["train.steps=900", "checkpoint.every=0", "log.every=1", "eval.every=0"];
    succeed(alone(&place.pretrain("one", &steps)));
    let args = place.pretrain("run", &steps);
    let job = slurm.submit(&place, &[], &args);
    wait_for("ten steps", PATIENCE, || rows_of(&place.path("run")) > 10);
    let begun = Instant::now();
    slurm.cancel(&[&job]);
    assert_eq!(slurm.wait_for_end(&job, PATIENCE), ["CANCELLED"]);
    wait_for("a checkpoint", PATIENCE, || place.path("run/checkpoints/latest/config.json").is_file());
    println!("cancelled, with a checkpoint: {} ms", begun.elapsed().as_millis());
    assert!(rows_of(&place.path("run")) < 900, "the job was done before it was cancelled");
    wait_for("an empty queue", PATIENCE, || slurm.queue(&job, "%t").is_empty());
    let next = slurm.submit(&place, &[], &args);
    assert_eq!(slurm.wait_for_end(&next, 2 * PATIENCE), ["COMPLETED"]);
    place.assert_same("one", "run");
}

/// Each job of an array is a run of its own; one that is signalled is queued again alone.
#[test]
#[ignore = "takes minutes: see `make test-slurm`"]
fn jobs_of_an_array_are_runs_of_their_own() {
    let Some(slurm) = Slurm::start() else { return };
    let place = Workplace::new();
    for seed in ["1", "2"] {
        let seed = format!("train.seed={seed}");
        succeed(alone(&place.pretrain(&format!("one-{}", &seed[11..]), &[&STEPS[..], &[&seed]].concat())));
    }
    let args = place.pretrain("run-{index}", &[&STEPS[..], &["train.seed={index}"]].concat());
    let job = slurm.submit(&place, &["--array", "1-2"], &args);
    wait_for("ten steps of the second", PATIENCE, || rows_of(&place.path("run-2")) > 10);
    slurm.cancel(&["--batch", "--signal=USR1", &format!("{job}_2")]);
    let first = place.path("run-2/launch/attempt-0001.json");
    wait_for("the first attempt's report", PATIENCE, || first.is_file());
    assert_eq!(slurm.wait_for_end(&job, 3 * PATIENCE), ["COMPLETED", "COMPLETED"]);
    for seed in ["1", "2"] {
        place.assert_same(&format!("one-{seed}"), &format!("run-{seed}"));
    }
    let said = fs::read_to_string(place.path("job.out")).expect("the jobs' output");
    assert_eq!(said.matches("start 2").count(), 1, "{said}");
}

/// A node that is lost takes its part of the job along; Slurm queues it again, and it goes on on the other one.
#[test]
#[ignore = "takes minutes: see `make test-slurm`"]
fn a_batch_job_goes_on_on_another_node_when_its_own_is_lost() {
    let Some(mut slurm) = Slurm::start() else { return };
    let place = Workplace::new();
    let steps = ["train.steps=900", "checkpoint.every=100", "log.every=1", "eval.every=0"];
    succeed(alone(&place.pretrain("one", &steps)));
    let job = slurm.submit(&place, &[], &place.pretrain("run", &steps));
    wait_for("a checkpoint", PATIENCE, || place.path("run/checkpoints/latest").exists());
    let node = slurm.queue(&job, "%N");
    let begun = Instant::now();
    slurm.lose(&node);
    assert_eq!(slurm.wait_for_end(&job, 3 * PATIENCE), ["COMPLETED"]);
    println!("lost its node, queued again and done: {} s", begun.elapsed().as_secs());
    let other = if node == "n1" { "n2" } else { "n1" };
    said(&place, &[&format!("on {other}, start 2")]);
    place.assert_same("one", "run");
}
