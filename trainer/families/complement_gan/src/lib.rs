//! Classes of images of which few are labelled: a discriminator against a generator whose images are the complement of the data (Dai et al. 2017; Yang 2019, §3.1). See
//! `README.md` beside this file.

mod config;
mod data;
mod density;
mod evaluate;
mod keys;
mod learner;
mod losses;
mod network;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use segue_collectives::Communicator;
use segue_configs::{Config, ModelType};
use segue_cost::{MicroStep, PER_MULTIPLY_ADD, Role, TurnWork, Work};
use segue_dataloader::Reader;
use segue_engine::{
    Event, Family, FamilyReader, KeepBest, Labels, LossAs, Measures, Outcome, Place, Prepared, Watch,
};
use segue_family::{Entry, Job, own};
use segue_kernels::{Compute, TrainError};
use serde_json::{Value, json};

pub use config::ComplementGanConfig;
pub use data::{ImageReader, Material};
pub use density::{mixture, network as pixel_cnn};
pub use keys::{DataConfig, Fakes, ObjectiveConfig, Unlabelled};
pub use learner::{DISCRIMINATOR, GENERATOR, ImageBatch, Players};
pub use losses::{
    EntropyOver, FeatureDistance, conditional_entropy, excess_density, fake, feature_matching, input_entropy,
    labelled, pull_away, real,
};

/// The family's line in the list.
pub static FAMILY: Entry =
    Entry { section: ModelType::of::<ComplementGanConfig>, open, fit, work, capabilities: &[] };

/// Images that are open.
struct Opened(Arc<Material>);

fn open(config: &mut Config) -> Result<Box<dyn Job>, TrainError> {
    let mut fitted = own::<ComplementGanConfig>(&config.model).clone();
    let material = Material::open(&config.own.get(), &mut fitted)?;
    config.model = fitted.into();
    Ok(Box::new(Opened(Arc::new(material))))
}

/// Takes the sizes of the images, where they are left open.
fn fit(config: &mut Config) -> Result<(), TrainError> {
    let section: &ComplementGanConfig = own(&config.model);
    let sizes_are_known = section.pixels() > 0 && section.classes > 0;
    match config.own.get::<DataConfig>().corpus.is_empty() {
        false => open(config).map(drop),
        true if sizes_are_known => Ok(()),
        true => {
            let why = "the recipe takes its sizes from the images\nhint: add data.corpus=FOLDER of images";
            Err(TrainError::Layout(why.into()))
        }
    }
}

impl Job for Opened {
    fn data(&self) -> String {
        self.0.fingerprint()
    }

    fn train(
        &self,
        config: &Config,
        _: Compute,
        comm: &dyn Communicator,
        stop: &dyn Fn() -> bool,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Outcome, TrainError> {
        let (section, objective) = (own(&config.model), config.own.get::<ObjectiveConfig>().into_owned());
        let players = Players::new(&config.train, section, &objective);
        let family = Training { config, section, objective, material: self.0.clone() };
        segue_engine::train(config, family, players, comm, stop, on_event)
    }
}

/// Multiplications of an image with the weights of a network whose layers are that wide.
fn products(widths: impl Iterator<Item = usize> + Clone) -> f64 {
    let pairs = widths.clone().zip(widths.skip(1));
    pairs.map(|(from, to)| (from * to) as f64).sum::<f64>() * PER_MULTIPLY_ADD as f64
}

/// What a run takes: three images a lane in a turn of the discriminator, two and one that is made in one of the generator.
fn work(config: &Config) -> Result<Work, TrainError> {
    let section: &ComplementGanConfig = own(&config.model);
    let images = config.train.micro_batch as f64;
    let hidden = section.hidden.iter().copied();
    let discriminator =
        products([section.pixels()].into_iter().chain(hidden.clone()).chain([section.classes]));
    let generator = products(
        [section.noise_size]
            .into_iter()
            .chain(section.generator_hidden.iter().copied())
            .chain([section.pixels()]),
    );
    let activations = images * hidden.sum::<usize>() as f64;
    let micro_step = |forward: f64| {
        MicroStep::of_products(config.train.micro_batch as u64, 1, images * forward, 3.0 * activations)
    };
    let turns = match config.own.get::<ObjectiveConfig>().fakes {
        Fakes::None => {
            vec![TurnWork { steps: 1, networks: vec![DISCRIMINATOR], micro_step: micro_step(discriminator) }]
        }
        Fakes::Data => vec![TurnWork {
            steps: 1,
            networks: vec![DISCRIMINATOR],
            micro_step: micro_step(3.0 * discriminator),
        }],
        Fakes::Generator => vec![
            TurnWork {
                steps: 1,
                networks: vec![DISCRIMINATOR],
                micro_step: micro_step(3.0 * discriminator).with_forward_only(images * generator),
            },
            TurnWork {
                steps: 1,
                networks: vec![GENERATOR],
                micro_step: micro_step(2.0 * discriminator + generator),
            },
        ],
    };
    Ok(Work::of_turns(Players::specs(section), turns, |_| Role::Other))
}

/// A run.
struct Training<'a> {
    config: &'a Config,
    section: &'a ComplementGanConfig,
    objective: ObjectiveConfig,
    material: Arc<Material>,
}

impl Family for Training<'_> {
    type Learner = Players;
    /// A batch is a function of its number: no place in the data to remember.
    type Cursor = ();

    fn fingerprint(&self) -> String {
        self.material.fingerprint()
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
            seed: self.config.train.seed,
            of_generator: place.source == GENERATOR,
            fakes: self.objective.fakes,
            lanes: place.layout.lane_range(),
            all_lanes: self.config.train.lanes,
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
        config
    }
}
