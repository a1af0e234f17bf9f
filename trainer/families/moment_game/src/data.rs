//! The data: Gaussian vectors whose moments are known.

use std::ops::Range;

use segue_data_error::DataError;
use segue_dataloader::Reader;
use segue_random::{Purpose, Stream};
use tch::{Device, Kind, Tensor};

use super::config::MomentGameConfig;

/// Draws the vectors of one rank's lanes. A vector is a function of (seed, source, batch, lane): nothing to store, nothing
/// to resume, and no rank to depend on.
pub struct VectorReader {
    /// Size, mean and correlation of the vectors.
    pub config: MomentGameConfig,
    /// Seed of the run.
    pub seed: u64,
    /// Number of the source. Two sources share no vector.
    pub source: usize,
    /// Lanes of this rank, numbered over the job.
    pub lanes: Range<usize>,
}

impl Reader for VectorReader {
    /// `[lanes, size]`, row by row.
    type Batch = Vec<f32>;

    fn read(&mut self, nth: u64) -> Result<Vec<f32>, DataError> {
        Ok(self.lanes.clone().flat_map(|lane| self.vector(nth, lane)).collect())
    }
}

impl VectorReader {
    /// Vector `lane` of batch `nth`: `x_i = μ + d_i` with `d_1 = ε_1` and `d_i = ρ d_(i−1) + √(1 − ρ²) ε_i`, ε standard
    /// normal.
    fn vector(&self, nth: u64, lane: usize) -> Vec<f32> {
        let draws = Stream::new(self.seed, Purpose::Synthetic, &[self.source as u64, nth, lane as u64]);
        let MomentGameConfig { size, mean, correlation, .. } = self.config;
        let mut deviation = draws.normal(0);
        let next = |i| {
            if i > 0 {
                deviation = correlation * deviation + (1.0 - correlation.powi(2)).sqrt() * draws.normal(i);
            }
            (mean + deviation) as f32
        };
        (0..size as u64).map(next).collect()
    }
}

/// Covariance Σ of the vectors, `Σ_ij = ρ^|i − j|`: `[size, size]`, f64.
pub fn covariance(config: &MomentGameConfig) -> Tensor {
    let places = Tensor::arange(config.size as i64, (Kind::Double, Device::Cpu));
    Tensor::pow_scalar(config.correlation, &(places.unsqueeze(1) - places).abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Moments of 40,000 vectors against the formulas, written out.
    #[test]
    fn vectors_have_the_moments_they_are_said_to_have() {
        const VECTORS: usize = 40_000;
        let config = MomentGameConfig { size: 3, mean: -2.0, correlation: -0.6, ..Default::default() };
        let mut reader = VectorReader { config: config.clone(), seed: 7, source: 1, lanes: 0..VECTORS };
        let x = Tensor::from_slice(&reader.read(3).unwrap()).view([VECTORS as i64, 3]).to_kind(Kind::Double);
        let deviation = x + 2.0;
        let moments = deviation.tr().matmul(&deviation) / VECTORS as f64;
        let expected = [[1.0, -0.6, 0.36], [-0.6, 1.0, -0.6], [0.36, -0.6, 1.0]];
        // Five standard errors of a mean with variance 1, and of a mean of products, whose variance is at most 2.
        let (of_mean, of_product) = (5.0 / (VECTORS as f64).sqrt(), 5.0 * (2.0 / VECTORS as f64).sqrt());
        for (i, row) in expected.into_iter().enumerate() {
            let i = i as i64;
            assert!(deviation.select(1, i).mean(Kind::Double).double_value(&[]).abs() < of_mean);
            for (j, value) in row.into_iter().enumerate() {
                let j = j as i64;
                assert!((moments.double_value(&[i, j]) - value).abs() < of_product, "{i} {j}");
                assert!((covariance(&config).double_value(&[i, j]) - value).abs() < 1e-12, "{i} {j}");
            }
        }
    }

    #[test]
    fn a_vector_depends_on_source_batch_and_lane_and_on_no_rank() {
        let read = |source, nth, lanes| {
            VectorReader { config: MomentGameConfig::default(), seed: 7, source, lanes }.read(nth).unwrap()
        };
        let whole = read(0, 5, 0..4);
        assert_eq!([read(0, 5, 0..1), read(0, 5, 1..4)].concat(), whole);
        let all = [whole, read(0, 6, 0..4), read(1, 5, 0..4)].concat();
        let mut bits: Vec<u32> = all.iter().map(|x| x.to_bits()).collect();
        bits.sort();
        bits.dedup();
        assert_eq!(bits.len(), 3 * 4 * 3);
    }
}
