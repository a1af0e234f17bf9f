use std::fmt;
use std::str::FromStr;

use segue_data_error::DataError;
use serde::{Deserialize, Serialize};

/// The kinds of tokenizers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenizerKind {
    /// Bytes, all 256 of them or those of a table.
    Byte,
    /// Characters.
    Char,
    /// Words between white space.
    Word,
    /// Byte-level byte-pair encoding.
    Bpe,
    /// Byte-level unigram language model.
    Unigram,
    /// Byte-pair encoding of words in subword-nmt's files.
    #[serde(rename = "subword-nmt")]
    SubwordNmt,
    /// A SentencePiece model.
    SentencePiece,
    /// Two SentencePiece models, of source and target, with the ids of one vocabulary.
    Marian,
    /// A `tokenizer.json` of another make.
    Foreign,
}

impl TokenizerKind {
    /// The kinds that can be trained here.
    pub const TRAINABLE: [TokenizerKind; 6] = [
        TokenizerKind::Byte,
        TokenizerKind::Char,
        TokenizerKind::Word,
        TokenizerKind::Bpe,
        TokenizerKind::Unigram,
        TokenizerKind::SubwordNmt,
    ];

    /// The kind's name in files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            TokenizerKind::Byte => "byte",
            TokenizerKind::Char => "char",
            TokenizerKind::Word => "word",
            TokenizerKind::Bpe => "bpe",
            TokenizerKind::Unigram => "unigram",
            TokenizerKind::SubwordNmt => "subword-nmt",
            TokenizerKind::SentencePiece => "sentencepiece",
            TokenizerKind::Marian => "marian",
            TokenizerKind::Foreign => "foreign",
        }
    }
}

impl fmt::Display for TokenizerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for TokenizerKind {
    type Err = DataError;

    fn from_str(name: &str) -> Result<TokenizerKind, DataError> {
        TokenizerKind::TRAINABLE.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            DataError::Usage(format!(
                "unknown kind of tokenizer `{name}`\nhint: choose byte, char, word, bpe, unigram or subword-nmt"
            ))
        })
    }
}
