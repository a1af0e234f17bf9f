//! Means and confidence intervals of repeated measurements.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Student's t, 97.5 % quantile, at that many degrees of freedom.
///
/// ```
/// use segue_report::student_t_975;
/// assert!((student_t_975(2).unwrap() - 4.3027).abs() < 5e-5);
/// assert_eq!(student_t_975(0), None);
/// ```
pub fn student_t_975(freedom: usize) -> Option<f64> {
    let t = StudentsT::new(0.0, 1.0, freedom as f64).ok()?;
    Some(t.inverse_cdf(0.975))
}

/// A mean with its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// Arithmetic mean.
    pub mean: f64,
    /// The interval is mean ± this; none where there is one value alone.
    pub half_width: Option<f64>,
    /// Their [`median`].
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

    /// The interval of the same values, each multiplied by `factor`.
    pub fn scaled(self, factor: f64) -> Self {
        let half_width = self.half_width.map(|half| half * factor.abs());
        Self { mean: self.mean * factor, half_width, median: self.median * factor, ..self }
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

/// The value in the middle; of an even number of values the mean of the two there. Not a number where one of them is not, as for the mean,
/// or where there are none.
///
/// ```
/// use segue_report::median;
/// assert_eq!(median(&[4.0, 1.0, 2.0]), 2.0);
/// assert_eq!(median(&[4.0, 1.0, 2.0, 100.0]), 3.0);
/// ```
pub fn median(values: &[f64]) -> f64 {
    if values.is_empty() || values.iter().any(|value| value.is_nan()) {
        return f64::NAN;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (middle, last) = (sorted.len() / 2, sorted.len() - 1);
    (sorted[last - middle] + sorted[middle]) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of the NIST handbook's table of critical values.
    #[test]
    fn quantiles_are_those_of_the_printed_tables() {
        for (freedom, printed) in [
            (1, 12.706),
            (4, 2.776),
            (9, 2.262),
            (30, 2.042),
            (40, 2.021),
            (60, 2.000),
            (100, 1.984),
            (1000, 1.962),
        ] {
            assert!((student_t_975(freedom).unwrap() - printed).abs() <= 5e-4, "{freedom}");
        }
    }

    #[test]
    fn one_wild_value_does_not_move_the_median() {
        assert_eq!(Interval::of(&[3.0, 100.0, 1.0, 2.0, 4.0]).unwrap().median, 3.0);
        assert_eq!(Interval::of(&[4.0, 1.0, 2.0, 100.0]).unwrap().median, 3.0);
    }

    #[test]
    fn what_is_no_number_is_not_the_greatest_of_all() {
        let interval = Interval::of(&[0.8, f64::NAN, 0.9]).unwrap();
        assert!(interval.median.is_nan() && interval.mean.is_nan());
        assert!(median(&[]).is_nan());
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
