//! Writes the result of a conversion: a whole folder or none.

use std::fs;
use std::path::{Path, PathBuf};

use segue_configs::ModelConfig;
use segue_data_error::DataError;
use segue_engine::checkpoint::{publish_with_manifest, write_json, write_tensors};
use segue_foreign::{BundleTensor, Saved, write_bundle, write_torch};
use segue_kernels::TrainError;
use segue_language::{as_stored, hugging_face_config, names};
use segue_publish::FreshFolder;
use segue_tokenizer::Tokenizer;
use serde_json::Value;
use tch::Tensor;

use super::optimizer::Slots;
use super::report::Report;
use super::sources::Facts;

/// The account of a conversion, beside what it made.
pub(super) const REPORT: &str = "conversion.json";

/// Adam's moments, as checkpoints of this program have them.
const OPTIMIZER: &str = "optimizer.safetensors";

/// A state dict, as the programs name their files.
const STATE_DICT: &str = "model.pt";

/// How Hugging Face's package searches for a text.
const GENERATION: &str = "generation_config.json";

/// Its settings, which older folders keep in `config.json`.
const SEARCH_SETTINGS: [&str; 22] = [
    "bad_words_ids",
    "begin_suppress_tokens",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "length_penalty",
    "max_length",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "repetition_penalty",
    "suppress_tokens",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
];

/// What goes into a model folder.
pub(super) struct Weights {
    /// The model's, in the order of its specs.
    pub model: Vec<(String, Tensor)>,
    /// Those of heads beside it.
    pub heads: Vec<(String, Tensor)>,
    /// Adam's moments.
    pub slots: Slots,
}

/// The files of a tokenizer.
pub(super) struct TokenizerFiles<'a> {
    /// What this program writes.
    pub tokenizer: Option<&'a Tokenizer>,
    /// What only other programs read, copied where the tokenizer does not write it itself.
    pub companions: &'a [PathBuf],
}

/// What a TensorFlow program's checkpoint consists of.
pub(super) struct TensorFlowFiles {
    /// Prefix of the checkpoint's files.
    pub prefix: &'static str,
    /// Its variables.
    pub variables: Vec<BundleTensor>,
    /// Name and content of the JSON file that the program wants beside it.
    pub beside: (&'static str, Value),
    /// Facts for the report.
    pub notes: Vec<String>,
}

/// Refuses to write over anything.
pub fn check_vacant(target: &Path) -> Result<(), TrainError> {
    let occupied = match fs::read_dir(target) {
        Ok(mut entries) => entries.next().is_some(),
        Err(_) => target.symlink_metadata().is_ok(),
    };
    if !occupied {
        return Ok(());
    }
    let why = "something is there already; give a folder that does not exist or is empty".into();
    Err(DataError::Output { path: target.into(), why }.into())
}

/// Fills a fresh folder, adds its manifest and makes it appear; an empty one that is there gives way.
pub(super) fn publish(
    target: &Path,
    fill: impl FnOnce(&Path) -> Result<(), TrainError>,
) -> Result<(), TrainError> {
    publish_with_manifest(FreshFolder::create(target)?, fill)
}

/// A model folder in Hugging Face's layout, of a source with these facts.
pub(super) fn hugging_face(
    folder: &Path,
    config: &ModelConfig,
    weights: Weights,
    facts: &Facts,
    tokenizer: TokenizerFiles<'_>,
    report: &Report,
) -> Result<(), TrainError> {
    let mut tensors = as_stored(config, weights.model);
    tensors.extend(weights.heads);
    write_tensors(&folder.join("model.safetensors"), &tensors)?;
    let slots = weights.slots.into_iter();
    let slots: Vec<_> =
        slots.map(|(mean, name, tensor)| (format!("{}{name}", mean.prefix()), tensor)).collect();
    if !slots.is_empty() {
        write_tensors(&folder.join(OPTIMIZER), &slots)?;
    }
    let mut json = hugging_face_config(config);
    if let Some(fields) = json.as_object_mut() {
        fields.extend(facts.head.clone());
    }
    write_json(&folder.join("config.json"), &json)?;
    if let Some(mut generation) = names(config).and_then(|names| names.generation(config)) {
        let (own, copy) = (report.source.with_file_name(GENERATION), folder.join(GENERATION));
        match own.is_file() {
            true => _ = fs::copy(own, &copy).map_err(|source| TrainError::Write { path: copy, source })?,
            false => {
                let kept = SEARCH_SETTINGS.iter().filter_map(|key| Some((*key, facts.config.get(*key)?)));
                kept.filter(|(_, value)| !value.is_null())
                    .for_each(|(key, value)| generation[key] = value.clone());
                write_json(&copy, &generation)?
            }
        }
    }
    finish(folder, tokenizer, report)
}

/// A checkpoint of a TensorFlow program with the note beside it that the program asks for.
pub(super) fn tensorflow(
    folder: &Path,
    files: TensorFlowFiles,
    tokenizer: TokenizerFiles<'_>,
    report: &Report,
) -> Result<(), TrainError> {
    let TensorFlowFiles { prefix, variables, beside: (name, note), .. } = files;
    write_bundle(folder, prefix, variables)?;
    let pointer = folder.join("checkpoint");
    fs::write(
        &pointer,
        format!("model_checkpoint_path: \"{prefix}\"\nall_model_checkpoint_paths: \"{prefix}\"\n"),
    )
    .map_err(|source| TrainError::Write { path: pointer.clone(), source })?;
    write_json(&folder.join(name), &note)?;
    finish(folder, tokenizer, report)
}

/// The state dict of a PyTorch program: `model.pt`, in a fresh folder.
pub(super) fn pytorch(
    target: &Path,
    state: &Saved,
    tokenizer: TokenizerFiles<'_>,
    report: &Report,
) -> Result<(), TrainError> {
    publish(target, |folder| {
        write_torch(&folder.join(STATE_DICT), state)?;
        finish(folder, tokenizer, report)
    })
}

fn finish(folder: &Path, files: TokenizerFiles<'_>, report: &Report) -> Result<(), TrainError> {
    if let Some(tokenizer) = files.tokenizer {
        tokenizer.save(folder)?;
        for path in files.companions {
            let copy = folder.join(path.file_name().unwrap_or_default());
            if !copy.exists() {
                fs::copy(path, &copy).map_err(|source| TrainError::Write { path: copy.clone(), source })?;
            }
        }
    }
    write_json(&folder.join(REPORT), &serde_json::to_value(report).unwrap_or(Value::Null))
}
