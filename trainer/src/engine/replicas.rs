use segue_collectives::Communicator;

use crate::libtorch::{self, as_f32_mut};
use crate::{Parameters, TrainError};

/// Compares hashes of all weights over ranks. A collective call.
pub fn check_replicas(step: u64, parameters: &Parameters, comm: &dyn Communicator) -> Result<(), TrainError> {
    let own: Vec<[u8; 32]> = parameters.tensors().iter().map(|tensor| hash(&mut tensor.detach())).collect();
    let hashes = comm.all_gather(blake3::hash(own.as_flattened()).as_bytes())?;
    let Some(rank) = hashes.iter().position(|hash| *hash != hashes[0]) else { return Ok(()) };
    // Every rank has seen that: all tell what they have.
    let all = comm.all_gather(own.as_flattened())?;
    let libraries = comm.all_gather(libtorch::library().as_bytes())?;
    let differs = all[0].chunks(32).zip(all[rank].chunks(32)).position(|(first, other)| first != other);
    let name = differs.map_or("", |place| parameters.specs()[place].name.as_str());
    let library = |rank: usize| String::from_utf8_lossy(&libraries[rank]).into_owned();
    Err(TrainError::ReplicasDiffer {
        step,
        rank,
        parameter: name.into(),
        libraries: [library(0), library(rank)],
    })
}

fn hash(tensor: &mut tch::Tensor) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    for value in as_f32_mut(tensor) {
        hasher.update(&value.to_le_bytes());
    }
    *hasher.finalize().as_bytes()
}
