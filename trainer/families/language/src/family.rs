//! What a family of language models gives the program, by capability: what is trained, the next token, encoders under heads, names of other programs.

use std::path::Path;

use segue_configs::{ModelConfig, OwnSections, TrainConfig};
use segue_cost::{MicroStep, Role};
use segue_data_error::DataError;
use segue_family::{Capability, find, need};
use segue_kernels::{ParameterSpec, Parameters, TrainError};
use segue_layers::{HeadConfig, WordVectors};
use segue_tokenizer::Tokenizer;
use serde_json::Value;
use tch::Tensor;

use super::encoder::Encoder;
use super::next_token::NextToken;
use super::objective::Objective;

/// A kind of language model: what is trained. `model` is always a section of its own type.
pub trait TextModel: Sync {
    /// Every parameter of the model, in the order of the forward pass, without making them.
    fn specs(&self, model: &ModelConfig) -> Vec<ParameterSpec>;

    /// The same of what the objective trains that `own` says: the model's, then those of what is trained beside it.
    fn trained_specs(&self, model: &ModelConfig, own: &OwnSections) -> Vec<ParameterSpec> {
        let _ = own;
        self.specs(model)
    }

    /// The objective that `own` says over parameters that it takes as its own, which hold [`TextModel::trained_specs`]. `steps`: those of the
    /// schedule, over which noise falls.
    fn objective_over(
        &self,
        model: &ModelConfig,
        own: &OwnSections,
        steps: u64,
        parameters: Parameters,
    ) -> Box<dyn Objective>;

    /// What the trained parameter `name` is for.
    fn role(&self, name: &str) -> Role;

    /// Names of the parameters whose rows score words, in the order of these.
    fn scoring_tables(&self, model: &ModelConfig) -> Vec<String>;

    /// What one micro-step of training costs.
    fn micro_step(&self, train: &TrainConfig, model: &ModelConfig, own: &OwnSections) -> MicroStep;
}

/// A kind of language model that tells the next token: what scores, writes and is evaluated on text.
pub trait PredictsTokens: TextModel {
    /// Over parameters that hold [`TextModel::specs`], the model from left to right.
    fn next_token(&self, model: &ModelConfig, parameters: Parameters) -> Box<dyn NextToken>;

    /// Whether a position sees those after it.
    fn looks_both_ways(&self, model: &ModelConfig) -> bool {
        let _ = model;
        false
    }

    /// Whether it has attention, which may look farther or less far than in training.
    fn attends(&self) -> bool {
        true
    }

    /// Whether it can read the end of a segment again as context of the next, and hide documents from each other.
    fn reads_context_again(&self) -> bool {
        false
    }

    /// Memory to write with where the model's own configuration has none.
    fn usual_memory(&self, model: &ModelConfig) -> Option<usize> {
        let _ = model;
        None
    }

    /// Whether queries all see the same number of keys, where the command line does not say.
    fn same_length(&self, model: &ModelConfig) -> bool;
}

/// A kind of language model that encodes whole sequences, for heads to sit on.
pub trait Encodes: TextModel {
    /// The parameters that an encoder of whole sequences is made of.
    fn encoder_specs(&self, model: &ModelConfig) -> Vec<ParameterSpec> {
        self.specs(model)
    }

    /// The model as an encoder of whole sequences, over parameters that hold [`Encodes::encoder_specs`].
    fn encoder(&self, model: &ModelConfig, parameters: &Parameters) -> Box<dyn Encoder>;

    /// What a micro-step costs that encodes so many `sequences` of `length` tokens each, for a head of a task: no word is predicted and nothing remembered.
    /// `recompute`: whether the backward pass makes layers again.
    fn encoding_step(
        &self,
        model: &ModelConfig,
        recompute: bool,
        sequences: usize,
        length: usize,
    ) -> MicroStep;

    /// Whether every token of a sequence that is encoded as a whole sees every other.
    fn encodes_both_ways(&self) -> bool {
        false
    }

    /// What heads have to know of the model they sit on.
    fn head(&self, model: &ModelConfig) -> HeadConfig;

    /// The vectors of words over parameters that hold [`Encodes::word_specs`].
    fn words(&self, model: &ModelConfig, parameters: &Parameters) -> WordVectors;

    /// The parameters of the model that its word vectors are made of.
    fn word_specs(&self, model: &ModelConfig) -> Vec<ParameterSpec> {
        let mut specs = self.specs(model);
        specs.retain(|spec| spec.name.starts_with(WORDS));
        specs
    }
}

/// A kind of language model that other programs know too: Hugging Face's names, classes and files.
pub trait ForeignNames: Sync {
    /// Names under which Hugging Face also stores a parameter: `(its name, ours)`.
    fn aliases(&self, model: &ModelConfig) -> Vec<(String, String)>;

    /// Parameters that Hugging Face's package finds under other names only, once for each: `(its name, ours)`.
    fn copies(&self, model: &ModelConfig) -> Vec<(String, String)> {
        let _ = model;
        Vec::new()
    }

    /// Tensors that Hugging Face stores and that follow from the configuration alone.
    fn buffers(&self, model: &ModelConfig) -> Vec<(String, Tensor)> {
        let _ = model;
        Vec::new()
    }

