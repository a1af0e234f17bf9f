//! What trials that were given up would have come to.
//!
//! Their losses are those of a part of the way. What trials that went all of it still gained from there on is taken off: its mean, and its variance
//! is how little the result is to be trusted.

use super::journal::{State, Trial};

/// Trials that went all of the way are compared with from so many on: one has no variance.
const LEAST: usize = 2;

/// The loss of a trial at its end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Outlook {
    /// In nats a target.
    pub loss: f64,
    /// The variance of the estimate; 0 where it was measured, or where too few have come as far to tell.
    pub doubt: f64,
}

/// That of `trial`, one of `trials`; none where it has no loss.
pub(crate) fn outlook(trial: &Trial, trials: &[Trial]) -> Option<Outlook> {
    let (told, loss) = (trial.told.as_ref()?, trial.loss()?);
    let so_far = Outlook { loss, doubt: 0.0 };
    if told.state != State::Stopped || told.turns.is_empty() {
        return Some(so_far);
    }
    let gains = gains_after(told.turns.len(), trials);
    if gains.len() < LEAST {
        return Some(so_far);
    }
    let count = gains.len() as f64;
    let mean = gains.iter().sum::<f64>() / count;
    let doubt = gains.iter().map(|gain| (gain - mean).powi(2)).sum::<f64>() / (count - 1.0);
    // Evaluations within turns may have been better.
    Some(Outlook { loss: loss.min(lowest(&told.turns) - mean), doubt })
}

/// By how much losses fell after `turns` turns, of the trials that went all of the way.
fn gains_after(turns: usize, trials: &[Trial]) -> Vec<f64> {
    let whole = trials.iter().filter_map(|trial| trial.told.as_ref().filter(|t| t.state == State::Done));
    whole.filter_map(|told| Some(lowest(told.turns.get(..turns)?) - told.loss?)).collect()
}

fn lowest(losses: &[f64]) -> f64 {
    losses.iter().copied().fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use segue_configs::study::SearchKind;

    use super::*;
    use crate::{Asked, Told};

    fn trial(state: State, loss: f64, turns: &[f64]) -> Trial {
        let asked =
            Asked { trial: 0, by: SearchKind::Random, point: vec![0.5], settings: BTreeMap::default() };
        Trial { asked, told: Some(Told::new(0, state, loss, turns.to_vec())) }
    }

    /// After the first turn the two others fell by 2 and 2, after the second by 1 and 0.
    /// Row M16.
    #[test]
    fn a_trial_that_was_given_up_is_expected_to_fall_as_others_did() {
        let whole = [trial(State::Done, 2.0, &[4.0, 3.0, 2.0]), trial(State::Done, 3.0, &[5.0, 3.0, 3.5])];
        let at = |loss: f64, turns: &[f64], others: &[Trial]| {
            let outlook = outlook(&trial(State::Stopped, loss, turns), others).unwrap();
            (outlook.loss, outlook.doubt)
        };
        assert_eq!(at(6.0, &[6.0], &whole), (4.0, 0.0));
        assert_eq!(at(5.0, &[6.0, 5.0], &whole), (4.5, 0.5));
        assert_eq!(at(4.25, &[6.0, 5.0], &whole), (4.25, 0.5), "better within a turn than at any end");
        assert_eq!(at(6.0, &[6.0], &whole[..1]), (6.0, 0.0), "one is too few");
        assert_eq!(at(4.0, &[6.0, 5.0, 4.5, 4.0], &whole), (4.0, 0.0), "none came as far");
        // Others that were given up say nothing of the end.
        let stopped = [trial(State::Stopped, 3.0, &[4.0, 3.0]), trial(State::Stopped, 3.0, &[4.0, 3.0])];
        assert_eq!(at(6.0, &[6.0], &stopped), (6.0, 0.0));
        assert_eq!(outlook(&whole[0], &whole), Some(Outlook { loss: 2.0, doubt: 0.0 }));
        assert_eq!(outlook(&trial(State::Done, f64::NAN, &[]), &whole), None);
    }
}
