//! Decisions that all ranks must take alike, at the same step.

use crate::{CollectiveError, Communicator};

/// Collective. Whether any rank raised its `flag`: all ranks get the same answer.
///
/// A signal reaches the ranks at different moments; asking this at a fixed place of every step lets
/// them all stop after the same one.
///
/// ```
/// use segue_collectives::{consensus::any_rank, simulated, Communicator};
/// let answers = simulated::run(4, |comm| any_rank(comm, comm.rank() == 2).unwrap());
/// assert_eq!(answers, [true; 4]);
/// ```
pub fn any_rank(comm: &dyn Communicator, flag: bool) -> Result<bool, CollectiveError> {
    Ok(any_rank_of(comm, [flag])?[0])
}

/// [`any_rank`] of several flags at once.
pub fn any_rank_of<const N: usize>(
    comm: &dyn Communicator,
    flags: [bool; N],
) -> Result<[bool; N], CollectiveError> {
    let all = comm.all_gather(&flags.map(u8::from))?;
    Ok(std::array::from_fn(|i| all.iter().any(|of_rank| of_rank.get(i) == Some(&1))))
}

/// Collective. By rank, the first rank on its host; `host` names this one's.
///
/// ```
/// use segue_collectives::{consensus::hosts_of_ranks, simulated, Communicator};
/// let hosts = ["a", "b", "a", "b"];
/// let first = simulated::run(4, |comm| hosts_of_ranks(comm, hosts[comm.rank()]).unwrap());
/// assert_eq!(first, [[0, 1, 0, 1]; 4]);
/// ```
pub fn hosts_of_ranks(comm: &dyn Communicator, host: &str) -> Result<Vec<usize>, CollectiveError> {
    let hosts = comm.all_gather(host.as_bytes())?;
    let first = |host: &Vec<u8>| hosts.iter().take_while(|other| *other != host).count();
    Ok(hosts.iter().map(first).collect())
}

/// Collective. The ranks on the host of this one, which `host` names, in their order. The first does what has to be done once on each host.
///
/// ```
/// use segue_collectives::{consensus::ranks_of_host, simulated, Communicator};
/// let hosts = ["a", "b", "a", "b"];
/// let ranks = simulated::run(4, |comm| ranks_of_host(comm, hosts[comm.rank()]).unwrap());
/// assert_eq!(ranks, [[0, 2], [1, 3], [0, 2], [1, 3]]);
/// ```
pub fn ranks_of_host(comm: &dyn Communicator, host: &str) -> Result<Vec<usize>, CollectiveError> {
    Ok(ranks_beside(&hosts_of_ranks(comm, host)?, comm.rank()))
}

/// The ranks on the host of `rank`, of what [`hosts_of_ranks`] has found.
pub fn ranks_beside(hosts: &[usize], rank: usize) -> Vec<usize> {
    (0..hosts.len()).filter(|other| hosts[*other] == hosts[rank]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated;

    #[test]
    fn ranks_agree_on_whether_any_raised_its_flag() {
        for world_size in 1..=5 {
            assert_eq!(
                simulated::run(world_size, |comm| any_rank(comm, false).unwrap()),
                vec![false; world_size]
            );
            for raised in 0..world_size {
                let answers =
                    simulated::run(world_size, |comm| any_rank(comm, comm.rank() == raised).unwrap());
                assert_eq!(answers, vec![true; world_size]);
            }
        }
    }
}
