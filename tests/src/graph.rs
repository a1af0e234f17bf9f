//! A small graph whose nodes are to be classified.

use std::fs;
use std::path::Path;

use segue_random::{Purpose, Stream};

/// Nodes of [`communities`]. The first twelve are labelled, those from 80 on are tested.
pub const NODES: usize = 120;
/// Its classes.
pub const CLASSES: usize = 3;

/// Writes a graph of three communities, as text, into the new folder `folder`.
pub fn communities(folder: &Path) {
    fs::create_dir(folder).expect("a folder");
    let stream = Stream::new(5, Purpose::Synthetic, &[]);
    let drawn = |a: usize, b: usize, chance: f64| stream.uniform((1000 * a + b) as u64) < chance;
    let class = |node: usize| node % CLASSES;
    let (mut edges, mut features, mut labels) = (String::new(), String::new(), String::new());
    for node in 0..NODES {
        for other in node + 1..NODES {
            let chance = if class(node) == class(other) { 0.12 } else { 0.01 };
            if drawn(node, other, chance) || other == node + CLASSES {
                edges.push_str(&format!("{node} {other}\n"));
            }
        }
        features.push_str(&node.to_string());
        for column in 0..12 {
            if drawn(node, 500 + column, if column % CLASSES == class(node) { 0.5 } else { 0.1 }) {
                features.push_str(&format!(" {column}:1"));
            }
        }
        features.push('\n');
        labels.push_str(&format!("{}\n", class(node)));
    }
    let index = |nodes: std::ops::Range<usize>| nodes.map(|node| format!("{node}\n")).collect::<String>();
    for (name, text) in [
        ("edges.txt", edges),
        ("features.svm", features),
        ("labels.txt", labels),
        ("train.index", index(0..12)),
        ("test.index", index(80..NODES)),
        ("sizes.txt", format!("nodes {NODES}\ncolumns 12\nclasses {CLASSES}\n")),
    ] {
        fs::write(folder.join(name), text).expect("a file");
    }
}
