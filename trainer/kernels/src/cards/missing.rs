//! Kernels that cards have not.

use std::fmt;

use super::source::Source;

/// Sources that cards have no kernels of, for one reason.
#[derive(Debug, PartialEq, Eq)]
pub struct Missing {
    /// The card, where there is one, and what is wrong.
    pub why: String,
    /// Their names.
    pub sources: Vec<&'static str>,
}

impl Missing {
    /// By reason, those of `sources` that were wanted so far.
    pub fn of(sources: impl Iterator<Item = &'static Source>) -> Vec<Self> {
        let mut found: Vec<Self> = Vec::new();
        for source in sources {
            for why in source.failures() {
                match found.iter_mut().find(|missing| missing.why == why) {
                    Some(missing) => missing.sources.push(source.name()),
                    None => found.push(Self { why, sources: vec![source.name()] }),
                }
            }
        }
        found
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { why, sources } = self;
        write!(f, "slower operations in the place of Segue's kernels {}: {why}", sources.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind, Tensor};

    use super::*;

    #[test]
    fn sources_that_no_card_wanted_are_not_missing() {
        static SOURCE: Source = Source::new("nothing", "");
        let x = Tensor::ones([1], (Kind::Float, Device::Cpu));
        assert!(SOURCE.kernels(&x).is_none() && !SOURCE.is_for(&x));
        assert_eq!(Missing::of([&SOURCE].into_iter()), []);
    }

    #[test]
    fn sources_are_told_with_their_reason() {
        let missing = Missing { why: "NVIDIA T4: too old".into(), sources: vec!["flash-64", "flash-128"] };
        let told =
            "slower operations in the place of Segue's kernels flash-64, flash-128: NVIDIA T4: too old";
        assert_eq!(missing.to_string(), told);
    }
}
