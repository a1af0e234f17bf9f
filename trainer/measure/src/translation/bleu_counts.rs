use std::iter::Sum;
use std::ops::{Add, AddAssign};

use schemars::JsonSchema;
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

/// A [`Smoothing`] without its number, by sacrebleu's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SmoothingMethod {
    /// 1/2, 1/4, .. matches for the first, second, .. order without a match.
    #[default]
    Exp,
    /// This number of matches instead of 0; 0.1 as a rule.
    Floor,
    /// This number added to matches and n-grams of each order but the first; 1 as a rule.
    AddK,
    /// None: without a match of some order the score is 0.
    None,
}

impl SmoothingMethod {
    /// Whether it has a number.
    pub fn has_value(self) -> bool {
        matches!(self, Self::Floor | Self::AddK)
    }

    /// With its number, sacrebleu's default where none is given; of methods without one it is left out.
    pub fn with(self, value: Option<f64>) -> Smoothing {
        match self {
            Self::Exp => Smoothing::Exponential,
            Self::Floor => value.map_or(Smoothing::DEFAULT_FLOOR, Smoothing::Floor),
            Self::AddK => value.map_or(Smoothing::DEFAULT_ADD_K, Smoothing::AddK),
            Self::None => Smoothing::None,
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

#[cfg(test)]
mod tests {
    use super::super::Tokenizer;
    use super::*;

    /// As its command line and its signatures have them.
    #[test]
    fn methods_and_tokenisers_have_the_names_of_sacrebleu() {
        for (name, expected, value) in [
            ("exp", Smoothing::Exponential, None),
            ("floor", Smoothing::DEFAULT_FLOOR, Some(Smoothing::Floor(0.5))),
            ("add-k", Smoothing::DEFAULT_ADD_K, Some(Smoothing::AddK(0.5))),
            ("none", Smoothing::None, None),
        ] {
            let method: SmoothingMethod = serde_json::from_value(name.into()).unwrap();
            assert_eq!((method.with(None), method.has_value()), (expected, value.is_some()));
            assert_eq!(method.with(Some(0.5)), value.unwrap_or(expected));
            assert!(expected.signature().starts_with(name));
        }
        for tokenizer in
            [Tokenizer::None, Tokenizer::Mteval13a, Tokenizer::International, Tokenizer::Character]
        {
            assert_eq!(serde_json::to_value(tokenizer).unwrap(), tokenizer.name());
        }
    }
}
