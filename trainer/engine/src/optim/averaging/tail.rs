use segue_configs::AverageTrigger;
use segue_kernels::Parameters;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tch::Tensor;

use super::mean::Mean;
use super::record::Record;
use super::{Averaging, AveragingError, AveragingEvent, Candidate, CandidateLoss, Choice, Saved};

const NAME: &str = "tail";

/// The mean of the weights from some step on: one that is set, or the one at which a trigger fires, whichever comes first.
pub struct Tail {
    /// Begins after this step; 0 for never.
    start: u64,
    /// Evaluations without a better loss that the trigger waits for; 0 for no trigger.
    patience: u64,
    trigger: AverageTrigger,
    /// Steps after the trigger whose weights are not in the mean.
    left_out: u64,
    /// The weights of steps that are multiples of it are in the mean.
    every: u64,
    /// Steps of a mean until training goes on from it; 0 for never.
    repeat_every: u64,
    /// Steps between the evaluations that count. One more at a run's end does not: a run made longer would remember it.
    period: u64,
    /// Whether the mean stagnates in its turn, by the same rule.
    in_stages: bool,
    begun: bool,
    /// A mean that has begun is of the weights of steps after it; `None` where a checkpoint does not say.
    after: Option<u64>,
    mean: Mean,
    /// Validation losses until the mean begins; in stages, then those of the mean.
    losses: Vec<f64>,
}

/// What a checkpoint says of it.
#[derive(Serialize, Deserialize)]
struct State {
    /// Weights in the mean; `None` before it has begun.
    count: Option<u64>,
    /// The step after which weights are in a mean that has begun. Checkpoints of before told it of an empty one alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after: Option<u64>,
    /// `None` for a loss that is no finite number, which JSON cannot say. No loss is above it, nor above infinity.
    losses: Vec<Option<f64>>,
}

impl Tail {
    /// A mean that begins after step `start`, or when AWD-LSTM's trigger fires at a validation loss. 0 turns either off.
    /// Evaluations are `period` steps apart.
    pub fn new(start: u64, patience: u64, period: u64) -> Self {
        let (trigger, mean, losses) = (AverageTrigger::NonMonotonic, Mean::default(), Vec::new());
        let (left_out, every, repeat_every, in_stages, begun, after) = (0, 1, 0, false, false, None);
        Self {
            start,
            patience,
            trigger,
            left_out,
            every,
            repeat_every,
            period,
            in_stages,
            begun,
            after,
            mean,
            losses,
        }
    }

    /// The same, handed over `repeat_every` steps after it has begun, and begun anew; 0 for never.
    pub fn repeated(self, repeat_every: u64) -> Self {
        Self { repeat_every, ..self }
    }

    /// The same of the weights of steps that are multiples of `every` alone.
    pub fn of_every(self, every: u64) -> Self {
        Self { every: every.max(1), ..self }
    }

    /// The same with another trigger, and so many steps after it whose weights are not in the mean.
    pub fn begun_by(self, trigger: AverageTrigger, left_out: u64) -> Self {
        Self { trigger, left_out, ..self }
    }

    /// The same, of which a run is told when it has begun and brings nothing more.
    pub fn in_stages(self, in_stages: bool) -> Self {
        Self { in_stages, ..self }
    }

    /// Begins with the weights of the first step after `after`, unless it has begun.
    fn begin(&mut self, after: u64) {
        if self.begun {
            return;
        }
        if self.in_stages {
            self.losses.clear();
        }
        (self.begun, self.after) = (true, Some(after));
    }

    /// Whether the trigger fires at this loss. One that is not a number is never the best, nor above it.
    fn stalls(&mut self, loss: f64) -> bool {
        // An average that has begun and holds nothing yet has no losses of its own.
        let empty = self.begun && self.mean.count() == 0;
        if self.patience == 0 || empty || self.begun && !self.in_stages {
            return false;
        }
        self.losses.push(loss);
        match self.trigger {
            AverageTrigger::NonMonotonic => {
                let old = (self.losses.len() - 1).saturating_sub(self.patience as usize);
                self.losses[..old].iter().any(|before| loss > *before)
            }
            AverageTrigger::SinceBest => Record::of(&self.losses).stagnates(self.patience),
        }
    }
}

impl Averaging for Tail {
    fn fold(&mut self, step: u64, parameters: &Parameters) {
        if self.start > 0 && step > self.start {
            // Of a run that has gone back, long after its start.
            self.begin(step - 1);
        }
        if self.begun {
            // Where a checkpoint does not say, the mean counts its steps from there.
            let after = *self.after.get_or_insert(step - 1);
            if step > after && step.is_multiple_of(self.every) {
                self.mean.fold(parameters);
            }
        }
    }

    /// Where the step of a mean's end made no update, the next that does ends it.
    fn hand_over(&mut self, step: u64) -> Option<Vec<Tensor>> {
        let ends = |after: u64| self.repeat_every > 0 && step >= after + self.repeat_every;
        if !self.after.is_some_and(ends) || self.mean.count() == 0 {
            return None;
        }
        let handed = self.mean.tables().iter().map(Tensor::shallow_clone).collect();
        self.mean.clear();
        self.after = Some(step);
        Some(handed)
    }

    fn candidates(&self) -> Vec<Candidate<'_>> {
        match self.chosen() {
            Some(weights) => vec![Candidate::average(NAME, self.mean.count(), weights)],
            None => vec![Candidate::trained()],
        }
    }

    fn observe(&mut self, step: u64, losses: &[CandidateLoss], parameters: &Parameters) -> Choice {
        let mut choice = self.compare(step, losses, parameters);
        if step.is_multiple_of(self.period) && self.stalls(losses[0].decide) {
            choice.events.push(if self.begun { AveragingEvent::Stagnated } else { AveragingEvent::Began });
            self.begin(step + self.left_out);
        }
        choice
    }

    fn compare(&mut self, _: u64, losses: &[CandidateLoss], _: &Parameters) -> Choice {
        assert_eq!(losses.len(), 1, "one loss for each candidate");
        Choice::plain(&self.candidates(), losses, 0)
    }

    fn chosen(&self) -> Option<&[Tensor]> {
        (self.mean.count() > 0).then(|| self.mean.tables())
    }

    fn state(&self) -> Value {
        let losses = self.losses.iter().map(|loss| loss.is_finite().then_some(*loss)).collect();
        let count = self.begun.then(|| self.mean.count());
        json!(State { count, after: self.after, losses })
    }

    fn restore(&mut self, saved: Saved, parameters: &Parameters) -> Result<(), AveragingError> {
        let state: State = saved.read()?;
        (self.begun, self.after) = (state.count.is_some(), state.after);
        self.losses = state.losses.into_iter().map(|loss| loss.unwrap_or(f64::INFINITY)).collect();
        self.mean.clear();
        match state.count {
            Some(count) if count > 0 => self.mean.restore(saved.chosen, count, parameters),
            _ => Ok(()),
        }
    }
}
