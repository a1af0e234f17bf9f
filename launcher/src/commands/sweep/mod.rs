use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::Args;
use segue_cluster::Preemption;
use segue_cluster::pool::{Event, Runner, run_all};
use segue_configs::counted;
use segue_configs::sweep::{Protocol, Sweep};
use segue_engine::Better;
use segue_report::{CellResult, Compared, Interval, IntervalChart, Summary, csv_line};
use segue_task::LeadMetric;
use serde_json::{Value, json};

use self::evaluation::fractions;
use self::job::{Job, Outcome, measure_of};
use super::at_least_one;
use super::child::{Unfinished, make_folders, with_log, write_whole};
use crate::failure::{CHECK_FAILED, Failure, PREEMPTED};
use crate::output::{Output, Unit};
use crate::run_folder::lock;

mod curves;
mod evaluation;
mod job;
mod speed;

/// Arguments of `segue sweep`.
#[derive(Args)]
#[command(after_help = "\
    The same command goes on where a sweep was interrupted: runs that are done are not made again, others \
    resume. SIGTERM or Ctrl-C stop it after checkpoints, with exit code 75.\n\n\
    Example:\n  \
    segue sweep configs/sweeps/ablation-wikitext2.toml --workers 2 \\\n      \
    data.corpus=corpora/wikitext2")]
