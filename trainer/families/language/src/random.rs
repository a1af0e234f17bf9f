//! Batches of random tokens, in the shapes of a run: benchmarks train on them.

use segue_configs::{ModelConfig, OwnSections, TrainConfig};
use segue_dataloader::sections::{DataConfig, DataOrder, PairsConfig, SegmentConfig, targets_per_lane};
use segue_random::{Purpose, Stream};
use tch::{Kind, Tensor};

use super::objective::{Batch, Pairs};

/// How often each word of a vocabulary is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frequencies {
    /// All alike.
    Uniform,
    /// Word `k` with a probability in proportion to 1/(k + 1), as words of text have it, the most frequent first (Zipf 1949).
    Zipf,
}

/// Random tokens for one micro-step of a rank: what a benchmark trains on.
pub fn random_batch(
    train: &TrainConfig,
    model: &ModelConfig,
    own: &OwnSections,
    words: Frequencies,
    rank: usize,
    step: u64,
) -> Batch {
    let stream = Stream::new(train.seed, Purpose::Bench, &[rank as u64, step]);
    let lanes = train.micro_batch as i64;
    let (segment, targets) = (own.get::<SegmentConfig>().segment as i64, targets_per_lane(own) as i64);
    let draw = |number: u64, width: i64, below: usize| {
        let value = |i: i64| (stream.bits(number << 32 | i as u64) % below as u64) as i64;
        let values: Vec<i64> = (0..lanes * width).map(value).collect();
        Tensor::from_slice(&values).view([lanes, width])
    };
    let vocabulary = model.vocab_size();
    let draw_words = |number: u64, width: i64| match words {
        Frequencies::Uniform => draw(number, width, vocabulary),
        Frequencies::Zipf => zipf(&draw(number, width, UNIT), vocabulary),
    };
    let mut batch = Batch::new(draw_words(0, segment), draw_words(1, targets));
    if own.get::<DataConfig>().order == DataOrder::Pairs {
        let reused = model.reuse_len().unwrap_or(0) as i64;
        let reversed = if own.get::<PairsConfig>().bidirectional { lanes / 2 } else { 0 };
        batch.pairs = Some(random_pairs(reused, targets, reversed, draw(2, segment, 1 << 40)));
    }
    batch
}

/// Whole numbers below it are divided by it for numbers from 0 to 1.
const UNIT: usize = 1 << 53;

/// The words below which a fraction `numbers / UNIT` of all draws lies: the inverse of ln(k + 1) / ln(words + 1).
fn zipf(numbers: &Tensor, words: usize) -> Tensor {
    let fraction = numbers.to_kind(Kind::Double) / UNIT as f64;
    let largest = words as i64 - 1;
    ((fraction * (words as f64).ln_1p()).expm1()).to_kind(Kind::Int64).clamp(0, largest)
}

/// Targets at random places, half of them in the `half` positions that are reused, each part in a random order. `numbers`:
/// `[lanes, segment]`.
fn random_pairs(half: i64, targets: i64, reversed: i64, numbers: Tensor) -> Pairs {
    let (lanes, segment) = (numbers.size()[0], numbers.size()[1]);
    let (mut ranks, mut positions) = (Vec::new(), Vec::new());
    let whole = (Kind::Int64, numbers.device());
    for (start, end, count) in [(0, half, targets - targets / 2), (half, segment, targets / 2)] {
        let plain = if start == 0 { 0 } else { half + 1 };
        // The smallest numbers are the targets, in the order of their size.
        let order = numbers.narrow(1, start, end - start).argsort(1, false);
        let chosen = order.narrow(1, 0, count);
        let rank = (Tensor::arange(count, whole) + plain + 1).expand([lanes, count], false);
        let all = Tensor::full([lanes, end - start], plain, whole);
        ranks.push(all.scatter(1, &chosen, &rank));
        positions.push(chosen.sort(1, false).0 + start);
    }
    let arange = Tensor::arange(segment, whole);
    Pairs {
        // B is the last quarter.
        segments: arange.ge(segment * 3 / 4).to_kind(Kind::Int64).expand([lanes, segment], false),
        ranks: Tensor::cat(&ranks, 1),
        positions: Tensor::cat(&positions, 1),
        weights: Tensor::ones([lanes, targets], (Kind::Float, numbers.device())),
        follows: Tensor::ones([lanes], whole),
        reversed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_zipfs_law_have_its_frequencies() {
        let (words, draws) = (1000, 100_000);
        let numbers: Vec<i64> = (0..draws).map(|i| (UNIT as i64 / draws) * i).collect();
        let drawn = zipf(&Tensor::from_slice(&numbers), words);
        assert_eq!((drawn.min().int64_value(&[]), drawn.max().int64_value(&[])), (0, words as i64 - 1));
        for word in [0i64, 1, 9, 500] {
            let found = drawn.eq(word).sum(Kind::Int64).int64_value(&[]) as f64 / draws as f64;
            // ln((k + 2)/(k + 1)) / ln(words + 1), to one draw at each end of the word's stretch.
            let expected = (1.0 / (word as f64 + 1.0)).ln_1p() / (words as f64).ln_1p();
            assert!(
                (found - expected).abs() <= 2.0 / draws as f64,
                "word {word}: {found} against {expected}"
            );
        }
    }
}
