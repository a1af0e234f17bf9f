//! Kernels of our own for cards: CUDA that is compiled in the process that uses it, for the card that it has.
//!
//! Neither compiler nor driver is linked: both are found when a tensor on a card is first worked on. Where one is missing, or does not take a
//! source, layers go on with libtorch's operations, and [`Missing`] says why.

mod compiler;
mod driver;
mod library;
mod missing;
mod source;
pub mod substitute;
mod table;

pub use compiler::Compiler;
pub use driver::describe;
pub use missing::Missing;
pub use source::{Kernels, Needs, Source, kind_name};
pub use source::{THREADS, params};
pub use table::{CHUNK, Table};
