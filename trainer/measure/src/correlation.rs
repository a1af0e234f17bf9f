//! Correlation of predicted and true values, with SciPy's definitions.

/// Pearson's correlation (`scipy.stats.pearsonr`), in [-1, 1]. As there, NaN where either side is constant or not
/// finite; also of fewer than two values, where SciPy refuses.
///
/// # Panics
/// Where the slices differ in length.
///
/// ```
/// use segue_measure::pearson;
/// assert!((pearson(&[1.0, 2.0, 3.0], &[-2.0, -4.0, -6.0]) + 1.0).abs() < 1e-15);
/// assert!(pearson(&[1.0, 2.0], &[5.0, 5.0]).is_nan());
/// ```
pub fn pearson(gold: &[f64], predicted: &[f64]) -> f64 {
    assert_eq!(gold.len(), predicted.len(), "as many predictions as examples");
    let constant = |values: &[f64]| values.iter().all(|value| *value == values[0]);
    if gold.len() < 2 || constant(gold) || constant(predicted) {
        return f64::NAN;
    }
    let (gold, predicted) = (unit_deviations(gold), unit_deviations(predicted));
    let product: f64 = gold.iter().zip(&predicted).map(|(x, y)| x * y).sum();
    product.clamp(-1.0, 1.0)
}

/// Spearman's correlation (`scipy.stats.spearmanr`): Pearson's of the ranks, equal values sharing the mean of theirs.
/// NaN where Pearson's is.
pub fn spearman(gold: &[f64], predicted: &[f64]) -> f64 {
    if gold.iter().chain(predicted).any(|value| value.is_nan()) {
        return f64::NAN;
    }
    pearson(&ranks(gold), &ranks(predicted))
}

/// Differences from the mean, scaled to a length of 1.
fn unit_deviations(values: &[f64]) -> Vec<f64> {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let deviations: Vec<f64> = values.iter().map(|value| value - mean).collect();
    // Divided by the largest first, as squares of very large or small ones leave the range.
    let largest = deviations.iter().fold(0.0_f64, |largest, deviation| largest.max(deviation.abs()));
    let length = largest * deviations.iter().map(|d| (d / largest).powi(2)).sum::<f64>().sqrt();
    deviations.into_iter().map(|deviation| deviation / length).collect()
}

/// Ranks from 1; equal values get the mean of the ranks they take up.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut first = 0;
    for group in order.chunk_by(|a, b| values[*a] == values[*b]) {
        let shared = first as f64 + (group.len() + 1) as f64 / 2.0;
        group.iter().for_each(|place| ranks[*place] = shared);
        first += group.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_share_their_ranks() {
        assert_eq!(ranks(&[3.0, -0.0, 3.0, 0.0, 7.0]), [3.5, 1.5, 3.5, 1.5, 5.0]);
        assert!((spearman(&[1.0, 2.0, 4.0], &[1.0, 8.0, 900.0]) - 1.0).abs() < 1e-15);
    }

    #[test]
    fn what_has_no_correlation_is_nan() {
        for (gold, predicted) in [
            (vec![1.0], vec![2.0]),
            (vec![1.0, f64::NAN], vec![1.0, 2.0]),
            (vec![4.0; 3], vec![1.0, 2.0, 3.0]),
        ] {
            assert!(pearson(&gold, &predicted).is_nan() && spearman(&gold, &predicted).is_nan());
        }
    }

    #[test]
    fn very_large_and_very_small_values_stay_in_range() {
        assert!((pearson(&[1e200, 2e200, 3e200], &[1e-200, 2e-200, 3e-200]) - 1.0).abs() < 1e-12);
    }
}
