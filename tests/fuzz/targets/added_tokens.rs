//! The files that name tokens beside a list of words, parted by the byte 0, and text through whatever tokenizer they give.
#![no_main]

const FILES: [&str; 5] =
    ["added_tokens.json", "special_tokens_map.json", "tokenizer_config.json", "tokenizer.json", "config.json"];

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("vocab.txt");
    std::fs::write(&path, "<eos>\n<unk>\na\nsegment\n").unwrap();
    for (file, content) in FILES.iter().zip(bytes.split(|byte| *byte == 0)) {
        if !content.is_empty() {
            std::fs::write(dir.path().join(file), content).unwrap();
        }
    }
    if let Ok(tokenizer) = segue_tokenizer::Tokenizer::import(&path) {
        let mut ids = Vec::new();
        tokenizer.encode("a segment<x>, und noch eins.", &mut ids);
        tokenizer.decode(&ids);
        tokenizer.encode_with_offsets("a <x>İ Σ").unwrap();
    }
});
