use segue_configs::{RisingRate, counted};
use segue_report::{LineChart, Point, Series};
use serde_json::{Value, json};

use super::curve::{Descent, descent, side, smoothed};
use crate::failure::Failure;
use crate::folder::ResultFolder;
use crate::output::Output;

/// A step of a range test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Made {
    /// Its number, from 1.
    pub step: u64,
    /// Its learning rate, as `optim.lr` would say it.
    pub lr: f64,
    /// Mean loss over its batch, in nats a target, before its update.
    pub loss: f64,
    /// The source of its batch.
    pub source: usize,
    /// Whether it has updated the weights: not where its gradients overflowed under the scale of the loss.
    pub updated: bool,
}

/// How a range test ended.
#[derive(Debug, Clone, PartialEq)]
pub enum End {
    /// With its last step.
    LastStep,
    /// The loss had diverged.
    Diverged,
    /// With a loss, gradient or weight that is not finite: what, in words.
    NotFinite(String),
}

/// Result of a range test.
pub struct RangeTest {
    /// The rates that were asked for.
    pub rates: RisingRate,
    /// All steps that were made.
    pub made: Vec<Made>,
    /// Names of sources, where there are several.
    pub sources: Vec<String>,
    /// How it ended.
    pub end: End,
}

/// The steps that the curve is of, with their smoothed losses.
struct Curve {
    made: Vec<Made>,
    smooth: Vec<f64>,
    descent: Option<Descent>,
}

impl RangeTest {
    /// Of several sources, whose losses do not compare, the one with the most steps.
    fn source(&self) -> usize {
        let steps = |source: &usize| self.made.iter().filter(|made| made.source == *source).count();
        (0..self.sources.len().max(1)).rev().max_by_key(steps).unwrap_or(0)
    }

    fn curve(&self) -> Curve {
        let source = self.source();
        let made: Vec<Made> = self.made.iter().filter(|made| made.source == source).copied().collect();
        let losses: Vec<f64> = made.iter().map(|made| made.loss).collect();
        let side = side(made.len());
        let smooth = smoothed(&losses, side);
        let descent = descent(&losses, &smooth, side);
        Curve { made, smooth, descent }
    }

    /// Prints the result, writes it to `folder`, and returns it as JSON.
    pub fn report(&self, folder: Option<&ResultFolder>, out: &Output) -> Result<Value, Failure> {
        let curve = self.curve();
        let result = self.json(&curve);
        self.tell(&curve, out);
        if let Some(folder) = folder {
            folder.write_json("lr.json", &result)?;
            folder.write_csv("lr.csv", &["step", "lr", "loss", "smoothed"], &curve.rows())?;
            folder.write("lr.svg", &self.chart(&curve).svg())?;
            out.line(&format!("the curve is in {}", folder.path().join("lr.svg").display()));
        }
        Ok(result)
    }

    fn tell(&self, curve: &Curve, out: &Output) {
        if let Some(name) = self.sources.get(self.source()).filter(|_| self.sources.len() > 1) {
            out.line(&format!("of several losses this is that of {name}, which has the most steps"));
        }
        let last = self.made.last().map_or(String::new(), |made| {
            format!(" after step {} of {}, at {:.2e}", made.step, self.rates.steps, made.lr)
        });
        match &self.end {
            End::LastStep => {}
            End::Diverged => out.line(&format!("stopped{last}: the loss has diverged")),
            End::NotFinite(what) => out.line(&format!("stopped{last}: {what}")),
        }
        let overflowed = self.overflowed();
        if overflowed > 0 {
            out.line(&format!(
                "{} made no update: gradients overflowed under the scale of the loss (train.precision = \"fp16\")",
                counted(overflowed, "step")
            ));
        }
        curve.advice(self.end == End::LastStep).iter().for_each(|line| out.line(line));
    }

    fn overflowed(&self) -> usize {
        self.made.iter().filter(|made| !made.updated).count()
    }

    fn json(&self, curve: &Curve) -> Value {
        let point = |(made, smooth): (&Made, &f64)| {
            json!({
                "step": made.step, "lr": made.lr, "loss": made.loss, "smoothed": smooth, "updated": made.updated,
            })
        };
        let (ended, why) = match &self.end {
            End::LastStep => ("last_step", None),
            End::Diverged => ("diverged", None),
            End::NotFinite(what) => ("not_finite", Some(what)),
        };
        let source = self.sources.get(self.source()).filter(|_| self.sources.len() > 1);
        json!({
            "suggestion": curve.suggestion(), "lowest": curve.lowest(), "ended": ended, "why": why,
            "steps": self.rates.steps, "overflowed": self.overflowed(), "loss_of": source,
            "points": curve.made.iter().zip(&curve.smooth).map(point).collect::<Vec<_>>(),
        })
    }

