//! Noise as a function of a seed: dropout, and draws from distributions. No generator, no state, nothing to save.
//!
//! Each place of a pass that draws has numbers of its own: number i is a hash of (seed, place, i), and the seed is one of
//! (seed of the run, step, micro-step). So a value is the same at any number of ranks and with any number of threads.

mod categorical;
mod continuous;
mod dropout;
mod drops;
mod tensors;

use std::cell::Cell;

pub use dropout::{MASKS, drop_factors, dropout, locked_dropout, row_dropout};
pub use drops::{Drops, DropsOfRows};

/// The noise of one forward pass. Each place that drops or draws something has a stream of its own, numbered in
/// the order of the pass; a clone goes on at the same place.
#[derive(Debug, Clone)]
pub struct Noise {
    seed: u64,
    places: Cell<u32>,
    /// What rates of dropout are multiplied by.
    rates: f64,
}

impl Noise {
    /// The noise that `seed` stands for.
    pub fn new(seed: u64) -> Self {
        Self { seed, places: Cell::new(0), rates: 1.0 }
    }

    /// The same where every rate of dropout is `factor` times what a model asks for; `factor` lies in [0, 1].
    pub fn with_rates(self, factor: f64) -> Self {
        Self { rates: factor, ..self }
    }

    /// The numbers of the next place of the pass.
    fn hashes(&self) -> Hashes {
        let place = self.places.get();
        self.places.set(place + 1);
        Hashes::new(self.seed, place)
    }
}

/// The numbers of one place: a function of a value's index.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Hashes {
    keys: [u32; 2],
    /// Where values are counted from.
    first: u32,
}

impl Hashes {
    fn new(seed: u64, place: u32) -> Self {
        Self { keys: [mix(seed as u32 ^ mix(place)), mix((seed >> 32) as u32 ^ mix(!place))], first: 0 }
    }

    /// The same for the values from number `first` on.
    fn from(self, first: usize) -> Self {
        Self { first: self.first.wrapping_add(first as u32), ..self }
    }

    /// A hash of (seed, place, i), all 32 bits uniform. The 2^32 hashes of a place are all different.
    #[inline(always)]
    fn at(&self, i: usize) -> u32 {
        mix(mix(self.first.wrapping_add(i as u32) ^ self.keys[0]) ^ self.keys[1])
    }
}

const FIRST_FACTOR: u32 = 0x85eb_ca6b;
const SECOND_FACTOR: u32 = 0xc2b2_ae35;

/// A bijection of 32 bits with good avalanche (the finaliser of MurmurHash3, Appleby 2008).
#[inline(always)]
fn mix(mut x: u32) -> u32 {
    x = (x ^ (x >> 16)).wrapping_mul(FIRST_FACTOR);
    x = (x ^ (x >> 13)).wrapping_mul(SECOND_FACTOR);
    x ^ (x >> 16)
}
