//! Sweeps of many small runs, by the real binary.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use segue_tests::{ROOT, Workplace, alone, fail, finish, stderr, succeed};
use serde_json::Value;

/// A sweep of two cells, and what else `more` adds, over two seeds.
fn write_sweep(place: &Workplace, steps: usize, more: &str) -> String {
    let path = place.path("sweep.toml");
    let text = format!(
        "name = \"Toy\"\nrecipe = \"{ROOT}/configs/recipes/tiny.toml\"\nseeds = [1, 2]\n\
         [set]\ntrain.steps = {steps}\ncheckpoint.every = 5\ndata.corpus = \"{}\"\n\
         [evaluate.memory]\nsegment = 16\ninit = 16\nlengths = [32]\n\
         [evaluate.window]\nsegment = 4\ninit = 12\n\
         [[cell]]\nlabel = \"recurrence\"\npublished = {{ row = \"T-XL\", init = 27.02 }}\n\
         [[cell]]\nlabel = \"no recurrence\"\nset.model.mem_len = 0\n\
         [[expect]]\nbetter = \"recurrence\"\nthan = \"no recurrence\"\n{more}",
        place.text("corpus")
    );
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn sweep(place: &Workplace, path: &str, output: &str, more: &[&str]) -> Command {
    let output = place.text(output);
    alone(&[&["sweep", path, "--json", "--workers", "2", "--output", &output], more].concat())
}

fn read(place: &Workplace, name: &str) -> String {
    fs::read_to_string(place.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Row T24.
#[test]
fn sweep_compares_cells_over_seeds() {
    let place = Workplace::new();
    let path = write_sweep(&place, 20, "");
    let result = succeed(sweep(&place, &path, "out", &[]));
    let rows = result["summary"]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for row in rows {
        // Neither untrained (256 bytes) nor beyond what these words allow.
        let init = row["init"]["mean"].as_f64().unwrap();
        assert!((1.5..256.0).contains(&init) && row["init"]["count"] == 2, "{row}");
        assert!(row["best"]["mean"].as_f64().unwrap() <= init);
    }
    assert!(result["summary"]["checks"][0]["difference"]["count"] == 2);
    let table = read(&place, "out/table.md");
    assert!(table.contains("| recurrence | 2 | ") && table.contains("| T-XL | 27.02 | – | – |"), "{table}");
    assert!(read(&place, "out/table.svg").starts_with("<svg"));
    assert_eq!(read(&place, "out/results.csv").lines().count(), 1 + 2 * 2 + 2);

    // The record of a run is what the commands say when they are given by hand.
    let record: Value = fs::read_dir(place.path("out/results"))
        .unwrap()
        .map(|e| serde_json::from_str(&fs::read_to_string(e.unwrap().path()).unwrap()).unwrap())
        .find(|record: &Value| record["cell"] == "recurrence" && record["seed"] == 2)
        .unwrap();
    let run = record["run"].as_str().unwrap();
    let by_hand = succeed(alone(&[
        "eval",
        "--json",
        "--model",
        run,
        "--lanes",
        "4",
        "--segment",
        "16",
        "--mem-len",
        "32",
        "--same-length",
    ]));
    let name = "--split=valid --lanes=4 --segment=16 --mem-len=32 --same-length";
    assert_eq!(record["evaluations"][name], by_hand["evaluation"]);

    // Nothing is done twice: the runs could not even start again without their recipe's corpus.
    let before = read(&place, "out/results.json");
    let logs = || fs::read_dir(place.path("out/logs")).unwrap().map(|e| e.unwrap().metadata().unwrap().len());
    let written: u64 = logs().sum();
    succeed(sweep(&place, &path, "out", &[]));
    assert_eq!(read(&place, "out/results.json"), before);
    assert_eq!(logs().sum::<u64>(), written);
}

/// Row X30.
#[test]
fn runs_that_evaluate_themselves_are_compared_by_that() {
    let place = Workplace::new();
    let path = place.path("own.toml");
    let text = format!(
        "name = \"Own\"\nrecipe = \"{ROOT}/configs/recipes/tiny.toml\"\nseeds = [1, 2]\n\
         [set]\ntrain.steps = 10\ndata.corpus = \"{}\"\n[evaluate]\nby = \"run\"\n\
         [[cell]]\nlabel = \"all\"\npublished = {{ row = \"4\", scores = {{ RACE = 66.66 }} }}\n\
         [[cell]]\nlabel = \"no memory\"\nset.model.mem_len = 0\n\
         [[expect]]\nbetter = \"all\"\nthan = \"no memory\"\n",
        place.text("corpus")
    );
    fs::write(&path, text).unwrap();
    let result = succeed(sweep(&place, &path.display().to_string(), "own", &[]));
    assert_eq!(result["summary"]["checks"][0]["difference"]["count"], 2);
    let row = &result["summary"]["rows"][0];
    // What the runs themselves have said at their end.
    let mut said: Vec<f64> = Vec::new();
    for entry in fs::read_dir(place.path("own/results")).unwrap() {
        let record: Value =
            serde_json::from_str(&fs::read_to_string(entry.unwrap().path()).unwrap()).unwrap();
        if record["cell"] == "all" {
            said.push(record["train"]["evaluation"]["ppl"].as_f64().unwrap());
        }
    }
    let middle = (said[0] + said[1]) / 2.0;
    assert!((row["measures"]["ppl"]["median"].as_f64().unwrap() - middle).abs() < 1e-9, "{row}");
    let table = read(&place, "own/table.md");
    assert!(table.contains("| published row | RACE |") && table.contains("| 4 | 66.66 |"), "{table}");
}

/// A sweep of one recurrent cell, whose run evaluates itself.
fn write_own_sweep(place: &Workplace, label: &str) -> String {
    let path = place.path("own.toml");
    let text = format!(
        "name = \"Own\"\nrecipe = \"{ROOT}/configs/recipes/tiny-lstm.toml\"\nseeds = [1]\ncurves = true\n\
         [set]\ntrain.steps = 4\neval.every = 2\ndata.corpus = \"{}\"\n[evaluate]\nby = \"run\"\n[[cell]]\nlabel = \"{label}\"\n",
        place.text("corpus")
    );
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// The only entry of a folder.
fn only(place: &Workplace, folder: &str) -> PathBuf {
    let mut entries = fs::read_dir(place.path(folder)).unwrap().map(|entry| entry.unwrap().path());
    let first = entries.next().unwrap();
    assert_eq!(entries.next(), None);
    first
}

/// A run that keeps its best model, and has ended, evaluates nothing when it is started again: it has written down what it found.
/// Row T24.
#[test]
fn a_record_that_is_lost_is_made_again_from_what_the_run_has_evaluated() {
    let place = Workplace::new();
    let path = write_own_sweep(&place, "LSTM");
    let work = || {
        succeed(sweep(&place, &path, "out", &["checkpoint.best=true"]));
        ["results.json", "results.csv", "table.md", "curves.csv"]
            .map(|name| read(&place, &format!("out/{name}")))
    };
    let whole = work();
    let record = only(&place, "out/results");
    for left in ["", "{ \"train\": { \"evaluation\": null } }"] {
        fs::write(&record, left).unwrap();
        assert_eq!(work(), whole, "{left}");
    }
}

/// Row T24.
#[test]
fn a_cell_that_is_renamed_keeps_its_run() {
    let place = Workplace::new();
    succeed(sweep(&place, &write_own_sweep(&place, "first"), "out", &[]));
    let (run, curves) = (only(&place, "out/runs"), read(&place, "out/curves.csv"));
    let renamed = || sweep(&place, &write_own_sweep(&place, "second"), "out", &[]);
    succeed(renamed());
    assert_eq!(only(&place, "out/runs"), run);
    assert!(curves.lines().count() > 1, "{curves}");
    assert_eq!(read(&place, "out/curves.csv"), curves.replace("\nfirst,", "\nsecond,"));
    // Its record outlives it, its losses do not.
    fs::remove_dir_all(&run).unwrap();
    let output = finish(renamed());
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("second, seed 1: left out of the curves: "), "{said}");
    assert_eq!(read(&place, "out/curves.csv").lines().count(), 1);
}

/// `segue eval` reads the best model of a run that keeps it.
/// Row T24.
#[test]
fn cells_of_which_other_models_are_evaluated_have_records_of_their_own() {
    let place = Workplace::new();
    let best = "[[cell]]\nlabel = \"best\"\nset.checkpoint.best = true\n";
    let listed = succeed(sweep(&place, &write_sweep(&place, 5, best), "out", &["--list"]));
    let runs = listed["runs"].as_array().unwrap();
    let keys: BTreeSet<_> = runs.iter().map(|row| row["run"].as_str().unwrap().rsplit('-').next()).collect();
    assert_eq!((runs.len(), keys.len()), (6, 6), "{listed:#}");
}

/// Starts a sweep, waits until a run has written a checkpoint's first report, and sends it a signal.
fn interrupt(mut command: Command, signal: i32) -> Option<i32> {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("trained")));
    assert!(first.is_some(), "no run ended");
    // SAFETY: the child is ours and not yet waited for.
    unsafe { libc::kill(child.id() as i32, signal) };
    // The rest has to be read, or the child could wait for room.
    lines.for_each(drop);
    child.wait().unwrap().code()
}

/// Row T24.
#[test]
fn killed_sweep_ends_with_the_same_results() {
    let place = Workplace::new();
    let path = write_sweep(&place, 15, "");
    succeed(sweep(&place, &path, "whole", &[]));
    assert_eq!(interrupt(sweep(&place, &path, "killed", &[]), libc::SIGKILL), None);
    succeed(sweep(&place, &path, "killed", &[]));
    assert_eq!(interrupt(sweep(&place, &path, "stopped", &[]), libc::SIGTERM), Some(75));
    succeed(sweep(&place, &path, "stopped", &[]));
    for name in ["results.json", "results.csv", "table.md", "table.svg"] {
        let whole = read(&place, &format!("whole/{name}"));
        assert_eq!(read(&place, &format!("killed/{name}")), whole, "{name}");
        assert_eq!(read(&place, &format!("stopped/{name}")), whole, "{name}");
    }
}

/// Row T24.
#[test]
fn failing_cell_is_named_and_the_others_go_on() {
    let place = Workplace::new();
    let failing = "[[cell]]\nlabel = \"too long\"\nset.train.segment = 50000\n\
                   [[cell]]\nlabel = \"no data\"\nset.data.corpus = \"nowhere\"\n";
    let path = write_sweep(&place, 5, failing);
    let output = finish(sweep(&place, &path, "out", &[]));
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("too long, seed 1: failed with exit code 65: error: a lane has"), "{said}");
    assert!(said.contains("logs/too-long-s1-"), "{said}");
    // Data that cannot be read are known before anything trains, and stop their cell alone.
    assert!(
        said.contains("no data, seed 1: failed with exit code 66: ") && said.contains("nowhere"),
        "{said}"
    );
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["failed"].as_array().unwrap().len(), 4);
    let table = read(&place, "out/table.md");
    assert!(
        table.contains("| too long | 0 | – |")
            && table.contains("| no data | 0 | – |")
            && table.contains("| no recurrence | 2 | "),
        "{table}"
    );
}

