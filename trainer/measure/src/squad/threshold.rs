use serde::Serialize;

use super::scored::Scored;

/// The best that a threshold on the null odds can do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BestThreshold {
    /// Mean score at the threshold, in percent.
    pub score: f64,
    /// A question counts as unanswerable where its null odds are above this.
    pub threshold: f64,
}

/// Finds the threshold on the null odds with the best mean of `score` over the questions; none where there are none.
/// Odds that are not numbers count as the highest.
///
/// The values are those of `find_best_thresh` of the official scorer, with three exceptions. It also cuts between
/// questions of equal odds, which no threshold can. Where it is best to answer nothing it says 0, which is right for
/// probabilities alone: here the threshold then lies below all odds, by 1. And it takes a prediction of articles or
/// punctuation alone for an answer to a question that has none, where its own exact match does not.
pub fn best_threshold(scored: &[Scored], score: impl Fn(&Scored) -> f64) -> Option<BestThreshold> {
    let odds =
        |question: &Scored| if question.null_odds.is_nan() { f64::INFINITY } else { question.null_odds };
    let mut order: Vec<&Scored> = scored.iter().collect();
    order.sort_by(|a, b| odds(a).total_cmp(&odds(b)));
    let lowest = odds(order.first()?);
    let mut sum = order.iter().filter(|question| !question.answerable).count() as f64;
    let mut best = BestThreshold { score: sum, threshold: lowest - 1.0 };
    for equal in order.chunk_by(|a, b| odds(a) == odds(b)) {
        let gain = |question: &&Scored| score(question) - f64::from(u8::from(!question.answerable));
        sum += equal.iter().map(gain).sum::<f64>();
        if sum > best.score {
            best = BestThreshold { score: sum, threshold: odds(equal[0]) };
        }
    }
    best.score *= 100.0 / scored.len() as f64;
    Some(best)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn question() -> impl Strategy<Value = Scored> {
        // Few values, so that many are equal; halves, so that sums are exact.
        (0_u32..8, any::<bool>(), 0_u32..3).prop_map(|(odds, answerable, halves)| Scored {
            null_odds: f64::from(odds) - 4.0,
            answerable,
            exact: f64::from(halves / 2),
            f1: f64::from(halves) / 2.0,
            predicted: true,
        })
    }

    proptest! {
        /// Row X25.
        #[test]
        fn threshold_search_equals_brute_force(scored in prop::collection::vec(question(), 1..40)) {
            let at = |threshold: f64| {
                let sum: f64 = scored
                    .iter()
                    .map(|question| match question.null_odds > threshold {
                        true => f64::from(u8::from(!question.answerable)),
                        false => question.f1,
                    })
                    .sum();
                100.0 * sum / scored.len() as f64
            };
            let best = best_threshold(&scored, |question| question.f1).unwrap();
            let brute = (-12..12).map(|half| at(f64::from(half) / 2.0)).fold(0.0, f64::max);
            prop_assert!((best.score - brute).abs() < 1e-9);
            prop_assert!((at(best.threshold) - best.score).abs() < 1e-9);
        }
    }

    /// Row X25.
    #[test]
    fn no_questions_have_no_threshold() {
        assert_eq!(best_threshold(&[], |question| question.f1), None);
    }
}
