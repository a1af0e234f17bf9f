use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use segue_report::{LineChart, Point, Series, read_metrics};
use serde_json::{Value, json};

use crate::failure::{Failure, USAGE};
use crate::folder::{Force, ResultFolder};
use crate::output::Output;

/// What evaluations are shown by, where the command line does not say: the first of these that they have.
const MEASURES: [&str; 4] = ["ppl", "value", "loss", "accuracy"];
/// The one that is e to the power of the loss which weight sets are compared by.
const PERPLEXITY: &str = "ppl";

/// Arguments of `segue inspect run`.
#[derive(Args)]
#[command(after_help = "\
    Reads metrics.jsonl, of a run that still goes on too. Where an average of the weights is kept, the \
    weight sets that were compared have a line each. Of a run that fine-tunes in stages, what each stage \
    came to is told too.\n\n\
    Examples:\n  \
    segue inspect run runs/wikitext2\n  \
    segue inspect run runs/a runs/b --labels 'with memory' without \\\n      \
    --output curves")]
pub struct RunArgs {
    /// Run folders.
    #[arg(required = true, value_name = "DIR")]
    runs: Vec<PathBuf>,
    /// Names of the runs in charts and tables [default: their folders' names].
    #[arg(long, num_args = 1.., value_name = "TEXT")]
    labels: Vec<String>,
    /// Measure of the evaluations to show [default: ppl, value, loss or accuracy, the first that they have].
    #[arg(long, value_name = "NAME")]
    measure: Option<String>,
    /// Leave out what came before this step: first losses are so large that later ones look alike.
    #[arg(long, value_name = "STEP", default_value_t = 0)]
    from: u64,
    /// Folder for `run.json`, `evaluations.csv`, `training.svg` and `evaluations.svg`.
    #[arg(long)]
    output: Option<PathBuf>,
    #[command(flatten)]
    force: Force,
}

/// One line of a chart: a weight set, or what was reported, by step.
struct Curve {
    label: String,
    points: Vec<(u64, f64)>,
}

/// Prints the evaluations of runs, and draws them where asked.
pub fn run(args: &RunArgs, out: &Output) -> Result<Value, Failure> {
    if !args.labels.is_empty() && args.labels.len() != args.runs.len() {
        let message = "the numbers of --labels and runs differ\nhint: give a label to every run, or to none";
        return Err(Failure::new(USAGE, message));
    }
    let folder = args.output.as_deref().map(|path| ResultFolder::of_output(path, args.force)).transpose()?;
    let mut rows = Vec::new();
    for (i, run) in args.runs.iter().enumerate() {
        let label = args.labels.get(i).cloned().unwrap_or_else(|| name_of(run));
        let mut own = read_metrics(run)?;
        own.retain(|row| row["step"].as_u64() >= Some(args.from));
        rows.push((label, own));
    }
    let training: Vec<Curve> = rows.iter().map(|(label, rows)| losses(label, rows)).collect();
    let measure = measure(args.measure.as_deref(), &rows)?;
    let named = rows.len() > 1;
    let evaluations: Vec<Curve> =
        rows.iter().flat_map(|(label, rows)| evaluations(named.then_some(label), rows, &measure)).collect();
    print(&evaluations, &measure, out);
    let stages: Vec<Vec<Value>> = rows.iter().map(|(_, rows)| stages(rows, &measure)).collect();
    for ((label, _), stages) in rows.iter().zip(&stages) {
        stages.iter().for_each(|stage| out.line(&described(stage, named.then_some(label), &measure)));
    }
    let as_json = |curves: &[Curve]| -> Vec<Value> {
        curves.iter().map(|curve| json!({ "label": curve.label, "points": curve.points })).collect()
    };
    let result = json!({
        "runs": args.runs,
        "measure": measure,
        "training": as_json(&training),
        "evaluations": as_json(&evaluations),
        "stages": stages,
    });
    if let Some(folder) = folder {
        folder.write_json("run.json", &result)?;
        let row =
            |label: &str, (step, value): (u64, f64)| vec![label.into(), step.to_string(), value.to_string()];
        let cells = evaluations.iter().flat_map(|curve| curve.points.iter().map(|p| row(&curve.label, *p)));
        folder.write_csv("evaluations.csv", &["weights", "step", &measure], &cells.collect::<Vec<_>>())?;
        folder.write("training.svg", &chart("Training", "loss", &training).svg())?;
        folder.write("evaluations.svg", &chart("Evaluation", &measure, &evaluations).svg())?;
        out.line(&format!("written to {}", folder.path().display()));
    }
    Ok(result)
}

