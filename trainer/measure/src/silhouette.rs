//! How well groups of points lie apart.

/// The mean silhouette of points with Euclidean distances (Rousseeuw 1987; scikit-learn's `silhouette_score`): for each point
/// `(b − a) / max(a, b)`, where a is its mean distance to the others of its group and b that to the points of the nearest other
/// group. A point that is alone in its group counts 0; so does everything where there is one group. NaN where there are no points.
///
/// # Panics
/// Where the slices differ in length, or points in width.
pub fn mean_silhouette(points: &[Vec<f32>], groups: &[u32]) -> f64 {
    assert_eq!(points.len(), groups.len());
    let count = groups.iter().max().map_or(0, |most| *most as usize + 1);
    let mut sizes = vec![0usize; count];
    groups.iter().for_each(|group| sizes[*group as usize] += 1);
    let sum: f64 = (0..points.len()).map(|point| silhouette(point, points, groups, &sizes)).sum();
    sum / points.len() as f64
}

fn silhouette(point: usize, points: &[Vec<f32>], groups: &[u32], sizes: &[usize]) -> f64 {
    let mut sums = vec![0.0; sizes.len()];
    for (other, group) in points.iter().zip(groups) {
        sums[*group as usize] += distance(&points[point], other);
    }
    let own = groups[point] as usize;
    if sizes[own] < 2 {
        return 0.0;
    }
    let inside = sums[own] / (sizes[own] - 1) as f64;
    let others = (0..sizes.len()).filter(|group| *group != own && sizes[*group] > 0);
    let outside = others.map(|group| sums[group] / sizes[group] as f64).fold(f64::INFINITY, f64::min);
    let larger = inside.max(outside);
    if !outside.is_finite() || larger == 0.0 { 0.0 } else { (outside - inside) / larger }
}

fn distance(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Points 0 and 1 against 4 on a line: a = 1 and b = 4 of the first, a = 1 and b = 3 of the second; the third is alone.
    #[test]
    fn silhouettes_are_those_worked_out_by_hand() {
        let points: Vec<Vec<f32>> = [0.0, 1.0, 4.0].map(|x| vec![x]).to_vec();
        let found = mean_silhouette(&points, &[0, 0, 1]);
        assert!((found - (0.75 + 2.0 / 3.0) / 3.0).abs() < 1e-12, "{found}");
        assert_eq!(mean_silhouette(&points, &[2, 2, 2]), 0.0);
        assert!(mean_silhouette(&[], &[]).is_nan());
    }
}
