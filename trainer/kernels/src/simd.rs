//! Vectorised loops, compiled for the processor's instruction set.

use std::f32::consts::{FRAC_1_SQRT_2, LN_2, LOG2_E};

/// `vectorised! { fn fast(x: &[f32]) = plain; }` makes of `plain`, which must be inlined always, as must be what it calls, a
/// function that is compiled for sixteen or eight values at a time where the processor can.
///
/// It rounds as the plain one does: a fused product and sum is one rounding on every processor.
#[macro_export]
macro_rules! vectorised {
    ($(#[$meta:meta])* $visible:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)? = $plain:ident;) => {
        $(#[$meta])*
        $visible fn $name($($arg: $type),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512dq,avx512vl,fma")]
                unsafe fn avx512($($arg: $type),*) $(-> $result)? {
                    $plain($($arg),*)
                }
                #[target_feature(enable = "avx2,fma")]
                unsafe fn avx2($($arg: $type),*) $(-> $result)? {
                    $plain($($arg),*)
                }
                if std::arch::is_x86_feature_detected!("avx512dq") && std::arch::is_x86_feature_detected!("avx512vl") {
                    // SAFETY: the processor has these, and with them AVX-512F and FMA, which is all the function asks for.
                    return unsafe { avx512($($arg),*) };
                }
                if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
                    // SAFETY: the processor has AVX2 and FMA, which is all the function asks for.
                    return unsafe { avx2($($arg),*) };
                }
            }
            $plain($($arg),*)
        }
    };
}
pub use vectorised;

vectorised! {
    /// Whether every f32 of those that `bytes` hold, each the least significant byte first, is a finite number.
    pub fn are_finite(bytes: &[u8]) -> bool = finite;
}

#[inline(always)]
fn finite(bytes: &[u8]) -> bool {
    /// All ones in a NaN or an infinity.
    const EXPONENT: u32 = 0x7f80_0000;
    let (values, _) = bytes.as_chunks::<4>();
    // Without an exit on the way, so that several are looked at at once.
    !values.iter().fold(false, |spoiled, value| spoiled | (u32::from_le_bytes(*value) & EXPONENT == EXPONENT))
}

/// Values that sums and maxima are taken of side by side.
const LANES: usize = 16;

/// The largest value; −∞ of none.
#[inline(always)]
pub fn max(values: &[f32]) -> f32 {
    let (chunks, rest) = values.as_chunks::<LANES>();
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut tops = [f32::NEG_INFINITY; LANES];
    for chunk in chunks {
        for (top, value) in tops.iter_mut().zip(chunk) {
            *top = larger(*top, *value);
        }
    }
    // Halves, so that the last steps are made for many values at once too. The largest is the same in any order, but for the sign of
    // a zero, which no caller sees.
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            tops[i] = larger(tops[i], tops[i + half]);
        }
    }
    rest.iter().copied().fold(tops[0], larger)
}

/// Both of each pair of two slices of one length = f of them. A loop over both slices is not always compiled for many values at once, as
/// it gets lost that they do not overlap; here it is.
#[inline(always)]
pub fn change_pairs(a: &mut [f32], b: &mut [f32], f: impl Fn(f32, f32) -> (f32, f32)) {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks_mut::<LANES>(), b.as_chunks_mut::<LANES>());
    for (a, b) in a.iter_mut().zip(b) {
        let (mut of_a, mut of_b) = (*a, *b);
        for (a, b) in of_a.iter_mut().zip(&mut of_b) {
            (*a, *b) = f(*a, *b);
        }
        (*a, *b) = (of_a, of_b);
    }
    for (a, b) in a_rest.iter_mut().zip(b_rest) {
        (*a, *b) = f(*a, *b);
    }
}

/// Σ f(a, b) over pairs of two slices of one length, in an order of its own, the same on every processor.
#[inline(always)]
pub fn sum_of_pairs(a: &[f32], b: &[f32], f: impl Fn(f32, f32) -> f32) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut sums = [0f32; LANES];
    for (a, b) in a.iter().zip(b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += f(*a, *b);
        }
    }
    for ((sum, a), b) in sums.iter_mut().zip(a_rest).zip(b_rest) {
        *sum += f(*a, *b);
    }
    sums.iter().sum()
}

