/// What an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One of the labels.
    Classification,
    /// A number.
    Regression,
    /// One of the example's own sequences.
    Choice,
    /// A span of the sequence, or none.
    Span,
    /// A label for each word.
    Tagging,
    /// How relevant a document is to a query; learnt from pairs, the more relevant document first.
    Ranking,
}

/// One sequence as a model reads it, not padded. Its last token is `<cls>`, but where a document is
/// ranked: a query and a document have no symbols beside them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sequence {
    /// Token ids.
    pub ids: Vec<u32>,
    /// Segment of each: 0 the first text, 1 the second, 2 `<cls>`.
    pub segments: Vec<u8>,
    /// Of spans: whether no answer can be at each position. Empty elsewhere.
    pub outside: Vec<bool>,
    /// Whether tokens of its texts did not fit.
    pub is_cut: bool,
}

/// What is right.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// Not told, as in published test files.
    Unknown,
    /// Number of the label.
    Class(u32),
    /// The number.
    Number(f64),
    /// Number of the right sequence.
    Option(u32),
    /// First and last position of the answer; of an impossible question both are that of `<cls>`.
    Span {
        /// First position.
        start: u32,
        /// Last position.
        end: u32,
        /// Whether there is no answer.
        impossible: bool,
    },
    /// Label of each position; none for positions that do not begin a word.
    Tags(Vec<Option<u32>>),
}

/// What is learnt from, or answered, as one.
#[derive(Debug, Clone, PartialEq)]
pub struct Example {
    /// One, or one for each option of a choice.
    pub sequences: Vec<Sequence>,
    /// What is right.
    pub target: Target,
}

impl Example {
    /// Tokens of its longest sequence.
    pub fn width(&self) -> usize {
        self.sequences.iter().map(|sequence| sequence.ids.len()).max().unwrap_or(0)
    }
}
