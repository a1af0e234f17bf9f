//! Compares source and result layer by layer, on the same text.

use std::collections::HashMap;
use std::path::Path;

use segue_configs::ModelConfig;
use segue_data_error::DataError;
use segue_engine::checkpoint::read_tensors;
use segue_kernels::{ParameterSpec, Parameters, TrainError};
use segue_language::{ModelFolder, NextToken, is_of_a_head, load_next_token};
use segue_layers::Memory;
use segue_tokenizer::Tokenizer;
use serde::Serialize;
use tch::{Device, Kind, Tensor};

use super::apply::{Applied, ApplyOptions, apply};
use super::run::{ConvertOptions, Opened, Target, open};
use super::sources::detect;

/// Tokens of a segment; the text goes on in the next with the memory of those before.
const SEGMENT: usize = 128;
/// Keys of a configuration that TensorFlow's programs fix, and so mean what they mean there.
const FIXED: [&str; 3] = ["ff_activation", "layer_norm_eps", "layer_norm_epsilon"];

/// How far a layer or a tensor of a head is from the source's.
#[derive(Debug, Clone, Serialize)]
pub struct CheckedPart {
    /// `embedding`, `layer 1`, ..; or the name of a tensor.
    pub name: String,
    /// Largest absolute difference; NaN where either is.
    pub max_difference: f64,
    /// Largest absolute value of the source's.
    pub max_value: f64,
}

/// What source and result make of a text.
#[derive(Debug, Clone, Serialize)]
pub struct CheckedText {
    /// Tokens predicted.
    pub targets: usize,
    /// Nats per token of the converted model.
    pub loss: f64,
    /// The same of the source.
    pub before: f64,
    /// Hidden states after the embedding and after each layer.
    pub layers: Vec<CheckedPart>,
    /// Tensors of heads, which no text runs through.
    pub heads: Vec<CheckedPart>,
}

impl CheckedText {
    /// Whether everything is the same to the last bit.
    pub fn holds(&self) -> bool {
        let parts = self.layers.iter().chain(&self.heads);
        self.before == self.loss && parts.into_iter().all(|part| part.max_difference == 0.0)
    }
}

/// Runs the model that `source` is, from its own tensors, and what has been read back from `target`, the result of a
/// conversion with these options, on a text of any length. `progress` is told tokens done and to do.
pub fn check_text(
    source: &Path,
    target: &Path,
    options: &ConvertOptions,
    text: &str,
    mut progress: impl FnMut(u64, u64),
) -> Result<CheckedText, TrainError> {
    let ids = encode(target, text)?;
    let before = Runnable::of_source(source, options)?;
    let after = match options.target {
        Target::HuggingFace => Runnable::of_folder(target)?,
        Target::TensorFlow => Runnable::of_tensorflow(target, &before.config)?,
        Target::Recurrent(_) => Runnable::of_source(target, &ConvertOptions::new(Target::HuggingFace))?,
    };
    let targets = ids.len() - 1;
    let mut layers: Vec<CheckedPart> = Vec::new();
    let (mut at, mut at_after) = (Place::start(&before), Place::start(&after));
    for start in (0..targets).step_by(SEGMENT) {
        progress(start as u64, targets as u64);
        let length = SEGMENT.min(targets - start);
        let piece = Tensor::from_slice(&ids[start..=start + length]).unsqueeze(0);
        let (ours, theirs) = (at.read(&before, &piece), at_after.read(&after, &piece));
        for (i, (before, after)) in ours.iter().zip(&theirs).enumerate() {
            let name = if i == 0 { "embedding".into() } else { format!("layer {i}") };
            let found = CheckedPart::of(name, before, after);
            match layers.get_mut(i) {
                None => layers.push(found),
                Some(part) => part.join(&found),
            }
        }
    }
    let mean = |place: &Place| place.nats / targets as f64;
    let heads = heads(&before, &after);
    Ok(CheckedText { targets, loss: mean(&at_after), before: mean(&at), layers, heads })
}

/// The text in the ids of the vocabulary that the result came with.
fn encode(target: &Path, text: &str) -> Result<Vec<i64>, TrainError> {
    let tokenizer = Tokenizer::load(target).map_err(|error| match error {
        DataError::Missing { .. } => TrainError::Layout(format!(
            "{} has no vocabulary to read a text with: convert again with --vocab FILE",
            target.display()
        )),
        other => other.into(),
    })?;
    let mut ids = Vec::new();
    tokenizer.encode(text, &mut ids);
    if ids.len() < 2 {
        return Err(TrainError::Layout("the text to check with has fewer than two tokens".into()));
    }
    Ok(ids.into_iter().map(i64::from).collect())
}

/// A model with the tensors of heads that lie beside it.
struct Runnable {
    model: Box<dyn NextToken>,
    config: ModelConfig,
    heads: Vec<(String, Tensor)>,
}

