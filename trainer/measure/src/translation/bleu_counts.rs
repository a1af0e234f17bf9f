use std::iter::Sum;
use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

use super::ngrams::add_by_order;

/// Treatment of orders without a match, whose precision has no logarithm (Chen and Cherry 2014, §3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Smoothing {
    /// None: the score is 0.
    None,
    /// Method 1: this number of matches instead of 0.
    Floor(f64),
    /// Method 2: this number added to matches and n-grams of each order but the first.
    AddK(f64),
    /// Method 3, as in `mteval-v13a.pl`: 1/2, 1/4, ... matches for the first, second, ... order without a match.
    Exponential,
}

impl Smoothing {
    /// Method 1 with sacrebleu's default, that of Chen and Cherry 2014.
    pub const DEFAULT_FLOOR: Self = Self::Floor(0.1);
    /// Method 2 with sacrebleu's default.
    pub const DEFAULT_ADD_K: Self = Self::AddK(1.0);

    pub(super) fn signature(self) -> String {
        match self {
            Self::None => "none".to_string(),
            Self::Floor(value) => format!("floor[{value:.2}]"),
            Self::AddK(value) => format!("add-k[{value:.2}]"),
            Self::Exponential => "exp".to_string(),
        }
    }
}

/// Counts that BLEU is computed from. They add up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BleuCounts {
    /// Clipped matches, by order from 1.
    pub correct: Vec<u64>,
    /// N-grams of the hypotheses, by order from 1.
    pub total: Vec<u64>,
    /// Tokens of the hypotheses.
    pub hypothesis_length: u64,
    /// Tokens of the references; of several, those of the closest in length, the shorter of two as close.
    pub reference_length: u64,
}

impl AddAssign for BleuCounts {
    fn add_assign(&mut self, other: Self) {
        add_by_order(&mut self.correct, &other.correct);
        add_by_order(&mut self.total, &other.total);
        self.hypothesis_length += other.hypothesis_length;
        self.reference_length += other.reference_length;
    }
}

impl Add for BleuCounts {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl Sum for BleuCounts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), Add::add)
    }
}
