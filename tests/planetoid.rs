//! Nodes of a graph, from files to predictions.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use segue_tests::graph::{CLASSES, NODES, communities};
use segue_tests::kills::kill_often;
use segue_tests::{ROOT, alone, fail, files_of, finish, mpirun, repeats, stderr, succeed};
use serde_json::json;
use tempfile::TempDir;

/// A place with a graph of three communities in its folder `graph`.
fn place() -> TempDir {
    let place = tempfile::tempdir().expect("a temporary folder");
    communities(&place.path().join("graph"));
    place
}

/// Arguments that train on it in the run folder `run`.
fn pretrain(place: &TempDir, run: &str, more: &[&str]) -> Vec<String> {
    let mut args = vec!["pretrain".to_string(), "--json".into(), "--config".into()];
    args.extend([
        format!("{ROOT}/configs/recipes/planetoid-cora.toml"),
        format!("run.dir={}", place.path().join(run).display()),
        format!("data.corpus={}", place.path().join("graph").display()),
    ]);
    let short = [
        "train.pretrain_label=10",
        "train.pretrain_contexts=20",
        "train.context_steps=0.5",
        "model.d_embed=8",
        "train.steps=60",
        "checkpoint.every=10",
        "eval.every=20",
    ];
    args.extend(short.iter().chain(more).map(|word| word.to_string()));
    args
}

