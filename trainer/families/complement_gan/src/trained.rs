//! A trained model: classes of images, their errors, and pictures of what the generator makes.

use std::path::{Path, PathBuf};

use segue_data_error::DataError;
use segue_family::{Answer, Asker, Outputs, Question, Trained, read_network, read_tables};
use segue_images::Labels;
use segue_kernels::TrainError;
use segue_kernels::noise::Noise;
use segue_pixel_cnn::{GridOptions, ImagesOptions, write_grid};
use segue_report::csv_line;
use serde_json::{Value, json};
use tch::Tensor;

use super::config::ComplementGanConfig;
use super::data::Examples;
use super::evaluate::{self, likeliest};
use super::learner::Player;
use super::network::{Moments, Network};
use super::plan::Plan;

/// Weights of the generator.
const GENERATOR_FILE: &str = "generator.safetensors";
/// Names of the classes in the model's `config.json`, where its images had some.
pub const CLASS_NAMES: &str = "class_names";
/// Images that are generated side by side.
const SIDE_BY_SIDE: i64 = 100;

/// A trained discriminator, and the generator it learnt against.
pub struct Classifier {
    /// The folder with its weights.
    pub path: PathBuf,
    /// Its sizes.
    pub config: ComplementGanConfig,
    /// Names of its classes, where its images had some.
    names: Option<Vec<String>>,
    discriminator: Player,
    /// Whether the folder has a generator.
    generates: bool,
}

/// A network of a folder, with its tables.
fn player(folder: &Path, file: &str, plan: Plan) -> Result<Player, TrainError> {
    let weights = read_network(&folder.join(file), plan.specs())?;
    let player = Player::new(plan, weights);
    read_tables(folder, player.tables())?;
    Ok(player)
}

impl Classifier {
    /// The model of a folder.
    pub fn of(trained: &Trained) -> Result<Self, TrainError> {
        let Some(config) = trained.config.get::<ComplementGanConfig>() else {
            return Err(trained.is_not("a model that classifies images"));
        };
        let config = config.clone();
        let discriminator = player(&trained.path, "model.safetensors", Plan::discriminator(&config))?;
        let generates = trained.path.join(GENERATOR_FILE).is_file();
        let names = class_names(&trained.path);
        Ok(Self { path: trained.path.clone(), config, names, discriminator, generates })
    }

    /// Logits of images: rows of the classes.
    pub fn logits(&self, set: &Examples, asker: &mut Asker) -> Result<Vec<Vec<f64>>, TrainError> {
        let all: Vec<u32> = (0..set.count() as u32).collect();
        evaluate::logits(&self.discriminator.network(), set, &all, asker.comm, &mut asker.watch)
    }

    /// Opens images for it, whose classes, where they are known, are its own.
    fn open(&self, options: &ImagesOptions, model: &Trained) -> Result<Examples, TrainError> {
        let set = options.open(model, self.config.image)?;
        let own = self.config.classes;
        let of_set = set.labels().and_then(|labels| labels.names.as_ref());
        if let Some((own, found)) = self.names.as_ref().zip(of_set).filter(|(own, found)| own != found) {
            let why =
                format!("images are of the classes {}, the model of {}", found.join(", "), own.join(", "));
            return Err(DataError::Usage(why).into());
        }
        // Files without names may lack images of the last classes.
        let fits = |labels: &Labels| labels.classes == own || labels.names.is_none() && labels.classes < own;
        match set.labels().filter(|labels| !fits(labels)) {
            None => Ok(Examples::Images(set)),
            Some(labels) => {
                let why = format!("images are of {} classes, the model of {own}", labels.classes);
                Err(DataError::Usage(why).into())
            }
        }
    }

    /// The discriminator.
    pub fn discriminator(&self) -> Network<'_> {
        self.discriminator.network()
    }

    /// As many images of its generator: `[count, pixels]` in [0, 1].
    pub fn generated(&self, count: u64, seed: u64) -> Result<Tensor, TrainError> {
        let generator = player(&self.path, GENERATOR_FILE, Plan::generator(&self.config))?;
        let z = Noise::new(seed).uniform(&[count as i64, self.config.noise_size as i64]);
        let running = Moments::Running(generator.running());
        let made = |z: &Tensor| tch::no_grad(|| generator.network().forward(z, None, running)).states;
        Ok(Tensor::cat(&z.split(SIDE_BY_SIDE, 0).iter().map(made).collect::<Vec<_>>(), 0))
    }
}

/// Names of the classes of the model in `folder`.
fn class_names(folder: &Path) -> Option<Vec<String>> {
    let text = segue_publish::read_regular_text(folder.join("config.json")).ok()?;
    let config: Value = serde_json::from_str(&text).ok()?;
    serde_json::from_value(config[CLASS_NAMES].clone()).ok()
}

/// P(class | image is real), the softmax over the K classes.
fn probabilities(logits: &[f64]) -> Vec<f32> {
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|logit| (logit - largest).exp()).sum();
    logits.iter().map(|logit| ((logit - largest).exp() / sum) as f32).collect()
}

/// Images whose class is known, and the errors among them, of each class.
pub fn errors(set: &Examples, predicted: &[usize], classes: usize) -> Vec<(u64, u64)> {
    let mut counts = vec![(0, 0); classes];
    for (image, predicted) in predicted.iter().enumerate() {
        let known = set.label(image).map(usize::from);
        if let Some((images, wrong)) = known.and_then(|class| counts.get_mut(class)) {
            *images += 1;
            *wrong += u64::from(known != Some(*predicted));
        }
    }
    counts
}

