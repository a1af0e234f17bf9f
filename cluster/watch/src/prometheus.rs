//! Runs in Prometheus' text exposition format, version 0.0.4.

use std::fmt::{Display, Write};

use crate::{RanksFrom, RunState, RunView, now};

/// What the format is called in `Content-Type`.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A metric of a run without further labels: its name, what it is, and where it is in the view.
type Gauge = (&'static str, &'static str, fn(&RunView) -> Option<f64>);

const GAUGES: [Gauge; 11] = [
    ("segue_step", "Step that was reported last.", |run| Some(run.step as f64)),
    ("segue_steps", "Steps of the whole run.", |run| (run.steps > 0).then_some(run.steps as f64)),
    ("segue_training", "Whether a process trains in the run.", |run| {
        Some(f64::from(u8::from(run.state == RunState::Training)))
    }),
    ("segue_loss", "Mean loss of training in nats a target, as reported last.", |run| run.last("train/loss")),
    ("segue_learning_rate", "Learning rate of the last report.", |run| run.last("train/lr")),
    ("segue_gradient_norm", "Norm of the gradient before clipping.", |run| run.last("train/grad_norm")),
    ("segue_tokens_per_second", "Tokens a second, all ranks together.", |run| run.last("train/tokens_per_s")),
    ("segue_examples_per_second", "Examples a second, all ranks together.", |run| {
        run.last("train/examples_per_s")
    }),
    ("segue_attempts", "Attempts of the run so far.", |run| Some(run.attempts_made() as f64)),
    ("segue_checkpoint_step", "Step of the newest checkpoint.", |run| {
        run.checkpoints.last().map(|step| *step as f64)
    }),
    ("segue_reported_timestamp_seconds", "When the run reported last.", |run| run.updated),
];

/// All metrics of all runs.
pub fn exposition<'a>(runs: impl Iterator<Item = &'a RunView> + Clone) -> String {
    let mut text = String::new();
    for (name, help, value) in GAUGES {
        let samples = runs.clone().filter_map(|run| Some((labels(run, &[]), value(run)?)));
        family(&mut text, name, help, samples);
    }
    let evaluations = runs.clone().flat_map(|run| {
        let of_eval = run
            .series
            .iter()
            .filter_map(|(name, points)| Some((name.strip_prefix("eval/")?, points.last()?.1)));
        of_eval.map(|(name, value)| (labels(run, &[("measure", &name)]), value))
    });
    family(&mut text, "segue_evaluation", "Values of the last evaluation.", evaluations);
    ranks(&mut text, runs);
    text
}

/// What a supervisor hears of ranks now; a report of an attempt that has ended is not one of them.
fn ranks<'a>(text: &mut String, runs: impl Iterator<Item = &'a RunView> + Clone) {
    let live = || runs.clone().filter(|run| run.ranks.from == RanksFrom::Live);
    type Of = fn(&crate::LiveRanks, &crate::RankState) -> f64;
    let gauges: [(&str, &str, Of); 5] = [
        ("segue_rank_step", "Step that the rank makes.", |_, rank| rank.step as f64),
        ("segue_rank_lag_steps", "Steps that the rank is behind the furthest.", |all, rank| {
            all.lag(rank) as f64
        }),
        ("segue_rank_resident_bytes", "Bytes that the rank has resident.", |_, rank| rank.resident as f64),
        (
            "segue_rank_wait_seconds",
            "How long the rank has waited for others; 0 where it does not.",
            |_, rank| rank.waits.as_ref().map_or(0.0, |wait| wait.seconds),
        ),
        ("segue_rank_silent_seconds", "Seconds since the rank was heard of.", |all, rank| {
            rank.age_s + (now() - all.written).max(0.0)
        }),
    ];
    for (name, help, value) in gauges {
        let samples = live().flat_map(|run| {
            let all = &run.ranks.seen;
            let of_rank = move |rank| {
                (labels(run, &[("rank", &rank_number(rank)), ("host", &rank.host)]), value(all, rank))
            };
            all.ranks.iter().map(of_rank)
        });
        family(text, name, help, samples);
    }
}

fn rank_number(rank: &crate::RankState) -> usize {
    rank.rank
}

/// A metric with its samples; nothing where there are none.
fn family(text: &mut String, name: &str, help: &str, samples: impl Iterator<Item = (String, f64)>) {
    let mut samples = samples.peekable();
    if samples.peek().is_none() {
        return;
    }
    // A `String` takes whatever is written to it.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
    for (labels, value) in samples {
        let _ = writeln!(text, "{name}{{{labels}}} {}", number(value));
    }
}

fn number(value: f64) -> String {
    match value {
        value if value.is_nan() => "NaN".into(),
        f64::INFINITY => "+Inf".into(),
        f64::NEG_INFINITY => "-Inf".into(),
        value => value.to_string(),
    }
}

fn labels(run: &RunView, more: &[(&str, &dyn Display)]) -> String {
    let mut text = format!("run=\"{}\"", escaped(&run.name));
    for (name, value) in more {
        let _ = write!(text, ",{name}=\"{}\"", escaped(&value.to_string()));
    }
    text
}

/// The value of a label: the format knows these three escapes.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LiveRanks, RankState, RanksView};

    #[test]
    fn a_run_is_told_in_the_text_format() {
        let rank = |rank, step| RankState {
            rank,
            step,
            host: "n\"1".into(),
            resident: 4096,
            ..RankState::default()
        };
        let mut run =
            RunView { name: "a\\b\"\nc".into(), step: 7, checkpoints: vec![2, 4], ..RunView::default() };
        run.series.insert("train/loss".into(), vec![(5, 3.5), (7, 2.25)]);
        run.series.insert("eval/loss".into(), vec![(5, f64::INFINITY)]);
        let seen = LiveRanks { written: now(), ranks: vec![rank(0, 7), rank(1, 5)], ..LiveRanks::default() };
        run.ranks = RanksView { from: RanksFrom::Live, seen };
        let text = exposition([run].iter());
        let of = "run=\"a\\\\b\\\"\\nc\"";
        for line in [
            "# TYPE segue_loss gauge".to_string(),
            format!("segue_loss{{{of}}} 2.25"),
            format!("segue_step{{{of}}} 7"),
            format!("segue_checkpoint_step{{{of}}} 4"),
            format!("segue_evaluation{{{of},measure=\"loss\"}} +Inf"),
            format!("segue_rank_lag_steps{{{of},rank=\"1\",host=\"n\\\"1\"}} 2"),
            format!("segue_rank_resident_bytes{{{of},rank=\"0\",host=\"n\\\"1\"}} 4096"),
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        // A metric that no run has is not announced, and every one that is has its type once.
        assert!(!text.contains("segue_tokens_per_second"));
        assert_eq!(text.matches("# TYPE segue_rank_step gauge").count(), 1);
    }
}
