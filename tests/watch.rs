//! `segue watch` and `segue report` of real runs: in a terminal, over HTTP, in a file.

use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use segue_tests::http::{Server, ask, get};
use segue_tests::{Workplace, alone, fail, finish, segue, stderr, succeed, wait_for};
use serde_json::Value;

/// Six steps, a report of each, a checkpoint after every second.
const SHORT: [&str; 4] = ["train.steps=6", "checkpoint.every=2", "eval.every=3", "log.every=1"];

#[test]
fn a_run_is_told_as_json_as_a_page_and_to_prometheus() {
    let place = Workplace::new();
    succeed(alone(&place.pretrain("run", &SHORT)));
    succeed(alone(&place.pretrain("other", &SHORT)));
    let runs = [place.text("run"), place.text("other")];
    let told = succeed(alone(&["watch", "--json", &runs[0], &runs[1]]));
    let run = &told["runs"][0];
    assert_eq!((&run["name"], &run["state"], &run["step"]), (&"run".into(), &"done".into(), &6.into()));
    assert_eq!((&run["checkpoints"][0], &run["ranks"]["from"]), (&2.into(), &"nobody".into()));
    let metrics = fs::read_to_string(place.path("run/metrics.jsonl")).unwrap();
    let rows: Vec<Value> = metrics.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let rows = rows
        .iter()
        .filter(|row| row["kind"] == "train")
        .map(|row| serde_json::json!([row["step"], row["loss"]]));
    let losses = run["series"].as_array().unwrap().iter().find(|curve| curve[0] == "train/loss").unwrap();
    assert_eq!(losses[1], rows.collect::<Value>());
    let mut server = Server::start(&[], &runs);
    assert!(get(server.port, "/").contains("page.js"));
    let text = get(server.port, "/metrics");
    for line in
        ["segue_step{run=\"run\"} 6", "segue_step{run=\"other\"} 6", "segue_checkpoint_step{run=\"run\"} 6"]
    {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    assert_eq!(ask(server.port, "GET", "/config.json", &[], "").0, 404);
    // SAFETY: plain system call, to a process of ours.
    unsafe { libc::kill(server.process.id() as i32, libc::SIGTERM) };
    assert_eq!(server.process.wait().unwrap().code(), Some(0));
}

#[test]
fn a_server_with_a_token_prints_it_once_and_asks_for_it() {
    let place = Workplace::new();
    fs::create_dir_all(place.path("run/checkpoints")).unwrap();
    let server = Server::start(&["--token"], &[place.text("run")]);
    let (_, token) = server.url.split_once("/?token=").expect("a token");
    assert_eq!(token.len(), 32);
    assert_eq!(ask(server.port, "GET", "/runs.json", &[], "").0, 401);
    assert_eq!(
        ask(server.port, "GET", "/runs.json", &[&format!("Authorization: Bearer {token}")], "").0,
        200
    );
    assert_eq!(ask(server.port, "GET", &format!("/?token={token}"), &[], "").0, 200);
}

#[test]
fn ranks_are_seen_while_a_launched_run_lives_and_after_it_in_its_reports() {
    let place = Workplace::new();
    let long = ["train.steps=100000", "checkpoint.every=20", "eval.every=0", "log.every=1"];
    let job = place.pretrain("run", &long);
    let words: Vec<&str> = job.iter().map(String::as_str).filter(|word| *word != "--json").collect();
    let mut launch = alone(&[&["launch", "--json", "-n", "2", "--back-off", "0.1"][..], &words].concat());
    launch.env("SEGUE_FAULTS", "kill@step.begin:step=90:rank=1:attempt=1");
    let mut launch = launch.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    wait_for("a run", Duration::from_secs(60), || place.path("run/launch").exists());
    let server = Server::start(&[], &[place.text("run")]);
    let run = || serde_json::from_str::<Value>(&get(server.port, "/runs.json")).unwrap()["runs"][0].take();
    wait_for("both ranks of the second attempt", Duration::from_secs(120), || {
        let run = run();
        let ranks = run["ranks"]["ranks"].as_array().cloned().unwrap_or_default();
        let is_far =
            |rank: &Value| rank["step"].as_u64() > Some(90) && rank["resident"].as_u64() > Some(1 << 20);
        run["ranks"]["from"] == "live"
            && run["ranks"]["attempt"] == 2
            && ranks.len() == 2
            && ranks.iter().all(is_far)
    });
    let seen = run();
    assert_eq!(
        (&seen["state"], &seen["attempts"][0]["attempt"]),
        (&"training".into(), &1.into()),
        "{seen:#}"
    );
    assert!(!seen["restarts"].as_array().unwrap().is_empty(), "{seen:#}");
    assert!(get(server.port, "/metrics").contains("segue_rank_step{run=\"run\",rank=\"1\""));
    // SAFETY: plain system call, to a process of ours.
    unsafe { libc::kill(launch.id() as i32, libc::SIGTERM) };
    assert_eq!(launch.wait().unwrap().code(), Some(75));
    assert!(!place.path("run/launch/ranks.json").exists());
    wait_for("the end of the run", Duration::from_secs(20), || {
        let run = run();
        run["state"] == "stopped"
            && run["ranks"]["from"] == "report"
            && run["attempts"].as_array().map(Vec::len) == Some(2)
    });
}

#[test]
fn seeds_are_runs_of_their_own() {
    let place = Workplace::new();
    let mut args = place.finetune("seeds", &["task.epochs=1"]);
    args.extend(["--seeds", "1,2"].map(String::from));
    succeed(alone(&args));
    let told = succeed(alone(&["watch", "--json", &place.text("seeds")]));
    let runs = told["runs"].as_array().unwrap();
    let found: Vec<_> = runs.iter().map(|run| (run["name"].as_str(), run["state"].as_str())).collect();
    assert_eq!(found, ["seed-1", "seed-2"].map(|name| (Some(name), Some("done"))));
    // Each was held while it was trained.
    assert!(place.path("seeds/seed-2/lock").exists());
}

#[test]
fn a_report_is_one_file_with_the_runs_in_it() {
    let place = Workplace::new();
    succeed(alone(&place.pretrain("run", &SHORT)));
    fs::create_dir(place.path("run/samples")).unwrap();
    let sample = r#"{"samples":[{"context":"a","sample":"</script><b>","reference":"c"}]}"#;
    fs::write(place.path("run/samples/samples.json"), sample).unwrap();
    let output = place.text("report.html");
    let told = succeed(alone(&["report", "--json", &place.text("run"), "-o", &output]));
    let html = fs::read_to_string(&output).unwrap();
    assert_eq!((&told["bytes"], &told["runs"][0]["step"]), (&html.len().into(), &6.into()));
    let data = html.split_once("id=\"data\">").unwrap().1.split_once("</script>").unwrap().0;
    let data: Value = serde_json::from_str(data).unwrap();
    assert_eq!(data["runs"][0]["samples"][0]["sample"], "</script><b>");
    assert_eq!(
        data["runs"][0]["series"],
        succeed(alone(&["watch", "--json", &place.text("run")]))["runs"][0]["series"]
    );
}

#[test]
fn what_cannot_be_shown_is_refused() {
    let place = Workplace::new();
    let (none, run) = (place.text("none"), place.text("run"));
    fs::create_dir_all(place.path("run/checkpoints")).unwrap();
    fail(alone(&["watch", "--serve", &none]), 66, &["there is no run in", "segue runs"]);
    fail(alone(&["report", &none, "-o", "x.html"]), 66, &["there is no run in"]);
    fail(
        alone(&["report", &run, "-o", &place.text("no/x.html")]),
        73,
        &["cannot write", "writable --output"],
    );
    fail(alone(&["watch", &run]), 64, &["not a terminal", "--serve"]);
    fail(alone(&["watch", "--serve=node1", &run]), 64, &["ADDRESS:PORT"]);
    let server = Server::start(&[], std::slice::from_ref(&run));
    let output = finish(alone(&["watch", &format!("--serve=127.0.0.1:{}", server.port), &run]));
    assert_eq!(output.status.code(), Some(69), "{}", stderr(&output));
    assert!(stderr(&output).contains("cannot listen at 127.0.0.1"), "{}", stderr(&output));
}

/// The real binary in a pseudo-terminal, which util-linux' `script` makes.
#[test]
fn a_terminal_shows_the_run_and_is_given_back() {
    let place = Workplace::new();
    succeed(alone(&place.pretrain("run", &SHORT)));
    let shown = format!("stty rows 30 cols 100; {} watch {}", segue().display(), place.text("run"));
    let mut command = Command::new("script");
    command.args(["-qefc", &shown, "/dev/null"]).env("TERM", "xterm-256color");
    let Ok(mut script) = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else {
        segue_skip::skip(segue_skip::Need::Machine, "no `script` of util-linux");
        return;
    };
    let (mut drawn, mut part) = (Vec::new(), [0; 4096]);
    let mut screen = script.stdout.take().unwrap();
    let mut draws = |until: &str| {
        while !String::from_utf8_lossy(&drawn).contains(until) {
            let read = screen.read(&mut part).unwrap();
            assert!(read > 0, "it ended before {until} was drawn");
            drawn.extend(&part[..read]);
        }
    };
    let mut keys = script.stdin.take().unwrap();
    draws("known:");
    keys.write_all(b"l").unwrap();
    draws(", logarithmic");
    keys.write_all(b"q").unwrap();
    screen.read_to_end(&mut drawn).unwrap();
    let text = String::from_utf8_lossy(&drawn);
    assert_eq!(script.wait().unwrap().code(), Some(0), "{text}");
    // The other screen is entered and left, the cursor comes back.
    for sequence in ["\u{1b}[?1049h", "\u{1b}[?1049l", "\u{1b}[?25h"] {
        assert!(text.contains(sequence), "{sequence:?} is not in {text:?}");
    }
    for word in ["Segue", "done", "6/6"] {
        assert!(text.contains(word), "{word} is not in {text:?}");
    }
}
