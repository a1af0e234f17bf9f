use segue_data_error::DataError;
use serde::{Deserialize, Serialize};

use super::byte_level::ALPHABET;
use super::cut::{CutPlaces, TextCut};
use super::kind::TokenizerKind;
use super::special_tokens::{EOS, UNK};
use super::subword_nmt::SPECIALS;
use super::words::is_space;

/// Size of a sub-word vocabulary where none is asked for.
const DEFAULT_SUBWORD_VOCABULARY: usize = 32_000;
/// Merges of the subword-nmt kind where no number is asked for, as `learn_bpe` has it.
const DEFAULT_MERGES: usize = 10_000;
/// Occurrences that a merge needs where nothing else is asked for.
const DEFAULT_SUBWORD_FREQUENCY: u64 = 2;

/// How a tokenizer is trained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrainOptions {
    /// What is trained.
    pub kind: TokenizerKind,
    /// Number of ids, special tokens included. Words and characters: all that occur unless given. BPE and unigram:
    /// 32,000 unless given. The subword-nmt kind takes `merges` instead.
    pub vocab_size: Option<usize>,
    /// For the subword-nmt kind: number of merges, 10,000 unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merges: Option<usize>,
    /// How often a word, a character or a merge has to occur. Words and characters: once unless given. BPE and subword-nmt: twice.
    pub min_frequency: Option<u64>,
    /// Whether upper-case letters are taken for lower-case ones, here and whenever the tokenizer is used.
    pub lower_case: bool,
    /// Further special tokens, after `<eos>`; of the subword-nmt kind, after `<s>`, `<pad>`, `</s>` and `<unk>`.
    pub special_tokens: Vec<String>,
    /// For the byte kind: only the bytes that occur, sorted by frequency and without the newline (but see `newline`), as the
    /// Transformer-XL reference codes enwik8 and text8.
    pub coded: bool,
    /// With `coded`: the newline is a symbol too, where it occurs.
    #[serde(default)]
    pub newline: bool,
}

impl TrainOptions {
    /// The defaults of a kind.
    pub fn new(kind: TokenizerKind) -> TrainOptions {
        TrainOptions {
            kind,
            vocab_size: None,
            merges: None,
            min_frequency: None,
            lower_case: false,
            special_tokens: Vec::new(),
            coded: false,
            newline: false,
        }
    }

    /// The reference's coding of enwik8 and text8.
    pub fn coded_bytes() -> TrainOptions {
        TrainOptions { coded: true, ..TrainOptions::new(TokenizerKind::Byte) }
    }

    /// Refuses options that the kind cannot have.
    pub fn check(&self) -> Result<(), DataError> {
        let usage = |message: String| Err(DataError::Usage(message));
        if self.merges.is_some() && self.kind != TokenizerKind::SubwordNmt {
            return usage(format!(
                "a {} tokenizer has no number of merges\nhint: give --vocab-size",
                self.kind
            ));
        }
        match self.kind {
            TokenizerKind::SentencePiece | TokenizerKind::Marian | TokenizerKind::Foreign => {
                return usage(format!("a {} tokenizer can be imported but not trained here", self.kind));
            }
            TokenizerKind::Byte => {
                let unused = self.vocab_size.is_some() || self.min_frequency.is_some() || self.lower_case;
                if unused || !self.special_tokens.is_empty() {
                    return usage("the byte tokenizer has 256 ids and takes no vocabulary options".into());
                }
            }
            TokenizerKind::Bpe | TokenizerKind::Unigram => {
                let least = ALPHABET + 1 + self.special_tokens.len();
                if self.subword_vocabulary() < least {
                    return usage(format!(
                        "--vocab-size {}: a {} vocabulary needs at least {least} for the bytes and special tokens",
                        self.subword_vocabulary(),
                        self.kind
                    ));
                }
            }
            TokenizerKind::SubwordNmt => {
                if self.vocab_size.is_some() {
                    let message =
                        "the vocabulary of a subword-nmt tokenizer is as large as its merges make it";
                    return usage(format!("{message}\nhint: give --merges instead of --vocab-size"));
                }
            }
            TokenizerKind::Char | TokenizerKind::Word => {
                let least = 3 + self.special_tokens.len();
                if self.vocab_size.is_some_and(|size| size < least) {
                    return usage(format!("--vocab-size must be at least {least}"));
                }
            }
        }
        self.check_special_tokens()
    }

    fn check_special_tokens(&self) -> Result<(), DataError> {
        // What stands in the vocabulary without being named.
        let own: &[&str] = match self.kind {
            TokenizerKind::Char | TokenizerKind::Word => &[EOS, UNK],
            TokenizerKind::SubwordNmt => &SPECIALS,
            _ => &[EOS],
        };
        let fault = |token: &str| token.is_empty() || token.contains(is_space) || own.contains(&token);
        for (place, token) in self.special_tokens.iter().enumerate() {
            if fault(token) {
                return Err(DataError::Usage(format!(
                    "{token:?} cannot be a special token: it must be one word other than {}",
                    own.join(" and ")
                )));
            }
            if self.special_tokens[..place].contains(token) {
                return Err(DataError::Usage(format!("the special token `{token}` occurs twice")));
            }
        }
        Ok(())
    }

    /// How a long text may be cut in parts that [`count_text`](crate::count_text) counts one by one as it does the whole.
    pub fn text_cut(&self) -> TextCut {
        TextCut::at(match self.kind {
            TokenizerKind::Byte | TokenizerKind::Char => CutPlaces::Anywhere,
            TokenizerKind::Word | TokenizerKind::Bpe | TokenizerKind::Unigram => CutPlaces::BeforeSpace,
            TokenizerKind::SubwordNmt => CutPlaces::BeforeBlank,
            TokenizerKind::SentencePiece | TokenizerKind::Marian | TokenizerKind::Foreign => {
                CutPlaces::Nowhere
            }
        })
    }

    pub(crate) fn subword_vocabulary(&self) -> usize {
        self.vocab_size.unwrap_or(DEFAULT_SUBWORD_VOCABULARY)
    }

    pub(crate) fn most_merges(&self) -> usize {
        self.merges.unwrap_or(DEFAULT_MERGES)
    }

    pub(crate) fn subword_frequency(&self) -> u64 {
        self.min_frequency.unwrap_or(DEFAULT_SUBWORD_FREQUENCY)
    }
}
