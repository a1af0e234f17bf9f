use std::path::{Path, PathBuf};

use clap::Args;
use segue_dataloader::{Corpus, TokenStream};
use segue_kernels::TrainError;
use segue_language::{ModelFolder, NextToken, load_next_token};

use super::{SplitName, check_tokenizer, open_corpus};
use crate::commands::{at_least_one, open_model};
use crate::failure::Failure;
use crate::output::Output;

/// Which model looks at which text.
#[derive(Args)]
pub struct SubjectArgs {
    /// Run folder (its best model, else its newest valid checkpoint), checkpoint, or folder in Hugging Face's layout.
    #[arg(long)]
    pub model: PathBuf,
    #[command(flatten)]
    pub text: TextArgs,
}

/// Which text is looked at.
#[derive(Args)]
pub struct TextArgs {
    /// Corpus folder; needed with a checkpoint or a folder in Hugging Face's layout [default: the one a run was trained
    /// on, by the path it had then].
    #[arg(long)]
    pub corpus: Option<PathBuf>,
    /// Split of the corpus.
    #[arg(long, value_enum, default_value = "valid")]
    pub split: SplitName,
    /// libtorch threads per rank.
    #[arg(long, default_value_t = 1, value_parser = at_least_one)]
    pub threads: usize,
}

/// A model and the text it looks at; both have the same tokenizer.
pub struct Subject<M = Box<dyn NextToken>> {
    pub folder: ModelFolder,
    pub model: M,
    pub corpus: Corpus,
    pub stream: TokenStream,
}

impl SubjectArgs {
    /// Opens both.
    pub fn open(&self, out: &Output) -> Result<Subject, Failure> {
        Subject::open(&self.model, &self.text, out)
    }
}

impl TextArgs {
    /// Opens a model folder.
    pub fn open_folder(&self, model: &Path, out: &Output) -> Result<ModelFolder, Failure> {
        segue_kernels::libtorch::set_threads(self.threads);
        open_model(model, out)
    }
}

impl Subject {
    /// Opens a model of the next token and a split.
    pub fn open(model: &Path, text: &TextArgs, out: &Output) -> Result<Subject, Failure> {
        let folder = text.open_folder(model, out)?;
        Subject::of(folder, model, text, load_next_token, out)
    }
}

impl<M> Subject<M> {
    /// Loads the model of a folder, which was opened as `named`, and opens a split.
    pub fn of(
        folder: ModelFolder,
        named: &Path,
        text: &TextArgs,
        load: impl FnOnce(&ModelFolder) -> Result<M, TrainError>,
        out: &Output,
    ) -> Result<Self, Failure> {
        let corpus = open_corpus(named, text.corpus.as_deref())?;
        check_tokenizer(&folder, &corpus, out)?;
        let model = load(&folder)?;
        let stream = corpus.tokens(text.split.into())?;
        Ok(Subject { folder, model, corpus, stream })
    }
}
