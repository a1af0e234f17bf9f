//! Data sets of graphs, seen through the real binary.

use std::fs;

use segue_tests::{ROOT, alone, ended_with, finish, stderr, succeed};

#[test]
fn p01_every_form_of_a_data_set_has_one_fingerprint() {
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

#[test]
fn p19_triples_become_a_data_set_with_a_split() {
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
    let command = ["data", "graph", &path, "--triples", "--rate", "0.1", "--seed", "3", "--json"];
    let read = succeed(alone(&command));
    assert_eq!((&read["classes"], &read["train"], &read["test"]), (&2.into(), &4.into(), &36.into()));
    // Two edges a triple, to the two nodes of the relation.
    assert_eq!((&read["graph"]["nodes"], &read["graph"]["edges"]), (&42.into(), &80.into()));
    assert_eq!(read["weighted"], false);
}

#[test]
fn bad_lists_end_with_their_file_and_line() {
    let place = tempfile::tempdir().unwrap();
    let text = place.path().join("text");
    fs::create_dir(&text).unwrap();
    for entry in fs::read_dir(format!("{ROOT}/tests/fixtures/planetoid/text/ind")).unwrap().flatten() {
        fs::copy(entry.path(), text.join(entry.file_name())).unwrap();
    }
    fs::write(text.join("graph.adj"), "0 1\n1\n").unwrap();
    let text = text.display().to_string();
    let refused = finish(alone(&["data", "graph", &text]));
    assert!(ended_with(&refused, 65));
    let told = stderr(&refused);
    assert!(told.contains("graph.adj, line 1: node 0 lists 1 more often than 1 lists 0"), "{told}");
    assert!(told.contains("--symmetrise"), "{told}");
    assert_eq!(succeed(alone(&["data", "graph", &text, "--symmetrise", "--json"]))["graph"]["edges"], 1);
}
