//! `[average]`: which average of the weights a run keeps beside the weights it trains.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::range::Range;
use crate::refusal::{no_effect, out_of_range};
use crate::{Config, ConfigError, CountOf, Idle, NonFinite};

/// The average of the weights that evaluations and `model.safetensors` are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "snake_case")]
pub enum AverageKind {
    /// Mean from `start` on, or from where `trigger` finds by `patience` that losses have stopped falling; none where both
    /// are 0.
    #[default]
    Tail,
    /// Exponential moving average, initial weights included.
    Exponential,
    /// Mean over all steps, initial weights included (Polyak and Juditsky 1992).
    Polyak,
    /// Mean of a tail whose length adapts to the validation loss (Melis 2022).
    TwoTailed,
}

/// How losses tell that training has stopped getting better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "snake_case")]
pub enum AverageTrigger {
    /// A loss is above the best of those that lie more than `patience` evaluations back: AWD-LSTM's rule (Merity et al. 2018,
    /// algorithm 1), for which a loss as good as the best is good enough. The mean leaves out the weights of its first step, as
    /// PyTorch's averaged descent does, in rounds of fine-tuning too, unless `takes_first` is set.
    #[default]
    NonMonotonic,
    /// The best loss is `patience` evaluations old: no later one was below it (Melis 2023, §2.2.2).
    SinceBest,
}

/// The rules by which two-tailed averaging decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "snake_case")]
pub enum TwoTailedVariant {
    /// Algorithm 1: the long average is replaced when the short one is as good.
    Core,
    /// The same, but the long average is not replaced by one of a higher loss than the replacement before (remark after
    /// proposition 5).
    Monotone,
    /// Algorithm 2: averages that stagnate are dropped too, and the trained weights win where they are as good.
    #[default]
    Extended,
}

/// The losses that two-tailed averaging decides by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "snake_case")]
pub enum DecidingLoss {
    /// Those of the validation split.
    #[default]
    Validation,
    /// Those of the beginning of the training split, of as many tokens as the validation split has (Melis 2022, §3.6). What is
    /// reported, and which weights are the best, the validation split says all the same.
    Training,
}

