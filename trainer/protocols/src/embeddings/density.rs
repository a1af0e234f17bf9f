//! The density of numbers, as a curve.

use serde::Serialize;

/// Widths of a kernel by which the curve reaches beyond the numbers at both ends.
const BEYOND: f64 = 5.0;
/// Points of the curve, at least and at most. Two in the width of a kernel sum up to the integral.
const LEAST_POINTS: usize = 200;
const MOST_POINTS: usize = 20_000;
/// Width of a kernel where numbers are all alike, as a fraction of them.
const NARROWEST: f64 = 1e-3;

/// A curve over evenly spaced places.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Density {
    /// Width of the kernels: a standard deviation.
    pub bandwidth: f64,
    /// Place and density of each point, places rising.
    pub points: Vec<(f64, f64)>,
}

/// The mean of normal densities around `sorted` numbers, by Silverman's rule (1986, eq. 3.31): 0.9 min(σ, R / 1.34) n^(−1/5) wide, where R is
/// the distance between quartiles. Its integral is 1.
pub fn density(sorted: &[f64]) -> Density {
    let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else {
        return Density { bandwidth: 0.0, points: Vec::new() };
    };
    let bandwidth = bandwidth(sorted);
    let (low, high) = (first - BEYOND * bandwidth, last + BEYOND * bandwidth);
    let wanted = (2.0 * (high - low) / bandwidth).ceil() as usize;
    let count = wanted.clamp(LEAST_POINTS, MOST_POINTS);
    let step = (high - low) / (count - 1) as f64;
    let mut heights = vec![0.0; count];
    let height = 1.0 / (sorted.len() as f64 * bandwidth * std::f64::consts::TAU.sqrt());
    for number in sorted {
        // A kernel is nothing beyond a few of its widths.
        let place = |x: f64| ((x - low) / step).max(0.0) as usize;
        let (from, to) = (place(number - BEYOND * bandwidth), place(number + BEYOND * bandwidth) + 1);
        for (i, sum) in heights.iter_mut().enumerate().take(to + 1).skip(from) {
            let z = (low + i as f64 * step - number) / bandwidth;
            *sum += height * (-0.5 * z * z).exp();
        }
    }
    let points = heights.into_iter().enumerate().map(|(i, height)| (low + i as f64 * step, height));
    Density { bandwidth, points: points.collect() }
}

fn bandwidth(sorted: &[f64]) -> f64 {
    let count = sorted.len() as f64;
    let mean = sorted.iter().sum::<f64>() / count;
    let variance = sorted.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    let quartile = |share: f64| sorted[((count - 1.0) * share).round() as usize];
    let spread = quartile(0.75) - quartile(0.25);
    let deviation = variance.sqrt();
    let narrower = if spread > 0.0 { deviation.min(spread / 1.34) } else { deviation };
    let wide = 0.9 * narrower * count.powf(-0.2);
    if wide > 0.0 { wide } else { NARROWEST * mean.abs().max(NARROWEST) }
}
