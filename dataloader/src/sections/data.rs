//! `[data]`: the text that a run reads.

use schemars::JsonSchema;
use segue_configs::{ConfigError, OwnSection, no_effect, out_of_range};
use serde::{Deserialize, Serialize};

/// `[data]`: the text that a run reads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DataConfig {
    /// Corpus folder, as `segue data build` writes it; with `order = "records"` a folder of the XLNet reference's
    /// TFRecords. Required, unless there are `corpora`.
    pub corpus: String,
    /// Several corpora of one tokenizer instead, blended: each lane reads a piece of one of them. Needs
    /// `order = "pairs"`.
    pub corpora: Vec<String>,
    /// Shares of the streams, one number for each of `corpora`; largest remainders first, at least one stream each.
    /// Streams are lanes, or pairs of lanes with `pairs.bidirectional`. Empty: the corpora's numbers of tokens.
    pub weights: Vec<f64>,
    /// Corpus whose validation split is evaluated, built with the same tokenizer; empty for that of the corpus, or
    /// the first of `corpora` that has one.
    pub valid: String,
    /// Folder of the tokenizer that the records were made with: required with `order = "records"`, which hold none.
    pub tokenizer: String,
    /// The order in which lanes read the text.
    pub order: DataOrder,
    /// With `order = "lines"`: how many lines a lane may begin before or after its place, drawn anew each epoch.
    pub line_jitter: u64,
}

impl Default for DataConfig {
    fn default() -> Self {
        Self {
            corpus: String::new(),
            corpora: Vec::new(),
            weights: Vec::new(),
            valid: String::new(),
            tokenizer: String::new(),
            order: DataOrder::Stream,
            line_jitter: 100,
        }
    }
}

/// The order in which lanes read a corpus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "lowercase")]
pub enum DataOrder {
    /// Each lane reads one contiguous piece.
    #[default]
    Stream,
    /// The text as a ring that lanes read from equidistant lines on, all moved by one drawn number of lines (Melis 2023, §2.2).
    /// After as many tokens as a lane's share of the text it begins again, up to `line_jitter` lines away from its place. The
    /// first input is the end of the line before. Needs a corpus of lines that end in `<eos>`.
    Lines,
    /// Each line is an example of its own, from a fresh memory, in a new random order every epoch. A line longer than a segment
    /// goes on in the next one; what a line leaves of a segment is padding, which has no loss. Recurrent models alone.
    Episodes,
    /// Sentences in a new random order every epoch, packed into the lanes one after the other, for corpora that were
    /// built with one sentence a line, like One Billion Word; no pair of input and target crosses a sentence's
    /// borders.
    Sentences,
    /// Each lane reads one contiguous piece as sequences of reused text and two segments, as `[pairs]` says (Yang
    /// 2019, §2.2.2). The default of an XLNet, and for it alone.
    Pairs,
    /// The same as the XLNet reference has drawn and frozen them in TFRecords. `data.corpus` is their folder,
    /// `train.lanes` their `bsz_per_host` or a multiple of it up to the number of files, and `train.segment`,
    /// `model.reuse_len`, `pairs.bidirectional` and `pairs.num_predict` are theirs.
    Records,
}

impl DataOrder {
    /// Whether lanes read sequences of pairs.
    pub fn in_pairs(self) -> bool {
        matches!(self, DataOrder::Pairs | DataOrder::Records)
    }
}

impl DataConfig {
    /// What several corpora ask of each other.
    fn check_blend(&self) -> Result<(), ConfigError> {
        if !self.tokenizer.is_empty() && self.order != DataOrder::Records {
            let why = "a corpus has its own; this is for data.order = \"records\"";
            return Err(no_effect("data.tokenizer", &self.tokenizer, why));
        }
        if self.corpora.is_empty() {
            return match self.weights.is_empty() {
                true => Ok(()),
                false => Err(no_effect("data.weights", "a list", "needs data.corpora")),
            };
        }
        if self.order != DataOrder::Pairs {
            return Err(out_of_range("data.corpora", "a list", "needs data.order = \"pairs\""));
        }
        if !self.corpus.is_empty() {
            return Err(out_of_range(
                "data.corpus",
                &self.corpus,
                "data.corpora is set too\nhint: set only one of them",
            ));
        }
        let positive = self.weights.iter().all(|w| w.is_finite() && *w > 0.0);
        if !self.weights.is_empty() && (self.weights.len() != self.corpora.len() || !positive) {
            let why =
                format!("must be {} positive numbers, one for each of data.corpora", self.corpora.len());
            return Err(out_of_range("data.weights", format!("{:?}", self.weights), &why));
        }
        Ok(())
    }
}

impl OwnSection for DataConfig {
    const NAME: &'static str = "data";

    fn check(&self) -> Result<(), ConfigError> {
        let jitter = self.line_jitter;
        if self.order != DataOrder::Lines && jitter != Self::default().line_jitter {
            return Err(no_effect("data.line_jitter", jitter, "needs data.order = \"lines\""));
        }
        self.check_blend()
    }
}
