use std::path::PathBuf;

use clap::Args;
use segue_configs::ModelConfig;
use segue_language::{NextToken, NextTokens, fresh_next_token, load_next_token};
use segue_protocols::{SpeedOptions, SpeedPoint, SpeedReport, THESIS_RATIOS, speed};
use segue_report::{LineChart, Point, Series};
use serde_json::{Value, json};

use crate::commands::{at_least_one, not_negative, open_model, some_length};
use crate::failure::{BAD_CONFIG, CHECK_FAILED, Failure, USAGE};
use crate::folder::{Force, ResultFolder};
use crate::output::{Output, Unit};
use crate::recipes;

/// Seed of fresh weights: what they are does not matter for the time.
const SEED: u64 = 1;

/// Arguments of `segue eval speed`.
#[derive(Args)]
#[command(after_help = "\
    Exits with 1 where both protocols do not give the same losses.\n\n\
    Examples:\n  \
    segue eval speed --model runs/wikitext2 --output speed\n  \
    segue eval speed model.n_layer=12 model.d_model=64 model.n_head=8 \\\n      \
    model.d_inner=256 model.vocab_size=204")]
pub struct SpeedArgs {
    /// Run folder (its best model, else its newest valid checkpoint), checkpoint, or folder in Hugging Face's layout.
    #[arg(long, conflicts_with_all = ["config", "overrides"])]
    model: Option<PathBuf>,
    /// Recipe of a model with random weights, instead of --model; needs `model.vocab_size`.
    #[arg(long, value_name = "FILE|NAME", value_parser = recipes::parser())]
    config: Option<PathBuf>,
    /// Attention lengths.
    #[arg(long, value_delimiter = ',', default_value = "100,200,400,800", value_name = "N,..", value_parser = some_length)]
    lengths: Vec<usize>,
    /// Tokens per segment with state reuse [default: the attention length].
    #[arg(long, value_parser = some_length)]
    segment: Option<usize>,
    /// Timed repetitions, after an untimed one; their median is reported.
    #[arg(long, default_value_t = 5, value_parser = at_least_one)]
    repeats: usize,
    /// Minimum duration of a repetition, in seconds.
    #[arg(long, default_value_t = 0.5, value_parser = not_negative)]
    seconds: f64,
    /// Folder for `speed.json`, `speed.csv` and `speed.svg`.
    #[arg(long)]
    output: Option<PathBuf>,
    #[command(flatten)]
    force: Force,
    /// Number of libtorch threads.
    #[arg(long, default_value_t = 1, value_parser = at_least_one)]
    threads: usize,
    /// Overrides of the recipe, by dotted name.
    #[arg(value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

/// Measures both protocols, prints a table, and writes it down where asked.
pub fn run(args: SpeedArgs, out: &Output) -> Result<Value, Failure> {
    segue_kernels::libtorch::start(args.threads);
    segue_kernels::libtorch::keep_freed_memory();
    let folder = args.output.as_deref().map(|path| ResultFolder::of_output(path, args.force)).transpose()?;
    let (config, mut model) = model(&args, out)?;
    if !segue_families::need::<NextTokens>(&config)?.0.attends() {
        let message = "the time per token is compared over lengths of attention, which this model has not";
        return Err(Failure::new(USAGE, message));
    }
    let options = SpeedOptions {
        lengths: args.lengths.clone(),
        segment: args.segment.unwrap_or(0),
        repeats: args.repeats,
        seconds: args.seconds,
    };
    let bar = out.progress(0, Unit::Steps, "measure");
    let report = speed(model.as_mut(), &options, |done, whole| bar.set_of(done, whole))?;
    drop(bar);
    print(&report, out);
    let mut result = json!(report);
    result["model"] = config.to_json();
    result["threads"] = json!(args.threads);
    if let Some(folder) = folder {
        folder.write_json("speed.json", &result)?;
        folder.write_csv("speed.csv", &HEADER, &report.points.iter().map(row).collect::<Vec<_>>())?;
        folder.write("speed.svg", &chart(&report).svg())?;
        out.line(&format!("written to {}", folder.path().display()));
    }
    result["exit_code"] =
        json!(if report.agreement.is_none_or(|found| found.holds) { 0 } else { CHECK_FAILED });
    Ok(result)
}

fn model(args: &SpeedArgs, out: &Output) -> Result<(ModelConfig, Box<dyn NextToken>), Failure> {
    if let Some(model) = &args.model {
        let folder = open_model(model, out)?;
        let model = load_next_token(&folder)?;
        return Ok((folder.config, model));
    }
    if args.config.is_none() && args.overrides.is_empty() {
        let message = "there is no model to measure\nhint: add --model DIR, or a shape with --config or \
            model.KEY=VALUE";
        return Err(Failure::new(USAGE, message));
    }
    let mut config = segue_families::MODELS.load(args.config.as_deref(), &args.overrides)?.config;
    if config.model.vocab_size() == 0 {
        return Err(Failure::new(BAD_CONFIG, "the vocabulary size is not set\nhint: add model.vocab_size=N"));
    }
    let vocabulary = config.model.vocab_size();
    config.model.fit_vocabulary(vocabulary, None)?;
    let model = fresh_next_token(&config.model, SEED)?;
    Ok((config.model, model))
}

const HEADER: [&str; 6] =
    ["attention", "segment", "vanilla_seconds", "recurrent_seconds", "ratio", "thesis_ratio"];

fn row(point: &SpeedPoint) -> Vec<String> {
    vec![
        point.attention.to_string(),
        point.segment.to_string(),
        point.vanilla.to_string(),
        point.recurrent.to_string(),
        point.ratio.to_string(),
        point.thesis.map_or(String::new(), |ratio| ratio.to_string()),
    ]
}

fn print(report: &SpeedReport, out: &Output) {
    out.line(&format!(
        "{:>9} {:>16} {:>18} {:>8} {:>8}",
        "attention", "vanilla ms/token", "recurrent ms/token", "slower", "thesis"
    ));
    for p in &report.points {
        let thesis = p.thesis.map_or(String::new(), |ratio| format!("{ratio:.0}×"));
        out.line(&format!(
            "{:>9} {:>16.3} {:>18.5} {:>8} {thesis:>8}",
            p.attention,
            p.vanilla * 1e3,
            p.recurrent * 1e3,
            format!("{:.1}×", p.ratio)
        ));
    }
    if let (Some(line), Some(power)) = (report.line, report.power) {
        out.line(&format!(
            "ratio = {:.2} + {:.4} × length, R² {:.4}; as a power of the length: exponent {:.3}, R² {:.4}",
            line.intercept, line.slope, line.r_squared, power.slope, power.r_squared
        ));
    }
    let Some(a) = report.agreement else {
        return out.line("losses of both are not compared: positions of this model are absolute");
    };
    out.line(&format!(
        "losses of both over the same {} tokens differ by {:.1e} at most (limit {:.0e}){}",
        a.window,
        a.difference,
        a.limit,
        if a.holds { "" } else { ": FAILS" }
    ));
}

fn chart(report: &SpeedReport) -> LineChart {
    let points = |pairs: Vec<(f64, f64)>| pairs.into_iter().map(Point::from).collect();
    let measured = report.points.iter().map(|p| (p.attention as f64, p.ratio)).collect();
    let mut chart = LineChart::new(
        "Evaluation without state reuse, against evaluation with it",
        "attention length",
        "times slower per token",
    )
    .with(Series::new("measured", points(measured)));
    let longest = report.points.iter().map(|p| p.attention).max().unwrap_or(0);
    let thesis: Vec<(f64, f64)> =
        THESIS_RATIOS.iter().filter(|(l, _)| *l <= longest).map(|(l, ratio)| (*l as f64, *ratio)).collect();
    if !thesis.is_empty() {
        chart = chart.with(Series::new("thesis", points(thesis)));
    }
    chart
}
