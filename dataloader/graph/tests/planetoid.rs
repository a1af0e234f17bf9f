//! Rows P1, P2 and P20 on the published data sets, which lie beside the project.

use std::path::Path;

use segue_graph::{Graph, GraphCounts, GraphForm, NodeData, Setting};

const SETTINGS: [Setting; 2] = [Setting::Inductive, Setting::Transductive];

/// What is known of a data set: sizes, counts of its graph, test nodes by class, and the share of the largest of these.
struct Known {
    name: &'static str,
    nodes: usize,
    columns: usize,
    train: usize,
    all: usize,
    graph: GraphCounts,
    test: &'static [usize],
    majority: f64,
}

/// Nodes, edges without self-loops, self-loops, repeated entries, components, the largest, nodes alone with themselves.
fn graph([nodes, edges, self_loops, duplicates, components, largest, alone]: [usize; 7]) -> GraphCounts {
    let entries = 2 * edges + self_loops + duplicates;
    GraphCounts { nodes, entries, edges, self_loops, duplicates, components, largest, isolated: 0, alone }
}

fn known() -> [Known; 3] {
    [
        Known {
            name: "cora",
            nodes: 2708,
            columns: 1433,
            train: 140,
            all: 1708,
            graph: graph([2708, 5278, 0, 302, 78, 2485, 0]),
            test: &[130, 91, 144, 319, 149, 103, 64],
            majority: 0.319,
        },
        Known {
            name: "citeseer",
            nodes: 3327,
            columns: 3703,
            train: 120,
            all: 2312,
            graph: graph([3327, 4552, 124, 236, 438, 2120, 48]),
            test: &[77, 182, 181, 231, 169, 160],
            majority: 0.231,
        },
        Known {
            name: "pubmed",
            nodes: 19717,
            columns: 500,
            train: 60,
            all: 18717,
            graph: graph([19717, 44324, 3, 25, 1, 19717, 0]),
            test: &[180, 413, 407],
            majority: 0.413,
        },
    ]
}

/// Row P1.
#[test]
fn the_published_sets_have_the_counts_that_were_taken_of_them() {
    let Some(folder) = segue_skip::shared_data("planetoid") else { return };
    for known in known() {
        for setting in SETTINGS {
            let data = NodeData::open(&folder.join(known.name), setting).unwrap();
            assert_eq!((data.name.as_str(), data.nodes()), (known.name, known.nodes));
            assert_eq!(data.classes, known.test.len());
            assert_eq!(data.features.columns, known.columns, "{}", known.name);
            assert_eq!(data.train.len(), known.train);
            assert_eq!(data.test_counts(), known.test);
            assert!((data.majority_rate() - known.majority).abs() < 1e-12);
            assert_eq!(data.graph.counts(), known.graph, "{} {setting:?}", known.name);
        }
    }
}

/// The row of a node as steps have it: of equal parts of `[0, 1)`, the share of those that lead to each node.
fn row_of_steps(graph: &Graph, node: u32, parts: usize) -> Vec<f64> {
    let mut row = vec![0.0; graph.nodes()];
    for part in 0..parts {
        let to = graph.step(node, (part as f64 + 0.5) / parts as f64).unwrap();
        row[to as usize] += 1.0 / parts as f64;
    }
    row
}

/// Steps against the file's own lists, read word by word: each listed neighbour has the same share, so that repeats count as weight.
/// Row P1.
#[test]
fn rows_of_the_transition_matrix_are_the_lists_of_the_file_and_sum_to_one() {
    let Some(folder) = segue_skip::shared_data("planetoid/citeseer/trans") else { return };
    let data = NodeData::open(&folder, Setting::Transductive).unwrap();
    let text = std::fs::read_to_string(folder.join("graph.adj")).unwrap();
    let mut read = 0;
    for line in text.lines() {
        let words: Vec<usize> = line.split_whitespace().map(|word| word.parse().unwrap()).collect();
        let (node, neighbours) = words.split_first().unwrap();
        let mut expected = vec![0.0; data.nodes()];
        neighbours.iter().for_each(|other| expected[*other] += 1.0 / neighbours.len() as f64);
        // Three parts of each neighbour's share.
        let found = row_of_steps(&data.graph, *node as u32, 3 * neighbours.len());
        assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-12), "node {node}");
        assert!((found.iter().sum::<f64>() - 1.0).abs() < 1e-12, "node {node}");
        read += 1;
    }
    assert_eq!(read, data.nodes());
}

