//! Sequences that compete for being the right one: options of a question, candidates of a pronoun.

use segue_kernels::libtorch::stream::put;
use segue_tasks::{TaskConfig, TaskLoss};
use tch::{Kind, Tensor};

/// How the right sequence of each example is to win.
#[derive(Debug, Clone, Copy)]
pub enum Competition {
    /// −log P(right), with P the softmax over the example's sequences (RACE; QNLI as ranking, Liu et al. 2019). `smoothing`, ε, of the target is spread over
    /// them all: (1 − ε) (−log P(right)) + ε mean(−log P).
    Softmax {
        /// ε.
        smoothing: f64,
    },
    /// −log P(right) + weight · Σ over the wrong ones of max(0, log P(wrong) − log P(right) + margin)
    /// (WNLI, Kocijan et al. 2019).
    Margin {
        /// α.
        weight: f64,
        /// β.
        margin: f64,
    },
}

impl Competition {
    /// As `[task]` says.
    pub fn of(config: &TaskConfig) -> Self {
        match config.loss {
            TaskLoss::Standard | TaskLoss::Ranking => Self::Softmax { smoothing: config.label_smoothing },
            TaskLoss::Margin => Self::Margin { weight: config.margin_weight, margin: config.margin },
        }
    }

    /// Loss of each example, `[examples]`, for one score a sequence, `[rows]`. `counts`: sequences of each
    /// example, one after the other; `right`: the number of the right one.
    pub fn losses(self, scores: &Tensor, counts: &[usize], right: &[i64]) -> Tensor {
        let log_p = by_example(scores, counts, f64::NEG_INFINITY).log_softmax(1, None::<Kind>);
        let right = put(Tensor::from_slice(right).unsqueeze(1), scores.device());
        let of_right = log_p.gather(1, &right, false); // [examples, 1]
        let nll = -of_right.squeeze_dim(1);
        let (weight, margin) = match self {
            Self::Margin { weight, margin } => (weight, margin),
            Self::Softmax { smoothing: 0.0 } => return nll,
            Self::Softmax { smoothing } => {
                let own: Vec<f64> = counts.iter().map(|&count| count as f64).collect();
                let own = put(Tensor::from_slice(&own), scores.device()).to_kind(scores.kind());
                // Places that only fill up are no options.
                let all = log_p.masked_fill(&log_p.isinf(), 0.0).sum_dim_intlist(1, false, None::<Kind>);
                return nll * (1.0 - smoothing) - all / own * smoothing;
            }
        };
        let behind = (&log_p - &of_right + margin).clamp_min(0.0);
        // The right one does not compete with itself, nor with places that only fill up.
        let fills = log_p.isinf();
        let itself = fills.scatter_value(1, &right, 1);
        nll + behind.masked_fill(&itself, 0.0).sum_dim_intlist(1, false, None::<Kind>) * weight
    }
}

/// Scores `[rows]` as `[examples, most sequences]`, with `filler` where an example has fewer.
fn by_example(scores: &Tensor, counts: &[usize], filler: f64) -> Tensor {
    let most = counts.iter().copied().max().unwrap_or(0);
    if counts.iter().all(|&count| count == most) {
        return scores.reshape([counts.len() as i64, most as i64]);
    }
    // One place beyond the scores holds the filler.
    let outside = scores.size()[0];
    let mut first = 0;
    let mut from = Vec::with_capacity(counts.len() * most);
    for &count in counts {
        from.extend((0..most).map(|place| if place < count { (first + place) as i64 } else { outside }));
        first += count;
    }
    let padded = Tensor::cat(&[scores, &Tensor::full([1], filler, (scores.kind(), scores.device()))], 0);
    let from = put(Tensor::from_slice(&from), scores.device());
    padded.index_select(0, &from).view([counts.len() as i64, most as i64])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn losses(competition: Competition, scores: &[f64], counts: &[usize], right: &[i64]) -> Vec<f64> {
        Vec::try_from(competition.losses(&Tensor::from_slice(scores), counts, right)).unwrap()
    }

    /// P = e^1/(e^1+e^0) for the first pair, and e^0/(e^0+e^1+e^2) for the three.
    /// Row X28.
    #[test]
    fn ranking_loss_is_the_one_computed_by_hand() {
        let found =
            losses(Competition::Softmax { smoothing: 0.0 }, &[1.0, 0.0, 0.0, 1.0, 2.0], &[2, 3], &[0, 0]);
        assert!((found[0] - 0.313_261_687_5).abs() < 1e-9, "{found:?}");
        assert!((found[1] - 2.407_605_964_4).abs() < 1e-9, "{found:?}");
    }

    /// Of the same pair and three: (1 − ε) of the loss above, and ε of the mean of −log P over their own places alone.
    #[test]
    fn smoothed_options_are_their_own() {
        let found =
            losses(Competition::Softmax { smoothing: 0.25 }, &[1.0, 0.0, 0.0, 1.0, 2.0], &[2, 3], &[0, 0]);
        let means = [0.313_261_687_5 + 0.5, 2.407_605_964_4 - 1.0];
        assert!((found[0] - (0.75 * 0.313_261_687_5 + 0.25 * means[0])).abs() < 1e-9, "{found:?}");
        assert!((found[1] - (0.75 * 2.407_605_964_4 + 0.25 * means[1])).abs() < 1e-9, "{found:?}");
    }

    /// Two candidates with scores 0.5 and 0: log P = −0.474077 and −0.974077, half a nat apart. A margin of 0.2 is
    /// kept, one of 0.8 is missed by 0.3.
    /// Row X28.
    #[test]
    fn margin_loss_is_the_one_computed_by_hand() {
        let at =
            |margin: f64| losses(Competition::Margin { weight: 10.0, margin }, &[0.5, 0.0], &[2], &[0])[0];
        assert!((at(0.2) - 0.474_076_984_4).abs() < 1e-9);
        assert!((at(0.8) - (0.474_076_984_4 + 10.0 * 0.3)).abs() < 1e-9);
        // Three wrong ones in a group beside a pair: fillers cost nothing.
        let both = losses(
            Competition::Margin { weight: 10.0, margin: 0.8 },
            &[0.5, 0.0, 0.0, 0.0, 0.0],
            &[2, 3],
            &[0, 1],
        );
        assert!((both[0] - at(0.8)).abs() < 1e-9 && (both[1] - (3f64.ln() + 16.0)).abs() < 1e-9, "{both:?}");
    }

    /// Row X28.
    #[test]
    fn gradients_are_finite_beside_fillers() {
        let scores = Tensor::from_slice(&[0.5, 0.0, 0.1, 0.2, 0.3]).set_requires_grad(true);
        let margin = Competition::Margin { weight: 1.0, margin: 0.5 };
        for competition in [margin, Competition::Softmax { smoothing: 0.1 }] {
            competition.losses(&scores, &[2, 3], &[0, 1]).sum(None::<Kind>).backward();
            assert!(bool::try_from(scores.grad().isfinite().all()).unwrap(), "{competition:?}");
        }
    }
}
