//! What the cells of a sweep are compared by.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Serialize, Serializer};

/// Measures that are fractions of one; tables have them in percent.
const FRACTIONS: [&str; 3] = ["accuracy", "string_accuracy", "recall_at_k"];
/// Per cent of one.
const PERCENT: f64 = 100.0;

/// What the cells of a sweep are compared by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compared {
    /// Lower is better.
    Perplexity,
    /// A fraction of one; higher is better.
    Accuracy,
    /// The metric of a task.
    Metric {
        /// Its name.
        name: String,
        /// Whether higher is better.
        higher: bool,
        /// Whether it is a fraction of one.
        fraction: bool,
    },
}

impl Serialize for Compared {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl Compared {
    /// Of runs with these measures of their own: accuracies where they have those and no perplexity.
    pub fn of<'a>(measures: impl Iterator<Item = &'a BTreeMap<String, f64>> + Clone) -> Self {
        let has = |name: &str| measures.clone().any(|measures| measures.contains_key(name));
        if has("accuracy") && !has("ppl") { Self::Accuracy } else { Self::Perplexity }
    }

    /// Its name in files.
    pub fn name(&self) -> &str {
        match self {
            Self::Perplexity => "perplexity",
            Self::Accuracy => "accuracy",
            Self::Metric { name, .. } => name,
        }
    }

    /// Its name, of several, where a difference of them is told.
    pub fn of_differences(&self) -> String {
        match self {
            Self::Perplexity => "perplexities".into(),
            Self::Accuracy => "accuracies, in points,".into(),
            Self::Metric { name, fraction: true, .. } => format!("{name}, in points,"),
            Self::Metric { name, .. } => name.clone(),
        }
    }

    /// Label of an axis, with its unit.
    pub fn axis(&self) -> String {
        match self {
            Self::Perplexity => "validation perplexity".into(),
            Self::Accuracy => "accuracy, %".into(),
            Self::Metric { name, fraction: true, .. } => format!("{name}, %"),
            Self::Metric { name, .. } => name.clone(),
        }
    }

    /// Whether the higher of two values is the better one.
    pub fn higher_is_better(&self) -> bool {
        match self {
            Self::Perplexity => false,
            Self::Accuracy => true,
            Self::Metric { higher, .. } => *higher,
        }
    }

    /// Where the better one lies, and where the worse.
    pub fn sides(&self) -> [&'static str; 2] {
        if self.higher_is_better() { ["higher", "lower"] } else { ["lower", "higher"] }
    }

    /// What a value is multiplied by to be shown.
    pub fn scale(&self) -> f64 {
        match self {
            Self::Accuracy | Self::Metric { fraction: true, .. } => PERCENT,
            Self::Perplexity | Self::Metric { .. } => 1.0,
        }
    }

    /// How much better `one` is than `other`; below 0 where it is worse.
    pub fn gain(&self, one: f64, other: f64) -> f64 {
        if self.higher_is_better() { one - other } else { other - one }
    }
}

/// Head and scale of a measure's column: fractions of one stand there in percent, those that `fractions` names too.
pub fn column(measure: &str, fractions: &BTreeSet<&String>) -> (String, f64) {
    let own = measure.split(' ').next().unwrap_or(measure);
    if FRACTIONS.contains(&own) || fractions.iter().any(|name| *name == measure) {
        (format!("{measure}, %"), PERCENT)
    } else {
        (measure.to_string(), 1.0)
    }
}
