//! How a command ends that cannot show a run. `segue_configs::exit_code` names all codes of the program; this crate does not know it, and a
//! test of the binary holds both equal.

/// An input that is not there, or cannot be read.
pub const NO_INPUT: u8 = 66;
/// An address that cannot be listened at.
pub const UNAVAILABLE: u8 = 69;
/// Reading or writing failed.
pub const IO_FAILED: u8 = 74;
