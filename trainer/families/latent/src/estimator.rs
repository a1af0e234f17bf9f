//! Gradients of an objective by the parameters of q(z | x), each as a sum whose derivative it is. Those of p(x | z) are the derivatives of the objective itself, with
//! the samples as they are.

use tch::Tensor;

use crate::objective::{Counts, Objective};
use crate::scores::Scores;

/// How a gradient by the parameters of q is estimated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Estimator {
    /// Through the samples, which are functions of the parameters, and through q in r (Kingma and Welling 2014; Burda et al. 2016).
    Reparametrized,
    /// Through the samples alone (Roeder et al. 2017; Tucker et al. 2019): STL of one sample, DReG of several.
    DoublyReparametrized,
    /// By the score function, without a baseline (Williams 1992).
    Reinforce,
    /// By the score function, each sample against the mean of the others (Mnih and Rezende 2016).
    Vimco,
}

impl Estimator {
    /// Whether samples have to be functions of the parameters of q.
    pub fn needs_paths(self) -> bool {
        matches!(self, Self::Reparametrized | Self::DoublyReparametrized)
    }

    /// What is differentiated by the parameters of q, `[examples]`. `scores`: of `counts.drawn()` samples; r has to be of a q whose own parameters are constants for
    /// [`Self::DoublyReparametrized`], and of the parameters themselves for all others. `density`: ln q(z | x), `[examples, samples]`, with the samples as constants.
    pub fn surrogate(
        self,
        objective: Objective,
        scores: &Scores,
        density: &Tensor,
        counts: Counts,
    ) -> Tensor {
        let terms = objective.terms(counts);
        let zero = density.select(1, 0).zeros_like();
        terms.iter().fold(zero, |sum, term| {
            let (scores, density) = (scores.first(term.samples), density.narrow(1, 0, term.samples));
            let over_samples = |each: Tensor| each.sum_dim_intlist(1, false, None);
            sum + match self {
                Self::Reparametrized => term.value(&scores),
                Self::DoublyReparametrized => {
                    let factors = tch::no_grad(|| term.doubly_reparametrized(&scores));
                    over_samples(factors.likelihood * &scores.likelihood + factors.ratio * &scores.ratio)
                }
                Self::Reinforce | Self::Vimco => {
                    let value = term.value(&scores);
                    let signal = tch::no_grad(|| {
                        let value = value.unsqueeze(1);
                        match self {
                            Self::Vimco => value - term.without_each(&scores),
                            _ => value.expand_as(&density),
                        }
                    });
                    over_samples(signal * density) + value
                }
            }
        })
    }
}