/// `[average]`: an average of the weights over steps, kept beside training. Once it has begun, evaluations and
/// `model.safetensors` are of it; training goes on from the weights themselves, unless `repeat_every` or `fine_tuning` says
/// otherwise, and they are in `training_weights.safetensors` beside it. Of `start` and `patience` both may be set: what comes first begins the mean.
///
/// `two_tailed` keeps two means of the last weights, a short and a long one. Every `eval.every` steps, which must be set,
/// both are evaluated. When the short one is as good as the long one it takes its place, and a new short one begins; so
/// the long one is never much longer than the best tail. With `extended` an average that stagnates is dropped (the
/// reported loss may then rise for a while), and the trained weights are evaluated too and reported where they are as
/// good. The best that was reported over the run is kept, and `model.safetensors` is of it. It takes the memory of three
/// more copies of the weights, the other kinds that of one; with `train.shard` ranks divide them. Choose `eval.every` large enough that the noise of a
/// validation loss does not decide; a run that is resumed must keep it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AverageConfig {
    /// Kind of average that is kept beside the trained weights.
    pub kind: AverageKind,
    /// What is counted as a step here. With `network` each network's average is over its own updates, and begins by their number; `two_tailed` and
    /// `patience` need `run`, as evaluations decide for all networks at once.
    pub of: CountOf,
    /// `tail`: begin after this step; 0 for never. Other kinds need 0.
    #[schemars(transform = Range::at_least(0))]
    pub start: u64,
    /// `tail`: begin when the validation loss has not improved over this many evaluations, by the rule of `trigger`; 0 for
    /// never. Other kinds need 0.
    #[schemars(transform = Range::at_least(0))]
    pub patience: u64,
    /// `tail` with `patience`: the rule that begins the mean.
    pub trigger: AverageTrigger,
    /// `tail` with `trigger = "non_monotonic"`: the mean that it begins, and those of rounds of fine-tuning, take in the weights of their
    /// first step too.
    pub takes_first: bool,
    /// `tail`: the mean takes in the weights of steps that are multiples of this alone, such as the last of each epoch: stochastic
    /// weight averaging (Izmailov et al. 2018).
    #[schemars(transform = Range::at_least(1))]
    pub every: u64,
    /// `tail`: so many steps after the mean has begun training goes on from it, and a new mean begins with the next step, again and again:
    /// periodic stochastic weight averaging (Guo, Jin and Liu 2022). 0: the mean goes on, and training never sees it.
    #[schemars(transform = Range::at_least(0))]
    pub repeat_every: u64,
    /// `tail` with `patience`: rounds of fine-tuning. An average that has stagnated, by the same rule over its own losses, ends
    /// a stage: the run goes back to the average of its best evaluation, trains that, and averages anew
    /// (Merity et al. 2018). After so many rounds the run ends. 0: it never goes back, and goes on to its last step.
    #[schemars(transform = Range::at_least(0))]
    pub fine_tuning: u64,
    /// With `fine_tuning`: what the learning rate is multiplied by in its rounds.
    #[schemars(transform = Range::above(0.0))]
    pub fine_tuning_rate: f64,
    /// `exponential`: weight of the average so far in the next one.
    #[schemars(transform = Range::at_least(0.0).below(1.0))]
    pub beta: f64,
    /// `exponential`: weigh all steps alike until there are `1 / (1 - beta)` of them, so that the initial weights do not
    /// linger.
    pub warmup: bool,
    /// `two_tailed`: the rules by which it decides.
    pub variant: TwoTailedVariant,
    /// `two_tailed`: the losses that decide. With `training` each set of weights is evaluated twice; it is for language models that
    /// read a corpus from left to right.
    pub decide_by: DecidingLoss,
    /// `two_tailed`, `extended`: evaluations in a row without a new best loss after which an average stagnates and is
    /// dropped.
    #[schemars(transform = Range::at_least(1))]
    pub stagnation: u64,
    /// Evaluate the trained weights beside each average, and tell their loss; nothing is decided by it. An evaluation of a single average
    /// takes twice as long.
    pub beside_trained: bool,
}

impl Default for AverageConfig {
    fn default() -> Self {
        Self {
            kind: AverageKind::Tail,
            of: CountOf::Run,
            start: 0,
            patience: 0,
            trigger: AverageTrigger::NonMonotonic,
            takes_first: false,
            every: 1,
            repeat_every: 0,
            fine_tuning: 0,
            fine_tuning_rate: 1.0,
            beta: 0.999,
            warmup: false,
            variant: TwoTailedVariant::Extended,
            decide_by: DecidingLoss::Validation,
            stagnation: 3,
            beside_trained: false,
        }
    }
}

impl AverageConfig {
    /// Copies of the weights that the average needs, the trained ones not counted.
    pub fn copies(&self) -> u64 {
        match self.kind {
            AverageKind::Tail if self.start == 0 && self.patience == 0 => 0,
            AverageKind::Tail | AverageKind::Exponential | AverageKind::Polyak => 1,
            // The short average, the long one, and the best that was found.
            AverageKind::TwoTailed => 3,
        }
    }

    /// Steps whose weights a mean leaves out that losses begin, or a round of fine-tuning.
    pub fn left_out(&self) -> u64 {
        u64::from(self.trigger == AverageTrigger::NonMonotonic && !self.takes_first)
    }

    /// Whether it is steered by what evaluations find.
    pub fn needs_evaluations(&self) -> bool {
        self.patience > 0 || self.kind == AverageKind::TwoTailed
    }
}

