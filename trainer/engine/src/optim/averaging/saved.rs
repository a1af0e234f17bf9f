use std::collections::HashMap;

use segue_kernels::Parameters;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tch::Tensor;
use thiserror::Error;

/// What a checkpoint holds of an averaging.
pub struct Saved {
    /// [`Averaging::state`](super::Averaging::state).
    pub state: Value,
    /// The weights stored as the model, in the order of the parameters.
    pub chosen: Vec<Tensor>,
    /// [`Averaging::tables`](super::Averaging::tables).
    pub tables: HashMap<String, Tensor>,
}

impl Saved {
    /// The state as a struct.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, AveragingError> {
        T::deserialize(&self.state).map_err(|error| AveragingError::State(error.to_string()))
    }

    /// Takes the tables `PREFIX.NAME` out, in the order of the parameters.
    pub(super) fn take(
        &mut self,
        prefix: &str,
        parameters: &Parameters,
    ) -> Result<Vec<Tensor>, AveragingError> {
        let names = parameters.specs().iter().map(|spec| format!("{prefix}.{}", spec.name));
        names.map(|name| self.tables.remove(&name).ok_or(AveragingError::Missing { name })).collect()
    }
}

/// Tables under the names of a checkpoint, `PREFIX.NAME`.
pub(super) fn named<'a>(
    prefix: &'a str,
    tables: &'a [Tensor],
    parameters: &'a Parameters,
) -> impl Iterator<Item = (String, Tensor)> + 'a {
    let pairs = parameters.specs().iter().zip(tables);
    pairs.map(move |(spec, table)| (format!("{prefix}.{}", spec.name), table.shallow_clone()))
}

/// Why an averaging cannot go on from a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AveragingError {
    /// The state has another form.
    #[error("the state of the average cannot be read: {0}")]
    State(String),
    /// A table is not there.
    #[error("it has no tensor `{name}`")]
    Missing {
        /// Its name.
        name: String,
    },
    /// A table is of another shape than its parameter.
    #[error("the average of `{name}` is {found:?}, the model has {expected:?}")]
    Shape {
        /// The parameter.
        name: String,
        /// Sizes stored.
        found: Vec<i64>,
        /// Sizes of the parameter.
        expected: Vec<i64>,
    },
    /// An average has another number of tables than there are parameters.
    #[error("the average has {found} tensors, the model {expected}")]
    Count {
        /// Tables stored.
        found: usize,
        /// Parameters.
        expected: usize,
    },
    /// Evaluations are another number of steps apart, which lengths are multiples of.
    #[error(
        "two-tailed averaging was evaluated every {then} steps, now every {now}; set eval.every back to {then}, or \
         start in a new run.dir"
    )]
    OtherPeriod {
        /// `eval.every` of the checkpoint.
        then: u64,
        /// `eval.every` of this run.
        now: u64,
    },
}
