use std::path::Path;

use segue_configs::Config;
use segue_dataloader::{Corpus, Split, Tokenizer};

use crate::TrainError;

/// The corpora of a run: one, or several that lanes share out among them.
#[derive(Debug)]
pub struct Sources {
    corpora: Vec<Corpus>,
    fingerprint: String,
}

impl Sources {
    /// Opens what `[data]` names.
    pub fn open(config: &Config) -> Result<Self, TrainError> {
        let data = &config.data;
        let named = if data.corpora.is_empty() { std::slice::from_ref(&data.corpus) } else { &data.corpora };
        let corpora: Result<Vec<Corpus>, _> =
            named.iter().map(|path| Corpus::open(Path::new(path))).collect();
        Ok(Self::new(corpora?))
    }

    /// Corpora that are open already; at least one.
    pub fn new(corpora: Vec<Corpus>) -> Self {
        let fingerprint = match &corpora[..] {
            [one] => one.fingerprint().to_string(),
            several => {
                let all: Vec<&str> = several.iter().map(Corpus::fingerprint).collect();
                blake3::hash(all.join("\n").as_bytes()).to_hex().to_string()
            }
        };
        Self { corpora, fingerprint }
    }

    /// The corpora in the order of the configuration.
    pub fn corpora(&self) -> &[Corpus] {
        &self.corpora
    }

    /// Names the text of the run: the corpus' fingerprint, or a hash of all of theirs.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The first corpus; the only one, but for sequences of pairs.
    pub fn first(&self) -> &Corpus {
        &self.corpora[0]
    }

    /// The tokenizer that all of them share.
    pub fn tokenizer(&self) -> Result<Tokenizer, TrainError> {
        Ok(self.first().tokenizer()?)
    }

    /// The first corpus that has a validation split.
    pub(super) fn validation(&self) -> Option<&Corpus> {
        self.corpora.iter().find(|corpus| corpus.info().splits.contains_key(&Split::Valid))
    }
}