impl Config {
    pub(crate) fn idle_average(&self) -> Vec<Idle> {
        let by = ["average.patience", "average.kind", "average.start"];
        let AverageConfig { patience, start, .. } = self.average;
        let why = "needs average.patience of at least 1";
        let mut idle = Idle::all(patience == 0, "average", &["trigger", "takes_first"], &by[..2], why);
        let always = patience > 0 && self.average.trigger != AverageTrigger::NonMonotonic;
        let needs = "needs average.trigger = \"non_monotonic\"";
        idle.extend(Idle::all(always, "average", &["takes_first"], &["average.trigger"], needs));
        let why = "needs average.start or average.patience of at least 1";
        idle.extend(Idle::all(patience == 0 && start == 0, "average", &["every", "repeat_every"], &by, why));
        let why = "there is no average: needs average.start or average.patience of at least 1, or another average.kind";
        idle.extend(Idle::all(self.average.copies() == 0, "average", &["beside_trained", "of"], &by, why));
        let stagnates = self.average.variant == TwoTailedVariant::Extended;
        let why = "needs average.variant = \"extended\"";
        idle.extend(Idle::all(!stagnates, "average", &["stagnation"], &["average.variant"], why));
        // The one at the end of a run decides nothing.
        let (never, why) = (self.eval.every == 0, Idle::COUNTS_EVALUATIONS);
        idle.extend(Idle::all(never, "average", &["patience"], &["eval.every"], why));
        let never = never && self.task.name.is_empty();
        idle.extend(Idle::all(never, "eval", &["patience"], &["eval.every", "task.name"], why));
        let (impatient, why) = (self.eval.patience == 0, "needs eval.patience of at least 1");
        let impatient = impatient && self.task.name.is_empty();
        idle.extend(Idle::all(impatient, "eval", &["min_delta"], &["eval.patience", "task.name"], why));
        idle
    }

    pub(crate) fn check_average(&self) -> Result<(), ConfigError> {
        let (a, default) = (&self.average, AverageConfig::default());
        let given = [
            ("average.start", a.start.to_string(), a.start != default.start, AverageKind::Tail),
            ("average.patience", a.patience.to_string(), a.patience != default.patience, AverageKind::Tail),
            ("average.every", a.every.to_string(), a.every != default.every, AverageKind::Tail),
            (
                "average.repeat_every",
                a.repeat_every.to_string(),
                a.repeat_every != default.repeat_every,
                AverageKind::Tail,
            ),
            ("average.takes_first", a.takes_first.to_string(), a.takes_first, AverageKind::Tail),
            (
                "average.fine_tuning",
                a.fine_tuning.to_string(),
                a.fine_tuning != default.fine_tuning,
                AverageKind::Tail,
            ),
            ("average.beta", a.beta.to_string(), a.beta != default.beta, AverageKind::Exponential),
            ("average.warmup", a.warmup.to_string(), a.warmup != default.warmup, AverageKind::Exponential),
            (
                "average.variant",
                json!(a.variant).to_string(),
                a.variant != default.variant,
                AverageKind::TwoTailed,
            ),
            (
                "average.decide_by",
                "training".into(),
                a.decide_by != default.decide_by,
                AverageKind::TwoTailed,
            ),
            (
                "average.stagnation",
                a.stagnation.to_string(),
                a.stagnation != default.stagnation,
                AverageKind::TwoTailed,
            ),
        ];
        for (key, value, set, kind) in given {
            if set && a.kind != kind {
                let why = format!("needs average.kind = {}", json!(kind));
                return Err(no_effect(key, value, &why));
            }
        }
        if a.of == CountOf::Network && a.needs_evaluations() {
            let why = "evaluations decide for all networks at once: needs average.patience = 0 and another average.kind than two_tailed";
            return Err(out_of_range("average.of", "network", why));
        }
        if a.fine_tuning > 0 && (a.patience == 0 || self.eval.every == 0) {
            let why = "stages end by losses; needs average.patience and eval.every of at least 1";
            return Err(out_of_range("average.fine_tuning", a.fine_tuning, why));
        }
        if a.repeat_every > 0 {
            self.check_repeated_average()?;
        }
        let (start, steps, every) = (a.start, self.train.steps, a.every.max(1));
        if self.begins_after_start() && steps / every * every <= start {
            let why =
                format!("no multiple of it lies between average.start = {start} and train.steps = {steps}");
            return Err(out_of_range("average.every", a.every, &why));
        }
        if a.fine_tuning > 0 && self.recovery.non_finite == NonFinite::RestoreBest {
            let why = "a stage begins with the means of the one before, which the way back to the best evaluation would lose\nhint: choose \
                       another recovery.non_finite";
            return Err(out_of_range("average.fine_tuning", a.fine_tuning, why));
        }
        if a.fine_tuning == 0 && a.fine_tuning_rate != default.fine_tuning_rate {
            let why = "needs average.fine_tuning of at least 1";
            return Err(no_effect("average.fine_tuning_rate", a.fine_tuning_rate, why));
        }
        if a.kind == AverageKind::TwoTailed && self.eval.every == 0 {
            let why = "average.kind = \"two_tailed\" decides at evaluations; must be at least 1";
            return Err(out_of_range("eval.every", self.eval.every, why));
        }
        Ok(())
    }

