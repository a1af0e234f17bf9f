//! How much of a difference between trials is noise: what other seeds make of the best settings.

use segue_report::Interval;
use segue_tuner::Journal;
use serde::Serialize;

/// Losses of the best settings with other seeds, in nats a target.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Noise {
    /// Their mean.
    #[serde(flatten)]
    pub loss: Interval,
    /// How they scatter, and how lucky the trial was.
    #[serde(flatten)]
    pub scatter: Scatter,
    /// The same of perplexities.
    pub ppl: Scatter,
}

/// How values scatter around their mean, and where the trial's lies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Scatter {
    /// The standard deviation of one value; none where there is one alone.
    pub sd: Option<f64>,
    /// The selection effect: the trial's value minus the mean of the others. The best of many trials is below its own mean by luck.
    pub selection_effect: f64,
}

impl Noise {
    /// Of the reruns of the best trial; `None` where none has a loss.
    pub fn of(journal: &Journal) -> Option<Self> {
        let best = journal.best()?;
        let losses: Vec<f64> =
            journal.reruns(best.asked.trial).iter().filter_map(|rerun| rerun.loss).collect();
        Self::new(best.loss()?, &losses)
    }

    fn new(trial: f64, losses: &[f64]) -> Option<Self> {
        let ppl: Vec<f64> = losses.iter().map(|loss| loss.exp()).collect();
        Some(Self {
            loss: Interval::of(losses)?,
            scatter: Scatter::new(trial, losses),
            ppl: Scatter::new(trial.exp(), &ppl),
        })
    }

    /// The section of the report.
    pub fn markdown(&self) -> String {
        let Self { loss, scatter, ppl } = self;
        let found = match (loss.half_width, scatter.sd, ppl.sd) {
            (Some(half), Some(sd), Some(of_ppl)) => format!(
                "The same settings with {} other seeds: {:.4} ± {half:.4} on the mean, standard deviation {sd:.4} ({of_ppl:.2} of perplexity).",
                loss.count, loss.mean
            ),
            _ => format!("The same settings with another seed: {:.4}.", loss.mean),
        };
        let advice = match scatter.sd {
            Some(_) => "differences of the size of the standard deviation count for nothing",
            None => "how much two seeds differ by, further reruns would tell",
        };
        format!(
            "\n## Noise\n\n{found} The trial against this, the selection effect: {:+.4} ({:+.2} of perplexity). A trial is the best by luck too, so \
             that its settings tend to do worse again; {advice}.\n",
            scatter.selection_effect, ppl.selection_effect,
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
        let noise = Noise::new(115f64.ln(), &losses).unwrap();
        assert!((noise.ppl.sd.unwrap() - 10.0).abs() < 1e-9);
        assert!((noise.ppl.selection_effect + 5.0).abs() < 1e-9);
        let noise = Noise::new(4.9, &[5.0, 5.2, 5.1]).unwrap();
        assert!((noise.scatter.sd.unwrap() - 0.1).abs() < 1e-12);
        assert!((noise.scatter.selection_effect + 0.2).abs() < 1e-12);
        let text = noise.markdown();
        assert!(text.contains("3 other seeds: 5.1000 ± ") && text.contains("deviation 0.1000 ("), "{text}");
        assert!(text.contains("selection effect: -0.2000 (-30.28 of perplexity)"), "{text}");
        let one = Noise::new(1.0, &[2.0]).unwrap();
        assert_eq!((one.scatter, one.loss.count), (Scatter { sd: None, selection_effect: -1.0 }, 1));
        let text = one.markdown();
        assert!(text.contains("another seed: 2.0000.") && !text.contains("deviation"), "{text}");
        assert_eq!(Noise::new(1.0, &[]), None);
    }
}
