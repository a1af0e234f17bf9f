//! Recurrent language models of three PyTorch programs, whole pickled modules or state dicts: pytorch/examples' `word_language_model`,
//! salesforce/awd-lstm-lm and zihangdai/mos. Sizes and ties are those of the tensors; rates are attributes of modules, which a state dict lacks.

mod gather;
mod sizes;
mod tables;

use std::fs;
use std::path::{Path, PathBuf};

use gather::gather;
use segue_foreign::TorchFile;
use segue_kernels::TrainError;
use segue_tokenizer::Tokenizer;
use sizes::describe;

use super::search::folder_of;
use super::source::Source;
use super::tensors::Tensors;
pub use tables::{Cell, Matrices, RecurrentLayout, Table};

/// Opens a file of `torch.save`; `None` where it holds no such model.
pub fn open(path: &Path, file: &TorchFile) -> Result<Option<Source>, TrainError> {
    let damaged = |what| TrainError::Damaged { path: path.into(), what };
    let Some(gathered) = gather(file).map_err(damaged)? else { return Ok(None) };
    let (table, mut facts) =
        describe(&gathered).map_err(|what| TrainError::OtherModel { path: path.into(), what })?;
    facts.place = gathered.place;
    let vocabulary = corpus_beside(path).map(|path| {
        let tokenizer = Tokenizer::import(&path).map_err(|e| e.to_string());
        (path, tokenizer)
    });
    let tensors = Tensors::from(gathered.tensors);
    let source = Source::of_tensors(table.layout.name(), path, tensors, facts, table.rules());
    Ok(Some(Source { vocabulary, ..source }))
}

/// The one corpus that salesforce/awd-lstm-lm has cached beside a checkpoint, with its dictionary: `corpus.HASH.data`.
fn corpus_beside(path: &Path) -> Option<PathBuf> {
    let folder = folder_of(path);
    let is_corpus = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("corpus.") && name.ends_with(".data")
    };
    let mut found = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).filter(is_corpus);
    found.next().filter(|_| found.next().is_none())
}
