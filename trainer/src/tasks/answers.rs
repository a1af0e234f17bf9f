//! Answers of all ranks to all examples: exact counts, in the order of the file, whatever the number of ranks.

use segue_collectives::Communicator;
use segue_dataloader::tasks::Example;

use super::model::{Scores, TaskModel};
use crate::TrainError;

/// What head number `head` answers to each of `examples`, in their order. Examples are cut into groups of `group`
/// of about the same length, whatever the number of ranks, so that every group is computed with the same shapes,
/// hence the same bits; the ranks take turns. `progress` hears of examples done and all. A collective call.
pub fn answers(
    model: &TaskModel,
    head: usize,
    examples: &[Example],
    group: usize,
    comm: &dyn Communicator,
    mut progress: impl FnMut(u64, u64),
) -> Result<Vec<Scores>, TrainError> {
    let mut order: Vec<usize> = (0..examples.len()).collect();
    order.sort_by_key(|&i| (examples[i].width(), i));
    let groups: Vec<&[usize]> = order.chunks(group).collect();
    let mut own = Vec::new();
    for (number, members) in groups.iter().enumerate() {
        if number % comm.world_size() == comm.rank() {
            let members: Vec<&Example> = members.iter().map(|&i| &examples[i]).collect();
            for scores in model.answer(head, &members) {
                write(&mut own, &scores);
            }
        }
        progress((number as u64 + 1) * group as u64, examples.len() as u64);
    }
    let mut all = vec![Scores::new(); examples.len()];
    for (rank, bytes) in comm.all_gather(&own)?.iter().enumerate() {
        let mut rest = bytes.as_slice();
        for members in groups.iter().skip(rank).step_by(comm.world_size()) {
            for &member in *members {
                all[member] = read(&mut rest);
            }
        }
    }
    Ok(all)
}

fn write(out: &mut Vec<u8>, scores: &[f32]) {
    out.extend((scores.len() as u32).to_le_bytes());
    out.extend(scores.iter().flat_map(|score| score.to_le_bytes()));
}

fn read(bytes: &mut &[u8]) -> Scores {
    let mut number = || {
        let (head, rest) = bytes.split_at(4);
        *bytes = rest;
        std::array::from_fn(|i| head[i])
    };
    let count = u32::from_le_bytes(number());
    (0..count).map(|_| f32::from_le_bytes(number())).collect()
}

/// The mean of the answers of several models, example by example: an ensemble (Yang 2019, table 2.17). `None` where
/// they answer in different shapes.
pub fn averaged(models: &[Vec<Scores>]) -> Option<Vec<Scores>> {
    let (first, others) = models.split_first()?;
    let mut sums = first.clone();
    for other in others {
        if other.len() != sums.len() {
            return None;
        }
        for (sum, scores) in sums.iter_mut().zip(other) {
            if sum.len() != scores.len() {
                return None;
            }
            sum.iter_mut().zip(scores).for_each(|(sum, score)| *sum += score);
        }
    }
    sums.iter_mut().flatten().for_each(|sum| *sum /= models.len() as f32);
    Some(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x27_ensembles_average_scores() {
        let models = [vec![vec![1.0, 2.0], vec![0.0]], vec![vec![3.0, 0.0], vec![1.0]]];
        assert_eq!(averaged(&models).unwrap(), [vec![2.0, 1.0], vec![0.5]]);
        assert!(averaged(&[vec![vec![1.0]], vec![vec![1.0, 2.0]]]).is_none());
    }
}
