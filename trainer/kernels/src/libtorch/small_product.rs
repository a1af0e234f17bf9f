//! Products of small tiles, each on one thread.

use std::ffi::c_char;

use super::checked;
use super::places::Rows;

unsafe extern "C" {
    fn segue_product(
        m: usize,
        n: usize,
        k: usize,
        a: *const f32,
        a_stride: usize,
        b: *const f32,
        b_stride: usize,
        c: *mut f32,
        c_stride: usize,
        add: bool,
        message: *mut c_char,
        capacity: usize,
    ) -> bool;
}

/// `c` `[m, n]` = `a` `[m, k]` times `b` `[k, n]`, or that much more, on one thread. Small products reach nine tenths of the
/// processor's limit, where libtorch's products of batches reach six.
///
/// # Safety
///
/// All rows lie in memory that may be read or, of `c`, written, by nobody else meanwhile.
pub unsafe fn small_product(
    [m, n, k]: [usize; 3],
    a: Rows<*const f32>,
    b: Rows<*const f32>,
    c: Rows<*mut f32>,
    add: bool,
) {
    // SAFETY: the caller's.
    let done = checked(|message, capacity| unsafe {
        segue_product(
            m, n, k, a.start, a.stride, b.start, b.stride, c.start, c.stride, add, message, capacity,
        )
    });
    if let Err(error) = done {
        panic!("{error}");
    }
}
