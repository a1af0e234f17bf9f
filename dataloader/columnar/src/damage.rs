use std::fmt::Display;
use std::io;

/// Bytes that are not what they should be.
pub(crate) fn invalid(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

/// Bytes that cannot be made sense of, with what stops whoever reads them.
pub(crate) fn damage(why: impl Display) -> io::Error {
    invalid(format!("it is damaged, or of a form that is not read: {why}"))
}
