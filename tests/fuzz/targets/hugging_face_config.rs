//! A model folder's `config.json`.
#![no_main]

use segue_transfo_xl::TransfoXlConfig;
use segue_xlnet::XlnetConfig;
use segue_families::MODELS;
use segue_language::encoders;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let Ok(model) = MODELS.from_hugging_face(text, "fuzz") else { return };
    if let Some(c) = model.get::<TransfoXlConfig>() {
        assert!(c.cluster_ends().is_sorted() && c.head_width() > 0 && c.embed_width() > 0);
    }
    if let Some(c) = model.get::<XlnetConfig>() {
        assert!(c.head_width() > 0 && c.n_layer > 0);
    }
    if let Ok(family) = encoders(&model) {
        assert!(family.head(&model).width > 0);
    }
});
