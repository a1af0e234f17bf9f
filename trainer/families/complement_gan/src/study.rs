//! Pictures of the plane: where a trained discriminator has its boundaries, and what it sees as generated (Yang 2019, §3.1.4).

use std::path::PathBuf;

use segue_data_error::DataError;
use segue_family::{Answer, Asker, Outputs, Question, Trained};
use segue_kernels::TrainError;
use segue_publish::write_file;
use serde_json::json;
use tch::{Kind, Tensor};

use super::data::{Examples, Material, points_of, tensor};
use super::evaluate::likeliest;
use super::keys::{DataConfig, Fakes, ObjectiveConfig};
use super::plane::{
    BoundaryPicture, Bounds, Cell, Complement, Points, fake_share_on_boundary, feature_picture,
};
use super::trained::{Classifier, error, errors};

/// Points of what is generated that are drawn.
const GENERATED: u64 = 500;
/// How much larger than the box around the data the part of the plane is that is drawn.
const AROUND: f64 = 1.2;

/// What is drawn.
#[derive(Debug, clap::Args)]
pub struct PlaneOptions {
    /// SVG file to write: classes over the plane, paler where points are seen as generated.
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
    /// SVG file to write: features of the points, of a model with two of them.
    #[arg(long, value_name = "FILE")]
    features: Option<PathBuf>,
    /// Cells along each side of the plane.
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u64).range(2..=1000))]
    side: u64,
}

/// Where the boundaries of a discriminator of the plane are.
pub struct PlanePicture;

/// What stands for generated points: the generator's, or those of the complement.
fn generated(
    classifier: &Classifier,
    fakes: Fakes,
    of: &Points,
    seed: u64,
) -> Result<Vec<[f32; 2]>, TrainError> {
    match fakes {
        Fakes::Generator => points_of(&classifier.generated(GENERATED, seed)?),
        Fakes::Complement => {
            let complement = Complement::of(&of.values)?;
            Ok((0..GENERATED).map(|number| complement.draw(seed, number)).collect::<Result<_, _>>()?)
        }
        Fakes::Data | Fakes::None => Ok(Vec::new()),
    }
}

/// How what a generator makes lies: how far its mean features are from those of the data, which it was to match, as a fraction of the latter's length; and
/// the fraction of its points that lie among the data.
fn against_data(classifier: &Classifier, made: &[[f32; 2]], data: &Points) -> Result<[f64; 2], TrainError> {
    let mean = |points: &[[f32; 2]]| {
        let features = |points: &Tensor| classifier.discriminator().features(points, None);
        tch::no_grad(|| features(&tensor(points.iter().copied())).mean_dim(0, false, Kind::Double))
    };
    let of_data = mean(&data.values);
    let gap = (mean(made) - &of_data).norm() / of_data.norm();
    let complement = Complement::of(&data.values)?;
    let among = made.iter().filter(|point| !complement.has(**point)).count();
    Ok([gap.double_value(&[]), among as f64 / made.len() as f64])
}

/// Classes of the cells, and whether Σ exp of the logits is below 1: then more is generated than real.
fn cells(classifier: &Classifier, bounds: Bounds, side: usize) -> Result<Vec<Cell>, TrainError> {
    let centres = tensor(bounds.centres(side).into_iter());
    let seen = tch::no_grad(|| classifier.discriminator().see(&centres, None));
    let logits = Vec::<f32>::try_from(&seen.logits.view([-1]))?;
    let cell = |row: &[f32]| {
        let row: Vec<f64> = row.iter().map(|logit| f64::from(*logit)).collect();
        Cell {
            class: likeliest(&row) as u16,
            is_fake: row.iter().map(|logit| logit.exp()).sum::<f64>() < 1.0,
        }
    };
    Ok(logits.chunks(classifier.config.classes).map(cell).collect())
}

/// Features of points, for models of two of them.
fn features(classifier: &Classifier, points: &Tensor) -> Result<Vec<[f32; 2]>, TrainError> {
    let features = tch::no_grad(|| classifier.discriminator().features(points, None));
    Ok(Vec::<f32>::try_from(&features.contiguous().view([-1]))?.as_chunks().0.to_vec())
}

