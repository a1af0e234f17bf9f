//! Studies of small runs, by the real binary.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use segue_tests::{PIECES, ROOT, Workplace, alone, fail, finish, mpirun, stderr, succeed};
use serde_json::Value;

const STOP: &str = "[stop]\nturn = 10\nleast = 2\n";

/// A study of a tiny recurrent model: two random trials, two proposed ones, a rerun. `more` stands before the parameters.
fn write_study(place: &Workplace, more: &str) -> String {
    let path = place.path("study.toml");
    let reruns = if more.contains("reruns") { "" } else { "reruns = 1\n" };
    let text = format!(
        "name = \"Toy\"\nrecipe = \"{ROOT}/configs/recipes/tiny-lstm.toml\"\ntrials = 4\nstartup = 2\n{reruns}{more}\n\
         [set]\ntrain.steps = 20\neval.every = 10\ncheckpoint.every = 5\ndata.corpus = \"{}\"\n\
         train.segment = 8\nmodel.n_layer = 1\n{}\n{STOP}\
         [[parameter]]\nkey = \"optim.lr\"\nlow = 1e-4\nhigh = 1e-2\nscale = \"log\"\n\
         [[parameter]]\nkey = \"model.mogrifier_rounds\"\nlow = 0\nhigh = 3\nscale = \"integer\"\n\
         [[parameter]]\nkey = \"model.mogrifier_rank\"\nlow = -4\nhigh = 8\nscale = \"integer\"\nfloor = 0\n\
         when = {{ key = \"model.mogrifier_rounds\", at_least = 1 }}\n",
        place.text("corpus"),
        PIECES.join("\n")
    );
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn tune(place: &Workplace, path: &str, output: &str, more: &[&str]) -> Command {
    let output = place.text(output);
    alone(&[&["tune", path, "--json", "--output", &output], more].concat())
}

fn read(place: &Workplace, name: &str) -> String {
    fs::read_to_string(place.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn loss_of(line: &Value) -> f64 {
    line["loss"].as_f64().unwrap()
}

/// Starts a study, waits until it says `words`, and sends it a signal.
fn interrupt(mut command: Command, words: &str, signal: i32) -> Option<i32> {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line.contains(words))), "it never said `{words}`");
    // SAFETY: the child is ours and not yet waited for.
    unsafe { libc::kill(child.id() as i32, signal) };
    // The rest has to be read, or the child could wait for room.
    lines.for_each(drop);
    child.wait().unwrap().code()
}

