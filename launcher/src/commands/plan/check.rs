//! Predictions next to measured runs.

use segue_configs::{Machine, Observed, Products, Series};
use segue_cost::{Choices, Plan};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::Output;

/// A measured run and its prediction.
#[derive(Debug, Clone)]
pub struct Checked {
    series: Series,
    ranks: usize,
    /// Whether the machine was fitted to it; all others are predicted.
    fitted: bool,
    measured: f64,
    predicted: f64,
    /// Speed to that of the first row of its series, measured and predicted.
    scaling: [f64; 2],
}

impl Checked {
    /// Predicted to measured speed, less one.
    fn error(&self) -> f64 {
        self.predicted / self.measured - 1.0
    }

    /// Of the speed-up over the first row of its series.
    fn scaling_error(&self) -> f64 {
        self.scaling[1] / self.scaling[0] - 1.0
    }
}

/// Predicts every measured run. `adjust` may change the machines, as a fit does.
pub fn rows(observed: &Observed, adjust: &dyn Fn(&mut Machine)) -> Result<Vec<Checked>, Failure> {
    let mut rows = Vec::new();
    for series in &observed.series {
        let mut machine = Machine::load(&series.machine)?;
        adjust(&mut machine);
        let predicted = series
            .ranks
            .iter()
            .map(|&ranks| predict(observed, series, &machine, ranks))
            .collect::<Result<Vec<f64>, Failure>>()?;
        for (i, &ranks) in series.ranks.iter().enumerate() {
            rows.push(Checked {
                series: series.clone(),
                ranks,
                fitted: series.fitted && ranks == 1,
                measured: series.tokens_per_s[i],
                predicted: predicted[i],
                scaling: [series.tokens_per_s[i] / series.tokens_per_s[0], predicted[i] / predicted[0]],
            });
        }
    }
    Ok(rows)
}

/// Tokens a second of a series on so many ranks.
fn predict(observed: &Observed, series: &Series, machine: &Machine, ranks: usize) -> Result<f64, Failure> {
    let lanes =
        [format!("train.lanes={}", series.lanes * ranks), format!("train.micro_batch={}", series.lanes)];
    let config = segue_families::MODELS.load(None, &[observed.keys(series), &lanes].concat())?.config;
    let products = Products::named(&series.precision).unwrap_or(Products::F32);
    let choices = Choices {
        gradient_bytes: series.gradient_bytes,
        value_bytes: series.value_bytes,
        update_passes: series.update_passes,
        one_pass: series.one_pass,
        ..Choices::of(products)
    };
    let work = segue_family::work(&config)?;
    Ok(Plan::new(config, &work, machine, ranks, &choices)?.tokens_per_s)
}

/// Prints the table.
pub fn run(out: &Output) -> Result<Value, Failure> {
    let rows = rows(&Observed::load()?, &|_| {})?;
    for line in table(&rows) {
        out.line(&line);
    }
    let row = |row: &Checked| {
        json!({
            "source": row.series.source, "machine": row.series.machine, "model": row.series.model,
            "precision": row.series.precision, "lanes": row.series.lanes, "ranks": row.ranks, "fitted": row.fitted,
            "measured": row.measured, "predicted": row.predicted, "error": row.error(),
            "scaling_measured": row.scaling[0], "scaling_predicted": row.scaling[1], "scaling_error": row.scaling_error(),
        })
    };
    Ok(json!({ "rows": rows.iter().map(row).collect::<Vec<_>>(), "summary": summary(&rows) }))
}

/// A Markdown table, and what it comes to.
fn table(rows: &[Checked]) -> Vec<String> {
    let mut lines = vec![
        "| machine | model | precision | lanes | ranks | tokens/s | predicted | error | speed-up | predicted | error |".to_string(),
        "|---|---|---|---|---|---|---|---|---|---|---|".to_string(),
    ];
    for row in rows {
        let series = &row.series;
        let fitted = if row.fitted { " (fitted)" } else { "" };
        let first = row.ranks == series.ranks[0];
        let scaling = match first {
            true => " - | - | - |".to_string(),
            false => format!(
                " {:.2} | {:.2} | {:+.1} % |",
                row.scaling[0],
                row.scaling[1],
                100.0 * row.scaling_error()
            ),
        };
        lines.push(format!(
            "| {} | {} | {} | {} | {} | {:.0} | {:.0}{fitted} | {:+.1} % |{scaling}",
            series.machine,
            series.model,
            series.precision,
            series.lanes,
            row.ranks,
            row.measured,
            row.predicted,
            100.0 * row.error()
        ));
    }
    let found = summary(rows);
    let percent = |key: &str| 100.0 * found[key].as_f64().unwrap_or(0.0);
    lines.push(String::new());
    lines.push(format!(
        "{} rows fitted: mean error {:.1} %. {} rows predicted: mean error {:.1} %, largest {:.1} %; of speed-ups {:.1} % and {:.1} %",
        found["fitted"],
        percent("fitted_error"),
        found["predicted"],
        percent("predicted_error"),
        percent("largest_error"),
        percent("scaling_error"),
        percent("largest_scaling_error"),
    ));
    lines
}

