//! Folders of Marian's tokenizers: `vocab.json`, as many bytes as the first two say, then a SentencePiece model, for both sides; and text through whatever
//! tokenizer they give.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((length, rest)) = bytes.split_first_chunk() else { return };
    let (vocabulary, pieces) = rest.split_at(rest.len().min(usize::from(u16::from_le_bytes(*length))));
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    for (name, content) in [("vocab.json", vocabulary), ("source.spm", pieces), ("target.spm", pieces)] {
        std::fs::write(dir.path().join(name), content).unwrap();
    }
    if let Ok(tokenizer) = segue_tokenizer::Tokenizer::load(dir.path()) {
        let mut ids = Vec::new();
        tokenizer.encode(">>fr<< a segment, und noch eins — ﬁn: ½,", &mut ids);
        tokenizer.decode(&ids);
        tokenizer.decode_signed(&ids.iter().map(|id| i64::from(*id)).collect::<Vec<_>>());
    }
});
