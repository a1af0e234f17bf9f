//! What a study has found: the best settings, what is expected around them, and how much of a difference is noise.

use std::path::Path;

use segue_configs::study::Study;
use segue_report::{LineChart, Point, Series};
use segue_tuner::{Asked, Cause, GaussianProcess, Journal, Search, State, Trial};
use serde_json::{Value, json};

use super::super::measure::{Inputs, Measure};
use super::front::Front;
use super::noise::Noise;
use super::trial::{run_name, trial_name};
use crate::failure::Failure;

/// How far a neighbour lies from the best, as a fraction of the parameter's range (Melis 2023, app. 2.B).
const ASIDE: f64 = 0.15;
/// Steps between the ends of a range, in the chart.
const STEPS: usize = 40;
/// Trials that the table shows.
const SHOWN: usize = 20;

/// A study's results.
pub struct Report<'a> {
    study: &'a Study,
    inputs: &'a Inputs,
    journal: &'a Journal,
    process: Option<GaussianProcess>,
    noise: Option<Noise>,
    front: Option<Front>,
}

/// The settings of a trial as arguments.
pub fn in_words(asked: &Asked, joint: &str) -> String {
    asked.settings.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(joint)
}

/// Foreign text as a cell of a table.
fn in_cell(text: &str) -> String {
    text.replace('|', "\\|")
}

impl<'a> Report<'a> {
    /// Fits the Gaussian process behind the neighbourhood, and reads the front from the runs in `output`. An error where their evaluations lack the study's `front` key.
    pub fn new(
        study: &'a Study,
        inputs: &'a Inputs,
        journal: &'a Journal,
        output: &Path,
    ) -> Result<Self, Failure> {
        let Study { space, search, startup, seed, .. } = study;
        let search = Search { space, kind: *search, startup: *startup, seed: *seed };
        let (process, noise) = (search.fit(journal.trials()), Noise::of(journal, &inputs.measure));
        let mut report = Self { study, inputs, journal, process, noise, front: None };
        if let Some(key) = &study.front {
            let ended = journal.trials().iter().filter(|trial| trial.loss().is_some());
            let runs = ended.filter_map(|trial| {
                let run = output.join(report.run_of(trial)?);
                Some((trial.asked.trial, run, in_words(&trial.asked, ", ")))
            });
            report.front = Some(Front::of_runs(key, runs)?);
        }
        Ok(report)
    }

    /// What trials are judged by.
    pub fn measure(&self) -> &Measure {
        &self.inputs.measure
    }

    /// Value of a trial's measure; NaN where it has none.
    fn value(&self, trial: &Trial) -> f64 {
        self.measure().cost(trial.loss().unwrap_or(f64::NAN))
    }

    /// The same in words.
    pub fn in_words(&self, trial: &Trial) -> String {
        self.measure().words(self.value(trial))
    }

    /// Names of files and their texts.
    pub fn files(&self) -> Vec<(&'static str, String)> {
        let results = format!("{:#}\n", self.summary());
        let mut files = vec![
            ("report.md", self.markdown()),
            ("trials.svg", self.history().svg()),
            ("results.json", results),
        ];
        if let Some(front) = &self.front {
            files.push(("front.csv", front.csv()));
            files.push(("front.svg", front.chart(&self.study.name).svg()));
        }
        files.extend(self.around().map(|chart| ("neighbourhood.svg", chart.svg())));
        files
    }

    /// The numbers of the report.
    pub fn summary(&self) -> Value {
        let best = self.journal.best().map(|best| {
            json!({
                "trial": best.asked.trial, "run": self.run_of(best),
                "loss": best.loss().filter(|_| *self.measure() == Measure::Loss), "value": self.value(best), "settings": best.asked.settings,
            })
        });
        json!({
            "name": self.study.name, "measure": self.measure().to_json(), "trials": self.count(|_| true), "infeasible": self.count(|s| s == State::Infeasible),
            "stopped": self.count(|s| s == State::Stopped), "failed": self.failed().count(), "best": best, "reruns": self.noise,
            "front": self.front.as_ref().map(Front::summary),
        })
    }

