//! Fewer points for the same picture.

/// At most about `most` points of a curve: of each stretch the lowest and the highest, so that no spike is lost, and the first and the
/// last.
pub fn thinned(points: &[(u64, f64)], most: usize) -> Vec<(u64, f64)> {
    if points.len() <= most.max(4) {
        return points.to_vec();
    }
    let (first, last) = (points[0], points[points.len() - 1]);
    let inner = &points[1..points.len() - 1];
    let stretch = inner.len().div_ceil((most.max(4) - 2) / 2);
    let mut kept = vec![first];
    for part in inner.chunks(stretch) {
        let low = (0..part.len()).min_by(|a, b| part[*a].1.total_cmp(&part[*b].1)).unwrap_or(0);
        let high = (0..part.len()).max_by(|a, b| part[*a].1.total_cmp(&part[*b].1)).unwrap_or(0);
        kept.push(part[low.min(high)]);
        if low != high {
            kept.push(part[low.max(high)]);
        }
    }
    kept.push(last);
    kept
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ends_and_extremes_stay_in_order(values in proptest::collection::vec(-1e6f64..1e6, 0..400), most in 4usize..60) {
            let points: Vec<(u64, f64)> = values.iter().enumerate().map(|(i, v)| (i as u64, *v)).collect();
            let kept = thinned(&points, most);
            prop_assert!(kept.len() <= points.len() && (kept.len() <= most || points.len() <= most));
            prop_assert!(kept.is_sorted_by_key(|(step, _)| *step));
            prop_assert_eq!((kept.first(), kept.last()), (points.first(), points.last()));
            let extreme = |of: &[(u64, f64)]| of.iter().map(|p| p.1).fold((f64::MAX, f64::MIN), |(a, b), v| (a.min(v), b.max(v)));
            prop_assert_eq!(extreme(&kept), extreme(&points));
        }
    }
}
