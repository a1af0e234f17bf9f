//! XLNet (Yang et al. 2019; Yang 2019, §2.2).

mod config;
mod cost;
mod encoder;
mod layer;
mod left_to_right;
mod model;
mod objective;
#[cfg(test)]
mod on_cards;
mod parity;
mod parity_heads;
mod parity_input;
mod plan;
mod sequence;

use std::collections::BTreeMap;
use std::path::Path;

use segue_configs::{ModelConfig, ModelType, OwnSections, TrainConfig};
use segue_cost::{MicroStep, Role};
use segue_data_error::DataError;
use segue_family::parity::Cases;
use segue_family::{Entry, Parity, Trained, own};
use segue_kernels::{Init, ParameterSpec, Parameters, TrainError};
use segue_language::{
    Encoder, Encoders, Encodes, ForeignNames, Language, ModelFolder, Names, NextToken, NextTokens, Objective,
    PredictsTokens, TextModel,
};
use segue_layers::{HeadConfig, WordVectors};
use segue_tokenizer::{Tokenizer, XlnetNormalization};
use serde_json::{Value, json};
use tch::Tensor;

pub use config::{AttentionDirection, XlnetConfig};
pub use left_to_right::LeftToRight;
pub use model::{States, Xlnet};
pub use objective::Pretraining;
pub use segue_layers::Activation;
pub use sequence::{Sequence, Visibility};

/// The family's line in the list.
pub static FAMILY: Entry = Entry {
    section: ModelType::of::<XlnetConfig>,
    open: segue_language::open,
    fit: segue_language::fit,
    work: segue_language::work,
    capabilities: &[
        &Language(&XlnetFamily),
        &NextTokens(&XlnetFamily),
        &Encoders(&XlnetFamily),
        &Names(&XlnetFamily),
        &segue_language::WRITES,
        &segue_task::PREDICTS,
        &Parity(compare),
    ],
};

struct XlnetFamily;

/// Positions of memory to write with where a configuration has none: Hugging Face's keep none unless told to.
const MEMORY: usize = 512;

/// Compares a model with the cases of a file.
fn compare(model: Trained, cases: &mut Cases) -> Result<(), TrainError> {
    parity::run(&ModelFolder::of(model)?, cases)
}

impl TextModel for XlnetFamily {
    fn specs(&self, model: &ModelConfig) -> Vec<ParameterSpec> {
        Xlnet::specs(own(model))
    }

    fn trained_specs(&self, model: &ModelConfig, sections: &OwnSections) -> Vec<ParameterSpec> {
        Pretraining::specs(own(model), sections)
    }

    fn objective_over(
        &self,
        model: &ModelConfig,
        sections: &OwnSections,
        _: u64,
        parameters: Parameters,
    ) -> Box<dyn Objective> {
        Box::new(Pretraining::from_parameters(own(model), sections, parameters))
    }

    fn role(&self, name: &str) -> Role {
        match name {
            model::EMBEDDING | model::MASK_EMBEDDING => Role::Embedding,
            name if name.starts_with("lm_loss.") => Role::Output,
            name if name.starts_with("transformer.") => {
                Role::of_layer(name, "transformer.layer.").unwrap_or(Role::Shared)
            }
            _ => Role::Head,
        }
    }

    fn scoring_tables(&self, _: &ModelConfig) -> Vec<String> {
        vec![model::EMBEDDING.into()]
    }

    fn micro_step(&self, train: &TrainConfig, model: &ModelConfig, sections: &OwnSections) -> MicroStep {
        cost::micro_step(train, own(model), sections)
    }
}

impl PredictsTokens for XlnetFamily {
    fn next_token(&self, model: &ModelConfig, parameters: Parameters) -> Box<dyn NextToken> {
        Box::new(LeftToRight::new(own(model), parameters))
    }

    fn looks_both_ways(&self, model: &ModelConfig) -> bool {
        own::<XlnetConfig>(model).attn_type == AttentionDirection::Bi
    }

    fn usual_memory(&self, model: &ModelConfig) -> Option<usize> {
        (own::<XlnetConfig>(model).mem_len == 0).then_some(MEMORY)
    }

    fn same_length(&self, model: &ModelConfig) -> bool {
        own::<XlnetConfig>(model).same_length
    }
}

impl Encodes for XlnetFamily {
    fn head(&self, model: &ModelConfig) -> HeadConfig {
        own::<XlnetConfig>(model).into()
    }

    fn words(&self, _: &ModelConfig, parameters: &Parameters) -> WordVectors {
        let table = parameters.get(model::EMBEDDING);
        WordVectors::new(move |ids| Tensor::embedding(&table, ids, -1, false, false))
    }

    fn encoder_specs(&self, model: &ModelConfig) -> Vec<ParameterSpec> {
        Xlnet::encoder_specs(own(model))
    }

    fn encoding_step(
        &self,
        model: &ModelConfig,
        recompute: bool,
        sequences: usize,
        length: usize,
    ) -> MicroStep {
        cost::encoding_step(own(model), recompute, sequences, length)
    }

    fn encoder(&self, model: &ModelConfig, parameters: &Parameters) -> Box<dyn Encoder> {
        Box::new(encoder::XlnetEncoder::new(own(model), parameters))
    }

    fn encodes_both_ways(&self) -> bool {
        true
    }
}

impl ForeignNames for XlnetFamily {
    fn aliases(&self, model: &ModelConfig) -> Vec<(String, String)> {
        Xlnet::aliases(own(model))
    }

    fn copies(&self, model: &ModelConfig) -> Vec<(String, String)> {
        Xlnet::copies(own(model))
    }

