//! How fast runs were: tokens a second, and the time of a token to that of the first cell.

use std::collections::BTreeMap;
use std::path::Path;

use segue_configs::sweep::Sweep;
use segue_trainer::report::{Interval, median, read_metrics};
use serde_json::Value;

use super::super::child::write_whole;
use super::job::Job;
use crate::failure::Failure;
use crate::output::Output;

/// End of the name of a rate in the rows of a run.
const RATE: &str = "_per_s";

/// The runs of a cell.
#[derive(Default)]
struct Pace {
    label: String,
    parameters: Option<u64>,
    /// Of each seed, tokens a second, or what else its runs count.
    seeds: BTreeMap<u64, f64>,
}

impl Pace {
    /// Time of a token to that of `first`, seed by seed.
    fn time_to(&self, first: &Pace) -> Option<Interval> {
        let ratio = |(seed, rate): (&u64, &f64)| Some(first.seeds.get(seed)? / rate);
        Interval::of(&self.seeds.iter().filter_map(ratio).collect::<Vec<_>>())
    }
}

/// The median rate of a run's rows, but for the first, in which everything is made for the first time.
fn rate_of(rows: &[Value]) -> Option<f64> {
    let rate = |row: &Value| row.as_object()?.iter().find(|(name, _)| name.ends_with(RATE))?.1.as_f64();
    let rates: Vec<f64> = rows.iter().filter(|row| row["kind"] == "train").filter_map(rate).collect();
    let later = if rates.len() > 1 { &rates[1..] } else { &rates[..] };
    (!later.is_empty()).then(|| median(later))
}

/// Writes `speed.md` of what is there, and says it. Records outlive run folders: runs without one are left out.
pub fn write(sweep: &Sweep, jobs: &[Job], output: &Path, out: &Output) -> Result<(), Failure> {
    let mut paces = Vec::new();
    for (number, cell) in sweep.cells.iter().enumerate() {
        let of_cell = || jobs.iter().filter(|job| job.cell == number && job.values().is_some());
        let rate = |job: &Job| Some((job.seed, rate_of(&read_metrics(&job.run).ok()?)?));
        let parameters = of_cell().find_map(Job::parameters);
        paces.push(Pace {
            label: cell.label.clone(),
            parameters,
            seeds: of_cell().filter_map(rate).collect(),
        });
    }
    table(&paces).lines().for_each(|line| out.line(line));
    write_whole(&output.join("speed.md"), &format!("# {}: speed\n\n{}", sweep.name, table(&paces)))
}

/// Rates of the cells, and times of a token to the first one's.
fn table(paces: &[Pace]) -> String {
    let first = paces.first().map_or(String::new(), |pace| pace.label.clone());
    let mut text = format!(
        "| cell | parameters | seeds | tokens/s | time of a token, {first} = 1 |\n|---|---|---|---|---|\n"
    );
    for pace in paces {
        let dash = || "–".to_string();
        let rates = Interval::of(&pace.seeds.values().copied().collect::<Vec<_>>());
        let time = paces.first().and_then(|first| pace.time_to(first));
        text.push_str(&format!(
            "| {} | {} | {} | {} | {} |\n",
            pace.label,
            pace.parameters.map_or_else(dash, |count| count.to_string()),
            pace.seeds.len(),
            rates.map_or_else(dash, |rate| format!("{:.0}", rate.median)),
            time.map_or_else(dash, |time| time.text_with_median()),
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn m21_times_of_a_token_are_paired_by_seed() {
        let row = |rate: f64| json!({ "kind": "train", "step": 1, "tokens_per_s": rate, "tokens": 7 });
        let rows =
            [row(10.0), row(100.0), json!({ "kind": "eval", "tokens_per_s": 1.0 }), row(140.0), row(120.0)];
        assert_eq!(rate_of(&rows), Some(120.0));
        assert_eq!((rate_of(&rows[..1]), rate_of(&[])), (Some(10.0), None));
        let pace = |label: &str, seeds: &[(u64, f64)]| Pace {
            label: label.into(),
            parameters: Some(1000),
            seeds: seeds.iter().copied().collect(),
        };
        // 120 / 100 and 110 / 100; a seed that only one of them has counts in no ratio.
        let text = table(&[
            pace("LSTM", &[(1, 120.0), (2, 110.0), (3, 7.0)]),
            pace("rewired", &[(1, 100.0), (2, 100.0)]),
            Pace { label: "none".into(), ..Default::default() },
        ]);
        assert!(text.contains("| LSTM | 1000 | 3 | 110 | 1.00 (1.00 ± 0.00) |"), "{text}");
        assert!(text.contains("| rewired | 1000 | 2 | 100 | 1.15 (1.15 ± 0.64) |"), "{text}");
        assert!(text.contains("| none | – | 0 | – | – |"), "{text}");
    }
}
