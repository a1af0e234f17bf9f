//! What a model with latent variables is trained for, of its scores: a bound on ln p(x), with a part of the information between x and z (Melis 2023, defs. 4 to 6).

use tch::{Kind, Tensor};

use crate::scores::Scores;

/// Orders α this close to 1 use the Kullback–Leibler divergence, the limit of Rényi's: the estimate of the latter is a difference of nearly equal numbers divided by α − 1.
const NEAR_ONE: f64 = 9.9e-4;

/// What is maximized, of each example.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Objective {
    /// S, a bound on ln p(x).
    Bound,
    /// S + λ (U − S): the Kullback–Leibler divergence of the posterior from the prior (def. 4).
    Kl {
        /// λ.
        weight: f64,
    },
    /// S + λ (S_α − α S) / (α − 1): the Rényi divergence of order α (def. 5).
    Renyi {
        /// λ.
        weight: f64,
        /// α.
        order: f64,
    },
    /// S_α / α (def. 6).
    Power {
        /// α.
        order: f64,
    },
}

/// Samples that the terms of an objective are estimated from: the first ones of those that are drawn (§5.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// For ln p(x).
    pub bound: i64,
    /// For the information.
    pub information: i64,
}

impl Counts {
    /// As many for both.
    pub fn of(samples: i64) -> Self {
        Self { bound: samples, information: samples }
    }

    /// How many are drawn.
    pub fn drawn(self) -> i64 {
        self.bound.max(self.information)
    }
}

/// c_S S + c_α S_α + c_U U of the first samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Term {
    /// How many samples.
    pub samples: i64,
    bound: f64,
    power: f64,
    posterior: f64,
    order: f64,
}

/// Factors by which scores have a part in a sum, `[examples, samples]` both.
#[derive(Debug)]
pub struct Factors {
    /// Those of a.
    pub likelihood: Tensor,
    /// Those of r.
    pub ratio: Tensor,
}

impl Term {
    fn new(samples: i64) -> Self {
        Self { samples, bound: 0.0, power: 0.0, posterior: 0.0, order: 1.0 }
    }

    /// Its value, `[examples]`, of scores of as many samples.
    pub fn value(&self, scores: &Scores) -> Tensor {
        let mut value = scores.bound(1.0) * self.bound;
        if self.power != 0.0 {
            value += scores.bound(self.order) * self.power;
        }
        if self.posterior != 0.0 {
            value += scores.posterior_likelihood() * self.posterior;
        }
        value
    }

    /// Its derivatives by each score, in closed form: what automatic differentiation is held against.
    #[cfg(test)]
    pub fn derivatives(&self, scores: &Scores) -> Factors {
        let (w, w_of_order) = (scores.weights(1.0), scores.weights(self.order));
        let excess = &scores.likelihood - scores.posterior_likelihood().unsqueeze(1);
        let of_ratio = &w * self.bound + &w_of_order * self.power + &w * &excess * self.posterior;
        let of_likelihood = w_of_order * (self.power * (self.order - 1.0)) + &w * self.posterior + &of_ratio;
        Factors { likelihood: of_likelihood, ratio: of_ratio }
    }

    /// What the scores' derivatives by a sample are multiplied by so that the sum is an unbiased gradient by what the sample is a function of, while q's own parameters
    /// in r stay as they are: doubly reparametrized gradients (Tucker et al. 2019), extended to S_α and U. From w_i: dh/dz_i − d(dh/dr_i)/dz_i.
    pub fn doubly_reparametrized(&self, scores: &Scores) -> Factors {
        let square = |weights: Tensor| &weights * &weights;
        let (w, w_of_order) = (square(scores.weights(1.0)), square(scores.weights(self.order)));
        let excess = &scores.likelihood - scores.posterior_likelihood().unsqueeze(1);
        let of_ratio = &w * self.bound + &w_of_order * self.power + &w * excess * (2.0 * self.posterior);
        let of_likelihood = w_of_order * (self.power * (self.order - 1.0)) + w * self.posterior + &of_ratio;
        Factors { likelihood: of_likelihood, ratio: of_ratio }
    }

    /// Its values with the scores of each sample replaced by the means of the others': `[examples, samples]`, an entry for the sample that was left out. Zero where
    /// there is one sample alone.
    pub fn without_each(&self, scores: &Scores) -> Tensor {
        let (examples, samples) = (scores.likelihood.size()[0], self.samples);
        if samples == 1 {
            return scores.likelihood.zeros_like();
        }
        let own = Tensor::eye(samples, (Kind::Bool, scores.likelihood.device())).to_kind(Kind::Bool);
        // Rows: which sample is left out.
        let filled = |of: &Tensor| {
            let others = (of.sum_dim_intlist(1, true, None::<Kind>) - of) / (samples - 1) as f64;
            let all = of.unsqueeze(1).expand([examples, samples, samples], false);
            all.where_self(&own.logical_not(), &others.unsqueeze(2)).view([-1, samples])
        };
        let rows = Scores { likelihood: filled(&scores.likelihood), ratio: filled(&scores.ratio) };
        self.value(&rows).view([examples, samples])
    }
}

impl Objective {
    /// Its terms. Terms of as many samples are one.
    pub fn terms(self, counts: Counts) -> Vec<Term> {
        let mut bound = Term { bound: 1.0, ..Term::new(counts.bound) };
        let mut information = Term::new(counts.information);
        match self {
            Self::Bound => return vec![bound],
            Self::Power { order } => {
                return vec![Term { power: 1.0 / order, order, ..Term::new(counts.bound) }];
            }
            Self::Renyi { weight, order } if (order - 1.0).abs() >= NEAR_ONE => {
                let factor = weight / (order - 1.0);
                (information.power, information.bound, information.order) = (factor, -order * factor, order);
            }
            Self::Kl { weight } | Self::Renyi { weight, .. } => {
                (information.posterior, information.bound) = (weight, -weight);
            }
        }
        if counts.bound == counts.information {
            bound = Term { bound: bound.bound + information.bound, ..information };
            return vec![bound];
        }
        vec![bound, information]
    }

    /// Its value, `[examples]`. `scores` are of `counts.drawn()` samples.
    pub fn value(self, scores: &Scores, counts: Counts) -> Tensor {
        let zero = scores.likelihood.select(1, 0).zeros_like();
        let terms = self.terms(counts);
        terms.iter().fold(zero, |sum, term| sum + term.value(&scores.first(term.samples)))
    }
}
