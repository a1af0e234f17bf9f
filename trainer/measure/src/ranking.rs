//! Scores of ranked documents.
//!
//! `ranked` is always the relevance grades of the returned documents, best ranked first.

/// Normalised discounted cumulative gain of the first `k`: gain 2^grade - 1, discount 1 / log2(rank + 1), divided by
/// that of the best order of all `judged` documents of the query, returned or not. 0 where none is relevant, as in
/// scikit-learn's `ndcg_score`, which takes the gains themselves and so gives the same.
///
/// ```
/// use segue_measure::ndcg_at;
/// assert_eq!(ndcg_at(20, &[3, 1, 0], &[0, 1, 3]), 1.0);
/// ```
pub fn ndcg_at(k: usize, ranked: &[u32], judged: &[u32]) -> f64 {
    let mut ideal = judged.to_vec();
    ideal.sort_unstable_by(|a, b| b.cmp(a));
    match discounted_gain(k, &ideal) {
        0.0 => 0.0,
        best => discounted_gain(k, ranked) / best,
    }
}

fn discounted_gain(k: usize, ranked: &[u32]) -> f64 {
    let gains = ranked.iter().take(k).map(|grade| f64::from(*grade).exp2() - 1.0);
    gains.enumerate().map(|(place, gain)| gain / (place as f64 + 2.0).log2()).sum()
}

/// Expected reciprocal rank of the first `k` (Chapelle et al. 2009): a reader goes down the list and is content with a
/// document of grade g with probability (2^g - 1) / 2^`highest_grade`; the score is the mean of 1 / rank of where the
/// reader stops, 0 for one who never does. Grades above `highest_grade` count as that.
///
/// ```
/// use segue_measure::err_at;
/// // Stops at rank 1 with probability 3/4, else at rank 2 with 1/4.
/// assert_eq!(err_at(20, &[2, 1], 2), 0.75 + 0.25 * 0.25 / 2.0);
/// ```
pub fn err_at(k: usize, ranked: &[u32], highest_grade: u32) -> f64 {
    let mut score = 0.0;
    let mut goes_on = 1.0;
    for (place, grade) in ranked.iter().take(k).enumerate() {
        let grade = f64::from((*grade).min(highest_grade));
        let content = (grade.exp2() - 1.0) / f64::from(highest_grade).exp2();
        score += goes_on * content / (place as f64 + 1.0);
        goes_on *= 1.0 - content;
    }
    score
}

/// 1 / rank of the first relevant document (a grade above 0), 0 where there is none. Its mean over queries is MRR.
pub fn reciprocal_rank(ranked: &[u32]) -> f64 {
    ranked.iter().position(|grade| *grade > 0).map_or(0.0, |place| 1.0 / (place as f64 + 1.0))
}

/// The mean of the scores of queries; NaN where there are none.
pub fn mean_over_queries(scores: &[f64]) -> f64 {
    scores.iter().sum::<f64>() / scores.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row X29.
    #[test]
    fn documents_that_were_not_returned_count_in_the_ideal() {
        // Gains 1 and 7; the best order has 7 first: (1 / log2 2) / (7 / log2 2 + 1 / log2 3).
        let expected = 1.0 / (7.0 + 1.0 / 3.0_f64.log2());
        assert!((ndcg_at(20, &[1], &[1, 3]) - expected).abs() < 1e-15);
        assert_eq!(ndcg_at(20, &[0, 0], &[0, 0]), 0.0);
    }

    /// Row X29.
    #[test]
    fn what_is_ranked_behind_k_counts_for_nothing() {
        assert_eq!(ndcg_at(2, &[0, 0, 4], &[4, 0, 0]), 0.0);
        assert_eq!(err_at(2, &[0, 0, 4], 4), 0.0);
        assert_eq!(reciprocal_rank(&[0, 0, 4]), 1.0 / 3.0);
        assert!(mean_over_queries(&[]).is_nan());
    }
}
