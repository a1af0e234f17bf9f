//! Row P1: data sets as files. Small pickles that Python wrote hold what the text beside them holds; damage is an error that says where.

mod pickles;

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use segue_graph::{Asymmetry, Graph, GraphForm, NodeData, OpenOptions, Setting, SparseRows, Split};
use tempfile::TempDir;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/planetoid").join(name)
}

fn open(path: &Path, setting: Setting) -> NodeData {
    NodeData::open(path, setting).unwrap()
}

/// Row P1.
#[test]
fn pickles_of_python_2_and_3_hold_what_the_text_holds() {
    for setting in [Setting::Inductive, Setting::Transductive] {
        let text = open(&fixture("text/ind"), setting);
        assert_eq!((text.nodes(), text.classes, text.features.columns), (8, 3, 4));
        assert_eq!((&text.train[..], &text.test[..]), (&[0, 1][..], &[7, 4, 6][..]));
        assert_eq!(text.features.row(3), (&[2, 3][..], &[-0.25, 3e-5][..]));
        // A row of zeros is a row; node 5 has none.
        assert_eq!(text.has_features, [true, true, true, true, true, false, true, true]);
        assert_eq!((text.labels[2], text.labels[5]), (Some(1), None));
        let seen = text.seen.iter().filter(|seen| **seen).count();
        assert_eq!(seen, if setting == Setting::Inductive { 4 } else { 7 });
        for form in [
            "python2-protocol0",
            "python2-protocol2",
            "python3-protocol2",
            "python3-protocol5",
            "forms-protocol0",
            "forms-protocol4",
        ] {
            let read = open(&fixture(&format!("ind.{form}")), setting);
            assert_eq!(read.name, form);
            assert_eq!(read.features, text.features, "{form}");
            assert_eq!(read.fingerprint(), text.fingerprint(), "{form}");
        }
        let text = open(&fixture("text/trans"), setting);
        let read = open(&fixture("trans.python2-protocol2"), setting);
        assert_eq!(read.fingerprint(), text.fingerprint());
        assert_eq!((&read.test[..], read.has_features[4]), (&[2, 3][..], false));
    }
}

/// Row P1.
#[test]
fn a_name_stands_for_the_form_of_the_setting() {
    let inductive = open(&fixture("python2-protocol2"), Setting::Inductive);
    let transductive = open(&fixture("python2-protocol2"), Setting::Transductive);
    assert_eq!((inductive.test.len(), transductive.test.len()), (3, 2));
    assert_eq!(open(&fixture("text"), Setting::Transductive).fingerprint(), transductive.fingerprint());
    let error = NodeData::open(&fixture("nobody"), Setting::Inductive).unwrap_err();
    assert_eq!(error.exit_code(), 66);
    assert!(error.hint().unwrap().contains("the prefix of pickles"));
}

