//! Averages of the weights beside the trained ones: evaluated in their place, begun, and taken over.

use segue_configs::{AverageKind, CountOf};
use segue_kernels::libtorch::is_finite;
use segue_kernels::{Parameters, TrainError};
use tch::Tensor;

use super::doubles;
use super::family::Measures;
use super::fill::fill;
use super::learner::Learner;
use super::network::Network;
use super::state::FineTuning;
use super::step::Engine;
use crate::optim::averaging::{CandidateLoss, Choice, StandIn, TRAINED};

/// What an evaluation came to.
pub struct Chosen {
    /// What was found of each weight set, with its name.
    pub candidates: Vec<(&'static str, Measures)>,
    /// Which of them is reported, and what it led to.
    pub choice: Choice,
    /// Steps in each average that holds any, after what it led to.
    pub lengths: Vec<(&'static str, u64)>,
    /// What was found of the trained weights, where they are no candidate and `average.beside_trained` asks for them.
    pub trained: Option<Measures>,
}

impl Chosen {
    /// The loss of the trained weights, where it was found.
    pub fn trained_loss(&self) -> Option<f64> {
        let candidate = self.candidates.iter().find(|(name, _)| *name == TRAINED).map(|(_, found)| found);
        candidate.or(self.trained.as_ref()).map(Measures::loss)
    }
}

impl<L: Learner> Engine<'_, L> {
    /// Evaluates the weight sets that the averages offer, one after the other in the place of the trained weights, and
    /// lets the averages choose by their losses. `None` where `work` finds nothing to evaluate.
    pub fn evaluate(
        &mut self,
        step: u64,
        counts: bool,
        mut work: impl FnMut(&mut L) -> Result<Option<Measures>, TrainError>,
    ) -> Result<Option<Chosen>, TrainError> {
        self.settle()?;
        // Those of all networks are one model: they begin, switch and end together, but where each counts updates of its own.
        if self.config.average.of == CountOf::Run {
            self.align_averages();
        }
        let (mut candidates, mut broken) = (Vec::new(), Vec::new());
        for k in 0..self.networks.first().map_or(0, |network| network.averaging.candidates().len()) {
            let of = |network: &Network| network.averaging.candidates()[k].name;
            let name = self.networks.first().map_or("", of);
            let stand_in = |n: usize| self.stand_in(n, self.networks[n].averaging.candidates()[k].weights);
            let stand_ins: Vec<StandIn> = (0..self.networks.len()).map(stand_in).collect::<Result<_, _>>()?;
            let found = work(&mut self.learner);
            // A look at all weights, which nobody needs where the loss is a number.
            broken.push(match &found {
                Ok(Some(measures)) => !measures.of_candidate().decide.is_finite() && self.is_broken(k),
                _ => false,
            });
            drop(stand_ins);
            match found? {
                Some(measures) => candidates.push((name, measures)),
                None => return Ok(None),
            }
        }
        let averages_alone = self.networks.first().is_some_and(|network| {
            network.averaging.candidates().iter().all(|candidate| candidate.weights.is_some())
        });
        let trained = match self.config.average.beside_trained && averages_alone {
            true => work(&mut self.learner)?,
            false => None,
        };
        let mut losses = self.decisive(candidates.iter().map(|(_, found)| found.of_candidate()))?;
        losses.iter_mut().zip(broken).for_each(|(loss, broken)| loss.broken = broken);
        let mut first: Option<Choice> = None;
        for (network, (_, parameters)) in self.networks.iter_mut().zip(self.learner.networks()) {
            first.get_or_insert(network.choose(step, counts, &losses, parameters));
        }
        let offered = self.networks.first().map_or(Vec::new(), |network| network.averaging.candidates());
        let averages = offered.iter().filter(|candidate| candidate.weights.is_some());
        let lengths = averages.map(|average| (average.name, average.length)).collect();
        Ok(first.map(|choice| Chosen { candidates, choice, lengths, trained }))
    }

    /// Whether candidate number `k`, which stands in the place of the weights, holds a value that is no number in any network: averages that are
    /// dropped for that are dropped of all.
    fn is_broken(&self, k: usize) -> bool {
        let broken = |(network, (_, parameters)): (&Network, (&str, &Parameters))| {
            let weights = match network.shards().is_divided() {
                true => Some(parameters.tensors()),
                // Not as they stand there, which may be less precise.
                false => network.averaging.candidates()[k].weights,
            };
            network.average_kind() == AverageKind::TwoTailed
                && weights.is_some_and(|weights| !weights.iter().all(is_finite))
        };
        self.networks.iter().zip(self.learner.networks()).any(broken)
    }

    /// Lets averages begin anew where those of the networks are not of the same steps, as a version of before may have left them.
    fn align_averages(&mut self) {
        let offers = |network: &Network| -> Vec<(&str, u64)> {
            network.averaging.candidates().iter().map(|offered| (offered.name, offered.length)).collect()
        };
        let mut all = self.networks.iter().map(offers);
        let first = all.next();
        if all.any(|other| Some(&other) != first.as_ref()) {
            drop(all);
            tracing::warn!("the averages of this run's networks are of different steps: they begin anew");
            // Of averages that have stages, all networks' are of the same steps.
            self.begin_averages_anew(&FineTuning::default());
        }
    }

    /// The losses that averages decide by: rank 0's, so that no rank decides otherwise over a rounding.
    fn decisive(
        &self,
        losses: impl Iterator<Item = CandidateLoss>,
    ) -> Result<Vec<CandidateLoss>, TrainError> {
        let pair = |CandidateLoss { decide, report, .. }| [decide, report];
        let of = |pair: &[f64]| CandidateLoss { decide: pair[0], ..pair[1].into() };
        let agreed = doubles::of_first_rank(losses.flat_map(pair), self.comm)?;
        Ok(agreed.chunks_exact(2).map(of).collect())
    }

    /// Puts weights that network `n` averages in the place of the trained ones until the result is dropped: all of them, also where each rank has a
    /// part. A collective call.
    pub(super) fn stand_in(&self, n: usize, weights: Option<&[Tensor]>) -> Result<StandIn, TrainError> {
        let (_, parameters) = self.learner.networks()[n];
        // Those of other ranks are to be gathered.
        let stand_in = StandIn::new(weights, self.networks[n].averaged(parameters), parameters);
        if weights.is_some() {
            self.gather(n)?;
        }
        Ok(stand_in)
    }

    /// Gives every rank what the others have of the weights of network `n`, where they divide it. A collective call.
    pub(super) fn gather(&self, n: usize) -> Result<(), TrainError> {
        self.networks[n].gather(self.learner.networks()[n].1)?;
        self.settle()
    }

    /// Lets averages begin with the weights as they are now, in the stage of the run that `stage` says.
    pub fn begin_averages(&mut self, stage: &FineTuning) {
        for (network, (_, parameters)) in self.networks.iter_mut().zip(self.learner.networks()) {
            network.begin_averages(parameters, stage);
        }
    }

    /// [`Engine::begin_averages`] where the weights have gone back to earlier ones: what was reported best stays.
    pub fn begin_averages_anew(&mut self, stage: &FineTuning) {
        for (network, (_, parameters)) in self.networks.iter_mut().zip(self.learner.networks()) {
            network.begin_averages_anew(parameters, stage);
        }
    }

    /// Lets training go on from the averages, where there are any. A collective call.
    pub(super) fn take_averages(&self) -> Result<(), TrainError> {
        for (n, (_, parameters)) in self.learner.networks().into_iter().enumerate() {
            let Some(averages) = self.networks[n].averaging.chosen() else { continue };
            let own = self.networks[n].averaged(parameters).tensors();
            fill(own.iter().zip(averages.iter().map(Tensor::shallow_clone)));
            self.gather(n)?;
        }
        Ok(())
    }
}
