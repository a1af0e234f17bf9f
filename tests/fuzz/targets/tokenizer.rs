//! A `tokenizer.json`, and text through whatever tokenizer it gives.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("tokenizer.json");
    std::fs::write(&path, bytes).unwrap();
    if let Ok(tokenizer) = segue_tokenizer::Tokenizer::import(&path) {
        let mut ids = Vec::new();
        tokenizer.encode("a segment, und noch eins.", &mut ids);
        tokenizer.decode(&ids);
    }
});