#[test]
fn sweeps_with_mistakes_do_not_start() {
    let place = Workplace::new();
    let path = write_sweep(&place, 5, "[[cell]]\nlabel = \"typo\"\nset.model.d_modle = 3\n");
    fail(sweep(&place, &path, "out", &[]), 78, &["typo", "d_modle", "model.d_model"]);
    let same = "[[cell]]\nlabel = \"same\"\nset.log.every = 3\n";
    let words = ["`recurrence` and `same`", "compute the same", "[log]"];
    fail(sweep(&place, &write_sweep(&place, 5, same), "out", &[]), 78, &words);
    fail(sweep(&place, "nowhere.toml", "out", &[]), 66, &["nowhere.toml"]);
    fail(sweep(&place, &write_sweep(&place, 5, ""), "out", &["train.step=3"]), 78, &["train.steps"]);
    fail(sweep(&place, &write_sweep(&place, 5, ""), "out", &["data.corpus=nowhere"]), 66, &["nowhere"]);
    fail(sweep(&place, &write_sweep(&place, 5, ""), "out", &["run.dir=own"]), 78, &["run.dir", "--output"]);
    // The corpus has no such split.
    let text = fs::read_to_string(&path)
        .unwrap()
        .replace("[evaluate.memory]", "[evaluate]\nsplit = \"test\"\n[evaluate.memory]");
    fs::write(&path, text).unwrap();
    fail(sweep(&place, &path, "out", &[]), 65, &["test"]);
    assert!(!place.path("out").exists());
}

