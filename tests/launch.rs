//! `segue launch`: jobs that are ended on purpose are started again to the bytes of one that never was, or end with the code that says why.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use segue_tests::kills::hurry;
use segue_tests::{
    Workplace, alone, children, fail, finish, repeats, stderr, succeed, two_at_a_time, wait_for,
};
use serde_json::Value;

/// Six steps, with a checkpoint after every second.
const SHORT: [&str; 3] = ["train.steps=6", "checkpoint.every=2", "eval.every=3"];

/// Where the test waits for it to pass.
const SOON: [&str; 2] = ["--silence", "3"];

/// `segue launch` of `ranks` ranks for the job of these arguments, which suffers `faults`. A silent rank is given up soon where one of these is a
/// rank that stands still or `options` say so, else only after what no busy machine takes.
fn launch(ranks: usize, options: &[&str], job: &[String], faults: &str) -> Command {
    let (count, silence) = (ranks.to_string(), if faults.contains("stop@") { "3" } else { "30" });
    let mut words = vec!["launch", "--json", "-n", &count, "--back-off", "0.1"];
    words.extend((!options.contains(&"--silence")).then_some(["--silence", silence]).into_iter().flatten());
    words.extend(options);
    words.extend(job.iter().map(String::as_str).filter(|word| *word != "--json"));
    let mut command = alone(&words);
    command.env("SEGUE_FAULTS", faults);
    command
}

/// The report of an attempt of a run.
fn report(place: &Workplace, run: &str, attempt: usize) -> Value {
    let path = place.path(run).join(format!("launch/attempt-{attempt:04}.json"));
    serde_json::from_slice(&fs::read(&path).expect("a report")).expect("JSON")
}

fn attempts(place: &Workplace, run: &str) -> usize {
    let entries = fs::read_dir(place.path(run).join("launch")).expect("a folder of reports").flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(".json")).count()
}

#[test]
fn whatever_ends_a_rank_the_job_is_started_again_to_the_same_bytes() {
    let place = Workplace::new();
    succeed(alone(&place.pretrain("whole", &SHORT)));
    for (number, (fault, ranks, rank, said)) in [
        ("kill@step.backward:step=5", 2, 1, "signal 9"),
        ("segv@step.update:step=3", 2, 0, "signal 11"),
        ("panic@step.forward:step=4", 1, 0, "a fault on purpose"),
        ("exit=3@checkpoint.publish:step=4", 2, 0, ""),
        ("stop@reduce.bucket:step=5", 2, 1, "silent"),
    ]
    .into_iter()
    .enumerate()
    {
        let run = format!("run-{number}");
        let plan = format!("{fault}:rank={rank}:attempt=1");
        let mut launched = launch(ranks, &[], &place.pretrain(&run, &SHORT), &plan);
        hurry(&mut launched, number);
        let result = succeed(launched);
        assert_eq!((&result["attempts"], &result["step"]), (&2.into(), &6.into()), "{plan}: {result}");
        assert_eq!(result["result"]["step"], 6, "{result}");
        let (first, second) = (report(&place, &run, 1), report(&place, &run, 2));
        assert_eq!(first["first"]["rank"], rank, "{plan}: {first:#}");
        let all = format!("{} {} {}", first["first"]["what"], first["hung"], first["last_lines"]);
        assert!(all.contains(said), "{plan}: {first:#}");
        assert_eq!(
            (&second["code"], &second["next"], &second["first"]),
            (&0.into(), &"done".into(), &Value::Null)
        );
        let seen = first["ranks"].as_array().expect("ranks");
        assert_eq!(seen.len(), ranks, "{first:#}");
        place.assert_same("whole", &run);
    }
}

