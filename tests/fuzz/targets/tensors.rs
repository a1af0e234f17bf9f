//! A safetensors file.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("model.safetensors");
    std::fs::write(&path, bytes).unwrap();
    let _ = segue_trainer::checkpoint::read_tensors(&path);
});
