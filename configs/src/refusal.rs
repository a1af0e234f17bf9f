//! Refusals of single keys.

use crate::ConfigError;
use crate::range::shortened;

/// The error of a key whose value is not possible; `why` may end with `\nhint: ` and advice.
pub fn out_of_range(key: impl ToString, value: impl ToString, why: &str) -> ConfigError {
    ConfigError::OutOfRange { key: key.to_string(), value: shortened(value.to_string()), why: why.into() }
}

/// The error of a value that has no effect beside the others. A checkpoint of a version that took it is gone on from all the same.
pub fn no_effect(key: impl ToString, value: impl ToString, why: &str) -> ConfigError {
    ConfigError::NoEffect { key: key.to_string(), value: shortened(value.to_string()), why: why.into() }
}
