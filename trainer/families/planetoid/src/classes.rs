//! `segue predict`: classes of nodes, and maps of their embeddings.

use std::path::PathBuf;

use segue_configs::counted;
use segue_data_error::DataError;
use segue_family::{Answer, Asker, Outputs, Question, Trained};
use segue_graph::{SparseRows, read_index};
use segue_kernels::TrainError;
use segue_measure::{accuracy, mean_silhouette};
use segue_publish::write_file;
use segue_report::{ScatterChart, TsneOptions, csv_line, tsne};
use serde_json::{Value, json};

use super::data::Material;
use super::evaluate::Prediction;
use super::predict::{Predictor, write_embeddings};

/// Points that a map is made of, at most: its memory is quadratic in them.
const MOST_POINTS: usize = 5000;

/// Which nodes are classified, and what is made of them.
#[derive(Debug, clap::Args)]
pub struct ClassesOptions {
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
    /// safetensors file to write: `nodes`, `[nodes]`, and their `embeddings`, `[nodes, d_embed]`.
    #[arg(long)]
    embeddings: Option<PathBuf>,
    /// SVG file to draw: embeddings in the plane by t-SNE, in the colours of known classes, or where none is known of the predicted one.
    #[arg(long)]
    picture: Option<PathBuf>,
}

/// The classes of nodes: node, class, probability of each class.
pub struct Classes;

impl Question for Classes {
    type Options = ClassesOptions;
    const NAME: &'static str = "classes";
    const ABOUT: &'static str = "Classes of the nodes of a graph";
    const EXAMPLE: &'static str = "  segue predict runs/cora --csv classes.csv\n  \
        segue predict runs/cora --nodes nodes.txt \\\n      \
        --embeddings embeddings.safetensors --picture map.svg\n  \
        segue predict runs/cora-inductive --features unseen.svm --json";

    fn outputs(options: &ClassesOptions) -> Outputs {
        let named = [(&options.embeddings, "--embeddings"), (&options.picture, "--picture")];
        named.into_iter().filter_map(|(path, option)| Some((path.clone()?, option))).collect()
    }

    fn answer(model: Trained, options: ClassesOptions, asker: &mut Asker) -> Result<Answer, TrainError> {
        let predictor = Predictor::of(model)?;
        let mut answer = Answer { value: json!({ "model": predictor.path }), ..Answer::default() };
        let predictions = match &options.features {
            Some(path) => predictor.predict_rows(&SparseRows::read(path, predictor.config().features)?)?,
            None => of_graph(&predictor, &options, &mut answer.value, asker)?,
        };
        answer.text = csv(&predictions, predictor.config().classes);
        let row = |found: &Prediction| json!({ "node": found.node, "class": found.class, "probabilities": found.probabilities });
        answer.value["predictions"] = predictions.iter().map(row).collect();
        Ok(answer)
    }
}

/// Classes of nodes that a graph has, scored and shown.
fn of_graph(
    predictor: &Predictor,
    options: &ClassesOptions,
    value: &mut Value,
    asker: &mut Asker,
) -> Result<Vec<Prediction>, TrainError> {
    let material = predictor.material(options.data.as_deref())?;
    let nodes = match &options.nodes {
        Some(path) => read_index(path, material.data.nodes())?,
        None => material.data.test.clone(),
    };
    if options.picture.is_some() && nodes.len() > MOST_POINTS {
        let why = format!(
            "a map of {} points, at most {MOST_POINTS}\nhint: name fewer nodes with --nodes",
            nodes.len()
        );
        return Err(DataError::Usage(why).into());
    }
    let predictions = predictor.predict(&material, &nodes)?;
    score(&material, &predictions, value, asker);
    if options.embeddings.is_some() || options.picture.is_some() {
        let embeddings = predictor.embeddings(&material, &nodes)?;
        show(options, &material, &predictions, &embeddings, value, asker)?;
    }
    Ok(predictions)
}

/// The accuracy on nodes whose class is known.
fn score(material: &Material, predictions: &[Prediction], value: &mut Value, asker: &mut Asker) {
    let label =
        |found: &Prediction| Some((material.data.labels.get(found.node as usize).copied()??, found.class));
    let (gold, predicted): (Vec<u32>, Vec<u32>) = predictions.iter().filter_map(label).unzip();
    if gold.is_empty() {
        return;
    }
    let accuracy = accuracy(&gold, &predicted);
    let of = counted(gold.len(), "node");
    (asker.tell)(&format!("accuracy {accuracy:.4} on {of} whose class is known"));
    value["accuracy"] = json!(accuracy);
    value["known"] = json!(gold.len());
}

/// Writes embeddings and their map.
fn show(
    options: &ClassesOptions,
    material: &Material,
    predictions: &[Prediction],
    embeddings: &[Vec<f32>],
    value: &mut Value,
    asker: &mut Asker,
) -> Result<(), TrainError> {
    let known = |found: &Prediction| material.data.labels.get(found.node as usize).copied().flatten();
    if let Some(path) = &options.embeddings {
        let nodes: Vec<u32> = predictions.iter().map(|found| found.node).collect();
        write_embeddings(path, &nodes, embeddings)?;
    }
    let Some(path) = &options.picture else { return Ok(()) };
    let of_known =
        predictions.iter().zip(embeddings).filter_map(|(found, row)| Some((row.clone(), known(found)?)));
    let (rows, classes): (Vec<Vec<f32>>, Vec<u32>) = of_known.unzip();
    if !rows.is_empty() {
        let silhouette = mean_silhouette(&rows, &classes);
        (asker.tell)(&format!(
            "mean silhouette of {} whose class is known {silhouette:.4}",
            counted(rows.len(), "node")
        ));
        value["silhouette"] = json!(silhouette);
    }
    let title = format!("{}: {}", material.data.name, counted(embeddings.len(), "node"));
    let groups = (0..material.data.classes).map(|class| format!("class {class}")).collect();
    let places = tsne(embeddings, &TsneOptions::default());
    let chart =
        places.into_iter().zip(predictions).fold(ScatterChart::new(title, groups), |chart, (at, found)| {
            chart.with(at, known(found).unwrap_or(found.class) as usize)
        });
    Ok(write_file(path, chart.svg().as_bytes())?)
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
