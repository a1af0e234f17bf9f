use std::path::{Path, PathBuf};

use clap::Args;
use segue_configs::{Config, ModelConfig, OwnSections, TrainConfig};
use segue_dataloader::sections::DataConfig;
use segue_dataloader::{Corpus, Split, TokenStream};
use segue_kernels::TrainError;
use segue_language::{ModelFolder, NextToken, Sources, load_next_token};

use super::{SplitName, check_tokenizer, moved, no_corpus, refuse_fine_tuned};
use crate::commands::{at_least_one, open_model};
use crate::failure::{Failure, USAGE};
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
    /// Corpus folder; needed with a folder in Hugging Face's layout [default: the one a run was trained
    /// on, of the validation split the one it was validated on, by the path it had then].
    #[arg(long)]
    pub corpus: Option<PathBuf>,
    /// Split of the corpus.
    #[arg(long, value_enum, default_value = "valid")]
    pub split: SplitName,
    /// libtorch threads per rank.
    #[arg(long, default_value_t = 1, value_parser = at_least_one)]
    pub threads: usize,
}

/// Where splits are read from.
pub enum Texts {
    /// The corpus that the command names.
    Named(Corpus),
    /// What the run of the model reads, with `data.valid`.
    OfRun {
        /// Its corpora.
        sources: Sources,
        /// What the model was opened as.
        model: PathBuf,
    },
}

impl Texts {
    /// The corpus that is named, or what the run of these sections reads whose model was opened as `named`.
    pub fn open(
        corpus: Option<&Path>,
        named: &Path,
        train: &TrainConfig,
        model: &ModelConfig,
        own: &OwnSections,
    ) -> Result<Self, Failure> {
        match corpus {
            Some(corpus) => Ok(Self::Named(Corpus::open(corpus)?)),
            None => Self::of_run(named, train, model, own),
        }
    }

    fn of_run(
        named: &Path,
        train: &TrainConfig,
        model: &ModelConfig,
        own: &OwnSections,
    ) -> Result<Self, Failure> {
        let data = own.get::<DataConfig>();
        if data.corpus.is_empty() && data.corpora.is_empty() {
            return Err(no_corpus(named));
        }
        let places = data.corpora.iter().chain([&data.corpus, &data.valid]);
        let all_there = places.filter(|path| !path.is_empty()).all(|path| Path::new(path).exists());
        let sources = Sources::open(train, model, own).map_err(|error| match all_there {
            true => Failure::from(error),
            false => moved(error.into(), named),
        })?;
        Ok(Self::OfRun { sources, model: named.into() })
    }

    /// The corpus whose split of that name is meant.
    pub fn of_split(&self, split: Split) -> Result<&Corpus, Failure> {
        let (sources, model) = match self {
            Self::Named(corpus) => return Ok(corpus),
            Self::OfRun { sources, model } => (sources, model.display()),
        };
        sources.of_split(split).ok_or_else(|| {
            let there = Split::ALL.into_iter().filter(|split| sources.of_split(*split).is_some());
            let there: Vec<String> = there.map(|split| format!("--split {split}")).collect();
            let hint = format!("take {}, or add --corpus FOLDER", there.join(" or "));
            let message = format!("no corpus of {model} has a split `{split}`\nhint: {hint}");
            Failure::new(USAGE, message)
        })
    }
}

/// A model and the text it looks at; both have the same tokenizer.
pub struct Subject<M = Box<dyn NextToken>> {
    pub folder: ModelFolder,
    pub model: M,
    pub texts: Texts,
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
        segue_kernels::libtorch::start(self.threads);
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
        let texts = match &text.corpus {
            Some(corpus) => Texts::Named(Corpus::open(corpus)?),
            None => {
                refuse_fine_tuned(named)?;
                let Config { train, model, own, .. } = &folder.training_config(named, &[])?;
                Texts::of_run(named, train, model, own)?
            }
        };
        let corpus = texts.of_split(text.split.into())?;
        check_tokenizer(&folder, corpus, out)?;
        let model = load(&folder)?;
        let stream = corpus.tokens(text.split.into())?;
        Ok(Subject { folder, model, texts, stream })
    }

    /// Another split.
    pub fn tokens(&self, split: Split) -> Result<TokenStream, Failure> {
        Ok(self.texts.of_split(split)?.tokens(split)?)
    }
}
