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

/// How far norms of the same sums may lie apart, relatively: far above what processors of several kinds make of them.
const ROUNDING: f64 = 1e-3;

/// The norm of a gradient that all ranks hold: rank 0's, as processors of several kinds may round it differently and replicas must
/// not. A rank that finds another one holds another gradient, though all were given the same. A collective call.
pub fn agreed_norm(step: u64, own: f64, comm: &dyn Communicator) -> Result<f64, TrainError> {
    if comm.world_size() == 1 {
        return Ok(own);
    }
    let all = comm.all_gather(&own.to_le_bytes())?;
    let norms: Vec<f64> = all.iter().map(|b| f64::from_le_bytes(std::array::from_fn(|i| b[i]))).collect();
    let first = norms[0];
    let agrees = |norm: &f64| match (norm.is_finite(), first.is_finite()) {
        (true, true) => (norm - first).abs() <= ROUNDING * first.abs(),
        (own, other) => own == other,
    };
    match norms.iter().position(|norm| !agrees(norm)) {
        Some(rank) => Err(TrainError::GradientsDiffer { step, rank, norms: [first, norms[rank]] }),
        None => Ok(first),
    }
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

    #[test]
    fn ranks_take_the_norm_of_rank_0_unless_one_holds_another_gradient() {
        let inf = f64::INFINITY;
        let cases: [([f64; 3], Result<f64, usize>); 7] = [
            ([2.0, 2.0 + 1e-9, 2.0], Ok(2.0)),
            ([0.0, 0.0, 0.0], Ok(0.0)),
            ([f64::NAN, f64::NAN, inf], Ok(f64::NAN)),
            ([inf, inf, inf], Ok(inf)),
            ([2.0, 2.0, 2.01], Err(2)),
            ([2.0, f64::NAN, 2.0], Err(1)),
            ([inf, 2.0, inf], Err(1)),
        ];
        for (norms, expected) in cases {
            for found in simulated::run(3, |comm| agreed_norm(4, norms[comm.rank()], comm)) {
                match (found, expected) {
                    (Ok(found), Ok(expected)) => assert_eq!(found.to_bits(), expected.to_bits()),
                    (Err(TrainError::GradientsDiffer { step: 4, rank, .. }), Err(expected)) => {
                        assert_eq!(rank, expected)
                    }
                    (found, _) => panic!("{norms:?}: {found:?}"),
                }
            }
        }
    }

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
