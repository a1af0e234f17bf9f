//! Where the list of hosts comes from, and what is refused of it.

use std::path::PathBuf;

use crate::ClusterError;
use crate::exit_code::{BAD_CONFIG, BAD_DATA, USAGE};

/// More ranks than any job has, on one host or on all.
pub const MOST: usize = 1 << 20;
/// More hosts than any cluster has.
pub const MOST_HOSTS: usize = 1 << 16;

/// Where the list of hosts comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// `--hosts`.
    Option,
    /// A host file.
    File(PathBuf),
    /// `SLURM_JOB_NODELIST` and `SLURM_TASKS_PER_NODE`.
    Slurm,
    /// `PBS_NODEFILE`.
    Pbs,
    /// `LSB_MCPU_HOSTS`.
    Lsf,
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(match self {
            Self::Option => "--hosts",
            Self::File(path) => return path.display().fmt(f),
            Self::Slurm => "SLURM_JOB_NODELIST",
            Self::Pbs => "PBS_NODEFILE",
            Self::Lsf => "LSB_MCPU_HOSTS",
        })
    }
}

impl Source {
    /// The exit code for a list from here that cannot be used.
    pub(crate) fn exit_code(&self) -> i32 {
        match self {
            Self::Option => USAGE,
            Self::File(_) => BAD_DATA,
            Self::Slurm | Self::Pbs | Self::Lsf => BAD_CONFIG,
        }
    }
}

/// Parses a number of ranks or hosts.
pub(super) fn ranks(text: &str) -> Option<usize> {
    text.trim().parse().ok().filter(|number| *number <= MOST)
}

/// The same of an environment variable.
pub(super) fn number(name: &'static str, text: &str) -> Result<usize, ClusterError> {
    ranks(text).ok_or_else(|| malformed(name, text, "a number of ranks, at most 1048576"))
}

pub(super) fn malformed(name: &'static str, value: &str, expected: &'static str) -> ClusterError {
    ClusterError::Malformed { name, value: value.into(), expected }
}
