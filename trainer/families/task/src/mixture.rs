use segue_random::{Permutation, Purpose};

/// Which of several tasks each step is of. A pass holds the batches of all tasks in a random order (Liu 2019,
/// algorithm 1), so that each task has its share of the steps and each example is seen once in a pass.
#[derive(Debug, Clone)]
pub struct Mixture {
    /// Batches of a pass of the tasks up to and including each.
    ends: Vec<u64>,
    seed: u64,
    /// Steps of each task among the first `drawn`.
    counts: Vec<u64>,
    drawn: u64,
}

impl Mixture {
    /// Of tasks with so many batches in a pass.
    pub fn new(batches: &[usize], seed: u64) -> Self {
        let ends: Vec<u64> = batches
            .iter()
            .scan(0, |end, &n| {
                *end += n as u64;
                Some(*end)
            })
            .collect();
        Self { counts: vec![0; ends.len()], ends, seed, drawn: 0 }
    }

    /// The task of step `step`, from 1, and which of the steps of that task it is, from 1. Quick where steps are asked
    /// for one after the other; else those before are counted again.
    pub fn at(&mut self, step: u64) -> (usize, u64) {
        if step < self.drawn {
            (self.counts, self.drawn) = (vec![0; self.ends.len()], 0);
        }
        while self.drawn < step {
            self.drawn += 1;
            let task = self.draw(self.drawn);
            self.counts[task] += 1;
        }
        let task = self.draw(step);
        (task, self.counts[task])
    }

    fn draw(&self, step: u64) -> usize {
        let all = self.ends.last().copied().unwrap_or(1);
        let (pass, place) = ((step - 1) / all, (step - 1) % all);
        let place = Permutation::new(all, self.seed, Purpose::Mixture, &[pass]).at(place);
        self.ends.partition_point(|&end| end <= place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_take_turns_at_random() {
        let mut mixture = Mixture::new(&[50, 50], 2);
        let tasks: Vec<usize> = (1..=200).map(|step| mixture.at(step).0).collect();
        assert!(tasks[..100].windows(6).all(|run| run.contains(&0) || run.contains(&1)));
        assert_ne!(tasks[..100], tasks[100..]);
        assert_eq!(tasks[..100].iter().sum::<usize>(), 50);
    }

    /// Row X27.
    #[test]
    fn tasks_come_in_proportion_to_their_examples() {
        let mut mixture = Mixture::new(&[6000, 3000, 1000], 1);
        let mut counts = [0u64; 3];
        for step in 1..=20_000 {
            let (task, nth) = mixture.at(step);
            counts[task] += 1;
            assert_eq!(nth, counts[task]);
        }
        // Two passes.
        assert_eq!(counts, [12_000, 6000, 2000]);
        let mut resumed = Mixture::new(&[6000, 3000, 1000], 1);
        let task = resumed.draw(20_000);
        assert_eq!(resumed.at(20_000), (task, counts[task]));
        // Asked again, the same; and a run that goes back finds what was there.
        assert_eq!(mixture.at(3), Mixture::new(&[6000, 3000, 1000], 1).at(3));
        assert_eq!(resumed.at(20_000), (task, counts[task]));
    }
}
