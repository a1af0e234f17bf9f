//! Where values in single precision lie in memory: those that several threads write to, and rows of them.

use std::ops::Range;

use tch::Tensor;

use super::as_f32_mut;

/// A tensor's f32 values, which several threads write to, each its own places.
#[derive(Clone, Copy)]
pub struct Shared(*mut f32);

// SAFETY: whoever writes through it says why nobody else does.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Those of a contiguous tensor on the CPU.
    pub fn of(tensor: &mut Tensor) -> Self {
        Self(as_f32_mut(tensor).as_mut_ptr())
    }

    /// Those of a slice.
    pub fn of_slice(values: &mut [f32]) -> Self {
        Self(values.as_mut_ptr())
    }

    /// Some of them.
    ///
    /// # Safety
    ///
    /// They must lie in the same tensor, and nobody else may have them while the slice lives.
    pub unsafe fn slice<'a>(self, range: Range<usize>) -> &'a mut [f32] {
        // SAFETY: the caller's.
        unsafe { std::slice::from_raw_parts_mut(self.at(range.start), range.len()) }
    }

    /// The place `i` values on.
    ///
    /// # Safety
    ///
    /// It must lie in the same tensor.
    pub unsafe fn at(self, i: usize) -> *mut f32 {
        // SAFETY: the caller's.
        unsafe { self.0.add(i) }
    }
}

/// Rows of equal length in memory, `stride` values apart.
#[derive(Debug, Clone, Copy)]
pub struct Rows<T> {
    /// The first value.
    pub start: T,
    /// Values from one row's begin to the next one's.
    pub stride: usize,
}