impl Question for PlanePicture {
    type Options = PlaneOptions;
    const NAME: &'static str = "plane";
    const ABOUT: &'static str = "Draw the boundaries of a discriminator of points of the plane";
    const EXAMPLE: &'static str = "  segue eval plane --model runs/spins --picture spins.svg";

    fn outputs(options: &PlaneOptions) -> Outputs {
        let named = [(&options.picture, "--picture"), (&options.features, "--features")];
        named.into_iter().filter_map(|(path, option)| Some((path.clone()?, option))).collect()
    }

    fn answer(model: Trained, options: PlaneOptions, asker: &mut Asker) -> Result<Answer, TrainError> {
        let classifier = Classifier::of(&model)?;
        let data: DataConfig = model.section("data")?;
        let objective: ObjectiveConfig = model.section("objective")?;
        let features_of = classifier.config.hidden.last().copied().unwrap_or(0);
        if options.features.is_some() && features_of != 2 {
            let why = format!(
                "--features draws models of 2 features, and this one has {features_of}\nhint: train one with model.hidden=[100,100,2]"
            );
            return Err(DataError::Usage(why).into());
        }
        if data.drawn.set().is_none() {
            let why = "the model was trained on images\nhint: `segue eval images` scores it";
            return Err(DataError::Usage(why.into()).into());
        }
        let material = Material::open(&data, &mut classifier.config.clone())?;
        let (Examples::Points(train), Some(test)) = (&material.train, &material.test) else {
            unreachable!("points are drawn to train and to test on");
        };
        let logits = classifier.logits(test, asker)?;
        let predicted: Vec<usize> = logits.iter().map(|row| likeliest(row)).collect();
        let error = error(&errors(test, &predicted, classifier.config.classes));
        let side = options.side as usize;
        let Some(bounds) = Bounds::around(&train.values, AROUND) else {
            unreachable!("points that were trained on are finite");
        };
        let cells = cells(&classifier, bounds, side)?;
        let at_boundary = fake_share_on_boundary(&cells, side);
        let boundary = match at_boundary.is_nan() {
            true => "all of the plane is of one class".to_string(),
            false => {
                format!("{:.1} % of the cells between classes are seen as generated", 100.0 * at_boundary)
            }
        };
        (asker.tell)(&format!("error {:.2} %; {boundary}", error.unwrap_or_default()));
        let made = generated(&classifier, objective.fakes, train, data.subset_seed)?;
        if asker.comm.rank() == 0 {
            if let Some(path) = &options.picture {
                let of = |number: &u32| *number as usize;
                let labelled = Points {
                    values: material.labelled.iter().map(|number| train.values[of(number)]).collect(),
                    classes: material.labelled.iter().map(|number| train.classes[of(number)]).collect(),
                    class_count: train.class_count,
                };
                let title = "Classes, and what is seen as generated";
                let (data, labelled, generated) = (train, &labelled, &made);
                let picture =
                    BoundaryPicture { title, bounds, side, cells: &cells, data, labelled, generated };
                write_file(path, picture.svg().as_bytes())?;
            }
            if let Some(path) = &options.features {
                let all: Vec<u32> = (0..train.values.len() as u32).collect();
                let values = features(&classifier, &material.train.values(&all))?;
                let of_points = Points { values, ..train.clone() };
                let of_made = match made.is_empty() {
                    true => Vec::new(),
                    false => features(&classifier, &tensor(made.iter().copied()))?,
                };
                let picture = feature_picture("Features of points", &of_points, &of_made);
                write_file(path, picture.as_bytes())?;
            }
        }
        let mut value = json!({
            "model": classifier.path, "error": error, "boundary_generated": at_boundary,
        });
        if objective.fakes == Fakes::Generator {
            let [gap, among] = against_data(&classifier, &made, train)?;
            let off = match gap.is_finite() {
                true => format!("mean features {:.1} % off those of the data", 100.0 * gap),
                false => "features of the data are all 0".to_string(),
            };
            (asker.tell)(&format!("generated points: {off}, {:.1} % of them among the data", 100.0 * among));
            value["feature_gap"] = json!(gap);
            value["generated_among_data"] = json!(among);
        }
        Ok(Answer { value, ..Answer::default() })
    }
}