/// Row M16.
#[test]
fn a_killed_study_ends_as_if_nothing_had_happened() {
    let place = Workplace::new();
    let path = write_study(&place, "reruns = 2");
    let whole = succeed(tune(&place, &path, "whole", &[]));
    assert_eq!(
        (&whole["summary"]["trials"], &whole["open"], &whole["exit_code"]),
        (&4.into(), &0.into(), &0.into())
    );

    assert_eq!(interrupt(tune(&place, &path, "killed", &[]), "trial 1: ", libc::SIGKILL), None);
    assert!(read(&place, "killed/best.toml").contains("trial "), "known as soon as a trial has ended");
    let before = read(&place, "killed/journal.jsonl");
    assert!(before.lines().count() < read(&place, "whole/journal.jsonl").lines().count());
    // Once more, between two reruns.
    assert_eq!(interrupt(tune(&place, &path, "killed", &[]), "seed 2: ", libc::SIGKILL), None);
    assert_eq!(read(&place, "killed/journal.jsonl").matches("\"event\":\"rerun\"").count(), 1);
    succeed(tune(&place, &path, "killed", &[]));
    assert_eq!(interrupt(tune(&place, &path, "stopped", &[]), "trial 0: ", libc::SIGTERM), Some(75));
    succeed(tune(&place, &path, "stopped", &[]));
    for name in ["journal.jsonl", "best.toml", "report.md", "results.json", "trials.svg", "neighbourhood.svg"]
    {
        let expected = read(&place, &format!("whole/{name}"));
        assert_eq!(read(&place, &format!("killed/{name}")), expected, "{name}");
        assert_eq!(read(&place, &format!("stopped/{name}")), expected, "{name}");
    }

    // Killed where a trial had ended and the study did not know yet.
    for trial in [1, 3] {
        let name = format!("unsaid-{trial}");
        assert!(
            Command::new("cp")
                .arg("-r")
                .args([place.path("whole"), place.path(&name)])
                .status()
                .unwrap()
                .success()
        );
        let journal = read(&place, "whole/journal.jsonl");
        let told = |line: &&str| {
            let line: Value = serde_json::from_str(line).unwrap();
            line["event"] == "tell" && line["trial"] == trial
        };
        let known: Vec<&str> = journal.lines().take_while(|line| !told(line)).collect();
        fs::write(place.path(&name).join("journal.jsonl"), known.join("\n") + "\n").unwrap();
        succeed(tune(&place, &path, &name, &[]));
        assert_eq!(read(&place, &format!("{name}/journal.jsonl")), journal, "trial {trial}");
    }

    // The best is the lowest loss of the journal, and that is what the run itself wrote down.
    let journal: Vec<Value> =
        read(&place, "whole/journal.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<&Value> = journal.iter().filter(|line| line["event"] == "tell").collect();
    let lowest = told.iter().map(|line| loss_of(line)).fold(f64::INFINITY, f64::min);
    let best = &whole["summary"]["best"];
    assert_eq!(best["loss"].as_f64().unwrap(), lowest);
    assert!((1.0..256f64.ln()).contains(&lowest), "{lowest}");
    let rows = read(&place, &format!("whole/{}/metrics.jsonl", best["run"].as_str().unwrap()));
    let evaluated = rows.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let losses = evaluated.filter(|row| row["kind"] == "eval").map(|row| row["loss"].as_f64().unwrap());
    assert_eq!(losses.fold(f64::INFINITY, f64::min), lowest);
    let proposed = journal.iter().filter(|line| line["by"] == "gaussian").count();
    assert_eq!((told.len(), proposed), (4, 2));
    let report = read(&place, "whole/report.md");
    assert!(report.contains("## Neighbourhood") && report.contains("selection effect"), "{report}");
    // Of two values the deviation is their distance over the root of two.
    let reruns: Vec<f64> = journal.iter().filter(|line| line["event"] == "rerun").map(loss_of).collect();
    let noise = &whole["summary"]["reruns"];
    let (sd, effect) = (noise["sd"].as_f64().unwrap(), noise["selection_effect"].as_f64().unwrap());
    assert_eq!((noise["count"].as_u64(), reruns.len()), (Some(2), 2));
    assert!((sd - (reruns[0] - reruns[1]).abs() / 2f64.sqrt()).abs() < 1e-9, "{sd} of {reruns:?}");
    assert!((effect - (lowest - (reruns[0] + reruns[1]) / 2.0)).abs() < 1e-9, "{effect} of {reruns:?}");
    let seeds: Vec<&Value> =
        journal.iter().filter(|line| line["event"] == "rerun").map(|line| &line["seed"]).collect();
    assert_eq!(seeds, [2, 3], "those after the trials'");

    // Nothing is made twice; more trials are added to what is there; other parameters are another study.
    let again = succeed(tune(&place, &path, "whole", &[]));
    assert_eq!(again["summary"], whole["summary"]);
    let listed = succeed(tune(&place, &path, "whole", &["--list"]));
    assert_eq!(listed["trials"].as_array().unwrap().len(), 4);
    fs::write(&path, read(&place, "study.toml").replace("trials = 4", "trials = 5")).unwrap();
    let more = succeed(tune(&place, &path, "whole", &["--workers", "2"]));
    assert_eq!(more["summary"]["trials"], 5);
    fail(
        tune(&place, &path, "whole", &["train.steps=30"]),
        78,
        &["journal.jsonl", "another study", "--output"],
    );
}

/// Row M16.
#[test]
fn a_trial_whose_loss_is_not_a_number_is_infeasible_and_one_that_fails_is_named() {
    let place = Workplace::new();
    let path = write_study(&place, "search = \"random\"");
    // Rates at which nothing can be learnt any more.
    let wild = read(&place, "study.toml").replace("low = 1e-4\nhigh = 1e-2", "low = 1e30\nhigh = 1e36");
    fs::write(&path, wild).unwrap();
    let output = finish(tune(&place, &path, "out", &["optim.clip=0"]));
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&result["summary"]["infeasible"], &result["summary"]["best"]), (&4.into(), &Value::Null));
    assert!(stderr(&output).contains("no trial has a loss yet"), "{}", stderr(&output));
}

