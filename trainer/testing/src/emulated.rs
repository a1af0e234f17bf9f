//! Kernels for cards on the processor: `shim/emulated.cpp`.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_void};

use segue_kernels::cards::substitute;

pub use segue_kernels::cards::substitute::is_on;

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
    /// From the first on.
    Forwards,
    /// From the last on.
    Backwards,
}

thread_local! {
    static ORDER: Cell<Order> = const { Cell::new(Order::Forwards) };
}

/// Calls `f` as if tensors of the CPU lay on a card.
pub fn during<T>(order: Order, f: impl FnOnce() -> T) -> T {
    struct Before(Order);
    impl Drop for Before {
        fn drop(&mut self) {
            ORDER.set(self.0);
        }
    }
    let _before = Before(ORDER.replace(order));
    // SAFETY: `launch` runs the sources that cards run.
    unsafe { substitute::during(launch, f) }
}

/// # Safety
///
/// As [`substitute::Launch`].
unsafe fn launch(
    kernel: &str,
    grid: [u32; 2],
    threads: u32,
    arguments: &mut [*mut c_void],
) -> Result<(), String> {
    let name = CString::new(kernel).map_err(|error| error.to_string())?;
    let backwards = ORDER.get() == Order::Backwards;
    // SAFETY: the caller's; the answer is null or a text that lives as long as the program.
    unsafe {
        let why = segue_emulate(name.as_ptr(), grid[0], grid[1], threads, arguments.as_mut_ptr(), backwards);
        if why.is_null() { Ok(()) } else { Err(CStr::from_ptr(why).to_string_lossy().into_owned()) }
    }
}
