//! How a model recovers from surprises (Melis 2023, §2.3.2).

use serde::Serialize;

/// Losses of the tokens that follow surprising ones.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Recovery {
    /// Surprising tokens: those with the highest losses.
    pub surprises: usize,
    /// Mean loss of the tokens after them, in nats.
    pub after: f64,
    /// Mean loss of all tokens but the first, in nats.
    pub overall: f64,
    /// `after − overall`: how much worse than usual the model predicts after a surprise.
    pub difference: f64,
}

/// Of the losses of a stream, in order; `fraction` of those that have a successor count as surprising, one at least, the earlier of equal
/// ones first. `None` for fewer than two losses.
pub fn recovery(losses: &[f64], fraction: f64) -> Option<Recovery> {
    let (_, after) = losses.split_first()?;
    let pairs = after.len();
    let surprises = ((fraction * pairs as f64).round() as usize).clamp(1, pairs.max(1));
    let mut order: Vec<usize> = (0..pairs).collect();
    order.sort_by(|&a, &b| losses[b].total_cmp(&losses[a]).then(a.cmp(&b)));
    order.truncate(surprises);
    // Sums in the order of the text: that of losses would make their bits depend on it.
    order.sort_unstable();
    let mean = |sum: f64, count: usize| sum / count as f64;
    let overall = mean(after.iter().sum(), pairs);
    let after = mean(order.iter().map(|&t| after[t]).sum(), surprises);
    (pairs > 0).then_some(Recovery { surprises, after, overall, difference: after - overall })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fives are followed by zeros: two of nine tokens that have a successor.
    #[test]
    fn m22_recovery_of_a_planted_series_is_the_reference_number() {
        let losses = [1.0, 1.0, 5.0, 0.0, 1.0, 1.0, 5.0, 0.0, 1.0, 1.0];
        let found = recovery(&losses, 0.2).unwrap();
        assert_eq!((found.surprises, found.after), (2, 0.0));
        assert!((found.overall - 15.0 / 9.0).abs() < 1e-12);
        assert!((found.difference + 1.666666667).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn m22_a_series_without_memory_of_surprises_recovers_at_once() {
        // Every token is followed by the same loss: nothing is to recover from.
        let found = recovery(&[2.0; 20], 0.1).unwrap();
        assert_eq!((found.difference, found.surprises), (0.0, 2));
        assert!(recovery(&[1.0], 0.1).is_none() && recovery(&[], 0.1).is_none());
        assert_eq!(recovery(&[1.0, 3.0], 0.0).unwrap().surprises, 1);
    }
}