    fn only_predicts(&self) -> &'static [&'static str] {
        &[model::OUTPUT_BIAS]
    }

    fn lost_in_fine_tuning(&self) -> &'static [&'static str] {
        &[model::OUTPUT_BIAS, model::MASK_EMBEDDING]
    }

    fn closed_to_hugging_face(&self, model: &ModelConfig) -> Option<String> {
        let model: &XlnetConfig = own(model);
        let (heads, width) = (model.n_head, model.head_width());
        (width * heads != model.d_model).then(|| {
            format!(
                "{heads} heads of width {width} are not d_model = {}: this program and TensorFlow's run it, Hugging \
                 Face's package cannot open it",
                model.d_model
            )
        })
    }

    /// XLNet's programs do more to text than their SentencePiece model does.
    fn import_vocabulary(&self, path: &Path) -> Result<Tokenizer, DataError> {
        match path.extension().is_some_and(|extension| extension == "model") {
            true => Tokenizer::import_xlnet(path, XlnetNormalization::default()),
            false => Tokenizer::import(path),
        }
    }

    fn complete_hugging_face(&self, model: &ModelConfig, json: &mut Value) {
        json["architectures"] = json!(["XLNetLMHeadModel"]);
        json["d_head"] = json!(own::<XlnetConfig>(model).head_width());
        json["tie_word_embeddings"] = json!(true);
    }

    /// Hugging Face's XLNet has biases for each layer whatever `untie_r` says: where a model that is called tied holds
    /// different ones, it is not tied.
    fn correct(&self, model: &mut ModelConfig, stored: &dyn Fn(&str) -> Option<Tensor>) {
        let copies = self.copies(model);
        let mut first: BTreeMap<&str, Tensor> = BTreeMap::new();
        let mut differ = false;
        for (name, tied) in &copies {
            let Some(tensor) = stored(name) else { continue };
            let known = first.entry(tied).or_insert_with(|| tensor.shallow_clone());
            differ |= known.size() != tensor.size() || *known != tensor;
        }
        if let Some(config) = model.get_mut::<XlnetConfig>() {
            config.untie_r |= differ;
        }
    }

    /// Where a model has no memory, or reuses none of a sequence of pairs, it is taken to have had the reference's.
    fn usual_training(&self, model: &mut ModelConfig) -> Value {
        let Some(config) = model.get_mut::<XlnetConfig>() else { return json!({}) };
        let default = XlnetConfig::default();
        if config.mem_len == 0 {
            config.mem_len = default.mem_len;
        }
        match config.attn_type {
            AttentionDirection::Bi => {
                if config.reuse_len == 0 {
                    config.reuse_len = default.reuse_len;
                }
                json!({})
            }
            // It remembers whole segments, whatever the folder says.
            AttentionDirection::Uni => {
                config.reuse_len = 0;
                json!({ "objective": { "kind": "lm" }, "data": { "order": "stream" } })
            }
        }
    }

    fn hugging_face_class(&self, head: &str) -> Option<String> {
        Some(format!("XLNet{head}"))
    }
}

impl From<&XlnetConfig> for HeadConfig {
    fn from(config: &XlnetConfig) -> Self {
        Self {
            width: config.d_model as i64,
            init: Init::Normal { mean: 0.0, std: config.initializer_range },
            dropout: config.dropout,
            norm_eps: config.layer_norm_eps,
            prefix: String::new(),
        }
    }
}

/// The XLNet of a folder, with its weights, in single precision.
pub fn load_xlnet(folder: &ModelFolder) -> Result<(Xlnet, Parameters), TrainError> {
    let config = folder.config.get().ok_or_else(|| folder.is_not("an XLNet"))?;
    let parameters = folder.parameters()?;
    Ok((Xlnet::new(config, &parameters), parameters))
}

#[cfg(test)]
mod tests {
    use segue_engine::optim::{Adam, Optimizer, Update};
    use tch::{Device, Kind, Tensor};

    use super::*;

    /// The reference spares biases and norms, and decays u, v and b although they are called biases (row X20).
    #[test]
    fn published_recipes_decay_what_the_reference_decays() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../configs/recipes/xlnet-base-v2.toml");
        let config = segue_testing::models::<XlnetConfig>().load(Some(path.as_ref()), &[]).unwrap().config;
        let small = XlnetConfig { vocab_size: 5, d_model: 4, n_head: 2, n_layer: 1, ..Default::default() };
        let specs = Xlnet::specs(&small);
        let all = |value: f64| -> Vec<Tensor> {
            let of = |spec: &ParameterSpec| Tensor::full(&spec.shape, value, (Kind::Float, Device::Cpu));
            specs.iter().map(of).collect()
        };
        let parameters = Parameters::from_tensors(specs.clone(), all(1.0), Kind::Float);
        // Where gradients are zero, weights move by their decay alone.
        let update = Update { grads: &all(0.0), divisor: 1.0, lr: 0.1, reached: None };
        Adam::new(&config.optim, &parameters).update(&parameters, &update).unwrap();
        for (spec, (tensor, before)) in specs.iter().zip(parameters.tensors().iter().zip(all(1.0))) {
            let name = spec.name.rsplit('.').next().unwrap();
            let spared = match name {
                "bias" => true,
                "weight" => spec.name.contains("layer_norm"),
                "q" | "k" | "v" | "r" | "o" | "r_w_bias" | "r_r_bias" | "r_s_bias" | "seg_embed"
                | "mask_emb" => false,
                other => panic!("{other}"),
            };
            assert_eq!(*tensor == before, spared, "{}", spec.name);
        }
    }
}
