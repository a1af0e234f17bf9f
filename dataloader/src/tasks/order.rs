use crate::seed::{Draws, Permutation, Purpose};

/// The order in which training takes examples: a function of the seed and the step alone, so that nothing of it is
/// ever saved. Every pass takes each example once in a random order; passes follow one another without a gap.
/// Inside a window of some batches examples are brought in order of length, so that a batch needs little padding,
/// and the batches of a window come in a random order again.
#[derive(Debug, Clone)]
pub struct ExampleOrder {
    /// Tokens of each example.
    widths: Vec<u32>,
    batch: usize,
    window: usize,
    seed: u64,
    /// The window that was cut last: its number and batches.
    cut: Option<(u64, Vec<Vec<usize>>)>,
}

impl ExampleOrder {
    /// Batches of `batch` of the examples that are `widths` tokens long, in windows of `window` batches.
    pub fn new(widths: Vec<u32>, batch: usize, window: usize, seed: u64) -> Self {
        assert!(!widths.is_empty() && batch > 0 && window > 0, "there are examples, batches and windows");
        Self { widths, batch, window, seed, cut: None }
    }

    /// Numbers of the examples of step `step`, from 1.
    pub fn batch(&mut self, step: u64) -> &[usize] {
        let (window, place) = ((step - 1) / self.window as u64, ((step - 1) % self.window as u64) as usize);
        if self.cut.as_ref().is_none_or(|(number, _)| *number != window) {
            self.cut = Some((window, self.cut_window(window)));
        }
        self.cut.as_ref().map_or(&[], |(_, batches)| &batches[place])
    }

    fn cut_window(&self, window: u64) -> Vec<Vec<usize>> {
        let (n, size) = (self.widths.len() as u64, (self.window * self.batch) as u64);
        let first = window * size;
        let mut pass = u64::MAX;
        let mut order = None;
        let mut examples: Vec<usize> = Vec::with_capacity(size as usize);
        for place in first..first + size {
            if place / n != pass {
                pass = place / n;
                order = Some(Permutation::new(n, self.seed, Purpose::Examples, &[pass]));
            }
            examples.extend(order.map(|order| order.at(place % n) as usize));
        }
        if self.window > 1 {
            examples.sort_by_key(|&example| self.widths[example]);
        }
        let mut batches: Vec<Vec<usize>> = examples.chunks(self.batch).map(<[usize]>::to_vec).collect();
        if self.window > 1 {
            Draws::new(self.seed, Purpose::ExampleBatches, &[window]).shuffle(&mut batches);
        }
        batches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn widths(n: usize) -> Vec<u32> {
        (0..n).map(|i| (i * 7919 % 101) as u32).collect()
    }

    #[test]
    fn every_pass_takes_each_example_once() {
        // 3 passes of 40 examples are 15 batches of 8, three windows of five.
        let mut order = ExampleOrder::new(widths(40), 8, 5, 1);
        let taken: Vec<Vec<usize>> = (1..=15).map(|step| order.batch(step).to_vec()).collect();
        for pass in taken.chunks(5) {
            let mut all = pass.concat();
            all.sort_unstable();
            assert_eq!(all, (0..40).collect::<Vec<_>>());
        }
        assert_ne!(taken[..5], taken[5..10]);
    }

    #[test]
    fn steps_can_be_asked_for_in_any_order() {
        let mut order = ExampleOrder::new(widths(33), 4, 3, 2);
        let forward: Vec<Vec<usize>> = (1..=30).map(|step| order.batch(step).to_vec()).collect();
        for step in (1..=30).rev() {
            assert_eq!(order.batch(step), forward[step as usize - 1]);
        }
    }

    #[test]
    fn windows_save_padding() {
        let padding = |window: usize| {
            let mut order = ExampleOrder::new(widths(400), 8, window, 3);
            let of = |batch: &[usize]| {
                let own: Vec<u32> = batch.iter().map(|&i| widths(400)[i]).collect();
                own.iter().map(|w| own.iter().max().unwrap() - w).sum::<u32>()
            };
            (1..=50).map(|step| of(order.batch(step))).sum::<u32>()
        };
        assert!(padding(50) * 5 < padding(1));
    }
}
