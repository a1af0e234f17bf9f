//! Products of a few queries with all keys, values or distances of a head: in the processor's tiles where it has them and the head is wide
//! enough, else by oneDNN, but for gradients of keys, values and distances, which go by outer products where the processor has AVX-512.

use segue_kernels::libtorch::{
    DEPTH_OF_TILES, Panels, Rows, Side, outer_is_available, outer_product, small_product, tiles_are_available,
};
use segue_kernels::simd::transpose;

/// Scores of a query that are laid out for tiles at once: those of all queries at hand stay in the first cache.
const PIECE: usize = 4 * DEPTH_OF_TILES;

/// Whether vectors of a head, so wide, are multiplied in tiles: narrow ones fill few.
pub fn in_tiles(width: usize) -> bool {
    width >= DEPTH_OF_TILES && tiles_are_available()
}

/// Rows of values, `[rows, columns]`, `stride` values apart: vectors of a head, or scores of queries.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    pub values: &'a [f32],
    pub rows: usize,
    pub columns: usize,
    pub stride: usize,
}

impl<'a> Matrix<'a> {
    /// Rows without gaps.
    pub fn dense(values: &'a [f32], rows: usize, columns: usize) -> Self {
        Self { values: &values[..rows * columns], rows, columns, stride: columns }
    }

    fn fits(&self) -> bool {
        self.rows > 0 && (self.rows - 1) * self.stride + self.columns <= self.values.len()
    }

    fn start(&self) -> Rows<*const f32> {
        Rows { start: self.values.as_ptr(), stride: self.stride }
    }

    fn side(&self) -> Side<'a> {
        Side::rows(self.values, [self.rows, self.columns], self.stride)
    }

    fn side_turned(&self) -> Side<'a> {
        Side::columns(self.values, [self.rows, self.columns], self.stride)
    }
}

/// What products of one thread work in.
#[derive(Default)]
pub struct Space {
    left: Panels,
    right: Panels,
    turned: Vec<f32>,
}

/// Vectors as rows multiply with them: `[rows, width]` times these gives `[rows, count]`.
#[derive(Default)]
pub struct Across {
    sizes: [usize; 2],
    tiled: bool,
    panels: Panels,
    /// `[width, count]`: a row of the product is then a row of scores, and every load is of neighbours.
    turned: Vec<f32>,
}

impl Across {
    pub fn lay(&mut self, vectors: Matrix<'_>) {
        let Matrix { values, rows: count, columns: width, stride } = vectors;
        (self.sizes, self.tiled) = ([count, width], in_tiles(width));
        if self.tiled {
            self.panels.lay_right(vectors.side());
        } else {
            self.turned.resize(width * count, 0.0);
            transpose(values, stride, [count, width], &mut self.turned, count);
        }
    }

    /// `to`, `[rows, columns]`, = `a`, `[rows, width]`, times the vectors from `first` on, of which [`aligned`] ones may be first.
    pub fn product(&self, a: Matrix<'_>, first: usize, columns: usize, to: &mut [f32], space: &mut Space) {
        let [count, width] = self.sizes;
        assert!(a.fits() && a.columns == width && first + columns <= count && a.rows * columns <= to.len());
        let to = Rows { start: to.as_mut_ptr(), stride: columns };
        if self.tiled {
            space.left.lay_left(a.side());
            // SAFETY: `to` has all rows.
            unsafe { space.left.times(&self.panels, [first, 0], columns, to, false) };
        } else {
            let b = Rows { start: self.turned[first..].as_ptr(), stride: count };
            // SAFETY: `a` fits, and so do so many columns of what was turned; `to` has all rows.
            unsafe { small_product([a.rows, columns, width], a.start(), b, to, false) };
        }
    }
}

/// Vectors as they are added up: `[rows, count]` times these gives `[rows, width]`.
#[derive(Default)]
pub struct Along<'a> {
    vectors: Option<Matrix<'a>>,
    tiled: bool,
    panels: Panels,
}

impl<'a> Along<'a> {
    pub fn lay(&mut self, vectors: Matrix<'a>) {
        assert!(vectors.fits(), "vectors that are not there");
        self.tiled = in_tiles(vectors.columns);
        if self.tiled {
            self.panels.lay_right(vectors.side_turned());
        }
        self.vectors = Some(vectors);
    }

    /// `to`, rows of the vectors' width, = `a` times the vectors from `first` on, as many as it has columns; of which [`aligned`] ones
    /// may be first.
    ///
    /// # Safety
    ///
    /// All rows of `to` must be there, which nobody else reads or writes meanwhile.
    pub unsafe fn product(&self, a: Matrix<'_>, first: usize, to: Rows<*mut f32>, space: &mut Space) {
        let Some(vectors) = self.vectors else { unreachable!("vectors are laid out before") };
        let Matrix { values, rows: count, columns: width, stride } = vectors;
        assert!(a.fits() && first + a.columns <= count);
        // SAFETY: `a` fits, and there are so many vectors; the rest is the caller's.
        unsafe {
            if self.tiled {
                for start in (0..a.columns).step_by(PIECE) {
                    let piece =
                        Matrix { values: &a.values[start..], columns: PIECE.min(a.columns - start), ..a };
                    space.left.lay_left(piece.side());
                    space.left.times(&self.panels, [0, first + start], width, to, start > 0);
                }
            } else {
                let b = Rows { start: values[first * stride..].as_ptr(), stride };
                small_product([a.rows, width, a.columns], a.start(), b, to, false);
            }
        }
    }
}

/// `to` += `a`, `[rows, count]`, transposed times `b`, `[rows, width]`: `count` rows of `width`.
///
/// # Safety
///
/// All rows of `to` must be there, which nobody else reads or writes meanwhile.
pub unsafe fn add_turned(a: Matrix<'_>, b: Matrix<'_>, to: Rows<*mut f32>, space: &mut Space) {
    assert!(a.fits() && b.fits() && a.rows == b.rows);
    // SAFETY: both fit; the rest is the caller's.
    unsafe {
        if in_tiles(b.columns) {
            space.right.lay_right(b.side_turned());
            for start in (0..a.columns).step_by(PIECE) {
                space.left.lay_left(a.side_turned().some(start..a.columns.min(start + PIECE)));
                let to = Rows { start: to.start.add(start * to.stride), stride: to.stride };
                space.left.times(&space.right, [0, 0], b.columns, to, true);
            }
        } else if outer_is_available() {
            outer_product([a.columns, b.columns, a.rows], a.start(), b.start(), to, true);
        } else {
            // Small products want the left side's rows together.
            space.turned.resize(a.columns * a.rows, 0.0);
            transpose(a.values, a.stride, [a.rows, a.columns], &mut space.turned, a.rows);
            let turned = Rows { start: space.turned.as_ptr(), stride: a.rows };
            small_product([a.columns, b.columns, a.rows], turned, b.start(), to, true);
        }
    }
}

/// The last vector up to this one that a product may begin with.
pub fn aligned(first: usize, width: usize) -> usize {
    if in_tiles(width) { first / DEPTH_OF_TILES * DEPTH_OF_TILES } else { first }
}
