//! How far cells were when: the best evaluations so far, over steps and over forward passes.

use std::collections::BTreeMap;
use std::path::Path;

use segue_configs::sweep::Sweep;
use segue_dataloader::sections::ObjectiveConfig;
use segue_report::{LineChart, Point, Series, csv_line};
use serde_json::Value;

use super::super::child::{evaluations_of, write_whole};
use super::super::measure::Measure;
use super::job::{Job, measure_of};
use crate::failure::Failure;
use crate::output::Output;

/// The runs of a cell.
struct Course {
    label: String,
    /// Forward passes of a step to those of one with a single dropout sample.
    samples: u64,
    /// Of each seed, the best value of its evaluations up to a step.
    seeds: BTreeMap<u64, BTreeMap<u64, f64>>,
}

impl Course {
    /// Means over the seeds, at the steps that all of them have.
    fn means(&self) -> Vec<(u64, f64)> {
        let steps = self.seeds.values().next().into_iter().flat_map(|first| first.keys().copied());
        let mean = |step: u64| {
            let values: Option<Vec<f64>> = self.seeds.values().map(|seed| seed.get(&step).copied()).collect();
            values.map(|values| (step, values.iter().sum::<f64>() / values.len() as f64))
        };
        steps.filter_map(mean).collect()
    }
}

/// The best value of `evaluations`, rows of a run, up to each of their steps: the lowest loss, or the metric of a task. Where an average of weights is kept,
/// what is reported is the loss of that.
fn best_so_far(evaluations: &[Value], measure: &Measure) -> BTreeMap<u64, f64> {
    let mut least = f64::INFINITY;
    let best = |row: &Value| {
        least = least.min(measure.cost(measure.of_row(row).filter(|value| !value.is_nan())?));
        Some((row["step"].as_u64()?, measure.cost(least)))
    };
    evaluations.iter().filter_map(best).collect()
}

/// Writes `curves.csv`, `by-step.svg` and `by-pass.svg` of what is there. Records outlive run folders: runs without one are left out.
pub fn write(sweep: &Sweep, jobs: &[Job], output: &Path, out: &Output) -> Result<(), Failure> {
    let mut courses = Vec::new();
    for (number, cell) in sweep.cells.iter().enumerate() {
        let mut course = Course { label: cell.label.clone(), samples: 1, seeds: BTreeMap::new() };
        for job in jobs.iter().filter(|job| job.cell == number && job.values().is_some()) {
            course.samples = sweep.config_of(cell, job.seed)?.own.get::<ObjectiveConfig>().samples as u64;
            match evaluations_of(&job.run) {
                Ok(rows) => _ = course.seeds.insert(job.seed, best_so_far(&rows, job.measure())),
                Err(failure) => {
                    out.line(&format!("{}: left out of the curves: {}", job.name(), failure.message));
                }
            }
        }
        courses.push(course);
    }
    let measure = measure_of(jobs);
    let chart = |axis, of_step: fn(&Course) -> u64| {
        let empty = LineChart::new(&sweep.name, axis, format!("best {} so far", evaluated(measure)));
        chart(empty, &courses, of_step).svg()
    };
    for (name, text) in [
        ("curves.csv", csv(&courses, measure.name())),
        ("by-step.svg", chart("step", |_| 1)),
        ("by-pass.svg", chart("forward passes of a batch", |course| course.samples)),
    ] {
        write_whole(&output.join(name), &text)?;
    }
    Ok(())
}

/// A measure in words.
fn evaluated(measure: &Measure) -> String {
    measure.of_task().map_or("validation loss".into(), |metric| metric.name.clone())
}

/// `measure`: the name of what is best so far.
fn csv(courses: &[Course], measure: &str) -> String {
    let mut text = csv_line(["cell", "seed", "step", "passes", &format!("best_{measure}")]);
    for Course { label, samples, seeds } in courses {
        for (seed, losses) in seeds {
            for (step, loss) in losses {
                let numbers = [*seed, *step, step * samples].map(|number| number.to_string());
                let [seed, step, passes] = numbers;
                text += &csv_line([label.clone(), seed, step, passes, loss.to_string()]);
            }
        }
    }
    text
}

fn chart(empty: LineChart, courses: &[Course], of_step: impl Fn(&Course) -> u64) -> LineChart {
    courses.iter().fold(empty, |chart, course| {
        let place = |(step, loss): (u64, f64)| Point::from(((step * of_step(course)) as f64, loss));
        chart.with(Series::new(&course.label, course.means().into_iter().map(place).collect()))
    })
}

#[cfg(test)]
mod tests {
    use segue_engine::Better;
    use serde_json::json;

    use super::super::super::measure::tests::task;
    use super::*;

    fn rows(losses: &[(u64, f64)]) -> Vec<Value> {
        losses.iter().map(|(step, loss)| json!({ "kind": "eval", "step": step, "loss": loss })).collect()
    }

    /// Row M23.
    #[test]
    fn a_course_is_the_best_so_far_over_steps_or_passes() {
        let best_so_far = |rows: &[Value]| best_so_far(rows, &Measure::Loss);
        let first = best_so_far(&rows(&[(10, 3.0), (20, 4.0), (30, 2.0)]));
        assert_eq!(first, [(10, 3.0), (20, 3.0), (30, 2.0)].into());
        let second = best_so_far(&rows(&[(10, 5.0), (30, 1.0)]));
        let seeds = [(1, first), (2, second)].into();
        let course = Course { label: "4 \"masks\"".into(), samples: 4, seeds };
        assert_eq!(course.means(), [(10, 4.0), (30, 1.5)]);
        let text = csv(&[course], "loss");
        assert!(text.contains("\n\"4 \"\"masks\"\"\",1,20,80,3\n"), "{text}");
        assert_eq!(text.lines().count(), 6);
    }
    #[test]
    fn a_course_of_an_accuracy_never_falls_and_one_of_an_error_never_rises() {
        let row = |(step, value): (u64, Value)| json!({ "kind": "eval", "step": step, "value": value });
        let rows = [(10, json!(0.5)), (20, json!(0.25)), (30, Value::Null), (40, json!(0.75))].map(row);
        let of =
            |better: Better| best_so_far(&rows, &task("metric", better)).into_values().collect::<Vec<f64>>();
        assert_eq!(of(Better::Higher), [0.5, 0.5, 0.75]);
        assert_eq!(of(Better::Lower), [0.5, 0.25, 0.25]);
    }
}