pub struct SweepArgs {
    /// Sweep, a TOML file.
    sweep: PathBuf,
    /// Number of concurrent runs.
    #[arg(long, default_value_t = 1, value_parser = at_least_one)]
    workers: usize,
    /// Folder for runs and results [default: the sweep's `output`].
    #[arg(long)]
    output: Option<PathBuf>,
    /// List the runs and exit.
    #[arg(long)]
    list: bool,
    /// Overrides of every cell, by dotted name.
    #[arg(value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

/// Trains and evaluates every cell with every seed, and writes table, chart and numbers.
pub fn run(args: SweepArgs, out: &Output) -> Result<Value, Failure> {
    let sweep = Sweep::load(&segue_families::MODELS, &args.sweep, &args.overrides)?;
    let output = args.output.unwrap_or_else(|| sweep.output.clone());
    let jobs = job::all(&sweep, &output)?;
    if args.list {
        return Ok(list(&sweep, &jobs, out));
    }
    let preemption = Preemption::install()?;
    let _lock = lock(&output)?;
    make_folders(&output, &["runs", "results", "logs"])?;
    let outcomes = work_off(&jobs, args.workers, &preemption, out)?;
    let results = results(&sweep, &jobs)?;
    let summary = match measure_of(&jobs).of_task() {
        None => Summary::new(&sweep.name, &results, &sweep.expectations),
        Some(metric) => Summary::by(compared(metric), &sweep.name, &results, &sweep.expectations),
    };
    write_reports(&summary, &jobs, &output)?;
    if sweep.curves {
        curves::write(&sweep, &jobs, &output, out)?;
    }
    if sweep.speed {
        speed::write(&sweep, &jobs, &output, out)?;
    }
    Ok(finish(&summary, &jobs, &outcomes, &output, out))
}

/// The metric of a task as what cells are compared by.
fn compared(metric: &LeadMetric) -> Compared {
    Compared::Metric {
        name: metric.name.clone(),
        higher: metric.better == Better::Higher,
        fraction: metric.is_fraction(&metric.name),
    }
}

/// Runs the jobs. `None` for those that were not begun.
fn work_off(
    jobs: &[Job],
    workers: usize,
    preemption: &Preemption,
    out: &Output,
) -> Result<Vec<Option<Outcome>>, Failure> {
    let bar = out.progress(jobs.iter().map(Job::commands).sum(), Unit::Steps, "sweep");
    let mut done: Vec<u64> = jobs.iter().map(Job::commands_done).collect();
    bar.resume_at(done.iter().sum());
    let mut outcomes: Vec<Option<Outcome>> = jobs.iter().map(|_| None).collect();
    let mut hear = |event: Event<Outcome>| {
        match event {
            Event::Started(i) => bar.message(&jobs[i].name()),
            Event::Progress(i) => done[i] = (done[i] + 1).min(jobs[i].commands()),
            Event::Finished(i, outcome) => {
                let words = match &outcome {
                    Ok(evaluations) => told(&jobs[i], *evaluations) + &lost(&jobs[i]),
                    Err(unfinished) => unfinished.to_string(),
                };
                out.line(&format!("{}: {words}", jobs[i].name()));
                outcomes[i] = Some(outcome);
            }
        }
        bar.set(done.iter().sum());
    };
    let work = async |i: usize, runner: &Runner<'_, Outcome>| jobs[i].work(runner).await;
    run_all(jobs.len(), workers, &|| preemption.requested(), work, &mut hear)?;
    Ok(outcomes)
}

/// What became of a run, in words: the value of one on a task or by its own evaluation, the number of evaluations of any other.
fn told(job: &Job, evaluations: usize) -> String {
    let value = job.values().and_then(|values| values.into_values().next());
    match (value, evaluations) {
        (Some(value), _) if job.measure().of_task().is_some() => {
            format!("trained, {}", job.measure().words(value))
        }
        (Some(value), 0) => format!("trained, {}", named(&job.measures(), value)),
        _ => format!("trained, {}", counted(evaluations, "evaluation")),
    }
}

/// A value with the name that it has among measures.
fn named(measures: &BTreeMap<String, f64>, value: f64) -> String {
    let name = measures.iter().find(|(_, of)| **of == value).map(|(name, _)| name.as_str());
    format!("{} {value:.4}", name.unwrap_or("value"))
}

/// Evaluations of a run without a number, in words.
fn lost(job: &Job) -> String {
    match job.diverged()[..] {
        [] => String::new(),
        ref lost => format!("; the weights diverged in `segue eval {}`", lost.join("`, `segue eval ")),
    }
}

/// What is recorded, cell by cell.
fn results(sweep: &Sweep, jobs: &[Job]) -> Result<Vec<CellResult>, Failure> {
    let mut cells: Vec<CellResult> = sweep
        .cells
        .iter()
        .map(|cell| CellResult {
            label: cell.label.clone(),
            init: cell.init,
            published: cell.published.clone(),
            columns: columns(&cell.protocols),
            fractions: Default::default(),
            values: Default::default(),
            measures: Default::default(),
        })
        .collect();
    for job in jobs {
        if let Some(values) = job.values() {
            cells[job.cell].values.insert(job.seed, values);
            let measures = job.measures();
            if !measures.is_empty() {
                cells[job.cell].fractions.extend(fractions(measures.keys(), job.measure()));
                cells[job.cell].measures.insert(job.seed, measures);
            }
        }
    }
    Ok(cells)
}

/// Columns that protocols are to fill.
fn columns(protocols: &[Protocol]) -> BTreeSet<String> {
    let columns = protocols.iter().flat_map(|protocol| &protocol.columns);
    columns.map(|(name, _)| name.clone()).collect()
}

fn write_reports(summary: &Summary, jobs: &[Job], output: &Path) -> Result<(), Failure> {
    let mut csv = csv_line(["cell", "seed", "attention", summary.compared.name()]);
    for job in jobs {
        for (attention, value) in job.values().unwrap_or_default() {
            csv += &csv_line([
                job.label.clone(),
                job.seed.to_string(),
                attention.to_string(),
                value.to_string(),
            ]);
        }
    }
    let chart = chart(summary).svg();
    for (name, text) in [
        ("table.md", summary.markdown()),
        ("table.svg", chart),
        ("results.json", format!("{:#}\n", json!(summary))),
        ("results.csv", csv),
    ] {
        write_whole(&output.join(name), &text)?;
    }
    Ok(())
}

/// What rows are compared by: at two lengths, or of runs that evaluate themselves the one there is.
fn chart(summary: &Summary) -> IntervalChart {
    let own = summary.rows.iter().any(|row| !row.measures.is_empty());
    let series: &[&str] =
        if own { &["the run's own evaluation"] } else { &["training length", "best length"] };
    let empty = IntervalChart::new(&summary.name, summary.compared.axis(), series);
    summary.rows.iter().fold(empty, |chart, row| {
        let values = if own { vec![row.init] } else { vec![row.init, row.best] };
        let shown = |value: Option<Interval>| value.map(|value| value.scaled(summary.compared.scale()));
        chart.with(&row.label, values.into_iter().map(shown).collect())
    })
}

fn finish(
    summary: &Summary,
    jobs: &[Job],
    outcomes: &[Option<Outcome>],
    output: &Path,
    out: &Output,
) -> Value {
    let failed: Vec<Value> = jobs
        .iter()
        .zip(outcomes)
        .filter_map(|(job, outcome)| match outcome {
            Some(Err(Unfinished::Failed { code, why, log })) => Some(json!({
                "cell": job.label, "seed": job.seed, "code": code, "why": with_log(why, log.as_deref()), "log": job.log,
            })),
            _ => None,
        })
        .collect();
    let open = outcomes.iter().filter(|o| matches!(o, None | Some(Err(Unfinished::Stopped)))).count();
    let code = match (failed.len(), open) {
        (_, 1..) => PREEMPTED,
        (1.., _) => CHECK_FAILED,
        _ => 0,
    };
    let side = if summary.compared.higher_is_better() { "above" } else { "below" };
    for check in &summary.checks {
        let difference = summary.difference(check).map_or(String::new(), |d| format!(", difference {d}"));
        let [better, than] = check.sides();
        out.line(&format!("expected {better} {side} {than}: {}{difference}", check.verdict.words()));
    }
    if open > 0 {
        out.line(&format!(
            "stopped with {open} of {} left; run the same command to resume",
            counted(jobs.len(), "run")
        ));
    }
    if !failed.is_empty() {
        out.line(&format!(
            "{} of {} failed; the log of each is named above",
            failed.len(),
            counted(jobs.len(), "run")
        ));
    }
    if let Compared::Metric { name, .. } = &summary.compared {
        let [better, _] = summary.compared.sides();
        out.line(&format!("runs are compared by {name}, of which {better} is better"));
    }
    out.line(&format!("table and chart are in {}", output.display()));
    json!({ "output": output, "summary": summary, "failed": failed, "open": open, "exit_code": code })
}

fn list(sweep: &Sweep, jobs: &[Job], out: &Output) -> Value {
    let measure = measure_of(jobs);
    if let Some(metric) = measure.of_task() {
        out.line(&format!("compared by {}, of which {} is better", metric.name, measure.side()));
    }
    for job in jobs {
        out.line(&format!("{}: {}", job.name(), sweep.cells[job.cell].overrides.join(" ")));
    }
    let row = |job: &Job| json!({ "cell": job.label, "seed": job.seed, "run": job.run, "done": job.values().is_some() });
    json!({ "measure": measure.of_task().map(|_| measure.to_json()), "runs": jobs.iter().map(row).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_told_by_its_name() {
        let measures = [("loss", 3.5), ("ppl", 33.1)].map(|(name, value)| (name.to_string(), value));
        assert_eq!(named(&BTreeMap::from(measures), 33.1), "ppl 33.1000");
        assert_eq!(named(&BTreeMap::new(), 0.5), "value 0.5000");
    }
}
