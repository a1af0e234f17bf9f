//! The `[model]` section: what it reads and refuses.

use std::any::Any;

use segue_configs::model::out_of_range;
use segue_configs::{ConfigError, ModelSection, OwnSections, SectionType, range};
use segue_layers::AdversarialConfig;

use super::keys::{DataConfig, ObjectiveConfig, TranslationConfig, TranslationEvalConfig};

impl ModelSection for TranslationConfig {
    const TYPE: &'static str = "marian";
    const TITLE: &'static str = "Translation";
    const LANES_ARE_BATCHES: bool = true;
    const SECTIONS: &'static [SectionType] = &[
        SectionType::of::<DataConfig>(),
        SectionType::of::<ObjectiveConfig>(),
        SectionType::of::<AdversarialConfig>(),
        SectionType::of::<TranslationEvalConfig>(),
    ];
    const READS: &'static [&'static str] = &[
        "data",
        "objective",
        "adversarial.scale",
        "adversarial.always",
        "adversarial.warmup",
        "adversarial.fall",
        "adversarial.kind",
        "adversarial.gradient",
        "adversarial.gate",
        "eval",
        "train.batch_warmup",
        "train.batch_warmup_from",
    ];

    fn family() -> &'static (dyn Any + Send + Sync) {
        &crate::FAMILY
    }

    fn check(&self) -> Result<(), ConfigError> {
        range::check("model", self)?;
        for (key, heads) in [
            ("model.encoder_attention_heads", self.encoder_attention_heads),
            ("model.decoder_attention_heads", self.decoder_attention_heads),
        ] {
            if !self.d_model.is_multiple_of(heads) {
                return Err(out_of_range(
                    key,
                    heads,
                    &format!("must divide model.d_model = {}", self.d_model),
                ));
            }
        }
        for (key, id) in
            [("model.pad_token_id", self.pad_token_id), ("model.eos_token_id", self.eos_token_id)]
        {
            if self.vocab_size > 0 && id >= self.vocab_size {
                let why = format!("must be below model.vocab_size = {}", self.vocab_size);
                return Err(out_of_range(key, id, &why));
            }
        }
        if self.vocab_size > 0 && self.pad_token_id == self.eos_token_id {
            let why = "is model.pad_token_id too: a text could not end";
            return Err(out_of_range("model.eos_token_id", self.eos_token_id, why));
        }
        if !self.d_model.is_multiple_of(2) {
            let why = "must be even: half of a position's vector are sines, half cosines";
            return Err(out_of_range("model.d_model", self.d_model, why));
        }
        Ok(())
    }

    fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    fn targets_per_lane(&self, own: &OwnSections) -> usize {
        own.get::<DataConfig>().batch_tokens
    }
}
