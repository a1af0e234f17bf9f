//! Transformer-XL (Dai et al. 2019; Yang 2019, §2.1).

mod adaptive;
mod config;
mod cost;
mod decode;
mod encoder;
mod encoding;
mod layer;
mod model;
mod objective;
mod parity;
mod window;

use segue_configs::{ModelConfig, ModelType, OwnSections, TrainConfig};
use segue_cost::{MicroStep, Role};
use segue_dataloader::sections::SegmentConfig;
use segue_family::parity::Cases;
use segue_family::{Entry, Parity, Trained, own};
use segue_kernels::{Init, ParameterSpec, Parameters, TrainError};
use segue_language::{
    Encoder, Encoders, Encodes, ForeignNames, Language, ModelFolder, Names, NextToken, NextTokens, Objective,
    PredictsTokens, TextModel,
};
use segue_layers::{Adversary, HeadConfig, WordVectors};
use serde_json::{Value, json};
use tch::Tensor;

pub use adaptive::AdaptiveEmbedding;
pub use config::{AttnType, InitKind, SameLengthKeys, TransfoXlConfig};
pub use encoding::{Encoding, Positions};
pub use model::{Output, Segment, TransfoXl};
pub use objective::LanguageModel;

/// The family's line in the list.
pub static FAMILY: Entry = Entry {
    section: ModelType::of::<TransfoXlConfig>,
    open: segue_language::open,
    fit: segue_language::fit,
    work: segue_language::work,
    capabilities: &[
        &Language(&TransformerXl),
        &NextTokens(&TransformerXl),
        &Encoders(&TransformerXl),
        &Names(&TransformerXl),
        &segue_language::WRITES,
        &segue_task::PREDICTS,
        &Parity(compare),
    ],
};

struct TransformerXl;

/// Compares a model with the cases of a file.
fn compare(model: Trained, cases: &mut Cases) -> Result<(), TrainError> {
    parity::run(&ModelFolder::of(model)?, cases)
}

impl TextModel for TransformerXl {
    fn specs(&self, model: &ModelConfig) -> Vec<ParameterSpec> {
        TransfoXl::specs(own(model))
    }

    fn objective_over(
        &self,
        model: &ModelConfig,
        sections: &OwnSections,
        steps: u64,
        parameters: Parameters,
    ) -> Box<dyn Objective> {
        let mut objective = LanguageModel::from_parameters(own(model), parameters);
        objective.targets = sections.get::<SegmentConfig>().loss;
        objective.adversary = Adversary::of(&sections.get());
        objective.steps = steps;
        Box::new(objective)
    }

    fn role(&self, name: &str) -> Role {
        match name {
            name if name.starts_with("transformer.word_emb.emb_projs.") => Role::InputProjection,
            name if name.starts_with("transformer.word_emb.") => Role::Embedding,
            name if name.starts_with("crit.out_projs.") => Role::OutputProjection,
            name if name.starts_with("crit.") => Role::Output,
            name => Role::of_layer(name, "transformer.layers.").unwrap_or(Role::Shared),
        }
    }

    fn scoring_tables(&self, model: &ModelConfig) -> Vec<String> {
        adaptive::output_tables(own(model))
    }

    fn micro_step(&self, train: &TrainConfig, model: &ModelConfig, sections: &OwnSections) -> MicroStep {
        cost::micro_step(train, own(model), &sections.get())
    }
}

impl PredictsTokens for TransformerXl {
    fn next_token(&self, model: &ModelConfig, parameters: Parameters) -> Box<dyn NextToken> {
        Box::new(LanguageModel::from_parameters(own(model), parameters))
    }

    fn reads_context_again(&self) -> bool {
        true
    }

    fn same_length(&self, model: &ModelConfig) -> bool {
        own::<TransfoXlConfig>(model).same_length
    }
}

impl Encodes for TransformerXl {
    fn head(&self, model: &ModelConfig) -> HeadConfig {
        let config: &TransfoXlConfig = own(model);
        HeadConfig {
            width: config.d_model as i64,
            init: match config.init {
                InitKind::Normal => Init::Normal { mean: 0.0, std: config.init_std },
                InitKind::Uniform => Init::Uniform { range: config.init_range },
            },
            dropout: config.dropout,
            norm_eps: config.layer_norm_epsilon,
            prefix: String::new(),
        }
    }

    fn words(&self, model: &ModelConfig, parameters: &Parameters) -> WordVectors {
        let embedding = AdaptiveEmbedding::new(own(model), parameters);
        WordVectors::new(move |ids| embedding.forward(ids))
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
        Box::new(encoder::TransfoXlEncoder::new(own(model), parameters))
    }
}

impl ForeignNames for TransformerXl {
    fn aliases(&self, model: &ModelConfig) -> Vec<(String, String)> {
        TransfoXl::aliases(own(model))
    }

    fn buffers(&self, model: &ModelConfig) -> Vec<(String, Tensor)> {
        TransfoXl::buffers(own(model))
    }

    fn complete_hugging_face(&self, model: &ModelConfig, json: &mut Value) {
        let config: &TransfoXlConfig = own(model);
        json["architectures"] = json!(["TransfoXLLMHeadModel"]);
        json["d_embed"] = json!(config.embed_width());
        json["d_head"] = json!(config.head_width());
        json["sample_softmax"] = json!(-1);
        let ties = (0..=config.cutoffs.len()).map(|i| config.ties_projection(i));
        json["tie_projs"] = json!(ties.collect::<Vec<_>>());
    }
}

/// The Transformer-XL of a folder, with its weights, in single precision.
pub fn load_language_model(folder: &ModelFolder) -> Result<LanguageModel, TrainError> {
    let config = folder.config.get().ok_or_else(|| folder.is_not("a Transformer-XL"))?;
    Ok(LanguageModel::from_parameters(config, folder.parameters()?))
}
