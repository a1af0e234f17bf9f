//! A data set of a graph as pickles, one of which holds any bytes, or those of an example with some of them changed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use segue_graph::{NodeData, Setting};

const PARTS: [&str; 8] = ["x", "y", "tx", "ty", "allx", "ally", "graph", "test.index"];

/// Examples: matrices by rows; by columns, coordinates and lists, in two protocols.
const SETS: [&str; 3] = ["python2-protocol2", "forms-protocol0", "forms-protocol4"];

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    let which = PARTS[usize::from(*choice) % PARTS.len()];
    // The rest of the choice: a set with bytes changed, at places of two bytes each, or anything in the place of one of its files.
    let (set, changes) = (SETS[usize::from(choice / 8) % SETS.len()], choice & 0x80 != 0);
    let good = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/planetoid");
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    for part in PARTS {
        let path = folder.path().join(format!("ind.fuzz.{part}"));
        let mut file = std::fs::read(good.join(format!("ind.{set}.{part}"))).unwrap();
        match (part == which, changes) {
            (true, true) => bytes.chunks_exact(3).for_each(|change| {
                let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % file.len();
                file[at] = change[2];
            }),
            (true, false) => file = bytes.to_vec(),
            (false, _) => {}
        }
        std::fs::write(path, file).unwrap();
    }
    if let Ok(data) = NodeData::open(&folder.path().join("ind.fuzz"), Setting::Inductive) {
        assert_eq!(data.graph.counts().nodes, data.nodes());
        assert!(data.train.iter().chain(&data.test).all(|node| (*node as usize) < data.nodes()));
    }
});
