//! The learning rate as a function of the step.

use std::f64::consts::PI;

use segue_configs::{CountOf, DecayFrom, LineEnd, RisingRate, ScheduleConfig, ScheduleKind};

/// The learning rate of a network as a function of the update: linear warm-up to the peak, then the configured decay. Cosine and linear end
/// at `schedule.floor` times the peak and stay there, and each cycle ends there; steps go down to it and no further. A range test has its
/// own rates in the place of both.
pub struct Schedule {
    config: ScheduleConfig,
    peak: f64,
    steps: u64,
    rising: Option<RisingRate>,
}

impl Schedule {
    /// Over `steps` steps, with this peak. `rising`: the rates of a range test, as multiples of the peak.
    pub fn new(config: &ScheduleConfig, peak: f64, steps: u64, rising: Option<RisingRate>) -> Self {
        Self { config: config.clone(), peak, steps, rising }
    }

    /// Whether it counts updates of its network, and not steps of the run.
    pub fn counts_updates(&self) -> bool {
        self.rising.is_none() && self.config.of == CountOf::Network
    }

    /// Learning rate of update `step`, counted from 1.
    pub fn rate(&self, step: u64) -> f64 {
        let (schedule, peak) = (&self.config, self.peak);
        if let Some(rising) = &self.rising {
            return peak * rising.multiple(step);
        }
        if step < schedule.warmup {
            return peak * step as f64 / schedule.warmup as f64;
        }
        let share = match schedule.kind {
            ScheduleKind::Constant => 1.0,
            ScheduleKind::InverseSqrt => (schedule.warmup.max(1) as f64 / step.max(1) as f64).sqrt(),
            ScheduleKind::Cosine => 0.5 * (1.0 + (PI * self.progress(step)).cos()),
            ScheduleKind::Linear => 1.0 - self.progress(step),
            ScheduleKind::Stepped => {
                let drops = schedule.drop_after.iter().filter(|last| step > **last);
                schedule.drop_factor.powi(drops.count() as i32)
            }
            ScheduleKind::Cyclical => {
                let cycle = schedule.cycle.max(1);
                1.0 - (step.saturating_sub(1) % cycle + 1) as f64 / cycle as f64
            }
        };
        let share = match schedule.kind {
            ScheduleKind::Cosine | ScheduleKind::Linear | ScheduleKind::Cyclical => {
                schedule.floor + (1.0 - schedule.floor) * share
            }
            _ => share.max(schedule.floor),
        };
        peak * share
    }