/// Σ of values.
#[inline(always)]
pub fn sum(values: &[f32]) -> f32 {
    sum_of_pairs(values, values, |value, _| value)
}

/// ln 2 in two parts, the first of few bits.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = (LN_2 as f64 - LN_2_HIGH as f64) as f32;

/// eˣ to two units in the last place; beyond ±87, where f32 ends, the value there.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    const END: f32 = 87.0;
    /// Adding it rounds to an integer, which then stands in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let x = x.clamp(-END, END);
    let shifted = x.mul_add(LOG2_E, ROUND);
    let whole = shifted - ROUND;
    let rest = (-whole).mul_add(LN_2_LOW, (-whole).mul_add(LN_2_HIGH, x));
    // Taylor's series; what is left is at most ln 2 / 2.
    let series = (1.0f32 / 5040.0)
        .mul_add(rest, 1.0 / 720.0)
        .mul_add(rest, 1.0 / 120.0)
        .mul_add(rest, 1.0 / 24.0)
        .mul_add(rest, 1.0 / 6.0)
        .mul_add(rest, 0.5)
        .mul_add(rest, 1.0)
        .mul_add(rest, 1.0);
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0f32.to_bits()));
    series * power
}

/// ln x to two units in the last place, for positive x that are not subnormal.
#[inline(always)]
pub fn ln(x: f32) -> f32 {
    const EXPONENT_BITS: u32 = 23;
    // x = 2^exponent · rest, the rest between √½ and √2.
    let bits = x.to_bits();
    let exponent = bits.wrapping_sub(FRAC_1_SQRT_2.to_bits()) as i32 >> EXPONENT_BITS;
    let rest = f32::from_bits(bits.wrapping_sub((exponent << EXPONENT_BITS) as u32));
    // ln r = 2 artanh s, by its series; s² is at most 0.03.
    let s = (rest - 1.0) / (rest + 1.0);
    let square = s * s;
    let series = (2.0f32 / 9.0)
        .mul_add(square, 2.0 / 7.0)
        .mul_add(square, 2.0 / 5.0)
        .mul_add(square, 2.0 / 3.0)
        .mul_add(square, 2.0);
    let exponent = exponent as f32;
    exponent.mul_add(LN_2_HIGH, s.mul_add(series, exponent * LN_2_LOW))
}

/// Writes `columns` rows of `rows` values, `to_stride` apart, to `to`: the transpose of the `rows` rows of `columns` values,
/// `from_stride` apart, in `from`.
pub fn transpose(
    from: &[f32],
    from_stride: usize,
    [rows, columns]: [usize; 2],
    to: &mut [f32],
    to_stride: usize,
) {
    let fits = |length: usize, rows: usize, columns: usize, stride: usize| {
        rows == 0 || columns == 0 || (rows - 1) * stride + columns <= length
    };
    assert!(fits(from.len(), rows, columns, from_stride) && fits(to.len(), columns, rows, to_stride));
    let (mut whole_rows, mut whole_columns) = (0, 0);
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx") {
        (whole_rows, whole_columns) = (rows / 8 * 8, columns / 8 * 8);
        // SAFETY: the processor has AVX, and so many rows and columns lie inside both.
        unsafe {
            transpose_eights(
                from.as_ptr(),
                from_stride,
                [whole_rows, whole_columns],
                to.as_mut_ptr(),
                to_stride,
            );
        }
    }
    for row in 0..rows {
        let first = if row < whole_rows { whole_columns } else { 0 };
        for column in first..columns {
            to[column * to_stride + row] = from[row * from_stride + column];
        }
    }
}

