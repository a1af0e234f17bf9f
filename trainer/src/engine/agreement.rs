//! What ranks agree on before the first step.

use std::path::{Path, PathBuf};

use segue_collectives::Communicator;

use crate::TrainError;
use crate::checkpoint::{self, TrainState};

/// Every rank must train the same thing on the same text.
pub(crate) fn check_agreement(state: &TrainState, comm: &dyn Communicator) -> Result<(), TrainError> {
    let own = [state.config_hash.as_bytes(), state.corpus.as_bytes()].concat();
    let all = comm.all_gather(&own)?;
    match all.iter().position(|other| *other != all[0]) {
        Some(rank) => Err(TrainError::Layout(format!(
            "rank {rank} has another configuration or corpus than rank 0; give every host the same files"
        ))),
        None => Ok(()),
    }
}

/// Rank 0 looks for a checkpoint and tells the others, so that all take the same one.
pub(crate) fn newest_checkpoint(
    folder: &Path,
    comm: &dyn Communicator,
) -> Result<Option<(PathBuf, Vec<String>)>, TrainError> {
    let found = if comm.rank() == 0 { checkpoint::find_and_set_aside(folder) } else { Ok(None) };
    // Byte 0: nothing, found, failed. Then the folder's name.
    let message = match &found {
        Ok(None) => vec![0],
        Ok(Some((path, _))) => [&[1], path.as_os_str().as_encoded_bytes()].concat(),
        Err(_) => vec![2],
    };
    let told = comm.all_gather(&message)?;
    if comm.rank() == 0 {
        return found;
    }
    match told[0].split_first() {
        Some((1, path)) => {
            let path = String::from_utf8_lossy(path).into_owned();
            Ok(Some((PathBuf::from(path), Vec::new())))
        }
        Some((2, _)) => Err(TrainError::Damaged {
            path: folder.into(),
            what: "no checkpoint verifies; rank 0 says which and why".into(),
        }),
        _ => Ok(None),
    }
}
