use segue_collectives::Communicator;
use tch::Tensor;

use crate::libtorch::{self, as_f32};
use crate::{Parameters, TrainError};

/// Compares hashes of all weights over ranks. A collective call.
pub fn check_replicas(step: u64, parameters: &Parameters, comm: &dyn Communicator) -> Result<(), TrainError> {
    let own: Vec<[u8; 32]> = parameters.tensors().iter().map(hash).collect();
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

/// Of the values' bytes, as they lie in memory: ranks of a job have one byte order. On all cores.
fn hash(tensor: &Tensor) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    let tensor = tensor.detach();
    // SAFETY: weights are written by the thread that makes steps, which is this one.
    hasher.update_rayon(bytemuck::cast_slice(unsafe { as_f32(&tensor) }));
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use segue_collectives::simulated;

    use super::*;
    use crate::{Init, ParameterSpec};

    /// Long enough for a hash on several threads; the first differs in its last value alone.
    #[test]
    fn the_first_parameter_and_rank_that_differ_are_named() {
        for (differing, parameter) in [(0, "a"), (1, "b")] {
            let errors = simulated::run(3, |comm| {
                let spec =
                    |name: &str| ParameterSpec { name: name.into(), shape: vec![300_001], init: Init::Zeros };
                let weights = [0, 1].map(|n| {
                    let tensor = Tensor::zeros([300_001], (tch::Kind::Float, tch::Device::Cpu));
                    if comm.rank() == 2 && n >= differing {
                        _ = tensor.get(300_000).fill_(1.0);
                    }
                    tensor
                });
                let parameters =
                    Parameters::from_tensors(vec![spec("a"), spec("b")], weights.into(), tch::Kind::Float);
                check_replicas(7, &parameters, comm).unwrap_err()
            });
            for error in errors {
                let TrainError::ReplicasDiffer { step: 7, rank: 2, parameter: found, .. } = error else {
                    panic!("{error}")
                };
                assert_eq!(found, parameter);
            }
        }
    }
}
