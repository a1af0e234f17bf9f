//! `[schedule]`: the learning rate over the steps of a run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::range::Range;

/// Shape of the decay after warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleKind {
    /// The peak for ever.
    Constant,
    /// Half a cosine down to the floor.
    Cosine,
    /// A straight line down to the floor.
    Linear,
    /// `lr · √(warmup / s)`.
    InverseSqrt,
    /// The peak, times `drop_factor` after each of the steps `drop_after`.
    Stepped,
    /// A straight line down to the floor, over and over, each of `cycle` steps (Izmailov et al. 2018).
    Cyclical,
}

/// Where cosine and linear decay begin to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DecayFrom {
    /// Step 0, as the PyTorch reference: a small drop where warm-up ends.
    Start,
    /// The end of warm-up, as the TensorFlow reference.
    Warmup,
}

/// Where a straight line reaches the floor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LineEnd {
    /// One step after the last, so that each step learns something.
    AfterLastStep,
    /// At the last step, whose rate is that of the floor, as the published programs do it.
    LastStep,
}

/// How the learning rate follows the number of lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RateScale {
    /// Not at all.
    None,
    /// In proportion to them, usual with plain gradient descent (Krizhevsky 2014; Goyal et al. 2017).
    Linear,
    /// With their square root, usual with Adam and LAMB (Krizhevsky 2014; Hoffer et al. 2017).
    Sqrt,
}

/// What counts as a step of a schedule or an average.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CountOf {
    /// Every step of the run, whatever it updates.
    #[default]
    Run,
    /// Each update of the network: turns of others and steps without an update do not count.
    Network,
}

/// How a value falls over a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Fall {
    /// In a line, to 0 at the last step of the schedule.
    Linear,
    /// Not at all.
    Constant,
}

/// `[schedule]`: the learning rate of step s, counted from 1, is `lr · s / warmup` while s < `warmup`, then the decay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleConfig {
    /// Shape of the decay after warm-up.
    pub kind: ScheduleKind,
    /// What is counted as a step here. With `network` a cosine or a line needs `steps`: how many updates a network makes, its family decides.
    pub of: CountOf,
    /// Steps of linear warm-up.
    pub warmup: u64,
    /// Steps of the whole schedule; 0 for `train.steps`.
    pub steps: u64,
    /// The learning rate never falls below this share of the peak after warm-up. Cosine and linear end there and
    /// stay; a cycle ends there.
    #[schemars(transform = Range::at_least(0.0).below(1.0))]
    pub floor: f64,
    /// Where cosine and linear begin to count.
    pub decay_from: DecayFrom,
    /// Share of the steps from there on for which the rate stays at its peak before a cosine or a line begins to fall.
    #[schemars(transform = Range::at_least(0.0).below(1.0))]
    pub hold: f64,
    /// Where a line reaches its floor: with `last_step` and a floor of 0 the last step changes nothing.
    pub end: LineEnd,
    /// How the peak follows `train.lanes`: `optim.lr` is the peak at `base_lanes`.
    pub scale: RateScale,
    /// Lanes that `optim.lr` was chosen for; needed where `scale` is not `none`.
    pub base_lanes: usize,
    /// `stepped`: the steps after which the learning rate drops, rising, none of them within the warm-up or at the end of the run.
    pub drop_after: Vec<u64>,
    /// `stepped`: what each drop multiplies the learning rate by.
    #[schemars(transform = Range::above(0.0).below(1.0))]
    pub drop_factor: f64,
    /// `cyclical`: steps of a cycle. They are counted from step 1, whatever the warm-up, so that cycles end at its multiples, as the means of
    /// `average.every` take them in. Choose a `floor`: with one of 0 the last step of each cycle has a rate of 0. A warm-up is
    /// shorter than a cycle: it rises towards the peak, and from there the rate drops to where the cycle is by then.
    pub cycle: u64,
}

impl Default for ScheduleConfig {
    fn default() -> Self {
        Self {
            kind: ScheduleKind::Cosine,
            of: CountOf::Run,
            warmup: 0,
            steps: 0,
            floor: 0.0,
            decay_from: DecayFrom::Warmup,
            hold: 0.0,
            end: LineEnd::AfterLastStep,
            scale: RateScale::None,
            base_lanes: 0,
            drop_after: Vec::new(),
            drop_factor: 0.1,
            cycle: 0,
        }
    }
}

/// Learning rates that rise from step to step, of a range test (Smith 2017, §3.3). Its ends are multiples of the peak, so that networks with
/// rates of their own keep their ratios.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RisingRate {
    /// Multiple of the peak in the first step.
    pub from: f64,
    /// Multiple of the peak in the last step.
    pub to: f64,
    /// Steps, two at least.
    pub steps: u64,
    /// Whether steps are a constant difference apart, and not a constant factor.
    pub linear: bool,
}

impl RisingRate {
    /// The multiple of the peak in step `step`, counted from 1.
    pub fn multiple(&self, step: u64) -> f64 {
        let share = step.saturating_sub(1) as f64 / (self.steps - 1) as f64;
        match self.linear {
            true => self.from + (self.to - self.from) * share,
            false => self.from * (self.to / self.from).powf(share),
        }
    }
}
