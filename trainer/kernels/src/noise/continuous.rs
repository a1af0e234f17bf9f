use tch::{Device, Kind, Tensor};

use super::{Hashes, Noise};
use crate::libtorch::Shared;
use crate::simd::{ln, vectorised};
use crate::threads;

impl Noise {
    /// Uniform draws in (0, 1), f32 on the CPU: the odd multiples of 2⁻²⁴, each as likely as another. Never 0, never 1.
    pub fn uniform(&self, shape: &[i64]) -> Tensor {
        self.filled(shape, fill_uniform)
    }

    /// Standard normal draws, f32 on the CPU, by the inverse of the distribution function: one hash a value.
    ///
    /// One bit of the hash is the sign, the other 31 the probability p of a value at least as far out, an odd multiple of
    /// 2⁻³³ below ½. A value is off by less than 1e-6 of itself. As p is never below 2⁻³³, no value is beyond ±6.34,
    /// where 1 in 4.3e9 would be; the step from one value to the next is 0.17 there, 2e-3 at ±5.5 and below 1e-4 up to ±4.9.
    pub fn normal(&self, shape: &[i64]) -> Tensor {
        self.filled(shape, fill_normal)
    }

    /// A tensor of which `fill` makes each part of the hashes of its values.
    fn filled(&self, shape: &[i64], fill: fn(&mut [f32], Hashes)) -> Tensor {
        let mut drawn = Tensor::empty(shape, (Kind::Float, Device::Cpu));
        let (hashes, values) = (self.hashes(), Shared::of(&mut drawn));
        threads::for_each_part(drawn.numel(), threads::PART, |part| {
            // SAFETY: nobody else has this part.
            fill(unsafe { values.slice(part.clone()) }, hashes.from(part.start));
        });
        drawn
    }
}

vectorised! { fn fill_uniform(values: &mut [f32], hashes: Hashes) = fill_uniform_plain; }

#[inline(always)]
fn fill_uniform_plain(values: &mut [f32], hashes: Hashes) {
    for (i, value) in values.iter_mut().enumerate() {
        *value = uniform(hashes.at(i));
    }
}

vectorised! { fn fill_normal(values: &mut [f32], hashes: Hashes) = fill_normal_plain; }

#[inline(always)]
fn fill_normal_plain(values: &mut [f32], hashes: Hashes) {
    for (i, value) in values.iter_mut().enumerate() {
        *value = normal(hashes.at(i));
    }
}

/// The middle of one of 2^23 intervals of (0, 1): more would not be f32.
#[inline(always)]
fn uniform(hash: u32) -> f32 {
    const INTERVAL: f32 = 1.0 / (1u32 << 23) as f32;
    // Integers below 2^31 are converted as signed ones: processors have an instruction for these.
    ((hash >> 9) as i32 as f32 + 0.5) * INTERVAL
}

