//! `corpus.json` over real shards: whatever it says, nothing is read out of bounds.
#![no_main]

use segue_dataloader::{Corpus, Split};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    std::fs::write(dir.path().join("corpus.json"), bytes).unwrap();
    if let Ok(corpus) = Corpus::open(dir.path()) {
        for split in [Split::Train, Split::Valid, Split::Test] {
            if let Ok(tokens) = corpus.tokens(split) {
                let mut out = [0; 4];
                let _ = tokens.read(tokens.len() / 2, &mut out);
            }
        }
    }
});
