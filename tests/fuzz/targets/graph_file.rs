//! Any bytes as a graph that is mapped, with the hashes that make them pass for whole.
#![no_main]

use libfuzzer_sys::fuzz_target;
use segue_graph::Graph;

fuzz_target!(|bytes: &[u8]| {
    let _ = Graph::from_bytes(&bytes.to_vec().into());
    let mut file = bytes.to_vec();
    if file.len() < 128 {
        return;
    }
    file[..8].copy_from_slice(b"SEGUEGRF");
    let hash = *blake3::hash(&file[128..]).as_bytes();
    file[32..64].copy_from_slice(&hash);
    file[64..120].fill(0);
    let checksum = blake3::hash(&file[..120]);
    file[120..128].copy_from_slice(&checksum.as_bytes()[..8]);
    if let Ok(graph) = Graph::from_bytes(&file.into()) {
        assert_eq!(graph.counts().entries, graph.entries());
    }
});
