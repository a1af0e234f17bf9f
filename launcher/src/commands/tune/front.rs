//! The front of a study: trials of which no other tells more and loses less (Melis 2023, §5.7).

use std::path::Path;

use segue_report::{LineChart, Point, Series};
use serde_json::{Value, json};

use super::super::child::evaluations_of;
use crate::failure::{BAD_CONFIG, Failure};

/// Levels that the report tells the lowest loss for.
const LEVELS: usize = 8;

/// A trial by its last evaluation.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    pub trial: usize,
    /// The value that is wanted high.
    pub told: f64,
    pub loss: f64,
    /// Its settings in words.
    pub settings: String,
}

/// Trials by loss and by a value of their evaluations that is wanted high.
pub struct Front {
    /// The key of that value.
    key: String,
    /// Every trial, and whether it lies on the front.
    places: Vec<(Place, bool)>,
}

impl Front {
    /// Of these trials. Of those that are alike the first counts.
    pub fn new(key: &str, places: Vec<Place>) -> Self {
        let beats = |other: &Place, own: &Place| {
            let as_good = other.told >= own.told && other.loss <= own.loss;
            as_good && ((other.told, other.loss) != (own.told, own.loss) || other.trial < own.trial)
        };
        let is_on = |own: &Place| !places.iter().any(|other| beats(other, own));
        let on = places.iter().map(is_on).collect::<Vec<_>>();
        Self { key: key.into(), places: places.into_iter().zip(on).collect() }
    }

    /// Of the runs in these folders, each with its trial's number and settings; without those that ended by a loss that is not a number. An error where an
    /// evaluation does not tell `key`.
    pub fn of_runs<P: AsRef<Path>>(
        key: &str,
        runs: impl Iterator<Item = (usize, P, String)>,
    ) -> Result<Self, Failure> {
        let place = |(trial, run, settings): (usize, P, String)| {
            let Some(last) = evaluations_of(run.as_ref())?.pop() else { return Ok(None) };
            let number = |key: &str| last[key].as_f64();
            let Some(told) = number(key) else {
                let keys = last.as_object().into_iter().flatten().filter(|(_, value)| value.is_f64());
                let keys: Vec<&str> = keys.map(|(key, _)| key.as_str()).collect();
                let message = format!("front is `{key}`, which evaluations of these runs do not tell");
                let hint = format!("hint: they tell {}", keys.join(", "));
                return Err(Failure::new(BAD_CONFIG, format!("{message}\n{hint}")));
            };
            Ok(number("loss").map(|loss| Place { trial, told, loss, settings }))
        };
        let places = runs.filter_map(|run| place(run).transpose()).collect::<Result<Vec<_>, _>>()?;
        Ok(Self::new(key, places))
    }

    /// Trials on the front, from the one that tells least.
    fn on_it(&self) -> Vec<&Place> {
        let mut on: Vec<&Place> = self.places.iter().filter(|(_, on)| *on).map(|(place, _)| place).collect();
        on.sort_by(|a, b| a.told.total_cmp(&b.told));
        on
    }

    /// The lowest loss of trials that tell `least` or more.
    pub fn lowest(&self, least: f64) -> Option<f64> {
        let losses = self.places.iter().filter(|(place, _)| place.told >= least).map(|(place, _)| place.loss);
        losses.min_by(f64::total_cmp)
    }

    /// For the report: trials on the front, and the lowest loss at even levels up to the most that any tells.
    pub fn markdown(&self) -> String {
        let on = self.on_it();
        let key = &self.key;
        let mut text = format!(
            "\n## Front\n\nTrials of which no other has more `{key}` and a lower loss, by their last evaluations. All trials are in `front.csv`.\n\n\
             | `{key}` | loss | trial | settings |\n|---|---|---|---|\n"
        );
        for Place { trial, told, loss, settings } in &on {
            text.push_str(&format!(
                "| {told:.4} | {loss:.4} | {trial} | {} |\n",
                settings.replace('|', "\\|")
            ));
        }
        let most = on.last().map_or(0.0, |place| place.told);
        text.push_str(&format!("\n| `{key}`, at least | lowest loss |\n|---|---|\n"));
        for level in (0..=LEVELS).map(|level| most * level as f64 / LEVELS as f64) {
            let loss = self.lowest(level).map_or("–".into(), |loss| format!("{loss:.4}"));
            text.push_str(&format!("| {level:.4} | {loss} |\n"));
        }
        text
    }

    /// Every trial as a line of a CSV file.
    pub fn csv(&self) -> String {
        let mut text = format!("trial,{},loss,on_front,settings\n", self.key);
        for (Place { trial, told, loss, settings }, on) in &self.places {
            text.push_str(&format!("{trial},{told},{loss},{on},\"{}\"\n", settings.replace('"', "\"\"")));
        }
        text
    }

    /// The front as a line.
    pub fn chart(&self, title: &str) -> LineChart {
        let points = self.on_it().iter().map(|place| Point::from((place.told, place.loss))).collect();
        LineChart::new(title, &self.key, "loss").with(Series::new("front", points))
    }

    /// Numbers of the trials on it.
    pub fn summary(&self) -> Value {
        let of = |place: &&Place| json!({ "trial": place.trial, "told": place.told, "loss": place.loss });
        json!({ "key": self.key, "trials": self.on_it().iter().map(of).collect::<Vec<_>>() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn front(points: &[(f64, f64)]) -> Front {
        let place = |(trial, (told, loss)): (usize, &(f64, f64))| Place {
            trial,
            told: *told,
            loss: *loss,
            settings: format!("a={trial}, b=\"x|y\""),
        };
        Front::new("information", points.iter().enumerate().map(place).collect())
    }

    /// Row V16.
    #[test]
    fn a_trial_is_on_the_front_that_no_other_beats() {
        let front =
            front(&[(0.0, 2.0), (1.0, 2.0), (1.0, 2.0), (2.0, 2.5), (1.5, 2.6), (3.0, 4.0), (0.5, 9.0)]);
        let on: Vec<usize> = front.on_it().iter().map(|place| place.trial).collect();
        assert_eq!(on, [1, 3, 5]);
        let lowest = [0.0, 1.0, 1.1, 2.0, 2.1, 3.0, 3.1].map(|least| front.lowest(least));
        let expected = [Some(2.0), Some(2.0), Some(2.5), Some(2.5), Some(4.0), Some(4.0), None];
        assert_eq!(lowest, expected);
        assert!(front.csv().contains("3,2,2.5,true,\"a=3, b=\"\"x|y\"\"\"\n"), "{}", front.csv());
        let text = front.markdown();
        assert!(text.contains("| 2.0000 | 2.5000 | 3 | a=3, b=\"x\\|y\" |\n"), "{text}");
        assert!(text.contains("| 1.1250 | 2.5000 |\n") && text.contains("| 3.0000 | 4.0000 |\n"), "{text}");
    }

    #[test]
    fn a_front_of_nothing_is_empty() {
        let front = front(&[]);
        assert_eq!((front.lowest(0.0), front.summary()["trials"].as_array().unwrap().len()), (None, 0));
        assert!(front.markdown().contains("| 0.0000 | – |"));
    }
}
