//! Data sets of graphs, seen through the real binary.

use std::fs;
use std::path::PathBuf;

use segue_tests::{ROOT, alone, ended_with, fail, finish, mpirun, stderr, succeed};

/// Row P1.
#[test]
fn every_form_of_a_data_set_has_one_fingerprint() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name).display().to_string();
    let (text, mapped, pickles) = (at("text"), at("mapped"), at("ind.copy"));
    let published = format!("{ROOT}/tests/fixtures/planetoid/ind.python2-protocol2");
    let command = ["data", "graph", "--json", "--setting", "inductive"];
    let outputs = ["--text", &text, "--mapped", &mapped, "--pickles", &pickles];
    let first = succeed(alone(&[&command[..], &[&published], &outputs].concat()));
    assert_eq!((&first["graph"]["nodes"], &first["graph"]["duplicates"]), (&8.into(), &2.into()));
    assert_eq!(
        (&first["test"], &first["nodes_with_features"], &first["name"]),
        (&3.into(), &7.into(), &"python2-protocol2".into())
    );
    for form in [&text, &mapped, &pickles] {
        let read = succeed(alone(&[&command[..], &[form]].concat()));
        assert_eq!(read["fingerprint"], first["fingerprint"], "{form}");
    }
    // The files, not only what is read of them.
    assert!(
        place.path().join("mapped/graph.bin").is_file() && !place.path().join("mapped/graph.adj").exists()
    );
    assert_eq!(fs::read_to_string(place.path().join("ind.copy.test.index")).unwrap(), "7\n4\n6\n");
}

/// A row of a node that the graph does not have ends the command before it writes anything.
/// Row P1.
#[test]
fn pickles_that_reach_beyond_their_graph_are_refused_and_nothing_is_written() {
    let place = tempfile::tempdir().unwrap();
    for part in ["x", "y", "tx", "ty", "allx", "ally", "graph", "test.index"] {
        let from = format!("{ROOT}/tests/fixtures/planetoid/ind.python2-protocol2.{part}");
        fs::copy(from, place.path().join(format!("ind.toy.{part}"))).unwrap();
    }
    let at = |name: &str| place.path().join(name).display().to_string();
    let (prefix, out) = (at("ind.toy"), at("out"));
    let outputs = ["--text", &out, "--mapped", &out, "--pickles", &out];
    for (part, content, says) in [
        ("test.index", "7\n4\n8\n", "ind.toy.test.index, line 3: node 8 of a graph with 8 nodes"),
        (
            "graph",
            "(dI2\n(lI2\nas.",
            "ind.toy.allx cannot be read: row 3 is of node 3 of a graph with 3 nodes",
        ),
    ] {
        fs::write(place.path().join(format!("ind.toy.{part}")), content).unwrap();
        for output in outputs.chunks(2) {
            let command = ["data", "graph", &prefix, "--setting", "inductive"];
            fail(alone(&[&command[..], output].concat()), 65, &[says]);
            assert!(!place.path().join("out").exists());
        }
    }
}

/// Triples of three categories, each with relations of its own, and of a fourth that is too small.
fn triples() -> String {
    let entity = |number: usize| format!("e{number}");
    let line = |number: usize| {
        let category = if number < 42 { number % 3 } else { 3 };
        let others = [3, 6].map(|step| entity((number + step) % 42));
        format!(
            "{0}\tconcept:near{category}\t{1}\n{0}\tconcept:like{category}\t{2}\n{0}\tgeneralizations\tcategory{category}\n",
            entity(number),
            others[0],
            others[1]
        )
    };
    (0..47).map(line).collect()
}

