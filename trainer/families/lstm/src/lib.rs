//! Recurrent language models (Melis 2023, ch. 2 and 4; Merity et al. 2018): LSTM, mogrifier, rewired LSTM, QRNN and their relatives.

mod budget;
mod config;
mod cost;
mod encoder;
mod keys;
mod layer;
mod model;
mod objective;
mod parameters;

use segue_configs::{ModelConfig, ModelType, OwnSections, TrainConfig};
use segue_cost::{MicroStep, Role};
use segue_family::parity::Cases;
use segue_family::{Entry, Parity, Trained, own};
use segue_kernels::{Init, ParameterSpec, Parameters, TrainError};
use segue_language::{
    Encoder, Encoders, Encodes, ForeignNames, Language, ModelFolder, Names, NextToken, NextTokens, Objective,
    PredictsTokens, TextModel,
};
use segue_layers::{HeadConfig, WordVectors};
use serde_json::{Value, json};

pub use budget::widest;
pub use keys::{CellKind, ForgetBias, GateNormKind, InitKind, InputBias, LstmConfig, Wiring};
pub use layer::layer_below;
pub use model::{Model, Output};
pub use objective::LanguageModel;
pub use parameters::specs;
pub use parameters::{layer_specs, table_law};

/// The family's line in the list.
pub static FAMILY: Entry = Entry {
    section: ModelType::of::<LstmConfig>,
    open: segue_language::open,
    fit: segue_language::fit,
    work: segue_language::work,
    capabilities: &[
        &Language(&Recurrent),
        &NextTokens(&Recurrent),
        &Encoders(&Recurrent),
        &Names(&Recurrent),
        &segue_language::WRITES,
        &segue_task::PREDICTS,
        &Parity(compare),
    ],
};

struct Recurrent;

/// Compares a model with the cases of a file.
fn compare(model: Trained, cases: &mut Cases) -> Result<(), TrainError> {
    let folder = ModelFolder::of(model)?;
    let model = LanguageModel::from_parameters(own(&folder.config), folder.parameters()?);
    segue_language::parity_of_segments(&model, folder.config.vocab_size(), cases)
}

impl TextModel for Recurrent {
    fn specs(&self, model: &ModelConfig) -> Vec<ParameterSpec> {
        parameters::specs(own(model))
    }

    fn objective_over(
        &self,
        model: &ModelConfig,
        sections: &OwnSections,
        steps: u64,
        parameters: Parameters,
    ) -> Box<dyn Objective> {
        Box::new(LanguageModel::from_parameters(own(model), parameters).trained(sections, steps))
    }

    fn role(&self, name: &str) -> Role {
        match name {
            parameters::EMBEDDING => Role::Embedding,
            parameters::PROJECTION => Role::OutputProjection,
            name => Role::of_layer(name, "layers.").unwrap_or(Role::Output),
        }
    }

    fn scoring_tables(&self, model: &ModelConfig) -> Vec<String> {
        let tied = own::<LstmConfig>(model).tie_word_embeddings;
        vec![if tied { parameters::EMBEDDING } else { parameters::OUTPUT }.into()]
    }

    fn micro_step(&self, train: &TrainConfig, model: &ModelConfig, sections: &OwnSections) -> MicroStep {
        cost::micro_step(train.micro_batch, own(model), sections)
    }
}

impl PredictsTokens for Recurrent {
    fn next_token(&self, model: &ModelConfig, parameters: Parameters) -> Box<dyn NextToken> {
        Box::new(LanguageModel::from_parameters(own(model), parameters))
    }

    fn attends(&self) -> bool {
        false
    }

    fn usual_memory(&self, _: &ModelConfig) -> Option<usize> {
        Some(1)
    }

    fn same_length(&self, _: &ModelConfig) -> bool {
        false
    }
}

impl Encodes for Recurrent {
    fn head(&self, model: &ModelConfig) -> HeadConfig {
        let config: &LstmConfig = own(model);
        HeadConfig {
            width: config.last_width() as i64,
            init: Init::Normal { mean: 0.0, std: (config.last_width() as f64).powf(-0.5) },
            dropout: config.output_dropout,
            norm_eps: 1e-5,
            prefix: String::new(),
        }
    }

    fn words(&self, _: &ModelConfig, parameters: &Parameters) -> WordVectors {
        let table = parameters.get(self::parameters::EMBEDDING);
        WordVectors::new(move |ids| tch::Tensor::embedding(&table, ids, -1, false, false))
    }

    fn word_specs(&self, model: &ModelConfig) -> Vec<ParameterSpec> {
        let mut specs = parameters::specs(own(model));
        specs.retain(|spec| spec.name == parameters::EMBEDDING);
        specs
    }

    fn encoding_step(&self, model: &ModelConfig, _: bool, sequences: usize, length: usize) -> MicroStep {
        cost::encoding_step(own(model), sequences, length)
    }

    fn encoder(&self, model: &ModelConfig, parameters: &Parameters) -> Box<dyn Encoder> {
        Box::new(encoder::LstmEncoder::new(own(model), parameters))
    }
}

impl ForeignNames for Recurrent {
    fn aliases(&self, _: &ModelConfig) -> Vec<(String, String)> {
        Vec::new()
    }

    fn closed_to_hugging_face(&self, _: &ModelConfig) -> Option<String> {
        Some("transformers has no class for recurrent language models, so that from_pretrained does not open this folder".into())
    }

    fn complete_hugging_face(&self, _: &ModelConfig, json: &mut Value) {
        json["architectures"] = json!(["LstmLMHeadModel"]);
    }
}