/// A copy of the text, with some files replaced.
fn text_with(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(fixture("text/ind")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    for (name, content) in files {
        fs::write(folder.path().join(name), content).unwrap();
    }
    folder
}

/// The error of a text with a file replaced: from the file's name on.
fn refused(files: &[(&str, &str)]) -> String {
    let folder = text_with(files);
    let error = NodeData::open(folder.path(), Setting::Inductive).unwrap_err();
    assert!([65, 66].contains(&error.exit_code()), "{error}");
    error.to_string().replace(&format!("{}/", folder.path().display()), "")
}

#[test]
fn bad_text_is_refused_with_file_and_line() {
    for (file, content, expected) in [
        ("graph.adj", "0 1\n1 x\n", "graph.adj, line 2: `x` is not a node"),
        (
            "graph.adj",
            "0 1\n\n1 0\n2 9\n",
            "graph.adj, line 4: node 2 lists 9, which lists no node; the highest that does is 2",
        ),
        ("graph.adj", "0 1\n1 0\n0 1\n", "graph.adj, line 3: node 0 has a list already, in line 1"),
        ("graph.adj", "0 4294967295\n", "graph.adj, line 1: node 4294967295 in a file of 13 bytes"),
        ("graph.adj", "0 -1\n", "graph.adj, line 1: `-1` is not a node"),
        ("labels.txt", "0\n1.5\n", "labels.txt, line 2: `1.5` is not a class"),
        ("labels.txt", "0\n-2\n", "labels.txt, line 2: `-2` is not a class"),
        ("labels.txt", "0\n3\n", "labels.txt, line 2: class 3 of 3"),
        ("features.svm", "0 0:1\n8 0:1\n", "features.svm, line 2: node 8 of a graph with 8 nodes"),
        ("features.svm", "0 0:1\n0 1:1\n", "features.svm, line 2: node 0 has a row already"),
        ("features.svm", "0 0\n", "features.svm, line 1: `0` is not column:value, such as 12:0.5"),
        ("features.svm", "0 1:1 1:2\n", "features.svm, line 1: column 1 does not come after 1"),
        ("features.svm", "0 4:1\n", "features.svm, line 1: column 4 of 4"),
        ("features.svm", "0 1:inf\n", "features.svm, line 1: a value of inf"),
        ("train.index", "0\n8\n", "train.index, line 2: node 8 of a graph with 8 nodes"),
        ("test.index", "7\n7\n", "test.index, line 2: node 7 is named twice"),
        ("sizes.txt", "nodes many\n", "sizes.txt, line 1: `many` is not a size"),
        ("sizes.txt", "rows 1\n", "sizes.txt, line 1: `rows` is not a size"),
    ] {
        assert_eq!(refused(&[(file, content)]), expected);
    }
    let folder = text_with(&[]);
    fs::write(folder.path().join("labels.txt"), b"0\n1\xFF\n").unwrap();
    let error = NodeData::open(folder.path(), Setting::Inductive).unwrap_err();
    assert!(error.to_string().ends_with("labels.txt, line 2: byte 2 of the line is not UTF-8"), "{error}");
    assert_eq!((error.exit_code(), error.hint()), (65, None));
    // What files promise each other.
    assert_eq!(refused(&[("test.index", "7\n0\n")]), "test.index, line 2: node 0 is in train and in test");
    assert_eq!(refused(&[("test.index", "5\n")]), "test.index, line 1: node 5 has no label");
    let bare = refused(&[("features.svm", "0 0:1\n")]);
    assert_eq!(bare, "train.index, line 2: node 1 has no features, which are learnt from");
    // An empty line would move every label behind it; elsewhere it counts as a line and holds nothing.
    let moved = refused(&[("labels.txt", "0\n\n1\n")]);
    assert_eq!(moved, "labels.txt, line 3: an empty line before this one");
    assert_eq!(refused(&[("test.index", "7\n\n0\n")]), "test.index, line 3: node 0 is in train and in test");
    assert!(
        refused(&[("sizes.txt", "nodes 4\n")])
            .ends_with("8 nodes in labels.txt and the graph, 4 in sizes.txt")
    );
    let far = refused(&[("sizes.txt", "classes 4000000000\n")]);
    assert!(far.starts_with("labels.txt cannot be read: class 3999999999 in a file of"), "{far}");
    let wide = refused(&[("sizes.txt", "columns 4000000000\n")]);
    assert_eq!(wide, "features.svm cannot be read: column 3999999999 in a file of 62 bytes");
    let wide = refused(&[("sizes.txt", ""), ("features.svm", "0 0:1 4000000000:1\n")]);
    assert_eq!(wide, "features.svm, line 1: column 4000000000 in a file of 19 bytes");
    let far = refused(&[("sizes.txt", "nodes 4000000000\n")]);
    assert!(far.contains("node 3999999999 in a file of"), "{far}");
}

/// Lists and edges name nodes as they come; a mapped graph has as many as it says.
#[test]
fn labels_of_nodes_that_a_mapped_graph_does_not_have_are_refused() {
    let folder = text_with(&[("sizes.txt", "")]);
    let (lists, labels) = (folder.path().join("graph.adj"), folder.path().join("labels.txt"));
    open(folder.path(), Setting::Inductive).graph.write(&folder.path().join("graph.bin")).unwrap();
    fs::remove_file(lists).unwrap();
    assert_eq!(open(folder.path(), Setting::Inductive).nodes(), 8);
    let more = fs::read_to_string(&labels).unwrap() + "0\n1\n";
    fs::write(&labels, more).unwrap();
    let error = NodeData::open(folder.path(), Setting::Inductive).unwrap_err();
    assert_eq!(error.exit_code(), 65);
    assert!(error.to_string().ends_with("labels.txt, line 9: node 8 of a graph with 8 nodes"), "{error}");
}

/// Transductively features may be missing, unless the model reads them: then splits keep to the nodes that have some.
#[test]
fn nodes_of_a_split_have_features_where_these_are_needed() {
    let folder = text_with(&[("features.svm", "0 0:1\n1 1:1\n2 2:1\n3 3:1\n7 1:1\n4 0:1\n")]);
    let open = |split, features_needed| {
        let options = OpenOptions { split, features_needed, ..Default::default() };
        NodeData::open_with(folder.path(), Setting::Transductive, options)
    };
    let data = open(Split::Files, false).unwrap();
    assert!(data.test.iter().any(|node| !data.has_features[*node as usize]));
    let error = open(Split::Files, true).unwrap_err();
    assert_eq!(error.exit_code(), 65);
    assert!(
        error.to_string().ends_with("test.index, line 3: node 6 has no features, which are learnt from"),
        "{error}"
    );
    assert!(error.hint().unwrap().contains("reads the graph alone"));
    let drawn = |test, seed| open(Split::Drawn { per_class: 1, test, seed }, true);
    for seed in 1..9 {
        let split = drawn(2, seed).unwrap();
        let has = |node: &u32| split.has_features[*node as usize];
        assert!(split.train.iter().chain(&split.test).all(has));
    }
    let error = drawn(90, 1).unwrap_err();
    assert!(
        error.to_string().contains("nodes with labels and features to test on, 90 are asked for"),
        "{error}"
    );
    let given = folder.path().join("splits/1");
    fs::create_dir_all(&given).unwrap();
    fs::write(given.join("train.index"), "0\n").unwrap();
    fs::write(given.join("test.index"), "4\n6\n").unwrap();
    assert_eq!(open(Split::Given(1), false).unwrap().test, [4, 6]);
    let error = open(Split::Given(1), true).unwrap_err();
    assert!(error.to_string().contains("splits/1/test.index, line 2: node 6 has no features"), "{error}");
}

/// Of a drawn or given split alone more is asked than that its nodes are there.
#[test]
fn a_split_of_the_files_that_is_not_used_may_be_none() {
    let folder = text_with(&[("test.index", "7\n0\n")]);
    let open = |split| {
        let options = OpenOptions { split, ..Default::default() };
        NodeData::open_with(folder.path(), Setting::Inductive, options)
    };
    let error = open(Split::Files).unwrap_err();
    assert!(error.to_string().ends_with("node 0 is in train and in test"), "{error}");
    let drawn = open(Split::Drawn { per_class: 1, test: 2, seed: 1 }).unwrap();
    assert_eq!((drawn.train.len(), drawn.test.len()), (3, 2));
    // Training sees what the split that is used leaves it.
    assert!(drawn.test.iter().all(|node| !drawn.seen[*node as usize]));
    assert!(drawn.train.iter().all(|node| drawn.seen[*node as usize]));
}

#[test]
fn lists_that_are_not_symmetric_are_mended_where_that_is_asked_for() {
    let folder = text_with(&[("graph.adj", "0 1 1\n1 0\n7 6\n")]);
    let options = OpenOptions { asymmetry: Asymmetry::Mend, ..Default::default() };
    let data = NodeData::open_with(folder.path(), Setting::Inductive, options).unwrap();
    assert_eq!((data.graph.neighbours(1), data.graph.neighbours(6)), (&[0, 0][..], &[7][..]));
    let error = NodeData::open(folder.path(), Setting::Inductive).unwrap_err();
    assert!(error.hint().unwrap().contains("--symmetrise"));
}

/// Row P18.
#[test]
fn a_coordinate_list_is_a_graph_with_weights() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("edges.txt");
    fs::write(&path, "% comment\n0 1 0.5\n# comment\n1 2\n0 1 0.25\n").unwrap();
    let graph = Graph::read_edges(&path, 5).unwrap();
    assert_eq!(graph.nodes(), 5);
    assert_eq!(graph.edges().collect::<Vec<_>>(), [(0, 1, 0.75), (1, 2, 1.0)]);
    for (content, expected) in [
        ("0 1\n0\n", "line 2: a node is missing"),
        ("0 1 -1\n", "line 1: a weight of -1, expected a positive number"),
        ("0 1 1 1\n", "line 1: `1` after the weight"),
    ] {
        fs::write(&path, content).unwrap();
        let error = Graph::read_edges(&path, 0).unwrap_err().to_string();
        assert!(error.ends_with(expected), "{error}");
    }
}