/// The quantile of the normal distribution that the hash stands for: Wichura 1988, algorithm AS 241, PPND7.
#[inline(always)]
fn normal(hash: u32) -> f32 {
    const SIGN: u32 = 1 << 31;
    const INTERVAL: f32 = 1.0 / (1u64 << 32) as f32;
    /// Half of the middle part, and what its square is taken from.
    const MIDDLE: f32 = 0.425;
    const MIDDLE_SQUARE: f32 = 0.180_625;
    const TAIL: f32 = 1.6;
    let magnitude = hash & !SIGN;
    // How far p lies from 0 and from ½, each from integers: either is exact to a rounding where it is small.
    let p = (magnitude as i32 as f32 + 0.5) * INTERVAL;
    let from_half = ((!SIGN - magnitude) as i32 as f32 + 0.5) * INTERVAL;

    let r = MIDDLE_SQUARE - from_half * from_half;
    let above = 59.109_375f32.mul_add(r, 159.291_13).mul_add(r, 50.434_272).mul_add(r, 3.387_132_7);
    let below = 67.187_56f32.mul_add(r, 78.757_76).mul_add(r, 17.895_17).mul_add(r, 1.0);
    let middle = from_half * above / below;

    // p is at least 2⁻³³, so the root is below 5, where AS 241 would go on with a third part.
    let r = (-ln(p)).sqrt() - TAIL;
    let above = 0.170_238_21f32.mul_add(r, 1.306_728_5).mul_add(r, 2.756_815_4).mul_add(r, 1.423_437_3);
    let below = 0.120_211_33f32.mul_add(r, 0.737_001_6).mul_add(r, 1.0);
    let tail = above / below;

    let value = if from_half <= MIDDLE { middle } else { tail };
    f32::from_bits(value.to_bits() | (hash & SIGN))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: usize = 200_000;

    fn draws(seed: u64, place: u32, fill: fn(&mut [f32], Hashes)) -> Vec<f64> {
        let mut values = vec![f32::NAN; COUNT];
        fill(&mut values, Hashes::new(seed, place));
        values.into_iter().map(f64::from).collect()
    }

    /// √n times the largest distance between the distribution of `values` and `cdf` (Kolmogorov and Smirnov).
    fn distance(mut values: Vec<f64>, cdf: impl Fn(&Tensor) -> Tensor) -> f64 {
        values.sort_by(f64::total_cmp);
        let n = values.len() as f64;
        let expected = Vec::<f64>::try_from(cdf(&Tensor::from_slice(&values))).unwrap();
        let below =
            |i: usize| (expected[i] - i as f64 / n).abs().max((expected[i] - (i + 1) as f64 / n).abs());
        (0..values.len()).map(below).fold(0.0, f64::max) * n.sqrt()
    }

    /// The 0.999 quantile of Kolmogorov's distribution.
    const KOLMOGOROV: f64 = 1.95;

    fn moment(values: &[f64], power: i32) -> f64 {
        values.iter().map(|value| value.powi(power)).sum::<f64>() / values.len() as f64
    }

    #[test]
    fn uniform_draws_are_uniform() {
        let values = draws(5, 0, fill_uniform);
        assert!(values.iter().all(|&u| u > 0.0 && u < 1.0));
        let n = (COUNT as f64).sqrt();
        // Five standard deviations: those of u and of u² are √(1/12) and √(4/45).
        assert!((moment(&values, 1) - 0.5).abs() < 5.0 * (1.0f64 / 12.0).sqrt() / n);
        assert!((moment(&values, 2) - 1.0 / 3.0).abs() < 5.0 * (4.0f64 / 45.0).sqrt() / n);
        let found = distance(values, Tensor::shallow_clone);
        assert!(found < KOLMOGOROV, "{found}");
    }

    #[test]
    fn uniform_draws_end_short_of_0_and_1() {
        let least = 2f32.powi(-24);
        assert_eq!([uniform(0), uniform(511), uniform(512)], [least, least, 3.0 * least]);
        assert_eq!(uniform(u32::MAX), 1.0 - least);
        assert!(uniform(1 << 31) > 0.5 && uniform((1 << 31) - 1) < 0.5);
    }

    #[test]
    fn normal_draws_are_normal() {
        let values = draws(5, 0, fill_normal);
        let n = (COUNT as f64).sqrt();
        // Five standard deviations: variances of x, x², x³ and x⁴ are 1, 2, 15 and 96.
        for (power, expected, variance) in [(1, 0.0, 1.0f64), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)] {
            let found = moment(&values, power);
            assert!((found - expected).abs() < 5.0 * variance.sqrt() / n, "moment {power}: {found}");
        }
        let found = distance(values, Tensor::special_ndtr);
        assert!(found < KOLMOGOROV, "{found}");
    }

    /// Of 2^24 draws, how many lie beyond 4 and 5: the tails are those of the distribution, no shorter.
    #[test]
    fn tails_of_normal_draws_are_full() {
        let mut beyond = [0u32; 2];
        let mut values = vec![0f32; 1 << 20];
        for place in 0..16 {
            fill_normal(&mut values, Hashes::new(3, place));
            for (limit, beyond) in [4.0, 5.0].into_iter().zip(&mut beyond) {
                *beyond += values.iter().filter(|x| x.abs() > limit).count() as u32;
            }
        }
        // 2 (1 - Φ) is 6.334e-5 and 5.733e-7: 1062.7 ± 32.6 and 9.62 ± 3.1 draws.
        assert!((beyond[0] as f64 - 1062.7).abs() < 5.0 * 32.6, "{beyond:?}");
        assert!((beyond[1] as f64 - 9.62).abs() < 5.0 * 3.1, "{beyond:?}");
    }

    /// Against quantiles in double precision, whose hashes are spread evenly over the logarithm of p.
    #[test]
    fn normal_draws_are_quantiles_to_a_millionth() {
        let magnitudes: Vec<u32> =
            (0..31 * 64).map(|i| ((i as f64 / 64.0).exp2() as u32).min((1 << 31) - 1)).collect();
        let near_zero: Vec<u32> = magnitudes.iter().map(|magnitude| (1 << 31) - 1 - magnitude).collect();
        let hashes = [magnitudes, near_zero].concat();
        let p: Vec<f64> = hashes.iter().map(|&hash| (f64::from(hash) + 0.5) / 2f64.powi(32)).collect();
        let exact = Vec::<f64>::try_from(-Tensor::from_slice(&p).special_ndtri()).unwrap();
        for ((&hash, &exact), p) in hashes.iter().zip(&exact).zip(p) {
            // Near ½ it is libtorch's argument that has lost digits.
            let limit = 1e-6 * exact.abs() + if p > 0.49 { 1e-15 } else { 0.0 };
            let error = (f64::from(normal(hash)) - exact).abs();
            assert!(error < limit, "{hash:#x}: {} and not {exact}", normal(hash));
            assert_eq!(normal(hash | 1 << 31), -normal(hash));
        }
    }

    /// Quantiles by another program (`statistics.NormalDist` of Python).
    #[test]
    fn normal_draws_of_some_hashes_are_known() {
        for (hash, expected) in [
            (0, 6.337_957_8),
            (1, 6.166_429_5),
            (0x7fff_ffff, 2.918_099_4e-10),
            (0x8000_0000, -6.337_957_8),
            (0x1234_5678, 1.467_565_7),
            (0x89ab_cdef, -1.777_077_1),
            (0x4000_0000, 0.674_489_75),
            (0x3039, 4.535_422_8),
        ] {
            let found = f64::from(normal(hash));
            assert!((found / expected - 1.0).abs() < 1e-6, "{hash:#x}: {found} and not {expected}");
        }
    }

    #[test]
    fn neighbours_places_and_seeds_are_independent() {
        let base = draws(5, 0, fill_normal);
        let others = [
            [&base[1..], &base[..1]].concat(),
            [&base[16..], &base[..16]].concat(),
            draws(5, 1, fill_normal),
            draws(6, 0, fill_normal),
            draws(5 + (1 << 32), 0, fill_normal),
        ];
        let correlation =
            |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>() / COUNT as f64;
        let squares = |x: &[f64]| x.iter().map(|x| (x * x - 1.0) / 2f64.sqrt()).collect::<Vec<_>>();
        for (i, other) in others.iter().enumerate() {
            // Five standard deviations, of the values and of how far out they are.
            let limit = 5.0 / (COUNT as f64).sqrt();
            assert!(correlation(&base, other).abs() < limit, "{i}");
            assert!(correlation(&squares(&base), &squares(other)).abs() < limit, "{i}");
        }
    }

    /// Pairs of neighbours fall evenly on a grid of 16 by 16 cells.
    #[test]
    fn pairs_of_uniform_draws_are_even() {
        let values = draws(8, 2, fill_uniform);
        let mut counts = [0f64; 256];
        for pair in values.chunks_exact(2) {
            counts[(pair[0] * 16.0) as usize * 16 + (pair[1] * 16.0) as usize] += 1.0;
        }
        let expected = COUNT as f64 / 2.0 / 256.0;
        let chi_square: f64 = counts.iter().map(|count| (count - expected).powi(2) / expected).sum();
        // 255 degrees of freedom: the 0.0005 and 0.9995 quantiles.
        assert!((186.0..336.0).contains(&chi_square), "{chi_square}");
    }

    #[test]
    fn both_loops_give_the_same_bits() {
        let hashes = Hashes::new(9, 4).from(77);
        for (fill, plain) in [
            (fill_uniform as fn(&mut [f32], Hashes), fill_uniform_plain as fn(&mut [f32], Hashes)),
            (fill_normal, fill_normal_plain),
        ] {
            let (mut fast, mut slow) = (vec![0f32; 100_003], vec![0f32; 100_003]);
            fill(&mut fast, hashes);
            plain(&mut slow, hashes);
            assert!(fast.iter().zip(&slow).all(|(a, b)| a.to_bits() == b.to_bits()));
        }
    }

    #[test]
    fn tensors_are_the_draws_of_their_places_on_any_threads() {
        threads::set_count(3);
        let noise = Noise::new(11);
        let (first, second) = (noise.normal(&[5, 7, 4000]), noise.uniform(&[3]));
        let other_noise = Noise::new(11);
        let _ = other_noise.drops(0.5);
        let after_dropout = other_noise.uniform(&[3]);
        let mut expected = vec![0f32; 5 * 7 * 4000];
        fill_normal_plain(&mut expected, Hashes::new(11, 0));
        assert_eq!(Vec::<f32>::try_from(first.flatten(0, -1)).unwrap(), expected);
        assert_eq!(first.size(), [5, 7, 4000]);
        assert_eq!(second, after_dropout, "each draw takes one place");
        let mut expected = [0f32; 3];
        fill_uniform_plain(&mut expected, Hashes::new(11, 1));
        assert_eq!(Vec::<f32>::try_from(second).unwrap(), expected);
    }

    #[test]
    fn empty_shapes_are_empty_and_take_a_place() {
        let noise = Noise::new(1);
        assert_eq!(noise.normal(&[0]).size(), [0]);
        assert_eq!(noise.uniform(&[4, 0, 2]).size(), [4, 0, 2]);
        let scalar = noise.normal(&[]);
        assert_eq!(scalar.size(), Vec::<i64>::new());
        assert_eq!(scalar.double_value(&[]) as f32, normal(Hashes::new(1, 2).at(0)));
    }
}
