//! A model folder's `config.json`.
#![no_main]

use segue_configs::ModelConfig;

libfuzzer_sys::fuzz_target!(|text: &str| match ModelConfig::from_hugging_face(text, "fuzz") {
    Ok(ModelConfig::TransfoXl(c)) => {
        assert!(c.cluster_ends().is_sorted() && c.head_width() > 0 && c.embed_width() > 0);
    }
    Ok(ModelConfig::Xlnet(c)) => assert!(c.head_width() > 0 && c.n_layer > 0),
    Err(_) => {}
});
