//! `[model]`: which keys it has is its family's business. A family declares a [`ModelSection`] and stands in the one list
//! of [`Models`](crate::Models) that a program knows.

use std::any::Any;
use std::fmt::Debug;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::keys::{pointer, text_of};
use crate::own::SectionType;
use crate::range::Range;
pub use crate::refusal::{no_effect, out_of_range};
use crate::{Config, ConfigError, DeviceKind, Idle, OwnSections};

/// Bounds that keep products of sizes far inside 64 bits, whatever a file says.
const MAX_WIDTH: usize = 1 << 24;
const MAX_VOCABULARY: usize = 1 << 31;
const TOO_LARGE: &str = "no model is that large";

/// The range of a size there must be one of.
pub fn size() -> Range {
    Range::at_least(1).at_most(MAX_WIDTH).or_too_large(TOO_LARGE)
}

/// The range of any other size.
pub fn width() -> Range {
    Range::at_least(0).at_most(MAX_WIDTH).or_too_large(TOO_LARGE)
}

/// The range of a number of vocabulary entries.
pub fn vocabulary() -> Range {
    Range::at_least(0).at_most(MAX_VOCABULARY).or_too_large("no vocabulary is that large")
}

/// The range of a dropout rate.
pub fn rate() -> Range {
    let why = "a dropout rate must lie in [0, 1)";
    Range::at_least(0.0).below(1.0).or_too_small(why).or_too_large(why)
}

/// The `[model]` section of one type of model. Where the model is one of Hugging Face's, its keys are those of
/// `config.json`, so that a checkpoint and a recipe say the same thing in the same words.
pub trait ModelSection:
    Clone + PartialEq + Debug + Default + Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static
{
    /// What `model.model_type` calls it.
    const TYPE: &'static str;
    /// What people call it.
    const TITLE: &'static str;
    /// Networks that may have an `[optim.NAME]` and a `[schedule.NAME]` of their own; none where there is one network.
    const NETWORKS: &'static [&'static str] = &[];

    /// Whether it trains on a card too. One that does not refuses `train.device = "cuda"`.
    const TRAINS_ON_CARDS: bool = true;
    /// Whether a lane is a whole batch, which is not divided: `train.micro_batch` is 1.
    const LANES_ARE_BATCHES: bool = false;

    /// Sections that the family owns, beside this one.
    const SECTIONS: &'static [SectionType] = &[];

    /// What it reads of its own sections and of the keys of the loop that not every family reads, which [`Config::reads`] knows: whole sections,
    /// such as `pairs`, and single keys, such as `train.segment`.
    const READS: &'static [&'static str] = &[];

    /// Dotted keys of earlier versions, each with the name that it has now. Recipes and checkpoints with the old ones are read.
    const MOVED: &'static [(&'static str, &'static str)] = &[];

    /// The entry of its family, whose type the trainer knows.
    fn family() -> &'static (dyn Any + Send + Sync) {
        &()
    }

    /// Checks every range that does not need the vocabulary.
    fn check(&self) -> Result<(), ConfigError>;

    /// Checks what a run that trains the model asks of the sections that its family owns.
    fn check_sections(&self, own: &OwnSections) -> Result<(), ConfigError> {
        let _ = own;
        Ok(())
    }

    /// Checks what such a run asks of all sections, after [`ModelSection::check_sections`].
    fn check_run(&self, config: &Config) -> Result<(), ConfigError> {
        let _ = config;
        Ok(())
    }

    /// Keys that the model leaves without effect as they are, whether they are given or not: its own, and those of a run
    /// that trains it with the sections `own`.
    fn idle(&self, own: &OwnSections) -> Vec<Idle> {
        let _ = own;
        Vec::new()
    }

    /// Sets other sections' defaults.
    fn run_defaults(config: &mut Config) {
        let _ = config;
    }

    /// Entries of the vocabulary; 0 until it is known, and where there is none.
    fn vocab_size(&self) -> usize {
        0
    }

    /// Takes a vocabulary of `size` entries and its end-of-sequence token, where it has one. Refuses it where the model
    /// cannot be made for it.
    fn set_vocabulary(&mut self, size: usize, eos: Option<u32>) -> Result<(), ConfigError> {
        let _ = (size, eos);
        Ok(())
    }

    /// Positions of memory.
    fn mem_len(&self) -> usize {
        0
    }

    /// Positions of a sequence of pairs that the next one begins with; `None` where the model reads no pairs.
    fn reuse_len(&self) -> Option<usize> {
        None
    }

    /// Targets of a lane in a step of pre-training, about.
    fn targets_per_lane(&self, own: &OwnSections) -> usize {
        let _ = own;
        1
    }

    /// Gives tables of positions the room that a run needs, where the recipe leaves their size open.
    fn fit_positions(&mut self, own: &OwnSections) {
        let _ = own;
    }

    /// What Hugging Face means by the keys that its `config.json` leaves out or sets to null.
    fn hugging_face_defaults(known: &mut Map<String, Value>, json: &Map<String, Value>) {
        let _ = (known, json);
    }

    /// Refuses what Hugging Face's `config.json` may say and the model does not compute.
    fn check_hugging_face(json: &Map<String, Value>) -> Result<(), ConfigError> {
        let _ = json;
        Ok(())
    }

    /// What Hugging Face's `config.json` means where its package means something else, checked.
    fn of_hugging_face(self) -> Result<Self, ConfigError> {
        self.check()?;
        Ok(self)
    }
}