/// A rank that is alive and does nothing, while the other waits for it: both write down how they stand before they are ended.
#[test]
fn a_job_that_hangs_tells_how_each_rank_stands() {
    let place = Workplace::new();
    succeed(alone(&place.pretrain("whole", &SHORT)));
    let faults = "slow=600000@step.forward:step=4:rank=1:attempt=1";
    let result = succeed(launch(2, &["--stall", "3"], &place.pretrain("run", &SHORT), faults));
    assert_eq!(result["attempts"], 2, "{result}");
    let first = report(&place, "run", 1);
    assert!(first["hung"].as_str().is_some_and(|why| why.starts_with("rank 1")), "{first:#}");
    let stands = |rank: usize| -> Value {
        let path = place.path("run").join(format!("logs/hang-rank-{rank:05}.json"));
        serde_json::from_slice(&fs::read(&path).expect("a file of each rank")).expect("JSON")
    };
    for rank in 0..2 {
        let told = stands(rank);
        let main = told["threads"]
            .as_array()
            .expect("threads")
            .iter()
            .find(|thread| thread["id"] == told["process"]);
        let stack = main.expect("the main thread")["stack"].to_string();
        let waits = told["calls"].as_array().expect("calls").iter().any(|call| call["state"] == "waits");
        assert_eq!((told["rank"].as_u64(), told["step"].as_u64()), (Some(rank as u64), Some(4)), "{told:#}");
        let sleeps = stack.contains("nanosleep") && stack.contains("micro_step");
        assert_eq!((waits, sleeps), (rank == 0, rank == 1), "{told:#}");
    }
    place.assert_same("whole", "run");
}

#[test]
fn a_job_that_does_not_get_on_is_given_up_with_its_code() {
    let place = Workplace::new();
    let job = place.pretrain("run", &SHORT);
    let output = finish(launch(2, &["--fruitless", "2"], &job, "kill@step.begin:step=1:rank=1"));
    assert_eq!(output.status.code(), Some(137), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("2 restarts in a row have brought no checkpoint"),
        "{}",
        stderr(&output)
    );
    assert_eq!(attempts(&place, "run"), 3);
    // What another attempt would meet again is not tried again: a loss that is not a number, a damaged corpus.
    let job = place.pretrain("nan", &SHORT);
    let output = finish(launch(2, &[], &job, "nan@gradient:step=3"));
    assert_eq!((output.status.code(), attempts(&place, "nan")), (Some(80), 1), "{}", stderr(&output));
    // Numbers of reports go on where they were.
    succeed(launch(2, &[], &job, ""));
    assert_eq!((report(&place, "nan", 2)["attempt"].clone(), attempts(&place, "nan")), (2.into(), 2));
}

#[test]
fn what_cannot_be_launched_is_refused_before_anything_starts() {
    let place = Workplace::new();
    let refused = |job: &[&str], code, words: &[&str]| {
        let job: Vec<String> = job.iter().map(|word| word.to_string()).collect();
        fail(launch(2, &[], &job, ""), code, words);
    };
    refused(&["eval", "runs/one"], 64, &["`eval`", "pretrain, finetune"]);
    refused(&["pretrain"], 78, &["run.dir"]);
    let run = format!("run.dir={}", place.text("run"));
    // The command itself says what is wrong with its configuration.
    let output = finish(launch(2, &[], &["pretrain".into(), run.clone(), "train.lane=4".into()], ""));
    assert_eq!(output.status.code(), Some(78));
    assert!(stderr(&output).contains("train.lanes"), "{}", stderr(&output));
    let three = place.pretrain("run", &["train.lanes=8", "train.micro_batch=2"]);
    fail(launch(3, &[], &three, ""), 78, &["3 ranks", "train.lanes"]);
    let hosts = ["--hosts", "node1:1,node2"];
    fail(launch(3, &hosts, &three, ""), 78, &["3 ranks do not fit", "take 2"]);
    let two = place.pretrain("run", &[]);
    // No name has an empty label: no server is asked for it.
    fail(
        launch(2, &["--hosts", "localhost,n9..invalid"], &two, ""),
        69,
        &["the host n9..invalid", "--listen"],
    );
    let options = ["--nproc_per_node", "2"];
    fail(launch(2, &options, &two, ""), 64, &["`--nproc_per_node`", "-n N"]);
    assert!(!place.path("run").exists());
}

#[test]
fn a_job_stops_with_a_checkpoint_and_two_do_not_share_a_run() {
    let place = Workplace::new();
    let steps = ["train.steps=400", "checkpoint.every=400", "eval.every=0"];
    succeed(alone(&place.pretrain("whole", &steps)));
    let job = place.pretrain("run", &steps);
    // As long as the next one waits for what might be left of the one before.
    let mut command = launch(2, &SOON, &job, "");
    let supervisor = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let log = place.path("run/metrics.jsonl");
    wait_for("the first steps", Duration::from_secs(60), || {
        fs::metadata(&log).is_ok_and(|log| log.len() > 0)
    });
    fail(launch(1, &SOON, &job, ""), 73, &["another job", "run.dir"]);
    // SAFETY: plain system call, to a process of ours.
    unsafe { libc::kill(supervisor.id() as i32, libc::SIGTERM) };
    let output = supervisor.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(75), "{}", stderr(&output));
    assert_eq!(report(&place, "run", 1)["next"], "stopped with a checkpoint");
    succeed(launch(2, &SOON, &job, ""));
    place.assert_same("whole", "run");
}

