use segue_collectives::Communicator;

use crate::libtorch::as_f32_mut;
use crate::{Parameters, TrainError};

/// Compares a hash of all weights over ranks. A collective call.
pub fn check_replicas(step: u64, parameters: &Parameters, comm: &dyn Communicator) -> Result<(), TrainError> {
    let mut hasher = blake3::Hasher::new();
    for tensor in parameters.tensors() {
        for value in as_f32_mut(&mut tensor.detach()) {
            hasher.update(&value.to_le_bytes());
        }
    }
    let hashes = comm.all_gather(hasher.finalize().as_bytes())?;
    match hashes.iter().position(|hash| *hash != hashes[0]) {
        Some(rank) => Err(TrainError::ReplicasDiffer { step, rank }),
        None => Ok(()),
    }
}
