use std::path::{Path, PathBuf};

use clap::Args;
use segue_configs::counted;
use segue_language::ModelFolder;
use segue_protocols::{Density, Embeddings, States, hull_distances, recognisable};
use segue_report::{LineChart, Point, Series};
use serde_json::{Value, json};

use crate::failure::{Failure, USAGE};
use crate::folder::{Force, ResultFolder};
use crate::output::{Output, Unit};

/// Distances from hulls are told to this fraction.
const HULL_ACCURACY: f64 = 1e-3;

/// Arguments of `segue inspect embeddings`.
#[derive(Args)]
#[command(after_help = "\
    The vectors that score words: of an adaptive softmax with tables of several widths, each table by \
    itself.\n\n\
    Examples:\n  \
    segue inspect embeddings runs/wikitext2\n  \
    segue inspect embeddings runs/plain runs/adversarial \\\n      \
    --labels plain adversarial --output embeddings")]
pub struct EmbeddingsArgs {
    /// Model folders, checkpoints or runs of language models.
    #[arg(required = true, value_name = "MODEL")]
    models: Vec<PathBuf>,
    /// Names of the models in charts and tables, one for each in the order of the models [default: their paths].
    #[arg(long, num_args = 1.., value_name = "TEXT")]
    labels: Vec<String>,
    /// Number of words, evenly spread, whose distance from the convex hull of all others is told: where it is 0, no state without a bias gives a word
    /// the highest score.
    #[arg(long, value_name = "WORDS", default_value_t = 0)]
    hull: usize,
    /// Length of the states for which the energy of words is told: through the logistic function, the energy bounds the probability that any such
    /// state can give a word, biases aside; 0 for none.
    #[arg(long, value_name = "LENGTH", default_value_t = 10.0, value_parser = at_least_zero)]
    state_length: f64,
    /// An adversary's scale: energies, and what stands out of hulls, are of words that move against the state by this fraction of their length.
    #[arg(long, value_name = "SCALE", default_value_t = 0.0, value_parser = at_least_zero)]
    scale: f64,
    /// Folder for `embeddings.json`, `nearest.svg`, `singular.svg` and `energy.svg`.
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    force: Force,
}

/// One table of a model.
struct Table {
    label: String,
    model: PathBuf,
    name: String,
    found: Embeddings,
    /// Distances from hulls of others, by word.
    hull: Vec<(usize, f64)>,
    /// Words of these that some state makes the most probable though they move.
    recognisable: usize,
}

fn at_least_zero(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("`{text}` is not a number"))?;
    if number.is_finite() && number >= 0.0 {
        Ok(number)
    } else {
        Err("must be at least 0, and finite".into())
    }
}

/// Tells how vectors of words lie, and draws it where asked.
pub fn run(args: &EmbeddingsArgs, out: &Output) -> Result<Value, Failure> {
    if !args.labels.is_empty() && args.labels.len() != args.models.len() {
        let (labels, models) = (args.labels.len(), args.models.len());
        let message = format!(
            "{labels} --labels for {}\nhint: they name models, in their order: give one to every model, or to none",
            counted(models, "model")
        );
        return Err(Failure::new(USAGE, message));
    }
    let folder = args.output.as_deref().map(|path| ResultFolder::of_output(path, args.force)).transpose()?;
    let mut tables = Vec::new();
    let bar = out.progress(args.models.len() as u64, Unit::Steps, "models");
    for (i, model) in args.models.iter().enumerate() {
        let label = args.labels.get(i).cloned().unwrap_or_else(|| model.display().to_string());
        tables.extend(of_model(model, &label, args, out)?);
        bar.set(i as u64 + 1);
    }
    print(&tables, out);
    let result = json!({ "tables": tables.iter().map(as_json).collect::<Vec<_>>() });
    if let Some(folder) = folder {
        folder.write_json("embeddings.json", &result)?;
        folder.write("nearest.svg", &nearest(&tables).svg())?;
        folder.write("singular.svg", &singular(&tables).svg())?;
        if args.state_length > 0.0 {
            folder.write("energy.svg", &energy(&tables).svg())?;
        }
        out.line(&format!("written to {}", folder.path().display()));
    }
    Ok(result)
}

