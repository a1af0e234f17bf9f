//! A SentencePiece model, and text through whatever tokenizer it gives, as it is and as XLNet's.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("spiece.model");
    std::fs::write(&path, bytes).unwrap();
    let xlnet = segue_tokenizer::XlnetNormalization::default();
    let tokenizers =
        [segue_tokenizer::Tokenizer::import(&path), segue_tokenizer::Tokenizer::import_xlnet(&path, xlnet)];
    for tokenizer in tokenizers.into_iter().flatten() {
        let mut ids = Vec::new();
        tokenizer.encode("a segment, und noch eins — ﬁn: 2,000, ½,", &mut ids);
        tokenizer.decode(&ids);
    }
});
