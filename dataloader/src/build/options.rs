use std::path::PathBuf;

use segue_data_error::DataError;
use segue_tokenizer::{Tokenizer, TokenizerKind, TrainOptions};
use serde::{Deserialize, Serialize};

use super::published::Published;
use crate::preset::Preset;

/// The token that ends a document of running text.
pub(crate) const EOD: &str = "<eod>";
/// Tokens after which a shard is closed: 128 MiB of 16-bit ids.
pub const DEFAULT_SHARD_TOKENS: u64 = 1 << 26;
/// Where JSON lines and files of columns have their text, unless told otherwise.
pub const DEFAULT_TEXT_COLUMN: &str = "text";
/// How far the shares of a split may be from adding up to one.
const SHARE_TOLERANCE: f64 = 1e-6;

/// What to do with input that is not UTF-8. Byte tokenizers take any bytes and do not ask, except of records and of running
/// text, which is read before it is encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InvalidUtf8 {
    /// Fail, naming file and offset.
    #[default]
    Fail,
    /// Replace every invalid sequence by U+FFFD, and count them.
    Replace,
}

/// Where a build's tokenizer comes from.
#[derive(Clone, Debug)]
pub enum TokenizerChoice {
    /// The preset's own: words for WikiText and Penn Treebank, characters for the Multilingual Wikipedia Corpus, the bytes that occur for enwik8 and text8.
    Preset,
    /// Trained on the train split first.
    Train(TrainOptions),
    /// One that exists.
    Given(Tokenizer),
}

/// What to build a corpus from and how.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// How the text is cut.
    pub preset: Preset,
    /// Files, folders, patterns of their names, `@` and a file that lists them, or `-` for standard input: the train
    /// split, or all splits where `split` is given.
    pub train: Vec<PathBuf>,
    /// Inputs of the valid split.
    pub valid: Vec<PathBuf>,
    /// Inputs of the test split.
    pub test: Vec<PathBuf>,
    /// The shares of train, valid and test that `train` is cut into.
    pub split: Option<[f64; 3]>,
    /// Where the tokenizer comes from.
    pub tokenizer: TokenizerChoice,
    /// The corpus folder to make.
    pub output: PathBuf,
    /// Threads that encode; 0 for one per core.
    pub workers: usize,
    /// Whether shards are compressed with zstd.
    pub compress: bool,
    /// Extensions of the files taken from folders; all files where empty.
    pub extensions: Vec<String>,
    /// Where the records of the `jsonl` preset have their text: a key or column, a dot going into nested ones.
    pub text_column: String,
    /// What to do with input that is not UTF-8.
    pub invalid_utf8: InvalidUtf8,
    /// Whether the lines of the `xlnet` preset are paragraphs, to be cut in sentences where Unicode's rules (UAX #29) say.
    pub split_sentences: bool,
    /// Whether documents of the `xlnet` and `wikitext-xlnet` presets end in no token.
    pub no_eod: bool,
    /// Tokens after which a shard is closed.
    pub shard_tokens: u64,
    /// Data set whose published counts the corpus must have.
    pub published: Option<Published>,
}

impl BuildOptions {
    /// The defaults for a preset: one worker per core, plain shards of [`DEFAULT_SHARD_TOKENS`].
    pub fn new(preset: Preset, train: Vec<PathBuf>, output: PathBuf) -> BuildOptions {
        BuildOptions {
            preset,
            train,
            valid: Vec::new(),
            test: Vec::new(),
            split: None,
            tokenizer: TokenizerChoice::Preset,
            output,
            workers: 0,
            compress: false,
            extensions: Vec::new(),
            text_column: DEFAULT_TEXT_COLUMN.into(),
            invalid_utf8: InvalidUtf8::Fail,
            split_sentences: false,
            no_eod: false,
            shard_tokens: DEFAULT_SHARD_TOKENS,
            published: None,
        }
    }

    /// The shares to cut the train input into, if it is cut at all.
    pub(crate) fn shares(&self) -> Option<[f64; 3]> {
        let explicit = !self.valid.is_empty() || !self.test.is_empty();
        self.split.or_else(|| self.preset.default_split().filter(|_| !explicit))
    }

    /// Where records have their text, if the preset reads records.
    pub(crate) fn record_column(&self) -> Option<&str> {
        (self.preset == Preset::Jsonl).then_some(&self.text_column)
    }