fn name_of(run: &Path) -> String {
    run.file_name().unwrap_or(run.as_os_str()).to_string_lossy().into_owned()
}

fn of_kind<'a>(rows: &'a [Value], kind: &str) -> impl Iterator<Item = (u64, &'a Value)> {
    let rows = rows.iter().filter(move |row| row["kind"] == kind);
    rows.filter_map(|row| Some((row["step"].as_u64()?, row)))
}

fn losses(label: &str, rows: &[Value]) -> Curve {
    let points = of_kind(rows, "train").filter_map(|(step, row)| Some((step, row["loss"].as_f64()?)));
    Curve { label: label.into(), points: points.collect() }
}

/// The measure that is asked for, or the first that the evaluations have.
fn measure(asked: Option<&str>, rows: &[(String, Vec<Value>)]) -> Result<String, Failure> {
    let evaluations = || rows.iter().flat_map(|(_, rows)| of_kind(rows, "eval"));
    let has = |name: &str| evaluations().any(|(_, row)| row[name].is_number());
    let found =
        asked.map_or_else(|| MEASURES.into_iter().find(|name| has(name)), |name| has(name).then_some(name));
    match found {
        Some(name) => Ok(name.into()),
        // Nothing has been evaluated yet: the losses of training are of interest all the same.
        None if asked.is_none() && evaluations().next().is_none() => Ok(MEASURES[0].into()),
        None => {
            let numbers = |row: &Value| -> Vec<String> {
                let fields = row.as_object().into_iter().flatten();
                let numbers =
                    fields.filter(|(name, value)| value.is_number() && *name != "step" && *name != "attempt");
                numbers.map(|(name, _)| name.clone()).collect()
            };
            let known = evaluations().next().map(|(_, row)| numbers(row)).unwrap_or_default();
            let message = format!(
                "no evaluation has `{}`\nhint: --measure takes one of {}",
                asked.unwrap_or(MEASURES[0]),
                known.join(", ")
            );
            Err(Failure::new(USAGE, message))
        }
    }
}

/// What was reported, and each weight set that was compared.
fn evaluations(run: Option<&String>, rows: &[Value], measure: &str) -> Vec<Curve> {
    let named = |what: &str| match run {
        Some(run) if what.is_empty() => run.clone(),
        Some(run) => format!("{run}: {what}"),
        None if what.is_empty() => measure.to_string(),
        None => what.to_string(),
    };
    let mut sets: BTreeMap<&str, Vec<(u64, f64)>> = BTreeMap::new();
    let mut reported = Vec::new();
    for (step, row) in of_kind(rows, "eval") {
        reported.extend(row[measure].as_f64().map(|value| (step, value)));
        for (set, loss) in row["average"]["losses"].as_object().into_iter().flatten() {
            let value = loss.as_f64().map(|loss| if measure == PERPLEXITY { loss.exp() } else { loss });
            sets.entry(set).or_default().extend(value.map(|value| (step, value)));
        }
    }
    let mut curves =
        vec![Curve { label: named(if sets.is_empty() { "" } else { "reported" }), points: reported }];
    curves.extend(sets.into_iter().map(|(set, points)| Curve { label: named(set), points }));
    curves
}

/// The stages of a run that have ended, each with the best evaluation until then.
fn stages(rows: &[Value], measure: &str) -> Vec<Value> {
    let ends = of_kind(rows, "eval").filter(|(_, row)| row["stage"]["ended"] == true);
    let stage = |(step, row): (u64, &Value)| {
        let stage = &row["stage"];
        let best = of_kind(rows, "eval").find(|(at, _)| Some(*at) == stage["best_step"].as_u64());
        json!({
            "name": stage["name"],
            "round": stage["round"],
            "ended_after": step,
            "best_step": stage["best_step"],
            "loss": stage["best"],
            measure: best.map(|(_, row)| &row[measure]),
        })
    };
    ends.map(stage).collect()
}

