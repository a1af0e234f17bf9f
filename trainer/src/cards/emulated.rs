//! Kernels on the processor, for tests: `shim/emulated.cpp`.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_void};

unsafe extern "C" {
    fn segue_emulate(
        name: *const c_char,
        grid_x: u32,
        grid_y: u32,
        threads: u32,
        arguments: *mut *mut c_void,
        backwards: bool,
    ) -> *const c_char;
}

/// The order in which the threads of a block are taken: what a kernel gives must not depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Forwards,
    Backwards,
}

thread_local! {
    static ORDER: Cell<Option<Order>> = const { Cell::new(None) };
}

/// Whether tensors of the CPU are worked on as if they lay on a card.
pub fn is_on() -> bool {
    ORDER.get().is_some()
}

/// Calls `f` as if tensors of the CPU lay on a card.
pub fn during<T>(order: Order, f: impl FnOnce() -> T) -> T {
    struct Before(Option<Order>);
    impl Drop for Before {
        fn drop(&mut self) {
            ORDER.set(self.0);
        }
    }
    let _before = Before(ORDER.replace(Some(order)));
    f()
}

/// # Safety
///
/// As [`super::Kernels::launch`].
pub unsafe fn launch(
    kernel: &str,
    grid: [u32; 2],
    threads: u32,
    arguments: &mut [*mut c_void],
) -> Result<(), String> {
    let name = CString::new(kernel).map_err(|error| error.to_string())?;
    let backwards = ORDER.get() == Some(Order::Backwards);
    // SAFETY: the caller's; the answer is null or a text that lives as long as the program.
    unsafe {
        let why = segue_emulate(name.as_ptr(), grid[0], grid[1], threads, arguments.as_mut_ptr(), backwards);
        if why.is_null() { Ok(()) } else { Err(CStr::from_ptr(why).to_string_lossy().into_owned()) }
    }
}
