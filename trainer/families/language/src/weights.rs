//! Weights in files of Hugging Face's names.

use std::path::Path;

use segue_configs::ModelConfig;
use segue_engine::checkpoint::{TensorFile, WEIGHTS, check_finite, read_tensors};
use segue_kernels::{ParameterSpec, TrainError};
use tch::{Kind, Tensor};

use crate::{aliases, buffers, derived, names, specs};

/// Where other programs keep weights: in pieces, and as pickles.
const FOREIGN_WEIGHTS: [&str; 3] =
    ["model.safetensors.index.json", "pytorch_model.bin.index.json", "pytorch_model.bin"];

/// Beginnings of the names of heads: those that Hugging Face puts on XLNet, and `tasks.` where there are several. A
/// model may lie beside one.
const HEADS: [&str; 9] = [
    "sequence_summary.",
    "logits_proj.",
    "classifier.",
    "qa_outputs.",
    "start_logits.",
    "end_logits.",
    "answer_class.",
    "kernels.",
    "tasks.",
];

/// How the names of the two factors of an adapter end, which fine-tuning adds to a matrix: those of the public format.
pub const ADAPTER_FACTORS: [&str; 2] = [".lora_A.weight", ".lora_B.weight"];

/// Whether a tensor of this name is a factor of an adapter.
pub fn is_of_an_adapter(name: &str) -> bool {
    ADAPTER_FACTORS.iter().any(|end| name.ends_with(end))
}

/// Whether a tensor of this name is beside a model: part of a head, or of an adapter.
pub fn is_of_a_head(name: &str) -> bool {
    HEADS.iter().any(|head| name.starts_with(head)) || is_of_an_adapter(name)
}

/// Names the command that makes a model folder of one whose weights are in other files than this program's own.
pub fn refuse_foreign_weights(folder: &Path) -> Result<(), TrainError> {
    if folder.join(WEIGHTS).exists() {
        return Ok(());
    }
    let Some(found) = FOREIGN_WEIGHTS.iter().find(|name| folder.join(name).is_file()) else { return Ok(()) };
    let what = format!(
        "its weights are in {found}, and {WEIGHTS} is needed\nhint: make a folder with it: segue convert {} NEW",
        folder.display()
    );
    Err(TrainError::NoCheckpoint { path: folder.into(), what })
}

/// Names the command that makes a model folder of one whose tensors have names in a module around the model, or lack the one around the
/// base model.
fn refuse_foreign_names(file: &TensorFile, specs: &[ParameterSpec]) -> Result<(), TrainError> {
    let is_inside =
        |whole: &str, name: &str| whole.strip_suffix(name).is_some_and(|before| before.ends_with('.'));
    let missing = specs.iter().map(|spec| &spec.name).find(|name| !file.tensors.contains_key(*name));
    let Some(name) = missing.filter(|name| !is_of_a_head(name)) else { return Ok(()) };
    let mut others = file.tensors.keys();
    let Some(other) = others.find(|other| is_inside(other, name) || is_inside(name, other)) else {
        return Ok(());
    };
    let folder = file.path.parent().unwrap_or(Path::new(".")).display();
    let what = format!(
        "it has no tensor `{name}`, and one that is called `{other}`\nhint: make a folder with such names: segue convert {folder} NEW"
    );
    Err(TrainError::OtherModel { path: file.path.clone(), what })
}

/// What the weights of a model are stored as: in names that Hugging Face's package finds, with the tensors that
/// follow from the configuration.
pub fn as_stored(config: &ModelConfig, weights: Vec<(String, Tensor)>) -> Vec<(String, Tensor)> {
    let copies = names(config).map_or(Vec::new(), |names| names.copies(config));
    let mut out = Vec::with_capacity(weights.len());
    for (name, tensor) in weights {
        let mut names = copies.iter().filter(|(_, ours)| *ours == name).peekable();
        if names.peek().is_none() {
            out.push((name, tensor));
            continue;
        }
        out.extend(names.map(|(theirs, _)| (theirs.clone(), tensor.shallow_clone())));
    }
    out.extend(buffers(config));
    out
}

/// The parameters `specs` of the configured model out of the file at `path`; see [`take_weights`].
pub fn read_weights(
    path: &Path,
    config: &ModelConfig,
    specs: &[ParameterSpec],
) -> Result<Vec<Tensor>, TrainError> {
    take_weights(&mut read_tensors(path)?, config, specs)
}

/// [`read_weights`] for whoever computes with them: an error where one holds a NaN or an infinity, of which answers and text can be made that look
/// like any others.
pub fn read_finite(
    path: &Path,
    config: &ModelConfig,
    specs: &[ParameterSpec],
) -> Result<Vec<Tensor>, TrainError> {
    let weights = read_weights(path, config, specs)?;
    check_finite(path, specs.iter().map(|spec| spec.name.as_str()).zip(&weights))?;
    Ok(weights)
}

/// Takes the parameters `specs` of the configured model out of a file in Hugging Face's names, in their order; heads stay.
/// A tied tensor may be stored under either of its names; where both are there they must be equal. The bias of XLNet's
/// output may be missing beside a head, and is zeros then.
/// Nothing of the model's size is allocated before the file is known to hold it.
pub fn take_weights(
    file: &mut TensorFile,
    config: &ModelConfig,
    specs: &[ParameterSpec],
) -> Result<Vec<Tensor>, TrainError> {
    let path = file.path.clone();
    let other = |what: String| TrainError::OtherModel { path: path.clone(), what };
    for (alias, name) in aliases(config) {
        let Some(tied) = file.tensors.remove(&alias) else { continue };
        match file.tensors.get(&name) {
            None => _ = file.tensors.insert(name, tied),
            Some(own) if own.size() == tied.size() && own == &tied => {}
            Some(_) => {
                return Err(other(format!("`{alias}` and `{name}` are tied in config.json, but differ")));
            }
        }
    }
    if file.tensors.keys().any(|name| is_of_a_head(name)) {
        let optional = names(config).map_or(&[][..], |names| names.only_predicts());
        for spec in self::specs(config).iter().filter(|spec| optional.contains(&spec.name.as_str())) {
            let zeros = || Tensor::zeros(&spec.shape, (Kind::Float, tch::Device::Cpu));
            file.tensors.entry(spec.name.clone()).or_insert_with(zeros);
        }
    }
    refuse_foreign_names(file, specs)?;
    let take = |spec: &ParameterSpec| file.take(&spec.name, &spec.shape);
    let weights = specs.iter().map(take).collect::<Result<Vec<_>, _>>()?;
    for (name, _) in derived(config) {
        file.tensors.remove(&name);
    }
    // Of a model that is fine-tuned, what only predicts tokens stays behind.
    let own = self::specs(config);
    let mut rest = file.tensors.keys();
    match rest.find(|name| !is_of_a_head(name) && own.iter().all(|spec| spec.name != **name)) {
        Some(name) => Err(other(format!("the model has no parameter `{name}`"))),
        None => Ok(weights),
    }
}
