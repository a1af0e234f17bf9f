//! What a place of a pass drops, value by value.

use super::Hashes;

/// What one place of a pass drops: a function of a value's index. Kernels for cards take it as it is: `cards/prelude.cu`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Drops {
    pub(super) hashes: Hashes,
    /// A hash below it drops; 2^32 values divide finely enough for any rate.
    pub(super) threshold: u32,
    kept: f32,
}

impl Drops {
    /// What drops nothing.
    pub const NONE: Self = Self { hashes: Hashes { keys: [0; 2], first: 0 }, threshold: 0, kept: 1.0 };

    pub(super) fn new(hashes: Hashes, rate: f64) -> Self {
        Self { hashes, threshold: (rate * (1u64 << 32) as f64) as u32, kept: (1.0 / (1.0 - rate)) as f32 }
    }

    /// The same for the values from number `first` on.
    pub fn from(self, first: usize) -> Self {
        Self { hashes: self.hashes.from(first), ..self }
    }

    /// What kept values are multiplied by.
    pub fn kept(&self) -> f32 {
        self.kept
    }

    /// What value `i` is multiplied by: 0 with probability `rate`, else `1 / (1 - rate)`, by a hash of
    /// (seed, place, i).
    #[inline(always)]
    pub fn factor(&self, i: usize) -> f32 {
        if self.hashes.at(i) < self.threshold { 0.0 } else { self.kept }
    }
}

/// What is dropped of rows of which the last may be of another place of the pass, as if each part were alone: `cards/prelude.cu`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DropsOfRows {
    first: Drops,
    second: Drops,
    /// Rows of the first place.
    rows: i32,
}

impl DropsOfRows {
    /// So many rows of one place, and then those of another.
    pub fn parted(first: Drops, rows: i64, second: Drops) -> Self {
        Self { first, second, rows: i32::try_from(rows).expect("as many rows as a card has blocks") }
    }
}

impl From<Drops> for DropsOfRows {
    /// All rows of one place.
    fn from(drops: Drops) -> Self {
        Self { first: drops, second: Drops::NONE, rows: i32::MAX }
    }
}