/// A [`ModelSection`] whose type is known at run time only.
trait Section: Debug + Send + Sync {
    fn model_type(&self) -> &'static str;
    fn reads(&self) -> &'static [&'static str];
    fn family(&self) -> &'static (dyn Any + Send + Sync);
    fn vocab_size(&self) -> usize;
    fn set_vocabulary(&mut self, size: usize, eos: Option<u32>) -> Result<(), ConfigError>;
    fn mem_len(&self) -> usize;
    fn reuse_len(&self) -> Option<usize>;
    fn targets_per_lane(&self, own: &OwnSections) -> usize;
    fn fit_positions(&mut self, own: &OwnSections);
    fn check(&self) -> Result<(), ConfigError>;
    fn check_run(&self, config: &Config) -> Result<(), ConfigError>;
    fn idle(&self, own: &OwnSections) -> Vec<Idle>;
    fn to_json(&self) -> Value;
    fn copied(&self) -> Box<dyn Section>;
    fn equals(&self, other: &dyn Section) -> bool;
    fn as_any(&self) -> &dyn Any;
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

impl<T: ModelSection> Section for T {
    fn model_type(&self) -> &'static str {
        T::TYPE
    }
    fn reads(&self) -> &'static [&'static str] {
        T::READS
    }
    fn family(&self) -> &'static (dyn Any + Send + Sync) {
        T::family()
    }
    fn vocab_size(&self) -> usize {
        ModelSection::vocab_size(self)
    }
    fn set_vocabulary(&mut self, size: usize, eos: Option<u32>) -> Result<(), ConfigError> {
        ModelSection::set_vocabulary(self, size, eos)
    }
    fn mem_len(&self) -> usize {
        ModelSection::mem_len(self)
    }
    fn reuse_len(&self) -> Option<usize> {
        ModelSection::reuse_len(self)
    }
    fn targets_per_lane(&self, own: &OwnSections) -> usize {
        ModelSection::targets_per_lane(self, own)
    }
    fn fit_positions(&mut self, own: &OwnSections) {
        ModelSection::fit_positions(self, own);
    }
    fn check(&self) -> Result<(), ConfigError> {
        ModelSection::check(self)
    }
    fn check_run(&self, config: &Config) -> Result<(), ConfigError> {
        if !T::TRAINS_ON_CARDS && config.train.device == DeviceKind::Cuda {
            let why = "this model trains on the processor\nhint: leave train.device out";
            return Err(refused(config, "train.device", why));
        }
        if T::LANES_ARE_BATCHES && config.train.micro_batch != 1 {
            let why = "a lane is a batch of its own, which is not divided\nhint: set it to 1, and the size of a step by train.lanes";
            return Err(out_of_range("train.micro_batch", config.train.micro_batch, why));
        }
        self.check_sections(&config.own)?;
        ModelSection::check_run(self, config)
    }
    fn idle(&self, own: &OwnSections) -> Vec<Idle> {
        ModelSection::idle(self, own)
    }
    fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
    fn copied(&self) -> Box<dyn Section> {
        Box::new(self.clone())
    }
    fn equals(&self, other: &dyn Section) -> bool {
        other.as_any().downcast_ref::<T>() == Some(self)
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// The model a recipe trains, chosen by `model.model_type`.
#[derive(Debug)]
pub struct ModelConfig(Box<dyn Section>);

impl Clone for ModelConfig {
    fn clone(&self) -> Self {
        Self(self.0.copied())
    }
}

impl PartialEq for ModelConfig {
    fn eq(&self, other: &Self) -> bool {
        self.0.equals(other.0.as_ref())
    }
}

impl<T: ModelSection> From<T> for ModelConfig {
    fn from(section: T) -> Self {
        Self(Box::new(section))
    }
}

impl ModelConfig {
    /// The section, if it is of that type of model.
    pub fn get<T: ModelSection>(&self) -> Option<&T> {
        self.0.as_any().downcast_ref()
    }

    /// The same, to change it.
    pub fn get_mut<T: ModelSection>(&mut self) -> Option<&mut T> {
        self.0.as_any_mut().downcast_mut()
    }

    /// The name in `model.model_type`.
    pub fn model_type(&self) -> &'static str {
        self.0.model_type()
    }

    /// What it reads of the keys that not every family reads.
    pub(crate) fn reads(&self) -> &'static [&'static str] {
        self.0.reads()
    }

    /// The entry of its family; see [`ModelSection::family`].
    pub fn family(&self) -> &'static (dyn Any + Send + Sync) {
        self.0.family()
    }

    /// Entries of the output vocabulary; 0 until [`ModelConfig::fit_vocabulary`].
    pub fn vocab_size(&self) -> usize {
        self.0.vocab_size()
    }

    /// Positions of memory.
    pub fn mem_len(&self) -> usize {
        self.0.mem_len()
    }

    /// Positions of a sequence of pairs that the next one begins with; `None` where the model reads no pairs.
    pub fn reuse_len(&self) -> Option<usize> {
        self.0.reuse_len()
    }

    /// Targets of a lane in a step of pre-training, about.
    pub(crate) fn targets_per_lane(&self, own: &OwnSections) -> usize {
        self.0.targets_per_lane(own)
    }

    /// Takes the corpus' vocabulary where the recipe leaves it open (`vocab_size = 0`), and refuses a
    /// corpus with ids that the model has no embedding for.
    /// `eos` is the tokenizer's end-of-sequence token, if it has one.
    pub fn fit_vocabulary(&mut self, corpus: usize, eos: Option<u32>) -> Result<(), ConfigError> {
        let own = self.vocab_size();
        let size = if own == 0 { corpus } else { own };
        if size < corpus {
            return Err(ConfigError::OutOfRange {
                key: "model.vocab_size".into(),
                value: size.to_string(),
                why: format!(
                    "the corpus' tokenizer has {corpus} entries, more than the model's vocabulary\nhint: \
                     build the corpus with the model's tokenizer, or leave model.vocab_size out"
                ),
            });
        }
        self.0.set_vocabulary(size, eos)
    }

    /// What is to be known of rows of the model that stand for none of the `names` tokens of its tokenizer; `None` where each row has its token. Tables
    /// that are padded to a round size have such rows.
    pub fn unnamed_rows(&self, names: usize) -> Option<String> {
        let rows = self.vocab_size();
        let (first, last) = (names, rows.checked_sub(1).filter(|last| *last >= names)?);
        let ids =
            if first == last { format!("id {first} has") } else { format!("ids {first} to {last} have") };
        let padded = ROUND_SIZES.iter().find(|size| names.next_multiple_of(**size) == rows);
        Some(match padded {
            Some(size) => format!(
                "{rows} rows for {names} tokens, a table padded to a multiple of {size}: {ids} no token"
            ),
            None => format!(
                "the model has {rows} rows and its tokenizer {names} tokens: {ids} no name in any file"
            ),
        })
    }

    /// This section as JSON, without `model_type`.
    pub fn to_json(&self) -> Value {
        self.0.to_json()
    }

    /// This section as a configuration has it, with `model_type`.
    pub(crate) fn to_typed_json(&self) -> Value {
        let mut all = Map::from_iter([("model_type".into(), self.model_type().into())]);
        if let Value::Object(fields) = self.to_json() {
            all.extend(fields);
        }
        Value::Object(all)
    }

    /// Gives tables of positions the room that a run needs, where the recipe leaves their size open.
    pub(crate) fn fit_positions(&mut self, own: &OwnSections) {
        self.0.fit_positions(own);
    }

    /// Checks every range that does not need the vocabulary.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.0.check()
    }

    /// Keys without effect.
    pub(crate) fn idle(&self, own: &OwnSections) -> Vec<Idle> {
        self.0.idle(own)
    }

    /// Checks what a run asks of the other sections.
    pub(crate) fn check_run(&self, config: &Config) -> Result<(), ConfigError> {
        self.0.check_run(config)
    }
}

/// A value of the wrong type, and where it stands.
pub(crate) type WrongValue = serde_path_to_error::Error<serde_json::Error>;

/// Multiples that tables of words are padded to, for the sake of matrix products.
const ROUND_SIZES: [usize; 3] = [8, 64, 128];

/// What sizes that models with attention have ask of each other.
pub fn check_heads(d_model: usize, n_head: usize, d_head: usize) -> Result<(), ConfigError> {
    if !d_model.is_multiple_of(2) {
        return Err(out_of_range("model.d_model", d_model, "sines and cosines need an even width"));
    }
    if d_head == 0 && !d_model.is_multiple_of(n_head) {
        let why = "without model.d_head, model.n_head must divide model.d_model";
        return Err(out_of_range("model.n_head", n_head, why));
    }
    Ok(())
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

/// [`out_of_range`] of a key of `config`, with the value that it has there.
pub fn refused(config: &Config, key: &'static str, why: &str) -> ConfigError {
    refused_in(&config.to_json(), key, why)
}

/// The same of a key of these sections, by their names.
pub(crate) fn refused_in(sections: &Value, key: &'static str, why: &str) -> ConfigError {
    out_of_range(key, text_of(sections.pointer(&pointer(key)).unwrap_or(&Value::Null)), why)
}