/// Row S26: the grid of margins with the run that has no adversary, on one corpus; that has the bits of the run whose adversary moves nothing,
/// which is recorded as the rest of the grid is. Row S27: it is trained to a loss below what each of the others is trained on, margin included.
/// Rows S26, S27.
#[test]
fn a_margin_of_nothing_is_the_run_without_an_adversary_and_the_grid_has_a_table() {
    let place = Workplace::new();
    let path = place.path("margins.toml");
    let margins = ["0.0", "0.001", "0.005", "0.01", "0.05"];
    let cell = |margin: &&str| {
        let set = if *margin == "0.0" { "always = true" } else { "gradient = \"full\"" };
        format!("[[cell]]\nlabel = \"{margin}\"\nset.adversarial.scale = {margin}\nset.adversarial.{set}\n")
    };
    let text = format!(
        "name = \"Margins\"\nrecipe = \"{ROOT}/configs/recipes/tiny-lstm.toml\"\nseeds = [1]\n[set]\ntrain.steps = 20\nlog.every = 5\n\
         data.corpus = \"{}\"\n[evaluate]\nby = \"run\"\n[[cell]]\nlabel = \"without\"\n{}",
        place.text("corpus"),
        margins.iter().map(cell).collect::<String>()
    );
    fs::write(&path, text).unwrap();
    let result = succeed(sweep(&place, &path.display().to_string(), "out", &[]));
    let record = |label: &str| {
        let records = fs::read_dir(place.path("out/results")).unwrap();
        let mut records = records.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
        let record = records.find_map(|text| {
            let record: Value = serde_json::from_str(&text).unwrap();
            (record["cell"] == label).then_some(record)
        });
        record.unwrap()
    };
    let file = |label: &str, name: &str| {
        let run = record(label)["run"].as_str().unwrap().to_string();
        fs::read(format!("{run}/{name}")).unwrap()
    };
    let model = |label: &str| file(label, "checkpoints/latest/model.safetensors");
    let losses = |label: &str| {
        let rows = String::from_utf8(file(label, "metrics.jsonl")).unwrap();
        let rows = rows.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let rows = rows.filter(|row| row["kind"] == "train");
        rows.map(|row| ["loss", "adversarial_loss", "adversarial_scale"].map(|key| row[key].as_f64()))
            .collect::<Vec<_>>()
    };
    assert!(model("without") == model("0.0"));
    let (plain, told) = (losses("without"), losses("0.0"));
    assert_eq!(plain.len(), 4);
    for ([loss, none, _], zero) in plain.iter().zip(&told) {
        assert_eq!((*none, *zero), (None, [*loss, *loss, Some(0.0)]));
    }
    for margin in &margins[1..] {
        assert!(model(margin) != model("without"), "{margin}");
        for [loss, against, scale] in losses(margin) {
            assert!(
                against > loss && scale == margin.parse().ok(),
                "{margin}: {against:?} {loss:?} {scale:?}"
            );
        }
        let [last, with] = [&plain, &losses(margin)].map(|rows| rows[rows.len() - 1]);
        assert!(last[0] < with[1], "{margin}: {last:?} {with:?}");
    }
    assert_eq!(result["summary"]["rows"].as_array().unwrap().len(), 6);
    let table = read(&place, "out/table.md");
    assert!(margins.iter().all(|margin| table.contains(&format!("| {margin} |"))), "{table}");
}

