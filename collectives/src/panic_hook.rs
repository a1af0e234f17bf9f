//! A panic on one rank ends the job on all of them.

use std::io::Write;
use std::sync::Arc;

use crate::{Communicator, exit_code};

/// Exit code of a job that ends by a panic: a bug in the program.
pub const PANIC_EXIT_CODE: i32 = exit_code::BUG;

/// From now on a panic on any thread of this rank prints its message, flushes stderr and aborts the
/// job on all ranks with [`PANIC_EXIT_CODE`], so that no rank is left waiting for the one that is gone.
///
/// The hook keeps no hold on the communicator: once that is dropped, the job is at its end and a
/// panic ends this process alone, with the same code. Meant for one process per rank; under
/// [`simulated`](crate::simulated), whose ranks share a process, do not install it.
pub fn install_panic_hook(comm: &Arc<dyn Communicator>) {
    let comm = Arc::downgrade(comm);
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        // Nothing can be done about a stderr that is closed.
        let _ = std::io::stderr().flush();
        match comm.upgrade() {
            Some(comm) => comm.abort(PANIC_EXIT_CODE),
            None => std::process::exit(PANIC_EXIT_CODE),
        }
    }));
}
