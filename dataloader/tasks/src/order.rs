use segue_random::{Draws, Permutation, Purpose};

/// The order in which training takes examples: a function of the seed and the step alone, so that nothing of it is
/// ever saved. Every pass takes each example once in a random order, and ends before the next one begins: where the
/// examples do not fill all its batches, one batch is smaller, and no batch meets an example twice.
/// Inside a window of some batches of a pass examples are brought in order of length, so that a batch needs little
/// padding, and the batches of a window come in a random order again.
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

/// Batches of `batch` that one pass over `examples` takes.
pub fn batches_of_pass(examples: usize, batch: usize) -> usize {
    examples.div_ceil(batch)
}

impl ExampleOrder {
    /// Batches of `batch` of the examples that are `widths` tokens long, in windows of `window` batches.
    pub fn new(widths: Vec<u32>, batch: usize, window: usize, seed: u64) -> Self {
        assert!(!widths.is_empty() && batch > 0 && window > 0, "there are examples, batches and windows");
        Self { widths, batch, window, seed, cut: None }
    }

    /// Numbers of the examples of step `step`, from 1: `batch` of them, or fewer in one batch of a pass.
    pub fn batch(&mut self, step: u64) -> &[usize] {
        let of_pass = batches_of_pass(self.widths.len(), self.batch) as u64;
        let (pass, place) = ((step - 1) / of_pass, (step - 1) % of_pass);
        let (own, place) = (place / self.window as u64, (place % self.window as u64) as usize);
        let window = pass * of_pass.div_ceil(self.window as u64) + own;
        if self.cut.as_ref().is_none_or(|(number, _)| *number != window) {
            self.cut = Some((window, self.cut_window(pass, own as usize, window)));
        }
        self.cut.as_ref().map_or(&[], |(_, batches)| &batches[place])
    }

    /// The batches of window `own` of `pass`, which is number `window` of all.
    fn cut_window(&self, pass: u64, own: usize, window: u64) -> Vec<Vec<usize>> {
        let (n, size) = (self.widths.len(), self.window * self.batch);
        let order = Permutation::new(n as u64, self.seed, Purpose::Examples, &[pass]);
        let places = own * size..n.min((own + 1) * size);
        let mut examples: Vec<usize> = places.map(|place| order.at(place as u64) as usize).collect();
        if self.window == 1 {
            return vec![examples];
        }
        examples.sort_by_key(|&example| self.widths[example]);
        let mut draws = Draws::new(self.seed, Purpose::ExampleBatches, &[window]);
        // An example counts for more in the small batch: it must not always be the longest ones.
        let small = examples.len() % self.batch;
        let before = match small {
            0 => 0,
            _ => draws.below((examples.len() / self.batch) as u64 + 1) as usize * self.batch,
        };
        let (first, rest) = examples.split_at(before);
        let (odd, last) = rest.split_at(small);
        let full = first.chunks(self.batch).chain(last.chunks(self.batch));
        let mut batches: Vec<Vec<usize>> =
            full.chain((small > 0).then_some(odd)).map(<[usize]>::to_vec).collect();
        draws.shuffle(&mut batches);
        batches
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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

    proptest! {
        /// Sets smaller than a batch, than a window, and no multiple of either.
        #[test]
        fn no_batch_meets_an_example_twice(n in 1usize..200, lanes in 1usize..40, window in 1usize..60, seed: u64) {
            let mut order = ExampleOrder::new(widths(n), lanes, window, seed);
            let passes = batches_of_pass(n, lanes) as u64;
            for pass in 0..3 {
                let taken: Vec<Vec<usize>> =
                    (1..=passes).map(|step| order.batch(pass * passes + step).to_vec()).collect();
                prop_assert!(taken.iter().all(|batch| (1..=lanes).contains(&batch.len())));
                prop_assert!(taken.iter().filter(|batch| batch.len() < lanes).count() <= 1);
                let mut all = taken.concat();
                all.sort_unstable();
                prop_assert_eq!(all, (0..n).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn the_small_batch_is_of_any_length() {
        let mut order = ExampleOrder::new((0..33).collect(), 8, 50, 4);
        let small: std::collections::BTreeSet<usize> = (1..=500)
            .map(|step| order.batch(step).to_vec())
            .filter(|batch| batch.len() == 1)
            .map(|batch| batch[0])
            .collect();
        assert_eq!(small.into_iter().collect::<Vec<_>>(), [0, 8, 16, 24, 32]);
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
