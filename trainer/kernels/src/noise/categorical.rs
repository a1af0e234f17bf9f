use std::sync::atomic::{AtomicI64, Ordering};

use tch::{Kind, Tensor};

use super::{Hashes, Noise};
use crate::TrainError;
use crate::libtorch::as_f32;
use crate::simd::{exp, vectorised};
use crate::threads;

/// Classes whose weights are added up by themselves, so that a draw adds up few one by one.
const BLOCK: usize = 256;
/// Sums side by side.
const LANES: usize = 16;
/// Below it a weight is zero.
const LEAST_EXPONENT: f32 = -87.0;
/// Stands for no class.
const NONE: i64 = -1;

impl Noise {
    /// One class for each row of `logits`, `[.., classes]`, with probabilities softmax(logits): `[..]`, i64. Nothing of it
    /// is in a graph.
    ///
    /// By the inverse of the distribution function at a uniform number of 52 bits, made of hashes 2i and 2i + 1 of row i:
    /// probabilities are off by less than 1e-6 of themselves. A class of probability zero, as with a logit of −∞ or of
    /// 87 below the largest, is never drawn.
    ///
    /// A row that has a NaN or +∞, or of which no class is possible, is [`TrainError::NoDistribution`].
    pub fn categorical(&self, logits: &Tensor) -> Result<Tensor, TrainError> {
        let hashes = self.hashes();
        let mut shape = logits.size();
        let Some(classes) = shape.pop() else {
            panic!("categorical wants [.., classes], got a single number")
        };
        let rows = shape.iter().product::<i64>() as usize;
        let drawn: Vec<AtomicI64> = (0..rows).map(|_| AtomicI64::new(NONE)).collect();
        if rows > 0 && classes > 0 {
            let below = below_the_largest(logits);
            // SAFETY: `below` was made here and has no other handle.
            draw_rows(unsafe { as_f32(&below) }, classes as usize, hashes, &drawn);
        }
        let drawn: Vec<i64> = drawn.into_iter().map(AtomicI64::into_inner).collect();
        if let Some(row) = drawn.iter().position(|&class| class == NONE) {
            return Err(TrainError::NoDistribution { row, classes });
        }
        Ok(Tensor::from_slice(&drawn).view(shape.as_slice()))
    }
}

/// Logits less the largest of their row, in f32; NaN in a row without a finite largest.
fn below_the_largest(logits: &Tensor) -> Tensor {
    let logits = logits.detach();
    (&logits - logits.amax([-1], true)).to_kind(Kind::Float).contiguous()
}

/// Draws a class for each row of `classes` logits.
fn draw_rows(below: &[f32], classes: usize, hashes: Hashes, drawn: &[AtomicI64]) {
    threads::for_each_part(drawn.len(), threads::PART.div_ceil(classes), |rows| {
        let (mut weights, mut sums) = (vec![0f32; classes], vec![0f64; classes.div_ceil(BLOCK)]);
        for row in rows {
            weigh(&below[row * classes..][..classes], &mut weights, &mut sums);
            if let Some(class) = class_at(uniform(hashes, row), &weights, &sums) {
                drawn[row].store(class as i64, Ordering::Relaxed);
            }
        }
    });
}

/// Uniform in (0, 1): the middle of one of 2^52 intervals, exact in f64.
fn uniform(hashes: Hashes, row: usize) -> f64 {
    const INTERVAL: f64 = 1.0 / (1u64 << 52) as f64;
    let bits = u64::from(hashes.at(2 * row)) << 32 | u64::from(hashes.at(2 * row + 1));
    ((bits >> 12) as f64 + 0.5) * INTERVAL
}

vectorised! {
    /// The weight of each class, and the sum of each block's.
    fn weigh(below: &[f32], weights: &mut [f32], sums: &mut [f64]) = weigh_plain;
}

#[inline(always)]
fn weigh_plain(below: &[f32], weights: &mut [f32], sums: &mut [f64]) {
    for (weight, below) in weights.iter_mut().zip(below) {
        *weight = if *below < LEAST_EXPONENT { 0.0 } else { exp(*below) };
    }
    for (sum, block) in sums.iter_mut().zip(weights.chunks(BLOCK)) {
        let (chunks, rest) = block.as_chunks::<LANES>();
        let mut lanes = [0f64; LANES];
        for chunk in chunks {
            for (lane, weight) in lanes.iter_mut().zip(chunk) {
                *lane += f64::from(*weight);
            }
        }
        *sum = lanes.iter().sum::<f64>() + rest.iter().map(|weight| f64::from(*weight)).sum::<f64>();
    }
}