/// The record of a run.
fn record_of(place: &Workplace, output: &str, cell: &str, seed: u64) -> Value {
    let records = fs::read_dir(place.path(output).join("results")).unwrap();
    let mut records = records.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    let is_it = |record: &Value| record["cell"] == cell && record["seed"] == seed;
    records.find_map(|text| serde_json::from_str(&text).ok().filter(is_it)).expect("a record")
}

/// Row M19: networks by split, fixed or adapting weights, one pass or the mean of several, with their sizes; and row M21: how fast they were.
/// Rows M19, M21.
#[test]
fn a_table_over_protocols_has_what_the_commands_say() {
    let place = Workplace::new();
    fs::write(place.path("valid.txt"), segue_tests::text(700, 2)).unwrap();
    fs::write(place.path("test.txt"), segue_tests::text(500, 3)).unwrap();
    let test = place.text("test.txt");
    place.build("split", &["--preset", "documents", "--tokenizer-kind", "byte", "--test", &test]);
    let path = place.path("protocols.toml");
    let dynamic = "\"--segment=16\", \"--statistics-batches=3\"";
    let text = |of_rewired: &str| {
        format!(
            "name = \"Protocols\"\nrecipe = \"{ROOT}/configs/recipes/tiny-lstm.toml\"\nseeds = [2]\nspeed = true\n\
             [set]\ntrain.steps = 10\nlog.every = 2\nmodel.parameters = 20000\ndata.corpus = \"{}\"\n[evaluate]\nby = \"run\"\n\
             [evaluate.protocols]\nsplits = [\"valid\", \"test\"]\nunit = \"bits\"\nstatic = [\"--lanes=2\"]\npasses = 2\n\
             rates = [1, 0.1]\ndynamic = [{dynamic}]\n\
             [[cell]]\nlabel = \"LSTM\"\nset = {{ model.cell = \"lstm\", model.mogrifier_rounds = 0, model.mogrifier_rank = 0 }}\n\
             [[cell]]\nlabel = \"rewired\"\n{of_rewired}\n",
            place.text("split")
        )
    };
    fs::write(&path, text("")).unwrap();
    let path = path.display().to_string();
    let result = succeed(sweep(&place, &path, "out", &[]));
    let mut by_hand = Vec::new();
    for split in ["test", "valid"] {
        let run = record_of(&place, "out", "LSTM", 2)["run"].as_str().unwrap().to_string();
        let of = |words: &[&str], split: &str, rates: &str| {
            let passes = ["--model", &run, "--split", split, "--passes", "2", "--rates", rates];
            succeed(alone(&[&["--json", "eval"], words, &passes].concat()))
        };
        // Of several rates the best on the valid split, whatever is evaluated.
        let best_of = |words: &[&str]| {
            let loss = |rates: &&str| of(words, "valid", rates)["passes"][1]["loss"].as_f64().unwrap();
            let best = ["1", "0.1"].into_iter().min_by(|a, b| loss(a).total_cmp(&loss(b))).unwrap();
            of(words, split, best)
        };
        let fixed = best_of(&["monte-carlo", "--lanes", "2"]);
        let adapting = best_of(&["dynamic", "--segment", "16", "--statistics-batches", "3"]);
        let losses = [&adapting["dynamic"], &adapting["passes"][1], &fixed["fixed"], &fixed["passes"][1]];
        by_hand.extend(losses.map(|found| found["loss"].as_f64().unwrap() / 2f64.ln()));
    }
    let row = &result["summary"]["rows"][0];
    let columns: Vec<&String> =
        row["measures"].as_object().unwrap().keys().filter(|name| name.contains("bits")).collect();
    let of_split = |split: &str| {
        ["dynamic", "dynamic MC", "static", "static MC"].map(|protocol| format!("{split} bits, {protocol}"))
    };
    assert_eq!(columns, [of_split("test"), of_split("valid")].concat().iter().collect::<Vec<_>>());
    for (column, expected) in columns.iter().zip(by_hand) {
        let found = row["measures"][column.as_str()]["mean"].as_f64().unwrap();
        assert!((found - expected).abs() < 1e-9, "{column}: {found}, {expected}");
    }
    let table = read(&place, "out/table.md");
    let counts: Vec<u64> = table
        .lines()
        .filter(|line| line.starts_with("| LSTM ") || line.starts_with("| rewired "))
        .map(|line| line.split('|').nth(3).unwrap().trim().parse().unwrap())
        .collect();
    assert!(counts.len() == 2 && counts.iter().all(|count| (18_000..=20_000).contains(count)), "{table}");
    let speed = read(&place, "out/speed.md");
    assert!(
        speed.contains("| tokens/s | time per token, LSTM = 1 |") && speed.contains("| 1.00 (1.00) |"),
        "{speed}"
    );

    // What is recorded is not made again, and weights that diverge leave a dash and no failure.
    let before = read(&place, "out/results.json");
    succeed(sweep(&place, &path, "out", &[]));
    assert_eq!(read(&place, "out/results.json"), before);
    let wild = text("").replace(dynamic, "\"--rule=sgd\", \"--lr=1e30\"");
    fs::write(&path, wild).unwrap();
    let output = finish(sweep(&place, &path, "out", &[]));
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let line = said.lines().find(|line| line.starts_with("LSTM, seed 2: trained")).unwrap();
    assert!(line.contains("diverged in `segue eval dynamic --split=valid "), "{line}");
    // Row by row: `dynamic` and `dynamic MC` of the test split; `static` has a number.
    let cells = |text: &str| {
        let row = text.lines().find(|line| line.starts_with("| LSTM ")).unwrap();
        row.split(" | ").map(String::from).collect::<Vec<_>>()
    };
    let columns = |text: &str, name: &str| {
        let head = text.lines().find(|line| line.starts_with("| cell ")).unwrap();
        cells(text)[head.split(" | ").position(|head| head == name).unwrap()].clone()
    };
    let table = read(&place, "out/table.md");
    for protocol in ["dynamic", "dynamic MC"] {
        assert_eq!(columns(&table, &format!("test bits, {protocol}")), "–", "{table}");
    }
    assert_ne!(columns(&table, "test bits, static MC"), "–", "{table}");
    let record = record_of(&place, "out", "LSTM", 2);
    let diverged = record["protocols"]
        .as_object()
        .unwrap()
        .values()
        .filter(|result| result["diverged_as_it_adapted"].is_string());
    assert_eq!(diverged.count(), 2, "{record:#}");
    // One more protocol of runs whose folders are gone.
    fs::remove_dir_all(place.path("out/runs")).unwrap();
    fs::write(&path, text("").replace(dynamic, "\"--rule=sgd\", \"--lr=1e-3\"")).unwrap();
    succeed(sweep(&place, &path, "out", &[]));
    let table = read(&place, "out/table.md");
    assert_ne!(columns(&table, "valid bits, dynamic MC"), "–", "{table}");
    // Those that were on record are kept with the new training.
    let kept = &record_of(&place, "out", "LSTM", 2)["protocols"];
    let before = record["protocols"].as_object().unwrap();
    assert!(before.iter().all(|(name, result)| kept[name] == *result), "{kept:#}");
    // Options that no protocol takes, or not with such values, are refused before anything trains.
    for (wrong, word) in [("--leap=3", "--leap"), ("--segment=none", "--segment")] {
        fs::write(&path, text("").replace(dynamic, &format!("\"{wrong}\""))).unwrap();
        fail(sweep(&place, &path, "wrong", &[]), 78, &["[evaluate.protocols]", "segue eval dynamic", word]);
        assert!(!place.path("wrong").exists());
    }
    fs::write(&path, text("").replace("passes = 2\nrates = [1, 0.1]", "rates = 1.0")).unwrap();
    fail(sweep(&place, &path, "wrong", &[]), 78, &["evaluate.protocols.rates", "evaluate.protocols.passes"]);
    fs::write(&path, text("")).unwrap();
    // There is no test split of the other corpus.
    let corpus = format!("data.corpus={}", place.text("corpus"));
    fail(sweep(&place, &path, "other", &[&corpus]), 65, &["test"]);
}

