//! Maps of points with many coordinates to the plane: t-SNE (van der Maaten and Hinton 2008), over all pairs of points.

use segue_random::{Purpose, Stream};

/// How points are mapped.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TsneOptions {
    /// About how many neighbours a point has. At most a third of the points are taken.
    pub perplexity: f64,
    /// Steps of gradient descent.
    pub steps: usize,
    /// Seed of where points begin.
    pub seed: u64,
}

impl Default for TsneOptions {
    fn default() -> Self {
        Self { perplexity: 30.0, steps: 750, seed: 1 }
    }
}

/// Points attract each other this much more in the first steps ("early exaggeration").
const EXAGGERATION: f64 = 12.0;
/// These are so many.
const EXAGGERATED_STEPS: usize = 250;
/// Momentum in them, and after them.
const MOMENTA: [f64; 2] = [0.5, 0.8];
/// Standard deviation of where points begin.
const START: f64 = 1e-4;
/// The rate is the number of points over the exaggeration and 4, and at least this (Belkina et al. 2019).
const LEAST_RATE: f64 = 50.0;
/// A coordinate's gain grows by this where the gradient points on, shrinks by this factor where it turns, and stays above the last
/// (Jacobs 1988).
const GAINS: (f64, f64, f64) = (0.2, 0.8, 0.01);
/// Halvings in the search for the width of a neighbourhood.
const HALVINGS: usize = 60;
/// Below it a probability is taken for it.
const LEAST: f64 = 1e-12;

/// Places of the points in the plane. The same points and options give the same bits.
pub fn tsne(points: &[Vec<f32>], options: &TsneOptions) -> Vec<[f64; 2]> {
    let n = points.len();
    let stream = Stream::new(options.seed, Purpose::Evaluation, &[]);
    let mut places: Vec<[f64; 2]> =
        (0..n as u64).map(|i| [2 * i, 2 * i + 1].map(|number| START * stream.normal(number))).collect();
    let near = affinities(points, options.perplexity);
    let rate = (n as f64 / EXAGGERATION / 4.0).max(LEAST_RATE);
    let (mut speeds, mut gains) = (vec![[0.0; 2]; n], vec![[1.0; 2]; n]);
    for step in 0..options.steps {
        let early = step < EXAGGERATED_STEPS;
        let slopes = gradient(&near, &places, if early { EXAGGERATION } else { 1.0 });
        for i in 0..n {
            for axis in 0..2 {
                let (slope, speed, gain) = (slopes[i][axis], &mut speeds[i][axis], &mut gains[i][axis]);
                let turns = slope * *speed > 0.0;
                *gain = if turns { *gain * GAINS.1 } else { *gain + GAINS.0 }.max(GAINS.2);
                *speed = MOMENTA[usize::from(!early)] * *speed - rate * *gain * slope;
                places[i][axis] += *speed;
            }
        }
    }
    places
}

/// p_ij, `[n, n]`: how near points are to each other, summing to 1.
fn affinities(points: &[Vec<f32>], perplexity: f64) -> Vec<f64> {
    let n = points.len();
    let perplexity = perplexity.min(n.saturating_sub(1) as f64 / 3.0).max(1.0);
    let mut of = vec![0.0; n * n];
    for i in 0..n {
        let square = |other: &Vec<f32>| -> f64 {
            points[i].iter().zip(other).map(|(a, b)| f64::from(a - b).powi(2)).sum()
        };
        let squares: Vec<f64> = points.iter().map(square).collect();
        of[i * n..(i + 1) * n].copy_from_slice(&neighbourhood(&squares, i, perplexity.ln()));
    }
    (0..n * n).map(|at| ((of[at] + of[at % n * n + at / n]) / (2 * n) as f64).max(LEAST)).collect()
}

/// Probabilities of the neighbours of point `own`, by a Gaussian as wide as makes their entropy `entropy` nats.
fn neighbourhood(squares: &[f64], own: usize, entropy: f64) -> Vec<f64> {
    let nearest =
        squares.iter().enumerate().filter(|(i, _)| *i != own).map(|(_, s)| *s).fold(f64::INFINITY, f64::min);
    let (mut low, mut high, mut precision) = (0.0, f64::INFINITY, 1.0);
    let mut probabilities = Vec::new();
    for _ in 0..HALVINGS {
        let weight =
            |(i, square): (usize, &f64)| if i == own { 0.0 } else { (-(square - nearest) * precision).exp() };
        probabilities = squares.iter().enumerate().map(weight).collect();
        let sum: f64 = probabilities.iter().sum::<f64>().max(LEAST);
        probabilities.iter_mut().for_each(|p| *p /= sum);
        let found: f64 = probabilities.iter().filter(|p| **p > 0.0).map(|p| -p * p.ln()).sum();
        if found > entropy {
            low = precision;
        } else {
            high = precision;
        }
        precision = if high.is_finite() { (low + high) / 2.0 } else { 2.0 * precision };
    }
    probabilities
}

