//! What the cells of a sweep are compared by.

use std::collections::BTreeMap;

use serde::Serialize;

/// Measures that are fractions of one; tables have them in percent.
const FRACTIONS: [&str; 3] = ["accuracy", "string_accuracy", "recall_at_k"];
/// Per cent of one.
const PERCENT: f64 = 100.0;

/// What the cells of a sweep are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Compared {
    /// Lower is better.
    Perplexity,
    /// A fraction of one; higher is better.
    Accuracy,
}

impl Compared {
    /// Of runs with these measures of their own: accuracies where they have those and no perplexity.
    pub fn of<'a>(measures: impl Iterator<Item = &'a BTreeMap<String, f64>> + Clone) -> Self {
        let has = |name: &str| measures.clone().any(|measures| measures.contains_key(name));
        if has("accuracy") && !has("ppl") { Self::Accuracy } else { Self::Perplexity }
    }

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Perplexity => "perplexity",
            Self::Accuracy => "accuracy",
        }
    }

    /// Its name, of several, where a difference of them is told.
    pub fn of_differences(self) -> &'static str {
        match self {
            Self::Perplexity => "perplexities",
            Self::Accuracy => "accuracies, in points,",
        }
    }

    /// Label of an axis, with its unit.
    pub fn axis(self) -> &'static str {
        match self {
            Self::Perplexity => "validation perplexity",
            Self::Accuracy => "accuracy, %",
        }
    }

    /// Where the better one lies, and where the worse.
    pub fn sides(self) -> [&'static str; 2] {
        match self {
            Self::Perplexity => ["lower", "higher"],
            Self::Accuracy => ["higher", "lower"],
        }
    }

    /// What a value is multiplied by to be shown.
    pub fn scale(self) -> f64 {
        match self {
            Self::Perplexity => 1.0,
            Self::Accuracy => PERCENT,
        }
    }

    /// How much better `one` is than `other`; below 0 where it is worse.
    pub fn gain(self, one: f64, other: f64) -> f64 {
        match self {
            Self::Perplexity => other - one,
            Self::Accuracy => one - other,
        }
    }
}

/// Head and scale of a measure's column: fractions of one stand there in percent.
pub fn column(measure: &str) -> (String, f64) {
    let own = measure.split(' ').next().unwrap_or(measure);
    if FRACTIONS.contains(&own) { (format!("{measure}, %"), PERCENT) } else { (measure.to_string(), 1.0) }
}