/// Rates of no use and of some: the third trial, with one of no use, is above the median of the first two.
/// Row M16.
#[test]
fn a_trial_above_the_median_is_given_up_also_where_its_study_was_killed() {
    let place = Workplace::new();
    let path = write_study(&place, "search = \"random\"\nreruns = 0");
    let study = read(&place, "study.toml").replace("trials = 4", "trials = 3");
    let head = study.split("[[parameter]]").next().unwrap();
    let rates = "[[parameter]]\nkey = \"optim.lr\"\nlow = 1e-7\nhigh = 1e-1\nscale = \"log\"\n";
    fs::write(&path, head.to_string() + rates).unwrap();
    let longer = ["train.steps=30", "eval.every=5"];
    let result = succeed(tune(&place, &path, "out", &longer));
    assert_eq!(result["summary"]["stopped"], 1, "{result:#}");
    let journal = read(&place, "out/journal.jsonl");
    let told: Vec<Value> = journal.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<&Value> = told.iter().filter(|line| line["event"] == "tell").collect();
    let turns = |trial: usize| -> Vec<f64> { serde_json::from_value(told[trial]["turns"].clone()).unwrap() };
    assert_eq!(
        [0, 1, 2].map(|trial| turns(trial).len()),
        [3, 3, 2],
        "a turn of grace, and one to be compared by"
    );
    // Of two values the median is their mean.
    let median = [0, 1].map(|trial| turns(trial)[..2].iter().sum::<f64>()).iter().sum::<f64>() / 4.0;
    assert!(told[2]["state"] == "stopped" && loss_of(told[2]) > median, "{journal}");

    // Killed where the trial had come so far and the study did not know yet.
    let (known, _) = journal.trim_end().rsplit_once('\n').unwrap();
    fs::write(place.path("out/journal.jsonl"), format!("{known}\n")).unwrap();
    succeed(tune(&place, &path, "out", &longer));
    assert_eq!(read(&place, "out/journal.jsonl"), journal);
}

