use serde::{Deserialize, Serialize};

/// What the sides of a corpus of sentence pairs are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairSides {
    /// Name of the source side: the end of its files' names, or its key in the records; mostly a language, as `de`.
    pub source: String,
    /// Name of the target side.
    pub target: String,
    /// Whether the text was brought to lower case before it was encoded.
    pub lower_case: bool,
}

/// Why a pair of sentences is no use to train on; the first that holds of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PairFault {
    /// The source holds no text, or none that the tokenizer has tokens for.
    EmptySource,
    /// The target holds no text, or none that the tokenizer has tokens for.
    EmptyTarget,
    /// A side has more tokens than allowed.
    TooLong,
    /// The longer side has more tokens for each of the shorter than allowed.
    Ratio,
}

impl PairFault {
    /// All faults, in the order in which they are looked for.
    pub const ALL: [PairFault; 4] =
        [PairFault::EmptySource, PairFault::EmptyTarget, PairFault::TooLong, PairFault::Ratio];
}

/// Pairs of one fault.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultyPairs {
    /// Number of them.
    pub count: u64,
    /// Numbers of the first, from 1, in the input of the split: the line's, where that is one pair of files.
    pub first: Vec<u64>,
}

impl FaultyPairs {
    /// How many are listed.
    pub(crate) const LISTED: usize = 5;
}

/// What became of the pairs in the input of a split. Pairs of the train split that have a fault are dropped; valid and test keep
/// all, so that their lines stay those of the files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairCounts {
    /// Pairs in the input, as far as they belong to the split.
    pub read: u64,
    /// Pairs in the corpus.
    pub kept: u64,
    /// Pairs of an empty source.
    pub empty_source: FaultyPairs,
    /// Pairs of an empty target, but not of an empty source.
    pub empty_target: FaultyPairs,
    /// Pairs with a side of too many tokens.
    pub too_long: FaultyPairs,
    /// Pairs whose sides differ too much in length.
    pub ratio: FaultyPairs,
}

impl PairCounts {
    /// The pairs of a fault.
    pub fn of(&self, fault: PairFault) -> &FaultyPairs {
        match fault {
            PairFault::EmptySource => &self.empty_source,
            PairFault::EmptyTarget => &self.empty_target,
            PairFault::TooLong => &self.too_long,
            PairFault::Ratio => &self.ratio,
        }
    }

    /// Counts pair `number` of the input, and says whether it is among those listed.
    pub(crate) fn add(&mut self, fault: PairFault, number: u64) -> bool {
        let pairs = match fault {
            PairFault::EmptySource => &mut self.empty_source,
            PairFault::EmptyTarget => &mut self.empty_target,
            PairFault::TooLong => &mut self.too_long,
            PairFault::Ratio => &mut self.ratio,
        };
        pairs.count += 1;
        let listed = pairs.first.len() < FaultyPairs::LISTED;
        if listed {
            pairs.first.push(number);
        }
        listed
    }
}