fn weights(place: &TempDir, run: &str) -> Vec<u8> {
    let file = place.path().join(run).join("checkpoints/latest/model.safetensors");
    fs::read(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}

/// Rows P7, P9.
#[test]
fn graphs_are_learnt_to_the_same_bytes_over_ranks_stops_and_kills() {
    let place = place();
    for variant in ["transductive", "inductive"] {
        let variant = format!("model.variant={variant}");
        let args = |run: &str, more: &[&str]| pretrain(&place, run, &[&[variant.as_str()], more].concat());
        let named = |run: &str| format!("{}-{run}", &variant["model.variant=".len()..]);
        let one = succeed(alone(&args(&named("one"), &[])));
        for ranks in [2, 4] {
            let run = named(&ranks.to_string());
            let found = succeed(mpirun(ranks, &args(&run, &[])));
            assert_eq!(found["evaluation"], one["evaluation"], "{variant}, {ranks} ranks");
            assert!(weights(&place, &run) == weights(&place, &named("one")), "{variant}, {ranks} ranks");
        }
        let parts = args(&named("parts"), &[]);
        succeed(mpirun(2, &args(&named("parts"), &["train.stop_at=17"])));
        let mut killed = alone(&parts);
        killed.env("SEGUE_FAULTS", "kill@step.update:hit=20");
        let killed = finish(killed);
        assert_eq!(killed.status.code(), None, "{}", stderr(&killed));
        let last = succeed(mpirun(4, &parts));
        assert_eq!(last["evaluation"], one["evaluation"], "{variant}");
        assert!(weights(&place, &named("parts")) == weights(&place, &named("one")), "{variant}");
    }
}

/// Steps are many and checkpoints few, so that most kills cost work. Means over pairs: sums of so many steps would diverge on so few nodes.
/// Row P10.
#[test]
fn killed_at_random_moments_a_run_ends_with_the_same_bytes() {
    let place = place();
    let long = [
        "model.context_mean=true",
        "train.pretrain_label=150",
        "train.steps=1200",
        "checkpoint.every=50",
        "eval.every=300",
    ];
    let tensors = |run: &str| {
        let mut files = files_of(&place.path().join(run).join("checkpoints/latest"));
        files.retain(|name, _| name.ends_with(".safetensors"));
        assert!(files.contains_key("model.safetensors"), "{run}: {:?}", files.keys());
        files
    };
    kill_often(repeats(4, 20), &|run| pretrain(&place, run, &long), &|run, other| {
        assert!(tensors(run) == tensors(other), "{run} and {other} differ");
    });
}

/// Row P17.
#[test]
fn predictions_embeddings_and_a_map_are_written() {
    let place = place();
    let text = |name: &str| place.path().join(name).display().to_string();
    let trained = succeed(alone(&pretrain(&place, "run", &[])));
    let (csv, embeddings, picture) = (text("classes.csv"), text("embeddings.safetensors"), text("map.svg"));
    let run = text("run");
    let options = ["--csv", &csv, "--embeddings", &embeddings, "--picture", &picture];
    let found = succeed(alone(&[&["predict", &run, "--json"][..], &options].concat()));
    assert_eq!(found["accuracy"], trained["evaluation"]["accuracy"]);
    assert_eq!(found["predictions"].as_array().map(Vec::len), Some(NODES - 80));
    let lines = fs::read_to_string(&csv).expect("the file of predictions");
    assert_eq!((lines.lines().count(), lines.lines().next()), (1 + NODES - 80, Some("node,class,p0,p1,p2")));
    let bytes = fs::read(&embeddings).expect("the file of embeddings");
    assert!(String::from_utf8_lossy(&bytes).contains("\"shape\":[40,8]"));
    let svg = fs::read_to_string(&picture).expect("the picture");
    // A dot for each node, and one for each class in the legend.
    assert_eq!(svg.matches("<circle").count(), NODES - 80 + CLASSES);

    let nodes = text("nodes.txt");
    fs::write(&nodes, "3\n81\n\n").expect("a file");
    let found = succeed(alone(&["predict", &run, "--json", "--nodes", &nodes]));
    let numbers: Vec<_> =
        found["predictions"].as_array().expect("a list").iter().map(|row| row["node"].clone()).collect();
    assert_eq!(numbers, [3, 81]);
    fs::write(&nodes, "3\nfour\n").expect("a file");
    fail(alone(&["predict", &run, "--nodes", &nodes]), 65, &["line 2", "`four`"]);
    let rows = text("unseen.svm");
    fs::write(&rows, "0:1 3:1\n").expect("a file");
    fail(alone(&["predict", &run, "--features", &rows]), 78, &["nodes of its graph alone"]);
}

/// Row P9.
#[test]
fn unseen_nodes_are_predicted() {
    let place = place();
    let text = |name: &str| place.path().join(name).display().to_string();
    succeed(alone(&pretrain(&place, "run", &["model.variant=inductive"])));
    let rows = text("unseen.svm");
    fs::write(&rows, "0:1 3:1 6:1\n\n1:1 4:1\n").expect("a file");
    let found = succeed(alone(&["predict", &text("run"), "--features", &rows, "--json"]));
    let predictions = found["predictions"].as_array().expect("a list");
    assert_eq!(predictions.len(), 3);
    for row in predictions {
        let sum: f64 =
            row["probabilities"].as_array().expect("a list").iter().filter_map(|p| p.as_f64()).sum();
        assert!((sum - 1.0).abs() < 1e-5, "{row}");
    }
}

/// One path, of which cells read different files; and data that change while a sweep is under way.
/// Row P7.
#[test]
fn results_of_a_sweep_are_of_the_data_that_each_run_has_read() {
    let place = place();
    let text = |name: &str| place.path().join(name).display().to_string();
    for setting in ["trans", "ind"] {
        let folder = place.path().join("both").join(setting);
        fs::create_dir_all(&folder).expect("a folder");
        for (name, bytes) in files_of(&place.path().join("graph")) {
            fs::write(folder.join(name), bytes).expect("a file");
        }
    }
    let sweep = format!(
        "name = \"graphs\"\nrecipe = \"{ROOT}/configs/recipes/planetoid-cora.toml\"\noutput = \"{}\"\nseeds = [1, 2]\n\
         [set]\ndata.corpus = \"{}\"\ntrain.pretrain_label = 10\ntrain.pretrain_contexts = 10\ntrain.steps = 40\n\
         [evaluate]\nby = \"run\"\n[[cell]]\nlabel = \"T\"\n\
         [[cell]]\nlabel = \"I\"\nset.model.variant = \"inductive\"\n",
        text("out"),
        text("both")
    );
    fs::write(place.path().join("sweep.toml"), sweep).expect("a file");
    let file = text("sweep.toml");
    let command = ["sweep", "--json", &file];
    let runs = || -> Vec<(String, String)> {
        let listed = succeed(alone(&[&command[..], &["--list"]].concat()));
        let of = |row: &serde_json::Value, key: &str| row[key].as_str().expect("a text").to_string();
        listed["runs"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|row| (of(row, "cell"), of(row, "run")))
            .collect()
    };
    let double = |file: &str| {
        let path = place.path().join("both").join(file);
        fs::write(&path, fs::read_to_string(&path).expect("a file").replace(":1", ":2")).expect("a file");
    };
    let before = runs();
    double("ind/features.svm");
    for (before, after) in before.iter().zip(runs()) {
        assert_eq!(before.1 == after.1, after.0 == "T", "{after:?}");
    }

    let mut child = alone(&command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line.contains("trained"))), "no run ended");
    double("trans/features.svm");
    lines.for_each(drop);
    let result = child.wait_with_output().expect("it ends");
    let found: serde_json::Value = serde_json::from_slice(&result.stdout).expect("JSON");
    // Seeds change slowest: the first run is of the first cell, and one run of it is left.
    let failed = found["failed"].as_array().expect("a list");
    assert_eq!(failed.iter().map(|row| &row["cell"]).collect::<Vec<_>>(), ["T"], "{found}");
    assert!(failed[0]["why"].as_str().expect("a text").contains("its data has changed"), "{found}");
    // What was recorded is of the data as they were; all others are made of those there are.
    let again = succeed(alone(&command));
    assert_eq!((&again["failed"], &again["summary"]["rows"][0]["init"]["count"]), (&json!([]), &2.into()));
}

