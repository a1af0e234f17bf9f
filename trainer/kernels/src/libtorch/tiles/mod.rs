//! Products in single precision by the tile instructions of processors with AMX, which multiply numbers of eight significant bits
//! only: each value is the sum of three such numbers, exactly, and of the nine products of two values' parts the six largest are added
//! up (Henry, Tang and Heinecke 2019, "Leveraging the bfloat16 artificial intelligence datatype for higher-precision computations").
//! What is left out is below 2⁻²² of a product. Sums are made in single precision. Results are as exact as those of fused products and
//! sums (`tests.rs`), and need two thirds of their time.
//!
//! Values below 2⁻¹¹⁰ lose their lower parts; what is not finite makes every sum that it is in not a number.

#[cfg(target_arch = "x86_64")]
mod kernel;
#[cfg(target_arch = "x86_64")]
mod pack;

use std::ops::Range;
use std::sync::OnceLock;

use super::limit;
use super::places::{Rows, Shared};
use crate::threads;

/// Values of a tile's line: what one instruction adds up for each element of a product.
pub const DEPTH: usize = 32;
/// Vectors of a tile.
const LANES: usize = 16;
/// Vectors of each side whose products one pass of the kernel makes.
const BLOCK: usize = 2 * LANES;
// Whoever cuts a product where a block begins may cut its depth there too.
const _: () = assert!(BLOCK == DEPTH);
/// Depth of what is packed at once, at most: with it [`ROWS`] vectors of the left side and a block of the right one stay in a core's
/// second cache.
const CHUNK: usize = 22 * DEPTH;
const ROWS: usize = 8 * BLOCK;
/// Shorter sides, and smaller products, take longer to pack than to multiply.
const SHORTEST: usize = 48;
const SMALLEST: usize = 1 << 19;

/// Whether products are made here: where the processor and the system have tiles, and `ONEDNN_MAX_CPU_ISA`, which limits
/// oneDNN's choice, does not speak against them.
pub fn available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| limit::allows("AMX") && has_tiles())
}

/// Whether a product of `[m, k]` and `[k, n]` is faster in tiles here.
pub fn suit([m, n, k]: [usize; 3]) -> bool {
    m.min(n).min(k) >= SHORTEST && m * n * k >= SMALLEST && available()
}

#[cfg(target_arch = "x86_64")]
fn has_tiles() -> bool {
    is_x86_feature_detected!("avx512bf16")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && kernel::permitted()
}

#[cfg(not(target_arch = "x86_64"))]
fn has_tiles() -> bool {
    false
}

/// One side of a product: vectors, each of which is multiplied with each of the other side's.
#[derive(Clone, Copy)]
pub struct Side<'a> {
    values: &'a [f32],
    vectors: usize,
    depth: usize,
    /// From a vector to the next, and from a value of a vector to the next: one of them is 1.
    strides: [usize; 2],
}

impl<'a> Side<'a> {
    /// Rows of `values`, `[vectors, depth]`, `stride` apart.
    pub fn rows(values: &'a [f32], [vectors, depth]: [usize; 2], stride: usize) -> Self {
        Self::new(values, vectors, depth, [stride, 1])
    }

    /// Columns of `values`, `[depth, vectors]`, whose rows are `stride` apart.
    pub fn columns(values: &'a [f32], [depth, vectors]: [usize; 2], stride: usize) -> Self {
        Self::new(values, vectors, depth, [1, stride])
    }

    fn new(values: &'a [f32], vectors: usize, depth: usize, strides: [usize; 2]) -> Self {
        let last = vectors.saturating_sub(1) * strides[0] + depth.saturating_sub(1) * strides[1];
        assert!(vectors == 0 || depth == 0 || last < values.len(), "{vectors} x {depth} by {strides:?}");
        Self { values, vectors, depth, strides }
    }

