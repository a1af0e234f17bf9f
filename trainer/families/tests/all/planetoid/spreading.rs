//! Labels that spread over edges.

use std::fs;
use std::path::{Path, PathBuf};

use segue_planetoid::Predictor;

use super::{evaluation, weights};

/// An edge and its weight.
type Edge = (usize, usize, f64);
/// A triangle 0-1-2 with a tail 2-3-4.
const PLAIN: [Edge; 5] = [(0, 1, 1.0), (0, 2, 1.0), (1, 2, 1.0), (2, 3, 1.0), (3, 4, 1.0)];
const WEIGHTED: [Edge; 5] = [(0, 1, 1.0), (0, 2, 2.0), (1, 2, 3.0), (2, 3, 1.0), (3, 4, 4.0)];

/// A graph of five nodes; node 0 is of class 0 and node 4 of class 1.
fn toy(folder: &Path, edges: &[Edge]) -> PathBuf {
    let edges: String = edges.iter().map(|(a, b, weight)| format!("{a} {b} {weight}\n")).collect();
    for (file, text) in [
        ("edges.txt", edges.as_str()),
        ("labels.txt", "0\n0\n0\n1\n1\n"),
        ("features.svm", "0 0:1\n1\n2\n3\n4\n"),
        ("train.index", "0\n4\n"),
        ("test.index", "1\n2\n3\n"),
    ] {
        fs::write(folder.join(file), text).unwrap();
    }
    folder.to_path_buf()
}

/// Clamped, each other node has the mean of its neighbours by weight: without weights f₁ = (1 + f₂)/2, f₂ = (1 + f₁ + f₃)/3, f₃ = f₂/2, so that
/// `(D_UU − A_UU)⁻¹ A_UL Y_L` is 7/8, 3/4 and 3/8 of class 0; with them f₁ = (1 + 3 f₂)/4, f₂ = (2 + 3 f₁ + f₃)/6, f₃ = f₂/5.
/// Row P12.
#[test]
fn labels_spread_to_the_closed_form() {
    for (edges, expected, accuracy) in [
        (PLAIN, [1.0, 7.0 / 8.0, 3.0 / 4.0, 3.0 / 8.0, 0.0], 1.0),
        (WEIGHTED, [1.0, 59.0 / 71.0, 55.0 / 71.0, 11.0 / 71.0, 0.0], 1.0),
    ] {
        let place = tempfile::tempdir().unwrap();
        let data = toy(place.path(), &edges);
        let run = place.path().join("run");
        let keys = ["model.variant=label-propagation", "optim.lr=1", "train.steps=200"];
        let found = evaluation(&run, &data, &keys);
        let labels = weights(&run, "labels");
        for (node, share) in expected.into_iter().enumerate() {
            let [first, second] = [0, 1].map(|class| f64::from(labels[2 * node + class]));
            assert!((first - share).abs() < 1e-6 && (second - (1.0 - share)).abs() < 1e-6, "{labels:?}");
        }
        assert_eq!(found["accuracy"], accuracy);
    }
}

/// `(1 − α)(I − α S)⁻¹ Y` with S = D^(−1/2) A D^(−1/2), by the sum `Σ (α S)^k`.
/// Row P21.
#[test]
fn labels_spread_without_clamps_to_the_closed_form() {
    for edges in [PLAIN, WEIGHTED] {
        let place = tempfile::tempdir().unwrap();
        let data = toy(place.path(), &edges);
        let run = place.path().join("run");
        let keys = ["model.variant=label-spreading", "model.alpha=0.8", "optim.lr=1", "train.steps=300"];
        evaluation(&run, &data, &keys);
        let mut degrees = [0.0f64; 5];
        for (a, b, weight) in edges {
            degrees[a] += weight;
            degrees[b] += weight;
        }
        let mut term = [[0.2, 0.0], [0.0; 2], [0.0; 2], [0.0; 2], [0.0, 0.2f64]];
        let mut sum = [[0.0; 2]; 5];
        for _ in 0..400 {
            let mut next = [[0.0; 2]; 5];
            for class in 0..2 {
                (0..5).for_each(|node| sum[node][class] += term[node][class]);
                for (a, b, weight) in edges {
                    let weight = 0.8 * weight / (degrees[a] * degrees[b]).sqrt();
                    next[a][class] += weight * term[b][class];
                    next[b][class] += weight * term[a][class];
                }
            }
            term = next;
        }
        let labels = weights(&run, "labels");
        for (found, expected) in labels.iter().zip(sum.as_flattened()) {
            assert!((f64::from(*found) - expected).abs() < 1e-6, "{labels:?} against {sum:?}");
        }
    }
}

/// A node that no label reaches is of the class that most labelled nodes have.
/// Row P12.
#[test]
fn nodes_out_of_reach_are_of_the_most_frequent_class() {
    let place = tempfile::tempdir().unwrap();
    let data = toy(place.path(), &PLAIN);
    fs::write(data.join("edges.txt"), "0 1\n3 4\n").unwrap();
    fs::write(data.join("train.index"), "0\n3\n4\n").unwrap();
    fs::write(data.join("test.index"), "1\n2\n").unwrap();
    let run = place.path().join("run");
    evaluation(&run, &data, &["model.variant=label-propagation", "optim.lr=1", "train.steps=50"]);
    let predictor = Predictor::open(&segue_families::MODELS, &run).unwrap();
    let found = predictor.predict(&predictor.material(None).unwrap(), &[1, 2]).unwrap();
    assert_eq!(found.iter().map(|found| found.class).collect::<Vec<_>>(), [0, 1]);
    assert!((found[1].probabilities[1] - 2.0 / 3.0).abs() < 1e-6);
    let error = predictor.predict(&predictor.material(None).unwrap(), &[5]).unwrap_err();
    assert!(error.to_string().contains("node 5"), "{error}");
}
