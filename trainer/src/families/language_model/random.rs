//! Batches of random tokens, in the shapes of a run: benchmarks train on them.

use segue_configs::{Config, DataOrder};
use segue_random::{Purpose, Stream};
use tch::{Device, Kind, Tensor};

use super::objective::{Batch, Pairs};

/// Uniform random tokens for one micro-step of a rank: what a benchmark trains on.
pub fn random_batch(config: &Config, rank: usize, step: u64) -> Batch {
    let stream = Stream::new(config.train.seed, Purpose::Bench, &[rank as u64, step]);
    let lanes = config.train.micro_batch as i64;
    let (segment, targets) = (config.train.segment as i64, config.targets_per_lane() as i64);
    let draw = |number: u64, width: i64, below: usize| {
        let value = |i: i64| (stream.bits(number << 32 | i as u64) % below as u64) as i64;
        let values: Vec<i64> = (0..lanes * width).map(value).collect();
        Tensor::from_slice(&values).view([lanes, width])
    };
    let vocabulary = config.model.vocab_size();
    let mut batch = Batch::new(draw(0, segment, vocabulary), draw(1, targets, vocabulary));
    if config.data.order == DataOrder::Pairs {
        batch.pairs = Some(random_pairs(config, draw(2, segment, 1 << 40)));
    }
    batch
}

/// Targets at random places, half of them in the reused part, each part in a random order. `numbers`:
/// `[lanes, segment]`.
fn random_pairs(config: &Config, numbers: Tensor) -> Pairs {
    let (lanes, segment) = (config.train.micro_batch as i64, config.train.segment as i64);
    let half = config.model.reuse_len().unwrap_or(0) as i64;
    let targets = config.targets_per_lane() as i64;
    let (mut ranks, mut positions) = (Vec::new(), Vec::new());
    for (start, end, count) in [(0, half, targets - targets / 2), (half, segment, targets / 2)] {
        let plain = if start == 0 { 0 } else { half + 1 };
        // The smallest numbers are the targets, in the order of their size.
        let order = numbers.narrow(1, start, end - start).argsort(1, false);
        let chosen = order.narrow(1, 0, count);
        let rank =
            (Tensor::arange(count, (Kind::Int64, Device::Cpu)) + plain + 1).expand([lanes, count], false);
        let all = Tensor::full([lanes, end - start], plain, (Kind::Int64, Device::Cpu));
        ranks.push(all.scatter(1, &chosen, &rank));
        positions.push(chosen.sort(1, false).0 + start);
    }
    let arange = Tensor::arange(segment, (Kind::Int64, Device::Cpu));
    Pairs {
        // B is the last quarter.
        segments: arange.ge(segment * 3 / 4).to_kind(Kind::Int64).expand([lanes, segment], false),
        ranks: Tensor::cat(&ranks, 1),
        positions: Tensor::cat(&positions, 1),
        weights: Tensor::ones([lanes, targets], (Kind::Float, Device::Cpu)),
        follows: Tensor::ones([lanes], (Kind::Int64, Device::Cpu)),
        reversed: if config.pairs.bidirectional { lanes / 2 } else { 0 },
    }
}