/// What the builder writes has no features: Planetoid-T trains on it as it stands, and is Planetoid-G, to the last byte and prediction, over
/// stops and ranks. Features that are put beside it are read.
/// Row P19.
#[test]
fn what_triples_become_is_trained_on() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name).display().to_string();
    fs::write(at("nell.tsv"), triples()).unwrap();
    let command = ["data", "graph", &at("nell.tsv"), "--triples", "--rate", "0.1", "--seed", "1", "--json"];
    for form in ["--text", "--mapped"] {
        let folder = at(&form[2..]);
        let built = succeed(alone(&[&command[..], &[form, &folder]].concat()));
        assert_eq!((&built["classes"], &built["train"], &built["test"]), (&3.into(), &3.into(), &39.into()));
    }
    let pretrain = |graph: &str, run: &str, more: &[&str]| -> Vec<String> {
        let recipe = format!("{ROOT}/configs/recipes/planetoid-cora.toml");
        let own = [format!("run.dir={}", at(run)), format!("data.corpus={}", at(graph))];
        let short = [
            "train.pretrain_label=30",
            "train.pretrain_contexts=300",
            "train.label_batch=5",
            "train.context_batch=20",
            "model.self_pairs=false",
            "model.lambda=0.05",
            "model.d_embed=8",
            "train.steps=430",
        ];
        let words = ["pretrain", "--json", "--config", &recipe].into_iter().chain(short);
        words.map(str::to_string).chain(own).chain(more.iter().map(|word| word.to_string())).collect()
    };
    let trained = |run: &str| {
        let weights = fs::read(place.path().join(run).join("checkpoints/latest/model.safetensors")).unwrap();
        (weights, succeed(alone(&["predict", &at(run), "--json"]))["predictions"].clone())
    };
    let graph = succeed(alone(&pretrain("text", "g", &["model.variant=graph"])));
    let accuracy = graph["evaluation"]["accuracy"].as_f64().unwrap();
    assert!(accuracy > 0.8, "{accuracy}");
    let expected = trained("g");
    for (run, form) in [("t", "text"), ("t-mapped", "mapped")] {
        succeed(mpirun(2, &pretrain(form, run, &["train.stop_at=177"])));
        let both = succeed(alone(&pretrain(form, run, &[])));
        assert_eq!(both["evaluation"], graph["evaluation"], "{form}");
        assert!(trained(run) == expected, "{form}");
    }
    // What learns from features alone has nothing to learn from.
    fail(
        alone(&pretrain("text", "f", &["model.variant=features"])),
        65,
        &["has no features, which are learnt from"],
    );
    // A column for each category: features say it all.
    let labels = fs::read_to_string(at("text/labels.txt")).unwrap();
    let row = |(node, label): (usize, &str)| label.parse::<u32>().map(|class| format!("{node} {class}:1\n"));
    let features: String = labels.lines().enumerate().filter_map(|found| row(found).ok()).collect();
    fs::write(at("text/features.svm"), features).unwrap();
    let both = succeed(alone(&pretrain("text", "with-features", &["train.steps=600"])));
    assert_eq!(both["evaluation"]["accuracy"], 1.0);
    assert_ne!(trained("with-features").0.len(), expected.0.len());
}

/// Row P19.
#[test]
fn triples_become_a_data_set_with_a_split() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("toy.tsv");
    let triples: String = (0..40)
        .map(|number| {
            let category = if number % 2 == 0 { "even" } else { "odd" };
            format!(
                "e{number}\tconcept:near\te{}\ne{number}\tgeneralizations\t{category}\n",
                (number + 1) % 40
            )
        })
        .collect();
    fs::write(&path, triples).unwrap();
    let path = path.display().to_string();
    let names = place.path().join("names.tsv");
    let names = names.to_str().unwrap();
    let command =
        ["data", "graph", &path, "--triples", "--rate", "0.1", "--seed", "3", "--names", names, "--json"];
    let read = succeed(alone(&command));
    let names = fs::read_to_string(names).unwrap();
    let lines: Vec<&str> = names.lines().collect();
    assert_eq!(lines[..2], ["node\tname\tclass\tcategory", "0\te0\t0\teven"]);
    assert_eq!((lines.len(), lines[42]), (43, "41\tconcept:near 2\t\t"));
    assert_eq!((&read["classes"], &read["train"], &read["test"]), (&2.into(), &4.into(), &36.into()));
    // Two edges a triple, to the two nodes of the relation.
    assert_eq!((&read["graph"]["nodes"], &read["graph"]["edges"]), (&42.into(), &80.into()));
    assert_eq!(read["weighted"], false);
}

