//! Any text as the folder of a data set of a graph.
#![no_main]

use libfuzzer_sys::fuzz_target;
use segue_graph::{Asymmetry, NodeData, OpenOptions, Setting};

const FILES: [&str; 6] = ["graph.adj", "labels.txt", "features.svm", "train.index", "test.index", "sizes.txt"];

fuzz_target!(|bytes: &[u8]| {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    // A byte that is in no UTF-8 text divides the files; the last one may be missing.
    let parts: Vec<&[u8]> = bytes.split(|byte| *byte == 0xFF).collect();
    for (file, part) in FILES.iter().zip(parts.iter().copied().chain([&b""[..]; 5])) {
        std::fs::write(folder.path().join(file), part).unwrap();
    }
    if bytes.first() == Some(&b'#') {
        std::fs::rename(folder.path().join("graph.adj"), folder.path().join("edges.txt")).unwrap();
    }
    let options = OpenOptions { asymmetry: Asymmetry::Mend, ..Default::default() };
    if let Ok(data) = NodeData::open_with(folder.path(), Setting::Inductive, options) {
        assert_eq!(data.graph.counts().nodes, data.nodes());
        assert!(data.train.iter().chain(&data.test).all(|node| (*node as usize) < data.nodes()));
        let _ = data.split(1, 1, 0);
    }
});