fn of_model(model: &Path, label: &str, args: &EmbeddingsArgs, out: &Output) -> Result<Vec<Table>, Failure> {
    let folder = ModelFolder::open(&segue_families::MODELS, model)?;
    folder.notes.iter().for_each(|note| out.line(note));
    let parameters = folder.parameters()?;
    let names = folder.family.scoring_tables(&folder.config);
    let several = names.len() > 1;
    let states = States { length: args.state_length, scale: args.scale };
    let table = |name: String| {
        let weight = parameters.get(&name);
        let hull = hull_distances(&weight, args.hull, HULL_ACCURACY);
        Table {
            label: if several { format!("{label}: {name}") } else { label.to_string() },
            model: folder.path.clone(),
            found: Embeddings::of(&weight, (states.length > 0.0).then_some(states)),
            recognisable: recognisable(&weight, &hull, args.scale),
            hull,
            name,
        }
    };
    Ok(names.into_iter().map(table).collect())
}

/// Words of `hull` that are within the hull of all others, and the mean distance from it.
fn of_hulls(hull: &[(usize, f64)]) -> Option<(usize, f64)> {
    let within = hull.iter().filter(|(_, distance)| *distance == 0.0).count();
    let sum: f64 = hull.iter().map(|(_, distance)| distance).sum();
    (!hull.is_empty()).then(|| (within, sum / hull.len() as f64))
}

fn as_json(table: &Table) -> Value {
    let mut row = json!(table.found);
    row["label"] = json!(table.label);
    row["model"] = json!(table.model);
    row["table"] = json!(table.name);
    if let Some((within, mean)) = of_hulls(&table.hull) {
        let recognisable = table.recognisable;
        row["hull"] =
            json!({ "mean": mean, "within": within, "recognisable": recognisable, "distances": table.hull });
    }
    row
}

fn print(tables: &[Table], out: &Output) {
    let width = tables.iter().map(|table| table.label.chars().count()).max().unwrap_or(0).max(5);
    out.line(&format!(
        "{:width$}  {:>8}  {:>6}  {:>12}  {:>12}  {:>14}  {:>11}",
        "model", "words", "width", "nearest mean", "median", "singular mean", "mean cosine"
    ));
    for Table { label, found, .. } in tables {
        out.line(&format!(
            "{label:width$}  {:>8}  {:>6}  {:>12.4}  {:>12.4}  {:>14.4}  {:>11.4}",
            found.words,
            found.width,
            found.nearest_mean,
            found.nearest_median,
            found.singular_mean,
            found.mean_cosine
        ));
    }
    for Table { label, found, .. } in tables {
        if let Some(energy) = &found.energy {
            let (mean, bound, least) = (energy.mean, energy.bound_mean, energy.bound_least);
            out.line(&format!(
                "{label}: mean energy {mean:.4} for states of length {}: no such state gives a word a probability above {bound:.4} in the mean over \
                 words, above {least:.4} for the word with the lowest bound",
                energy.states.length
            ));
        }
    }
    for Table { label, hull, recognisable, .. } in tables {
        if let Some((within, mean)) = of_hulls(hull) {
            let words = hull.len();
            out.line(&format!(
                "{label}: {within} of {words} words within the hull of all others, mean distance {mean:.4}; {recognisable} recognisable"
            ));
        }
    }
}

/// Wang, Gong and Liu 2019, figure 1(a).
fn nearest(tables: &[Table]) -> LineChart {
    let chart = LineChart::new("Nearest neighbours", "distance to the nearest vector", "density");
    densities(chart, tables, |found| Some(&found.density))
}

/// Φ of the same paper's theorem 3.4.
fn energy(tables: &[Table]) -> LineChart {
    let chart = LineChart::new("Energy of words", "energy", "density");
    densities(chart, tables, |found| found.energy.as_ref().map(|energy| &energy.density))
}

fn densities(chart: LineChart, tables: &[Table], of: impl Fn(&Embeddings) -> Option<&Density>) -> LineChart {
    tables.iter().fold(chart.without_dots(), |chart, table| {
        let points = of(&table.found).into_iter().flat_map(|density| &density.points);
        chart.with(Series::new(&table.label, points.map(|point| Point::from(*point)).collect()))
    })
}

/// The same, figure 1(b).
fn singular(tables: &[Table]) -> LineChart {
    let chart = LineChart::new("Singular values", "place", "fraction of the largest");
    tables.iter().fold(chart.without_dots(), |chart, table| {
        let values = table.found.singular_values.iter().enumerate();
        let points = values.map(|(i, value)| Point::from(((i + 1) as f64, *value)));
        chart.with(Series::new(&table.label, points.collect()))
    })
}