/// Row P18.
#[test]
fn splits_that_are_given_come_in_the_order_of_their_numbers() {
    let folder = text_with(&[]);
    let splits = folder.path().join("splits");
    for (name, train, test) in [("10", "3\n", "2\n"), ("9", "0\n1\n", "4\n6\n")] {
        fs::create_dir_all(splits.join(name)).unwrap();
        fs::write(splits.join(name).join("train.index"), train).unwrap();
        fs::write(splits.join(name).join("test.index"), test).unwrap();
    }
    let open = |number| {
        let options = OpenOptions { split: Split::Given(number), ..Default::default() };
        NodeData::open_with(folder.path(), Setting::Transductive, options)
    };
    for (number, train, test) in [(1, vec![0, 1], vec![4, 6]), (2, vec![3], vec![2])] {
        let split = open(number).unwrap();
        assert_eq!((split.train, split.test), (train, test));
    }
    for number in [0, 3] {
        assert_eq!(open(number).unwrap_err().exit_code(), 66);
    }
    fs::write(splits.join("9/train.index"), "0\n4\n").unwrap();
    let error = open(1).unwrap_err();
    assert!(error.to_string().ends_with("9/test.index, line 1: node 4 is in train and in test"), "{error}");
    assert_eq!(error.exit_code(), 65);
}

