//! Values in three parts, laid out as tiles.
//!
//! A tile of the left side holds 16 vectors, 32 values of each in a line. One of the right side holds their transpose in pairs: a line
//! has two values of each of 16 vectors.

use std::arch::x86_64::*;
use std::ops::Range;

use super::{Chunk, DEPTH, LANES, Line, Side};

/// Where lines are written, by several threads, each its own.
#[derive(Clone, Copy)]
pub struct Lines(pub *mut Line);

// SAFETY: whoever writes through it says why nobody else does.
unsafe impl Send for Lines {}
// SAFETY: as above.
unsafe impl Sync for Lines {}

impl Lines {
    /// The line `i` lines on.
    ///
    /// # Safety
    ///
    /// It must lie in what was reserved.
    pub unsafe fn at(self, i: usize) -> *mut Line {
        // SAFETY: the caller's.
        unsafe { self.0.add(i) }
    }
}

/// Writes panels of [`LANES`] vectors over some of the depth, `right` or left: of each step three tiles, largest parts first. What no
/// value is there for is zero.
///
/// Values are read in the order they lie in, or a processor would wait for each of them.
///
/// # Safety
///
/// The depth lies in `side`, and the lines of these panels may be written, `to` being the first of all.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
pub unsafe fn panels(side: Side<'_>, panels: Range<usize>, depth: Range<usize>, right: bool, to: Lines) {
    let steps = depth.len().div_ceil(DEPTH);
    let lies_in_lines = side.strides[1] == 1;
    // SAFETY: the caller's.
    unsafe {
        if lies_in_lines {
            of_rows(side, panels.clone(), depth, to);
        } else {
            of_columns(side, panels.clone(), depth, to);
        }
        if lies_in_lines == right {
            let tiles = panels.start * steps * 3..panels.end * steps * 3;
            tiles.for_each(|tile| turn(to.at(tile * LANES)));
        }
    }
}

/// Where values of a side begin; only there may be read where there are some.
fn place(side: Side<'_>, vector: usize, depth: usize) -> *const f32 {
    side.values.as_ptr().wrapping_add(vector * side.strides[0] + depth * side.strides[1])
}

/// Lines of vectors whose values lie together: a line a vector.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn of_rows(side: Side<'_>, panels: Range<usize>, depth: Range<usize>, to: Lines) {
    let steps = depth.len().div_ceil(DEPTH);
    for vector in panels.start * LANES..panels.end * LANES {
        let (panel, line) = (vector / LANES, vector % LANES);
        for step in 0..steps {
            let start = depth.start + step * DEPTH;
            let own = if vector < side.vectors { DEPTH.min(depth.end - start) } else { 0 };
            let from = place(side, vector, start);
            // SAFETY: reads `own` values of a vector that is there, and writes a line of each part.
            unsafe {
                let to = to.at((panel * steps + step) * Chunk::STEP + line);
                let values = [
                    _mm512_maskz_loadu_ps(first(own), from),
                    _mm512_maskz_loadu_ps(first(own.saturating_sub(LANES)), from.wrapping_add(LANES)),
                ];
                split(values, |part, line| _mm512_store_si512(to.add(part * LANES).cast(), line));
            }
        }
    }
}

/// Lines of vectors that lie side by side: a line two values of each vector, one after the other.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn of_columns(side: Side<'_>, panels: Range<usize>, depth: Range<usize>, to: Lines) {
    let steps = depth.len().div_ceil(DEPTH);
    let pairs = _mm512_set_epi16(
        31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18,
        2, 17, 1, 16, 0,
    );
    for pair in 0..steps * LANES {
        let (step, line) = (pair / LANES, pair % LANES);
        let rows = [depth.start + 2 * pair, depth.start + 2 * pair + 1];
        for panel in panels.clone() {
            let vectors = side.vectors.saturating_sub(panel * LANES);
            // SAFETY: reads the vectors that are there at depths that are there, and writes a line of each part.
            unsafe {
                let to = to.at((panel * steps + step) * Chunk::STEP + line);
                let values = rows.map(|row| {
                    let own = if row < depth.end { vectors } else { 0 };
                    _mm512_maskz_loadu_ps(first(own), place(side, panel * LANES, row))
                });
                split(values, |part, line| {
                    _mm512_store_si512(to.add(part * LANES).cast(), _mm512_permutexvar_epi16(pairs, line));
                });
            }
        }
    }
}

/// A bit for each of the first `count` of sixteen.
fn first(count: usize) -> u16 {
    if count >= LANES { u16::MAX } else { (1 << count) - 1 }
}

/// Hands on the three parts of 32 values: what is nearest to them of eight significant bits, the same of what is left, and the rest.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn split([mut low, mut high]: [__m512; 2], mut with: impl FnMut(usize, __m512i)) {
    let widened = |part: __m256i| _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(part)));
    for part in 0..3 {
        // SAFETY: both types are 32 numbers of 16 bits.
        let nearest: __m512i = unsafe { std::mem::transmute(_mm512_cvtne2ps_pbh(high, low)) };
        with(part, nearest);
        low = _mm512_sub_ps(low, widened(_mm512_castsi512_si256(nearest)));
        high = _mm512_sub_ps(high, widened(_mm512_extracti64x4_epi64::<1>(nearest)));
    }
}

/// Transposes a tile of sixteen times sixteen pairs, in place.
#[target_feature(enable = "avx512f")]
unsafe fn turn(tile: *mut Line) {
    // SAFETY: sixteen lines are the caller's.
    let load = |line: usize| unsafe { _mm512_load_si512(tile.add(line).cast()) };
    let mut lines: [__m512i; LANES] = std::array::from_fn(load);
    // Pairs of lines change places of single pairs, then of two; then of quarters, and of halves.
    for first in (0..LANES).step_by(2) {
        let (a, b) = (lines[first], lines[first + 1]);
        (lines[first], lines[first + 1]) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    }
    for first in (0..LANES).step_by(4) {
        let [a, b, c, d] = [lines[first], lines[first + 1], lines[first + 2], lines[first + 3]];
        lines[first] = _mm512_unpacklo_epi64(a, c);
        lines[first + 1] = _mm512_unpackhi_epi64(a, c);
        lines[first + 2] = _mm512_unpacklo_epi64(b, d);
        lines[first + 3] = _mm512_unpackhi_epi64(b, d);
    }
    // lines[4g + i] holds, in quarter q, column 4q + i of lines 4g to 4g + 3.
    for i in 0..4 {
        let [a, b, c, d] = [lines[i], lines[4 + i], lines[8 + i], lines[12 + i]];
        let (even_low, odd_low) = (_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0xDD>(a, b));
        let (even_high, odd_high) = (_mm512_shuffle_i32x4::<0x88>(c, d), _mm512_shuffle_i32x4::<0xDD>(c, d));
        let columns = [
            _mm512_shuffle_i32x4::<0x88>(even_low, even_high),
            _mm512_shuffle_i32x4::<0x88>(odd_low, odd_high),
            _mm512_shuffle_i32x4::<0xDD>(even_low, even_high),
            _mm512_shuffle_i32x4::<0xDD>(odd_low, odd_high),
        ];
        for (quarter, column) in columns.into_iter().enumerate() {
            // SAFETY: as above; every line was read before.
            unsafe { _mm512_store_si512(tile.add(4 * quarter + i).cast(), column) };
        }
    }
}
