//! A checkpoint's manifest.
#![no_main]

use segue_trainer::checkpoint::{MANIFEST, Manifest};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    std::fs::write(dir.path().join(MANIFEST), bytes).unwrap();
    let _ = Manifest::verify(dir.path());
});
