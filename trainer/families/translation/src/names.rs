//! Names of parameters and configuration keys of Hugging Face's `MarianMTModel`.

use segue_configs::ModelConfig;
use segue_decode::BeamSettings;
use segue_family::own;
use segue_kernels::ParameterSpec;
use segue_language::ForeignNames;
use segue_layers::{NormPlace, position_vectors};
use segue_tokenizer::Tokenizer;
use serde_json::{Value, json};
use tch::{Device, Kind, Tensor};

use super::keys::TranslationConfig;
use super::model::{OUTPUT_BIAS, TABLE, specs};

/// The models of `MarianMTModel`.
pub struct Marian;

impl ForeignNames for Marian {
    /// One table embeds both languages and scores words.
    fn aliases(&self, _: &ModelConfig) -> Vec<(String, String)> {
        let copies =
            ["model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"];
        copies.map(|name| (name.into(), TABLE.into())).into()
    }

    fn derived(&self, model: &ModelConfig) -> Vec<(String, Tensor)> {
        let model: &TranslationConfig = own(model);
        let (most, width) = (model.max_position_embeddings as i64, model.d_model as i64);
        let table = position_vectors(0, most, width, (Kind::Double, Device::Cpu)).to_kind(Kind::Float);
        let names = ["model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"];
        names.map(|name| (name.into(), table.shallow_clone())).into()
    }

    fn specs_beside_text(&self, model: &ModelConfig) -> Vec<ParameterSpec> {
        specs(own(model))
    }

    fn lost_in_fine_tuning(&self) -> &'static [&'static str] {
        &[OUTPUT_BIAS]
    }

    fn closed_to_hugging_face(&self, model: &ModelConfig) -> Option<String> {
        let model: &TranslationConfig = own(model);
        let unlike = match (model.norm, model.attention_bias) {
            (NormPlace::Pre, _) => "norms before its sublayers",
            (_, false) => "no biases in attention",
            _ => return None,
        };
        Some(format!(
            "it has {unlike}: this program runs it, Hugging Face's package would compute something else"
        ))
    }

    fn complete_hugging_face(&self, model: &ModelConfig, json: &mut Value) {
        let model: &TranslationConfig = own(model);
        for (key, value) in [
            ("architectures", json!(["MarianMTModel"])),
            ("is_encoder_decoder", json!(true)),
            ("share_encoder_decoder_embeddings", json!(true)),
            ("tie_word_embeddings", json!(true)),
            ("num_hidden_layers", json!(model.encoder_layers)),
            ("decoder_vocab_size", json!(model.vocab_size)),
            ("decoder_start_token_id", json!(model.pad_token_id)),
            ("forced_eos_token_id", json!(null)),
            ("bos_token_id", json!(null)),
        ] {
            json[key] = value;
        }
    }

    /// Four beams; padding is never written, and the longest translation ends all the same.
    fn generation(&self, model: &ModelConfig) -> Option<Value> {
        let model: &TranslationConfig = own(model);
        let (padding, end) = (model.pad_token_id, model.eos_token_id);
        Some(json!({
            "num_beams": BeamSettings::default().beams,
            "max_length": model.max_position_embeddings,
            "pad_token_id": padding,
            "eos_token_id": end,
            "decoder_start_token_id": padding,
            "forced_eos_token_id": end,
            "bad_words_ids": [[padding]],
        }))
    }

    fn tokenizer(&self, model: &ModelConfig, tokenizer: &Tokenizer) -> Result<Option<Tokenizer>, String> {
        let model: &TranslationConfig = own(model);
        tokenizer.for_translation(model.pad_token_id as u32, model.max_position_embeddings).map(Some)
    }
}
