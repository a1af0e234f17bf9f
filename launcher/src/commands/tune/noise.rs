//! How much of a difference between trials is noise: what other seeds make of the best settings.

use segue_report::Interval;
use segue_tuner::Journal;
use serde::Serialize;

use super::super::measure::Measure;

/// What the best settings come to with other seeds: losses in nats a target, or the metric of a task.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Noise {
    /// Their mean.
    #[serde(flatten)]
    pub mean: Interval,
    /// How they scatter, and how lucky the trial was.
    #[serde(flatten)]
    pub scatter: Scatter,
    /// The same of perplexities, where they are losses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ppl: Option<Scatter>,
}

/// How values scatter around their mean, and where the trial's lies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Scatter {
    /// The standard deviation of one value; none where there is one alone.
    pub sd: Option<f64>,
    /// The selection effect: the trial's value minus the mean of the others. The best of many trials is better than its own mean by luck.
    pub selection_effect: f64,
}

impl Noise {
    /// Of the reruns of the best trial; `None` where none has a value.
    pub fn of(journal: &Journal, measure: &Measure) -> Option<Self> {
        let best = journal.best()?;
        let reruns = journal.reruns(best.asked.trial);
        let values: Vec<f64> =
            reruns.iter().filter_map(|rerun| rerun.loss).map(|cost| measure.cost(cost)).collect();
        Self::new(measure.cost(best.loss()?), &values, *measure == Measure::Loss)
    }

    fn new(trial: f64, values: &[f64], losses: bool) -> Option<Self> {
        let ppl: Vec<f64> = values.iter().map(|loss| loss.exp()).collect();
        Some(Self {
            mean: Interval::of(values)?,
            scatter: Scatter::new(trial, values),
            ppl: losses.then(|| Scatter::new(trial.exp(), &ppl)),
        })
    }

    /// The section of the report.
    pub fn markdown(&self) -> String {
        let Self { mean, scatter, ppl } = self;
        let of_ppl = |value: fn(&Scatter) -> Option<f64>, sign: bool| match ppl.as_ref().and_then(value) {
            Some(value) if sign => format!(" ({value:+.2} of perplexity)"),
            Some(value) => format!(" ({value:.2} of perplexity)"),
            None => String::new(),
        };
        let found = match (mean.half_width, scatter.sd) {
            (Some(half), Some(sd)) => format!(
                "The same settings with {} other seeds: {:.4} ± {half:.4} on the mean, standard deviation {sd:.4}{}.",
                mean.count,
                mean.mean,
                of_ppl(|ppl| ppl.sd, false)
            ),
            _ => format!("The same settings with another seed: {:.4}.", mean.mean),
        };
        let advice = match scatter.sd {
            Some(_) => "differences of the size of the standard deviation count for nothing",
            None => "how much two seeds differ by, further reruns would tell",
        };
        format!(
            "\n## Noise\n\n{found} The trial against this, the selection effect: {:+.4}{}. A trial is the best by luck too, so \
             that its settings tend to do worse again; {advice}.\n",
            scatter.selection_effect,
            of_ppl(|ppl| Some(ppl.selection_effect), true),
        )
    }
}

impl Scatter {
    /// Of at least one value.
    fn new(trial: f64, values: &[f64]) -> Self {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let sd = (values.len() > 1).then(|| (squares / (count - 1.0)).sqrt());
        Self { sd, selection_effect: trial - mean }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of ln 110, ln 120 and ln 130: the perplexities' mean is 120, their deviation 10, and 115 lies 5 below. Of 5, 5.2 and 5.1 it is (148.413 +
    /// 181.272 + 164.022) / 3 = 164.569, and e^4.9 = 134.290 lies 30.279 below.
    /// Row M16.
    #[test]
    fn reruns_tell_deviation_and_selection_effect() {
        let losses = [110f64, 120.0, 130.0].map(f64::ln);
        let noise = Noise::new(115f64.ln(), &losses, true).unwrap();
        let ppl = noise.ppl.unwrap();
        assert!((ppl.sd.unwrap() - 10.0).abs() < 1e-9);
        assert!((ppl.selection_effect + 5.0).abs() < 1e-9);
        let noise = Noise::new(4.9, &[5.0, 5.2, 5.1], true).unwrap();
        assert!((noise.scatter.sd.unwrap() - 0.1).abs() < 1e-12);
        assert!((noise.scatter.selection_effect + 0.2).abs() < 1e-12);
        let text = noise.markdown();
        assert!(text.contains("3 other seeds: 5.1000 ± ") && text.contains("deviation 0.1000 ("), "{text}");
        assert!(text.contains("selection effect: -0.2000 (-30.28 of perplexity)"), "{text}");
        let one = Noise::new(1.0, &[2.0], true).unwrap();
        assert_eq!((one.scatter, one.mean.count), (Scatter { sd: None, selection_effect: -1.0 }, 1));
        let text = one.markdown();
        assert!(text.contains("another seed: 2.0000.") && !text.contains("deviation"), "{text}");
        assert_eq!(Noise::new(1.0, &[], true), None);
    }

    /// The best of accuracies was lucky upwards, and has no perplexity.
    #[test]
    fn the_selection_effect_of_a_metric_is_in_its_own_unit() {
        let noise = Noise::new(0.9, &[0.8, 0.7], false).unwrap();
        assert!((noise.scatter.selection_effect - 0.15).abs() < 1e-12 && noise.ppl.is_none());
        let text = noise.markdown();
        assert!(
            text.contains("selection effect: +0.1500. A trial") && !text.contains("perplexity"),
            "{text}"
        );
        assert!(serde_json::json!(noise).get("ppl").is_none());
    }
}
