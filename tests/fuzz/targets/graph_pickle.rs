//! A data set of a graph as pickles, one of which holds any bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use segue_graph::{NodeData, Setting};

const PARTS: [&str; 8] = ["x", "y", "tx", "ty", "allx", "ally", "graph", "test.index"];

fuzz_target!(|bytes: &[u8]| {
    let Some((which, bytes)) = bytes.split_first() else { return };
    let which = PARTS[usize::from(*which) % PARTS.len()];
    let good = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/planetoid");
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    for part in PARTS {
        let path = folder.path().join(format!("ind.fuzz.{part}"));
        match part == which {
            true => std::fs::write(path, bytes).unwrap(),
            false => _ = std::fs::copy(good.join(format!("ind.python2-protocol2.{part}")), path).unwrap(),
        }
    }
    if let Ok(data) = NodeData::open(&folder.path().join("ind.fuzz"), Setting::Inductive) {
        assert_eq!(data.graph.counts().nodes, data.nodes());
        assert!(data.train.iter().chain(&data.test).all(|node| (*node as usize) < data.nodes()));
    }
});
