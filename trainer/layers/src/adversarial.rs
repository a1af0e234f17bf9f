//! Adversarial softmax (Wang, Gong and Liu 2019, "Improving Neural Language Modeling via Adversarial Training"): the loss of the worst that
//! may happen to the vectors of words within small balls.
//!
//! The worst has a closed form (theorem 3.1): the target's vector moves by ε against the state h, all others stay. So the target's score
//! falls by a margin of ε‖h‖ before the softmax, and nothing of the size of a table of words is made.

mod rows;
mod section;

pub use section::{AdversarialConfig, MarginGradient, MarginKind};
use segue_kernels::Kernels;
use segue_kernels::libtorch::widened;
use tch::{Kind, Tensor};

use self::rows::Table;
use super::cross_entropy::{self, Distribution, Words};

/// Who moves words.
#[derive(Debug, Clone, PartialEq)]
pub struct Adversary {
    config: AdversarialConfig,
    /// Size of the ball at this step; 0 where nothing moves.
    scale: f64,
}

/// −ln P of targets.
pub struct Nll {
    /// As it is trained.
    pub trained: Tensor,
    /// Of the words as they are, without a graph, where an adversary moves them in training.
    pub plain: Option<Tensor>,
    /// Of the words where the adversary moves them to, without a graph, where that is not what is trained: where targets are smoothed.
    pub moved: Option<Tensor>,
}

impl Nll {
    /// Trained as it is.
    pub fn of(trained: Tensor) -> Self {
        Self { trained, plain: None, moved: None }
    }

    /// Of words that `adversary`, if there is one, leaves as they are.
    pub fn unmoved(trained: Tensor, adversary: Option<&Adversary>) -> Self {
        Self { plain: adversary.map(|_| trained.detach()), trained, moved: None }
    }

    /// The same of what `f` makes of both.
    pub fn map(&self, f: impl Fn(&Tensor) -> Tensor) -> Self {
        Self {
            trained: f(&self.trained),
            plain: self.plain.as_ref().map(&f),
            moved: self.moved.as_ref().map(&f),
        }
    }

    /// What `f` makes of these and of `other`'s, which have the same adversary or none.
    pub fn join(&self, other: &Self, f: impl Fn(&Tensor, &Tensor) -> Tensor) -> Self {
        let plain = self.plain.as_ref().zip(other.plain.as_ref()).map(|(own, other)| f(own, other));
        let moved = self.moved.as_ref().zip(other.moved.as_ref()).map(|(own, other)| f(own, other));
        Self { trained: f(&self.trained, &other.trained), plain, moved }
    }

    /// What an adversary makes of what is reported.
    pub fn against(&self) -> &Tensor {
        self.moved.as_ref().unwrap_or(&self.trained)
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
    let (margins, parts) = adversary.differentiated(hidden, parts, targets);
    let trained = cross_entropy::nll(kernels, hidden, &parts, targets, Some(&margins));
    if !adversary.moves() {
        return Nll::unmoved(trained, Some(adversary));
    }
    let plain = tch::no_grad(|| without(&trained, &margins));
    Nll { trained, plain: Some(plain), moved: None }
}

/// The same of smoothed targets, whose loss is trained; what is reported is −ln P of the targets themselves. Scores fall first, then targets are smoothed.
pub fn smoothed(
    kernels: Kernels,
    hidden: &Tensor,
    parts: &[Words],
    targets: &Tensor,
    adversary: Option<&Adversary>,
    smoothing: &Distribution,
) -> Nll {
    let Some(adversary) = adversary else {
        let [trained, nll] = cross_entropy::smoothed(kernels, hidden, parts, targets, None, smoothing);
        return Nll { trained, plain: Some(nll), moved: None };
    };
    let (margins, parts) = adversary.differentiated(hidden, parts, targets);
    let [trained, nll] = cross_entropy::smoothed(kernels, hidden, &parts, targets, Some(&margins), smoothing);
    let plain = match adversary.moves() {
        true => tch::no_grad(|| without(&nll, &margins)),
        false => nll.shallow_clone(),
    };
    Nll { trained, plain: Some(plain), moved: Some(nll) }
}

/// −ln P as it was before `margins` were taken off the targets' scores, from what it is after: with R for the other words,
/// e^L − 1 = R / e^(z − m), and e^m times too much. It never overflows.
fn without(nll: &Tensor, margins: &Tensor) -> Tensor {
    let odds = nll + (-(-nll).expm1()).log() - margins;
    odds.clamp_min(0.0) + (-odds.abs()).exp().log1p()
}

impl Adversary {
    /// As `[adversarial]` says; none where none takes part.
    pub fn of(config: &AdversarialConfig) -> Option<Self> {
        config.takes_part().then(|| Self { config: config.clone(), scale: config.scale })
    }

