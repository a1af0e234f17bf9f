//! The `[model]` section: what it reads and refuses.

use std::any::Any;

use segue_configs::model::out_of_range;
use segue_configs::{ConfigError, ModelSection, OwnSections, SectionType, range};
use segue_layers::AdversarialConfig;
use serde_json::{Map, Value, json};

use super::keys::{DataConfig, ObjectiveConfig, TranslationConfig, TranslationEvalConfig};

/// Switches of a Marian model's `config.json`, what they are in every model here, and what to say of another value.
const UNLIKE_HERE: [(&str, bool, &str); 5] = [
    ("share_encoder_decoder_embeddings", true, "source, target and softmax share one table here"),
    ("tie_word_embeddings", true, "source, target and softmax share one table here"),
    ("normalize_before", false, "norms before sublayers have no weights in a Marian model's file"),
    ("normalize_embedding", false, "embeddings are not normed here"),
    ("add_final_layer_norm", false, "a Marian model has no norm after its layers"),
];

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

    /// Those of the package's `MarianConfig`. Its models have norms after sums, and biases in attention and of the softmax.
    fn hugging_face_defaults(known: &mut Map<String, Value>, _: &Map<String, Value>) {
        for (key, value) in [
            ("vocab_size", json!(58_101)),
            ("d_model", json!(1024)),
            ("encoder_layers", json!(12)),
            ("decoder_layers", json!(12)),
            ("encoder_attention_heads", json!(16)),
            ("decoder_attention_heads", json!(16)),
            ("encoder_ffn_dim", json!(4096)),
            ("decoder_ffn_dim", json!(4096)),
            ("dropout", json!(0.1)),
            ("attention_dropout", json!(0.0)),
            ("activation_dropout", json!(0.0)),
            ("activation_function", json!("gelu")),
            ("scale_embedding", json!(false)),
            ("max_position_embeddings", json!(1024)),
            ("pad_token_id", json!(58_100)),
            ("eos_token_id", json!(0)),
            ("norm", json!("post")),
            ("attention_bias", json!(true)),
            ("output_bias", json!(true)),
        ] {
            known.insert(key.into(), value);
        }
    }

    fn check_hugging_face(json: &Map<String, Value>) -> Result<(), ConfigError> {
        let said = |key: &str| json.get(key).filter(|value| !value.is_null());
        for (key, wanted, why) in UNLIKE_HERE {
            if let Some(value) = said(key).filter(|value| **value != json!(wanted)) {
                return Err(out_of_range(key, value, why));
            }
        }
        for (key, same, why) in [
            ("decoder_vocab_size", "vocab_size", "and source and target share one vocabulary here"),
            ("decoder_start_token_id", "pad_token_id", "and a target begins with padding here"),
        ] {
            let Some(value) = said(key) else { continue };
            let default = json!(58_100 + usize::from(same == "vocab_size"));
            let other = said(same).unwrap_or(&default);
            if value != other {
                return Err(out_of_range(key, value, &format!("{same} is {other}, {why}")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use segue_layers::{Activation, NormPlace};
    use segue_testing::models;

    use super::*;

    fn read(json: &Value) -> Result<TranslationConfig, ConfigError> {
        let model = models::<TranslationConfig>().from_hugging_face(&json.to_string(), "config.json")?;
        Ok(model.get::<TranslationConfig>().unwrap().clone())
    }

    /// The defaults of `MarianConfig` in transformers 5.23.
    #[test]
    fn what_a_folder_of_the_package_leaves_out_means_what_it_means_there() {
        let config = read(&json!({ "model_type": "marian", "decoder_vocab_size": null })).unwrap();
        let expected = TranslationConfig {
            vocab_size: 58_101,
            d_model: 1024,
            encoder_layers: 12,
            decoder_layers: 12,
            encoder_attention_heads: 16,
            decoder_attention_heads: 16,
            encoder_ffn_dim: 4096,
            decoder_ffn_dim: 4096,
            dropout: 0.1,
            attention_dropout: 0.0,
            activation_dropout: 0.0,
            activation_function: Activation::Gelu,
            scale_embedding: false,
            norm: NormPlace::Post,
            attention_bias: true,
            output_bias: true,
            max_position_embeddings: 1024,
            pad_token_id: 58_100,
            eos_token_id: 0,
        };
        assert_eq!(config, expected);
        // What released models say.
        let said = json!({
            "model_type": "marian", "d_model": 512, "activation_function": "swish", "scale_embedding": true, "pad_token_id": 58_100,
            "decoder_start_token_id": 58_100, "normalize_before": false, "normalize_embedding": false, "static_position_embeddings": true,
            "add_final_layer_norm": false, "share_encoder_decoder_embeddings": true, "decoder_vocab_size": 58_101, "vocab_size": 58_101,
        });
        let config = read(&said).unwrap();
        assert_eq!((config.d_model, config.activation_function), (512, Activation::Swish));
        assert!(config.scale_embedding);
    }

    #[test]
    fn what_the_package_may_be_told_and_no_model_here_computes_is_refused() {
        for (key, value, why) in [
            ("share_encoder_decoder_embeddings", json!(false), "share one table"),
            ("tie_word_embeddings", json!(false), "share one table"),
            ("normalize_before", json!(true), "norms before sublayers"),
            ("normalize_embedding", json!(true), "embeddings are not normed"),
            ("add_final_layer_norm", json!(true), "no norm after its layers"),
            ("decoder_vocab_size", json!(7), "vocab_size is 9"),
            ("decoder_start_token_id", json!(0), "pad_token_id is 8"),
        ] {
            let mut json = json!({ "model_type": "marian", "vocab_size": 9, "pad_token_id": 8 });
            assert!(read(&json).is_ok());
            json[key] = value;
            let refused = read(&json).unwrap_err().to_string();
            assert!(refused.contains(key) && refused.contains(why), "{refused}");
        }
    }
}