    /// Its run folder, from the study's folder on.
    fn run_of(&self, trial: &Trial) -> Option<String> {
        let config = self.study.config_at(&trial.asked.point).ok()?;
        let prefix = trial_name(trial.asked.trial);
        Some(format!("runs/{}", run_name(config.to_json(), &self.inputs.fingerprint, &prefix)))
    }

    fn count(&self, of: impl Fn(State) -> bool) -> usize {
        let told = self.journal.trials().iter().filter_map(|trial| trial.told.as_ref());
        told.filter(|told| of(told.state)).count()
    }

    /// Trials that ended with an error.
    fn failed(&self) -> impl Iterator<Item = (&Trial, &Cause)> {
        self.journal.trials().iter().filter_map(|trial| Some((trial, trial.cause()?)))
    }

    fn markdown(&self) -> String {
        let failed = match self.failed().count() {
            0 => String::new(),
            count => format!(", {count} of them as they failed"),
        };
        let measure = self.measure();
        let values = match measure.of_task() {
            None => "Losses are in nats a target, the lowest of a run's evaluations".to_string(),
            Some(metric) => {
                format!(
                    "Values are of {}, of which {} is better, the best of a run's evaluations",
                    metric.name,
                    measure.side()
                )
            }
        };
        let mut text = format!(
            "# {}\n\n{} trials, of which {} were given up early and {} have no {}{failed}. {values}.\n",
            self.study.name,
            self.count(|_| true),
            self.count(|state| state == State::Stopped),
            self.count(|state| state == State::Infeasible),
            measure.name(),
        );
        if let Some(best) = self.journal.best() {
            text.push_str(&self.best_in_words(best));
            text.push_str(&self.neighbourhood(best));
        }
        text.extend(self.front.as_ref().map(Front::markdown));
        text.push_str(&self.table());
        text.push_str(&self.failures());
        text
    }

    /// Trials and reruns that ended with an error.
    fn failures(&self) -> String {
        let trials =
            self.failed().map(|(trial, cause)| (trial, trial.asked.trial.to_string(), cause.clone()));
        let of_reruns = self.journal.trials().iter().flat_map(|trial| {
            let reruns = self.journal.reruns(trial.asked.trial);
            reruns.into_iter().filter_map(move |rerun| {
                Some((trial, format!("{}, seed {}", rerun.trial, rerun.seed), rerun.cause?))
            })
        });
        let row = |(trial, name, cause): (&Trial, String, Cause)| {
            format!(
                "| {name} | {} | {} | {} |\n",
                cause.code,
                in_cell(&cause.why),
                in_words(&trial.asked, ", ")
            )
        };
        let rows: String = trials.chain(of_reruns).map(row).collect();
        if rows.is_empty() {
            return rows;
        }
        format!(
            "\n## Failed\n\nThese have no {}, as often as they were tried. `--retry` tries them again.\n\n\
             | trial | exit code | error | settings |\n|---|---|---|---|\n{rows}",
            self.measure().name()
        )
    }

    fn best_in_words(&self, best: &Trial) -> String {
        let value = self.value(best);
        let value = match self.measure() {
            Measure::Loss => format!("{value:.4} (perplexity {:.2})", value.exp()),
            measure => measure.words(value),
        };
        let mut text = format!(
            "\n## Best\n\nTrial {}: {value}; its model is in `{}`.\n\n```\n{}\n```\n",
            best.asked.trial,
            self.run_of(best).unwrap_or_default(),
            in_words(&best.asked, "\n")
        );
        text.extend(edges(self.study, best).iter().map(|line| format!("\n{line}.\n")));
        text.extend(self.noise.map(|noise| noise.markdown()));
        text
    }

