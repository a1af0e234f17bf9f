//! Python pickles, protocols 0 to 5, of Python 2 and 3, as data. A pickle is a program for a stack machine that may
//! call any function; this reader only records what would have been called, and with which arguments.

mod machine;
mod numpy;
mod reader;
mod view;

pub use numpy::{SparseMatrix, SparsePlaces};
pub use view::{Kind, Pickle, View};
