use std::path::{Path, PathBuf};

use segue_configs::{ConfigError, ModelConfig, OwnSections, TrainConfig};
use segue_data_error::DataError;
use segue_dataloader::sections::{DataConfig, DataOrder};
use segue_dataloader::{CORPUS_FILE, Corpus, PairOptions, Preset, RecordLanes, Split};
use segue_kernels::TrainError;
use segue_tokenizer::Tokenizer;

use super::folder::ModelFolder;

/// The text of a run: a corpus, several that lanes share out among them, or rows that the XLNet reference has
/// prepared.
#[derive(Debug)]
pub struct Sources {
    corpora: Vec<Corpus>,
    valid: Option<Corpus>,
    /// Whether the configuration names the corpus that is evaluated, which else is one of those that are trained on.
    names_valid: bool,
    tokenizer: Tokenizer,
    /// The folder that has the tokenizer: the first corpus, or the one named for records.
    tokens_of: PathBuf,
    fingerprint: String,
}

impl Sources {
    /// Opens what `[data]` names: the description of each corpus. Its shards are opened when they are read.
    pub fn open(train: &TrainConfig, model: &ModelConfig, own: &OwnSections) -> Result<Self, TrainError> {
        let data = own.get::<DataConfig>();
        if data.corpus.is_empty() && data.corpora.is_empty() {
            let why = "data.corpus is not set\nhint: add data.corpus=FOLDER to the command or the recipe";
            return Err(TrainError::Layout(why.into()));
        }
        let valid = match data.valid.as_str() {
            "" => None,
            path => Some(Corpus::open_lazily(Path::new(path))?),
        };
        if data.order == DataOrder::Records {
            return Self::of_records(train, model, own, valid);
        }
        let named = if data.corpora.is_empty() { std::slice::from_ref(&data.corpus) } else { &data.corpora };
        let corpora: Result<Vec<Corpus>, _> =
            named.iter().map(|path| Corpus::open_lazily(Path::new(path))).collect();
        let corpora = corpora?;
        corpora.iter().chain(&valid).try_for_each(refuse_pairs)?;
        let tokenizer = corpora[0].tokenizer()?;
        let names_valid = valid.is_some();
        let has_valid = |corpus: &&Corpus| corpus.info().splits.contains_key(&Split::Valid);
        let valid = valid.or_else(|| corpora.iter().find(has_valid).cloned());
        if let Some(valid) = &valid {
            same_tokenizer(&data, valid, &tokenizer)?;
        }
        let fingerprint = match &corpora[..] {
            [one] => one.fingerprint().to_string(),
            several => {
                let all: Vec<&str> = several.iter().map(Corpus::fingerprint).collect();
                blake3::hash(all.join("\n").as_bytes()).to_hex().to_string()
            }
        };
        let tokens_of = corpora[0].dir().into();
        Ok(Self { corpora, valid, names_valid, tokenizer, tokens_of, fingerprint })
    }

    fn of_records(
        train: &TrainConfig,
        model: &ModelConfig,
        own: &OwnSections,
        valid: Option<Corpus>,
    ) -> Result<Self, TrainError> {
        let data = own.get::<DataConfig>();
        if data.tokenizer.is_empty() {
            let why = "TFRecords hold no tokenizer\nhint: name the folder of the one they were made with";
            return Err(out_of_range("data.tokenizer", "", why));
        }
        let tokenizer = Tokenizer::load(Path::new(&data.tokenizer))?;
        let records = RecordLanes::open(Path::new(&data.corpus), PairOptions::of(train, model, own)?)?;
        if tokenizer.vocab_size() != records.vocab_size() {
            let why = format!(
                "it has {} entries and the records were made with {}",
                tokenizer.vocab_size(),
                records.vocab_size()
            );
            return Err(out_of_range("data.tokenizer", &data.tokenizer, &why));
        }
        if let Some(valid) = &valid {
            same_tokenizer(&data, valid, &tokenizer)?;
        }
        let (names_valid, fingerprint) = (valid.is_some(), records.fingerprint()?);
        let tokens_of = PathBuf::from(&data.tokenizer);
        Ok(Self { corpora: Vec::new(), valid, names_valid, tokenizer, tokens_of, fingerprint })
    }

    /// Checks that every file of the corpora is there, and its size and header.
    pub(super) fn check_headers(&self) -> Result<(), TrainError> {
        let apart = self.valid.iter().filter(|valid| self.corpora.iter().all(|own| own.dir() != valid.dir()));
        Ok(self.corpora.iter().chain(apart).try_for_each(Corpus::check_headers)?)
    }

    /// The corpora in the order of the configuration; none where records are read.
    pub fn corpora(&self) -> &[Corpus] {
        &self.corpora
    }

    /// Names the text of the run: the corpus' fingerprint, or a hash of what it consists of.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The tokenizer of all of it.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Refuses a model to begin with whose ids mean other tokens than those of the text.
    pub(super) fn check_ids(&self, model: &ModelFolder) -> Result<(), TrainError> {
        model
            .check_ids_of(&self.tokens_of, &self.tokenizer.fingerprint(), self.tokenizer.vocab_size())
            .map(drop)
    }

    /// The corpus whose split of that name is evaluated: for the validation split the run's own, for another the
    /// first corpus that has it.
    pub fn of_split(&self, split: Split) -> Option<&Corpus> {
        match split {
            Split::Valid => self.valid(),
            _ => self.corpora.iter().find(|corpus| corpus.info().splits.contains_key(&split)),
        }
    }

    /// The corpus that `data.valid` names.
    pub(super) fn named_valid(&self) -> Option<&Corpus> {
        self.valid.as_ref().filter(|_| self.names_valid)
    }

    /// The corpus whose validation split is evaluated.
    pub(super) fn valid(&self) -> Option<&Corpus> {
        self.valid.as_ref()
    }
}

/// Refuses a corpus of sentences and their translations, of which a language model would learn to write one after the other.
pub fn refuse_pairs(corpus: &Corpus) -> Result<(), TrainError> {
    if corpus.info().preset != Preset::Pairs.name() {
        return Ok(());
    }
    let why = "it holds sentences with their translations, and a language model reads text\nhint: train a model that translates, or build a corpus of \
               another --preset";
    Err(DataError::corpus(corpus.dir(), why).into())
}

/// Refuses such corpora among those that are named and there.
pub(super) fn check_presets(data: &DataConfig) -> Result<(), TrainError> {
    let named = data.corpora.iter().chain([&data.corpus, &data.valid]).filter(|path| !path.is_empty());
    for path in named.map(Path::new).filter(|path| path.join(CORPUS_FILE).exists()) {
        refuse_pairs(&Corpus::open_lazily(path)?)?;
    }
    Ok(())
}

fn same_tokenizer(data: &DataConfig, valid: &Corpus, tokenizer: &Tokenizer) -> Result<(), TrainError> {
    if valid.tokenizer()?.fingerprint() == tokenizer.fingerprint() {
        return Ok(());
    }
    let why = "it was built with another tokenizer than the text to train on\nhint: build both with one";
    Err(out_of_range("data.valid", &data.valid, why))
}

fn out_of_range(key: &'static str, value: &str, why: &str) -> TrainError {
    ConfigError::OutOfRange { key: key.into(), value: value.into(), why: why.into() }.into()
}
