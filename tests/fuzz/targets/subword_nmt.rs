//! Merges of subword-nmt, a zero byte and a dictionary of fairseq, and text through whatever tokenizer they give.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut parts = bytes.splitn(2, |byte| *byte == 0);
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let paths = ["bpecodes", "dict.txt"].map(|name| {
        let path = dir.path().join(name);
        std::fs::write(&path, parts.next().unwrap_or_default()).unwrap();
        path
    });
    if let Ok(tokenizer) = segue_tokenizer::Tokenizer::import_subword_nmt(&paths[0], &paths[1], true) {
        let text = "a segment, und noch \u{130}eins</w> @@ aaaa";
        let located = tokenizer.encode_with_offsets(text).unwrap();
        let mut ids = Vec::new();
        tokenizer.encode(text, &mut ids);
        assert_eq!(located.ids, ids);
        tokenizer.decode(&ids);
    }
});