/// What no trial can do anything about stops the study, and the same command stops again at once.
/// Row M16.
#[test]
fn a_study_whose_first_trials_fail_alike_stops_with_their_error() {
    let place = Workplace::new();
    let path = write_study(&place, "retries = 0\ngive_up_after = 2");
    let long = ["train.segment=50000"];
    fail(
        tune(&place, &path, "out", &long),
        65,
        &["2 trials in a row", "a lane has", "--retry", "give_up_after"],
    );
    let journal = read(&place, "out/journal.jsonl");
    let count = |event: &str, journal: &str| journal.matches(&format!("\"event\":\"{event}\"")).count();
    assert_eq!(["ask", "fail", "tell"].map(|event| count(event, &journal)), [2, 2, 2]);
    assert!(read(&place, "out/report.md").contains("| 0 | 65 | error: a lane has"));
    fail(tune(&place, &path, "out", &long), 65, &["2 trials in a row"]);
    assert_eq!(read(&place, "out/journal.jsonl"), journal, "nothing is trained again");
    let output = finish(tune(&place, &path, "out", &[&long[..], &["--retry"]].concat()));
    assert_eq!(output.status.code(), Some(65), "{}", stderr(&output));
    let again = read(&place, "out/journal.jsonl");
    assert_eq!(["ask", "fail", "tell", "retry"].map(|event| count(event, &again)), [2, 4, 4, 2]);

    let patient = read(&place, "study.toml").replace("give_up_after = 2", "give_up_after = 0");
    fs::write(&path, patient).unwrap();
    let output = finish(tune(&place, &path, "out", &long));
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let said = stderr(&output);
    assert!(said.contains("trial 3: no loss: it failed with exit code 65: error: a lane has"), "{said}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((result["failed"].as_array().unwrap().len(), &result["open"]), (4, &0.into()));
    let listed = succeed(tune(&place, &path, "out", &[&long[..], &["--list"]].concat()));
    assert_eq!(listed["trials"][0]["cause"]["code"], 65);
}

/// The second try of it is the last, and the study goes on without it.
/// Row M16.
#[test]
fn a_trial_that_always_fails_counts_as_one_without_a_loss() {
    let place = Workplace::new();
    let path = write_study(&place, "");
    let short = &["train.steps=2", "eval.every=1", "checkpoint.every=2"];
    fs::write(&path, read(&place, "study.toml").replace(STOP, "")).unwrap();
    succeed(tune(&place, &path, "whole", short));
    let name = name_of_run(&place, "whole", 1);
    // A file stands where its folder is to be.
    for output in ["failing", "killed"] {
        fs::create_dir_all(place.path(output).join("runs")).unwrap();
        fs::write(place.path(output).join("runs").join(&name), "").unwrap();
    }
    let result = succeed(tune(&place, &path, "failing", short));
    assert_eq!((&result["exit_code"], &result["open"]), (&0.into(), &0.into()), "{result:#}");
    assert_eq!((&result["failed"][0]["name"], &result["summary"]["failed"]), (&"trial 1".into(), &1.into()));
    let journal = read(&place, "failing/journal.jsonl");
    assert_eq!(journal.matches("\"event\":\"fail\"").count(), 2);
    let told: Vec<Value> = journal.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told = told.iter().find(|line| line["event"] == "tell" && line["trial"] == 1).unwrap();
    assert_eq!((&told["state"], &told["loss"]), (&"infeasible".into(), &Value::Null));
    let (code, why) = (&result["failed"][0]["code"], told["cause"]["why"].as_str().unwrap());
    assert!(told["cause"]["code"] == *code && why.contains("RUN"), "{told}");
    let report = read(&place, "failing/report.md");
    assert!(
        report.contains("1 of them as they failed") && report.contains(&format!("| 1 | {code} | {why} |"))
    );

    // Killed after it, or stopped, the study proposes the same.
    assert_eq!(interrupt(tune(&place, &path, "killed", short), "trial 1: no loss", libc::SIGKILL), None);
    succeed(tune(&place, &path, "killed", short));
    assert_eq!(read(&place, "killed/journal.jsonl"), journal);
    assert_eq!(read(&place, "killed/report.md"), report);

    // What stood in the way is gone: it has its loss, which is that of the study without a failure.
    fs::remove_file(place.path("failing/runs").join(&name)).unwrap();
    let mended = succeed(tune(&place, &path, "failing", &[&short[..], &["--retry"]].concat()));
    assert_eq!((&mended["failed"], &mended["summary"]["failed"]), (&Value::Array(vec![]), &0.into()));
    let of = |name: &str| {
        succeed(tune(&place, &path, name, &[&short[..], &["--list"]].concat()))["trials"][1].clone()
    };
    assert_eq!(of("failing"), of("whole"));
}

/// 12 and 13 lanes, 1 and 2 a micro-step: all ends go with the middle of the others, 13 and 2 do not go together. The second point is there.
/// Row M16.
#[test]
fn settings_that_make_no_configuration_have_no_loss() {
    let place = Workplace::new();
    let path = write_study(&place, "search = \"random\"\nreruns = 0");
    let study = read(&place, "study.toml").replace(STOP, "").replace("trials = 4", "trials = 2");
    let head = study.split("[[parameter]]").next().unwrap();
    let whole = |key: &str, low: i32, high: i32, values: [i32; 2]| {
        format!(
            "[[parameter]]\nkey = \"{key}\"\nlow = {low}\nhigh = {high}\nscale = \"integer\"\nfloor = {}\nceiling = {}\n",
            values[0], values[1]
        )
    };
    let corner = whole("train.lanes", 0, 24, [12, 13]) + &whole("train.micro_batch", -9, 10, [1, 2]);
    fs::write(&path, head.to_string() + &corner).unwrap();
    let result = succeed(tune(&place, &path, "out", &["train.steps=1"]));
    assert_eq!(result["summary"]["best"]["trial"], 0);
    let failed = &result["failed"][0];
    assert_eq!((&failed["name"], &failed["code"]), (&"trial 1".into(), &78.into()), "{result:#}");
    let why = failed["why"].as_str().unwrap();
    assert!(why.contains("`train.lanes` = 13") && read(&place, "out/report.md").contains(why), "{why}");
    assert!(!read(&place, "out/journal.jsonl").contains("\"event\":\"fail\""), "it is not tried again");
}

/// The name of the run folder of a trial.
fn name_of_run(place: &Workplace, output: &str, trial: usize) -> String {
    let runs = fs::read_dir(place.path(output).join("runs")).unwrap();
    let mut names = runs.map(|run| run.unwrap().file_name().into_string().unwrap());
    names.find(|name| name.starts_with(&format!("trial-{trial:04}-")) && !name.contains("seed")).unwrap()
}

/// The merged configuration of a command, without the folder of the run.
fn merged(args: &[&str]) -> Value {
    let mut config = succeed(alone(&[&["pretrain", "--json", "--print-config"], args].concat()));
    config["run"] = Value::Null;
    config
}

/// Recipe, `[set]`, command line and settings: all of it is in `best.toml`.
/// Row M16.
#[test]
fn the_best_recipe_is_the_configuration_of_the_best_trial() {
    let place = Workplace::new();
    let path = write_study(&place, "reruns = 0\nsearch = \"random\"");
    fs::write(&path, read(&place, "study.toml").replace(STOP, "").replace("trials = 4", "trials = 2"))
        .unwrap();
    let line = ["train.steps=10", "model.n_layer=1", "log.mlflow_experiment=7", "optim.clip=0.5"];
    let result = succeed(tune(&place, &path, "out", &line));
    let corpus = format!("data.corpus={}", place.text("corpus"));
    let recipe = format!("{ROOT}/configs/recipes/tiny-lstm.toml");
    let settings = result["summary"]["best"]["settings"].as_object().unwrap();
    let settings: Vec<String> =
        settings.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap())).collect();
    let mut all =
        vec!["--config", &recipe, "eval.every=10", "checkpoint.every=5", &corpus, "checkpoint.best=true"];
    all.push("train.segment=8");
    all.extend(PIECES);
    all.extend(line);
    all.extend(settings.iter().map(String::as_str));
    let best = place.text("out/best.toml");
    let expected = merged(&all);
    assert_eq!(merged(&["--config", &best]), expected);
    assert_eq!(expected["log"]["mlflow_experiment"], "7");
    // And that is what the trial was trained with.
    let run = result["summary"]["best"]["run"].as_str().unwrap();
    let trained: Value = serde_json::from_str(&read(&place, &format!("out/{run}/config.json"))).unwrap();
    for section in ["train", "optim", "eval", "checkpoint", "log"] {
        for (key, value) in expected[section].as_object().unwrap() {
            assert_eq!(trained[section][key], *value, "{section}.{key}");
        }
    }
    let long = place.text("long");
    let run = format!("run.dir={long}");
    succeed(alone(&["pretrain", "--json", "--config", &best, &run, "train.steps=11"]));
}