/// Weights of tenths: shares of a sum of 2.
/// Row P1.
#[test]
fn rows_of_a_graph_with_weights_are_shares_of_them() {
    let graph = Graph::from_edges(4, [(0, 1, 0.3), (0, 2, 1.1), (0, 3, 0.4), (0, 0, 0.2)]).unwrap();
    let found = row_of_steps(&graph, 0, 20_000);
    for (found, expected) in found.iter().zip([0.1, 0.15, 0.55, 0.2]) {
        assert!((found - expected).abs() < 2.0 / 20_000.0, "{found}, not {expected}");
    }
    let one_neighbour = row_of_steps(&graph, 2, 10);
    assert!((one_neighbour[0] - 1.0).abs() < 1e-12 && one_neighbour[1..] == [0.0; 3], "{one_neighbour:?}");
}

/// Row P1.
#[test]
fn nodes_of_no_published_matrix_have_neighbours_but_neither_features_nor_label() {
    let Some(folder) = segue_skip::shared_data("planetoid") else { return };
    for known in known() {
        let data = NodeData::open(&folder.join(known.name), Setting::Inductive).unwrap();
        let without: Vec<usize> = (0..known.nodes).filter(|node| !data.has_features[*node]).collect();
        let partial = known.name == "pubmed";
        let expected = match known.name {
            "citeseer" => 15,
            // The text has the rows of 60 labelled and 1,000 test nodes alone.
            "pubmed" => known.nodes - 1060,
            _ => 0,
        };
        assert_eq!(without.len(), expected, "{}", known.name);
        for node in without.into_iter().filter(|_| !partial) {
            assert!((2312..3327).contains(&node));
            assert_eq!((data.labels[node], data.features.row(node).0.len()), (None, 0));
            assert!(!data.graph.neighbours(node as u32).is_empty());
        }
        let seen = data.seen.iter().filter(|seen| **seen).count();
        assert_eq!(seen, if partial { known.train } else { known.all });
        // Test nodes are not in order.
        assert!(!data.test.is_sorted());
        assert!(data.test.iter().all(|node| *node as usize >= known.all && !data.seen[*node as usize]));
    }
}

fn same(one: &NodeData, other: &NodeData) {
    assert_eq!(one.graph.counts(), other.graph.counts());
    assert_eq!(one.features, other.features);
    assert_eq!(one.labels, other.labels);
    assert_eq!(one.fingerprint(), other.fingerprint());
}

fn opened(path: &Path, setting: Setting) -> NodeData {
    NodeData::open(path, setting).unwrap()
}

/// Row P1.
#[test]
fn every_form_of_a_published_set_holds_the_same() {
    let Some(folder) = segue_skip::shared_data("planetoid") else { return };
    let place = tempfile::tempdir().unwrap();
    for name in ["cora", "citeseer"] {
        for setting in SETTINGS {
            let data = opened(&folder.join(name), setting);
            let prefix = place.path().join(format!("{}.{name}", setting.prefix()));
            data.write_pickles(&prefix).unwrap();
            same(&data, &opened(&prefix, setting));
            same(&data, &opened(&place.path().join(name), setting));
            for form in [GraphForm::Text, GraphForm::Mapped] {
                let text = place.path().join(format!("{name}-{setting:?}-{form:?}"));
                data.write_text(&text, form).unwrap();
                same(&data, &opened(&text, setting));
            }
        }
    }
}

/// Row P20.
#[test]
fn random_splits_are_disjoint_and_keep_test_nodes_out_of_inductive_training() {
    let Some(folder) = segue_skip::shared_data("planetoid/citeseer/ind") else { return };
    for setting in SETTINGS {
        let data = opened(&folder, setting);
        let drawn = |seed| data.clone().split(20, 1000, seed).unwrap();
        let split = drawn(1);
        assert_eq!((split.train.len(), split.test.len()), (120, 1000));
        let mut classes = [0; 6];
        split.labelled().iter().for_each(|(_, class)| classes[*class as usize] += 1);
        assert_eq!(classes, [20; 6]);
        assert!(split.train.iter().all(|node| !split.test.contains(node)));
        let read = |node: &u32| split.seen[*node as usize];
        assert!(split.train.iter().all(read));
        match setting {
            Setting::Inductive => assert!(!split.test.iter().any(read)),
            Setting::Transductive => assert!(split.test.iter().all(read)),
        }
        // Another seed is another split; the same one is the same.
        assert_eq!(split.fingerprint(), drawn(1).fingerprint());
        assert_ne!(split.test, drawn(2).test);
        // A split can be written in the published form, nodes renumbered.
        let place = tempfile::tempdir().unwrap();
        let ordered = split.in_published_order();
        assert_eq!(ordered.test_counts(), split.test_counts());
        assert_eq!(ordered.graph.counts(), split.graph.counts());
        if setting == Setting::Inductive {
            let prefix = place.path().join("ind.split");
            assert!(split.write_pickles(&prefix).is_err());
            ordered.write_pickles(&prefix).unwrap();
            same(&ordered, &opened(&prefix, setting));
        }
    }
}
