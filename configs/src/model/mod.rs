//! Model sections. Field names are those of Hugging Face's `config.json`, so that a checkpoint's
//! `config.json` and a recipe's `[model]` say the same thing in the same words.

mod transfo_xl;
mod xlnet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ConfigError;
use crate::range::Range;

pub use transfo_xl::{AttnType, InitKind, SameLengthKeys, TransfoXlConfig};
pub use xlnet::{Activation, AttentionDirection, XlnetConfig};

/// Bounds that keep products of sizes far inside 64 bits, whatever a file says.
const MAX_WIDTH: usize = 1 << 24;
const MAX_VOCABULARY: usize = 1 << 31;

/// The range of a size there must be one of.
fn size() -> Range {
    Range::at_least(1).at_most(MAX_WIDTH).or_too_large(TOO_LARGE)
}

/// The range of any other size.
fn width() -> Range {
    Range::at_least(0).at_most(MAX_WIDTH).or_too_large(TOO_LARGE)
}

const TOO_LARGE: &str = "no model is that large";

/// The range of a number of vocabulary entries.
fn vocabulary() -> Range {
    Range::at_least(0).at_most(MAX_VOCABULARY).or_too_large("no vocabulary is that large")
}

/// The range of a dropout rate.
fn rate() -> Range {
    let why = "a dropout rate lies in [0, 1)";
    Range::at_least(0.0).below(1.0).or_too_small(why).or_too_large(why)
}

/// The model a recipe trains, chosen by `model.model_type`.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelConfig {
    /// `transfo-xl`: Transformer-XL.
    TransfoXl(TransfoXlConfig),
    /// `xlnet`: XLNet.
    Xlnet(XlnetConfig),
}

/// Names that Hugging Face's package also takes for sizes, and the usual ones.
const OTHER_NAMES: [(&str, &str); 4] = [
    ("n_token", "vocab_size"),
    ("hidden_size", "d_model"),
    ("num_attention_heads", "n_head"),
    ("num_hidden_layers", "n_layer"),
];

impl ModelConfig {
    /// The names `model.model_type` may have.
    pub const TYPES: [&'static str; 2] = ["transfo-xl", "xlnet"];

    /// The configuration of `model_type` with every key at its default.
    pub fn default_of(model_type: &str) -> Option<Self> {
        match model_type {
            "transfo-xl" => Some(ModelConfig::TransfoXl(TransfoXlConfig::default())),
            "xlnet" => Some(ModelConfig::Xlnet(XlnetConfig::default())),
            _ => None,
        }
    }

    /// The name in `model.model_type`.
    pub fn model_type(&self) -> &'static str {
        match self {
            ModelConfig::TransfoXl(_) => "transfo-xl",
            ModelConfig::Xlnet(_) => "xlnet",
        }
    }

    /// Entries of the output vocabulary; 0 until [`ModelConfig::fit_vocabulary`].
    pub fn vocab_size(&self) -> usize {
        match self {
            ModelConfig::TransfoXl(c) => c.vocab_size,
            ModelConfig::Xlnet(c) => c.vocab_size,
        }
    }

    /// The configuration of a Transformer-XL, if it is one.
    pub fn transfo_xl(&self) -> Option<&TransfoXlConfig> {
        match self {
            ModelConfig::TransfoXl(c) => Some(c),
            ModelConfig::Xlnet(_) => None,
        }
    }

    /// The configuration of an XLNet, if it is one.
    pub fn xlnet(&self) -> Option<&XlnetConfig> {
        match self {
            ModelConfig::Xlnet(c) => Some(c),
            ModelConfig::TransfoXl(_) => None,
        }
    }

    /// Positions of memory.
    pub fn mem_len(&self) -> usize {
        match self {
            ModelConfig::TransfoXl(c) => c.mem_len,
            ModelConfig::Xlnet(c) => c.mem_len,
        }
    }

    /// Takes the corpus' vocabulary where the recipe leaves it open (`vocab_size = 0`), and refuses a
    /// corpus with ids that the model has no embedding for.
    /// `eos` is the tokenizer's end-of-sequence token, if it has one.
    pub fn fit_vocabulary(&mut self, corpus: usize, eos: Option<u32>) -> Result<(), ConfigError> {
        let (vocab_size, eos_token_id) = match self {
            ModelConfig::TransfoXl(c) => (&mut c.vocab_size, &mut c.eos_token_id),
            ModelConfig::Xlnet(c) => (&mut c.vocab_size, &mut c.eos_token_id),
        };
        *eos_token_id = eos.map_or(*eos_token_id, i64::from);
        if *vocab_size == 0 {
            *vocab_size = corpus;
        }
        if *vocab_size < corpus {
            return Err(ConfigError::OutOfRange {
                key: "model.vocab_size".into(),
                value: vocab_size.to_string(),
                why: format!(
                    "the corpus' tokenizer has {corpus} entries, more than the model's vocabulary\nhint: \
                     build the corpus with the model's tokenizer, or leave model.vocab_size out"
                ),
            });
        }
        match self {
            ModelConfig::TransfoXl(c) => c.check_cutoffs(),
            ModelConfig::Xlnet(_) => Ok(()),
        }
    }

    /// This section as JSON, without `model_type`.
    pub fn to_json(&self) -> Value {
        let value = match self {
            ModelConfig::TransfoXl(c) => serde_json::to_value(c),
            ModelConfig::Xlnet(c) => serde_json::to_value(c),
        };
        value.unwrap_or_default()
    }

