//! What exit codes of ranks mean to their supervisor, and those of this crate's own errors. `segue_configs::exit_code` names all codes of the
//! program; this crate does not know it, and a test of the binary holds both equal.

/// Bad command line.
pub const USAGE: i32 = 64;
/// Data that are damaged, empty, or not of their format.
pub const BAD_DATA: i32 = 65;
/// An input that is not there, or cannot be read.
pub const NO_INPUT: i32 = 66;
/// Another rank, a library or a service is gone, or not there.
pub const UNAVAILABLE: i32 = 69;
/// The system refused what always works.
pub const BUG: i32 = 70;
/// An output that cannot be made.
pub const CANNOT_CREATE: i32 = 73;
/// Reading or writing failed.
pub const IO_FAILED: i32 = 74;
/// Stopped on request after a checkpoint.
pub const PREEMPTED: i32 = 75;
/// A setting, or a variable of the environment, that has to be changed.
pub const BAD_CONFIG: i32 = 78;
/// A loss or a gradient norm that is not a number.
pub const NOT_A_NUMBER: i32 = 80;
/// A wait that was longer than its deadline.
pub const OVERDUE: i32 = 82;
