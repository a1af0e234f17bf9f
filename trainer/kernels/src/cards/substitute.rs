//! What works on tensors of the processor as if they lay on a card, for tests on a host without one.

use std::cell::Cell;
use std::ffi::c_void;

/// Starts a kernel by its name, with a grid of blocks, threads of each and arguments as a card's driver takes them.
///
/// # Safety
///
/// As [`Kernels::launch`](super::Kernels::launch).
pub type Launch = unsafe fn(
    kernel: &str,
    grid: [u32; 2],
    threads: u32,
    arguments: &mut [*mut c_void],
) -> Result<(), String>;

thread_local! {
    static LAUNCH: Cell<Option<Launch>> = const { Cell::new(None) };
}

/// Whether tensors of the processor are worked on as if they lay on a card, by this thread.
pub fn is_on() -> bool {
    LAUNCH.get().is_some()
}

/// Calls `f` with `launch` in the place of a card for all that this thread computes.
///
/// # Safety
///
/// `launch` does with its arguments what the kernel of that name does on a card.
pub unsafe fn during<T>(launch: Launch, f: impl FnOnce() -> T) -> T {
    struct Before(Option<Launch>);
    impl Drop for Before {
        fn drop(&mut self) {
            LAUNCH.set(self.0);
        }
    }
    let _before = Before(LAUNCH.replace(Some(launch)));
    f()
}

/// # Safety
///
/// As [`Launch`].
pub(super) unsafe fn launch(
    kernel: &str,
    grid: [u32; 2],
    threads: u32,
    arguments: &mut [*mut c_void],
) -> Result<(), String> {
    let launch = LAUNCH.get().ok_or("nothing stands in for a card")?;
    // SAFETY: the caller's.
    unsafe { launch(kernel, grid, threads, arguments) }
}
