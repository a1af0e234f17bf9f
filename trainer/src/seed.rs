//! Randomness as a function: every draw is a hash of (seed, purpose, counters). Nothing random has
//! state, so nothing random is saved, and nothing is keyed by rank.

/// What a stream of random numbers is for. Streams of different purposes never meet.
#[derive(Debug, Clone, Copy)]
pub enum Purpose {
    /// Initial weights; counter: hash of the parameter's name.
    Weights = 1,
    /// Dropout masks; counters: step, micro-step.
    Dropout = 2,
    /// Sampled text; counter: position.
    Sampling = 3,
    /// Inputs of benchmarks.
    Bench = 4,
}

/// Finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection with full avalanche.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The seed of one stream.
pub fn derive(seed: u64, purpose: Purpose, counters: &[u64]) -> u64 {
    let start = mix(seed.wrapping_add(GOLDEN)) ^ mix(purpose as u64);
    counters.iter().fold(start, |state, counter| mix(state.wrapping_add(GOLDEN) ^ mix(*counter)))
}

/// The numbers of one stream, addressed by index (SplitMix64 in counter mode).
#[derive(Debug, Clone, Copy)]
pub struct Stream {
    state: u64,
}

impl Stream {
    /// The stream of a purpose and its counters.
    pub fn new(seed: u64, purpose: Purpose, counters: &[u64]) -> Self {
        Self { state: derive(seed, purpose, counters) }
    }

    /// Number `index` of the stream, all 64 bits uniform.
    pub fn bits(&self, index: u64) -> u64 {
        mix(self.state.wrapping_add(index.wrapping_add(1).wrapping_mul(GOLDEN)))
    }

    /// Uniform in (0, 1).
    pub fn uniform(&self, index: u64) -> f64 {
        ((self.bits(index) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Standard normal (Box and Muller), from uniforms `2 index` and `2 index + 1`.
    pub fn normal(&self, index: u64) -> f64 {
        let radius = (-2.0 * self.uniform(2 * index).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform(2 * index + 1)).cos()
    }
}

/// A name as a counter.
pub fn name_counter(name: &str) -> u64 {
    let hash = blake3::hash(name.as_bytes());
    u64::from_le_bytes(std::array::from_fn(|i| hash.as_bytes()[i]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_stream_has_unit_moments() {
        let stream = Stream::new(7, Purpose::Weights, &[3]);
        let n = 100_000;
        let draws: Vec<f64> = (0..n).map(|i| stream.normal(i)).collect();
        let mean = draws.iter().sum::<f64>() / n as f64;
        let variance = draws.iter().map(|x| x * x).sum::<f64>() / n as f64 - mean * mean;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    }

    #[test]
    fn streams_depend_on_every_counter() {
        let base = derive(1, Purpose::Dropout, &[10, 2]);
        for other in [
            derive(2, Purpose::Dropout, &[10, 2]),
            derive(1, Purpose::Sampling, &[10, 2]),
            derive(1, Purpose::Dropout, &[11, 2]),
            derive(1, Purpose::Dropout, &[10, 3]),
            derive(1, Purpose::Dropout, &[2, 10]),
        ] {
            assert_ne!(base, other);
        }
    }
}