    /// What the process expects where one parameter is moved.
    fn neighbourhood(&self, best: &Trial) -> String {
        let Some(process) = &self.process else { return String::new() };
        let space = &self.study.space;
        let here = space.canonical(&best.asked.point);
        let expected = process.predict(&here).mean;
        let mut text = format!(
            "\n## Neighbourhood\n\nWhat a Gaussian process over all trials expects where one parameter is moved by {:.0} % of its range: \
             the change in {}, ± its standard deviation.\n\n| parameter | best | lower | higher |\n|---|---|---|---|\n",
            100.0 * ASIDE,
            self.measure().name()
        );
        for (i, parameter) in space.parameters().iter().enumerate() {
            let Some(value) = best.asked.settings.get(&parameter.key) else { continue };
            let change = |by: f64| {
                let mut there = here.clone();
                there[i] += by;
                if !(0.0..=1.0).contains(&there[i]) {
                    return "–".to_string();
                }
                let there = space.canonical(&there);
                let change = self.measure().cost(process.predict(&there).mean - expected);
                format!("{change:+.4} ± {:.4}", process.sd_of_difference(&there, &here))
            };
            text.push_str(&format!(
                "| `{}` | {value} | {} | {} |\n",
                parameter.key,
                change(-ASIDE),
                change(ASIDE)
            ));
        }
        text
    }

    fn table(&self) -> String {
        let mut ended: Vec<&Trial> = self.journal.trials().iter().filter(|t| t.loss().is_some()).collect();
        ended.sort_by(|a, b| a.loss().unwrap_or(f64::NAN).total_cmp(&b.loss().unwrap_or(f64::NAN)));
        let mut text = format!(
            "\n## Trials\n\n| trial | {} | turns | settings |\n|---|---|---|---|\n",
            self.measure().name()
        );
        for trial in ended.iter().take(SHOWN) {
            let told = trial.told.as_ref();
            let turns =
                told.filter(|told| told.state == State::Stopped).map(|told| told.turns.len().to_string());
            text.push_str(&format!(
                "| {} | {:.4} | {} | {} |\n",
                trial.asked.trial,
                self.value(trial),
                turns.unwrap_or("all".into()),
                in_words(&trial.asked, ", ")
            ));
        }
        text
    }

    /// Values by trial, and the best so far.
    fn history(&self) -> LineChart {
        let (mut least, mut all, mut best) = (f64::INFINITY, Vec::new(), Vec::new());
        for trial in self.journal.trials() {
            let (number, cost) = (trial.asked.trial as f64, trial.loss().unwrap_or(f64::NAN));
            least = least.min(cost);
            all.push(Point::from((number, self.measure().cost(cost))));
            best.push(Point::from((number, self.measure().cost(least))));
        }
        LineChart::new(&self.study.name, "trial", self.measure().axis())
            .with(Series::new("trial", all))
            .with(Series::new("best so far", best))
    }

    /// The value that is expected along each parameter through the best.
    fn around(&self) -> Option<LineChart> {
        let (process, best) = (self.process.as_ref()?, self.journal.best()?);
        let space = &self.study.space;
        let title = format!("{}: around trial {}", self.study.name, best.asked.trial);
        let mut chart =
            LineChart::new(title, "place in the range", format!("expected {}", self.measure().axis()));
        for (i, parameter) in space.parameters().iter().enumerate() {
            let at = |step: usize| {
                let mut there = space.canonical(&best.asked.point);
                there[i] = step as f64 / STEPS as f64;
                let expected = process.predict(&space.canonical(&there)).mean;
                Point::from((there[i], self.measure().cost(expected)))
            };
            chart = chart.with(Series::new(&parameter.key, (0..=STEPS).map(at).collect()));
        }
        Some(chart)
    }
}

/// A line for each parameter whose best value lies at an end of its range: better ones may lie beyond.
pub fn edges(study: &Study, best: &Trial) -> Vec<String> {
    let line = |(key, value, end): (String, String, &str)| {
        format!("{key} = {value} of the best trial lies at the end of its range: widen it by another `{end}`")
    };
    study.space.at_edges(&best.asked.point).into_iter().map(line).collect()
}