/// Nothing of a job is left when its supervisor is killed: ranks without answers end themselves.
#[test]
fn ranks_end_with_their_supervisor() {
    let place = Workplace::new();
    let job = place.pretrain("run", &["train.steps=100000", "checkpoint.every=0"]);
    // As long as that ranks go on without their supervisor.
    let mut command = launch(2, &SOON, &job, "");
    let mut supervisor = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let log = place.path("run/metrics.jsonl");
    wait_for("the first steps", Duration::from_secs(60), || {
        fs::metadata(&log).is_ok_and(|log| log.len() > 0)
    });
    let started = children(supervisor.id());
    let ranks: Vec<u32> = started.iter().flat_map(|starter| children(*starter)).collect();
    assert_eq!(ranks.len(), 2);
    supervisor.kill().expect("it is ours");
    supervisor.wait().expect("it has ended");
    let all = [started, ranks].concat();
    // One that has ended and that nobody has asked for is a zombie.
    let is_alive = |process: &u32| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
    };
    wait_for("the end of all ranks", Duration::from_secs(30), || !all.iter().any(is_alive));
    // The next one knows, waits for what might be left, and goes on.
    let output = finish(launch(
        2,
        &SOON,
        &place.pretrain("run", &["train.steps=100000", "train.stop_at=2", "checkpoint.every=0"]),
        "",
    ));
    assert!(
        output.status.success() && stderr(&output).contains("the supervisor before was killed"),
        "{}",
        stderr(&output)
    );
    assert!(!place.path("run/launch/lease").exists());
}

/// Whatever the mask of whoever starts it: a checkpoint that others have changed is theirs.
#[test]
fn nothing_of_a_run_is_writable_by_everyone() {
    let place = Workplace::new();
    let settings = ["train.steps=3", "log.trace_steps=2", "log.sinks=[\"csv\", \"mlflow\"]"];
    let mut command = launch(2, &[], &place.pretrain("run", &settings), "");
    // SAFETY: umask is safe between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::umask(0);
            Ok(())
        })
    };
    succeed(command);
    let (mut open, mut seen) = (vec![place.path("run")], 0);
    while let Some(path) = open.pop() {
        let found = path.symlink_metadata().expect("it is there");
        if found.is_dir() {
            open.extend(fs::read_dir(&path).expect("a folder").map(|entry| entry.expect("an entry").path()));
        }
        let mode = found.mode();
        assert!(found.is_symlink() || mode & 0o002 == 0, "{}: {mode:o}", path.display());
        assert!(found.is_symlink() || mode & 0o020 != 0, "{}: {mode:o}: the mask is not 0", path.display());
        seen += 1;
    }
    assert!(seen > 30, "{seen} files and folders");
}

/// A fault, where and on whom.
struct Case {
    fault: &'static str,
    point: &'static str,
    rank: usize,
    world: usize,
}

/// Points of a step, an evaluation and a checkpoint; those of publication that all folders come by; those that other ranks than the first do not
/// come by are among them too, where nothing happens.
const STEP: [&str; 8] = [
    "step.begin:step=1",
    "step.forward:step=5:hit=2",
    "step.backward:step=4",
    "reduce.bucket:step=3",
    "step.sum:step=5",
    "step.update:step=2",
    "evaluation.part",
    "checkpoint.stage",
];
const CHECKPOINT: [&str; 5] = [
    "checkpoint.begin:hit=2",
    "checkpoint.contribute:hit=2",
    "checkpoint.publish:hit=2",
    "checkpoint.prune",
    "checkpoint.pruned-half",
];
const FILES: [&str; 12] = [
    "tensors.write:hit=4",
    "folder.make:hit=2",
    "folder.lock:hit=2",
    "folder.sync-file:hit=5",
    "folder.sync:hit=2",
    "folder.rename:hit=2",
    "folder.sync-parent:hit=2",
    "file.sync:hit=2",
    "file.rename:hit=2",
    "link.make:hit=2",
    "link.rename:hit=2",
    "link.sync-parent:hit=2",
];

