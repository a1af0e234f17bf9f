//! Products whose left side lies column by column, as sums of outer products of rows: in attention the gradients of keys, values and
//! distances, whose depth is the few queries of a tile. oneDNN's small products want the left side turned first, which takes up to
//! half as long as they do at that depth; here its values are read where they lie. For processors with AVX-512.

use std::sync::OnceLock;

use super::limit;
use super::places::Rows;

/// Rows and, in vectors of [`LANES`] values, columns of the product that stay in registers, next to a vector of each column and one
/// value of the left side: 29 of 32.
const ROWS: usize = 6;
const VECTORS: usize = 4;
const LANES: usize = 16;
/// Rows of the left side that are asked for ahead of time. Each is read in few values, too far apart for the processor to foresee.
const AHEAD: usize = 16;

/// Whether [`outer_product`] may be called: where the processor has AVX-512, and `ONEDNN_MAX_CPU_ISA` does not speak against it.
pub fn available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| limit::allows("512") && has_avx512())
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx512() -> bool {
    false
}

/// `c` `[m, n]` = `a` `[depth, m]` transposed times `b` `[depth, n]`, or that much more, on one thread. Each value is the sum of
/// products in order of depth, with one rounding each, which is then written or added: the bits of
/// [`small_product`](super::small_product()) with the left side turned.
///
/// # Safety
///
/// [`available`]; all rows lie in memory that may be read or, of `c`, written, by nobody else meanwhile.
pub unsafe fn outer_product(
    [m, n, depth]: [usize; 3],
    a: Rows<*const f32>,
    b: Rows<*const f32>,
    c: Rows<*mut f32>,
    add: bool,
) {
    debug_assert!(available());
    #[cfg(target_arch = "x86_64")]
    for column in (0..n).step_by(VECTORS * LANES) {
        let columns = (n - column).min(VECTORS * LANES);
        // Pointers wrap: without depth nothing of `b` need be there, nor of `c` without rows.
        let b = Rows { start: b.start.wrapping_add(column), ..b };
        let c = Rows { start: c.start.wrapping_add(column), ..c };
        // SAFETY: the caller's; these columns lie in `b` and `c`.
        unsafe {
            match columns.div_ceil(LANES) {
                1 => avx512::columns::<1>([m, columns, depth], a, b, c, add),
                2 => avx512::columns::<2>([m, columns, depth], a, b, c, add),
                3 => avx512::columns::<3>([m, columns, depth], a, b, c, add),
                _ => avx512::columns::<VECTORS>([m, columns, depth], a, b, c, add),
            }
        }
    }
}

