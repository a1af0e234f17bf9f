//! What the runs read, made anew each time by the test.

use std::fs;

use segue_tests::{graph, sentences, text};
use serde_json::Value;

use crate::scene::Scene;

/// Data that are made together. A golden file holds the fingerprints of all that its run's set names.
pub struct DataSet {
    /// Folders of corpora and graphs.
    pub names: &'static [&'static str],
    /// Makes them.
    pub make: fn(&Scene),
}

/// Bytes, pieces of sentences, and tasks.
pub const TEXTS: DataSet = DataSet { names: &["corpus", "pairs"], make: texts };

/// A text of words and lines so short that a run reads it more than once.
pub const LINES: DataSet = DataSet { names: &["lines"], make: lines };

/// Nodes to classify.
pub const GRAPH: DataSet =
    DataSet { names: &["graph"], make: |scene| graph::communities(&scene.path("graph")) };

/// Of families that draw what they train on.
pub const NOTHING: DataSet = DataSet { names: &[], make: |_| {} };

fn texts(scene: &Scene) {
    scene.write("train.txt", &text(60_000, 1));
    scene.write("valid.txt", &text(6_000, 2));
    scene.build("corpus", &["--preset", "documents", "--tokenizer-kind", "byte"]);
    let pieces = ["--preset", "xlnet", "--tokenizer-kind", "bpe", "--vocab-size", "400"];
    scene.build("pairs", &[&pieces[..], &["--special", "<cls>,<sep>,<mask>,<eod>"]].concat());
    for folder in ["sst2", "tasks/SST-2"] {
        scene.write(&format!("{folder}/train.tsv"), &sentences(160, 1));
        scene.write(&format!("{folder}/dev.tsv"), &sentences(60, 2));
    }
    let judged: String = (0..80).map(|i| format!("source\t{}\t\tpast memory reads {i}\n", i % 2)).collect();
    scene.write("tasks/CoLA/train.tsv", &judged);
    scene.write("tasks/CoLA/dev.tsv", &judged);
}

/// 1,379 words to train on: eight lanes are through after 14 segments of 12.
fn lines(scene: &Scene) {
    scene.write("train.txt", &text(6_000, 1));
    scene.write("valid.txt", &text(1_500, 2));
    scene.build("lines", &["--preset", "sentences", "--tokenizer-kind", "word"]);
}

/// What names the content of a corpus or graph.
pub fn fingerprint(scene: &Scene, name: &str) -> String {
    let corpus = scene.path(name).join("corpus.json");
    let info: Value = match corpus.exists() {
        true => {
            let text = fs::read_to_string(corpus).expect("a corpus describes itself");
            serde_json::from_str(&text).expect("a corpus describes itself in JSON")
        }
        false => scene.segue(&["data", "graph", name, "--json"]),
    };
    info["fingerprint"].as_str().expect("data have a fingerprint").into()
}