/// It needs no corpus, and its evaluations have a loss. Who wants no best model gets none.
/// Row M16.
#[test]
fn any_family_with_a_validation_loss_is_tuned() {
    let place = Workplace::new();
    let path = place.path("copy.toml");
    let study = |recipe: &str| {
        let text = format!(
            "name = \"Copy\"\nrecipe = \"{ROOT}/configs/recipes/{recipe}.toml\"\ntrials = 2\nreruns = 0\n\
             [set]\ntrain.steps = 4\neval.every = 2\ntrain.lanes = 4\ntrain.micro_batch = 4\n\
             [[parameter]]\nkey = \"optim.lr\"\nlow = 1e-4\nhigh = 1e-2\nscale = \"log\"\n"
        );
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let small = ["model.parameters=0", "model.d_model=8", "model.length=3", "checkpoint.best=false"];
    let output = finish(tune(&place, &study("reverse-copy-small"), "copy", &small));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("checkpoint.best is false"), "{}", stderr(&output));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let run = place.path("copy").join(result["summary"]["best"]["run"].as_str().unwrap());
    assert!(run.join("checkpoints").exists() && !run.join("best").exists());
    fail(tune(&place, &study("moment-game"), "game", &[]), 78, &["moment-game", "no validation loss"]);

    // A corpus without a validation split is refused before anything is trained.
    let (train, bare) = (place.text("train.txt"), place.text("bare"));
    let build = ["data", "build", "--train", &train, "--output", &bare, "--preset", "documents"];
    succeed(alone(&[&build[..], &["--tokenizer-kind", "byte"]].concat()));
    let path = write_study(&place, "");
    let bare = format!("data.corpus={bare}");
    fail(tune(&place, &path, "bare-study", &[&bare]), 78, &["no validation split", "data.valid"]);
    assert!(!place.path("bare-study").exists());
}