    /// Refuses options that contradict each other.
    pub(crate) fn check(&self) -> Result<(), DataError> {
        let usage = |message: &str| Err(DataError::Usage(message.into()));
        if self.preset == Preset::Pairs {
            return usage("the pairs preset reads two texts side by side, which `build_pairs` does");
        }
        if self.train.is_empty() {
            return usage("there is no input for the train split\nhint: add --train FILE");
        }
        if self.shard_tokens == 0 {
            return usage("a shard needs at least one token");
        }
        if self.split.is_some() && !(self.valid.is_empty() && self.test.is_empty()) {
            return usage(
                "--split cannot be combined with --valid or --test\nhint: drop --split, or drop \
                --valid and --test",
            );
        }
        if let Some(shares) = self.split {
            let sum: f64 = shares.iter().sum();
            let possible = shares.iter().all(|share| (0.0..=1.0).contains(share)) && shares[0] > 0.0;
            if !possible || (sum - 1.0).abs() > SHARE_TOLERANCE {
                return usage(
                    "--split needs three fractions that add up to 1, the first above 0\nhint: for example \
                     --split 0.9,0.05,0.05",
                );
            }
        }
        if self.split_sentences && self.preset != Preset::Xlnet {
            return usage(
                "--split-sentences is an option of the xlnet preset (wikitext-xlnet always \
                splits)",
            );
        }
        if self.no_eod && !self.preset.is_running_text() {
            return usage(
                "--no-eod is an option of the presets xlnet and wikitext-xlnet: others write no \
                <eod>",
            );
        }
        if self.record_column().map_or(self.text_column != DEFAULT_TEXT_COLUMN, str::is_empty) {
            return usage(
                "--text-column names where the records of the jsonl preset have their text\nhint: drop it, \
                or pass --preset jsonl and a name",
            );
        }
        let stdin = |inputs: &[PathBuf]| inputs.iter().filter(|path| path.as_os_str() == "-").count();
        if stdin(&self.train) + stdin(&self.valid) + stdin(&self.test) > 1 {
            return usage("stdin (-) can be read only once, for one split");
        }
        self.check_tokenizer()
    }

    fn check_tokenizer(&self) -> Result<(), DataError> {
        let usage = |message: String| Err(DataError::Usage(message));
        let has_eod = match &self.tokenizer {
            TokenizerChoice::Preset => true,
            TokenizerChoice::Train(options) => options.special_tokens.iter().any(|token| token == EOD),
            TokenizerChoice::Given(tokenizer) => tokenizer.token_id(EOD).is_some(),
        };
        if self.preset.is_running_text() && !self.no_eod && !has_eod {
            return usage(format!(
                "the {} preset ends every document with {EOD}, which the tokenizer does not have\nhint: \
                 choose another tokenizer, train one with --special {EOD}, or pass --no-eod",
                self.preset
            ));
        }
        let kind = match &self.tokenizer {
            TokenizerChoice::Preset => return self.check_preset_tokenizer(),
            TokenizerChoice::Train(options) => {
                options.check()?;
                options.kind
            }
            TokenizerChoice::Given(tokenizer) => tokenizer.kind(),
        };
        if self.preset.is_bytes() && kind != TokenizerKind::Byte {
            return usage(format!(
                "the {} preset codes bytes, which the tokenizer does not\nhint: drop the tokenizer for \
                 the reference's coding, choose the byte kind, or use the documents preset",
                self.preset
            ));
        }
        if let TokenizerChoice::Given(tokenizer) = &self.tokenizer
            && matches!(
                self.preset,
                Preset::WikiText | Preset::Ptb | Preset::PtbChar | Preset::Mwc | Preset::Sentences
            )
            && tokenizer.eos_id().is_none()
            && kind != TokenizerKind::Byte
        {
            return usage(format!(
                "the {} preset ends every line with an end-of-sentence token, which the tokenizer does \
                 not have",
                self.preset
            ));
        }
        Ok(())
    }

    fn check_preset_tokenizer(&self) -> Result<(), DataError> {
        match self.preset {
            Preset::WikiText
            | Preset::Ptb
            | Preset::PtbChar
            | Preset::Mwc
            | Preset::Enwik8
            | Preset::Enwik8Bytes
            | Preset::Text8 => Ok(()),
            _ => Err(DataError::Usage(format!(
                "the {} preset needs a tokenizer\nhint: add --tokenizer DIR or --tokenizer-kind KIND",
                self.preset
            ))),
        }
    }
}
