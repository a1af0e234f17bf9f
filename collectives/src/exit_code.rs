//! How a rank ends that cannot go on. `segue_configs::exit_code` names all codes of the program; this crate does not know it, and a test of
//! the binary holds both equal.

/// Another rank, a library or a service is gone, or not there.
pub const UNAVAILABLE: i32 = 69;
/// A bug of this program.
pub const BUG: i32 = 70;
/// The configuration asks for what cannot be.
pub const BAD_CONFIG: i32 = 78;
