//! How a process ends, by name: `docs/book/src/reference/exit-codes.md` has the table. Where there are names for it in BSD's
//! `sysexits.h`, the numbers are those.

use std::io;

/// A limit that a check was to hold does not.
pub const CHECK_FAILED: u8 = 1;
/// Bad command line.
pub const USAGE: u8 = 64;
/// Data that are damaged, empty, or not of their format.
pub const BAD_DATA: u8 = 65;
/// An input that is not there, or cannot be read.
pub const NO_INPUT: u8 = 66;
/// Another rank, a library or a service is gone, or not there.
pub const UNAVAILABLE: u8 = 69;
/// A bug of this program.
pub const BUG: u8 = 70;
/// An output that cannot be made.
pub const CANNOT_CREATE: u8 = 73;
/// Reading or writing failed: a full disk, a disk that fails.
pub const IO_FAILED: u8 = 74;
/// Stopped on request after a checkpoint; the same command goes on.
pub const PREEMPTED: u8 = 75;
/// A setting that is unknown, out of range or missing, or does not fit what it is used with.
pub const BAD_CONFIG: u8 = 78;
/// The loss, the gradient norm, the weights or the last evaluation of a training are not finite.
pub const NOT_A_NUMBER: u8 = 80;
/// Ranks hold different weights or gradients.
pub const RANKS_DIFFER: u8 = 81;
/// A wait for other ranks that was longer than its deadline.
pub const OVERDUE: u8 = 82;
/// Stopped by Ctrl-C, with what there was by then or with nothing.
pub const INTERRUPTED: u8 = 130;

/// Of an input that the system refuses to give: one that is not there and one that cannot be opened are alike to whoever
/// named it.
pub fn of_read(error: &io::Error) -> u8 {
    use io::ErrorKind::*;
    match error.kind() {
        NotFound | PermissionDenied | IsADirectory | NotADirectory | InvalidFilename | InvalidInput => {
            NO_INPUT
        }
        // The standard library's word for a text that is not UTF-8.
        InvalidData => BAD_DATA,
        _ => IO_FAILED,
    }
}

/// Of an output that the system refuses to take: another place would do, or the same one later.
pub fn of_write(error: &io::Error) -> u8 {
    use io::ErrorKind::*;
    match error.kind() {
        AlreadyExists | CrossesDevices | InvalidFilename | InvalidInput | IsADirectory | NotADirectory
        | NotFound | PermissionDenied | ReadOnlyFilesystem => CANNOT_CREATE,
        _ => IO_FAILED,
    }
}

#[cfg(test)]
mod tests {
    use io::ErrorKind::*;

    use super::*;

    #[test]
    fn a_refusal_has_the_code_of_what_helps() {
        for (kind, read, write) in [
            (NotFound, 66, 73),
            (PermissionDenied, 66, 73),
            (IsADirectory, 66, 73),
            (NotADirectory, 66, 73),
            (InvalidFilename, 66, 73),
            // A pipe or a device in the place of a file.
            (InvalidInput, 66, 73),
            (InvalidData, 65, 74),
            (ReadOnlyFilesystem, 74, 73),
            (AlreadyExists, 74, 73),
            (StorageFull, 74, 74),
            (QuotaExceeded, 74, 74),
            (Other, 74, 74),
        ] {
            assert_eq!((of_read(&kind.into()), of_write(&kind.into())), (read, write), "{kind:?}");
        }
    }
}
