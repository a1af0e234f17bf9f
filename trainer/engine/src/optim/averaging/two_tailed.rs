use segue_configs::TwoTailedVariant;
use segue_kernels::Parameters;
use segue_kernels::libtorch::is_finite;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tch::Tensor;

use super::candidate::TRAINED;
use super::mean::Mean;
use super::record::Record;
use super::{Averaging, AveragingError, AveragingEvent, Best, Candidate, CandidateLoss, Choice, Saved};

/// Names of the two averages, among candidates and tables.
const SHORT: &str = "short";
const LONG: &str = "long";
/// Name of the best weights among the tables, where they are not the model.
const BEST: &str = "best";

/// Two-tailed averaging (Melis 2022, arXiv:2209.12581, algorithms 1 and 2): two means of the last weights, of lengths
/// S ≤ L. When the short one is as good as the long one it becomes the long one, and a new short one begins, so that the
/// length of the long one follows the best length within a factor of about two.
///
/// Decisions fall at multiples of the period only, so that lengths are multiples of it too. At other steps, such as the
/// last of a run, the candidates are compared and nothing else changes: the best of them may be the model, but only until
/// training goes on, so that a run made longer knows no more than one that was long from the start.
pub struct TwoTailed {
    variant: TwoTailedVariant,
    stagnation: u64,
    /// E, steps between decisions.
    period: u64,
    short: Tracked,
    long: Tracked,
    /// Loss of the short average at the last switch; infinite before the first.
    bar: f64,
    /// The last step that decisions were made after.
    observed: u64,
    /// The best weights reported with a decision.
    best: Option<Best>,
    best_weights: Mean,
    /// What was reported since without one, and is better.
    passing: Option<Passing>,
}

/// A candidate that is the model until training goes on. It is not copied: without a decision no average changes.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Passing {
    weights: Weights,
    best: Best,
}

/// Weights that may be reported.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Weights {
    Trained,
    Short,
    Long,
}

/// An average with the record of its losses, which goes with it when the short one becomes the long one.
#[derive(Default)]
struct Tracked {
    mean: Mean,
    record: Record,
}

impl Tracked {
    fn clear(&mut self) {
        self.mean.clear();
        self.record = Record::default();
    }

    /// Whether its weights, which gave this loss, are no numbers, here or on another rank.
    fn is_broken(&self, found: Found) -> bool {
        let broken = || found.broken || !self.mean.tables().iter().all(is_finite);
        found.loss.is_infinite() && self.mean.count() > 0 && broken()
    }
}

/// What a checkpoint says besides the averages.
#[derive(Serialize, Deserialize)]
struct State {
    period: u64,
    observed: u64,
    short: TrackedState,
    long: TrackedState,
    bar: Option<f64>,
    best: Option<Best>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    passing: Option<Passing>,
}

#[derive(Serialize, Deserialize)]
struct TrackedState {
    count: u64,
    record: Record,
}

/// Candidates as the rules name them.
struct Seen {
    trained: Option<Found>,
    /// The same as `long` where both are of one length.
    short: Option<Found>,
    /// The trained weights where nothing has been averaged.
    long: Found,
}

/// A candidate and its loss.
#[derive(Clone, Copy)]
struct Found {
    place: usize,
    name: &'static str,
    length: u64,
    /// What decisions follow; infinite where it is not a finite number, so that no comparison fails for ever.
    loss: f64,
    /// Whether its weights, of which each rank has a part, hold a NaN or an infinity on any of them; told where the loss is no number.
    broken: bool,
}

impl Weights {
    fn of(name: &str) -> Self {
        match name {
            SHORT => Self::Short,
            LONG => Self::Long,
            _ => Self::Trained,
        }
    }
}

impl TwoTailed {
    /// Averages without weights, to be evaluated every `period` steps. An average stagnates after `stagnation`
    /// evaluations in a row without a new best loss.
    pub fn new(variant: TwoTailedVariant, stagnation: u64, period: u64) -> Self {
        Self {
            variant,
            stagnation,
            period: period.max(1),
            short: Tracked::default(),
            long: Tracked::default(),
            bar: f64::INFINITY,
            observed: 0,
            best: None,
            best_weights: Mean::default(),
            passing: None,
        }
    }

    /// Lengths of the short and of the long average: S and L.
    pub fn lengths(&self) -> (u64, u64) {
        (self.short.mean.count(), self.long.mean.count())
    }

    /// The best evaluation so far.
    pub fn best(&self) -> Option<Best> {
        self.passing.map_or(self.best, |passing| Some(passing.best))
    }

