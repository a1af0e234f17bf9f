use tch::{Device, Kind, Tensor};

use super::drops::Drops;
use super::{Noise, tensors};
use crate::cards::{self, Source, params};
use crate::libtorch::{Shared, precise};
use crate::simd::vectorised;
use crate::threads;

impl Noise {
    /// What the next place of the pass drops.
    pub fn drops(&self, rate: f64) -> Drops {
        Drops::new(self.hashes(), rate * self.rates)
    }

    /// The same where a rate of 0, or no noise, drops nothing and has no place.
    pub fn drops_of(noise: Option<&Self>, rate: f64) -> Drops {
        noise.filter(|_| rate > 0.0).map_or(Drops::NONE, |noise| noise.drops(rate))
    }

    /// A mask of this shape whose values are zero with probability `rate`, else `1 / (1 - rate)` in f32; where `x` is, and of its kind
    /// or, for 16 bits, of single precision.
    fn mask(&self, shape: &[i64], x: &Tensor, rate: f64) -> Tensor {
        self.drops(rate).mask(shape, x)
    }
}

/// Masks of dropout on cards.
pub static MASKS: Source = Source::new("noise/mask", include_str!("mask.cu"));

/// `x` with dropout at `rate` where there is noise.
pub fn dropout(x: Tensor, rate: f64, noise: Option<&Noise>) -> Tensor {
    match noise {
        Some(noise) if rate > 0.0 => masked(&noise.mask(&x.size(), &x, rate), x),
        _ => x,
    }
}

/// The same with one mask for all positions, which are places of axis `positions`: variational dropout (Gal and Ghahramani 2016).
pub fn locked_dropout(x: Tensor, positions: usize, rate: f64, noise: Option<&Noise>) -> Tensor {
    match noise {
        Some(noise) if rate > 0.0 => {
            let mut shape = x.size();
            shape[positions] = 1;
            masked(&noise.mask(&shape, &x, rate), x)
        }
        _ => x,
    }
}

/// `x`, `[.., width]`, with whole rows dropped. Rows of one number, of `numbers`, `[..]`, are dropped together: of word vectors,
/// those of a word wherever it stands (Gal and Ghahramani 2016, §4.2).
pub fn row_dropout(x: Tensor, numbers: &Tensor, rate: f64, noise: Option<&Noise>) -> Tensor {
    match noise {
        Some(noise) if rate > 0.0 => masked(&noise.drops(rate).factors(numbers).unsqueeze(-1), x),
        _ => x,
    }
}

/// `x` times a mask, of the kind of `x`. The factors are not rounded to 16 bits, which would move the mean of all values.
fn masked(mask: &Tensor, x: Tensor) -> Tensor {
    let kind = x.kind();
    (mask * x).to_kind(kind)
}

impl Drops {
    /// The factors of as many values as `shape` has, from the first on, as a mask for `x`: where it is, and of its kind or, for 16
    /// bits, of single precision.
    pub fn mask(self, shape: &[i64], x: &Tensor) -> Tensor {
        let kind = precise(x.kind());
        if let Some(kernels) = MASKS.kernels(x) {
            return self.mask_by(kernels, shape, x.device()).to_kind(kind);
        }
        if x.device() != Device::Cpu {
            return tensors::factors(shape.iter().product(), self, x.device()).view(shape).to_kind(kind);
        }
        let mut mask = Tensor::empty(shape, (Kind::Float, x.device()));
        let values = Shared::of(&mut mask);
        threads::for_each_part(mask.numel(), threads::PART, |part| {
            // SAFETY: nobody else has this part.
            fill(unsafe { values.slice(part.clone()) }, self.from(part.start));
        });
        mask.to_kind(kind)
    }

    /// The same by a kernel, in f32.
    fn mask_by(self, kernels: cards::Kernels, shape: &[i64], device: Device) -> Tensor {
        let mask = Tensor::empty(shape, (Kind::Float, device));
        let (to, count) = (mask.data_ptr(), mask.numel() as i64);
        // SAFETY: `dropout_factors` writes `count` values of f32 to a tensor that was made here.
        unsafe { kernels.launch_for_values("dropout_factors", count, params![to, count, self]) };
        mask
    }