/// Kinds, points, the first and the last rank, two worlds.
fn matrix() -> Vec<Case> {
    let everywhere: Vec<&str> = STEP.into_iter().chain(CHECKPOINT).chain(FILES).collect();
    let main: Vec<&str> = STEP.into_iter().chain(CHECKPOINT).collect();
    let kinds: [(&str, &[&str]); 12] = [
        ("kill", &everywhere),
        ("segv", &main),
        ("panic", &main),
        ("exit=3", &main),
        ("stop", &STEP),
        ("term", &STEP),
        ("slow=300", &main),
        ("no-space", &FILES),
        ("io-error", &FILES),
        ("read-only", &FILES[..6]),
        ("nan", &["gradient:step=1", "gradient:step=4"]),
        ("flip", &["weights:step=2", "weights:step=5"]),
    ];
    let mut cases = Vec::new();
    for (fault, points) in kinds {
        for point in points {
            for world in [2, 4] {
                cases.extend([0, world - 1].map(|rank| Case { fault, point, rank, world }));
            }
        }
    }
    cases
}

/// Runs the cases of these numbers; all end with the bytes of a run that nothing happened to, or say first why they cannot and do so when they
/// are launched again.
fn suffer(place: &Workplace, cases: &[Case], numbers: &[usize]) {
    let settings = [
        &SHORT[..],
        &["checkpoint.keep=2", "train.check_replicas_every=1", "train.lanes=16", "train.micro_batch=2"],
    ]
    .concat();
    succeed(alone(&place.pretrain("whole", &settings)));
    let (restarts, total) = (AtomicUsize::new(0), AtomicUsize::new(0));
    two_at_a_time(numbers.len(), &|i| {
        let number = numbers[i];
        let Case { fault, point, rank, world } = &cases[number];
        let (run, plan) = (format!("case-{number}"), format!("{fault}@{point}:rank={rank}:attempt=1"));
        let job = place.pretrain(&run, &settings);
        let mut launched = launch(*world, &[], &job, &plan);
        hurry(&mut launched, i);
        let output = finish(launched);
        let code = output.status.code();
        // Stopped on request, and a loss that is not a number on all ranks: nothing is tried again unasked. On one of them it is taken for what
        // it is, a fault of that rank.
        let documented = match *fault {
            "term" => vec![0, 75],
            "nan" => vec![0, 80],
            _ => vec![0],
        };
        assert!(
            code.is_some_and(|code| documented.contains(&code)),
            "{plan} of {world}: {code:?}\n{}",
            stderr(&output)
        );
        if code != Some(0) {
            succeed(launch(*world, &[], &job, &plan));
        }
        place.assert_same("whole", &run);
        let restarted = attempts(place, &run) - 1;
        // All ranks come by the points of a step, and what ends a rank there ends the attempt.
        let ends = ["kill", "segv", "panic", "exit=3", "stop"].contains(fault) && STEP.contains(point);
        // Where one stands still, ranks are given up after three seconds, on a busy machine the next attempt's too.
        let most = if *fault == "stop" { 3 } else { 1 };
        assert!(!ends || (1..=most).contains(&restarted), "{plan} of {world}: {restarted} restarts");
        restarts.fetch_add(restarted, Ordering::Relaxed);
        fs::remove_dir_all(place.path(&run)).expect("a run of ours");
        let total = total.fetch_add(1, Ordering::Relaxed) + 1;
        if total % 20 == 0 {
            println!("{total} cases, {} restarts", restarts.load(Ordering::Relaxed));
        }
    });
    println!("{total:?} cases of {}, {restarts:?} restarts", cases.len());
}

#[test]
fn a_slice_of_the_faults_there_are_leaves_no_trace() {
    let (cases, count) = (matrix(), repeats(8, 40));
    // Neighbours differ in rank and world alone: a step that shares no factor with them meets all.
    let step = cases.len() / count;
    let step = if step.is_multiple_of(2) { step + 1 } else { step };
    let numbers: Vec<usize> = (0..count).map(|i| i * step % cases.len()).collect();
    suffer(&Workplace::new(), &cases, &numbers);
}

#[test]
#[ignore = "takes half an hour: make faults"]
fn all_faults_at_all_points_leave_no_trace() {
    let cases = matrix();
    assert!(cases.len() >= 400);
    // To go on after a case that was mended.
    let first = std::env::var("SEGUE_FAULTS_FROM").ok().and_then(|number| number.parse().ok()).unwrap_or(0);
    let numbers: Vec<usize> = (first..cases.len()).collect();
    suffer(&Workplace::new(), &cases, &numbers);
}
