//! The table of a sweep whose runs evaluate themselves.

use std::collections::BTreeSet;

use super::ablation::{Row, Summary};
use super::compared::{Compared, column};

/// Measures that come first, in this order; others follow.
const FIRST: [&str; 3] = ["ppl", "accuracy", "loss"];
/// A count, the same with every seed: the trained values of a run.
pub const PARAMETERS: &str = "parameters";

/// Whose numbers columns of protocols are.
const OF_PROTOCOLS: &str = "\n\
    Columns that begin with a split are of the model that `segue eval` opens: the best one of a run that keeps it, else the last one. Where weights\n\
    diverged as they adapted, they tell of how many seeds they are, or have a dash.";

/// Medians with mean and interval over seeds, and beside them what is published.
pub fn markdown(summary: &Summary) -> String {
    let first = summary.compared.name();
    let measures =
        columns(first, summary.rows.iter().flat_map(|row| row.measures.keys().chain(&row.columns)));
    let scores = columns(first, summary.rows.iter().flat_map(|row| row.published.scores.keys()));
    let fractions: BTreeSet<&String> = summary.rows.iter().flat_map(|row| &row.fractions).collect();
    let mut text = format!("# {}\n\n{}\n\n", summary.name, introduction(summary));
    let heads =
        |names: &mut dyn Iterator<Item = String>| names.map(|name| format!(" {name} |")).collect::<String>();
    text.push_str(&format!(
        "| cell | seeds |{} published row |{}\n",
        heads(&mut measures.iter().map(|name| column(name, &fractions).0)),
        heads(&mut scores.iter().map(|name| name.to_string()))
    ));
    text.push_str(&format!(
        "|---|---|{}---|{}\n",
        "---|".repeat(measures.len()),
        "---|".repeat(scores.len())
    ));
    for row in &summary.rows {
        text.push_str(&line(row, &measures, &scores, &fractions));
    }
    text
}

fn introduction(summary: &Summary) -> String {
    let of_runs = match &summary.compared {
        Compared::Perplexity => {
            "The last evaluation of each run, of its own objective, or the best of weights that are averaged in stages: median over seeds, with mean and 95 %\n\
             confidence interval.\n\
             Losses of different objectives, shares of targets or kinds of spans cannot be compared with each other."
                .to_string()
        }
        Compared::Accuracy => {
            "The last evaluation of each run: median over seeds, with mean and 95 % confidence interval. Higher is better.\n\
             What is published stands in the last columns."
                .to_string()
        }
        Compared::Metric { name, .. } => {
            let [better, _] = summary.compared.sides();
            format!(
                "The best evaluation of each run, by {name}, of which {better} is better, and the scores of the model that it keeps: median over seeds, with mean\n\
                 and 95 % confidence interval. The best of several evaluations is so by luck too."
            )
        }
    };
    let by_protocols = summary.rows.iter().any(|row| !row.columns.is_empty());
    of_runs + if by_protocols { OF_PROTOCOLS } else { "" }
}

fn line(row: &Row, measures: &[&str], scores: &[&str], fractions: &BTreeSet<&String>) -> String {
    let cell = |text: Option<String>| format!(" {} |", text.unwrap_or("–".into()));
    let seeds = row.measures.values().map(|interval| interval.count).max().unwrap_or(0);
    let shown = |name: &str| {
        let found = row.measures.get(name)?;
        match name {
            PARAMETERS => Some(format!("{:.0}", found.median)),
            _ => {
                let text = found.scaled(column(name, fractions).1).text_with_median();
                let few = found.count < seeds;
                Some(if few { format!("{text}, {} of {seeds}", found.count) } else { text })
            }
        }
    };
    let found = measures.iter().map(|name| cell(shown(name)));
    let published =
        scores.iter().map(|name| cell(row.published.scores.get(*name).map(|s| format!("{s:.2}"))));
    let name = if row.published.row.is_empty() { "–" } else { &row.published.row };
    format!(
        "| {} | {seeds} |{} {name} |{}\n",
        row.label,
        found.collect::<String>(),
        published.collect::<String>()
    )
}

