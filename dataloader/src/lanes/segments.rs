use crate::sections::SegmentConfig;
use segue_data_error::DataError;
use segue_random::{Purpose, Stream};

/// Share of segments that are drawn around the whole length by the PyTorch reference's `varlen`.
const WHOLE_SHARE: f64 = 0.95;
/// Standard deviation of its lengths, in tokens.
const LENGTH_STD: f64 = 5.0;
/// Shortest drawn segment.
const SHORTEST: usize = 5;

/// How long the segments of a job are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Segments {
    /// Tokens a lane yields per step, where lengths are not drawn.
    pub tokens: usize,
    /// Tokens before them that are read again.
    pub ext_len: usize,
    /// How the length of a step is drawn.
    pub lengths: Lengths,
    /// Whether what is left of an epoch is a shorter segment, rather than left out.
    pub rest: bool,
}

/// How the length of a step is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lengths {
    /// All steps have the same.
    Fixed,
    /// As Transformer-XL's PyTorch program does with `varlen`, but never longer than the whole length.
    Varlen {
        /// Of the draws.
        seed: u64,
    },
    /// As AWD-LSTM's program does (Merity et al. 2018, §5).
    Around {
        /// Fraction of steps whose lengths are around half of the whole one.
        half: f64,
        /// Standard deviation in tokens.
        spread: f64,
        /// Longest one; 0 for no limit.
        most: usize,
        /// Of the draws.
        seed: u64,
    },
}

impl Segments {
    /// Segments of one length, without further context.
    pub fn fixed(segment: usize) -> Self {
        Self { tokens: segment, ext_len: 0, lengths: Lengths::Fixed, rest: false }
    }

    /// As `[train]` says, with lengths that are drawn from `seed`.
    pub fn of(train: &SegmentConfig, seed: u64) -> Self {
        let lengths = match (train.varlen, train.draws_lengths()) {
            (true, _) => Lengths::Varlen { seed },
            (_, true) => Lengths::Around {
                half: train.segment_half,
                spread: train.segment_spread,
                most: train.segment_most,
                seed,
            },
            (false, false) => Lengths::Fixed,
        };
        Self { tokens: train.segment, ext_len: train.ext_len, lengths, rest: train.segment_rest }
    }

    /// Length of the segments of a step: the same for all lanes, so that they stay of one shape.
    pub fn length(&self, step: u64) -> usize {
        let draws = |seed| Stream::new(seed, Purpose::SegmentLength, &[step]);
        match self.lengths {
            Lengths::Fixed => self.tokens,
            Lengths::Varlen { seed } => {
                let draws = draws(seed);
                let mean = if draws.uniform(0) < WHOLE_SHARE { self.tokens } else { self.tokens / 2 };
                // Number 1 draws from the uniforms 2 and 3.
                let drawn = (mean as f64 + LENGTH_STD * draws.normal(1)).round();
                (drawn.max(0.0) as usize).clamp(SHORTEST.min(self.tokens), self.tokens)
            }
            Lengths::Around { half, spread, most, seed } => {
                let draws = draws(seed);
                let whole = self.tokens as f64;
                let mean = if draws.uniform(0) < half { whole / 2.0 } else { whole };
                let drawn = (mean + spread * draws.normal(1)).max(0.0) as usize;
                drawn.max(SHORTEST).min(if most == 0 { usize::MAX } else { most })
            }
        }
    }

    pub(super) fn check(&self, lanes: usize) -> Result<(), DataError> {
        if lanes == 0 || self.tokens == 0 {
            return Err(DataError::Usage("lanes and segment must be at least 1".into()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(tokens: usize, lengths: Lengths, steps: u64) -> Vec<usize> {
        let segments = Segments { lengths, ..Segments::fixed(tokens) };
        (1..=steps).map(|step| segments.length(step)).collect()
    }

    #[test]
    fn drawn_lengths_are_mostly_whole_sometimes_half_and_never_out_of_range() {
        let varlen = Lengths::Varlen { seed: 3 };
        let lengths_of = lengths(100, varlen, 20_000);
        assert!(lengths_of.iter().all(|l| (5..=100).contains(l)));
        let half = lengths_of.iter().filter(|l| **l < 75).count() as f64 / lengths_of.len() as f64;
        // Five standard deviations of 20,000 draws.
        assert!((half - 0.05).abs() < 5.0 * (0.05_f64 * 0.95 / 20_000.0).sqrt(), "{half}");
        let short: Vec<f64> = lengths_of.iter().filter(|l| **l < 75).map(|l| *l as f64).collect();
        let mean = short.iter().sum::<f64>() / short.len() as f64;
        let std = (short.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / short.len() as f64).sqrt();
        assert!((mean - 50.0).abs() < 1.0 && (std - 5.0).abs() < 0.6, "{mean} {std}");
        assert_eq!(lengths(100, varlen, 7), lengths_of[..7]);
        assert_eq!(lengths(3, varlen, 1), [3]);
    }

    /// Merity et al. 2018: 70 with probability 0.95, else 35, with a standard deviation of 5, cut off to whole tokens.
    /// Row S12.
    #[test]
    fn lengths_are_around_70_in_95_steps_of_100_and_around_35_in_5() {
        let of = |seed, most| lengths(70, Lengths::Around { half: 0.05, spread: 5.0, most, seed }, 10_000);
        for seed in 1..=3 {
            let drawn = of(seed, 0);
            let (short, long): (Vec<f64>, Vec<f64>) =
                drawn.iter().map(|length| *length as f64).partition(|length| *length < 52.5);
            let share = short.len() as f64 / drawn.len() as f64;
            assert!((share - 0.05).abs() < 0.01, "{share}");
            for (group, mean) in [(&short, 35.0), (&long, 70.0)] {
                let count = group.len() as f64;
                let found = group.iter().sum::<f64>() / count;
                let deviation = (group.iter().map(|l| (l - found).powi(2)).sum::<f64>() / count).sqrt();
                // Cutting off takes half a token of the mean; five standard deviations of the rest.
                assert!((found - (mean - 0.5)).abs() < 25.0 / count.sqrt(), "{found} of {mean}");
                assert!((deviation - 5.0).abs() < 0.6, "{deviation}");
            }
            assert!(drawn.iter().all(|length| *length >= 5) && drawn.iter().any(|length| *length > 80));
            let limited: Vec<usize> = drawn.iter().map(|length| *length.min(&80)).collect();
            assert_eq!(of(seed, 80), limited);
        }
        assert!(lengths(6, Lengths::Around { half: 0.0, spread: 5.0, most: 0, seed: 1 }, 1000).contains(&5));
    }
}
