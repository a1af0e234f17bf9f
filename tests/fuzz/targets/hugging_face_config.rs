//! A model folder's `config.json`; what it describes can be planned.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(config) = segue_configs::ModelConfig::from_hugging_face(text, "fuzz") {
        let segue_configs::ModelConfig::TransfoXl(c) = &config;
        if c.n_layer < 100 && c.cutoffs.len() < 100 {
            segue_trainer::model::specs(&config);
        }
    }
});