/// Different names: the counts of parameters, what cells are compared by, other known ones, the rest.
fn columns<'a>(compared: &'a str, names: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
    let all: BTreeSet<&str> = names.map(String::as_str).collect();
    let mut known = vec![PARAMETERS, compared];
    known.extend(FIRST.iter().filter(|name| **name != compared));
    let first = known.iter().copied().filter(|name| all.contains(name));
    let rest = all.iter().copied().filter(|name| !known.contains(name));
    first.chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use segue_configs::sweep::{Expectation, PublishedRow};

    use super::super::ablation::CellResult;
    use super::*;

    fn cell(label: &str, scores: &[(&str, f64)], values: &[f64]) -> CellResult {
        let by_seed =
            |f: &dyn Fn(f64) -> f64| (1..).zip(values.iter().map(|v| f(*v))).collect::<BTreeMap<u64, f64>>();
        let measure = |(seed, ppl): (u64, f64)| {
            (seed, [("ppl".to_string(), ppl), ("accuracy".to_string(), ppl / 100.0)].into())
        };
        CellResult {
            label: label.into(),
            init: 8,
            published: PublishedRow {
                row: format!("row of {label}"),
                scores: scores.iter().map(|(name, score)| (name.to_string(), *score)).collect(),
                ..Default::default()
            },
            columns: BTreeSet::new(),
            fractions: BTreeSet::new(),
            values: by_seed(&|v| v).into_iter().map(|(seed, v)| (seed, [(8, v)].into())).collect(),
            measures: by_seed(&|v| v).into_iter().map(measure).collect(),
        }
    }

    /// Row X30.
    #[test]
    fn medians_stand_beside_what_is_published() {
        let cells = [
            cell("full", &[("RACE", 66.66)], &[20.0, 21.0, 22.0, 23.0, 99.0]),
            cell("no memory", &[("RACE", 65.55), ("EM", 77.27)], &[30.0, 31.0, 32.0, 33.0, 109.0]),
            cell("failed", &[], &[]),
        ];
        let order = Expectation { better: "full".into(), than: "no memory".into(), ..Default::default() };
        let text = Summary::new("Test", &cells, &[order]).markdown();
        // Deviations from the mean 37: 17, 16, 15, 14 and 62; their squares sum to 4810, so that ± is
        // 2.7764 · sqrt(4810 / 4) / sqrt(5) = 43.06.
        let golden = "\
| cell | seeds | ppl | accuracy, % | published row | EM | RACE |
|---|---|---|---|---|---|---|
| full | 5 | 22.00 (37.00 ± 43.06) | 22.00 (37.00 ± 43.06) | row of full | – | 66.66 |
| no memory | 5 | 32.00 (47.00 ± 43.06) | 32.00 (47.00 ± 43.06) | row of no memory | 77.27 | 65.55 |
| failed | 0 | – | – | row of failed | – | – |

## Expected orders

The difference of perplexities is paired by seed; above 0 is as expected.

| lower | higher | difference | verdict |
|---|---|---|---|
| full | no memory | 10.00 ± 0.00 | holds |
";
        assert!(text.ends_with(golden), "{text}");
    }

    /// Weights that diverge as they adapt, with one seed and with all.
    /// Row M19.
    #[test]
    fn columns_of_fewer_seeds_say_so_and_those_of_none_have_a_dash() {
        let mut cells = [cell("LSTM", &[], &[20.0, 22.0, 24.0])];
        cells[0].columns =
            ["static", "dynamic", "dynamic MC"].map(|name| format!("valid ppl, {name}")).into();
        for (seed, measures) in &mut cells[0].measures {
            measures.remove("accuracy");
            measures.insert("valid ppl, static".into(), 10.0);
            if *seed != 2 {
                measures.insert("valid ppl, dynamic".into(), 8.0);
            }
        }
        let text = Summary::new("Test", &cells, &[]).markdown();
        let golden = "\
| cell | seeds | ppl | valid ppl, dynamic | valid ppl, dynamic MC | valid ppl, static | published row |
|---|---|---|---|---|---|---|
| LSTM | 3 | 22.00 (22.00 ± 4.97) | 8.00 (8.00 ± 0.00), 2 of 3 | – | 10.00 (10.00 ± 0.00) | row of LSTM |
";
        assert!(text.ends_with(golden) && text.contains("the model that `segue eval` opens"), "{text}");
    }

    /// One cell with itself, by the seeds that have both columns.
    /// Row M15.
    #[test]
    fn a_cell_is_compared_with_itself_by_two_columns() {
        let mut cells = [cell("LSTM", &[], &[20.0, 22.0, 24.0])];
        for (seed, dynamic) in [(1, 7.0), (3, 9.0)] {
            cells[0].measures.get_mut(&seed).unwrap().insert("valid ppl, dynamic".into(), dynamic);
        }
        for (seed, measures) in &mut cells[0].measures {
            measures.insert("valid ppl, static".into(), 8.0 + *seed as f64);
        }
        let [dynamic, fixed] = ["dynamic", "static"].map(|name| Some(format!("valid ppl, {name}")));
        let (better, than) = ("LSTM".to_string(), "LSTM".to_string());
        let order = Expectation { better, than, column: dynamic, than_column: fixed, ..Default::default() };
        let text = Summary::new("Test", &cells, &[order]).markdown();
        let golden = "\
The difference of perplexities is paired by seed; above 0 is as expected. Columns in brackets have their own unit.

| lower | higher | difference | verdict |
|---|---|---|---|
| LSTM (valid ppl, dynamic) | LSTM (valid ppl, static) | 2.00 ± 0.00 | holds |
";
        assert!(text.ends_with(golden), "{text}");
    }

    /// Cells without perplexities: percents, of which the higher is the better.
    #[test]
    fn accuracies_stand_in_percent_and_the_higher_is_better() {
        let accurate = |label: &str, values: &[f64]| {
            let mut cell = cell(label, &[("accuracy, %", 75.7)], values);
            for measures in cell.measures.values_mut() {
                measures.remove("ppl");
            }
            for (seed, measures) in &cell.measures {
                cell.values.insert(*seed, [(8, measures["accuracy"])].into());
            }
            cell
        };
        let order = |better: &str, than: &str| Expectation {
            better: better.into(),
            than: than.into(),
            ..Default::default()
        };
        let cells = [accurate("graph", &[64.0, 65.0, 66.0]), accurate("both", &[74.0, 75.0, 76.0])];
        let summary = Summary::new("Test", &cells, &[order("both", "graph"), order("graph", "both")]);
        // A standard deviation of 1, so ± 4.3027 / sqrt(3) = 2.48 points.
        let golden = "\
| cell | seeds | accuracy, % | published row | accuracy, % |
|---|---|---|---|---|
| graph | 3 | 65.00 (65.00 ± 2.48) | row of graph | 75.70 |
| both | 3 | 75.00 (75.00 ± 2.48) | row of both | 75.70 |

## Expected orders

The difference of accuracies, in points, is paired by seed; above 0 is as expected.

| higher | lower | difference | verdict |
|---|---|---|---|
| both | graph | 10.00 ± 0.00 | holds |
| graph | both | -10.00 ± 0.00 | violated |
";
        let text = summary.markdown();
        assert!(text.ends_with(golden) && text.contains("Higher is better"), "{text}");
        assert_eq!(serde_json::json!(summary)["compared"], "accuracy");
    }
}