#[test]
fn studies_with_mistakes_do_not_start() {
    let place = Workplace::new();
    let path = write_study(&place, "");
    fail(tune(&place, &path, "out", &["train.step=3"]), 78, &["train.steps"]);
    fail(tune(&place, &path, "out", &["eval.every=7"]), 78, &["stop.turn", "eval.every"]);
    fail(tune(&place, &path, "out", &["data.corpus=nowhere"]), 66, &["nowhere"]);
    fail(tune(&place, &path, "out", &["run.dir=own"]), 78, &["run.dir", "--output"]);
    fail(tune(&place, "nowhere.toml", "out", &[]), 66, &["nowhere.toml"]);
    fail(tune(&place, &path, "out", &["--workers", "0"]), 64, &["--workers", "at least 1"]);
    let wrong = read(&place, "study.toml").replace("optim.lr", "optim.rate");
    fs::write(&path, wrong).unwrap();
    fail(tune(&place, &path, "out", &[]), 78, &["parameter `optim.rate`", "unknown key"]);
    assert!(!place.path("out").exists());
    let path = write_study(&place, "");
    fs::create_dir(place.path("out")).unwrap();
    fs::write(place.path("out/journal.jsonl"), "{\"event\":\n").unwrap();
    fail(tune(&place, &path, "out", &[]), 65, &["line 1 of", "journal.jsonl"]);
}

/// The best trial is the one with the highest accuracy, though a search makes numbers small; one that does worse than the others is given up.
/// Row M16.
#[test]
fn a_task_is_tuned_by_its_own_metric() {
    let place = Workplace::new();
    // Makes the model and the files of the task.
    place.finetune("none", &[]);
    let path = place.path("task.toml");
    let text = format!(
        "name = \"Task\"\nrecipe = \"{ROOT}/configs/recipes/finetune-small.toml\"\ntrials = 3\nsearch = \"random\"\nreruns = 1\n\
         [set]\ntask.name = \"sst2\"\ntask.data = \"{}\"\ntrain.init_from = \"{}\"\ntask.epochs = 3\ntrain.lanes = 8\n\
         train.micro_batch = 2\ntrain.segment = 32\neval.every = 10\n[stop]\nturn = 20\nleast = 2\n\
         [[parameter]]\nkey = \"optim.lr\"\nlow = 1e-7\nhigh = 1e-1\nscale = \"log\"\n",
        place.text("sst2"),
        place.text("encoder")
    );
    fs::write(&path, text).unwrap();
    let path = path.display().to_string();
    let output = finish(tune(&place, &path, "out", &[]));
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("trials are judged by accuracy, of which higher is better"), "{said}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (summary, best) = (&result["summary"], &result["summary"]["best"]);
    assert_eq!(
        (&summary["measure"]["name"], &summary["measure"]["better"]),
        (&"accuracy".into(), &"higher".into())
    );
    let listed = succeed(tune(&place, &path, "out", &["--list"]));
    let values: Vec<f64> =
        listed["trials"].as_array().unwrap().iter().map(|trial| trial["value"].as_f64().unwrap()).collect();
    assert_eq!(
        best["value"].as_f64().unwrap(),
        values.iter().copied().fold(f64::MIN, f64::max),
        "{listed:#}"
    );
    assert!(values.iter().all(|value| (0.0..=1.0).contains(value)) && best["loss"].is_null());
    // The model of the best trial is the one that is told.
    let run = best["run"].as_str().unwrap();
    let kept: Value = serde_json::from_str(&read(&place, &format!("out/{run}/best/metrics.json"))).unwrap();
    assert_eq!(kept["value"], best["value"], "{kept:#}");
    let report = read(&place, "out/report.md");
    assert!(
        report.contains("| trial | accuracy | turns | settings |") && report.contains("higher is better"),
        "{report}"
    );
    assert!(
        report.contains("## Noise") && !report.contains("perplexity") && !report.contains("nats"),
        "{report}"
    );

    let journal = read(&place, "out/journal.jsonl");
    succeed(tune(&place, &path, "out", &[]));
    assert_eq!(read(&place, "out/journal.jsonl"), journal, "nothing is trained again");
    // Its recipe is one of fine-tuning.
    let (model, data, recipe) = (place.text("encoder"), place.text("sst2"), place.text("out/best.toml"));
    let args =
        ["finetune", "--json", "--print-config", "--config", &recipe, "--model", &model, "--data", &data];
    let config = succeed(alone(&args));
    let rate: f64 = best["settings"]["optim.lr"].as_str().unwrap().parse().unwrap();
    assert_eq!((config["optim"]["lr"].as_f64(), config["task"]["epochs"].as_f64()), (Some(rate), Some(3.0)));
    assert_eq!(config["task"]["name"], "sst2");
}