    /// Whether a mean is known to begin after `average.start`: within the run, and not by losses before.
    fn begins_after_start(&self) -> bool {
        let AverageConfig { start, patience, .. } = self.average;
        patience == 0 && self.knows_steps() && (1..self.train.steps).contains(&start)
    }

    fn check_repeated_average(&self) -> Result<(), ConfigError> {
        let AverageConfig { start, every, repeat_every, fine_tuning, .. } = self.average;
        let steps = self.train.steps;
        if repeat_every < every {
            let why = format!("a mean may be without weights; must be at least average.every = {every}");
            return Err(out_of_range("average.repeat_every", repeat_every, &why));
        }
        if fine_tuning > 0 {
            let why = "rounds of average.fine_tuning end by losses; one of both must be 0";
            return Err(out_of_range("average.repeat_every", repeat_every, why));
        }
        if self.begins_after_start() && start.saturating_add(repeat_every) >= steps {
            let why = format!(
                "the mean that begins after average.start = {start} would not be handed over before train.steps = {steps}"
            );
            return Err(out_of_range("average.repeat_every", repeat_every, &why));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MODELS;

    fn load_with(overrides: &[&str]) -> Result<Config, ConfigError> {
        let overrides: Vec<String> = overrides.iter().map(|s| s.to_string()).collect();
        MODELS.load(None, &overrides).map(|loaded| loaded.config)
    }

    #[test]
    fn recipes_of_before_mean_what_they_meant() {
        let config = load_with(&["average.start=20", "average.patience=5", "eval.every=10"]).unwrap();
        let expected = AverageConfig { start: 20, patience: 5, ..Default::default() };
        assert_eq!((&config.average, config.average.kind), (&expected, AverageKind::Tail));
        // A configuration stored without the new keys reads as one with their defaults.
        let mut stored = config.to_json();
        stored["average"] = serde_json::json!({ "start": 20, "patience": 5 });
        assert_eq!(MODELS.from_json(&stored, "the checkpoint").unwrap(), config);
    }

    #[test]
    fn ranges_hold() {
        for (overrides, named) in [
            (&["average.kind=ema"][..], "two_tailed"),
            (&["average.kind=polyak", "average.start=3"], "average.start"),
            (&["average.of=network"], "average.of"),
            (&["average.of=network", "average.patience=3", "eval.every=5"], "average.of"),
            (&["average.of=network", "average.kind=two_tailed", "eval.every=5"], "average.of"),
            (&["average.kind=polyak", "average.every=3"], "average.every"),
            (&["average.start=3", "average.every=0"], "average.every"),
            (&["train.steps=20", "average.start=16", "average.every=15"], "average.every"),
            (&["average.kind=polyak", "average.repeat_every=3"], "average.repeat_every"),
            (&["average.start=3", "average.every=5", "average.repeat_every=4"], "average.repeat_every"),
            (&["train.steps=20", "average.start=12", "average.repeat_every=8"], "average.start = 12"),
            (
                &["average.patience=3", "eval.every=5", "average.fine_tuning=1", "average.repeat_every=4"],
                "average.repeat_every",
            ),
            (&["average.kind=polyak", "average.takes_first=true"], "average.takes_first"),
            (&["average.kind=exponential", "average.patience=3"], "average.patience"),
            (&["average.beta=0.9"], "needs average.kind = \"exponential\""),
            (&["average.kind=polyak", "average.warmup=true"], "average.warmup"),
            (&["average.variant=core"], "needs average.kind = \"two_tailed\""),
            (&["average.kind=exponential", "average.stagnation=2"], "average.stagnation"),
            (&["average.decide_by=training"], "needs average.kind = \"two_tailed\""),
            (&["average.fine_tuning=1", "eval.every=5"], "average.patience"),
            (&["average.fine_tuning=1", "average.patience=5"], "eval.every"),
            (&["average.fine_tuning_rate=2"], "average.fine_tuning"),
            (
                &[
                    "average.fine_tuning=1",
                    "average.patience=5",
                    "eval.every=5",
                    "recovery.non_finite=restore_best",
                ],
                "the way back",
            ),
            (&["average.kind=polyak", "average.fine_tuning=1"], "needs average.kind = \"tail\""),
            (&["average.beta=1"], "[0, 1)"),
            (&["average.beta=nan"], "average.beta"),
            (&["average.beta=-0.5"], "[0, 1)"),
            (&["average.stagnation=0"], "average.stagnation"),
            (&["average.kind=two_tailed"], "eval.every"),
        ] {
            let error = load_with(overrides).unwrap_err();
            assert!(error.to_string().contains(named) && error.exit_code() == 78, "{overrides:?}: {error}");
        }
        for overrides in [
            &["average.kind=two_tailed", "eval.every=10", "average.variant=monotone"][..],
            &["average.kind=exponential", "average.beta=0", "average.warmup=true"],
            &["average.kind=polyak"],
            &["train.steps=20", "average.start=12", "average.repeat_every=7"],
            &[
                "average.patience=5",
                "eval.every=10",
                "average.fine_tuning=4",
                "average.fine_tuning_rate=1.25",
            ],
        ] {
            load_with(overrides).unwrap();
        }
    }

    /// Where epochs say how many steps a run makes, `train.steps` says nothing until they are counted.
    #[test]
    fn steps_that_epochs_say_are_compared_with_once_they_are_counted() {
        let of_average = ["average.start=960", "average.every=950"];
        let of_repeats = ["average.start=960", "average.repeat_every=40"];
        let of_cycles = ["schedule.kind=cyclical", "schedule.cycle=1001"];
        let of_drops = ["schedule.kind=stepped", "schedule.drop_after=[1000]"];
        for (keys, named) in [
            (of_average, "average.every"),
            (of_repeats, "average.repeat_every"),
            (of_cycles, "schedule.cycle"),
            (of_drops, "schedule.drop_after"),
        ] {
            let base = vec![(crate::finetuning_defaults(), "fine-tuning".to_string())];
            let mut config = MODELS.load_over(base, None, &keys.map(String::from)).unwrap().config;
            config.train.steps = 1000;
            let message = config.check_steps().unwrap_err().to_string();
            assert!(message.contains(&format!("`{named}`")), "{message}");
            config.train.steps = 5000;
            config.check_steps().unwrap();
        }
    }

    #[test]
    fn copies_are_counted() {
        let copies = |overrides: &[&str]| load_with(overrides).unwrap().average.copies();
        assert_eq!(
            [copies(&[]), copies(&["average.patience=1", "eval.every=1"]), copies(&["average.kind=polyak"])],
            [0, 1, 1]
        );
        assert_eq!(copies(&["average.kind=two_tailed", "eval.every=1"]), 3);
    }
}
