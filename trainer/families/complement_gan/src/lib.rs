//! Classes of images of which few are labelled: a discriminator against a generator whose images are the complement of the data (Dai et al. 2017; Yang 2019, §3.1). See
//! `README.md` beside this file.

mod config;
mod data;
mod evaluate;
mod keys;
mod learner;
mod losses;
mod low_density;
mod network;
mod plan;
pub mod plane;
mod study;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod theory;
mod trained;

use std::rc::Rc;
use std::sync::Arc;

use segue_collectives::Communicator;
use segue_configs::{Config, ModelSection, ModelType};
use segue_cost::{MicroStep, PER_MULTIPLY_ADD, Role, TurnWork, Work};
use segue_dataloader::Reader;
use segue_engine::{
    Event, Family, FamilyReader, KeepBest, Labels, LossAs, Measures, Outcome, Place, Prepared, Watch,
};
use segue_family::{Asked, Entry, Evaluations, Job, Predicts, fit_to_data, own};
use segue_kernels::{Compute, TrainError};
use segue_pixel_cnn::Density;
use segue_pixel_cnn::images::Lanes;
use serde_json::{Value, json};

pub use config::ComplementGanConfig;
pub use data::{Examples, ImageBatch, ImageReader, Material};
pub use keys::{DataConfig, DrawnPoints, Fakes, ObjectiveConfig, Unlabelled};
pub use learner::{DISCRIMINATOR, ENCODER, GENERATOR, Players};
pub use losses::{
    EntropyOver, FeatureDistance, conditional_entropy, excess_density, fake, feature_matching, input_entropy,
    labelled, pull_away, real,
};
use low_density::LowDensity;
use plan::Plan;
pub use study::PlanePicture;
pub use trained::{Classifier, ImageClasses, ImageErrors};

/// The family's line in the list.
pub static FAMILY: Entry = Entry {
    section: ModelType::of::<ComplementGanConfig>,
    open,
    fit,
    work,
    capabilities: &[&PREDICTS, &EVALUATIONS],
};

static PREDICTS: Predicts = Predicts(Asked::of::<ImageClasses>());
static EVALUATIONS: Evaluations = Evaluations(&[Asked::of::<ImageErrors>(), Asked::of::<PlanePicture>()]);

/// Images that are open.
struct Opened {
    material: Arc<Material>,
    density: Option<Rc<Density>>,
}

impl Opened {
    /// Hash of the images, and of the weights of the density model if the run has one.
    fn fingerprint(&self) -> String {
        let of_density = self.density.as_ref().map(|density| density.fingerprint.as_str());
        [Some(self.material.fingerprint()), of_density].into_iter().flatten().collect::<Vec<_>>().join("+")
    }
}

fn open(config: &mut Config) -> Result<Box<dyn Job>, TrainError> {
    let mut fitted = own::<ComplementGanConfig>(&config.model).clone();
    let material = Arc::new(Material::open(&config.own.get(), &mut fitted)?);
    // The sizes of the data may not be those that networks take.
    fitted.check()?;
    let density = low_density::open(&config.own.get(), fitted.image)?;
    config.model = fitted.into();
    Ok(Box::new(Opened { material, density }))
}

/// Takes the sizes of the images, where they are left open.
fn fit(config: &mut Config) -> Result<(), TrainError> {
    let section: &ComplementGanConfig = own(&config.model);
    let is_known = section.pixels() > 0 && section.classes > 0;
    let data = config.own.get::<DataConfig>();
    let has_data = !data.corpus.is_empty() || data.drawn != DrawnPoints::None;
    drop(data);
    fit_to_data(config, (has_data, is_known), "images", open)
}

impl Job for Opened {
    fn data(&self) -> String {
        self.fingerprint()
    }