/// The same bytes twice, at rates that are a geometric series, on two ranks too; nothing is left but what was asked for, of a recipe that names a
/// run and would evaluate and write checkpoints too.
#[test]
fn a_range_test_raises_the_rate_and_leaves_no_run() {
    let place = Workplace::new();
    let (recipe, corpus, run) =
        (format!("{ROOT}/configs/recipes/tiny-lstm.toml"), place.text("corpus"), place.text("run"));
    let (data, dir) = (format!("data.corpus={corpus}"), format!("run.dir={run}"));
    let small =
        ["train.segment=8", "model.n_layer=1", "eval.every=2", "eval.patience=1", "checkpoint.every=2"];
    let ends = ["--lr-from", "1e-4", "--lr-to", "100", "--steps", "13"];
    let args = |output: &str| {
        let words = ["--json", "bench", "lr", "--config", &recipe, "--output", output, &data, &dir];
        [&words[..], &ends, &small].concat().into_iter().map(String::from).collect::<Vec<_>>()
    };
    let folders = ["one", "two", "ranks"].map(|name| place.text(name));
    // What lies where it is started is not taken for its own.
    fs::create_dir_all(place.path("checkpoints/step-00000005")).unwrap();
    let entries = || fs::read_dir(&place.dir).unwrap().count();
    let before = entries();
    let here = |mut command: Command| {
        command.current_dir(&place.dir);
        finish(command)
    };
    let results = [
        here(alone(&args(&folders[0]))),
        here(alone(&args(&folders[1]))),
        here(mpirun(2, &args(&folders[2]))),
    ];
    assert!(results.iter().all(|result| result.status.success()), "{}", stderr(&results[0]));
    let lines = results.each_ref().map(|result| String::from_utf8_lossy(&result.stdout).into_owned());
    assert_eq!(lines[0], lines[1]);
    assert_eq!(lines[0], lines[2]);
    let found: Value = serde_json::from_str(&lines[0]).unwrap();
    let points = found["points"].as_array().unwrap();
    for (i, point) in points.iter().enumerate() {
        // Half a decade further in each step.
        let expected = 1e-4 * 10f64.powf(i as f64 / 2.0);
        assert!((point["lr"].as_f64().unwrap() / expected - 1.0).abs() < 1e-12, "{point}");
        assert_eq!(point["step"], i + 1);
    }
    assert!(points.len() > 3 && loss_of(&points[0]) > 0.0);
    for name in ["lr.json", "lr.csv", "lr.svg"] {
        let texts = folders.each_ref().map(|folder| fs::read_to_string(format!("{folder}/{name}")).unwrap());
        assert_eq!((&texts[0], &texts[0]), (&texts[1], &texts[2]), "{name}");
    }
    assert_eq!((entries() - before, fs::read_dir(place.path("checkpoints")).unwrap().count()), (3, 1));
    let half = args(&place.text("half")).into_iter().chain(["train.precision=fp16".into()]);
    let found = succeed(alone(&half.collect::<Vec<_>>()));
    assert!(found["overflowed"].as_u64().unwrap() > 0, "{found}");
    fail(alone(&args(&folders[0])), 73, &["is not empty", "--force"]);
    let falls = ["bench", "lr", "--lr-from", "1", "--lr-to", "0.1"];
    fail(alone(&falls), 64, &["--lr-from is 1", "let the rates rise"]);
    fail(alone(&["bench", "lr", "task.name=sst2"]), 64, &["sst2", "--model DIR"]);
}