    fn chart(&self, curve: &Curve) -> LineChart {
        let points = |losses: Vec<f64>| {
            let rates = curve.made.iter().map(|made| made.lr);
            rates.zip(losses).map(Point::from).collect::<Vec<_>>()
        };
        let losses = points(curve.made.iter().map(|made| made.loss).collect());
        let title = match curve.suggestion() {
            Some(lr) => format!("Learning-rate range test: steepest at {lr:.2e}"),
            None => "Learning-rate range test".into(),
        };
        let chart = LineChart::new(title, "optim.lr", "loss")
            .without_dots()
            .with(Series::new("smoothed", points(curve.smooth.clone())))
            .with(Series::new("each step", losses));
        if self.rates.linear { chart } else { chart.with_logarithmic_x() }
    }
}

impl Curve {
    /// The rate in the middle of the steepest descent.
    fn suggestion(&self) -> Option<f64> {
        Some(self.made[self.descent?.steepest?].lr)
    }

    /// The rate of the lowest smoothed loss.
    fn lowest(&self) -> Option<f64> {
        Some(self.made[self.descent?.lowest].lr)
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let row = |(made, smooth): (&Made, &f64)| {
            vec![made.step.to_string(), made.lr.to_string(), made.loss.to_string(), smooth.to_string()]
        };
        self.made.iter().zip(&self.smooth).map(row).collect()
    }

    /// What it says of the learning rate, and what that is worth. `whole`: whether all steps were made.
    fn advice(&self, whole: bool) -> Vec<String> {
        let (Some(lr), Some(lowest), Some(descent)) = (self.suggestion(), self.lowest(), self.descent) else {
            return vec![
                "no suggestion: no fall of the loss stands out from its noise; take more --steps, or another range".into(),
            ];
        };
        let mut lines = vec![
            format!("the smoothed loss falls fastest at optim.lr={lr:.2e}, and is lowest at {lowest:.2e}"),
            "a start for optim.lr with some schedule.warmup, and not the best rate: `segue tune` compares whole runs".into(),
        ];
        if descent.at_start {
            lines.push("it falls fastest at the first rates: lower --lr-from".into());
        }
        if descent.at_end && whole {
            lines.push("it is lowest at the last rates: raise --lr-to".into());
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hundred steps of each of two sources in turn, of which the second has one step less; the first falls at step 60 of its own.
    fn test(end: End) -> RangeTest {
        let rates = RisingRate { from: 1e-6, to: 1.0, steps: 200, linear: false };
        let made = (1..200u64).map(|step| {
            let source = (step + 1) as usize % 2;
            let own = (step / 2) as f64;
            let loss = 9.0 - 6.0 / (1.0 + (-(own - 60.0) / 4.0).exp());
            let loss = if source == 0 { loss } else { 1e3 };
            Made { step, lr: rates.multiple(step), loss, source, updated: step > 3 }
        });
        RangeTest { rates, made: made.collect(), sources: vec!["text".into(), "graph".into()], end }
    }

    #[test]
    fn the_curve_is_of_the_loss_with_the_most_steps() {
        let test = test(End::LastStep);
        let found = test.json(&test.curve());
        // Its 61st step, the 121st of all, is in the middle.
        assert_eq!(found["suggestion"].as_f64(), Some(test.rates.multiple(121)));
        assert_eq!((found["loss_of"].as_str(), found["ended"].as_str()), (Some("text"), Some("last_step")));
        assert_eq!(found["points"].as_array().unwrap().len(), 100);
        assert_eq!((&found["overflowed"], &found["points"][0]["updated"]), (&json!(3), &json!(false)));
        assert!(test.chart(&test.curve()).svg().contains("steepest at 4.15e-3"));
    }

    #[test]
    fn nothing_is_suggested_without_a_step() {
        let test = RangeTest { made: Vec::new(), ..test(End::NotFinite("the loss is NaN".into())) };
        let found = test.json(&test.curve());
        assert_eq!((&found["suggestion"], &found["why"]), (&Value::Null, &json!("the loss is NaN")));
        assert!(test.curve().advice(false)[0].starts_with("no suggestion"));
    }
}
