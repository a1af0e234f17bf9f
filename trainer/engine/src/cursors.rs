//! Where the lanes of a job stand: those of a rank out of all, and all of them from the ranks.

use std::path::Path;

use segue_collectives::Communicator;
use segue_kernels::TrainError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::learner::Learner;
use super::state::TrainState;
use super::step::Engine;
use crate::checkpoint;

/// The cursors of all lanes of the job, of which this rank has its `own`. A collective call.
pub(super) fn gather_cursors(
    own: &[impl Serialize],
    comm: &dyn Communicator,
) -> Result<Vec<Value>, TrainError> {
    let own: Vec<Value> = own.iter().map(to_json).collect();
    let bytes = serde_json::to_vec(&own).unwrap_or_default();
    let mut lanes = Vec::new();
    for bytes in comm.all_gather(&bytes)? {
        let of_rank: Vec<Value> = serde_json::from_slice(&bytes)
            .map_err(|e| TrainError::Layout(format!("a rank sends cursors that cannot be read: {e}")))?;
        lanes.extend(of_rank);
    }
    Ok(lanes)
}

/// A lane's cursor as the state of a run has it.
pub(super) fn to_json(cursor: &impl Serialize) -> Value {
    serde_json::to_value(cursor).unwrap_or_default()
}

/// This rank's cursors out of those of all lanes.
pub(super) fn own_cursors<C: DeserializeOwned, L: Learner>(
    state: &TrainState,
    engine: &Engine<L>,
    resumed: Option<&Path>,
) -> Result<Vec<C>, TrainError> {
    if state.lanes.is_empty() {
        return Ok(Vec::new());
    }
    let own = state.lanes.get(engine.layout.lane_range());
    let read = own.map(|own| own.iter().map(|cursor| C::deserialize(cursor)).collect::<Result<Vec<C>, _>>());
    match read {
        Some(Ok(cursors)) => Ok(cursors),
        wrong => {
            let why = wrong.and_then(Result::err).map_or("too few lanes".to_string(), |e| e.to_string());
            let path = resumed.unwrap_or(Path::new("")).join(checkpoint::STATE);
            Err(TrainError::Damaged { path, what: format!("cursors of lanes: {why}") })
        }
    }
}