/// The error of all classes in percent, where the class of some image is known.
pub fn error(counts: &[(u64, u64)]) -> Option<f64> {
    let (images, wrong) = counts.iter().fold((0, 0), |sums, of| (sums.0 + of.0, sums.1 + of.1));
    (images > 0).then(|| 100.0 * wrong as f64 / images as f64)
}

/// The classes of images: image, its file, class, its name, probability of each class; files and names where there are some.
pub struct ImageClasses;

impl Question for ImageClasses {
    type Options = ImagesOptions;
    const NAME: &'static str = "image classes";
    const ABOUT: &'static str = "Classes of images";
    const EXAMPLE: &'static str = "  segue predict runs/mnist --images images/mnist --csv classes.csv\n  \
        segue predict runs/mnist --images folder-of-png-files --json";

    fn answer(model: Trained, options: ImagesOptions, asker: &mut Asker) -> Result<Answer, TrainError> {
        let classifier = Classifier::of(&model)?;
        let set = classifier.open(&options, &model)?;
        let logits = classifier.logits(&set, asker)?;
        let predicted: Vec<usize> = logits.iter().map(|row| likeliest(row)).collect();
        let rows: Vec<Vec<f32>> = logits.iter().map(|row| probabilities(row)).collect();
        let names = classifier.names.as_deref().or(set.class_names());
        let name = |image: usize| names?.get(predicted[image]).map(String::as_str);
        let mut text = csv_line(header(&set, names.is_some(), classifier.config.classes));
        for (image, row) in rows.iter().enumerate() {
            let (number, class) = (image.to_string(), predicted[image].to_string());
            let place = [Some(number.as_str()), set.file(image), Some(&class), name(image)];
            let place = place.into_iter().flatten().map(String::from);
            text += &csv_line(place.chain(row.iter().map(f32::to_string)));
        }
        let error = error(&errors(&set, &predicted, classifier.config.classes));
        if let Some(error) = error {
            (asker.tell)(&format!("error {error:.2} % of images whose class is known"));
        }
        let row = |(image, row): (usize, &Vec<f32>)| {
            let mut row = json!({ "image": image, "class": predicted[image], "probabilities": row });
            for (key, value) in [("file", set.file(image)), ("name", name(image))] {
                if let Some(value) = value {
                    row[key] = json!(value);
                }
            }
            row
        };
        let predictions: Value = rows.iter().enumerate().map(row).collect();
        let value = json!({ "model": classifier.path, "error": error, "predictions": predictions });
        Ok(Answer { value, text })
    }
}

/// Columns of the table of predictions.
fn header(set: &Examples, has_names: bool, classes: usize) -> impl Iterator<Item = String> {
    let file = set.file(0).map(|_| "file");
    let place = [Some("image"), file, Some("class"), has_names.then_some("name")];
    let of_classes = (0..classes).map(|class| format!("p{class}"));
    place.into_iter().flatten().map(String::from).chain(of_classes)
}

/// Which images are scored, and which are made.
#[derive(Debug, clap::Args)]
pub struct ErrorOptions {
    #[command(flatten)]
    of: ImagesOptions,
    #[command(flatten)]
    grid: GridOptions,
}

/// Errors of images whose class is known, and what the generator makes.
pub struct ImageErrors;

impl Question for ImageErrors {
    type Options = ErrorOptions;
    const NAME: &'static str = "images";
    const ABOUT: &'static str =
        "Measure how many images are taken for another class, and draw what a generator makes";
    const EXAMPLE: &'static str = "  segue eval images --model runs/mnist --grid generated.png";

    fn outputs(options: &ErrorOptions) -> Outputs {
        options.grid.output().into_iter().collect()
    }

    fn answer(model: Trained, options: ErrorOptions, asker: &mut Asker) -> Result<Answer, TrainError> {
        let classifier = Classifier::of(&model)?;
        if options.grid.grid.is_some() && !classifier.generates {
            let why = "--grid draws what a generator makes, and this model was trained without one";
            return Err(DataError::Usage(why.into()).into());
        }
        let set = classifier.open(&options.of, &model)?;
        let logits = classifier.logits(&set, asker)?;
        let predicted: Vec<usize> = logits.iter().map(|row| likeliest(row)).collect();
        let counts = errors(&set, &predicted, classifier.config.classes);
        let Some(error) = error(&counts) else {
            let why =
                "the images have no labels, by which they are scored\nhint: `segue predict` asks for none";
            return Err(DataError::Usage(why.into()).into());
        };
        let (images, wrong) = counts.iter().fold((0, 0), |sums, of| (sums.0 + of.0, sums.1 + of.1));
        (asker.tell)(&format!("error {error:.2} %: {wrong} of {images} images"));
        let of_class = |(class, (images, wrong)): (usize, &(u64, u64))| json!({ "class": class, "images": images, "errors": wrong });
        let by_class: Value = counts.iter().enumerate().map(of_class).collect();
        if let (Some(path), 0) = (&options.grid.grid, asker.comm.rank()) {
            let made = classifier.generated(options.grid.count, options.grid.seed)?;
            write_grid(path, &made, classifier.config.image)?;
        }
        let value = json!({
            "model": classifier.path, "images": images, "errors": wrong, "error": error, "classes": by_class,
        });
        Ok(Answer { value, ..Answer::default() })
    }
}
