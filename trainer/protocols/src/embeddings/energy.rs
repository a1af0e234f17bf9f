//! How probable a word can become, by the distances of its vector to all others (Wang, Gong and Liu 2019, theorem 3.4).

use segue_report::median;
use serde::Serialize;
use tch::{Kind, Tensor};

use super::{Density, density, folded, nearer};

/// States that words are to be predicted from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct States {
    /// Their length.
    pub length: f64,
    /// A word's vector moves against them by this fraction of its own length; 0 for words as they are.
    pub scale: f64,
}

/// The energies Φ of the words of a table.
#[derive(Debug, Clone, Serialize)]
pub struct Energy {
    /// What they are for.
    pub states: States,
    /// Their mean.
    pub mean: f64,
    /// Their median.
    pub median: f64,
    /// The mean of σ(Φ).
    pub bound_mean: f64,
    /// The least σ(Φ) of all words.
    pub bound_least: f64,
    /// The density of Φ.
    pub density: Density,
}

impl Energy {
    pub(super) fn of(states: States, mut energies: Vec<f64>) -> Self {
        energies.sort_by(f64::total_cmp);
        let bound = |energy: &f64| 1.0 / (1.0 + (-energy).exp());
        let mean = |sum: f64| sum / energies.len().max(1) as f64;
        Self {
            states,
            mean: mean(energies.iter().sum()),
            median: median(&energies),
            bound_mean: mean(energies.iter().map(bound).sum()),
            bound_least: energies.first().map_or(f64::NAN, bound),
            density: density(&energies),
        }
    }
}

/// Φ(i) = −ln Σ_(j ≠ i) e^(−a (‖w_i − w_j‖ − ε_i)) of each row i of `table`, `[words, width]`, for states of length a and ε_i = scale · ‖w_i‖. No such
/// state gives word i, moved against it by ε_i, a probability above σ(Φ(i)); biases aside.
pub fn energies(table: &Tensor, states: States) -> Vec<f64> {
    with_nearest(table, states).1
}

/// Distances to the nearest other row, and energies.
pub(super) fn with_nearest(table: &Tensor, states: States) -> (Vec<f64>, Vec<f64>) {
    let States { length, scale } = states;
    let start = [f64::INFINITY, f64::NEG_INFINITY];
    let [nearest, log_sums] = folded(table, start, |[least, sum], squares| {
        let block = (squares.sqrt() * -length).logsumexp(1, false);
        [nearer(&least, squares), sum.logaddexp(&block)]
    });
    let lengths = table.detach().to_kind(Kind::Double).norm_scalaropt_dim(2.0, [1], false);
    let lengths = Vec::<f64>::try_from(lengths).unwrap_or_default();
    let energies = log_sums.iter().zip(lengths).map(|(sum, own)| -sum - length * scale * own).collect();
    (nearest.into_iter().map(f64::sqrt).collect(), energies)
}
