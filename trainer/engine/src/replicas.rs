use std::cmp::Ordering;

use segue_collectives::Communicator;
use segue_kernels::{TrainError, libtorch};
use tch::Tensor;

use super::digest::digest;

/// Compares hashes of what all ranks hold alike: tensors by name, weights before what follows from them. A collective call.
pub fn check_replicas(
    step: u64,
    held: impl FnOnce() -> Vec<(String, Tensor)>,
    comm: &dyn Communicator,
) -> Result<(), TrainError> {
    if comm.world_size() == 1 {
        return Ok(());
    }
    let held = held();
    let own: Vec<[u8; 32]> = held.iter().map(|(_, tensor)| digest(tensor)).collect();
    let hashes = comm.all_gather(blake3::hash(own.as_flattened()).as_bytes())?;
    let Some(rank) = hashes.iter().position(|hash| *hash != hashes[0]) else { return Ok(()) };
    // Every rank has seen that: all tell what they have.
    let all = comm.all_gather(own.as_flattened())?;
    let libraries = comm.all_gather(libtorch::library().as_bytes())?;
    let differs = all[0].chunks(32).zip(all[rank].chunks(32)).position(|(first, other)| first != other);
    let name = differs.and_then(|place| held.get(place)).map_or("", |(name, _)| name);
    let library = |rank: usize| String::from_utf8_lossy(&libraries[rank]).into_owned();
    Err(TrainError::ReplicasDiffer {
        step,
        rank,
        tensor: name.into(),
        libraries: [library(0), library(rank)],
    })
}

/// How far norms of the same sums may lie apart, relatively: roundings of gradients on other processors are near 1e-7, and cards take norms in single precision.
const ROUNDING: f64 = 1e-6;

/// The norm of a gradient that all ranks hold, of which they have found `norms`: rank 0's, as processors of several kinds may round it differently and
/// replicas must not. A norm that differs by more is that of another gradient, though all ranks were given the same.
pub fn agreed_norm(step: u64, norms: &[f64]) -> Result<f64, TrainError> {
    let Some(other) = norms.iter().position(|norm| !agree(*norm, norms[0])) else { return Ok(norms[0]) };
    let ranks = [0, other];
    Err(TrainError::GradientsDiffer {
        step,
        ranks,
        norms: ranks.map(|rank| norms[rank]),
        suspect: suspect(norms, ranks),
    })
}

fn agree(one: f64, other: f64) -> bool {
    match (one.is_finite(), other.is_finite()) {
        (true, true) => (one - other).abs() <= ROUNDING * one.abs().max(other.abs()),
        (one, other) => one == other,
    }
}

/// Which of two ranks that differ is the one that nobody agrees with; of two ranks alone, the one whose norm is no number.
fn suspect(norms: &[f64], ranks: [usize; 2]) -> Option<usize> {
    let supporters = ranks.map(|rank| norms.iter().filter(|norm| agree(**norm, norms[rank])).count());
    match supporters[0].cmp(&supporters[1]) {
        Ordering::Greater => Some(ranks[1]),
        Ordering::Less => Some(ranks[0]),
        Ordering::Equal => ranks.into_iter().find(|rank| !norms[*rank].is_finite()),
    }
}

#[cfg(test)]
mod tests {
    use segue_collectives::simulated;
    use tch::Kind;

    use super::*;

    #[test]
    fn ranks_take_the_norm_of_rank_0_unless_one_holds_another_gradient() {
        let inf = f64::INFINITY;
        let agreed = [
            ([2.0, 2.0 + 1e-9, 2.0], 2.0),
            ([0.0, 0.0, 0.0], 0.0),
            ([f64::NAN, f64::NAN, inf], f64::NAN),
            ([inf, inf, inf], inf),
        ];
        for (norms, expected) in agreed {
            assert_eq!(agreed_norm(4, &norms).unwrap().to_bits(), f64::to_bits(expected));
        }
        let differing: [(&[f64], usize, Option<usize>); 6] = [
            (&[2.0, 2.0, 2.00001], 2, Some(2)),
            (&[2.0, f64::NAN, 2.0], 1, Some(1)),
            (&[inf, 2.0, 2.0], 1, Some(0)),
            (&[3.0, 2.0, 2.0, 2.0], 1, Some(0)),
            (&[2.0, f64::NAN], 1, Some(1)),
            (&[2.0, 3.0], 1, None),
        ];
        for (norms, rank, expected) in differing {
            let error = agreed_norm(4, norms).unwrap_err();
            let TrainError::GradientsDiffer { step: 4, ranks, suspect, .. } = error else {
                panic!("{error}")
            };
            assert_eq!((ranks, suspect), ([0, rank], expected), "{norms:?}");
        }
    }

    /// Long enough for a hash on several threads; the first differs in its last value alone.
    #[test]
    fn the_first_tensor_and_rank_that_differ_are_named() {
        for (differing, tensor) in [(0, "a"), (1, "b")] {
            let errors = simulated::run(3, |comm| {
                let held: Vec<(String, Tensor)> = ["a", "b"]
                    .into_iter()
                    .enumerate()
                    .map(|(n, name)| {
                        let tensor = Tensor::zeros([300_001], (Kind::Float, tch::Device::Cpu));
                        if comm.rank() == 2 && n >= differing {
                            _ = tensor.get(300_000).fill_(1.0);
                        }
                        (name.to_string(), tensor)
                    })
                    .collect();
                check_replicas(7, || held, comm).unwrap_err()
            });
            for error in errors {
                let TrainError::ReplicasDiffer { step: 7, rank: 2, tensor: found, .. } = error else {
                    panic!("{error}")
                };
                assert_eq!(found, tensor);
            }
        }
    }
}