    /// Some of the vectors.
    pub fn some(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.vectors);
        let values = self.values.get(range.start * self.strides[0]..).unwrap_or_default();
        Self { values, vectors: range.len(), ..*self }
    }

    /// Depths of what is packed at once: a function of the whole depth alone.
    fn chunks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let depth = self.depth;
        let size = depth.div_ceil(depth.div_ceil(CHUNK).max(1)).next_multiple_of(DEPTH).max(DEPTH);
        (0..depth).step_by(size).map(move |start| start..depth.min(start + size))
    }
}

/// What the rows of a product begin with.
#[derive(Clone, Copy)]
pub enum Start<'a> {
    /// Zeros.
    Zero,
    /// `[n]`, the same in every row.
    Bias(&'a [f32]),
    /// What lies there.
    There,
}

/// A line of a tile.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u16; DEPTH]);

/// One side laid out for the kernel, chunk after chunk of the depth.
pub struct Packed {
    chunks: Vec<Panels>,
    vectors: usize,
}

/// A side, or a chunk of its depth, in panels of [`LANES`] vectors, an even number of them: those that no vector is left for are zero.
#[derive(Default)]
pub struct Panels {
    lines: Vec<Line>,
    /// Steps of [`DEPTH`] values of a panel.
    steps: usize,
    vectors: usize,
}

impl Packed {
    /// The left side.
    pub fn left(side: Side<'_>) -> Self {
        Self::of(side, false)
    }

    /// The right side.
    pub fn right(side: Side<'_>) -> Self {
        Self::of(side, true)
    }

    fn of(side: Side<'_>, right: bool) -> Self {
        let panels = |depth| {
            let mut panels = Panels::default();
            panels.lay(side, depth, right, |count, lay| {
                threads::for_each_part(count, count.div_ceil(threads::count()).max(1), lay);
            });
            panels
        };
        Self { chunks: side.chunks().map(panels).collect(), vectors: side.vectors }
    }
}

impl Panels {
    /// Lines of one step of a panel: three parts of a tile each.
    const STEP: usize = 3 * LANES;

    /// Lays out a whole left side, in the memory of what lay here, on one thread.
    pub fn lay_left(&mut self, side: Side<'_>) {
        self.lay(side, 0..side.depth, false, |count, lay| lay(0..count));
    }

    /// The same of a right side.
    pub fn lay_right(&mut self, side: Side<'_>) {
        self.lay(side, 0..side.depth, true, |count, lay| lay(0..count));
    }

    /// Lays out some of the depth; `parts` calls for all panels.
    fn lay(
        &mut self,
        side: Side<'_>,
        depth: Range<usize>,
        right: bool,
        parts: impl FnOnce(usize, &(dyn Fn(Range<usize>) + Sync)),
    ) {
        assert!(available(), "no tiles here");
        (self.steps, self.vectors) = (depth.len().div_ceil(DEPTH), side.vectors);
        let panels = side.vectors.div_ceil(BLOCK) * 2;
        let count = panels * self.panel();
        self.lines.clear();
        self.lines.reserve(count);
        #[cfg(target_arch = "x86_64")]
        {
            let to = pack::Lines(self.lines.as_mut_ptr());
            parts(panels, &|own| {
                // SAFETY: tiles are there, and with them what packing asks for; no other call writes these panels, which lie in what was
                // reserved.
                unsafe { pack::panels(side, own, depth.clone(), right, to) };
            });
            // SAFETY: every line of every panel has been written.
            unsafe { self.lines.set_len(count) };
        }
    }

    fn panel(&self) -> usize {
        self.steps * Self::STEP
    }