    /// Share of the decay that is over, 0 to 1.
    fn progress(&self, step: u64) -> f64 {
        let start = match self.config.decay_from {
            DecayFrom::Start => 0,
            DecayFrom::Warmup => self.config.warmup,
        };
        let held = (self.config.hold * self.steps.saturating_sub(start) as f64).round() as u64;
        let start = start + held;
        let after = self.config.kind == ScheduleKind::Linear && self.config.end == LineEnd::AfterLastStep;
        let whole = (self.steps + u64::from(after)).saturating_sub(start).max(1);
        ((step.saturating_sub(start)) as f64 / whole as f64).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use segue_configs::Config;

    use super::*;

    fn config(overrides: &[&str]) -> Config {
        let overrides: Vec<String> = overrides.iter().map(|s| s.to_string()).collect();
        segue_testing::MODELS.load(None, &overrides).unwrap().config
    }

    fn points(config: &Config, steps: &[u64]) -> Vec<f64> {
        let schedule =
            Schedule::new(&config.schedule, config.peak_lr(), config.schedule_steps(), config.rising);
        steps.iter().map(|&s| (schedule.rate(s) * 1e6).round() / 1e6).collect()
    }

    const COMMON: [&str; 3] = ["optim.lr=1.0", "schedule.warmup=10", "train.steps=110"];

    /// Five steps, and one: none of them at a rate of 0.
    #[test]
    fn each_step_of_a_line_learns_something_unless_a_recipe_wants_the_published_end() {
        let rates = |steps: u64, keys: &[&str]| {
            let own = [format!("train.steps={steps}")];
            let own: Vec<&str> = own.iter().map(String::as_str).collect();
            let c = config(&[&["optim.lr=1.0", "schedule.kind=linear"], keys, &own].concat());
            points(&c, &(1..=steps).collect::<Vec<_>>())
        };
        assert_eq!(rates(4, &[]), [0.8, 0.6, 0.4, 0.2]);
        assert_eq!(rates(1, &[]), [0.5]);
        assert_eq!(rates(4, &["schedule.end=last_step"]), [0.75, 0.5, 0.25, 0.0]);
        assert_eq!(rates(4, &["schedule.floor=0.5"]), [0.9, 0.8, 0.7, 0.6]);
    }

    #[test]
    fn pytorch_cosine_counts_from_step_zero() {
        let c = config(&[&COMMON[..], &["schedule.kind=cosine", "schedule.decay_from=start"]].concat());
        assert_eq!(points(&c, &[1, 5, 55, 110, 200]), [0.1, 0.5, 0.5, 0.0, 0.0]);
    }

    #[test]
    fn tensorflow_cosine_counts_from_the_end_of_warm_up() {
        let c = config(&[&COMMON[..], &["schedule.kind=cosine", "schedule.floor=0.004"]].concat());
        assert_eq!(points(&c, &[10, 60, 110]), [1.0, 0.502, 0.004]);
    }

    /// Row A8.
    #[test]
    fn a_stepped_rate_drops_after_its_steps_and_not_below_the_floor() {
        let keys = ["schedule.kind=stepped", "schedule.drop_after=[20,50]", "schedule.drop_factor=0.25"];
        let c = config(&[&COMMON[..], &keys].concat());
        assert_eq!(points(&c, &[5, 10, 20, 21, 50, 51, 110]), [0.5, 1.0, 1.0, 0.25, 0.25, 0.0625, 0.0625]);
        let c = config(&[&COMMON[..], &keys, &["schedule.floor=0.1"]].concat());
        assert_eq!(points(&c, &[20, 21, 51]), [1.0, 0.25, 0.1]);
    }

    /// Izmailov et al. 2018, section 3.2: α(i) = (1 − t(i)) α1 + t(i) α2 with t(i) = (mod(i − 1, c) + 1) / c, here of α1 = 1, α2 = 0.1 and c = 4.
    /// Row A8.
    #[test]
    fn a_cyclical_rate_falls_to_the_floor_and_begins_anew() {
        let keys = ["optim.lr=1.0", "schedule.kind=cyclical", "schedule.cycle=4", "schedule.floor=0.1"];
        let c = config(&keys);
        assert_eq!(points(&c, &[1, 2, 3, 4, 5, 8, 9]), [0.775, 0.55, 0.325, 0.1, 0.775, 0.1, 0.775]);
        // A warm-up takes the place of the beginning of the first cycle, and moves none.
        let c = config(&[&keys[..], &["schedule.warmup=2"]].concat());
        assert_eq!(points(&c, &[1, 2, 3, 4, 5]), [0.5, 0.55, 0.325, 0.1, 0.775]);
    }

    /// From 1e-4 to 1, a factor of 10 or a difference of 0.249975 from step to step, whatever the schedule; by the recipe's peak of 0.5.
    #[test]
    fn the_rates_of_a_range_test_rise_from_end_to_end() {
        let mut c = config(&["optim.lr=0.5", "schedule.kind=linear", "schedule.warmup=3", "train.steps=9"]);
        c.rising = Some(RisingRate { from: 2e-4, to: 2.0, steps: 5, linear: false });
        assert_eq!(points(&c, &[1, 2, 3, 4, 5]), [1e-4, 1e-3, 1e-2, 0.1, 1.0]);
        c.rising = Some(RisingRate { from: 2e-4, to: 2.0, steps: 5, linear: true });
        assert_eq!(points(&c, &[1, 3, 5]), [1e-4, 0.50005, 1.0]);
    }

    /// Vaswani et al. 2017, eq. 3: d^-0.5 min(step^-0.5, step w^-1.5), whose peak is (d w)^-0.5.
    /// Row S21.
    #[test]
    fn a_warm_up_and_inverse_square_root_have_the_rates_of_the_transformer() {
        for (width, step, expected) in [
            (512.0, 1, 0.001746928),
            (512.0, 4000, 6.987712430),
            (512.0, 100_000, 1.397542486),
            (1024.0, 4000, 4.941058844),
        ] {
            let peak = format!("optim.lr={:e}", f64::powf(width * 4000.0, -0.5));
            let keys = [peak.as_str(), "schedule.kind=inverse_sqrt", "schedule.warmup=4000"];
            let c = config(&keys);
            let rate = Schedule::new(&c.schedule, c.peak_lr(), c.schedule_steps(), c.rising).rate(step) * 1e4;
            assert!((rate - expected).abs() < 1e-9, "{width} at {step}: {rate}");
        }
    }

    /// lr clamp(3 (1 − s / E), 0, 1), as the public program of Dai et al. 2017 has it.
    #[test]
    fn a_rate_that_is_held_falls_over_the_rest() {
        let line = ["optim.lr=1.0", "schedule.kind=linear", "schedule.end=last_step", "train.steps=90"];
        let c = config(&[&line[..], &["schedule.hold=0.6666666667"]].concat());
        assert_eq!(points(&c, &[1, 60, 61, 75, 90, 95]), [1.0, 1.0, 0.966667, 0.5, 0.0, 0.0]);
        let c = config(&[&COMMON[..], &["schedule.kind=cosine", "schedule.hold=0.5"]].concat());
        assert_eq!(points(&c, &[5, 10, 60, 85, 110]), [0.5, 1.0, 1.0, 0.5, 0.0]);
    }

    #[test]
    fn linear_and_inverse_square_root() {
        let c = config(&[&COMMON[..], &["schedule.kind=linear", "schedule.end=last_step"]].concat());
        assert_eq!(points(&c, &[10, 60, 110]), [1.0, 0.5, 0.0]);
        let c = config(&[&COMMON[..], &["schedule.kind=inverse_sqrt"]].concat());
        assert_eq!(points(&c, &[5, 10, 40, 1000]), [0.5, 1.0, 0.5, 0.1]);
        let c = config(&[&COMMON[..], &["schedule.kind=constant"]].concat());
        assert_eq!(points(&c, &[9, 10, 110]), [0.9, 1.0, 1.0]);
    }
}