/// A place with a data set as text in its folder `text`.
fn text() -> (tempfile::TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let text = place.path().join("text");
    fs::create_dir(&text).unwrap();
    for entry in fs::read_dir(format!("{ROOT}/tests/fixtures/planetoid/text/ind")).unwrap().flatten() {
        fs::copy(entry.path(), text.join(entry.file_name())).unwrap();
    }
    (place, text)
}

#[test]
fn bad_data_ends_a_run_before_it_begins_with_file_and_line() {
    let recipe = format!("{ROOT}/configs/recipes/planetoid-cora.toml");
    for (file, content, expected) in [
        ("test.index", "7\n99\n", "test.index, line 2: node 99 of a graph with 8 nodes"),
        ("test.index", "7\n0\n", "test.index, line 2: node 0 is in train and in test"),
        ("labels.txt", "0\n\n1\n", "labels.txt, line 3: an empty line before this one"),
        ("features.svm", "0 0:1\n", "train.index, line 2: node 1 has no features, which are learnt from"),
    ] {
        let (place, text) = text();
        fs::write(text.join(file), content).unwrap();
        let run = place.path().join("run");
        let [corpus, dir] = [("data.corpus", &text), ("run.dir", &run)]
            .map(|(key, path)| format!("{key}={}", path.display()));
        let refused = finish(alone(&["pretrain", "--config", &recipe, &corpus, &dir]));
        let told = stderr(&refused);
        assert!(ended_with(&refused, 65) && told.contains(expected), "{told}");
        assert!(!run.exists());
    }
}

#[test]
fn bad_lists_end_with_their_file_and_line() {
    let (_place, text) = text();
    fs::write(text.join("graph.adj"), "0 1\n1\n").unwrap();
    let text = text.display().to_string();
    let refused = finish(alone(&["data", "graph", &text]));
    assert!(ended_with(&refused, 65));
    let told = stderr(&refused);
    let expected = "graph.adj, line 1: node 0 lists 1, which lists no node; the highest that does is 0";
    assert!(told.contains(expected), "{told}");
    // The number may be none's; who knows better may ask for the node.
    assert!(told.contains("correct the number") && told.contains("--symmetrise"), "{told}");
    assert_eq!(succeed(alone(&["data", "graph", &text, "--symmetrise", "--json"]))["graph"]["edges"], 1);
}

/// Of two folders the first would be written whole before the second is found to have files.
#[test]
fn no_form_of_a_graph_is_written_where_the_folder_of_another_is_refused() {
    let (place, text) = text();
    let (new, full) = (place.path().join("new"), place.path().join("full"));
    fs::create_dir(&full).unwrap();
    fs::write(full.join("mine"), "").unwrap();
    let [text, to, mapped] = [&text, &new, &full].map(|path| path.display().to_string());
    let refused = finish(alone(&["data", "graph", &text, "--text", &to, "--mapped", &mapped]));
    assert!(ended_with(&refused, 73));
    assert!(
        stderr(&refused).contains("full cannot take the output: it is not empty"),
        "{}",
        stderr(&refused)
    );
    assert!(!new.exists());
    // One folder for two forms, in two spellings, and one within that of another.
    let [again, within, prefix] =
        ["./new", "new/text", "new/ind.toy"].map(|path| place.path().join(path).display().to_string());
    let graph = ["data", "graph", text.as_str()];
    for (outputs, says) in [
        (["--text", to.as_str(), "--mapped", &again], ["--mapped lies in", "--text"]),
        (["--text", &within, "--mapped", &to], ["--text lies in", "--mapped"]),
        (["--mapped", &within, "--text", &to], ["--mapped lies in", "--text"]),
        (["--pickles", &prefix, "--text", &to], ["--pickles lies in", "--text"]),
    ] {
        fail(alone(&[&graph[..], &outputs].concat()), 64, &says);
        assert!(!new.exists());
    }
}