/// Mean and largest absolute errors.
fn summary(rows: &[Checked]) -> Value {
    let (fitted, predicted): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.fitted);
    let scaled = || predicted.iter().filter(|row| row.ranks != row.series.ranks[0]);
    let mean = |errors: &[f64]| errors.iter().sum::<f64>() / errors.len().max(1) as f64;
    let largest = |errors: &[f64]| errors.iter().copied().fold(0.0, f64::max);
    let of = |rows: &[&Checked]| rows.iter().map(|row| row.error().abs()).collect::<Vec<f64>>();
    let scaling: Vec<f64> = scaled().map(|row| row.scaling_error().abs()).collect();
    json!({
        "fitted": fitted.len(), "fitted_error": mean(&of(&fitted)),
        "predicted": predicted.len(), "predicted_error": mean(&of(&predicted)), "largest_error": largest(&of(&predicted)),
        "scaling_error": mean(&scaling), "largest_scaling_error": largest(&scaling),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sum of squared errors of the rows that machine `name` was fitted to, where it is changed.
    fn misfit(name: &str, change: &dyn Fn(&mut Machine)) -> f64 {
        let mut observed = Observed::load().unwrap();
        observed.series.retain(|series| series.machine == name && series.fitted);
        for series in &mut observed.series {
            series.ranks.truncate(1);
            series.tokens_per_s.truncate(1);
        }
        rows(&observed, change).unwrap().iter().map(|row| (1.0 + row.error()).ln().powi(2)).sum()
    }

    type Constant = fn(&mut Machine) -> Option<&mut f64>;

    /// Constants that were fitted, of those that the rows of a machine depend on.
    const CONSTANTS: [(&str, Constant); 4] = [
        ("products in f32", |machine| Some(&mut machine.achieved.products.f32)),
        ("products in TF32", |machine| machine.achieved.products.tf32.as_mut()),
        ("products in fp16", |machine| machine.achieved.products.fp16.as_mut()),
        ("memory", |machine| Some(&mut machine.achieved.memory)),
    ];

    #[test]
    fn constants_of_machines_are_those_that_fit_runs_of_one_rank_best() {
        let mut moved = 0;
        for name in ["dgx-1", "dgx-2h", "dgx-a100", "dgx-h100", "two-core-xeon"] {
            let best = misfit(name, &|_| {});
            for (what, constant) in CONSTANTS {
                for factor in [0.93, 1.07] {
                    let other = misfit(name, &|machine| {
                        if let Some(value) = constant(machine) {
                            *value = (*value * factor).min(1.0);
                        }
                    });
                    assert!(other >= best, "{name}: {what} times {factor}: {other} against {best}");
                    moved += usize::from(other > best);
                }
            }
        }
        assert!(moved > 12, "only {moved} changes mattered");
    }

    #[test]
    fn predictions_do_not_know_the_runs_of_several_ranks() {
        let observed = Observed::load().unwrap();
        let mut other = observed.clone();
        for series in &mut other.series {
            series.tokens_per_s.iter_mut().skip(1).for_each(|speed| *speed *= 2.0);
        }
        let predicted =
            |observed| rows(observed, &|_| {}).unwrap().iter().map(|row| row.predicted).collect::<Vec<f64>>();
        assert_eq!(predicted(&observed), predicted(&other));
    }

    /// The errors that docs/book/src/reference/performance.md states, so that a change of the model is seen.
    #[test]
    fn predictions_are_as_close_as_documented() {
        let rows = rows(&Observed::load().unwrap(), &|_| {}).unwrap();
        let found = summary(&rows);
        let below = |key: &str, limit: f64| {
            let value = found[key].as_f64().unwrap();
            assert!(value < limit, "{key} is {value}");
        };
        below("fitted_error", 0.10);
        below("predicted_error", 0.15);
        below("scaling_error", 0.15);
        assert!(rows.iter().filter(|row| !row.fitted).count() > 50);
    }
}
