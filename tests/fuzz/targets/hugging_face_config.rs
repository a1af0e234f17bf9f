//! A model folder's `config.json`.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(config) = segue_configs::ModelConfig::from_hugging_face(text, "fuzz") {
        let segue_configs::ModelConfig::TransfoXl(c) = &config;
        assert!(c.cluster_ends().is_sorted() && c.head_width() > 0 && c.embed_width() > 0);
    }
});