    fn train(
        &self,
        config: &Config,
        _: Compute,
        comm: &dyn Communicator,
        stop: &dyn Fn() -> bool,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Outcome, TrainError> {
        let section: &ComplementGanConfig = own(&config.model);
        let objective = config.own.get::<ObjectiveConfig>().into_owned();
        let material = self.material.clone();
        let threshold = |density| {
            let looked_at = (&material.train, material.unlabelled.as_slice());
            let what = "densities of training images, for their centile";
            let mut told = |done, total| on_event(Event::Preparing { what, done, total });
            let mut watch = Watch::new(&mut told).stopped_by(stop);
            LowDensity::new(density, &objective, config.train.seed, looked_at, comm, &mut watch)
        };
        let density = self.density.clone().map(threshold).transpose()?;
        let players = Players::new(&config.train, section, &objective).with_density(density);
        let fingerprint = self.fingerprint();
        let family = Training { config, section, objective, material, fingerprint };
        segue_engine::train(config, family, players, comm, stop, on_event)
    }
}

/// What a run takes, but for its density, whose sizes are those of another run: three images a lane in a turn of the discriminator, two and one that is made in one of the generator.
fn work(config: &Config) -> Result<Work, TrainError> {
    let section: &ComplementGanConfig = own(&config.model);
    let objective = config.own.get::<ObjectiveConfig>();
    let images = config.train.micro_batch as f64;
    let pixels = section.pixels() as i64;
    let products = |plan: Plan, values: i64| {
        let (products, given) = plan.products(&[values]);
        (images * products * PER_MULTIPLY_ADD as f64, images * given)
    };
    let (discriminator, seen) = products(Plan::discriminator(section), pixels);
    let (generator, made) = products(Plan::generator(section), section.noise_size as i64);
    let (encoder, encoded) = match objective.input_entropy > 0.0 {
        true => products(Plan::encoder(section), pixels),
        false => (0.0, 0.0),
    };
    // `only`: what no gradient goes back through.
    let turn = |networks: Vec<usize>, forward: f64, only: f64, activations: f64| TurnWork {
        steps: 1,
        networks,
        micro_step: MicroStep::of_products(config.train.micro_batch as u64, 1, forward + only, activations)
            .with_forward_only(only),
    };
    let turns = match objective.fakes {
        Fakes::None => {
            let batches = if objective.entropy > 0.0 { 2.0 } else { 1.0 };
            vec![turn(vec![DISCRIMINATOR], batches * discriminator, 0.0, batches * seen)]
        }
        Fakes::Data | Fakes::Complement => {
            vec![turn(vec![DISCRIMINATOR], 3.0 * discriminator, 0.0, 3.0 * seen)]
        }
        Fakes::Generator => {
            let learn = if encoder > 0.0 { vec![GENERATOR, ENCODER] } else { vec![GENERATOR] };
            let forward = discriminator + generator + encoder;
            vec![
                turn(vec![DISCRIMINATOR], 3.0 * discriminator, generator, 3.0 * seen),
                // Of real images the features alone are taken.
                turn(learn, forward, discriminator, seen + made + encoded),
            ]
        }
    };
    Ok(Work::of_turns(Players::specs(section, &objective), turns, |_| Role::Other).counted_in("images"))
}

/// A run.
struct Training<'a> {
    config: &'a Config,
    section: &'a ComplementGanConfig,
    objective: ObjectiveConfig,
    material: Arc<Material>,
    fingerprint: String,
}

impl Family for Training<'_> {
    type Learner = Players;
    /// A batch is a function of its number: no place in the data to remember.
    type Cursor = ();

    fn fingerprint(&self) -> String {
        self.fingerprint.clone()
    }

    fn labels(&self) -> Labels {
        let generates = self.objective.fakes == Fakes::Generator;
        let turns: &[&str] = if generates { &["discriminator", "generator"] } else { &[] };
        Labels {
            doing: "train",
            step_of: "images",
            per_step: self.config.train.lanes as u64,
            rate_of: "images",
            loss_as: LossAs::Loss,
            group: generates.then_some(self.config.train.group_size() as u64),
            sources: ("turn", turns.iter().map(|name| name.to_string()).collect()),
        }
    }

    fn reader(&self, place: Place<()>) -> Result<FamilyReader<Self>, TrainError> {
        let reader = ImageReader {
            material: self.material.clone(),
            of_generator: place.source == GENERATOR,
            fakes: self.objective.fakes,
            lanes: Lanes {
                seed: self.config.train.seed,
                own: place.layout.lane_range(),
                all: self.config.train.lanes,
            },
            micro_steps: place.layout.micro_steps.len(),
        };
        Ok(Box::new(reader.map(Prepared::of)))
    }

    fn evaluates(&self) -> bool {
        self.material.test.is_some() || !self.material.held_out.is_empty()
    }

    fn evaluate(
        &mut self,
        players: &mut Players,
        comm: &dyn Communicator,
        watch: &mut Watch,
    ) -> Result<Option<Measures>, TrainError> {
        let generates = self.objective.fakes == Fakes::Generator;
        evaluate::measure(players, &self.material, generates, self.config.train.seed, comm, watch)
    }

    /// Chosen by held-out images alone: test images choose nothing.
    fn keeps_best(&self) -> Option<KeepBest> {
        (!self.material.held_out.is_empty()).then(|| KeepBest::of(&self.config.eval))
    }

    fn model_config(&self, _: &Players) -> Value {
        let mut config = json!(self.section);
        config["model_type"] = json!("complement-gan");
        if let Some(names) = self.material.train.class_names() {
            config[trained::CLASS_NAMES] = json!(names);
        }
        config
    }
}
