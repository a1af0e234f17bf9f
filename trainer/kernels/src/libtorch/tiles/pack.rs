//! Values in three parts, laid out as tiles.
//!
//! A tile of the left side holds 16 vectors, 32 values of each in a line. One of the right side holds their transpose in pairs: a line
//! has two values of each of 16 vectors. Pairs are of depths 16 apart on both sides, which is as good as any order, and pairs so made
//! need no value to change its lane.

use std::arch::x86_64::*;
use std::ops::Range;

use super::{DEPTH, LANES, Line, Panels, Side};

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
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
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
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn of_rows(side: Side<'_>, panels: Range<usize>, depth: Range<usize>, to: Lines) {
    let steps = depth.len().div_ceil(DEPTH);
    for vector in panels.start * LANES..panels.end * LANES {
        let (panel, line) = (vector / LANES, vector % LANES);
        for step in 0..steps {
            let start = depth.start + step * DEPTH;
            let own = if vector < side.vectors { depth.end - start } else { 0 };
            let from = place(side, vector, start);
            // SAFETY: reads values of a vector that are there, and writes a line of each part.
            unsafe {
                let halves = [load(from, own), load(from.wrapping_add(LANES), own.saturating_sub(LANES))];
                split(halves, to.at((panel * steps + step) * Panels::STEP + line));
            }
        }
    }
}

/// Lines of vectors that lie side by side: a line two values of each vector, one after the other.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn of_columns(side: Side<'_>, panels: Range<usize>, depth: Range<usize>, to: Lines) {
    let steps = depth.len().div_ceil(DEPTH);
    for pair in 0..steps * LANES {
        let (step, line) = (pair / LANES, pair % LANES);
        let rows = [0, LANES].map(|half| depth.start + step * DEPTH + half + line);
        for panel in panels.clone() {
            let vectors = side.vectors.saturating_sub(panel * LANES);
            // SAFETY: reads the vectors that are there at depths that are there, and writes a line of each part.
            unsafe {
                let own = rows.map(|row| if row < depth.end { vectors } else { 0 });
                let from = rows.map(|row| place(side, panel * LANES, row));
                split(
                    [load(from[0], own[0]), load(from[1], own[1])],
                    to.at((panel * steps + step) * Panels::STEP + line),
                );
            }
        }
    }
}

/// Values that memory is asked for before they are needed: rows mostly lie one after the other, and what reads ahead by itself stops
/// at each page.
const AHEAD: usize = 512;

/// As many of sixteen values as there are, and zeros.
///
/// # Safety
///
/// So many values must be there.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn load(from: *const f32, count: usize) -> __m512 {
    let there = if count >= LANES { u16::MAX } else { (1 << count) - 1 };
    // SAFETY: the caller's; asking for memory ahead of time reads none.
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(AHEAD).cast());
        _mm512_maskz_loadu_ps(there, from)
    }
}

/// Writes the three parts of 32 values, a tile apart, pairs of one value of each half: what is nearest to them of eight significant bits,
/// the same of what is left, and the rest.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn split(mut halves: [__m512; 2], to: *mut Line) {
    let (half_a_bit, upper) = (_mm512_set1_epi32(1 << 15), _mm512_set1_epi32(!0xFFFF));
    for part in 0..3 {
        let bits = halves.map(|half| {
            let bits = _mm512_castps_si512(half);
            // The rest has no more bits than it may: to round it would lose some values that are no numbers.
            if part < 2 { _mm512_add_epi32(bits, half_a_bit) } else { bits }
        });
        // The upper bits of the first half below those of the second.
        let pairs = _mm512_ternarylogic_epi32::<UNDER>(_mm512_srli_epi32::<16>(bits[0]), bits[1], upper);
        // SAFETY: the caller's.
        unsafe { _mm512_store_si512(to.add(part * LANES).cast(), pairs) };
        for (half, bits) in halves.iter_mut().zip(bits) {
            *half = _mm512_sub_ps(*half, _mm512_castsi512_ps(_mm512_and_si512(bits, upper)));
        }
    }
}

/// a | (b & c), as a table of the eight cases.
const UNDER: i32 = 0b1111_1000;

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