/// Evaluations on record outlive run folders: what is yet to be evaluated is trained again to its end first, and where that comes to other numbers they are
/// made again too.
/// Row T24.
#[test]
fn a_run_that_is_trained_again_keeps_evaluations_of_the_same_weights_alone() {
    const FIXED: &str = "--split=valid --lanes=2";
    let place = Workplace::new();
    let path = place.path("again.toml");
    let of_rate = |lr: &str| format!("dynamic --split=valid --rule=sgd --lr={lr}");
    let again = |output: &str, lr: &str| {
        let dynamic = if lr.is_empty() {
            String::new()
        } else {
            format!("dynamic = [\"--rule=sgd\", \"--lr={lr}\"]\n")
        };
        let text = format!(
            "name = \"Again\"\nrecipe = \"{ROOT}/configs/recipes/tiny-lstm.toml\"\nseeds = [1]\n\
             [set]\ntrain.steps = 20\ndata.corpus = \"{}\"\n[evaluate]\nby = \"run\"\n\
             [evaluate.protocols]\nstatic = [\"--lanes=2\"]\n{dynamic}[[cell]]\nlabel = \"LSTM\"\n",
            place.text("corpus")
        );
        fs::write(&path, text).unwrap();
        sweep(&place, &path.display().to_string(), output, &[])
    };
    let record = || -> Value {
        serde_json::from_str(&fs::read_to_string(only(&place, "out/results")).unwrap()).unwrap()
    };
    let change = |change: &dyn Fn(&mut Value)| {
        let mut record = record();
        change(&mut record);
        fs::write(only(&place, "out/results"), record.to_string()).unwrap();
        fs::remove_dir_all(place.path("out/runs")).unwrap();
    };
    succeed(again("out", ""));
    succeed(again("whole", "1e-3"));
    let whole = record_of(&place, "whole", "LSTM", 1);
    // A mark shows what is kept.
    change(&|record| record["protocols"][FIXED]["mark"] = true.into());
    let mut killed = again("out", "1e-3");
    killed.env("SEGUE_FAULTS", "kill@step.begin:step=15");
    let output = finish(killed);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(only(&place, "out/runs").join("checkpoints/latest").exists());
    succeed(again("out", "1e-3"));
    let found = record();
    let losses = |record: &Value| {
        let loss = |found: &Value| found["loss"].as_f64().unwrap();
        (loss(&record["train"]), loss(&record["protocols"][of_rate("1e-3")]["dynamic"]))
    };
    assert_eq!((&found["train"]["step"], losses(&found)), (&20.into(), losses(&whole)));
    assert_eq!(found["protocols"][FIXED]["mark"], true);
    change(&|record| record["train"]["loss"] = 99.into());
    succeed(again("out", "1e-4"));
    let found = record();
    assert!(
        found["protocols"][FIXED]["evaluation"].is_object() && found["protocols"][FIXED]["mark"].is_null(),
        "{found:#}"
    );
    assert!(
        found["protocols"][of_rate("1e-4")].is_object() && found["protocols"][of_rate("1e-3")].is_null(),
        "{found:#}"
    );
    let log = fs::read_to_string(only(&place, "out/logs")).unwrap();
    assert!(log.contains("whose evaluations are made again"), "{log}");
}

