//! Answers of all ranks to all examples: exact counts, in the order of the file, whatever the number of ranks.

use segue_collectives::Communicator;
use segue_engine::{Share, Watch};
use segue_kernels::TrainError;
use segue_tasks::Example;

use super::model::{Scores, TaskModel};

/// What head number `head` answers to each of `examples`, in their order. Examples are cut into groups of `group`
/// of about the same length, whatever the number of ranks, so that every group is computed with the same shapes,
/// hence the same bits; the ranks take turns. `watch` hears of groups. A collective call.
pub fn answers(
    model: &TaskModel,
    head: usize,
    examples: &[Example],
    group: usize,
    comm: &dyn Communicator,
    watch: &mut Watch,
) -> Result<Vec<Scores>, TrainError> {
    let mut order: Vec<usize> = (0..examples.len()).collect();
    order.sort_by_key(|&i| (examples[i].width(), i));
    let groups: Vec<&[usize]> = order.chunks(group).collect();
    let share = Share::new(comm, groups.len());
    let own = share.each(1, watch, |part, done| {
        let members: Vec<&Example> = groups[part].iter().map(|&i| &examples[i]).collect();
        let scores = model.answer(head, &members).iter().flat_map(|scores| packed(scores)).collect();
        done().map(|()| scores)
    })?;
    let mut all = vec![Scores::new(); examples.len()];
    for (members, bytes) in groups.iter().zip(share.collect(&own)?) {
        let mut rest = bytes.as_slice();
        for &member in *members {
            all[member] = unpacked(&mut rest);
        }
    }
    Ok(all)
}

/// Scores of one example as bytes: how many, then their values.
fn packed(scores: &[f32]) -> Vec<u8> {
    let count = (scores.len() as u32).to_le_bytes();
    count.into_iter().chain(scores.iter().flat_map(|score| score.to_le_bytes())).collect()
}

/// Takes the scores of one example from the front of `bytes`.
fn unpacked(bytes: &mut &[u8]) -> Scores {
    let mut word = || {
        let (head, rest) = bytes.split_at(4);
        *bytes = rest;
        std::array::from_fn(|i| head[i])
    };
    let count = u32::from_le_bytes(word());
    (0..count).map(|_| f32::from_le_bytes(word())).collect()
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

    /// Row X27.
    #[test]
    fn ensembles_average_scores() {
        let models = [vec![vec![1.0, 2.0], vec![0.0]], vec![vec![3.0, 0.0], vec![1.0]]];
        assert_eq!(averaged(&models).unwrap(), [vec![2.0, 1.0], vec![0.5]]);
        assert!(averaged(&[vec![vec![1.0]], vec![vec![1.0, 2.0]]]).is_none());
    }
}
