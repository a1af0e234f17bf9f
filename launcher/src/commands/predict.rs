//! `segue predict`: classes of the nodes of a graph, and maps of their embeddings.

use std::path::PathBuf;

use clap::Args;
use segue_configs::counted;
use segue_graph::{SparseRows, read_index};
use segue_measure::{accuracy, mean_silhouette};
use segue_planetoid::{Material, Prediction, Predictor, write_embeddings};
use segue_report::{ScatterChart, TsneOptions, csv_line, tsne};
use serde_json::{Value, json};

use super::child::write_whole;
use super::print_text;
use crate::failure::{Failure, USAGE};
use crate::folder::Force;
use crate::output::Output;

/// Points that a map is made of, at most: its memory is quadratic in them.
const MOST_POINTS: usize = 5000;

/// Arguments of `segue predict`.
#[derive(Args)]
#[command(after_help = "\
    The model is one that `segue pretrain` trained with model_type = \"planetoid\".\n\n\
    Examples:\n  \
    segue predict runs/cora --csv classes.csv\n  \
    segue predict runs/cora --nodes nodes.txt \\\n      \
    --embeddings embeddings.safetensors --picture map.svg\n  \
    segue predict runs/cora-inductive --features unseen.svm --json")]
pub struct PredictArgs {
    /// Run folder (its best model, else its newest valid checkpoint), or checkpoint.
    model: PathBuf,
    /// Data set with the graph [default: that of the training].
    #[arg(long)]
    data: Option<PathBuf>,
    /// File with numbers of nodes, one a line [default: the test nodes].
    #[arg(long)]
    nodes: Option<PathBuf>,
    /// File with features of unseen nodes, a row of `column:value` a line, for models that read features alone. Nodes of the result are numbered
    /// by the lines, from 0; a number before the first column is left out.
    #[arg(long, conflicts_with_all = ["nodes", "data", "embeddings", "picture"])]
    features: Option<PathBuf>,
    /// CSV file to write: node, class, probability of each class [default: to stdout].
    #[arg(long)]
    csv: Option<PathBuf>,
    /// safetensors file to write: `nodes`, `[nodes]`, and their `embeddings`, `[nodes, d_embed]`.
    #[arg(long)]
    embeddings: Option<PathBuf>,
    /// SVG file to draw: embeddings in the plane by t-SNE, in the colours of known classes, or where none is known of the predicted one.
    #[arg(long)]
    picture: Option<PathBuf>,
    #[command(flatten)]
    force: Force,
}

/// Predicts, and writes what was asked for.
pub fn run(args: &PredictArgs, json: bool, out: &Output) -> Result<Value, Failure> {
    for (path, option) in
        [(&args.csv, "--csv"), (&args.embeddings, "--embeddings"), (&args.picture, "--picture")]
    {
        args.force.allow(path.as_deref(), option)?;
    }
    segue_kernels::libtorch::set_threads(1);
    let predictor = Predictor::open(&segue_families::MODELS, &args.model)?;
    predictor.passed_over.iter().for_each(|why| out.line(&format!("skipped: {why}")));
    let mut result = json!({ "model": predictor.path });
    let predictions = match &args.features {
        Some(path) => predictor.predict_rows(&SparseRows::read(path, predictor.config().features)?)?,
        None => {
            let material = predictor.material(args.data.as_deref())?;
            let nodes = match &args.nodes {
                Some(path) => read_index(path, material.data.nodes())?,
                None => material.data.test.clone(),
            };
            let predictions = predictor.predict(&material, &nodes)?;
            score(&material, &predictions, &mut result, out);
            if args.embeddings.is_some() || args.picture.is_some() {
                let embeddings = predictor.embeddings(&material, &nodes)?;
                show(args, &material, &predictions, &embeddings, &mut result, out)?;
            }
            predictions
        }
    };
    let text = csv(&predictions, predictor.config().classes);
    match &args.csv {
        Some(path) => write_whole(path, &text)?,
        None if !json => print_text(text.as_bytes())?,
        None => {}
    }
    let row = |found: &Prediction| json!({ "node": found.node, "class": found.class, "probabilities": found.probabilities });
    result["predictions"] = predictions.iter().map(row).collect();
    Ok(result)
}

/// The accuracy on nodes whose class is known.
fn score(material: &Material, predictions: &[Prediction], result: &mut Value, out: &Output) {
    let label =
        |found: &Prediction| Some((material.data.labels.get(found.node as usize).copied()??, found.class));
    let (gold, predicted): (Vec<u32>, Vec<u32>) = predictions.iter().filter_map(label).unzip();
    if gold.is_empty() {
        return;
    }
    let accuracy = accuracy(&gold, &predicted);
    out.line(&format!("accuracy {accuracy:.4} on {} whose class is known", counted(gold.len(), "node")));
    result["accuracy"] = json!(accuracy);
    result["known"] = json!(gold.len());
}

/// Writes embeddings and their map.
fn show(
    args: &PredictArgs,
    material: &Material,
    predictions: &[Prediction],
    embeddings: &[Vec<f32>],
    result: &mut Value,
    out: &Output,
) -> Result<(), Failure> {
    let known = |found: &Prediction| material.data.labels.get(found.node as usize).copied().flatten();
    if let Some(path) = &args.embeddings {
        let nodes: Vec<u32> = predictions.iter().map(|found| found.node).collect();
        write_embeddings(path, &nodes, embeddings)?;
    }
    let Some(path) = &args.picture else { return Ok(()) };
    if embeddings.len() > MOST_POINTS {
        let message = format!(
            "a map of {} points, at most {MOST_POINTS}\nhint: name fewer nodes with --nodes",
            embeddings.len()
        );
        return Err(Failure::new(USAGE, message));
    }
    let of_known =
        predictions.iter().zip(embeddings).filter_map(|(found, row)| Some((row.clone(), known(found)?)));
    let (rows, classes): (Vec<Vec<f32>>, Vec<u32>) = of_known.unzip();
    if !rows.is_empty() {
        let silhouette = mean_silhouette(&rows, &classes);
        out.line(&format!(
            "mean silhouette of {} whose class is known {silhouette:.4}",
            counted(rows.len(), "node")
        ));
        result["silhouette"] = json!(silhouette);
    }
    let title = format!("{}: {}", material.data.name, counted(embeddings.len(), "node"));
    let groups = (0..material.data.classes).map(|class| format!("class {class}")).collect();
    let places = tsne(embeddings, &TsneOptions::default());
    let chart =
        places.into_iter().zip(predictions).fold(ScatterChart::new(title, groups), |chart, (at, found)| {
            chart.with(at, known(found).unwrap_or(found.class) as usize)
        });
    write_whole(path, &chart.svg())
}

fn csv(predictions: &[Prediction], classes: usize) -> String {
    let of_classes = (0..classes).map(|class| format!("p{class}"));
    let mut text = csv_line(["node".into(), "class".into()].into_iter().chain(of_classes));
    for Prediction { node, class, probabilities } in predictions {
        let place = [node.to_string(), class.to_string()];
        text += &csv_line(place.into_iter().chain(probabilities.iter().map(f32::to_string)));
    }
    text
}
