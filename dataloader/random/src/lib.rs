//! Randomness as a function: every draw is a hash of (seed, purpose, counters). Nothing random has
//! state, so nothing random is saved, and nothing is keyed by rank.

/// What a stream of random numbers is for. Streams of different purposes never meet.
#[derive(Debug, Clone, Copy)]
pub enum Purpose {
    /// Initial weights; counter: hash of the parameter's name.
    Weights = 1,
    /// Dropout masks and draws inside a loss; counters: step, micro-step.
    Dropout = 2,
    /// Sampled text; counter: the text's number where several are written at once.
    Sampling = 3,
    /// Inputs of benchmarks.
    Bench = 4,
    /// Length of a step's segments; counter: step.
    SegmentLength = 5,
    /// Where a lane begins; counters: epoch, lane; none for what all lanes are moved by.
    Roll = 6,
    /// Order of sentences; counter: epoch.
    Sentences = 7,
    /// Where segment A ends and B begins; counters: lane, pass, offset.
    Pairs = 8,
    /// Which tokens are targets; counters: lane, pass, offset.
    Spans = 9,
    /// Order in which they are predicted; counters: lane, pass, offset.
    Order = 10,
    /// What becomes of corrupted tokens; counters: lane, pass, offset.
    Corruption = 11,
    /// Order of examples; counter: pass.
    Examples = 12,
    /// Order of the batches of a window of examples; counter: window.
    ExampleBatches = 13,
    /// Which task of several a step is of; counter: step.
    Mixture = 14,
    /// Less relevant documents that a document is compared with; counters: query, document.
    Negatives = 15,
    /// Data that is drawn, not read; counters: source, batch, lane, or use, number.
    Synthetic = 16,
    /// Settings that a study proposes; counters: use, trial.
    Tuning = 17,
    /// Lanes that forget what they carry; counters: step, lane.
    Forgetting = 24,
    /// Positions that an evaluation looks at; counter: which protocol.
    Evaluation = 20,
    /// What befalls a simulated job.
    Simulation = 21,
    /// Masks of an evaluation with dropout; counters: pass, group of lanes, segment.
    MonteCarlo = 22,
    /// Walks over a graph and the contexts they give; counters: source, number.
    Contexts = 30,
    /// Which nodes are trained and tested on.
    NodeSplit = 31,
    /// Draws of what a learner makes of data before its first step; counters: round, micro-step.
    Preparation = 32,
    /// Order of sentence pairs of one length, which says what stands together in a batch.
    PairOrder = 33,
    /// Order of the batches of sentence pairs; counter: epoch.
    PairBatches = 34,
    /// Which images a learner knows the labels of, and which are held out; counter: class, or use.
    LabelledImages = 40,
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

/// The numbers of one stream, taken one after the other.
#[derive(Debug, Clone)]
pub struct Draws {
    stream: Stream,
    taken: u64,
}

impl Draws {
    /// The draws of a purpose and its counters, from the first on.
    pub fn new(seed: u64, purpose: Purpose, counters: &[u64]) -> Self {
        Self { stream: Stream::new(seed, purpose, counters), taken: 0 }
    }

    fn next(&mut self) -> u64 {
        self.taken += 1;
        self.taken - 1
    }

    /// Uniform in (0, 1).
    pub fn uniform(&mut self) -> f64 {
        let index = self.next();
        self.stream.uniform(index)
    }

    /// Uniform in `0..n`; 0 where `n` is 0. A number is more likely than another by less than `n / 2^64`.
    pub fn below(&mut self, n: u64) -> u64 {
        let index = self.next();
        ((u128::from(self.stream.bits(index)) * u128::from(n)) >> 64) as u64
    }

    /// Brings things in a random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for last in (1..things.len()).rev() {
            let other = self.below(last as u64 + 1) as usize;
            things.swap(last, other);
        }
    }
}

/// A random order of `0..n` that is computed, not stored: a Feistel network over the smallest even number of
/// bits that holds `n`, walked until it lands inside (Black and Rogaway 2002, cycle walking).
#[derive(Debug, Clone, Copy)]
pub struct Permutation {
    n: u64,
    half_bits: u32,
    stream: Stream,
}

impl Permutation {
    const ROUNDS: u64 = 6;

    /// The order of `n` things of a purpose and its counters.
    pub fn new(n: u64, seed: u64, purpose: Purpose, counters: &[u64]) -> Self {
        let bits = u64::BITS - n.saturating_sub(1).leading_zeros();
        Self { n, half_bits: bits.div_ceil(2).max(1), stream: Stream::new(seed, purpose, counters) }
    }

    /// What stands at `place` (below `n`).
    pub fn at(&self, place: u64) -> u64 {
        let mut value = place;
        loop {
            value = self.scramble(value);
            if value < self.n {
                return value;
            }
        }
    }

    /// A bijection of `2 * half_bits` bits.
    fn scramble(&self, value: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for round in 0..Self::ROUNDS {
            let next = left ^ (mix(self.stream.bits(round) ^ right) & mask);
            (left, right) = (right, next);
        }
        left << self.half_bits | right
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
    fn every_permutation_holds_each_number_once_and_they_differ() {
        for n in [1, 2, 3, 17, 256, 1000] {
            let order: Vec<u64> =
                (0..n).map(|i| Permutation::new(n, 5, Purpose::Sentences, &[1]).at(i)).collect();
            let mut sorted = order.clone();
            sorted.sort();
            assert_eq!(sorted, (0..n).collect::<Vec<_>>());
        }
        let first = |epoch| Permutation::new(1000, 5, Purpose::Sentences, &[epoch]).at(0);
        let firsts: Vec<f64> = (0..4000).map(|epoch| first(epoch) as f64).collect();
        let mean = firsts.iter().sum::<f64>() / firsts.len() as f64;
        // Five standard deviations of the mean of 4000 uniform draws.
        assert!((mean - 499.5).abs() < 5.0 * 1000.0 / (12.0_f64 * 4000.0).sqrt(), "{mean}");
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
