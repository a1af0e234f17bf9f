//! A recipe and an override.
#![no_main]

use segue_families::MODELS;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("recipe.toml");
    std::fs::write(&path, text).unwrap();
    if let Ok(loaded) = MODELS.load(Some(&path), &[]) {
        let again = MODELS.from_json(&loaded.config.to_json(), "again").unwrap();
        assert_eq!(again, loaded.config);
        loaded.render();
    }
    let _ = MODELS.load(None, &[text.to_string()]);
});
