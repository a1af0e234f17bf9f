//! How far cells were when: the best losses so far, over steps and over forward passes.

use std::collections::BTreeMap;
use std::path::Path;

use segue_configs::sweep::Sweep;
use segue_dataloader::sections::ObjectiveConfig;
use segue_report::{LineChart, Point, Series, csv_line};
use serde_json::Value;

use super::super::child::{evaluations_of, write_whole};
use super::job::Job;
use crate::failure::Failure;
use crate::output::Output;

/// The runs of a cell.
struct Course {
    label: String,
    /// Forward passes of a step to those of one with a single dropout sample.
    samples: u64,
    /// Of each seed, the lowest loss of its evaluations up to a step.
    seeds: BTreeMap<u64, BTreeMap<u64, f64>>,
}

impl Course {
    /// Means over the seeds, at the steps that all of them have.
    fn means(&self) -> Vec<(u64, f64)> {
        let steps = self.seeds.values().next().into_iter().flat_map(|first| first.keys().copied());
        let mean = |step: u64| {
            let losses: Option<Vec<f64>> = self.seeds.values().map(|seed| seed.get(&step).copied()).collect();
            losses.map(|losses| (step, losses.iter().sum::<f64>() / losses.len() as f64))
        };
        steps.filter_map(mean).collect()
    }
}

/// The lowest loss of `evaluations`, rows of a run, up to each of their steps. Where an average of weights is kept, what is reported is
/// the loss of that.
fn best_so_far(evaluations: &[Value]) -> BTreeMap<u64, f64> {
    let mut best = f64::INFINITY;
    let lower = |row: &Value| {
        best = best.min(row["loss"].as_f64()?);
        Some((row["step"].as_u64()?, best))
    };
    evaluations.iter().filter_map(lower).collect()
}

/// Writes `curves.csv`, `by-step.svg` and `by-pass.svg` of what is there. Records outlive run folders: runs without one are left out.
pub fn write(sweep: &Sweep, jobs: &[Job], output: &Path, out: &Output) -> Result<(), Failure> {
    let mut courses = Vec::new();
    for (number, cell) in sweep.cells.iter().enumerate() {
        let mut course = Course { label: cell.label.clone(), samples: 1, seeds: BTreeMap::new() };
        for job in jobs.iter().filter(|job| job.cell == number && job.values().is_some()) {
            course.samples = sweep.config_of(cell, job.seed)?.own::<ObjectiveConfig>().samples as u64;
            match evaluations_of(&job.run) {
                Ok(rows) => _ = course.seeds.insert(job.seed, best_so_far(&rows)),
                Err(failure) => {
                    out.line(&format!("{}: left out of the curves: {}", job.name(), failure.message));
                }
            }
        }
        courses.push(course);
    }
    for (name, text) in [
        ("curves.csv", csv(&courses)),
        ("by-step.svg", chart(&sweep.name, "step", &courses, |_| 1).svg()),
        (
            "by-pass.svg",
            chart(&sweep.name, "forward passes of a batch", &courses, |course| course.samples).svg(),
        ),
    ] {
        write_whole(&output.join(name), &text)?;
    }
    Ok(())
}

fn csv(courses: &[Course]) -> String {
    let mut text = csv_line(["cell", "seed", "step", "passes", "best_loss"]);
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

fn chart(title: &str, axis: &str, courses: &[Course], of_step: impl Fn(&Course) -> u64) -> LineChart {
    let empty = LineChart::new(title, axis, "best validation loss so far");
    courses.iter().fold(empty, |chart, course| {
        let place = |(step, loss): (u64, f64)| Point::from(((step * of_step(course)) as f64, loss));
        chart.with(Series::new(&course.label, course.means().into_iter().map(place).collect()))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rows(losses: &[(u64, f64)]) -> Vec<Value> {
        losses.iter().map(|(step, loss)| json!({ "kind": "eval", "step": step, "loss": loss })).collect()
    }

    /// Row M23.
    #[test]
    fn a_course_is_the_best_so_far_over_steps_or_passes() {
        let first = best_so_far(&rows(&[(10, 3.0), (20, 4.0), (30, 2.0)]));
        assert_eq!(first, [(10, 3.0), (20, 3.0), (30, 2.0)].into());
        let second = best_so_far(&rows(&[(10, 5.0), (30, 1.0)]));
        let seeds = [(1, first), (2, second)].into();
        let course = Course { label: "4 \"masks\"".into(), samples: 4, seeds };
        assert_eq!(course.means(), [(10, 4.0), (30, 1.5)]);
        let text = csv(&[course]);
        assert!(text.contains("\n\"4 \"\"masks\"\"\",1,20,80,3\n"), "{text}");
        assert_eq!(text.lines().count(), 6);
    }
}
