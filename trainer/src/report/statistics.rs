//! Means and confidence intervals of repeated measurements.

use serde::Serialize;

/// Student's t, 97.5 % quantile, at 1 to 30 degrees of freedom (any table of the distribution).
const T_975: [f64; 30] = [
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788, 2.1604,
    2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860, 2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555,
    2.0518, 2.0484, 2.0452, 2.0423,
];
/// The normal distribution's 97.5 % quantile.
const Z_975: f64 = 1.959964;

/// Student's t, 97.5 % quantile. Beyond the table, the expansion about the normal distribution (Abramowitz
/// and Stegun 26.7.5) to the second term.
///
/// ```
/// use segue_trainer::report::student_t_975;
/// assert_eq!(student_t_975(2), Some(4.3027));
/// assert_eq!(student_t_975(0), None);
/// ```
pub fn student_t_975(freedom: usize) -> Option<f64> {
    let z = Z_975;
    let expansion = |n: f64| {
        z + (z.powi(3) + z) / (4.0 * n) + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * n * n)
    };
    match freedom {
        0 => None,
        1..=30 => Some(T_975[freedom - 1]),
        more => Some(expansion(more as f64)),
    }
}

/// A mean with its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// Arithmetic mean.
    pub mean: f64,
    /// The interval is mean ± this; none where there is one value alone.
    pub half_width: Option<f64>,
    /// The value in the middle; of an even number of values the mean of the two there.
    pub median: f64,
    /// Values it is of.
    pub count: usize,
}

impl Interval {
    /// Of independent values, by Student's t. `None` where there are no values.
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len();
        if count == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count as f64;
        let half_width = student_t_975(count - 1).map(|t| {
            let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            t * (squares / (count - 1) as f64).sqrt() / (count as f64).sqrt()
        });
        Some(Self { mean, half_width, median: median(values), count })
    }

    /// `median (mean ± half width)` with two decimals, or four for shares of one.
    pub fn text_with_median(&self) -> String {
        let digits = if self.median.abs() < 1.0 { 4 } else { 2 };
        format!("{:.digits$} ({})", self.median, self.text_to(digits))
    }

    /// `mean ± half width` with two decimals.
    pub fn text(&self) -> String {
        self.text_to(2)
    }

    fn text_to(&self, digits: usize) -> String {
        match self.half_width {
            Some(half) => format!("{:.digits$} ± {half:.digits$}", self.mean),
            None => format!("{:.digits$}", self.mean),
        }
    }
}

/// Of at least one value.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len().is_multiple_of(2) {
        true => (sorted[middle - 1] + sorted[middle]) / 2.0,
        false => sorted[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of the NIST handbook's table of critical values.
    #[test]
    fn quantiles_are_those_of_the_printed_tables() {
        for (freedom, printed) in
            [(1, 12.706), (4, 2.776), (9, 2.262), (30, 2.042), (40, 2.021), (60, 2.000), (100, 1.984)]
        {
            assert!((student_t_975(freedom).unwrap() - printed).abs() < 6e-4, "{freedom}");
        }
    }

    #[test]
    fn one_wild_value_does_not_move_the_median() {
        assert_eq!(Interval::of(&[3.0, 100.0, 1.0, 2.0, 4.0]).unwrap().median, 3.0);
        assert_eq!(Interval::of(&[4.0, 1.0, 2.0, 100.0]).unwrap().median, 3.0);
    }

    #[test]
    fn interval_of_five_values_is_the_textbook_one() {
        // Mean 3, standard deviation sqrt(2.5), so 2.7764 * 1.5811 / sqrt(5) = 1.9632.
        let interval = Interval::of(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert_eq!((interval.mean, interval.count), (3.0, 5));
        assert!((interval.half_width.unwrap() - 1.9632).abs() < 1e-4);
        assert_eq!(Interval::of(&[7.0]).unwrap().half_width, None);
        assert_eq!(Interval::of(&[]), None);
    }
}