fn described(stage: &Value, run: Option<&String>, measure: &str) -> String {
    let number = stage["round"].as_u64().unwrap_or(0) + 1;
    let run = run.map_or(String::new(), |run| format!("{run}: "));
    let name = stage["name"].as_str().unwrap_or_default().replace('_', "-");
    let value = stage[measure].as_f64().unwrap_or(f64::NAN);
    format!(
        "{run}stage {number} ({name}) ended after step {}: {measure} {value:.4} after step {}",
        stage["ended_after"], stage["best_step"]
    )
}

fn print(curves: &[Curve], measure: &str, out: &Output) {
    let mut steps: Vec<u64> =
        curves.iter().flat_map(|curve| curve.points.iter().map(|(step, _)| *step)).collect();
    steps.sort_unstable();
    steps.dedup();
    let width = |curve: &Curve| curve.label.chars().count().max(10);
    let head: String = curves.iter().map(|curve| format!("  {:>1$}", curve.label, width(curve))).collect();
    out.line(&format!("{:>9}{head}", "step"));
    for step in steps {
        let cell = |curve: &Curve| {
            let value =
                curve.points.iter().rev().find(|(at, _)| *at == step).map(|(_, value)| format!("{value:.4}"));
            format!("  {:>1$}", value.unwrap_or_default(), width(curve))
        };
        out.line(&format!("{step:>9}{}", curves.iter().map(cell).collect::<String>()));
    }
    out.line(&format!("evaluations by {measure}"));
}

fn chart(title: &str, y: &str, curves: &[Curve]) -> LineChart {
    curves.iter().filter(|curve| !curve.points.is_empty()).fold(
        LineChart::new(title, "step", y),
        |chart, curve| {
            let points = curve.points.iter().map(|(step, value)| Point::from((*step as f64, *value)));
            chart.with(Series::new(&curve.label, points.collect()))
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Value> {
        vec![
            json!({ "kind": "train", "step": 5, "loss": 3.0 }),
            json!({ "kind": "eval", "step": 5, "loss": 2.0, "ppl": 7.0 }),
            json!({ "kind": "eval", "step": 10, "loss": 1.5, "ppl": 4.5,
                    "average": { "weights": "long", "losses": { "trained": 2.0, "long": 1.5 } } }),
        ]
    }

    #[test]
    fn weight_sets_have_a_line_each() {
        let found: Vec<(String, Vec<(u64, f64)>)> =
            evaluations(None, &rows(), "loss").into_iter().map(|curve| (curve.label, curve.points)).collect();
        let expected = [
            ("reported", vec![(5, 2.0), (10, 1.5)]),
            ("long", vec![(10, 1.5)]),
            ("trained", vec![(10, 2.0)]),
        ];
        assert_eq!(found, expected.map(|(label, points)| (label.to_string(), points)));
        let perplexities = &evaluations(Some(&"a".into()), &rows(), "ppl")[2];
        assert_eq!((perplexities.label.as_str(), perplexities.points[0].1), ("a: trained", 2f64.exp()));
        assert_eq!(losses("x", &rows()).points, [(5, 3.0)]);
    }

    /// Row S27.
    #[test]
    fn a_stage_came_to_its_best_evaluation() {
        let mut rows = rows();
        rows.push(json!({ "kind": "eval", "step": 15, "loss": 1.8, "ppl": 6.0, "stage":
            { "name": "averaging", "round": 0, "ended": true, "best": 1.5, "best_step": 10 } }));
        let found = stages(&rows, "ppl");
        assert_eq!(
            found,
            [json!({ "name": "averaging", "round": 0, "ended_after": 15, "best_step": 10,
                                   "loss": 1.5, "ppl": 4.5 })]
        );
        let told = described(&found[0], None, "ppl");
        assert_eq!(told, "stage 1 (averaging) ended after step 15: ppl 4.5000 after step 10");
    }

    #[test]
    fn the_measure_is_one_that_evaluations_have() {
        let runs = [("a".to_string(), rows())];
        assert_eq!(measure(None, &runs).unwrap(), "ppl");
        assert_eq!(measure(Some("loss"), &runs).unwrap(), "loss");
        let failure = measure(Some("accuracy"), &runs).unwrap_err();
        assert!(failure.code == USAGE && failure.hint.is_some_and(|hint| hint.contains("loss, ppl")));
        assert_eq!(measure(None, &[("a".to_string(), Vec::new())]).unwrap(), "ppl");
    }
}
