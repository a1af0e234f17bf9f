//! Counts that others report of the data sets of language modelling.

use std::path::Path;
use std::str::FromStr;

use segue_data_error::DataError;

use crate::corpus::{CorpusInfo, Split};

/// What is known of a data set's splits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    /// Tokens, the ends of lines among them.
    Tokens,
    /// Bytes of text.
    Bytes,
}

/// A data set with published counts: a corpus of its files has them where it is prepared as usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    name: &'static str,
    counted: Counted,
    /// Of train, valid and test.
    counts: [u64; 3],
    /// How far a split may be from its count, which is rounded, or taken before white space at both ends is left out.
    tolerance: u64,
    /// Entries of the preset's own vocabulary.
    vocabulary: Option<usize>,
}

/// Mikolov's Penn Treebank, WikiText (Merity et al. 2017), and Mahoney's enwik8 and text8 as they are usually cut.
const KNOWN: [Published; 7] = [
    Published {
        name: "ptb",
        counted: Counted::Tokens,
        counts: [929_589, 73_760, 82_430],
        tolerance: 0,
        vocabulary: Some(10_000),
    },
    Published {
        name: "ptb-char",
        counted: Counted::Tokens,
        counts: [5_060_000, 390_000, 450_000],
        tolerance: 5_000,
        vocabulary: None,
    },
    Published {
        name: "wikitext-2",
        counted: Counted::Tokens,
        counts: [2_088_628, 217_646, 245_569],
        tolerance: 0,
        vocabulary: Some(33_278),
    },
    Published {
        name: "wikitext-103",
        counted: Counted::Tokens,
        counts: [103_227_021, 217_646, 245_569],
        tolerance: 0,
        vocabulary: Some(267_735),
    },
    Published {
        name: "enwik8",
        counted: Counted::Bytes,
        counts: [90_000_000, 5_000_000, 5_000_000],
        tolerance: 0,
        vocabulary: Some(204),
    },
    Published {
        name: "enwik8-bytes",
        counted: Counted::Tokens,
        counts: [90_000_000, 5_000_000, 5_000_000],
        tolerance: 0,
        vocabulary: Some(205),
    },
    Published {
        name: "text8",
        counted: Counted::Bytes,
        counts: [90_000_000, 5_000_000, 5_000_000],
        tolerance: 8,
        vocabulary: Some(27),
    },
];

impl Published {
    /// Says how a corpus that is to lie in `dir` differs. `own_vocabulary`: its tokenizer is the preset's.
    pub(crate) fn check(&self, dir: &Path, info: &CorpusInfo, own_vocabulary: bool) -> Result<(), DataError> {
        let differs = |what: &str, found: u64, expected: u64| {
            let why = format!(
                "{} has {expected} {what}, this one {found}\nhint: compare the files with the published ones; without --published the same command \
                 finishes this corpus",
                self.name
            );
            Err(DataError::corpus(dir, why))
        };
        for (split, expected) in Split::ALL.into_iter().zip(self.counts) {
            let (found, unit) = match (info.splits.get(&split), self.counted) {
                (None, _) => (0, "tokens"),
                (Some(part), Counted::Tokens) => (part.tokens, "tokens"),
                (Some(part), Counted::Bytes) => (part.bytes, "bytes of text"),
            };
            if found.abs_diff(expected) > self.tolerance {
                return differs(&format!("{unit} in {split}"), found, expected);
            }
        }
        match self.vocabulary {
            Some(expected) if own_vocabulary && info.vocab_size != expected => {
                differs("entries in its vocabulary", info.vocab_size as u64, expected as u64)
            }
            _ => Ok(()),
        }
    }
}

impl FromStr for Published {
    type Err = DataError;

    fn from_str(name: &str) -> Result<Published, DataError> {
        KNOWN.into_iter().find(|known| known.name == name).ok_or_else(|| {
            let known: Vec<&str> = KNOWN.iter().map(|known| known.name).collect();
            DataError::Usage(format!("no counts of `{name}` are known\nhint: choose {}", known.join(", ")))
        })
    }
}
