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

use super::product::{Rows, Shared};
use crate::threads;

/// Values of a tile's line: what one instruction adds up for each element of a product.
const DEPTH: usize = 32;
/// Vectors of a tile.
const LANES: usize = 16;
/// Vectors of each side whose products one pass of the kernel makes.
const BLOCK: usize = 2 * LANES;
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
    *AVAILABLE.get_or_init(|| {
        let limit = std::env::var("ONEDNN_MAX_CPU_ISA").or_else(|_| std::env::var("DNNL_MAX_CPU_ISA"));
        limit.map_or(true, |isa| allows_tiles(&isa)) && has_tiles()
    })
}

/// Whether oneDNN, limited to `isa`, may use tiles.
fn allows_tiles(isa: &str) -> bool {
    let isa = isa.to_ascii_uppercase();
    ["", "ALL", "DEFAULT"].contains(&isa.as_str()) || isa.contains("AMX")
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
    chunks: Vec<Chunk>,
    vectors: usize,
}

/// Panels of [`LANES`] vectors, an even number of them: those that no vector is left for are zero.
struct Chunk {
    lines: Vec<Line>,
    /// Steps of [`DEPTH`] values of a panel.
    steps: usize,
}

impl Packed {
    /// The left side.
    pub fn left(side: Side<'_>) -> Self {
        Self {
            chunks: side.chunks().map(|depth| Chunk::of(side, depth, false)).collect(),
            vectors: side.vectors,
        }
    }

    /// The right side.
    pub fn right(side: Side<'_>) -> Self {
        Self {
            chunks: side.chunks().map(|depth| Chunk::of(side, depth, true)).collect(),
            vectors: side.vectors,
        }
    }
}

impl Chunk {
    /// Lines of one step of a panel: three parts of a tile each.
    const STEP: usize = 3 * LANES;

    fn panel(&self) -> usize {
        self.steps * Self::STEP
    }

    fn of(side: Side<'_>, depth: Range<usize>, right: bool) -> Self {
        let steps = depth.len().div_ceil(DEPTH);
        let panels = side.vectors.div_ceil(BLOCK) * 2;
        let count = panels * steps * Self::STEP;
        let mut chunk = Self { lines: Vec::with_capacity(count), steps };
        #[cfg(target_arch = "x86_64")]
        {
            let to = pack::Lines(chunk.lines.as_mut_ptr());
            threads::for_each_part(panels, panels.div_ceil(threads::count()).max(1), |own| {
                // SAFETY: tiles are there, and with them what packing asks for; no other call writes these panels, which lie in what was
                // reserved.
                unsafe { pack::panels(side, own, depth.clone(), right, to) };
            });
            // SAFETY: every line of every panel has been written.
            unsafe { chunk.lines.set_len(count) };
        }
        chunk
    }
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
            let left = &left.lines[rows.start / LANES * left.panel()..];
            let add = number > 0 || !matches!(start, Start::Zero);
            // SAFETY: the caller's.
            unsafe { kernel::multiply(left, right, [rows.len(), b.vectors], to, add) };
        }
    }
}

#[cfg(test)]
mod tests;
