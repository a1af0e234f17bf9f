use serde::Serialize;

/// A straight line by least squares.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LineFit {
    /// Height at x = 0.
    pub intercept: f64,
    /// Rise per unit of x.
    pub slope: f64,
    /// Share of the variance of y that the line explains (R²).
    pub r_squared: f64,
}

/// The line nearest to `points`; `None` with fewer than two different x, or values that are not finite.
pub fn fit_line(points: &[(f64, f64)]) -> Option<LineFit> {
    let n = points.len() as f64;
    let mean_x = points.iter().map(|p| p.0).sum::<f64>() / n;
    let mean_y = points.iter().map(|p| p.1).sum::<f64>() / n;
    let sum = |f: &dyn Fn(f64, f64) -> f64| points.iter().map(|p| f(p.0 - mean_x, p.1 - mean_y)).sum::<f64>();
    let (xx, xy, yy) = (sum(&|x, _| x * x), sum(&|x, y| x * y), sum(&|_, y| y * y));
    if !(xx > 0.0 && xy.is_finite() && yy.is_finite()) {
        return None;
    }
    let slope = xy / xx;
    // A line through points of one height explains all there is to explain.
    let r_squared = if yy == 0.0 { 1.0 } else { xy * xy / (xx * yy) };
    Some(LineFit { intercept: mean_y - slope * mean_x, slope, r_squared })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_of_a_textbook_example() {
        // Anscombe's first set (1973): y = 3.00 + 0.500 x, R² = 0.667.
        let x = [10.0, 8.0, 13.0, 9.0, 11.0, 14.0, 6.0, 4.0, 12.0, 7.0, 5.0];
        let y = [8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68];
        let fit = fit_line(&x.into_iter().zip(y).collect::<Vec<_>>()).unwrap();
        assert!((fit.intercept - 3.0001).abs() < 1e-4 && (fit.slope - 0.5001).abs() < 1e-4, "{fit:?}");
        assert!((fit.r_squared - 0.6665).abs() < 1e-4, "{fit:?}");
    }

    #[test]
    fn too_few_points_have_no_line() {
        assert_eq!(fit_line(&[]), None);
        assert_eq!(fit_line(&[(1.0, 2.0), (1.0, 3.0)]), None);
        assert_eq!(fit_line(&[(1.0, f64::NAN), (2.0, 3.0)]), None);
        assert_eq!(fit_line(&[(1.0, 2.0), (2.0, 2.0)]).unwrap().r_squared, 1.0);
    }
}