    /// Panels from one on, and in each the steps from one on.
    fn from(&self, panel: usize, step: usize) -> Part<'_> {
        let lines = self.lines.get(panel * self.panel() + step * Self::STEP..).unwrap_or_default();
        Part { lines, panel: self.panel() }
    }

    /// `to` = the left side, this, times vectors of `right` from one on, a whole number of [`BLOCK`]s, at depths from one on, a whole
    /// number of [`DEPTH`]s, and what lies there if `add`. As many vectors as `columns`, and as deep as the left side. On one thread.
    ///
    /// # Safety
    ///
    /// All rows of `to` must be there, which nobody else reads or writes meanwhile.
    pub unsafe fn times(
        &self,
        right: &Panels,
        [vector, depth]: [usize; 2],
        columns: usize,
        to: Rows<*mut f32>,
        add: bool,
    ) {
        assert!(vector.is_multiple_of(BLOCK) && depth.is_multiple_of(DEPTH) && self.steps > 0);
        assert!(vector + columns <= right.vectors && depth / DEPTH + self.steps <= right.steps);
        let right = right.from(vector / LANES, depth / DEPTH);
        // SAFETY: the caller's; what was laid out shows that there are tiles.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            kernel::multiply(self.from(0, 0), right, self.steps, [self.vectors, columns], to, add);
        }
    }
}

/// Panels one after the other, so many lines apart.
#[derive(Clone, Copy)]
struct Part<'a> {
    lines: &'a [Line],
    panel: usize,
}

/// `to` `[m, n]`, rows `stride` apart, = `a`, of m vectors, times `b`, of n, and `start`. A value depends on its own two vectors alone,
/// whatever their place and number.
///
/// # Safety
///
/// Tiles must be [`available`], and all rows of `to` be there, which nobody else reads or writes meanwhile.
pub unsafe fn product(a: Side<'_>, b: Side<'_>, to: Shared, stride: usize, start: Start<'_>) {
    assert_eq!(a.depth, b.depth);
    assert!(a.depth > 0, "a product of nothing");
    let b = Packed::right(b);
    threads::for_each_part(a.vectors, rows_of_part(a.vectors), |own| {
        let a = Packed::left(a.some(own.clone()));
        // SAFETY: no other part has these rows; the rest is the caller's.
        unsafe { a.multiply(0..own.len(), &b, Rows { start: to.at(own.start * stride), stride }, start) };
    });
}

/// Rows of a product that a thread makes at once.
fn rows_of_part(rows: usize) -> usize {
    ROWS.min(rows.div_ceil(threads::count()).next_multiple_of(BLOCK)).max(BLOCK)
}

impl Packed {
    /// As [`product`], of sides that have been packed.
    ///
    /// # Safety
    ///
    /// As of [`product`].
    pub unsafe fn times(&self, b: &Packed, to: Shared, stride: usize, start: Start<'_>) {
        threads::for_each_part(self.vectors, rows_of_part(self.vectors), |own| {
            // SAFETY: no other part has these rows; the rest is the caller's.
            unsafe {
                self.multiply(own.clone(), b, Rows { start: to.at(own.start * stride), stride }, start)
            };
        });
    }

    /// `to` = some vectors of this, from a whole block on, times `b`, and `start`, on one thread.
    ///
    /// # Safety
    ///
    /// As of [`product`].
    unsafe fn multiply(&self, rows: Range<usize>, b: &Packed, to: Rows<*mut f32>, start: Start<'_>) {
        assert!(
            self.chunks.len() == b.chunks.len()
                && rows.start.is_multiple_of(BLOCK)
                && rows.end <= self.vectors
        );
        if let Start::Bias(bias) = start {
            assert_eq!(bias.len(), b.vectors);
            for row in 0..rows.len() {
                // SAFETY: the caller's.
                unsafe { to.start.add(row * to.stride).copy_from_nonoverlapping(bias.as_ptr(), bias.len()) };
            }
        }
        #[cfg(target_arch = "x86_64")]
        for (number, (left, right)) in self.chunks.iter().zip(&b.chunks).enumerate() {
            assert_eq!(left.steps, right.steps);
            let (steps, left, right) = (left.steps, left.from(rows.start / LANES, 0), right.from(0, 0));
            let add = number > 0 || !matches!(start, Start::Zero);
            // SAFETY: the caller's.
            unsafe { kernel::multiply(left, right, steps, [rows.len(), b.vectors], to, add) };
        }
    }
}

#[cfg(test)]
mod tests;