/// Cells of a sweep whose runs report accuracies are compared by them, and tables have them in percent.
/// Row P7.
#[test]
fn methods_are_compared_by_their_accuracies() {
    let place = place();
    let graph = place.path().join("graph");
    let sweep = place.path().join("sweep.toml");
    let text = format!(
        "name = \"graphs\"\nrecipe = \"{ROOT}/configs/recipes/planetoid-cora.toml\"\noutput = \"{}\"\nseeds = [1, 2]\n\
         [set]\ndata.corpus = \"{}\"\ntrain.pretrain_label = 10\ntrain.pretrain_contexts = 10\ntrain.steps = 40\n\
         [evaluate]\nby = \"run\"\n\
         [[cell]]\nlabel = \"both\"\npublished = {{ row = \"T\", scores = {{ \"accuracy, %\" = 75.7 }} }}\n\
         [[cell]]\nlabel = \"features\"\nset.model.variant = \"features\"\n\
         [[expect]]\nbetter = \"both\"\nthan = \"features\"\n",
        place.path().join("out").display(),
        graph.display()
    );
    fs::write(&sweep, text).expect("a file");
    let found = succeed(alone(&["sweep", "--json", &sweep.display().to_string()]));
    assert_eq!(found["failed"].as_array().map(Vec::len), Some(0));
    let rows = &found["summary"]["rows"];
    let (compared, measured) = (&rows[0]["init"]["mean"], &rows[0]["measures"]["accuracy"]["mean"]);
    assert_eq!((&found["summary"]["compared"], compared), (&"accuracy".into(), measured));
    let better = |row: usize| rows[row]["init"]["mean"].as_f64().expect("a mean");
    let gain = found["summary"]["checks"][0]["difference"]["mean"].as_f64().expect("a mean");
    assert!((gain - (better(0) - better(1))).abs() < 1e-12, "{gain}");
    let read = |name: &str| fs::read_to_string(place.path().join("out").join(name)).expect(name);
    let table = read("table.md");
    assert!(table.contains(&format!("({:.2}", 100.0 * better(0))), "{table}");
    assert!(table.contains("75.70") && table.contains("difference of accuracies, in points,"), "{table}");
    assert!(read("table.svg").contains("accuracy, %"));
    assert!(read("results.csv").starts_with("cell,seed,attention,accuracy\n"));
}