    fn is_extended(&self) -> bool {
        self.variant == TwoTailedVariant::Extended
    }

    fn seen(&self, losses: &[CandidateLoss]) -> Seen {
        let candidates = self.candidates();
        assert_eq!(losses.len(), candidates.len(), "one loss for each candidate");
        let found = |place: usize| {
            let (Candidate { name, length, .. }, CandidateLoss { decide, broken, .. }) =
                (candidates[place], losses[place]);
            let loss = if decide.is_finite() { decide } else { f64::INFINITY };
            Found { place, name, length, loss, broken }
        };
        let named = |name: &str| candidates.iter().position(|candidate| candidate.name == name).map(found);
        let (short, long) = self.lengths();
        let last = found(candidates.len() - 1);
        // Two evaluations of the same weights might differ by rounding, and then hinder the first switch.
        let short = if short == long && long > 0 { Some(last) } else { named(SHORT) };
        Seen { trained: named(TRAINED), short, long: last }
    }

    /// Changes the averages as algorithm 2 demands, or algorithm 1, and gives the average to report.
    fn decide(&mut self, short: Found, long: Found, events: &mut Vec<AveragingEvent>) -> Found {
        let short_broken = self.short.is_broken(short);
        let long_broken = self.long.is_broken(long);
        if short_broken {
            self.short.clear();
            if long_broken {
                self.long.clear();
            }
            events.push(AveragingEvent::Dropped);
            return long;
        }
        self.short.record.note(short.loss);
        self.long.record.note(long.loss);
        let short_stagnates = self.short.record.stagnates(self.stagnation);
        let long_stagnates = self.long.record.stagnates(self.stagnation);
        let allowed = self.variant != TwoTailedVariant::Monotone || short.loss <= self.bar;
        let cause = if short.loss <= long.loss && allowed {
            Some(AveragingEvent::Switched)
        } else if long_broken {
            Some(AveragingEvent::Dropped)
        } else {
            (self.is_extended() && long_stagnates).then_some(AveragingEvent::LongStagnated)
        };
        if let Some(cause) = cause {
            std::mem::swap(&mut self.short, &mut self.long);
            self.short.clear();
            self.bar = short.loss;
            events.push(cause);
            return short;
        }
        if self.is_extended() && short_stagnates {
            self.short.clear();
            events.push(AveragingEvent::ShortStagnated);
        }
        long
    }

    /// The candidate to report. `decides` is false where averages must stay as they are.
    fn report(&mut self, seen: Seen, decides: bool, events: &mut Vec<AveragingEvent>) -> Found {
        let average = match seen.short {
            Some(short) if decides => self.decide(short, seen.long, events),
            Some(short) if short.loss <= seen.long.loss => short,
            _ => seen.long,
        };
        let rival = seen.trained.filter(|trained| average.length > 1 && trained.loss <= average.loss);
        let Some(trained) = rival else { return average };
        events.push(AveragingEvent::TrainedReported);
        // With one period of data, trained weights have been as good at every evaluation so far.
        if decides && self.long.mean.count() <= self.period {
            self.short.clear();
            self.long.clear();
            events.push(AveragingEvent::Restarted);
        }
        trained
    }

    /// Chooses by the losses of all candidates. `decides` is false where averages must stay as they are.
    fn choose(
        &mut self,
        step: u64,
        losses: &[CandidateLoss],
        parameters: &Parameters,
        decides: bool,
    ) -> Choice {
        let seen = self.seen(losses);
        let mut events = Vec::new();
        let reported = self.report(seen, decides, &mut events);
        let Found { place, name, length, .. } = reported;
        let loss = losses[place].report;
        let found = Best { loss, step, length, since: 0 };
        self.passing = None;
        if decides {
            self.observed = step;
            self.keep_best(found, name, parameters);
        } else if self.is_best(loss) {
            self.passing = Some(Passing { weights: Weights::of(name), best: found });
        }
        Choice { candidate: place, name, length, loss, events, best: self.best_at(step) }
    }

    /// Keeps weights that a decision reports, where they are the best so far.
    fn keep_best(&mut self, best: Best, name: &str, parameters: &Parameters) {
        if self.is_best(best.loss) {
            self.best = Some(best);
            // What was the short average may be the long one by now.
            let weights = match name {
                TRAINED => parameters.tensors(),
                _ if self.short.mean.count() == best.length => self.short.mean.tables(),
                _ => self.long.mean.tables(),
            };
            self.best_weights.set(weights, best.length);
        } else if let Some(best) = &mut self.best {
            best.since += 1;
        }
    }

    fn is_best(&self, loss: f64) -> bool {
        loss.is_finite() && self.best.is_none_or(|best| loss < best.loss)
    }

