use segue_data_error::DataError;
use segue_random::{Purpose, Stream};

/// Share of segments that are drawn around the whole length (AWD-LSTM's and the PyTorch reference's `varlen`).
const WHOLE_SHARE: f64 = 0.95;
/// Standard deviation of a drawn length, in tokens.
const LENGTH_STD: f64 = 5.0;
/// Shortest drawn segment.
const SHORTEST: usize = 5;

/// How long the segments of a job are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    /// Tokens a lane yields per step, at most.
    pub longest: usize,
    /// Tokens before them that are read again.
    pub ext_len: usize,
    /// Draw the length of each step with this seed.
    pub varlen: Option<u64>,
}

impl Segments {
    /// Segments of one length, without further context.
    pub fn fixed(segment: usize) -> Self {
        Self { longest: segment, ext_len: 0, varlen: None }
    }

    /// Length of the segments of a step: the same for all lanes, so that they stay of one shape.
    pub fn length(&self, step: u64) -> usize {
        let Some(seed) = self.varlen else { return self.longest };
        let draws = Stream::new(seed, Purpose::SegmentLength, &[step]);
        let mean = if draws.uniform(0) < WHOLE_SHARE { self.longest } else { self.longest / 2 };
        // Number 1 draws from the uniforms 2 and 3.
        let drawn = (mean as f64 + LENGTH_STD * draws.normal(1)).round();
        (drawn.max(0.0) as usize).clamp(SHORTEST.min(self.longest), self.longest)
    }

    pub(super) fn check(&self, lanes: usize) -> Result<(), DataError> {
        if lanes == 0 || self.longest == 0 {
            return Err(DataError::Usage("lanes and segment must be at least 1".into()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_lengths_are_mostly_whole_sometimes_half_and_never_out_of_range() {
        let segments = Segments { longest: 100, ext_len: 0, varlen: Some(3) };
        let lengths: Vec<usize> = (1..=20_000).map(|step| segments.length(step)).collect();
        assert!(lengths.iter().all(|l| (5..=100).contains(l)));
        let half = lengths.iter().filter(|l| **l < 75).count() as f64 / lengths.len() as f64;
        // Five standard deviations of 20,000 draws.
        assert!((half - 0.05).abs() < 5.0 * (0.05_f64 * 0.95 / 20_000.0).sqrt(), "{half}");
        let short: Vec<f64> = lengths.iter().filter(|l| **l < 75).map(|l| *l as f64).collect();
        let mean = short.iter().sum::<f64>() / short.len() as f64;
        let std = (short.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / short.len() as f64).sqrt();
        assert!((mean - 50.0).abs() < 1.0 && (std - 5.0).abs() < 0.6, "{mean} {std}");
        assert_eq!(segments.length(7), segments.length(7));
        assert_eq!(Segments { longest: 3, ..segments }.length(1), 3);
    }
}
