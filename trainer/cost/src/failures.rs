//! What failures cost: how often to write a checkpoint, and how long a run takes with them.
//!
//! Failures of nodes come independently of each other, at exponentially distributed times (Young 1974, Daly 2006).

use serde::Serialize;

/// What a job suffers, and what it does about it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Failures {
    /// Mean seconds between failures of the job: those of a node divided by its nodes.
    pub mtbf: f64,
    /// Seconds that training waits for a checkpoint.
    pub stall: f64,
    /// Seconds from the begin of a checkpoint until it is there to go on from.
    pub published_after: f64,
    /// Seconds from a failure until training goes on.
    pub restart: f64,
}

/// How a run gets over failures with a checkpoint every so many seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Recovery {
    /// Seconds between checkpoints, of training.
    pub interval: f64,
    /// Expected failures.
    pub failures: f64,
    /// Seconds of training that a failure is expected to lose.
    pub lost: f64,
    /// Expected seconds of the whole run.
    pub expected: f64,
}

/// The best interval between checkpoints to first order, √(2 δ M): `stall` δ and `mtbf` M (Young 1974).
pub fn young(stall: f64, mtbf: f64) -> f64 {
    (2.0 * stall * mtbf).sqrt()
}

/// The same to a higher order; the time between failures itself where a checkpoint takes twice as long (Daly 2006, eq. 37).
pub fn daly(stall: f64, mtbf: f64) -> f64 {
    if stall >= 2.0 * mtbf {
        return mtbf;
    }
    let ratio = stall / (2.0 * mtbf);
    young(stall, mtbf) * (1.0 + ratio.sqrt() / 3.0 + ratio / 9.0) - stall
}

impl Failures {
    /// `work` seconds of training with a checkpoint every `interval` seconds of them (Daly 2006, eq. 20): with restart R, interval τ,
    /// stall δ and time between failures M it is M e^(R/M) (e^((τ+δ)/M) − 1) work/τ. What is written when a failure comes is lost too,
    /// so that its time counts to the restart.
    pub fn recovery(&self, work: f64, interval: f64) -> Recovery {
        let restart = self.restart + self.published_after;
        let segment = (interval + self.stall) / self.mtbf;
        let expected = self.mtbf * (restart / self.mtbf).exp() * segment.exp_m1() * work / interval;
        let lost = interval / 2.0 + self.published_after;
        Recovery { interval, failures: expected / self.mtbf, lost, expected }
    }

    /// The same at the best interval, which is at least a step of `step` seconds and at most the whole work.
    pub fn best(&self, work: f64, step: f64) -> Recovery {
        self.recovery(work, daly(self.stall, self.mtbf).clamp(step.min(work), work))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DAY: f64 = 86_400.0;

    /// Daly's own check of the first order: five minutes of checkpoint at a day between failures are two hours.
    #[test]
    fn intervals_are_those_worked_out_by_hand() {
        assert_eq!(young(300.0, DAY), 7200.0);
        // 7200 (1 + √(300/172800)/3 + 300/172800/9) − 300 = 7200 · 1.0140815 − 300
        assert!((daly(300.0, DAY) - 7001.39).abs() < 0.05, "{}", daly(300.0, DAY));
        assert_eq!(daly(10.0, 5.0), 5.0);
    }

    #[test]
    fn without_failures_a_run_takes_its_work_and_its_checkpoints() {
        let never = Failures { mtbf: 1e15, stall: 2.0, published_after: 50.0, restart: 300.0 };
        let recovery = never.recovery(10_000.0, 100.0);
        assert!((recovery.expected - 10_000.0 * 1.02).abs() < 0.01, "{recovery:?}");
        assert!(recovery.failures < 1e-6);
        assert_eq!(recovery.lost, 100.0);
    }

    /// A second way: every attempt at an interval fails with probability 1 − e^(−t/M), and costs what it got and a restart that may fail too.
    #[test]
    fn the_expected_time_is_that_of_a_random_walk() {
        let failures = Failures { mtbf: 1000.0, stall: 20.0, published_after: 0.0, restart: 60.0 };
        let recovery = failures.recovery(6000.0, 300.0);
        let mut state = 1u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 11) as f64 + 0.5) / (1u64 << 53) as f64
        };
        let mut total = 0.0;
        let walks = 20_000;
        for _ in 0..walks * 20 {
            // The first attempt needs no restart, all others begin with one.
            let mut needs = 320.0;
            loop {
                let fails_at = -1000.0 * f64::ln(uniform());
                if fails_at >= needs {
                    total += needs;
                    break;
                }
                total += fails_at;
                needs = 380.0;
            }
        }
        let walked = total / walks as f64;
        assert!((walked / recovery.expected - 1.0).abs() < 0.01, "{walked} against {}", recovery.expected);
    }

    proptest! {
        #[test]
        fn no_interval_beats_the_best_one_by_much(
            mtbf in 1e4..1e7f64, stall in 0.1..100.0f64, factor in 0.05..20.0f64
        ) {
            let failures = Failures { mtbf, stall, published_after: 30.0, restart: 300.0 };
            let best = failures.best(1e6, 0.1);
            let other = failures.recovery(1e6, (best.interval * factor).min(1e6));
            prop_assert!(best.expected <= other.expected * 1.001, "{best:?} {other:?}");
        }

        #[test]
        fn more_failures_never_help(mtbf in 1e4..1e7f64, factor in 1.0..10.0f64) {
            let often = Failures { mtbf, stall: 5.0, published_after: 30.0, restart: 300.0 };
            let seldom = Failures { mtbf: mtbf * factor, ..often };
            prop_assert!(seldom.best(1e6, 0.1).expected <= often.best(1e6, 0.1).expected * (1.0 + 1e-9));
        }
    }
}
