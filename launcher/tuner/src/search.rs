use segue_configs::study::{SearchKind, Space};
use segue_random::{Draws, Purpose};

use super::acquire::Known;
use super::gaussian::GaussianProcess;
use super::journal::{Asked, Trial};
use super::outlook::{Outlook, outlook};

/// Counters of the draws of this module, see [`Purpose::Tuning`].
const RANDOM: u64 = 0;
const CANDIDATES: u64 = 2;
/// Losses this many times as far above the median as the best is below count as that: a run that diverged says that it is bad, not how
/// the others differ.
const FAR: f64 = 5.0;

/// Proposes trials.
#[derive(Debug, Clone, Copy)]
pub struct Search<'a> {
    /// What is looked among.
    pub space: &'a Space,
    /// How.
    pub kind: SearchKind,
    /// Random trials before the first by a Gaussian process.
    pub startup: usize,
    /// Seed of everything random.
    pub seed: u64,
}

impl Search<'_> {
    /// The next trial after `trials`: a function of these, the seed and the space alone. Trials without an end count as points where the
    /// mean that is expected has been measured.
    pub fn next(&self, trials: &[Trial]) -> Asked {
        let trial = trials.len();
        let modelled = match self.kind {
            SearchKind::Gaussian if trial >= self.startup => self.modelled(trials),
            _ => None,
        };
        let by = if modelled.is_some() { SearchKind::Gaussian } else { SearchKind::Random };
        let point = modelled.unwrap_or_else(|| self.random(trial as u64));
        let settings = self.space.settings(&point).into_iter().collect();
        Asked { trial, by, point, settings }
    }

    /// A process fitted to the trials that have a loss; those that were given up count with what they would have come to. `None` where
    /// these are too few, or all alike.
    pub fn fit(&self, trials: &[Trial]) -> Option<GaussianProcess> {
        let (points, outlooks) = self.measured(trials);
        let losses: Vec<f64> = outlooks.iter().map(|outlook| outlook.loss).collect();
        let doubts: Vec<f64> = outlooks.iter().map(|outlook| outlook.doubt).collect();
        GaussianProcess::fit_doubtful(&points, &tamed(&losses), &doubts, self.seed)
    }

    fn measured(&self, trials: &[Trial]) -> (Vec<Vec<f64>>, Vec<Outlook>) {
        let with_loss = trials.iter().filter_map(|trial| Some((trial, outlook(trial, trials)?)));
        with_loss.map(|(trial, outlook)| (self.space.canonical(&trial.asked.point), outlook)).unzip()
    }

    fn modelled(&self, trials: &[Trial]) -> Option<Vec<f64>> {
        let mut process = self.fit(trials)?;
        let sound = self.sound(trials);
        let (feasible, _) = self.measured(trials);
        let others = |pending: bool| -> Vec<Vec<f64>> {
            let without = trials.iter().filter(|t| t.loss().is_none() && t.told.is_none() == pending);
            without.map(|trial| self.space.canonical(&trial.asked.point)).collect()
        };
        let (pending, infeasible) = (others(true), others(false));
        pending.iter().for_each(|point| process.believe(point));
        let mut draws = Draws::new(self.seed, Purpose::Tuning, &[CANDIDATES, trials.len() as u64]);
        let known = Known {
            process: &process,
            sound: sound.as_ref(),
            feasible: &feasible,
            infeasible: &infeasible,
            pending: &pending,
        };
        known.best(self.space, &mut draws)
    }

    /// A process fitted to whether trials had a loss: 1 or 0. It has length scales of its own, as what lets a run diverge is seldom what
    /// tells good ones apart. `None` where all are alike.
    fn sound(&self, trials: &[Trial]) -> Option<GaussianProcess> {
        let ended = trials.iter().filter(|trial| trial.told.is_some());
        let label =
            |trial: &Trial| (self.space.canonical(&trial.asked.point), f64::from(trial.loss().is_some()));
        let (points, labels): (Vec<_>, Vec<_>) = ended.map(label).unzip();
        GaussianProcess::fit(&points, &labels, self.seed)
    }

    fn random(&self, trial: u64) -> Vec<f64> {
        let mut draws = Draws::new(self.seed, Purpose::Tuning, &[RANDOM, trial]);
        self.space.parameters().iter().map(|_| draws.uniform()).collect()
    }
}

/// Losses with those far above all others drawn in.
fn tamed(losses: &[f64]) -> Vec<f64> {
    let mut sorted = losses.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (Some(best), Some(median)) = (sorted.first(), sorted.get(sorted.len() / 2)) else { return sorted };
    let limit = median + FAR * (median - best);
    let tame = |loss: &f64| if limit > *best { loss.min(limit) } else { *loss };
    losses.iter().map(tame).collect()
}

#[cfg(test)]
mod tests;