/// The class that `uniform`, in (0, 1), falls on; `sums`: those of blocks of weights. `None` where weights are no
/// distribution.
fn class_at(uniform: f64, weights: &[f32], sums: &[f64]) -> Option<usize> {
    let total: f64 = sums.iter().sum();
    if !(total > 0.0 && total.is_finite()) {
        return None;
    }
    let target = uniform * total;
    let mut before = 0.0;
    for (block, sum) in sums.iter().enumerate() {
        if before + sum > target {
            return Some(class_in_block(block, weights, target - before));
        }
        before += sum;
    }
    // Rounding has put the target on the very end.
    weights.iter().rposition(|weight| *weight > 0.0)
}

/// The class of a block with a positive weight that `left` of the block's sum falls on.
fn class_in_block(block: usize, weights: &[f32], left: f64) -> usize {
    let (first, mut sum, mut last) = (block * BLOCK, 0.0, block * BLOCK);
    for (class, weight) in
        weights.iter().enumerate().skip(first).take(BLOCK).filter(|(_, weight)| **weight > 0.0)
    {
        sum += f64::from(*weight);
        last = class;
        if sum > left {
            break;
        }
    }
    // Where the sum rounds to less than the block's, its last class stands for what is missing.
    last
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;

    fn classes(drawn: &Tensor) -> Vec<i64> {
        Vec::<i64>::try_from(drawn.flatten(0, -1)).unwrap()
    }

    fn counts(drawn: &Tensor, classes: usize) -> Vec<f64> {
        let mut counts = vec![0f64; classes];
        self::classes(drawn).iter().for_each(|&class| counts[class as usize] += 1.0);
        counts
    }

    fn chi_square(counts: &[f64], probabilities: &[f64]) -> f64 {
        let n: f64 = counts.iter().sum();
        counts.iter().zip(probabilities).map(|(count, p)| (count - n * p).powi(2) / (n * p)).sum()
    }

    #[test]
    fn classes_are_drawn_with_their_probabilities() {
        let probabilities = [0.02, 0.4, 0.08, 0.3, 0.2];
        let logits = probabilities.map(|p: f64| p.ln() + 3.0);
        for kind in [Kind::Float, Kind::Double] {
            let logits = Tensor::from_slice(&logits).to_kind(kind).expand([100_000, 5], false);
            let drawn = Noise::new(4).categorical(&logits).unwrap();
            let found = chi_square(&counts(&drawn, 5), &probabilities);
            // The 0.999 quantile for four degrees of freedom.
            assert!(found < 18.47, "{found}");
        }
    }

    /// Over several blocks, the last not full, most of the weight in few classes.
    #[test]
    fn many_classes_are_drawn_with_their_probabilities() {
        let n = 1000;
        let logits = (Tensor::arange(n, (Kind::Float, Device::Cpu)) * 0.7).sin() * 3.0;
        let exact = logits.to_kind(Kind::Double).softmax(-1, None::<Kind>);
        let exact = Vec::<f64>::try_from(exact).unwrap();
        let noise = Noise::new(5);
        let drawn = noise.categorical(&logits.expand([400, 500, n], false)).unwrap();
        assert_eq!(drawn.size(), [400, 500]);
        let counts = counts(&drawn, n as usize);
        // Classes by fives, so that each cell expects enough.
        let cells = |values: &[f64]| values.chunks(5).map(|cell| cell.iter().sum()).collect::<Vec<f64>>();
        let found = chi_square(&cells(&counts), &cells(&exact));
        // 199 degrees of freedom: the 0.0005 and 0.9995 quantiles.
        assert!((138.0..272.0).contains(&found), "{found}");
    }

    #[test]
    fn impossible_classes_are_never_drawn() {
        let none = f32::NEG_INFINITY;
        let row = Tensor::from_slice(&[none, 0.0, none, -1.0, -300.0, none]);
        let drawn = Noise::new(6).categorical(&row.expand([50_000, 6], false)).unwrap();
        let counts = counts(&drawn, 6);
        assert_eq!([counts[0], counts[2], counts[4], counts[5]], [0.0; 4]);
        assert!(counts[1] > 0.0 && counts[3] > 0.0);
        // Not even where the uniform number is at its ends.
        let weights = [0.0, 1.0, 0.0, 0.3, 0.0];
        let ends = [2f64.powi(-53), 1.0 - 2f64.powi(-53)];
        assert_eq!(ends.map(|end| class_at(end, &weights, &[1.3f32 as f64])), [Some(1), Some(3)]);
        assert_eq!(class_at(1.0, &weights, &[1.3]), Some(3));
    }

    #[test]
    fn one_possible_class_is_always_drawn() {
        let one = Tensor::from_slice(&[-7e30f32, 12.0, -1e9]).view([3, 1]);
        assert_eq!(classes(&Noise::new(1).categorical(&one).unwrap()), [0, 0, 0]);
        let mut logits = vec![f32::NEG_INFINITY; 600];
        logits[599] = -1e20;
        let logits = Tensor::from_slice(&logits).expand([20, 600], false);
        assert_eq!(classes(&Noise::new(1).categorical(&logits).unwrap()), [599; 20]);
        let single = Noise::new(1).categorical(&Tensor::from_slice(&[0.5f32])).unwrap();
        assert_eq!((single.size(), single.int64_value(&[]), single.kind()), (vec![], 0, Kind::Int64));
    }

    #[test]
    fn empty_shapes_are_empty_and_take_a_place() {
        let noise = Noise::new(2);
        let empty = Tensor::zeros([3, 0, 5], (Kind::Float, Device::Cpu));
        assert_eq!(noise.categorical(&empty).unwrap().size(), [3, 0]);
        let other = Noise::new(2);
        let _ = other.drops(0.5);
        assert_eq!(noise.uniform(&[4]), other.uniform(&[4]));
    }

    #[test]
    fn what_is_no_distribution_is_told() {
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        for bad in [[nan, 0.0], [0.0, nan], [inf, 0.0], [-inf, -inf], [inf, inf], [nan, -inf]] {
            let logits = Tensor::from_slice(&[&[0.0, 0.0], &bad[..]].concat()).view([2, 2]);
            for kind in [Kind::Float, Kind::Double] {
                let error = Noise::new(1).categorical(&logits.to_kind(kind)).unwrap_err();
                assert!(
                    matches!(error, TrainError::NoDistribution { row: 1, classes: 2 }),
                    "{bad:?}: {error}"
                );
                assert_eq!(error.exit_code(), 80);
            }
        }
        let none = Tensor::zeros([2, 0], (Kind::Float, Device::Cpu));
        assert!(Noise::new(1).categorical(&none).is_err());
    }

    /// Row i draws by its own hashes alone, whatever the other rows are, and on any threads.
    #[test]
    fn a_row_draws_the_same_among_any_others() {
        threads::set_count(3);
        let logits = (Tensor::arange(900 * 300, (Kind::Float, Device::Cpu)) * 0.37).sin().view([900, 300]);
        let all = classes(&Noise::new(7).categorical(&logits).unwrap());
        let some = classes(&Noise::new(7).categorical(&logits.narrow(0, 0, 451)).unwrap());
        assert_eq!(all[..451], some);
        let hashes = Hashes::new(7, 0);
        let (mut weights, mut sums) = (vec![0f32; 300], vec![0f64; 2]);
        let below = below_the_largest(&logits);
        // SAFETY: nothing below writes to a tensor.
        for (row, below) in unsafe { as_f32(&below) }.chunks(300).enumerate() {
            weigh_plain(below, &mut weights, &mut sums);
            assert_eq!(class_at(uniform(hashes, row), &weights, &sums), Some(all[row] as usize));
        }
    }

    #[test]
    fn both_loops_give_the_same_bits() {
        let below: Vec<f32> = (0..1003).map(|i| -0.1 * ((i * 7) % 1003) as f32).collect();
        let (mut fast, mut plain) = ((vec![0f32; 1003], vec![0f64; 4]), (vec![0f32; 1003], vec![0f64; 4]));
        weigh(&below, &mut fast.0, &mut fast.1);
        weigh_plain(&below, &mut plain.0, &mut plain.1);
        assert!(fast.0.iter().zip(&plain.0).all(|(a, b)| a.to_bits() == b.to_bits()));
        assert!(fast.1.iter().zip(&plain.1).all(|(a, b)| a.to_bits() == b.to_bits()));
    }

    #[test]
    fn rows_and_places_are_independent() {
        let n = 100_000;
        let coin = Tensor::zeros([n, 2], (Kind::Float, Device::Cpu));
        let noise = Noise::new(8);
        let base = classes(&noise.categorical(&coin).unwrap());
        let place = classes(&noise.categorical(&coin).unwrap());
        let seed = classes(&Noise::new(9).categorical(&coin).unwrap());
        let next = [&base[1..], &base[..1]].concat();
        for other in [place, seed, next] {
            let same = base.iter().zip(&other).filter(|(a, b)| a == b).count() as f64 / n as f64;
            // Five standard deviations of the share.
            assert!((same - 0.5).abs() < 2.5 / (n as f64).sqrt(), "{same}");
        }
    }
}