    /// Tensors that its files may hold and that follow from the configuration alone, whether they are written or not.
    fn derived(&self, model: &ModelConfig) -> Vec<(String, Tensor)> {
        self.buffers(model)
    }

    /// Every parameter of a model that is not a language model, in the order of the forward pass; [`TextModel::specs`] tells those of the others.
    fn specs_beside_text(&self, model: &ModelConfig) -> Vec<ParameterSpec> {
        let _ = model;
        Vec::new()
    }

    /// Parameters that only predict tokens: a model fine-tuned elsewhere may come without.
    fn only_predicts(&self) -> &'static [&'static str] {
        &[]
    }

    /// And which of the same kind a checkpoint of a fine-tuned model may lack.
    fn lost_in_fine_tuning(&self) -> &'static [&'static str] {
        &[]
    }

    /// Why Hugging Face's package cannot open the model, where it cannot.
    fn closed_to_hugging_face(&self, model: &ModelConfig) -> Option<String> {
        let _ = model;
        None
    }

    /// Reads a vocabulary file of other programs.
    fn import_vocabulary(&self, path: &Path) -> Result<Tokenizer, DataError> {
        Tokenizer::import(path)
    }

    /// Completes `config.json` for Hugging Face's package, beyond the section's own keys.
    fn complete_hugging_face(&self, model: &ModelConfig, json: &mut Value);

    /// `generation_config.json`, of models that the package writes text with: how it searches.
    fn generation(&self, model: &ModelConfig) -> Option<Value> {
        let _ = model;
        None
    }

    /// The model's tokenizer with the files that the package reads and writes its text with; `None` where those that it has are enough. The error says why
    /// there are none.
    fn tokenizer(&self, model: &ModelConfig, tokenizer: &Tokenizer) -> Result<Option<Tokenizer>, String> {
        let _ = (model, tokenizer);
        Ok(None)
    }

    /// Corrects what a `config.json` says by the weights beside it, `stored` by name.
    fn correct(&self, model: &mut ModelConfig, stored: &dyn Fn(&str) -> Option<Tensor>) {
        let _ = (model, stored);
    }

    /// The sections that a model was trained with of which nothing but the model is known, and sizes of the model that
    /// its `config.json` left open.
    fn usual_training(&self, model: &mut ModelConfig) -> Value {
        let _ = model;
        Value::Object(Default::default())
    }

    /// Hugging Face's name for a class of the model with a head, such as `ForTokenClassification`; `None` where its
    /// package has none.
    fn hugging_face_class(&self, head: &str) -> Option<String> {
        let _ = head;
        None
    }
}

/// Families of language models.
pub struct Language(pub &'static dyn TextModel);

impl Capability for Language {
    const OF: &'static str = "a language model";
}

/// Those whose models tell the next token.
pub struct NextTokens(pub &'static dyn PredictsTokens);

impl Capability for NextTokens {
    const OF: &'static str = "a model that tells the next token";
}

/// Those whose models encode sequences.
pub struct Encoders(pub &'static dyn Encodes);

impl Capability for Encoders {
    const OF: &'static str = "a model that encodes sequences";
}

/// Those whose models other programs know.
pub struct Names(pub &'static dyn ForeignNames);

impl Capability for Names {
    const OF: &'static str = "a model that other programs know";
}

/// The family of a language model. Refuses any other.
pub fn language(model: &ModelConfig) -> Result<&'static dyn TextModel, TrainError> {
    need::<Language>(model).map(|language| language.0)
}

/// The family of a model of the next token. Refuses any other.
pub fn next_tokens(model: &ModelConfig) -> Result<&'static dyn PredictsTokens, TrainError> {
    need::<NextTokens>(model).map(|tokens| tokens.0)
}

/// The family of a model that encodes sequences. Refuses any other.
pub fn encoders(model: &ModelConfig) -> Result<&'static dyn Encodes, TrainError> {
    need::<Encoders>(model).map(|encoders| encoders.0)
}

/// What other programs call the parts of a model; `None` of one that they do not know.
pub fn names(model: &ModelConfig) -> Option<&'static dyn ForeignNames> {
    find::<Names>(model).map(|names| names.0)
}

/// Parameters of the configured model, without making them; none of one that is not a language model and that other programs do not know.
pub fn specs(model: &ModelConfig) -> Vec<ParameterSpec> {
    match find::<Language>(model) {
        Some(language) => language.0.specs(model),
        None => names(model).map_or(Vec::new(), |names| names.specs_beside_text(model)),
    }
}

/// Names under which Hugging Face also stores a parameter of the configured model: `(its name, ours)`.
pub fn aliases(model: &ModelConfig) -> Vec<(String, String)> {
    names(model).map_or(Vec::new(), |names| names.aliases(model))
}

/// Tensors that Hugging Face stores and that follow from the configuration alone.
pub fn buffers(model: &ModelConfig) -> Vec<(String, Tensor)> {
    names(model).map_or(Vec::new(), |names| names.buffers(model))
}

/// Tensors that files of the model may hold and that follow from the configuration alone.
pub fn derived(model: &ModelConfig) -> Vec<(String, Tensor)> {
    names(model).map_or(Vec::new(), |names| names.derived(model))
}

/// What the names of all parameters begin with that word vectors are made of.
const WORDS: &str = "transformer.word_emb";
