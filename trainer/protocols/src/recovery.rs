//! How a model recovers from surprises (Melis 2023, §2.3.2).

use serde::Serialize;

/// Losses of the tokens that follow surprising ones.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Recovery {
    /// Surprising tokens: those with the highest losses.
    pub surprises: usize,
    /// Mean loss of the tokens after them, in nats.
    pub after: f64,
    /// Mean loss of all tokens but the first of each text, in nats.
    pub overall: f64,
    /// `after − overall`: how much worse than usual the model predicts after a surprise.
    pub difference: f64,
}

/// Of the losses of texts, each in its order; `fraction` of those that have a successor count as surprising, one at least, the earlier of equal
/// ones first. `None` where none has one.
pub fn recovery(texts: &[&[f64]], fraction: f64) -> Option<Recovery> {
    // Where a text ends, the next one begins with a fresh memory: no word of it follows from the last of the one before.
    let pairs: Vec<&[f64]> = texts.iter().flat_map(|losses| losses.windows(2)).collect();
    let surprises = ((fraction * pairs.len() as f64).round() as usize).clamp(1, pairs.len().max(1));
    let mut order: Vec<usize> = (0..pairs.len()).collect();
    order.sort_by(|&a, &b| pairs[b][0].total_cmp(&pairs[a][0]).then(a.cmp(&b)));
    order.truncate(surprises);
    // Sums in the order of the text: that of losses would make their bits depend on it.
    order.sort_unstable();
    let mean = |sum: f64, count: usize| sum / count as f64;
    let overall = mean(pairs.iter().map(|pair| pair[1]).sum(), pairs.len());
    let after = mean(order.iter().map(|&t| pairs[t][1]).sum(), surprises);
    (!pairs.is_empty()).then_some(Recovery { surprises, after, overall, difference: after - overall })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fives are followed by zeros: two of nine tokens that have a successor.
    /// Row M22.
    #[test]
    fn recovery_of_a_planted_series_is_the_reference_number() {
        let losses = [1.0, 1.0, 5.0, 0.0, 1.0, 1.0, 5.0, 0.0, 1.0, 1.0];
        let found = recovery(&[&losses], 0.2).unwrap();
        assert_eq!((found.surprises, found.after), (2, 0.0));
        assert!((found.overall - 15.0 / 9.0).abs() < 1e-12);
        assert!((found.difference + 1.666666667).abs() < 1e-9, "{found:?}");
    }

    /// Row M22.
    #[test]
    fn no_loss_follows_from_that_of_another_text() {
        let (first, second) = ([1.0, 1.0, 5.0, 0.0, 1.0], [9.0, 1.0, 5.0, 0.0]);
        let found = recovery(&[&first, &second], 2.0 / 7.0).unwrap();
        // After 9.0 and the first 5.0; that 9.0 comes after 1.0 is nobody's doing.
        assert_eq!((found.surprises, found.after), (2, 0.5));
        assert!((found.overall - 13.0 / 7.0).abs() < 1e-12, "{found:?}");
    }

    /// Row M22.
    #[test]
    fn a_series_without_memory_of_surprises_recovers_at_once() {
        // Every token is followed by the same loss: nothing is to recover from.
        let found = recovery(&[&[2.0; 20]], 0.1).unwrap();
        assert_eq!((found.difference, found.surprises), (0.0, 2));
        assert!(recovery(&[&[1.0]], 0.1).is_none() && recovery(&[], 0.1).is_none());
        assert_eq!(recovery(&[&[1.0, 3.0]], 0.0).unwrap().surprises, 1);
    }
}
