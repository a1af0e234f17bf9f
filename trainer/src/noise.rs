//! Dropout whose masks are a function of a seed: no generator, no state, nothing to save.

use std::cell::Cell;

use tch::{Kind, Tensor};

use crate::libtorch::Shared;
use crate::simd::vectorised;
use crate::threads;

/// Dropout of one forward pass. Each place that drops something draws from a stream of its own, numbered in
/// the order of the pass.
#[derive(Debug)]
pub struct Noise {
    seed: u64,
    places: Cell<u32>,
}

impl Noise {
    /// The dropout that `seed` stands for.
    pub fn new(seed: u64) -> Self {
        Self { seed, places: Cell::new(0) }
    }

    /// What the next place of the pass drops.
    pub fn drops(&self, rate: f64) -> Drops {
        let place = self.places.get();
        self.places.set(place + 1);
        Drops::new(self.seed, place, rate)
    }

    /// A mask of this shape whose values are zero with probability `rate`, else `1 / (1 - rate)` in f32; of the
    /// kind of `x`, which is on the CPU.
    fn mask(&self, shape: &[i64], x: &Tensor, rate: f64) -> Tensor {
        let mut mask = Tensor::empty(shape, (Kind::Float, x.device()));
        let (drops, values) = (self.drops(rate), Shared::of(&mut mask));
        threads::for_each_part(mask.numel(), threads::PART, |part| {
            // SAFETY: nobody else has this part.
            fill(unsafe { values.slice(part.clone()) }, drops.from(part.start));
        });
        mask.to_kind(x.kind())
    }
}

/// `x` with dropout at `rate` where there is noise.
pub fn dropout(x: Tensor, rate: f64, noise: Option<&Noise>) -> Tensor {
    match noise {
        Some(noise) if rate > 0.0 => noise.mask(&x.size(), &x, rate) * x,
        _ => x,
    }
}

/// The same with one mask for all positions, variational dropout (Gal and Ghahramani 2016): `x` is
/// `[.., positions, width]`.
pub fn locked_dropout(x: Tensor, rate: f64, noise: Option<&Noise>) -> Tensor {
    match noise {
        Some(noise) if rate > 0.0 => {
            let mut shape = x.size();
            let positions = shape.len() - 2;
            shape[positions] = 1;
            noise.mask(&shape, &x, rate) * x
        }
        _ => x,
    }
}

/// What one place of a pass drops: a function of a value's index.
#[derive(Debug, Clone, Copy)]
pub struct Drops {
    keys: [u32; 2],
    /// Where values are counted from.
    first: u32,
    /// A hash below it drops; 2^32 values divide finely enough for any rate.
    threshold: u32,
    kept: f32,
}

impl Drops {
    /// What drops nothing.
    pub const NONE: Self = Self { keys: [0; 2], first: 0, threshold: 0, kept: 1.0 };

    fn new(seed: u64, place: u32, rate: f64) -> Self {
        Self {
            keys: [mix(seed as u32 ^ mix(place)), mix((seed >> 32) as u32 ^ mix(!place))],
            first: 0,
            threshold: (rate * (1u64 << 32) as f64) as u32,
            kept: (1.0 / (1.0 - rate)) as f32,
        }
    }

    /// The same for the values from number `first` on.
    pub fn from(self, first: usize) -> Self {
        Self { first: self.first.wrapping_add(first as u32), ..self }
    }

    /// What kept values are multiplied by.
    pub fn kept(&self) -> f32 {
        self.kept
    }

    /// What value `i` is multiplied by: 0 with probability `rate`, else `1 / (1 - rate)`, by a hash of
    /// (seed, place, i).
    #[inline(always)]
    pub fn factor(&self, i: usize) -> f32 {
        let hash = mix(mix(self.first.wrapping_add(i as u32) ^ self.keys[0]) ^ self.keys[1]);
        if hash < self.threshold { 0.0 } else { self.kept }
    }
}

vectorised! { fn fill(mask: &mut [f32], drops: Drops) = fill_plain; }

#[inline(always)]
fn fill_plain(mask: &mut [f32], drops: Drops) {
    for (i, value) in mask.iter_mut().enumerate() {
        *value = drops.factor(i);
    }
}

/// A bijection of 32 bits with good avalanche (the finaliser of MurmurHash3, Appleby 2008).
#[inline(always)]
fn mix(mut x: u32) -> u32 {
    x = (x ^ (x >> 16)).wrapping_mul(0x85eb_ca6b);
    x = (x ^ (x >> 13)).wrapping_mul(0xc2b2_ae35);
    x ^ (x >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(seed: u64, place: u32, rate: f64) -> Vec<f32> {
        let mut mask = vec![f32::NAN; 200_000];
        fill(&mut mask, Drops::new(seed, place, rate));
        mask
    }

    #[test]
    fn share_of_zeros_is_the_rate_and_the_mean_is_one() {
        for rate in [0.1, 0.5, 0.9] {
            let mask = mask(5, 0, rate);
            let zeros = mask.iter().filter(|&&x| x == 0.0).count() as f64 / mask.len() as f64;
            // Five standard deviations of 200,000 draws.
            let limit = 5.0 * (rate * (1.0 - rate) / mask.len() as f64).sqrt();
            assert!((zeros - rate).abs() < limit, "{zeros} for {rate}");
            let kept = (1.0 / (1.0 - rate)) as f32;
            assert!(mask.iter().all(|&x| x == 0.0 || x == kept));
        }
    }

    #[test]
    fn neighbours_places_and_seeds_are_independent() {
        let base = mask(5, 0, 0.5);
        let agree = |other: &[f32]| {
            let same = base.iter().zip(other).filter(|(a, b)| a == b).count();
            same as f64 / base.len() as f64
        };
        let shifted: Vec<f32> = base[1..].iter().copied().chain([0.0]).collect();
        for other in [shifted, mask(5, 1, 0.5), mask(6, 0, 0.5), mask(5 + (1 << 32), 0, 0.5)] {
            assert!((agree(&other) - 0.5).abs() < 0.006, "{}", agree(&other));
        }
        assert_eq!(agree(&mask(5, 0, 0.5)), 1.0);
    }

    #[test]
    fn both_loops_give_the_same_bits() {
        let (mut fast, mut plain) = (vec![0.0; 1003], vec![0.0; 1003]);
        fill(&mut fast, Drops::new(9, 4, 0.3));
        fill_plain(&mut plain, Drops::new(9, 4, 0.3));
        assert_eq!(fast, plain);
    }
}
