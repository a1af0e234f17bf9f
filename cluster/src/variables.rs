//! Variables of the environment, and the launchers that are known by theirs.

use std::collections::BTreeMap;

use crate::ClusterError;

/// What started this process and gave it its rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launcher {
    /// Nothing: one process, the whole job.
    Alone,
    /// Open MPI's `mpirun`.
    OpenMpi,
    /// A launcher that speaks PMIx, such as `srun --mpi=pmix`.
    Pmix,
    /// A launcher that speaks PMI, such as MPICH's `mpiexec`.
    Pmi,
    /// MVAPICH's `mpirun_rsh`.
    Mvapich,
    /// LSF's `jsrun`.
    Jsrun,
}

/// Variables by name; an empty one counts as unset.
pub(crate) struct Variables<'a>(pub(crate) &'a BTreeMap<String, String>);

impl Variables<'_> {
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(crate) fn number(&self, name: &'static str) -> Result<Option<usize>, ClusterError> {
        let Some(value) = self.text(name) else { return Ok(None) };
        let malformed =
            |_| ClusterError::Malformed { name, value: value.to_owned(), expected: "a number from 0" };
        value.parse().map(Some).map_err(malformed)
    }
}
