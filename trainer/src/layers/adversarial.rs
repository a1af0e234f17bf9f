//! Adversarial softmax (Wang, Gong and Liu 2019, "Improving Neural Language Modeling via Adversarial Training"): the loss of the worst that
//! may happen to the vectors of words within small balls.
//!
//! The worst has a closed form (theorem 3.1): the target's vector moves by ε against the state h, all others stay. So the target's score
//! falls by a margin of ε‖h‖ before the softmax, and nothing of the size of a table of words is made.

use segue_configs::{AdversarialConfig, MarginGradient, MarginKind};
use tch::{Kind, Tensor};

use super::cross_entropy::{self, Words};
use crate::Kernels;
use crate::libtorch::widened;

/// Who moves words.
#[derive(Debug, Clone, PartialEq)]
pub struct Adversary(AdversarialConfig);

/// −ln P of targets.
pub struct Nll {
    /// As it is trained.
    pub trained: Tensor,
    /// Of the words as they are, without a graph, where an adversary moves them in training.
    pub plain: Option<Tensor>,
}

impl Nll {
    /// Trained as it is.
    pub fn of(trained: Tensor) -> Self {
        Self { trained, plain: None }
    }

    /// The same of what `f` makes of both.
    pub fn map(&self, f: impl Fn(&Tensor) -> Tensor) -> Self {
        Self { trained: f(&self.trained), plain: self.plain.as_ref().map(f) }
    }

    /// What `f` makes of these and of `other`'s, which have the same adversary or none.
    pub fn join(&self, other: &Self, f: impl Fn(&Tensor, &Tensor) -> Tensor) -> Self {
        let plain = self.plain.as_ref().zip(other.plain.as_ref()).map(|(own, other)| f(own, other));
        Self { trained: f(&self.trained, &other.trained), plain }
    }

    /// What is reported: without an adversary what is trained.
    pub fn reported(&self) -> &Tensor {
        self.plain.as_ref().unwrap_or(&self.trained)
    }
}

/// −ln P of each target, `[n]`, as [`cross_entropy::nll`] has it. The words of the first part move; those of the others stand for clusters,
/// which move where the adversary says so.
pub fn nll(
    kernels: Kernels,
    hidden: &Tensor,
    parts: &[Words],
    targets: &Tensor,
    adversary: Option<&Adversary>,
) -> Nll {
    let Some(adversary) = adversary else {
        return Nll::of(cross_entropy::nll(kernels, hidden, parts, targets, None));
    };
    let moving = if adversary.0.clusters { parts } else { &parts[..parts.len().min(1)] };
    let margins = adversary.margins(hidden, moving, targets);
    let trained = cross_entropy::nll(kernels, hidden, parts, targets, Some(&margins));
    let plain = tch::no_grad(|| without(&trained, &margins));
    Nll { trained, plain: Some(plain) }
}

/// −ln P as it was before `margins` were taken off the targets' scores, from what it is after: with R for the other words,
/// e^L − 1 = R / e^(z − m), and e^m times too much. It never overflows.
fn without(nll: &Tensor, margins: &Tensor) -> Tensor {
    let odds = nll + (-(-nll).expm1()).log() - margins;
    odds.clamp_min(0.0) + (-odds.abs()).exp().log1p()
}

impl Adversary {
    /// As `[adversarial]` says; none where nothing moves.
    pub fn of(config: &AdversarialConfig) -> Option<Self> {
        (config.scale > 0.0).then(|| Self(config.clone()))
    }

    /// What the scores of `targets`, `[n]`, fall by: `[n]`, for `hidden` of `[n, width]`. 0 for targets beyond the words of `parts`. With
    /// a graph of what is differentiated. Norms are of single precision at least.
    pub fn margins(&self, hidden: &Tensor, parts: &[Words], targets: &Tensor) -> Tensor {
        let Self(config) = self;
        let mut first = 0;
        let mut margins: Option<Tensor> = None;
        for part in parts {
            let count = part.count() as i64;
            let own = targets - first;
            let inside = own.ge(0).logical_and(&own.lt(count));
            let rows = Tensor::embedding(
                &self.differentiated(&part.weight),
                &own.clamp(0, count - 1),
                -1,
                false,
                false,
            );
            let margin = self.margin(hidden, &rows) * inside.to_kind(widened(hidden).kind());
            margins = Some(margins.map_or_else(|| margin.shallow_clone(), |before| before + &margin));
            first += count;
        }
        let none = || hidden.select(1, 0).zeros_like();
        let margins = margins.unwrap_or_else(none);
        if config.gradient == MarginGradient::Scalar { margins.detach() } else { margins }
    }

    /// The table of words, of which a gradient is made only where it counts.
    fn differentiated(&self, weight: &Tensor) -> Tensor {
        if self.0.gradient == MarginGradient::Full { weight.shallow_clone() } else { weight.detach() }
    }

    /// ε‖h‖ of each row of `hidden` and of the words it predicts, `[n, width]` both.
    fn margin(&self, hidden: &Tensor, words: &Tensor) -> Tensor {
        let Self(config) = self;
        let (hidden, words) = (widened(hidden), widened(words));
        let length = |x: &Tensor| x.norm_scalaropt_dim(2.0, [-1], false);
        let reach = match config.kind {
            MarginKind::Fixed => length(&hidden) * config.scale,
            MarginKind::Relative => length(&words) * length(&hidden) * config.scale,
        };
        if !config.gate {
            return reach;
        }
        let score = (hidden.detach() * words.detach()).sum_dim_intlist(-1, false, None::<Kind>);
        reach * score.gt(0.0).to_kind(hidden.kind())
    }
}

#[cfg(test)]
mod tests;
