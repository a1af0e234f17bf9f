//! What a run leaves for people and programs.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use segue_tests::{ROOT, Workplace, alone, fail, finish, mpirun, stderr, succeed};
use serde_json::Value;

fn rows(place: &Workplace, run: &str) -> Vec<Value> {
    let text = fs::read_to_string(place.path(run).join("metrics.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn metrics_tell_every_interval() {
    let place = Workplace::new();
    let result = succeed(mpirun(2, &place.pretrain("run", &["eval.every=20"])));
    let rows = rows(&place, "run");
    let train: Vec<&Value> = rows.iter().filter(|r| r["kind"] == "train").collect();
    assert_eq!(train.iter().map(|r| r["step"].as_u64().unwrap()).collect::<Vec<_>>(), [10, 20, 30, 40, 50]);
    for key in [
        "attempt",
        "tokens",
        "loss",
        "bpc",
        "lr",
        "grad_norm",
        "tokens_per_s",
        "data_wait_s",
        "communication_exposed_s",
        "checkpoint_stall_s",
    ] {
        assert!(train.iter().all(|r| r[key].is_number()), "{key}");
    }
    assert_eq!(train[4]["tokens"], 50 * 8 * 16);
    let first = train[0]["loss"].as_f64().unwrap();
    assert!(train[4]["loss"].as_f64().unwrap() < first - 0.5, "it does not learn");
    let eval: Vec<u64> =
        rows.iter().filter(|r| r["kind"] == "eval").map(|r| r["step"].as_u64().unwrap()).collect();
    assert_eq!(eval, [20, 40, 50]);
    assert_eq!(result["evaluation"]["targets"], 1_499);
}

#[test]
fn losses_of_a_resumed_run_are_those_of_an_undisturbed_one() {
    let place = Workplace::new();
    succeed(alone(&place.pretrain("whole", &[])));
    // In the middle of an interval of ten steps.
    succeed(alone(&place.pretrain("parts", &["train.stop_at=17"])));
    succeed(alone(&place.pretrain("parts", &[])));
    let losses = |run| -> Vec<(u64, f64)> {
        let rows = rows(&place, run);
        let train = rows.iter().filter(|r| r["kind"] == "train");
        train.map(|r| (r["step"].as_u64().unwrap(), r["loss"].as_f64().unwrap())).collect()
    };
    assert_eq!(losses("whole"), losses("parts"));
}

/// Values of a CSV or of a file of MLflow with their steps: the columns of a line that tell these.
fn cells(
    text: &str,
    separator: char,
    columns: [usize; 2],
    is_wanted: impl Fn(&str) -> bool,
) -> Vec<[String; 2]> {
    let cells = |line: &str| {
        let all: Vec<&str> = line.split(separator).collect();
        columns.map(|column| all[column].to_string())
    };
    text.lines().filter(|line| is_wanted(line)).map(cells).collect()
}

/// The folder of the only run of the only experiment of a store of MLflow.
fn mlflow_run(store: &Path) -> PathBuf {
    let only = |folder: &Path| {
        let mut inner =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
        let one = inner.next().unwrap();
        assert_eq!(inner.next(), None);
        one
    };
    only(&only(store))
}

/// Ranks are on one time line, on which a rank is not done with a sum before all have begun it.
#[test]
fn a_trace_has_what_each_thread_of_each_rank_does() {
    let place = Workplace::new();
    let settings = ["train.steps=6", "checkpoint.every=4", "log.trace_from=3", "log.trace_steps=3"];
    succeed(mpirun(2, &place.pretrain("run", &settings)));
    let (run, output) = (place.text("run"), place.text("trace.json"));
    let result = succeed(alone(&["inspect", "trace", "--json", &run, "--output", &output]));
    let ranks = result["ranks"].as_array().unwrap();
    assert_eq!((ranks.len(), &result["steps"]), (2, &serde_json::json!([3, 6])), "{result}");
    for rank in ranks {
        let seconds = |key: &str| rank[key].as_f64().unwrap();
        let parts = ["compute_s", "data_s", "communication_s", "checkpoint_s", "other_s"].map(seconds);
        assert!(parts.iter().all(|part| *part >= 0.0) && parts[0] > 0.0, "{rank}");
        assert!((parts.iter().sum::<f64>() - seconds("all_s")).abs() < 1e-6, "{rank}");
        assert!(seconds("clock_ahead_us").abs() < 5e3, "the clock is that of one host: {rank}");
    }
    let trace: serde_json::Value = serde_json::from_slice(&fs::read(output).unwrap()).unwrap();
    let spans = |rank: u64, name: &str| -> Vec<(f64, f64)> {
        let events = trace["traceEvents"].as_array().unwrap().iter();
        let of = events.filter(|event| event["pid"] == rank && event["ph"] == "X" && event["name"] == name);
        of.map(|event| (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap())).collect()
    };
    // Eight lanes, two in a micro-step, on two ranks, for three steps; a checkpoint after one of them.
    for (name, count) in
        [("forward", 6), ("backward", 6), ("update", 3), ("stage", 1), ("wait for a batch", 3)]
    {
        assert_eq!([spans(0, name).len(), spans(1, name).len()], [count; 2], "{name}");
    }
    let sums = [spans(0, "sum"), spans(1, "sum")];
    assert!(!sums[0].is_empty() && sums[0].len() == sums[1].len(), "{sums:?}");
    let slack = 5e3;
    for (one, other) in sums[0].iter().zip(&sums[1]) {
        let ends_after = |a: &(f64, f64), b: &(f64, f64)| a.0 + a.1 + slack >= b.0;
        assert!(ends_after(one, other) && ends_after(other, one), "{one:?} {other:?}");
    }
    // A trace takes the place of one of more ranks, and one that cannot be written costs the run nothing.
    succeed(alone(&place.pretrain("run", &[&settings[..], &["train.steps=8", "log.trace_from=7"]].concat())));
    let result = succeed(alone(&["inspect", "trace", "--json", &run]));
    assert_eq!(
        (result["ranks"].as_array().unwrap().len(), &result["steps"]),
        (1, &serde_json::json!([7, 10]))
    );
    fs::create_dir(place.path("taken")).unwrap();
    fs::write(place.path("taken/trace"), "in the way").unwrap();
    let output = finish(mpirun(2, &place.pretrain("taken", &settings)));
    assert!(
        output.status.success() && stderr(&output).contains("rank 1 has no trace"),
        "{}",
        stderr(&output)
    );
    // Nothing is traced that is not asked for.
    succeed(alone(&place.pretrain("plain", &settings[..2])));
    assert!(!place.path("plain/trace").exists());
    fail(alone(&["inspect", "trace", &place.text("plain")]), 66, &["log.trace_steps"]);
}

#[test]
fn sinks_have_each_step_once_where_a_killed_run_made_some_again() {
    let place = Workplace::new();
    let settings = [
        "train.steps=8",
        "checkpoint.every=4",
        "log.every=1",
        "eval.every=3",
        r#"log.sinks=["csv", "mlflow", "csv"]"#,
        "log.mlflow_experiment=a: b",
    ];
    succeed(alone(&place.pretrain("whole", &settings)));
    let mut killed = alone(&place.pretrain("parts", &settings));
    killed.env("SEGUE_FAULTS", "kill@step.begin:step=7:attempt=1");
    assert!(!finish(killed).status.success());
    succeed(alone(&place.pretrain("parts", &settings)));
    let csv = |run| {
        let text = fs::read_to_string(place.path(run).join("metrics.csv")).unwrap();
        cells(&text, ',', [3, 5], |line| line.contains(",loss,"))
    };
    let whole = csv("whole");
    assert_eq!(
        whole.iter().map(|[step, _]| step.as_str()).collect::<Vec<_>>(),
        ["1", "2", "3", "3", "4", "5", "6", "6", "7", "8", "8"]
    );
    assert_eq!(csv("parts"), whole);
    let mlflow = |run| {
        let folder = mlflow_run(&place.path(run).join("mlruns"));
        assert!(fs::read_to_string(folder.join("meta.yaml")).unwrap().contains("status: 3\n"));
        assert_eq!(fs::read_to_string(folder.join("params/train.steps")).unwrap(), "8");
        ["train", "eval"].map(|kind| {
            let text = fs::read_to_string(folder.join("metrics").join(kind).join("loss")).unwrap();
            cells(&text, ' ', [2, 1], |_| true)
        })
    };
    assert_eq!(mlflow("parts"), mlflow("whole"));
    let of_csv: Vec<_> =
        rows(&place, "whole").iter().map(|row| [row["step"].to_string(), row["loss"].to_string()]).collect();
    assert_eq!(whole, of_csv);
}

#[test]
fn signal_stops_a_job_with_75_after_a_checkpoint_and_it_goes_on_exactly() {
    let place = Workplace::new();
    let long = ["train.steps=3000", "log.every=1", "checkpoint.every=0"];
    let mut command = mpirun(2, &place.pretrain("run", &long));
    let mut job = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(job.stderr.take().unwrap()).lines();
    // The first report of a step says that the job is in its loop.
    assert!(lines.by_ref().any(|line| line.unwrap().starts_with("step ")));
    // SAFETY: plain system call on a process of ours.
    unsafe { libc::kill(job.id() as i32, libc::SIGUSR1) };
    let said: Vec<String> = lines.map_while(Result::ok).collect();
    assert_eq!(job.wait().unwrap().code(), Some(75), "{said:?}");
    let stopped = rows(&place, "run").last().unwrap()["step"].as_u64().unwrap();
    assert!(stopped < 3000);
    let until = format!("train.steps={}", stopped + 5);
    succeed(alone(&place.pretrain("run", &[&until])));
    succeed(alone(&place.pretrain("whole", &[&until])));
    place.assert_same("whole", "run");
}

/// Signals come at any moment, within a kernel that has borrowed the stack pointer too: hundreds of them leave every number as it is.
#[test]
fn a_hail_of_signals_within_a_step_changes_no_bit() {
    let place = Workplace::new();
    // Steps of a second or so, most of which is kernels.
    let large =
        ["train.lanes=64", "train.micro_batch=32", "model.d_model=128", "model.d_inner=512", "eval.every=0"];
    let of =
        |run: &str, steps: &str| place.pretrain(run, &[&large[..], &["checkpoint.every=0", steps]].concat());
    let mut job =
        alone(&of("run", "train.steps=3000")).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(job.stderr.take().unwrap()).lines();
    // What is said before the first step: the handlers are there.
    assert!(lines.by_ref().any(|line| line.unwrap().contains("targets a step")));
    let mut sent = 0;
    let code = loop {
        if let Some(status) = job.try_wait().unwrap() {
            break status.code();
        }
        // SAFETY: plain system call on a process of ours, which is not waited for yet.
        unsafe { libc::kill(job.id() as i32, libc::SIGUSR1) };
        sent += 1;
        std::thread::sleep(std::time::Duration::from_millis(1));
    };
    let said: Vec<String> = lines.map_while(Result::ok).collect();
    assert_eq!(code, Some(75), "after {sent} signals: {said:?}");
    assert!(sent > 0);
    let made: u64 = std::fs::read_link(place.path("run/checkpoints/latest"))
        .unwrap()
        .to_str()
        .and_then(|name| name.strip_prefix("step-")?.parse().ok())
        .unwrap();
    let until = format!("train.steps={}", made + 1);
    succeed(alone(&of("run", &until)));
    succeed(alone(&of("whole", &until)));
    place.assert_same("whole", "run");
}

#[test]
fn generated_text_depends_on_the_seed_alone() {
    let place = Workplace::new();
    succeed(alone(&place.pretrain("run", &[])));
    let run = place.text("run");
    let generate = |seed: &str| {
        let args = [
            "generate",
            "--json",
            "--model",
            &run,
            "--prompt",
            "the lane ",
            "--tokens",
            "40",
            "--seed",
            seed,
        ];
        succeed(alone(&args))["text"].as_str().unwrap().to_string()
    };
    assert_eq!(generate("1"), generate("1"));
    assert_ne!(generate("1"), generate("2"));
}

#[test]
fn evaluation_is_the_same_at_any_number_of_ranks() {
    let place = Workplace::new();
    succeed(alone(&place.pretrain("run", &["train.steps=10"])));
    let run = place.text("run");
    let args = ["eval", "--json", "--model", &run, "--lanes", "7", "--segment", "33", "--mem-len", "50"];
    let one = succeed(alone(&args));
    assert_eq!(one["evaluation"]["targets"], 1_499);
    for ranks in [2, 3] {
        assert_eq!(succeed(mpirun(ranks, &args)), one, "{ranks} ranks");
    }
}

#[test]
fn merged_configuration_says_where_each_value_comes_from() {
    let output = finish(alone(&[
        "pretrain",
        "--print-config",
        "--config",
        &format!("{ROOT}/configs/recipes/tiny.toml"),
        "train.seed=7",
    ]));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(text.contains("seed = 7  # override"), "{text}");
    assert!(text.lines().any(|l| l.starts_with("n_layer = 2") && l.contains("tiny.toml")), "{text}");
}

#[test]
fn tensorboard_reads_the_events() {
    let place = Workplace::new();
    let python =
        Command::new("bash").args([&format!("{ROOT}/scripts/peers.sh"), "python", "base"]).output().unwrap();
    let python = String::from_utf8_lossy(&python.stdout).trim().to_string();
    let has = !python.is_empty()
        && Command::new(&python)
            .args(["-c", "import tensorboard"])
            .status()
            .is_ok_and(|status| status.success());
    if !has {
        segue_skip::skip(
            segue_skip::Need::Peers,
            "no Python with the tensorboard package (scripts/peers.sh installs one)",
        );
        return;
    }
    // Killed between an evaluation and the checkpoint that knows of it, the second one of its step; and started once more after its end.
    let run = place.pretrain("run", &["eval.every=20", "checkpoint.every=20"]);
    let mut killed = alone(&run);
    killed.env("SEGUE_FAULTS", "kill@checkpoint.begin:step=20:hit=2");
    assert!(!finish(killed).status.success());
    succeed(alone(&run));
    succeed(alone(&run));
    let superseded = fs::read_to_string(place.path("run/metrics.superseded.jsonl")).unwrap();
    assert!(superseded.lines().any(|line| line.contains(r#""kind":"eval""#)), "{superseded}");
    let folder = place.text("run/tensorboard");
    let mut command = Command::new(python);
    command.args([&format!("{ROOT}/tests/peers/read_tensorboard.py"), &folder]);
    let output = finish(command);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("valid/loss"), "{said}{}", stderr(&output));
    let told: Value = serde_json::from_str(&said).unwrap();
    let rows = rows(&place, "run");
    for (tag, kind, expected) in
        [("train/loss", "train", &[10, 20, 30, 40, 50][..]), ("valid/loss", "eval", &[20, 40, 50])]
    {
        let steps: Vec<&Value> = told[tag].as_array().unwrap().iter().map(|point| &point[0]).collect();
        assert_eq!(steps, expected.iter().collect::<Vec<_>>(), "{tag}");
        let of_rows = rows.iter().filter(|row| row["kind"] == kind).map(|row| &row["step"]);
        assert_eq!(steps, of_rows.collect::<Vec<_>>(), "{tag}");
    }
}

/// `segue pretrain --dry-run` of a recipe.
fn dry_run(recipe: &str, more: &[&str]) -> Command {
    let config = format!("{ROOT}/configs/recipes/{recipe}.toml");
    alone(&[&["pretrain", "--json", "--dry-run", "--config", &config], more].concat())
}

/// Row T26.
#[test]
fn dry_run_counts_what_is_published() {
    // The counts of docs/book/src/contributing/expected-values.md. No machine here could hold the largest of them.
    for (recipe, parameters) in
        [("enwik8-base", 41_055_436), ("wikitext103-large", 285_170_506), ("lm1b-large", 838_078_041u64)]
    {
        let result = succeed(dry_run(recipe, &["--ranks", "2"]));
        assert_eq!(result["cost"]["parameters"], parameters, "{recipe}");
        assert_eq!(result["agrees"], true);
        assert_eq!(result["cost"]["ranks"], 2);
    }
    let output = finish(dry_run("enwik8-base", &["model.n_layer=13"]));
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("41,055,436 are published"), "{}", stderr(&output));
}

/// 8192 lanes with 384 vectors of 1024 values for each of 24 layers; weights and the two moments of 360 million parameters.
#[test]
fn dry_run_says_what_a_checkpoint_costs_and_that_each_rank_has_its_share() {
    let carry = 8192 * 24 * 384 * 1024 * 4u64;
    for ranks in [1, 64, 1024] {
        let cost = succeed(dry_run("xlnet-large-v2", &["--ranks", &ranks.to_string()]))["cost"].take();
        let alike = 3 * 4 * cost["parameters"].as_u64().unwrap();
        let checkpoint = &cost["checkpoint"];
        assert_eq!((&checkpoint["disk"], &checkpoint["carry"]), (&(alike + carry).into(), &carry.into()));
        assert_eq!(checkpoint["held_by_rank_0"], alike + carry / ranks, "{ranks} ranks");
        assert_eq!(checkpoint["held_by_others"], carry / ranks, "{ranks} ranks");
    }
    let said = stderr(&finish(dry_run("xlnet-large-v2", &["--ranks", "64"])));
    for line in ["a checkpoint: ", "segment memory of it     309,237,645,312 bytes", "held by other ranks"] {
        assert!(said.contains(line), "{said}");
    }
    // One rank has no others.
    assert!(!stderr(&finish(dry_run("xlnet-large-v2", &[]))).contains("held by other ranks"));
}

#[test]
fn dry_run_says_what_it_cannot_reckon() {
    fail(dry_run("tiny", &[]), 78, &["model.vocab_size=N"]);
    fail(dry_run("enwik8-base", &["--ranks", "3"]), 78, &["3 ranks do not divide the 2 micro-steps"]);
    let place = Workplace::new();
    let corpus = place.text("corpus");
    let parameters =
        |recipe, data: &str| succeed(dry_run(recipe, &[data]))["cost"]["parameters"].as_u64().unwrap();
    assert!(parameters("tiny", &format!("data.corpus={corpus}")) > 256 * 32);
    // Several corpora have one vocabulary.
    let blended = parameters("tiny-xlnet", &format!("data.corpora=[\"{corpus}\",\"{corpus}\"]"));
    assert_eq!(blended, parameters("tiny-xlnet", &format!("data.corpus={corpus}")));
    // What has no vocabulary needs none.
    let game = succeed(dry_run("moment-game", &["train.lanes=64", "train.steps=10"]));
    assert_eq!((&game["cost"]["parameters"], &game["cost"]["tokens"]), (&24.into(), &640.into()));
}

#[test]
fn a_signal_in_a_long_evaluation_does_not_wait_for_its_end() {
    let place = Workplace::new();
    // Token by token, and ranks stand still as it begins: the signal comes in it on a busy machine too.
    let long = ["train.steps=4", "log.every=1", "eval.every=2", "eval.segment=1", "eval.lanes=2"];
    let mut command = mpirun(2, &place.pretrain("run", &long));
    command.env("SEGUE_FAULTS", "slow=3000@evaluation.part");
    let mut job = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(job.stderr.take().unwrap()).lines();
    assert!(lines.by_ref().any(|line| line.unwrap().starts_with("step 2/")));
    // SAFETY: plain system call on a process of ours.
    unsafe { libc::kill(job.id() as i32, libc::SIGUSR1) };
    let said: Vec<String> = lines.map_while(Result::ok).collect();
    assert_eq!(job.wait().unwrap().code(), Some(75), "{said:?}");
    assert!(!said.iter().any(|line| line.contains("validation")), "{said:?}");
    let result = succeed(alone(&place.pretrain("run", &long)));
    let evaluated = |run| -> Vec<(u64, f64)> {
        let rows = rows(&place, run);
        let found = rows.iter().filter(|row| row["kind"] == "eval");
        found.map(|row| (row["step"].as_u64().unwrap(), row["loss"].as_f64().unwrap())).collect()
    };
    succeed(alone(&place.pretrain("whole", &long)));
    assert_eq!(evaluated("run"), evaluated("whole"));
    assert_eq!(result["preempted"], false);
    place.assert_same("whole", "run");
}

#[test]
fn pre_training_keeps_its_best_model_and_ends_when_nothing_better_comes() {
    let place = Workplace::new();
    // A rate at which the loss soon rises.
    let keys = [
        "optim.lr=0.3",
        "schedule.kind=constant",
        "eval.every=2",
        "eval.patience=3",
        "train.steps=200",
        r#"log.sinks=["mlflow"]"#,
    ];
    let run = place.pretrain("run", &keys);
    let output = finish(mpirun(2, &run));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (best, step) = (result["best_step"].as_u64().unwrap(), result["step"].as_u64().unwrap());
    assert!(step == best + 6 && step < 200, "{result}");
    let said = stderr(&output);
    assert!(
        said.contains(&format!("stopped early after step {step}: no improvement in 3 evaluations")),
        "{said}"
    );
    assert!(said.contains(&format!("at step {best} (eval.patience = 3)")), "{said}");
    let rows = rows(&place, "run");
    let found = rows.iter().filter(|row| row["kind"] == "eval").filter_map(|row| row["ppl"].as_f64());
    let least = found.fold(f64::INFINITY, f64::min);
    // The run is its best model.
    let (folder, corpus) = (place.text("run"), place.text("corpus"));
    let output = finish(alone(&["eval", "--model", &folder, "--corpus", &corpus, "--lanes", "4", "--json"]));
    assert!(stderr(&output).contains("run/best"), "{}", stderr(&output));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!((found["evaluation"]["ppl"].as_f64().unwrap() / least - 1.0).abs() < 0.05, "{found} {least}");
    // Started again it has nothing to do, and leaves the model alone.
    let before = std::fs::read(place.path("run/best/model.safetensors")).unwrap();
    assert_eq!(succeed(alone(&run))["step"], step);
    assert!(std::fs::read(place.path("run/best/model.safetensors")).unwrap() == before);
    let told = fs::read_to_string(mlflow_run(&place.path("run/mlruns")).join("meta.yaml")).unwrap();
    assert!(told.contains("status: 3\n"), "it is done: {told}");
    for command in ["watch", "runs"] {
        let told = succeed(alone(&[command, "--json", &folder]));
        assert_eq!(told["runs"][0]["state"], "done", "{command}: {told}");
    }
    // With more patience it goes on, and then it is not.
    let more = place
        .pretrain("run", &[&keys[..], &["eval.patience=5", &format!("train.stop_at={}", step + 1)]].concat());
    succeed(alone(&more));
    assert_eq!(succeed(alone(&["watch", "--json", &folder]))["runs"][0]["state"], "stopped");
}

#[test]
fn a_loss_that_is_no_number_ends_a_run_or_is_gone_back_from() {
    let place = Workplace::new();
    // The rate rises until nothing is finite.
    let wild = ["optim.lr=1e36", "optim.clip=0", "schedule.warmup=1000", "checkpoint.every=2"];
    let run = place.pretrain("run", &wild);
    fail(mpirun(2, &run), 80, &["step", "recovery.skip_steps", "recovery.non_finite"]);
    let state: Value = serde_json::from_slice(
        &std::fs::read(place.path("run/checkpoints/latest/trainer_state.json")).unwrap(),
    )
    .unwrap();
    let good = state["step"].as_u64().unwrap();
    let again = finish(alone(&run));
    assert!(stderr(&again).contains(&format!("step {}:", good + 1)), "{}", stderr(&again));
    let skipping = [&wild[..], &["recovery.non_finite=skip", "recovery.at_most=2"]].concat();
    let output = finish(mpirun(2, &place.pretrain("run", &skipping)));
    assert_eq!(output.status.code(), Some(80));
    assert!(stderr(&output).contains(&format!("step {}: left out", good + 2)), "{}", stderr(&output));
}
