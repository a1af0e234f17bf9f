use segue_configs::study::Stopping;

/// Which trials are given up: the median stopping rule (Golovin et al. 2017, §3.2.2).
#[derive(Debug, Clone, Copy)]
pub struct MedianRule<'a>(pub &'a Stopping);

impl MedianRule<'_> {
    /// Whether a trial whose lowest loss in `turns` turns is `best` goes on no further. `others` are the losses at the ends of turns of trials
    /// that have ended, stopped ones among them as far as they came.
    pub fn stops(&self, best: f64, turns: usize, others: &[Vec<f64>]) -> bool {
        let mut means: Vec<f64> = others
            .iter()
            .filter(|losses| losses.len() >= turns && turns > 0)
            .map(|losses| losses[..turns].iter().sum::<f64>() / turns as f64)
            .collect();
        if turns <= self.0.grace || means.len() < self.0.least {
            return false;
        }
        means.sort_by(f64::total_cmp);
        let upper = means[means.len() / 2];
        let lower = means[(means.len() - 1) / 2];
        best > (lower + upper) / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Stopping = Stopping { turn: 10, grace: 1, least: 3 };

    /// Means up to the second turn: 3, 4 and 6, with the median 4.
    /// Row M16.
    #[test]
    fn a_trial_above_the_median_is_given_up() {
        let others = [vec![4.0, 2.0, 1.0], vec![5.0, 3.0, 1.0], vec![7.0, 5.0], vec![0.0]].map(Vec::from);
        let rule = MedianRule(&RULE);
        assert!(rule.stops(4.1, 2, &others));
        assert!(!rule.stops(4.0, 2, &others));
        // Within the grace, and where too few have come as far.
        assert!(!rule.stops(9.0, 1, &others));
        assert!(!rule.stops(9.0, 3, &others));
    }

    /// Of an even number, the mean of the two in the middle: 4.5.
    #[test]
    fn the_median_of_an_even_number_lies_between_two() {
        let others = [3.0, 4.0, 5.0, 6.0].map(|loss| vec![loss, loss]);
        assert!(MedianRule(&RULE).stops(4.6, 2, &others));
        assert!(!MedianRule(&RULE).stops(4.4, 2, &others));
    }
}
