use std::path::PathBuf;

use segue_data_error::DataError;
use segue_tokenizer::{TokenizerKind, TrainOptions};

use crate::build::options::{DEFAULT_SHARD_TOKENS, InvalidUtf8, TokenizerChoice};
use crate::corpus::PairFault;
use crate::input::STDIN;

/// What to build a corpus of sentence pairs from, and how.
#[derive(Clone, Debug)]
pub struct PairBuild {
    /// Name of the source side: the end of its files' names, or its key in JSON lines.
    pub source: String,
    /// Name of the target side.
    pub target: String,
    /// Inputs of the train split, one after the other: `PREFIX` for the files `PREFIX.source` and `PREFIX.target`, which
    /// are read side by side, plain or with `.gz` or `.zst` at the end of their names; or a file of JSON lines.
    pub train: Vec<PathBuf>,
    /// Inputs of the valid split.
    pub valid: Vec<PathBuf>,
    /// Inputs of the test split.
    pub test: Vec<PathBuf>,
    /// Moves every n-th pair of the train input to the valid split; from 2 on.
    pub valid_every: Option<u64>,
    /// Which pairs are trained on.
    pub filter: PairFilter,
    /// Whether text is brought to lower case before it is encoded. A tokenizer that is trained does so itself from then on.
    pub lower_case: bool,
    /// Where the one tokenizer of both sides comes from. The preset has none of its own.
    pub tokenizer: TokenizerChoice,
    /// What to do with input that is not UTF-8.
    pub invalid_utf8: InvalidUtf8,
    /// The corpus folder to make: new or empty.
    pub output: PathBuf,
    /// Threads that encode; 0 for one per core.
    pub workers: usize,
    /// Whether shards are compressed with zstd.
    pub compress: bool,
    /// Tokens after which a shard is closed.
    pub shard_tokens: u64,
}

/// Which pairs are trained on. Empty ones never are.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PairFilter {
    /// Most tokens of a side, its end-of-sentence token left out; `None`: any number.
    pub max_length: Option<usize>,
    /// Most tokens of the longer side for each of the shorter, ends left out; `None`: any.
    pub max_ratio: Option<f64>,
}

impl PairFilter {
    /// What is wrong with a pair whose sides have so many tokens, their ends left out.
    pub(super) fn fault(&self, source: usize, target: usize) -> Option<PairFault> {
        let (shorter, longer) = (source.min(target), source.max(target));
        let too_unlike = |ratio: f64| longer as f64 / shorter as f64 > ratio;
        if source == 0 {
            Some(PairFault::EmptySource)
        } else if target == 0 {
            Some(PairFault::EmptyTarget)
        } else if self.max_length.is_some_and(|length| longer > length) {
            Some(PairFault::TooLong)
        } else {
            self.max_ratio.is_some_and(too_unlike).then_some(PairFault::Ratio)
        }
    }
}

impl PairBuild {
    /// The defaults: no filter, no valid or test split, one worker per core, plain shards.
    pub fn new(
        sides: [&str; 2],
        train: Vec<PathBuf>,
        tokenizer: TokenizerChoice,
        output: PathBuf,
    ) -> PairBuild {
        let [source, target] = sides.map(String::from);
        PairBuild {
            source,
            target,
            train,
            valid: Vec::new(),
            test: Vec::new(),
            valid_every: None,
            filter: PairFilter::default(),
            lower_case: false,
            tokenizer,
            invalid_utf8: InvalidUtf8::Fail,
            output,
            workers: 0,
            compress: false,
            shard_tokens: DEFAULT_SHARD_TOKENS,
        }
    }

    /// How the tokenizer is trained, given the options for it.
    pub(super) fn training(&self, options: &TrainOptions) -> TrainOptions {
        TrainOptions { lower_case: options.lower_case || self.lower_case, ..options.clone() }
    }

    /// Refuses options that contradict each other or are out of range.
    pub(super) fn check(&self) -> Result<(), DataError> {
        let usage = |message: &str| Err(DataError::Usage(message.into()));
        let is_bad = |side: &String| side.is_empty() || side.contains(['/', '\0']);
        if self.train.is_empty() {
            return usage("there is no input for the train split\nhint: add --train PREFIX");
        }
        if [&self.train, &self.valid, &self.test].into_iter().flatten().any(|path| path.as_os_str() == STDIN)
        {
            return usage("pairs are not read from stdin\nhint: name files");
        }
        if is_bad(&self.source) || is_bad(&self.target) || self.source == self.target {
            return usage("--source and --target need two names\nhint: for example --source de --target en");
        }
        if self.valid_every.is_some_and(|every| every < 2) {
            return usage("--valid-every needs a number from 2 on");
        }
        if self.valid_every.is_some() && !self.valid.is_empty() {
            return usage("--valid-every and --valid cannot be combined\nhint: drop one of them");
        }
        if self.filter.max_length == Some(0) {
            return usage("--max-length needs a number from 1 on");
        }
        if self.filter.max_ratio.is_some_and(|ratio| !(ratio.is_finite() && ratio >= 1.0)) {
            return usage("--max-ratio needs a number from 1 on");
        }
        if self.shard_tokens == 0 {
            return usage("a shard needs at least one token");
        }
        self.check_tokenizer()
    }

    fn check_tokenizer(&self) -> Result<(), DataError> {
        let has_end = match &self.tokenizer {
            TokenizerChoice::Preset => {
                let why =
                    "the pairs preset needs a tokenizer\nhint: add --tokenizer DIR or --tokenizer-kind KIND";
                return Err(DataError::Usage(why.into()));
            }
            TokenizerChoice::Train(options) if options.kind == TokenizerKind::Byte => false,
            TokenizerChoice::Train(options) => {
                self.training(options).check()?;
                true
            }
            TokenizerChoice::Given(tokenizer) => tokenizer.eos_id().is_some(),
        };
        let why = "the pairs preset ends every sentence with an end-of-sentence token, which the tokenizer does not have";
        if has_end { Ok(()) } else { Err(DataError::Usage(why.into())) }
    }
}
