//! Losses over the learning rates of a range test: smoothed, where they fall fastest, and when they have diverged.

/// Steps on each side of one that its smoothed loss is a mean of, as a fraction of all.
const SIDE: f64 = 0.05;
/// Standard deviations of single losses that a fall has to exceed: of pure noise the greatest of a hundred falls is about one.
const NOISE: f64 = 2.0;
/// What is left of the running mean with each step, by which divergence is judged.
const DECAY: f64 = 0.9;
/// Times the least running mean at which a loss has diverged, as in fastai and Lightning.
const DIVERGED: f64 = 4.0;

/// Where a curve falls, by places among its losses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descent {
    /// The middle of the stretch of the steepest descent; `None` where no fall stands out from the noise.
    pub steepest: Option<usize>,
    /// Whether that is the first stretch of all.
    pub at_start: bool,
    /// The lowest smoothed loss.
    pub lowest: usize,
    /// Whether that is among the last losses.
    pub at_end: bool,
}

/// Steps on each side of one that its smoothed loss is a mean of, for a test of `steps` steps.
pub fn side(steps: usize) -> usize {
    ((SIDE * steps as f64).round() as usize).max(1)
}

/// Means over `side` losses on each side, fewer towards the ends, as many on one as on the other: unlike a running mean, none lags behind.
pub fn smoothed(losses: &[f64], side: usize) -> Vec<f64> {
    let mean = |i: usize| {
        let side = side.min(i).min(losses.len() - 1 - i);
        let window = &losses[i - side..=i + side];
        window.iter().sum::<f64>() / window.len() as f64
    };
    (0..losses.len()).map(mean).collect()
}

/// Where losses and their `smooth` values fall; `None` without any. The descent at a place is how far the smoothed loss falls from `side` steps
/// before it to `side` steps after, up to its lowest.
pub fn descent(losses: &[f64], smooth: &[f64], side: usize) -> Option<Descent> {
    let lowest = (0..smooth.len()).min_by(|a, b| smooth[*a].total_cmp(&smooth[*b]))?;
    let fall = |i: usize| smooth[i - side] - smooth[i + side];
    let places = side..(lowest + 1).saturating_sub(side);
    let squares = losses.iter().zip(smooth).take(lowest + 1).map(|(loss, mean)| (loss - mean).powi(2));
    let noise = (squares.sum::<f64>() / (lowest + 1) as f64).sqrt();
    let steepest = places.max_by(|a, b| fall(*a).total_cmp(&fall(*b))).filter(|i| fall(*i) > NOISE * noise);
    Some(Descent {
        steepest,
        at_start: steepest == Some(side),
        lowest,
        at_end: lowest + side >= smooth.len() - 1,
    })
}

/// Online test for divergence, on the running mean of the losses.
#[derive(Debug, Default)]
pub struct Divergence {
    sum: f64,
    weight: f64,
    least: Option<f64>,
}

impl Divergence {
    /// Takes a loss in; true where it has.
    pub fn observe(&mut self, loss: f64) -> bool {
        self.sum = DECAY * self.sum + loss;
        self.weight = DECAY * self.weight + 1.0;
        let mean = self.sum / self.weight;
        let least = self.least.map_or(mean, |least| least.min(mean));
        self.least = Some(least);
        // Of a loss below 0 as much above it as above one of its size.
        mean - least > (DIVERGED - 1.0) * least.abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A loss of 9 that falls in a logistic curve by 6, fastest at step 60 of 100, and rises from step 80 on.
    fn losses(noise: f64) -> Vec<f64> {
        let one = |i: usize| {
            let fall = 6.0 / (1.0 + (-(i as f64 - 60.0) / 4.0).exp());
            let rise = (i as f64 - 80.0).max(0.0).powi(2);
            9.0 - fall + rise + if i.is_multiple_of(2) { noise } else { -noise }
        };
        (0..100).map(one).collect()
    }

    #[test]
    fn a_smoothed_loss_is_a_mean_of_both_sides() {
        let found = smoothed(&[1.0, 2.0, 6.0, 4.0, 5.0, 9.0], 2);
        assert_eq!(found, [1.0, 3.0, 18.0 / 5.0, 26.0 / 5.0, 6.0, 9.0]);
        // A line stays the line, at its ends too.
        let line: Vec<f64> = (0..20).map(f64::from).collect();
        assert_eq!(smoothed(&line, 5), line);
        assert!(smoothed(&[], 3).is_empty());
        assert_eq!((side(4), side(100), side(1000)), (1, 5, 50));
    }

    #[test]
    fn the_steepest_descent_is_that_of_the_curve() {
        for noise in [0.0, 0.3] {
            let losses = losses(noise);
            let found = descent(&losses, &smoothed(&losses, 5), 5).unwrap();
            assert_eq!(found.steepest, Some(60), "{noise}");
            // Means of both sides see the rise five steps before it.
            assert!((74..=80).contains(&found.lowest), "{found:?}");
            assert!(!found.at_start && !found.at_end);
        }
    }

    #[test]
    fn what_falls_at_an_end_is_told() {
        let falling: Vec<f64> = (0..100).map(|i| 9.0 - (f64::from(i) / 20.0).powi(3)).collect();
        let found = descent(&falling, &smoothed(&falling, 5), 5).unwrap();
        assert_eq!((found.steepest, found.at_end, found.at_start), (Some(94), true, false));
        let early: Vec<f64> = (0..100).map(|i| 3.0 + 6.0 * (-f64::from(i) / 9.0).exp()).collect();
        let found = descent(&early, &smoothed(&early, 5), 5).unwrap();
        assert!(found.at_start, "{found:?}");
    }

    #[test]
    fn noise_a_rise_or_a_few_losses_suggest_nothing() {
        // Without a trend, in a fixed order that no period of the window has.
        let noise: Vec<f64> = (0..100u32).map(|i| 5.0 + f64::from(i * i % 101) / 101.0).collect();
        let rise: Vec<f64> = (0..100).map(|i| 5.0 + f64::from(i)).collect();
        for losses in [noise, rise, vec![5.0; 100], vec![5.0, 1.0]] {
            let found = descent(&losses, &smoothed(&losses, 5), 5).unwrap();
            assert_eq!(found.steepest, None);
        }
        assert_eq!(descent(&[], &[], 5), None);
    }

    #[test]
    fn a_loss_has_diverged_at_four_times_its_best() {
        let first = |losses: &[f64]| {
            let mut divergence = Divergence::default();
            losses.iter().position(|loss| divergence.observe(*loss))
        };
        // The mean of 2 and x, x ten times as heavy as what is left of all twos: (9 · 2 + x) / 10 reaches 8 at 62.
        let twos = vec![2.0; 200];
        assert_eq!(first(&[&twos[..], &[61.9]].concat()), None);
        assert_eq!(first(&[&twos[..], &[62.1]].concat()), Some(200));
        assert_eq!(first(&losses(0.3)[..80]), None);
        assert!(first(&losses(0.3)).is_some_and(|i| (82..95).contains(&i)));
        // Below 0: from -2 to 4.
        let below = vec![-2.0; 200];
        assert_eq!(first(&[&below[..], &[57.9]].concat()), None);
        assert_eq!(first(&[&below[..], &[58.1]].concat()), Some(200));
    }
}