impl Runnable {
    /// The model that a source is, from its own tensors.
    fn of_source(source: &Path, options: &ConvertOptions) -> Result<Self, TrainError> {
        let Opened { source, config, .. } = open(source, options)?;
        let apply_options = ApplyOptions { allow_skipped: options.allow_skipped, optimizer: false };
        let applied = apply(&source, &config, apply_options, |_, _| {})?;
        Self::of_weights(config, applied)
    }

    /// The model of a folder, as every command loads it.
    fn of_folder(folder: &Path) -> Result<Self, TrainError> {
        let folder = ModelFolder::open(&segue_families::MODELS, folder)?;
        let stored = read_tensors(&folder.path.join("model.safetensors"))?.tensors;
        let heads = stored.into_iter().filter(|(name, _)| is_of_a_head(name)).collect();
        Ok(Self { model: load_next_token(&folder)?, config: folder.config, heads })
    }

    /// The model of a TensorFlow checkpoint, with what it does not say from `config`.
    fn of_tensorflow(folder: &Path, config: &ModelConfig) -> Result<Self, TrainError> {
        let source = detect(folder)?;
        let mut fields = config.to_json();
        fields["model_type"] = config.model_type().into();
        for key in FIXED {
            if let Some(value) = source.facts.config.get(key) {
                fields[key] = value.clone();
            }
        }
        let config =
            segue_families::MODELS.from_hugging_face(&fields.to_string(), &folder.display().to_string())?;
        let applied = apply(&source, &config, ApplyOptions::default(), |_, _| {})?;
        Self::of_weights(config, applied)
    }

    fn of_weights(config: ModelConfig, applied: Applied) -> Result<Self, TrainError> {
        let mut weights: HashMap<String, Tensor> = applied.weights.into_iter().collect();
        let specs = segue_language::specs(&config);
        // The one parameter that may be missing is the bias of the output, beside a head.
        let zeros = |spec: &ParameterSpec| Tensor::zeros(&spec.shape, (Kind::Float, Device::Cpu));
        let tensors = specs.iter().map(|spec| weights.remove(&spec.name).unwrap_or_else(|| zeros(spec)));
        let parameters = Parameters::from_tensors(specs.clone(), tensors.collect(), Kind::Float);
        let model = segue_language::next_tokens(&config)?.next_token(&config, parameters);
        Ok(Self { model, config, heads: applied.heads })
    }
}

/// How far a model has come in the text.
struct Place {
    memory: Memory,
    /// Losses so far, summed.
    nats: f64,
}

impl Place {
    fn start(run: &Runnable) -> Self {
        Self { memory: run.model.memory_start(1), nats: 0.0 }
    }

    /// Reads all but the last of `ids`, `[1, segment + 1]`: the states of every layer, `[1, segment, d_model]`.
    fn read(&mut self, run: &Runnable, ids: &Tensor) -> Vec<Tensor> {
        let length = ids.size()[1] - 1;
        let (inputs, next) = (ids.narrow(1, 0, length), ids.narrow(1, 1, length));
        let layers = run.model.layers(&inputs, &self.memory);
        let (log_probs, memory) = run.model.next_log_probs(&inputs, &self.memory);
        let losses = log_probs.gather(-1, &next.unsqueeze(-1), false).neg();
        self.nats += losses.sum(Kind::Double).double_value(&[]);
        self.memory = memory;
        layers
    }
}

impl CheckedPart {
    fn of(name: String, before: &Tensor, after: &Tensor) -> Self {
        let before = before.detach().to_kind(Kind::Double);
        let max_difference = match before.size() == after.size() {
            true => largest(&(&before - after.detach().to_kind(Kind::Double))),
            false => f64::INFINITY,
        };
        Self { name, max_difference, max_value: largest(&before) }
    }

    /// Takes the same part of more text into account.
    fn join(&mut self, more: &Self) {
        let worse = |a: f64, b: f64| if a.is_nan() || a > b { a } else { b };
        self.max_difference = worse(self.max_difference, more.max_difference);
        self.max_value = worse(self.max_value, more.max_value);
    }
}

/// Largest absolute value; NaN where there is one.
fn largest(tensor: &Tensor) -> f64 {
    if tensor.numel() == 0 { 0.0 } else { tensor.abs().max().double_value(&[]) }
}

/// Compares heads. What only one side has is infinitely far.
fn heads(before: &Runnable, after: &Runnable) -> Vec<CheckedPart> {
    let find = |run: &Runnable, wanted: &str| {
        run.heads.iter().find(|(name, _)| name == wanted).map(|(_, tensor)| tensor.shallow_clone())
    };
    let mut names: Vec<&str> =
        before.heads.iter().chain(&after.heads).map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let part = |name: &str| {
        let absent = || Tensor::from_slice::<f32>(&[]);
        let (ours, theirs) = (find(before, name), find(after, name));
        CheckedPart::of(name.into(), &ours.unwrap_or_else(absent), &theirs.unwrap_or_else(absent))
    };
    names.into_iter().map(part).collect()
}
