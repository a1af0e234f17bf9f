//! Folders of trained models.

use std::path::Path;

use segue_engine::Begun;
use segue_engine::checkpoint::{WEIGHTS, locate, read_tensors};
use segue_kernels::{Parameters, TrainError};
use segue_tokenizer::Tokenizer;

/// Fills `parameters` with the weights of a run, a checkpoint or a model folder, whose tokenizer is `tokenizer`.
pub fn begin(parameters: &Parameters, tokenizer: &Tokenizer, from: &Path) -> Result<Begun, TrainError> {
    let (folder, passed_over) = locate(from)?;
    let theirs = Tokenizer::load(&folder)?;
    if theirs.fingerprint() != tokenizer.fingerprint() {
        let what = "its tokenizer is another one than the corpus has: its ids stand for other words\nhint: build the corpus with --tokenizer \
                    and this folder";
        return Err(TrainError::OtherModel { path: folder, what: what.into() });
    }
    let mut file = read_tensors(&folder.join(WEIGHTS))?;
    for (spec, tensor) in parameters.specs().iter().zip(parameters.tensors()) {
        let stored = file.take(&spec.name, &spec.shape)?;
        tch::no_grad(|| tensor.shallow_clone().copy_(&stored));
    }
    Ok(Begun::with(&folder, passed_over))
}