/// Gradient of KL(P‖Q), with p_ij times `exaggeration`: `4 Σ_j (p_ij − q_ij) (y_i − y_j) / (1 + |y_i − y_j|²)`.
fn gradient(near: &[f64], places: &[[f64; 2]], exaggeration: f64) -> Vec<[f64; 2]> {
    let n = places.len();
    let kernel = |i: usize, j: usize| {
        let (a, b) = (places[i][0] - places[j][0], places[i][1] - places[j][1]);
        1.0 / (1.0 + a * a + b * b)
    };
    let total: f64 = (0..n).map(|i| (0..i).map(|j| 2.0 * kernel(i, j)).sum::<f64>()).sum();
    let mut slopes = vec![[0.0; 2]; n];
    for i in 0..n {
        for j in 0..i {
            let kernel = kernel(i, j);
            let pull = 4.0 * (exaggeration * near[i * n + j] - (kernel / total).max(LEAST)) * kernel;
            for axis in 0..2 {
                let along = pull * (places[i][axis] - places[j][axis]);
                slopes[i][axis] += along;
                slopes[j][axis] -= along;
            }
        }
    }
    slopes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three clouds in ten dimensions, far apart.
    fn clouds(each: usize) -> (Vec<Vec<f32>>, Vec<u32>) {
        let stream = Stream::new(4, Purpose::Synthetic, &[]);
        let point = |i: usize| -> Vec<f32> {
            let centre = |axis: usize| if axis == i / each { 6.0 } else { 0.0 };
            (0..10).map(|axis| (centre(axis) + stream.normal((10 * i + axis) as u64)) as f32).collect()
        };
        ((0..3 * each).map(point).collect(), (0..3 * each).map(|i| (i / each) as u32).collect())
    }

    /// Row P17.
    #[test]
    fn neighbourhoods_have_the_perplexity_that_was_asked_for() {
        let squares: Vec<f64> = (0..40).map(|i| f64::from(i * i) / 10.0).collect();
        let found = neighbourhood(&squares, 7, 5f64.ln());
        let entropy: f64 = found.iter().filter(|p| **p > 0.0).map(|p| -p * p.ln()).sum();
        assert!((entropy.exp() - 5.0).abs() < 1e-9 && found[7] == 0.0, "{}", entropy.exp());
        assert!((found.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }

    /// Row P17.
    #[test]
    fn the_gradient_is_that_of_the_divergence() {
        let (points, _) = clouds(4);
        let near = affinities(&points, 3.0);
        let n = points.len();
        let stream = Stream::new(9, Purpose::Synthetic, &[]);
        let places: Vec<[f64; 2]> =
            (0..n as u64).map(|i| [stream.normal(2 * i), stream.normal(2 * i + 1)]).collect();
        let divergence = |places: &[[f64; 2]]| -> f64 {
            let kernel = |i: usize, j: usize| {
                1.0 / (1.0 + (0..2).map(|axis| (places[i][axis] - places[j][axis]).powi(2)).sum::<f64>())
            };
            let pairs = || (0..n).flat_map(|i| (0..n).map(move |j| (i, j))).filter(|(i, j)| i != j);
            let total: f64 = pairs().map(|(i, j)| kernel(i, j)).sum();
            pairs().map(|(i, j)| near[i * n + j] * (near[i * n + j] * total / kernel(i, j)).ln()).sum()
        };
        let slopes = gradient(&near, &places, 1.0);
        for (i, axis) in [(0, 0), (3, 1), (n - 1, 0)] {
            let moved = |by: f64| {
                let mut places = places.clone();
                places[i][axis] += by;
                divergence(&places)
            };
            let difference = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            assert!((slopes[i][axis] - difference).abs() < 1e-7, "{} against {difference}", slopes[i][axis]);
        }
    }

    /// Row P17.
    #[test]
    fn clouds_stay_apart_in_the_plane() {
        let (points, groups) = clouds(25);
        let options = TsneOptions { perplexity: 8.0, steps: 400, seed: 2 };
        let places = tsne(&points, &options);
        assert_eq!(places, tsne(&points, &options));
        let flat: Vec<Vec<f32>> = places.iter().map(|at| at.iter().map(|x| *x as f32).collect()).collect();
        let apart = segue_measure::mean_silhouette(&flat, &groups);
        assert!(apart > 0.6, "{apart}");
        assert!(tsne(&[], &options).is_empty() && tsne(&points[..1], &options).len() == 1);
    }
}