/// Row M23: one dropout sample is the plain run, bit for bit, on an axis of steps and one of forward passes.
/// Row M23.
#[test]
fn a_single_sample_is_the_plain_run_on_both_axes() {
    let place = Workplace::new();
    let path = place.path("samples.toml");
    let text = format!(
        "name = \"Samples\"\nrecipe = \"{ROOT}/configs/recipes/tiny-lstm.toml\"\nseeds = [1]\ncurves = true\n\
         [set]\neval.every = 4\naverage.kind = \"two_tailed\"\nobjective.loss_over = \"lanes\"\ndata.corpus = \"{}\"\n\
         [evaluate]\nby = \"run\"\n\
         [[cell]]\nlabel = \"D × N\"\nset = {{ train.steps = 8, objective.samples = 2 }}\n\
         [[cell]]\nlabel = \"1 × N\"\nset.train.steps = 8\n[[cell]]\nlabel = \"1 × D N\"\nset.train.steps = 16\n",
        place.text("corpus")
    );
    fs::write(&path, text).unwrap();
    succeed(sweep(&place, &path.display().to_string(), "out", &[]));
    let settings = ["train.steps=8", "eval.every=4", "average.kind=two_tailed", "objective.loss_over=lanes"];
    succeed(alone(&place.pretrain_lstm("plain", &[&settings[..], &["train.seed=1"]].concat())));
    let run = |cell: &str| record_of(&place, "out", cell, 1)["run"].as_str().unwrap().to_string();
    let bytes =
        |cell: &str| segue_tests::files_of(&std::path::Path::new(&run(cell)).join("checkpoints/latest"));
    for (name, plain) in place.final_bytes("plain") {
        assert!(bytes("1 × N")[&name] == plain, "{name}");
    }
    assert!(bytes("D × N")["model.safetensors"] != bytes("1 × N")["model.safetensors"]);
    // Cells by step and by pass: two samples for 8 steps take as many passes as one for 16.
    let curves = read(&place, "out/curves.csv");
    let ends = |cell: &str| {
        let last = curves.lines().rfind(|line| line.starts_with(&format!("{cell},"))).unwrap();
        last.split(',').skip(2).take(2).map(String::from).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(["D × N", "1 × N", "1 × D N"].map(ends), ["8 16", "8 8", "16 16"]);
    assert!(["out/by-step.svg", "out/by-pass.svg"].iter().all(|name| read(&place, name).starts_with("<svg")));
}

/// A sweep of a task over two rates, of which one learns; `more` stands before the axis.
fn write_task_sweep(place: &Workplace, more: &str) -> String {
    // Makes the model and the files of the task.
    place.finetune("none", &[]);
    let path = place.path("task.toml");
    let text = format!(
        "name = \"Task\"\nrecipe = \"{ROOT}/configs/recipes/finetune-small.toml\"\nseeds = [1]\ncurves = true\nspeed = true\n\
         [set]\ntask.name = \"sst2\"\ntask.data = \"{}\"\ntrain.init_from = \"{}\"\ntask.epochs = 3\ntrain.lanes = 8\n\
         train.micro_batch = 2\ntrain.segment = 32\neval.every = 20\n{more}\
         [[axis]]\nname = \"rate\"\nvalues = [{{ label = \"none\", set.optim.lr = 1e-12 }}, {{ label = \"some\", set.optim.lr = 3e-3 }}]\n\
         [[expect]]\nbetter = \"some\"\nthan = \"none\"\n",
        place.text("sst2"),
        place.text("encoder")
    );
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// Higher is better, in the difference, the table, the curves and the chart.
/// Row T24.
#[test]
fn a_task_is_swept_by_its_own_metric() {
    let place = Workplace::new();
    let path = write_task_sweep(&place, "[evaluate]\nby = \"run\"\n");
    let output = finish(sweep(&place, &path, "out", &[]));
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("some, seed 1: trained, accuracy 0.") || said.contains("accuracy 1."), "{said}");
    assert!(said.contains("compared by accuracy, of which higher is better"), "{said}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let summary = &result["summary"];
    assert_eq!(summary["compared"], "accuracy", "{summary:#}");
    let records: Vec<Value> = fs::read_dir(place.path("out/results"))
        .unwrap()
        .map(|entry| serde_json::from_str(&fs::read_to_string(entry.unwrap().path()).unwrap()).unwrap())
        .collect();
    let best = |cell: &str| {
        let record = records.iter().find(|record| record["cell"] == cell).unwrap();
        let metrics =
            fs::read_to_string(format!("{}/metrics.jsonl", record["run"].as_str().unwrap())).unwrap();
        let rows = metrics.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        rows.filter_map(|row| row["value"].as_f64()).fold(f64::MIN, f64::max)
    };
    for row in summary["rows"].as_array().unwrap() {
        assert_eq!(row["init"]["mean"].as_f64(), Some(best(row["label"].as_str().unwrap())), "{row}");
        assert_eq!(row["measures"]["accuracy"]["mean"], row["init"]["mean"]);
    }
    let difference = summary["checks"][0]["difference"]["mean"].as_f64().unwrap();
    assert!(best("some") > best("none") && (difference - (best("some") - best("none"))).abs() < 1e-12);
    let table = read(&place, "out/table.md");
    assert!(
        table.contains("| cell | seeds | accuracy, % | loss |")
            && table.contains("of which higher is better"),
        "{table}"
    );
    assert!(table.contains("| higher | lower | difference | verdict |"), "{table}");
    assert!(read(&place, "out/table.svg").contains("accuracy, %"));
    assert!(read(&place, "out/results.csv").starts_with("cell,seed,attention,accuracy\n"));
    assert!(read(&place, "out/speed.md").contains("examples/s"));
    let curves = read(&place, "out/curves.csv");
    assert!(curves.starts_with("cell,seed,step,passes,best_accuracy\n"), "{curves}");
    let last = curves.lines().rfind(|line| line.starts_with("some,")).unwrap();
    assert_eq!(last.rsplit(',').next().unwrap().parse::<f64>().unwrap(), best("some"));

    // Nothing is trained twice.
    let logs = || fs::read_dir(place.path("out/logs")).unwrap().map(|e| e.unwrap().metadata().unwrap().len());
    let (before, written): (String, u64) = (read(&place, "out/results.json"), logs().sum());
    succeed(sweep(&place, &path, "out", &[]));
    assert_eq!((read(&place, "out/results.json"), logs().sum::<u64>()), (before, written));
}

#[test]
fn sweeps_of_tasks_with_mistakes_do_not_start() {
    let place = Workplace::new();
    let path = write_task_sweep(&place, "[evaluate.memory]\nsegment = 8\n");
    fail(sweep(&place, &path, "out", &[]), 78, &["task.name is set", "by = \"run\""]);
    let path = write_task_sweep(&place, "[evaluate]\nby = \"run\"\n");
    fail(sweep(&place, &path, "out", &["task.data="]), 78, &["task.data is not set"]);
    fail(sweep(&place, &path, "out", &["train.init_from=nowhere"]), 66, &["train.init_from", "nowhere"]);
    fail(sweep(&place, &path, "out", &["task.metric=f1"]), 78, &["task.metric", "accuracy"]);
    assert!(!place.path("out").exists());
}