// Loops over numbers are those that are unrolled, so that sums stay in registers, in a development build too.
#[allow(clippy::needless_range_loop)]
#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;

    use super::{AHEAD, LANES, ROWS, Rows};

    /// All rows of the product, in `V` vectors of columns, the last of which may be short.
    ///
    /// # Safety
    ///
    /// As of [`super::outer_product`].
    #[target_feature(enable = "avx512f")]
    pub unsafe fn columns<const V: usize>(
        [m, columns, depth]: [usize; 3],
        a: Rows<*const f32>,
        b: Rows<*const f32>,
        c: Rows<*mut f32>,
        add: bool,
    ) {
        let last = u16::MAX >> (V * LANES - columns);
        let mut row = 0;
        while row < m {
            let a = Rows { start: a.start.wrapping_add(row), ..a };
            // SAFETY: the caller's; as many rows as are left at most.
            unsafe {
                let c = Rows { start: c.start.add(row * c.stride), ..c };
                row += match m - row {
                    ROWS.. => block::<ROWS, V>(depth, a, b, c, last, add),
                    4.. => block::<4, V>(depth, a, b, c, last, add),
                    2.. => block::<2, V>(depth, a, b, c, last, add),
                    _ => block::<1, V>(depth, a, b, c, last, add),
                };
            }
        }
    }

    /// `R` rows, and returns how many. `last`: which values of the last vector there are.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn block<const R: usize, const V: usize>(
        depth: usize,
        a: Rows<*const f32>,
        b: Rows<*const f32>,
        c: Rows<*mut f32>,
        last: u16,
        add: bool,
    ) -> usize {
        let mut sums = [[_mm512_setzero_ps(); V]; R];
        // Pointers wrap: checks of a development build would keep sums out of registers.
        let (mut left, mut right) = (a.start, b.start);
        for _ in 0..depth {
            // SAFETY: the caller's; what a mask leaves out is not touched, and what is asked for ahead need not be there.
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(left.wrapping_add(AHEAD.wrapping_mul(a.stride)).cast());
                let mut vectors = [_mm512_setzero_ps(); V];
                for i in 0..V {
                    let mask = if i == V - 1 { last } else { u16::MAX };
                    vectors[i] = _mm512_maskz_loadu_ps(mask, right.wrapping_add(i * LANES));
                }
                for row in 0..R {
                    let value = _mm512_broadcastss_ps(_mm_load_ss(left.wrapping_add(row)));
                    for i in 0..V {
                        sums[row][i] = _mm512_fmadd_ps(value, vectors[i], sums[row][i]);
                    }
                }
            }
            (left, right) = (left.wrapping_add(a.stride), right.wrapping_add(b.stride));
        }
        // Row by row without a loop: one that picks some of the sums would keep all of them in memory from the beginning.
        macro_rules! write_rows {
            ($($row:literal)*) => {
                $(if $row < R {
                    // SAFETY: the caller's.
                    unsafe { write(sums[$row], c.start.wrapping_add(c.stride.wrapping_mul($row)), last, add) };
                })*
            };
        }
        const { assert!(R <= ROWS && ROWS == 6) };
        write_rows!(0 1 2 3 4 5);
        R
    }

    /// Writes the sums of one row, or adds them to what is there.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn write<const V: usize>(sums: [__m512; V], to: *mut f32, last: u16, add: bool) {
        for i in 0..V {
            let (to, mask) = (to.wrapping_add(i * LANES), if i == V - 1 { last } else { u16::MAX });
            // SAFETY: the caller's; what a mask leaves out is not touched.
            unsafe {
                let sum = if add { _mm512_add_ps(sums[i], _mm512_maskz_loadu_ps(mask, to)) } else { sums[i] };
                _mm512_mask_storeu_ps(to, mask, sum);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use segue_skip::{Need, skip};

    use super::*;
    use crate::libtorch::small_product;
    use crate::simd::transpose;

    fn wave(count: usize, speed: f32) -> Vec<f32> {
        (0..count).map(|i| (i as f32 * speed).sin()).collect()
    }

    #[test]
    fn outer_products_have_the_bits_of_small_products_of_what_was_turned() {
        if !available() {
            return skip(Need::Machine, "a processor with AVX-512");
        }
        for (m, n, depth) in [(1, 1, 1), (6, 64, 256), (13, 33, 5), (15, 64, 32), (22, 49, 100), (3, 95, 0)] {
            for add in [false, true] {
                // With gaps behind each row, which must stay as they are.
                let [of_a, of_b, of_c] = [m + 3, n + 1, n + 2];
                let (a, b) = (wave(depth * of_a + 1, 0.7), wave(depth * of_b + 1, 1.3));
                let mut turned = vec![0.0; m * depth + 1];
                transpose(&a, of_a, [depth, m], &mut turned, depth);
                let (mut ours, mut theirs) = (wave(m * of_c, 0.3), wave(m * of_c, 0.3));
                let rows = |values: &[f32], stride| Rows { start: values.as_ptr(), stride };
                let written = |values: &mut [f32]| Rows { start: values.as_mut_ptr(), stride: of_c };
                // SAFETY: so many rows lie in all.
                unsafe {
                    outer_product([m, n, depth], rows(&a, of_a), rows(&b, of_b), written(&mut ours), add);
                    if depth > 0 {
                        let left = rows(&turned, depth);
                        small_product([m, n, depth], left, rows(&b, of_b), written(&mut theirs), add);
                    }
                }
                for (i, ours) in ours.iter().enumerate() {
                    let (row, column) = (i / of_c, i % of_c);
                    let before = (i as f32 * 0.3).sin();
                    if column >= n {
                        assert_eq!(*ours, before, "a gap of row {row}");
                        continue;
                    }
                    let term = |k: usize| f64::from(a[k * of_a + row]) * f64::from(b[k * of_b + column]);
                    let exact = (0..depth).map(term).sum::<f64>() + f64::from(before) * f64::from(add);
                    assert!((f64::from(*ours) - exact).abs() < 1e-4, "{m} {n} {depth} {add}: {row} {column}");
                    if depth > 0 {
                        assert_eq!(
                            ours.to_bits(),
                            theirs[i].to_bits(),
                            "{m} {n} {depth} {add}: {row} {column}"
                        );
                    }
                }
            }
        }
    }
}