/// The same of rows and columns whose numbers are multiples of eight.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn transpose_eights(
    from: *const f32,
    from_stride: usize,
    [rows, columns]: [usize; 2],
    to: *mut f32,
    to_stride: usize,
) {
    for row in (0..rows).step_by(8) {
        for column in (0..columns).step_by(8) {
            // SAFETY: the caller's.
            unsafe {
                let (from, to) = (from.add(row * from_stride + column), to.add(column * to_stride + row));
                transpose_8_by_8(from, from_stride, to, to_stride);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn transpose_8_by_8(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
    use std::arch::x86_64::*;
    let mut rows = [_mm256_setzero_ps(); 8];
    for (i, row) in rows.iter_mut().enumerate() {
        // SAFETY: the caller's.
        *row = unsafe { _mm256_loadu_ps(from.add(i * from_stride)) };
    }
    // Pairs of rows, then fours of them, each half of eight for itself; then the halves.
    let mut fours = [_mm256_setzero_ps(); 8];
    for first in [0, 4] {
        let [a, b, c, d] = [rows[first], rows[first + 1], rows[first + 2], rows[first + 3]];
        let (low, high) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
        let (next_low, next_high) = (_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
        fours[first] = _mm256_shuffle_ps::<0x44>(low, next_low);
        fours[first + 1] = _mm256_shuffle_ps::<0xEE>(low, next_low);
        fours[first + 2] = _mm256_shuffle_ps::<0x44>(high, next_high);
        fours[first + 3] = _mm256_shuffle_ps::<0xEE>(high, next_high);
    }
    for i in 0..4 {
        // SAFETY: the caller's.
        unsafe {
            let (upper, lower) = (fours[i], fours[i + 4]);
            _mm256_storeu_ps(to.add(i * to_stride), _mm256_permute2f128_ps::<0x20>(upper, lower));
            _mm256_storeu_ps(to.add((i + 4) * to_stride), _mm256_permute2f128_ps::<0x31>(upper, lower));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transposes_of_all_sizes() {
        for rows in 0..19 {
            for columns in 0..19 {
                let (from_stride, to_stride) = (columns + 3, rows + 2);
                let from: Vec<f32> = (0..rows * from_stride).map(|i| i as f32).collect();
                let mut to = vec![-1.0; columns * to_stride];
                transpose(&from, from_stride, [rows, columns], &mut to, to_stride);
                for (i, value) in to.iter().enumerate() {
                    let (column, row) = (i / to_stride, i % to_stride);
                    let expected = if row < rows { (row * from_stride + column) as f32 } else { -1.0 };
                    assert_eq!(*value, expected, "{rows} {columns} {i}");
                }
            }
        }
    }

    #[inline(always)]
    fn sum_and_max_plain(values: &[f32]) -> (f32, f32) {
        (sum(values), max(values))
    }

    vectorised! { fn sum_and_max(values: &[f32]) -> (f32, f32) = sum_and_max_plain; }

    #[test]
    fn sums_and_maxima_are_the_same_on_all_processors() {
        for count in [0, 1, 15, 16, 17, 100] {
            let values: Vec<f32> =
                (0..count).map(|i| ((i * 37 % 11) as f32 - 5.3) * 1.1f32.powi(i)).collect();
            let plain = (sum(&values), max(&values));
            assert_eq!(plain, sum_and_max(&values));
            let exact: f64 = values.iter().map(|&x| f64::from(x)).sum();
            let size: f64 = values.iter().map(|&x| f64::from(x.abs())).sum();
            assert!((f64::from(plain.0) - exact).abs() <= 1e-6 * size, "{count}");
            assert_eq!(plain.1, values.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        }
    }

    #[test]
    fn exponentials_are_those_of_double_precision() {
        for i in -8700..8700 {
            let x = i as f32 / 100.0;
            let error = (f64::from(exp(x)) / f64::from(x).exp() - 1.0).abs();
            assert!(error < 3e-7, "{x}: {error}");
        }
        assert_eq!(exp(-1000.0), exp(-87.0));
    }

    #[test]
    fn logarithms_are_those_of_double_precision() {
        let wide = (-8700..8800).map(|i| (i as f32 / 100.0).exp());
        let around_one = (-4000..4000).map(|i| 1.0 + i as f32 / 10_000.0);
        let next_to_one =
            (1..100).flat_map(|i| [1.0 + i as f32 * f32::EPSILON, 1.0 - i as f32 * f32::EPSILON]);
        let ends = [f32::MIN_POSITIVE, f32::MAX, FRAC_1_SQRT_2, FRAC_1_SQRT_2.next_down(), 2.0, 0.5];
        for x in wide.chain(around_one).chain(next_to_one).chain(ends).filter(|x| *x != 1.0) {
            let error = (f64::from(ln(x)) / f64::from(x).ln() - 1.0).abs();
            assert!(error < 3e-7, "{x}: {error}");
        }
        assert_eq!(ln(1.0), 0.0);
    }
}