/// Before any work is done, not at its end.
#[test]
fn a_folder_with_files_is_refused_for_a_graph() {
    let data = open(text_with(&[]).path(), Setting::Inductive);
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("mine"), "").unwrap();
    let error = data.write_text(folder.path(), GraphForm::Text).unwrap_err();
    assert!(error.exit_code() == 73 && error.to_string().contains("it is not empty"), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// Row P9.
#[test]
fn rows_of_features_are_read_with_and_without_a_number_before_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows");
    fs::write(&path, "7 0:1 3:0.5\n\n2:-1e-3\n9\n\n").unwrap();
    let rows = SparseRows::read(&path, 4).unwrap();
    assert_eq!(rows.len(), 5);
    assert_eq!((rows.row(0), rows.row(2)), ((&[0, 3][..], &[1.0, 0.5][..]), (&[2][..], &[-1e-3][..])));
    for empty in [1, 3, 4] {
        assert!(rows.row(empty).0.is_empty());
    }
    for (text, why) in [("0:1\n1:x", "line 2"), ("4:1", "line 1"), ("1 2", "`2`"), ("3:1 1:1", "line 1")]
        .into_iter()
        // Words, which are no features.
        .chain([("hello\n0:1", "line 1: `hello` is not column:value"), ("0:1\nthe cat", "line 2: `the`")])
        .chain([("nan 0:1", "line 1: `nan`"), ("0:1\n-inf", "line 2: `-inf`")])
    {
        fs::write(&path, text).unwrap();
        let message = SparseRows::read(&path, 4).unwrap_err().to_string();
        assert!(message.contains(why), "{message}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_text_is_read_or_refused(which in 0usize..6, content in "[0-9:. \n-]{0,60}") {
        let name = ["graph.adj", "labels.txt", "features.svm", "train.index", "test.index", "sizes.txt"][which];
        let folder = text_with(&[(name, &content)]);
        if let Ok(data) = NodeData::open(folder.path(), Setting::Inductive) {
            data.graph.counts();
            data.fingerprint();
        }
    }
}