    /// Told before step `step`, from 1, of a schedule of `steps`: the ball is as large as it is then.
    pub fn at_step(&mut self, step: u64, steps: u64) {
        self.scale = self.config.scale_at(step, steps);
    }

    /// Whether any word moves.
    pub fn moves(&self) -> bool {
        self.scale > 0.0
    }

    /// What the scores of `targets`, `[n]`, fall by: `[n]`, for `hidden` of `[n, width]`. 0 for targets beyond the words of `parts` that move. With a graph of what is differentiated. Norms are of single precision at least. And `parts` as scores are to read them: where
    /// the lengths of words are differentiated, what margins give their rows goes through these.
    fn differentiated(&self, hidden: &Tensor, parts: &[Words], targets: &Tensor) -> (Tensor, Vec<Words>) {
        let moving = if self.config.clusters { parts.len() } else { parts.len().min(1) };
        let mut first = 0;
        let mut sum: Option<Tensor> = None;
        let mut read = Vec::with_capacity(parts.len());
        for (place, part) in parts.iter().enumerate() {
            if place >= moving {
                read.push(part.map(Tensor::shallow_clone));
                continue;
            }
            let count = part.count() as i64;
            let own = targets - first;
            let inside = own.ge(0).logical_and(&own.lt(count)).to_kind(widened(hidden).kind());
            let numbers = own.clamp(0, count - 1);
            let rows = Tensor::embedding(&part.weight.detach(), &numbers, -1, false, false);
            let margins = self.margin(hidden, &rows) * inside;
            let (margins, weight) = match self.reaches_by_length() {
                true => Table::of(&part.weight).differentiated(margins, &numbers, &rows),
                false => (margins, part.weight.shallow_clone()),
            };
            read.push(Words { weight, bias: part.bias.as_ref().map(Tensor::shallow_clone) });
            sum = Some(sum.map_or_else(|| margins.shallow_clone(), |before| before + &margins));
            first += count;
        }
        let margins = sum.unwrap_or_else(|| hidden.select(1, 0).zeros_like());
        let scalar = self.config.gradient == MarginGradient::Scalar;
        (if scalar { margins.detach() } else { margins }, read)
    }

    /// Whether margins are differentiated by the lengths of words.
    fn reaches_by_length(&self) -> bool {
        self.config.gradient == MarginGradient::Full && self.config.kind == MarginKind::Relative
    }

    /// ε‖h‖ of each row of `hidden` and of the words it predicts, `[n, width]` both.
    fn margin(&self, hidden: &Tensor, words: &Tensor) -> Tensor {
        let (hidden, words) = (widened(hidden), widened(words));
        let length = |x: &Tensor| x.norm_scalaropt_dim(2.0, [-1], false);
        let reach = match self.config.kind {
            MarginKind::Fixed => length(&hidden) * self.scale,
            MarginKind::Relative => length(&words) * length(&hidden) * self.scale,
        };
        if !self.config.gate {
            return reach;
        }
        let score = (hidden.detach() * &words).sum_dim_intlist(-1, false, None::<Kind>);
        reach * score.gt(0.0).to_kind(hidden.kind())
    }
}

#[cfg(test)]
mod tests;
