use segue_dataloader::seed::{Draws, Purpose};

/// Which of several tasks each step is of: drawn in proportion to their numbers of examples.
#[derive(Debug, Clone)]
pub struct Mixture {
    /// Examples of the tasks up to and including each.
    ends: Vec<u64>,
    seed: u64,
    /// Steps of each task among the first `drawn`.
    counts: Vec<u64>,
    drawn: u64,
}

impl Mixture {
    /// Of tasks with so many examples.
    pub fn new(examples: &[usize], seed: u64) -> Self {
        let ends: Vec<u64> = examples
            .iter()
            .scan(0, |end, &n| {
                *end += n as u64;
                Some(*end)
            })
            .collect();
        Self { counts: vec![0; ends.len()], ends, seed, drawn: 0 }
    }

    /// The task of step `step`, from 1, and which of the steps of that task it is, from 1. No step before the last one
    /// that was asked for can be asked for; a run that goes on counts those before it again.
    pub fn at(&mut self, step: u64) -> (usize, u64) {
        while self.drawn < step {
            self.drawn += 1;
            let task = self.draw(self.drawn);
            self.counts[task] += 1;
        }
        let task = self.draw(step);
        (task, self.counts[task])
    }

    fn draw(&self, step: u64) -> usize {
        let all = self.ends.last().copied().unwrap_or(0);
        let place = Draws::new(self.seed, Purpose::Mixture, &[step]).below(all);
        self.ends.partition_point(|&end| end <= place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x27_tasks_come_in_proportion_to_their_examples() {
        let mut mixture = Mixture::new(&[6000, 3000, 1000], 1);
        let mut counts = [0u64; 3];
        for step in 1..=20_000 {
            let (task, nth) = mixture.at(step);
            counts[task] += 1;
            assert_eq!(nth, counts[task]);
        }
        for (count, share) in counts.into_iter().zip([0.6, 0.3, 0.1]) {
            // Five standard deviations of a share of 20,000 draws.
            let tolerance = 5.0 * (share * (1.0 - share) / 20_000.0_f64).sqrt();
            assert!((count as f64 / 20_000.0 - share).abs() < tolerance, "{counts:?}");
        }
        let mut resumed = Mixture::new(&[6000, 3000, 1000], 1);
        let task = resumed.draw(20_000);
        assert_eq!(resumed.at(20_000), (task, counts[task]));
        // Asked again, the same.
        assert_eq!(resumed.at(20_000), (task, counts[task]));
    }
}