    /// Reads a Hugging Face `config.json`. Keys that only that package uses are left alone; its other names for
    /// sizes, `n_token` of 2019 among them, are understood where the usual one is not there.
    pub fn from_hugging_face(text: &str, origin: &str) -> Result<Self, ConfigError> {
        let syntax = |message: String| ConfigError::Syntax { origin: origin.into(), message };
        let json: Map<String, Value> = serde_json::from_str(text).map_err(|e| syntax(e.to_string()))?;
        let model_type = json.get("model_type").and_then(|v| v.as_str()).unwrap_or_default();
        let default = Self::default_of(model_type).ok_or_else(|| {
            syntax(format!("unknown model_type `{model_type}`\nhint: known are {}", Self::TYPES.join(", ")))
        })?;
        let mut merged = default.to_json();
        let Some(known) = merged.as_object_mut() else {
            return Err(syntax("the section of a model must be a table".into()));
        };
        if let ModelConfig::Xlnet(_) = default {
            XlnetConfig::hugging_face_defaults(known, &json);
        }
        let aliases = OTHER_NAMES.iter().filter(|(_, usual)| !json.contains_key(*usual));
        let renamed =
            aliases.filter_map(|(other, usual)| Some((usual.to_string(), json.get(*other)?.clone())));
        let renamed: Vec<(String, Value)> = renamed.collect();
        for (key, value) in json.into_iter().chain(renamed) {
            if known.contains_key(&key) && !value.is_null() {
                known.insert(key, value);
            }
        }
        let read = default.read(&merged).map_err(|e| ConfigError::WrongType {
            key: e.path().to_string(),
            origin: origin.into(),
            message: e.inner().to_string(),
        })?;
        Ok(match read {
            ModelConfig::TransfoXl(c) => ModelConfig::TransfoXl(c.of_hugging_face()?),
            ModelConfig::Xlnet(c) => ModelConfig::Xlnet(c.of_hugging_face()?),
        })
    }

    /// Reads what [`ModelConfig::to_json`] of a model of the same type wrote.
    pub(crate) fn read(&self, fields: &Value) -> Result<Self, serde_path_to_error::Error<serde_json::Error>> {
        Ok(match self {
            ModelConfig::TransfoXl(_) => ModelConfig::TransfoXl(serde_path_to_error::deserialize(fields)?),
            ModelConfig::Xlnet(_) => ModelConfig::Xlnet(serde_path_to_error::deserialize(fields)?),
        })
    }

    /// Gives tables of positions room for `segment` tokens after the memory, where the recipe leaves
    /// their size open.
    pub(crate) fn fit_positions(&mut self, segment: usize) {
        if let ModelConfig::TransfoXl(c) = self {
            c.fit_positions(segment);
        }
    }

    /// Checks every range that does not need the vocabulary.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        match self {
            ModelConfig::TransfoXl(c) => c.check(),
            ModelConfig::Xlnet(c) => c.check(),
        }
    }
}

/// What sizes that every model has ask of each other.
struct Sizes {
    d_model: usize,
    n_head: usize,
    d_head: usize,
}

impl Sizes {
    fn check(&self) -> Result<(), ConfigError> {
        if !self.d_model.is_multiple_of(2) {
            return Err(out_of_range("model.d_model", self.d_model, "sines and cosines need an even width"));
        }
        if self.d_head == 0 && !self.d_model.is_multiple_of(self.n_head) {
            let why = "without model.d_head, model.n_head must divide model.d_model";
            return Err(out_of_range("model.n_head", self.n_head, why));
        }
        Ok(())
    }
}

/// What the memory holds before the first segment of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MemoryStart {
    /// `mem_len` zero vectors that are attended to, as the TensorFlow reference and Hugging Face do.
    Zeros,
    /// Nothing: the memory grows from length 0, as the PyTorch reference does.
    Empty,
    /// `mem_len` zero vectors that nobody sees: the results of `empty` with shapes that never change.
    Masked,
}

fn out_of_range(key: &'static str, value: impl ToString, why: &str) -> ConfigError {
    ConfigError::OutOfRange { key: key.into(), value: value.to_string(), why: why.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hugging_face_config_with_old_names_is_read() {
        let text = r#"{"model_type":"transfo-xl","n_token":50,"cutoffs":[10],"d_model":8,"n_head":2,
            "transformers_version":"2.1","tie_projs":[false,true]}"#;
        let ModelConfig::TransfoXl(c) = ModelConfig::from_hugging_face(text, "config.json").unwrap() else {
            panic!("another model")
        };
        assert_eq!((c.vocab_size, c.head_width(), c.embed_width()), (50, 4, 8));
        assert!(!c.ties_projection(0) && c.ties_projection(1));
    }

    #[test]
    fn corpus_larger_than_the_model_is_refused() {
        let mut model = ModelConfig::TransfoXl(TransfoXlConfig { vocab_size: 10, ..Default::default() });
        let message = model.fit_vocabulary(11, None).unwrap_err().to_string();
        assert!(message.contains("11") && message.contains("vocab_size"), "{message}");
    }

    #[test]
    fn open_vocabulary_takes_the_corpus() {
        let mut model = ModelConfig::TransfoXl(TransfoXlConfig::default());
        model.fit_vocabulary(123, Some(5)).unwrap();
        let ModelConfig::TransfoXl(c) = &model else { panic!("another model") };
        assert_eq!((c.vocab_size, c.eos_token_id), (123, 5));
    }
}