    /// The best evaluation as one of step `step` tells it.
    fn best_at(&self, step: u64) -> Option<Best> {
        let decided = |best: Best| Best { since: best.since + u64::from(step > self.observed), ..best };
        self.passing.map_or(self.best.map(decided), |passing| Some(passing.best))
    }
}

impl Averaging for TwoTailed {
    fn fold(&mut self, _: u64, parameters: &Parameters) {
        self.passing = None;
        self.short.mean.fold(parameters);
        self.long.mean.fold(parameters);
    }

    /// `trained` where it may be reported, `short` and `long`. After [`Averaging::observe`] they tell S and L; an empty
    /// average is not among them.
    fn candidates(&self) -> Vec<Candidate<'_>> {
        let (short, long) = self.lengths();
        let mut candidates = Vec::new();
        if long == 0 || long > 1 && self.variant == TwoTailedVariant::Extended {
            candidates.push(Candidate::trained());
        }
        if short > 0 && short != long {
            candidates.push(Candidate::average(SHORT, short, self.short.mean.tables()));
        }
        if long > 0 {
            candidates.push(Candidate::average(LONG, long, self.long.mean.tables()));
        }
        candidates
    }

    fn observe(&mut self, step: u64, losses: &[CandidateLoss], parameters: &Parameters) -> Choice {
        // A run that is started again after its last step evaluates that step once more.
        let decides = step > self.observed && step.is_multiple_of(self.period);
        self.choose(step, losses, parameters, decides)
    }

    fn compare(&mut self, step: u64, losses: &[CandidateLoss], parameters: &Parameters) -> Choice {
        self.choose(step, losses, parameters, false)
    }

    /// The best reported so far, which need not be what was reported last.
    fn chosen(&self) -> Option<&[Tensor]> {
        match self.passing.map(|passing| passing.weights) {
            Some(Weights::Trained) => None,
            Some(Weights::Short) => Some(self.short.mean.tables()),
            Some(Weights::Long) => Some(self.long.mean.tables()),
            None => self.best.map(|_| self.best_weights.tables()),
        }
    }

    fn begin_anew(mut self: Box<Self>, _: Box<dyn Averaging>) -> Box<dyn Averaging> {
        self.passing = None;
        self.short.clear();
        self.long.clear();
        self.bar = f64::INFINITY;
        self
    }

    fn state(&self) -> Value {
        let tracked = |t: &Tracked| TrackedState { count: t.mean.count(), record: t.record };
        json!(State {
            period: self.period,
            observed: self.observed,
            short: tracked(&self.short),
            long: tracked(&self.long),
            bar: self.bar.is_finite().then_some(self.bar),
            best: self.best,
            passing: self.passing,
        })
    }

    /// `short` and `long`, of averages that are not empty, and `best` where another is the model for now.
    fn tables(&self) -> Vec<(&'static str, &[Tensor])> {
        let best = self.passing.and(self.best).map(|_| (BEST, &self.best_weights));
        let tails = [(SHORT, &self.short.mean), (LONG, &self.long.mean)];
        let filled = tails.into_iter().filter(|(_, tail)| tail.count() > 0);
        filled.chain(best).map(|(name, mean)| (name, mean.tables())).collect()
    }

    fn restore(&mut self, mut saved: Saved, parameters: &Parameters) -> Result<(), AveragingError> {
        let state: State = saved.read()?;
        if state.period != self.period {
            return Err(AveragingError::OtherPeriod { then: state.period, now: self.period });
        }
        for (name, tail, stored) in
            [(SHORT, &mut self.short, state.short), (LONG, &mut self.long, state.long)]
        {
            tail.clear();
            if stored.count > 0 {
                tail.mean.restore(saved.take(name, parameters)?, stored.count, parameters)?;
                tail.record = stored.record;
            }
        }
        self.best_weights.clear();
        if let Some(best) = state.best {
            let weights = match state.passing {
                Some(_) => saved.take(BEST, parameters)?,
                None => saved.chosen,
            };
            self.best_weights.restore(weights, best.length, parameters)?;
        }
        let held = |passing: Passing| match passing.weights {
            Weights::Trained => true,
            Weights::Short => self.short.mean.count() > 0,
            Weights::Long => self.long.mean.count() > 0,
        };
        if !state.passing.is_none_or(held) {
            return Err(AveragingError::State("its model is an average without weights".into()));
        }
        (self.best, self.passing) = (state.best, state.passing);
        self.bar = state.bar.unwrap_or(f64::INFINITY);
        self.observed = state.observed;
        Ok(())
    }
}
