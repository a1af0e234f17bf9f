//! What a folder is filled with: tables of tensors, documents, a tokenizer.

use std::path::Path;
use std::sync::Arc;

use segue_kernels::TrainError;
use segue_tokenizer::Tokenizer;
use serde_json::Value;
use tch::Tensor;

use super::carry::{OF_ALL_LANES, first_lane};
use super::files::{write_bytes, write_json};
use super::tensors::write_tensors;

/// The weights of a model folder.
pub const WEIGHTS: &str = "model.safetensors";
/// Weights that training goes on from, where [`WEIGHTS`] holds their mean.
pub const TRAINING_WEIGHTS: &str = "training_weights.safetensors";
/// Averages of weights besides the one that is stored as the model.
pub const AVERAGES: &str = "averages.safetensors";
/// Tables of the optimizer.
pub const OPTIMIZER: &str = "optimizer.safetensors";
/// Tables of the learner, which are neither weights nor the optimizer's.
pub const TABLES: &str = "tables.safetensors";
/// What a run is besides its tensors.
pub const STATE: &str = "trainer_state.json";

/// Name of the file that holds of network number `network`, called `name`, what `file` holds of the first one.
pub fn file_of(file: &str, network: usize, name: &str) -> String {
    match (network, file) {
        (0, _) => file.into(),
        (_, WEIGHTS) => format!("{name}.safetensors"),
        _ => format!("{name}.{file}"),
    }
}

/// Whether a file of this name in a checkpoint or a model folder holds the weights of a network: [`WEIGHTS`], or those of a further one.
pub fn holds_weights(name: &str) -> bool {
    let others = [TRAINING_WEIGHTS, AVERAGES, OPTIMIZER, TABLES, OF_ALL_LANES];
    let network = name.strip_suffix(".safetensors").filter(|network| !network.contains('.'));
    network.is_some() && !others.contains(&name) && first_lane(name).is_none()
}

/// Everything a folder holds, or what one rank has of it. Nobody writes to tensors that are in here.
#[derive(Default)]
pub struct Contents {
    /// Tensors with their names, by file name.
    pub tables: Vec<(String, Vec<(String, Tensor)>)>,
    /// Tables of which this rank has parts. All ranks list the same.
    pub scattered: Vec<Scattered>,
    /// JSON, by file name.
    pub documents: Vec<(String, Value)>,
    /// Anything else, by file name.
    pub files: Vec<(String, Vec<u8>)>,
    /// The tokenizer.
    pub tokenizer: Option<Arc<Tokenizer>>,
    /// Keeps the memory of its tensors from being filled anew, where that is lent.
    pub lease: Option<Arc<()>>,
}

/// A table whose tensors lie in parts on several ranks.
pub struct Scattered {
    /// Name of its file.
    pub file: String,
    /// Its tensors.
    pub tensors: Vec<ScatteredTensor>,
}

/// An f32 tensor that lies in parts on several ranks.
pub struct ScatteredTensor {
    /// Its name.
    pub name: String,
    /// Its sizes.
    pub shape: Vec<i64>,
    /// Its parts in the order of their values: which rank has one, and of how many values. A rank has one at most.
    pub parts: Vec<(usize, usize)>,
    /// This rank's part, if any.
    pub own: Option<Tensor>,
}

impl Contents {
    /// Writes all of it that is not scattered into the folder `dir`.
    pub fn write(&self, dir: &Path) -> Result<(), TrainError> {
        for (name, tensors) in &self.tables {
            write_tensors(&dir.join(name), tensors)?;
        }
        for (name, value) in &self.documents {
            write_json(&dir.join(name), value)?;
        }
        for (name, bytes) in &self.files {
            write_bytes(&dir.join(name), bytes)?;
        }
        if let Some(tokenizer) = &self.tokenizer {
            tokenizer.save(dir)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::carry::carry_file;
    use super::*;

    #[test]
    fn files_of_weights_are_told_from_the_others() {
        let critic = |file: &str| file_of(file, 1, "critic");
        for name in [WEIGHTS.to_string(), critic(WEIGHTS)] {
            assert!(holds_weights(&name), "{name}");
        }
        let files = [TRAINING_WEIGHTS, AVERAGES, OPTIMIZER, TABLES, OF_ALL_LANES, STATE];
        let others =
            files.map(String::from).into_iter().chain([OPTIMIZER, TRAINING_WEIGHTS, AVERAGES].map(critic));
        for name in others.chain([carry_file(8)]) {
            assert!(!holds_weights(&name), "{name}");
        }
    }
}
