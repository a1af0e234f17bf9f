//! How fast runs were: tokens a second, or what else they count, and the time of one to that of the first cell.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use segue_configs::sweep::Sweep;
use segue_report::{Interval, median, read_metrics};
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
    /// What its runs count: `tokens`.
    counted: Option<String>,
    /// How many a second, by seed.
    seeds: BTreeMap<u64, f64>,
}

impl Pace {
    /// Time of a token to that of `first`, seed by seed; none where they count different things.
    fn time_to(&self, first: &Pace) -> Option<Interval> {
        if self.counted != first.counted {
            return None;
        }
        let ratio = |(seed, rate): (&u64, &f64)| Some(first.seeds.get(seed)? / rate);
        Interval::of(&self.seeds.iter().filter_map(ratio).collect::<Vec<_>>())
    }
}

/// What a run counts, and the median of its rates over rows but for the first of each attempt, in which everything is made for the first time; over all
/// rows where there are no others.
fn rate_of(rows: &[Value]) -> Option<(String, f64)> {
    let mut attempts = BTreeSet::new();
    let (mut counted, mut all, mut later) = (None, Vec::new(), Vec::new());
    for row in rows.iter().filter(|row| row["kind"] == "train") {
        let mut fields = row.as_object()?.iter();
        let found = fields.find_map(|(name, rate)| Some((name.strip_suffix(RATE)?, rate.as_f64()?)));
        let Some((name, rate)) = found else { continue };
        counted = Some(name.to_string());
        all.push(rate);
        if !attempts.insert(row["attempt"].as_u64()) {
            later.push(rate);
        }
    }
    Some((counted?, median(if later.is_empty() { &all } else { &later })))
}

/// Writes `speed.md` of what is there, and says it. Records outlive run folders: runs without one are left out.
pub fn write(sweep: &Sweep, jobs: &[Job], output: &Path, out: &Output) -> Result<(), Failure> {
    let mut paces = Vec::new();
    for (number, cell) in sweep.cells.iter().enumerate() {
        let of_cell = || jobs.iter().filter(|job| job.cell == number && job.values().is_some());
        let rate = |job: &Job| Some((job.seed, rate_of(&read_metrics(&job.run).ok()?)?));
        let parameters = of_cell().find_map(Job::parameters);
        let mut pace = Pace { label: cell.label.clone(), parameters, ..Default::default() };
        for (seed, (counted, rate)) in of_cell().filter_map(rate) {
            pace.counted = Some(counted);
            pace.seeds.insert(seed, rate);
        }
        paces.push(pace);
    }
    table(&paces).lines().for_each(|line| out.line(line));
    write_whole(&output.join("speed.md"), &format!("# {}: speed\n\n{}", sweep.name, table(&paces)))
}

/// Rates of the cells, and times of a token to the first one's. Rates of what the head does not name say so.
fn table(paces: &[Pace]) -> String {
    let first = paces.first().map_or(String::new(), |pace| pace.label.clone());
    let counted = paces.iter().find_map(|pace| pace.counted.clone()).unwrap_or_else(|| "tokens".into());
    let one = counted.strip_suffix('s').unwrap_or(&counted);
    let mut text = format!(
        "| cell | parameters | seeds | {counted}/s | time per {one}, {first} = 1 |\n|---|---|---|---|---|\n"
    );
    let unit = |pace: &Pace| match &pace.counted {
        Some(other) if *other != counted => format!(" {other}/s"),
        _ => String::new(),
    };
    for pace in paces {
        let dash = || "–".to_string();
        let rates = Interval::of(&pace.seeds.values().copied().collect::<Vec<_>>());
        let time = paces.first().and_then(|first| pace.time_to(first));
        text.push_str(&format!(
            "| {} | {} | {} | {} | {} |\n",
            pace.label,
            pace.parameters.map_or_else(dash, |count| count.to_string()),
            pace.seeds.len(),
            rates.map_or_else(dash, |rate| format!("{:.0}", rate.median) + &unit(pace)),
            time.map_or_else(dash, |time| time.text_with_median()),
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Row M21.
    #[test]
    fn times_of_a_token_are_paired_by_seed() {
        let row = |attempt: u64, rate: f64| json!({ "kind": "train", "attempt": attempt, "tokens_per_s": rate, "tokens": 7 });
        let eval = json!({ "kind": "eval", "tokens_per_s": 1.0 });
        // Each attempt warms up.
        let rows = [row(1, 10.0), row(1, 100.0), eval, row(1, 140.0), row(2, 5.0), row(2, 120.0)];
        let tokens = |rate: f64| Some(("tokens".to_string(), rate));
        assert_eq!(rate_of(&rows), tokens(120.0));
        assert_eq!((rate_of(&rows[..1]), rate_of(&[])), (tokens(10.0), None));
        let pace = |label: &str, seeds: &[(u64, f64)]| Pace {
            label: label.into(),
            parameters: Some(1000),
            counted: Some("tokens".into()),
            seeds: seeds.iter().copied().collect(),
        };
        // 120 / 100 and 110 / 100; a seed that only one of them has counts in no ratio.
        let text = table(&[
            pace("LSTM", &[(1, 120.0), (2, 110.0), (3, 7.0)]),
            pace("rewired", &[(1, 100.0), (2, 100.0)]),
            Pace { label: "none".into(), ..Default::default() },
            Pace { counted: Some("steps".into()), ..pace("graph", &[(1, 30.0)]) },
        ]);
        assert!(text.contains("| seeds | tokens/s | time per token, LSTM = 1 |"), "{text}");
        assert!(text.contains("| graph | 1000 | 1 | 30 steps/s | – |"), "{text}");
        let graphs = table(&[Pace { counted: Some("steps".into()), ..pace("graph", &[(1, 30.0)]) }]);
        assert!(graphs.contains("| steps/s | time per step, graph = 1 |"), "{graphs}");
        assert!(text.contains("| LSTM | 1000 | 3 | 110 | 1.00 (1.00 ± 0.00) |"), "{text}");
        assert!(text.contains("| rewired | 1000 | 2 | 100 | 1.15 (1.15 ± 0.64) |"), "{text}");
        assert!(text.contains("| none | – | 0 | – | – |"), "{text}");
    }
}
