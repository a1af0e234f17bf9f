//! The right side of small products, laid out so that what each of them reads lies close together.

use std::ops::Range;

use super::places::Rows;
use super::small_product::small_product;
use crate::simd::transpose;

/// Strips that are filled side by side.
const WRITTEN_AT_ONCE: usize = 8;

/// A matrix in strips of some columns, each `[rows, columns of the strip]`, one after another.
pub struct Strips {
    values: Vec<f32>,
    rows: usize,
    columns: usize,
    width: usize,
}

impl Strips {
    /// Those of `matrix`, `[rows, columns]`, each `width` columns wide but for the last.
    pub fn of(matrix: &[f32], [rows, columns]: [usize; 2], width: usize) -> Self {
        assert!(matrix.len() == rows * columns && width > 0);
        let mut values = Vec::with_capacity(matrix.len());
        let to = values.spare_capacity_mut().as_mut_ptr().cast::<f32>();
        // Strip by strip would read each row's lines in many passes; row by row through all strips would write to more places than the processor
        // follows.
        for group in (0..columns).step_by(WRITTEN_AT_ONCE * width) {
            let starts = (group..columns.min(group + WRITTEN_AT_ONCE * width)).step_by(width);
            for row in 0..rows {
                for first in starts.clone() {
                    let from = &matrix[row * columns + first..][..width.min(columns - first)];
                    // SAFETY: the strip begins behind `first` columns of all rows and has as many values a row as `from`, so that this ends before
                    // `rows * columns`, which there is room for.
                    unsafe {
                        let to = to.add(first * rows + row * from.len());
                        to.copy_from_nonoverlapping(from.as_ptr(), from.len());
                    }
                }
            }
        }
        // SAFETY: each column of each row was written to a place of its own.
        unsafe { values.set_len(matrix.len()) };
        Self { values, rows, columns, width }
    }

    /// Those of the transpose of `matrix`, `[columns, rows]`.
    pub fn transposed(matrix: &[f32], [columns, rows]: [usize; 2], width: usize) -> Self {
        let mut values = vec![0.0; rows * columns];
        for (strip, to) in values.chunks_mut((rows * width).max(1)).enumerate() {
            let first = strip * width;
            let own = width.min(columns - first);
            transpose(&matrix[first * rows..], rows, [own, rows], to, own);
        }
        Self { values, rows, columns, width }
    }

    /// Rows of the matrix.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns of the matrix.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// How many strips there are.
    pub fn count(&self) -> usize {
        self.columns.div_ceil(self.width)
    }

    /// `to` `[m, columns]`, in the columns of strip `strip` alone, = `a` `[m, depth]` times those rows of the matrix, or that much more.
    ///
    /// # Safety
    ///
    /// `a` and `to` must have `m` rows of as many values, `to` all columns of the matrix; nobody else reads or writes those of the strip
    /// meanwhile.
    pub unsafe fn multiply(
        &self,
        strip: usize,
        (a, m): (Rows<*const f32>, usize),
        depth: Range<usize>,
        to: Rows<*mut f32>,
        add: bool,
    ) {
        assert!(depth.end <= self.rows);
        let first = strip * self.width;
        let width = self.width.min(self.columns - first);
        let values = &self.values[first * self.rows + depth.start * width..][..depth.len() * width];
        // SAFETY: `values` are as many rows of `width`; the rest is the caller's, whose rows have `width` values from `first` on.
        unsafe {
            let to = Rows { start: to.start.add(first), stride: to.stride };
            small_product(
                [m, width, depth.len()],
                a,
                Rows { start: values.as_ptr(), stride: width },
                to,
                add,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strips_hold_the_matrix_and_its_transpose() {
        for (rows, columns, width) in [(3, 5, 2), (5, 16, 16), (17, 9, 4), (2, 3, 64), (0, 4, 2), (4, 0, 2)] {
            let matrix: Vec<f32> = (0..rows * columns).map(|value| value as f32).collect();
            let turned: Vec<f32> =
                (0..rows * columns).map(|i| matrix[i % rows.max(1) * columns + i / rows.max(1)]).collect();
            let strips = Strips::of(&matrix, [rows, columns], width);
            assert_eq!(strips.values, Strips::transposed(&turned, [columns, rows], width).values);
            let mut sorted = strips.values.clone();
            sorted.sort_by(f32::total_cmp);
            assert_eq!(sorted, matrix);
            assert_eq!((strips.rows(), strips.columns()), (rows, columns));
            if let (Some(second), true) = (strips.values.get(width.min(columns)), rows > 1) {
                assert_eq!(*second, columns as f32, "the second row follows the first");
            }
        }
    }
}