    /// What each of the values with these numbers is multiplied by, in f32; `numbers` are integers, of which the last 32 bits count.
    pub fn factors(&self, numbers: &Tensor) -> Tensor {
        tensors::factors_of(numbers, *self)
    }
}

vectorised! { fn fill(mask: &mut [f32], drops: Drops) = drop_factors; }

/// Factors of the first values. A loop of its own, or it is not compiled for many values at once.
#[inline(always)]
pub fn drop_factors(mask: &mut [f32], drops: Drops) {
    for (i, value) in mask.iter_mut().enumerate() {
        *value = drops.factor(i);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Hashes;
    use super::*;

    fn mask(seed: u64, place: u32, rate: f64) -> Vec<f32> {
        let mut mask = vec![f32::NAN; 200_000];
        fill(&mut mask, Drops::new(Hashes::new(seed, place), rate));
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
    fn rates_are_multiplied_by_the_factor_and_a_factor_of_nothing_changes_no_bit() {
        let x = Tensor::arange(1000, (Kind::Float, Device::Cpu)) / 7.0;
        let dropped =
            |rate, factor| dropout(x.shallow_clone(), rate, Some(&Noise::new(3).with_rates(factor)));
        assert_eq!(dropped(0.5, 0.6), dropped(0.3, 1.0));
        assert_eq!(dropped(0.5, 0.0), x);
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
        let drops = Drops::new(Hashes::new(9, 4), 0.3);
        fill(&mut fast, drops);
        drop_factors(&mut plain, drops);
        assert_eq!(fast, plain);
    }

    /// Row S10: one mask for all positions, another for each lane; one for all places of a word.
    /// Row S10.
    #[test]
    fn masks_are_shared_over_positions_and_over_the_places_of_a_word() {
        let ones = || Tensor::ones([3, 4, 100_000], (Kind::Float, Device::Cpu));
        let locked = locked_dropout(ones(), 0, 0.3, Some(&Noise::new(1)));
        assert!(locked.equal(&locked.narrow(0, 0, 1).expand_as(&locked)));
        assert!(!locked.select(1, 0).equal(&locked.select(1, 1)));
        // Five standard deviations of 400,000 draws are half a percent, those of 50,000 words three quarters.
        assert!((locked.mean(None::<Kind>).double_value(&[]) - 1.0).abs() < 0.01);

        let numbers = Tensor::arange(200_000, (Kind::Int64, Device::Cpu)).remainder(50_000).view([4, 50_000]);
        let wide = Tensor::ones([4, 50_000, 3], (Kind::Float, Device::Cpu));
        let rows = row_dropout(wide, &numbers, 0.1, Some(&Noise::new(2)));
        assert!(rows.equal(&rows.narrow(0, 0, 1).narrow(2, 0, 1).expand_as(&rows)));
        assert!((rows.mean(None::<Kind>).double_value(&[]) - 1.0).abs() < 0.01);
        // A word's number in the mask is its own, whatever stands before it.
        let alone = row_dropout(
            Tensor::ones([1, 1, 3], (Kind::Float, Device::Cpu)),
            &Tensor::from_slice(&[49_999i64]).view([1, 1]),
            0.1,
            Some(&Noise::new(2)),
        );
        assert!(alone.equal(&rows.narrow(0, 0, 1).narrow(1, 49_999, 1)));
    }

    /// Masks that runs of today were trained with: where the first 32 values of two places are dropped, as bits.
    #[test]
    fn masks_stay_what_they_were() {
        let noise = Noise::new(0x0123_4567_89ab_cdef);
        let bits = |drops: Drops| (0..32).fold(0u32, |bits, i| bits | u32::from(drops.factor(i) == 0.0) << i);
        let found = [noise.drops(0.5), noise.drops(0.1), noise.drops(0.5).from(1 << 20)].map(bits);
        assert_eq!(found, [0xde19_e1dc, 0x0802_0084, 0xe8e4_19da]);
    }
}
