//! Densities of images, a pixel after the other: PixelCNN++ (Salimans et al. 2017). See `README.md` beside this file.

mod config;
mod data;
mod density;
mod evaluate;
pub mod images;
mod learner;
pub mod mixture;
pub mod network;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use segue_collectives::Communicator;
use segue_configs::{Config, ModelSection, ModelType};
use segue_cost::{MicroStep, PER_MULTIPLY_ADD, Role, TurnWork, Work};
use segue_dataloader::Reader;
use segue_engine::{
    Event, Family, FamilyReader, KeepBest, Labels, LossAs, Measures, Outcome, Place, Prepared, Watch,
};
use segue_family::{Asked, Entry, Evaluations, Job, fit_to_data, own};
use segue_kernels::{Compute, TrainError};
use serde_json::{Value, json};

pub use config::{DataConfig, PixelCnnConfig};
pub use data::{ImageReader, Material};
pub use density::{Densities, Density, GridOptions, ImagesOptions, centile, write_grid};
pub use evaluate::{bits_per_dimension, log_densities};
pub use learner::Model;

/// The family's line in the list.
pub static FAMILY: Entry =
    Entry { section: ModelType::of::<PixelCnnConfig>, open, fit, work, capabilities: &[&EVALUATIONS] };

static EVALUATIONS: Evaluations = Evaluations(&[Asked::of::<Densities>()]);

/// Images that are open.
struct Opened {
    material: Arc<Material>,
}

fn open(config: &mut Config) -> Result<Box<dyn Job>, TrainError> {
    let mut fitted = own::<PixelCnnConfig>(&config.model).clone();
    let material = Arc::new(Material::open(&config.own.get(), &mut fitted)?);
    // The images may have sizes that the network does not take.
    fitted.check()?;
    config.model = fitted.into();
    Ok(Box::new(Opened { material }))
}

/// Takes the size of the images, where it is left open.
fn fit(config: &mut Config) -> Result<(), TrainError> {
    let is_known = own::<PixelCnnConfig>(&config.model).values() > 0;
    let has_data = !config.own.get::<DataConfig>().corpus.is_empty();
    fit_to_data(config, (has_data, is_known), "images", open)
}

impl Job for Opened {
    fn check_validation(&self, _: &Config) -> Result<(), TrainError> {
        match self.material.held_out.is_empty() && self.material.splits.test.is_none() {
            false => Ok(()),
            true => Err(TrainError::Layout("nothing is evaluated\nhint: add data.held_out=500".into())),
        }
    }

    fn data(&self) -> String {
        self.material.fingerprint()
    }

    fn train(
        &self,
        config: &Config,
        _: Compute,
        comm: &dyn Communicator,
        stop: &dyn Fn() -> bool,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Outcome, TrainError> {
        let section = own(&config.model);
        let model = Model::new(&config.train, section);
        let family = Training { config, section, material: self.material.clone() };
        segue_engine::train(config, family, model, comm, stop, on_event)
    }
}

/// What a run takes.
fn work(config: &Config) -> Result<Work, TrainError> {
    let section: &PixelCnnConfig = own(&config.model);
    let images = config.train.micro_batch as f64;
    let [_, height, width] = section.image;
    let (products, given) = network::PixelCnn::products(&section.sizes(), [height, width]);
    let forward = images * products * PER_MULTIPLY_ADD as f64;
    let micro_step = MicroStep::of_products(
        config.train.micro_batch as u64,
        section.values() as u64,
        forward,
        images * given,
    );
    let turn = TurnWork { steps: 1, networks: vec![0], micro_step };
    let work = Work::of_turns(vec![("model", Model::specs(section))], vec![turn], |_| Role::Other);
    Ok(work.counted_in("images"))
}

/// A run.
struct Training<'a> {
    config: &'a Config,
    section: &'a PixelCnnConfig,
    material: Arc<Material>,
}

impl Family for Training<'_> {
    type Learner = Model;
    /// A batch is a function of its number: no place in the data to remember.
    type Cursor = ();

    fn fingerprint(&self) -> String {
        self.material.fingerprint()
    }

    fn labels(&self) -> Labels {
        Labels {
            doing: "train",
            step_of: "images",
            per_step: self.config.train.lanes as u64,
            rate_of: "images",
            loss_as: LossAs::Loss,
            group: None,
            sources: ("turn", Vec::new()),
        }
    }

    fn reader(&self, place: Place<()>) -> Result<FamilyReader<Self>, TrainError> {
        let (seed, all) = (self.config.train.seed, self.config.train.lanes);
        let reader = ImageReader {
            material: self.material.clone(),
            lanes: images::Lanes { seed, own: place.layout.lane_range(), all },
            micro_steps: place.layout.micro_steps.len(),
        };
        Ok(Box::new(reader.map(Prepared::of)))
    }

    fn evaluates(&self) -> bool {
        self.material.splits.test.is_some() || !self.material.held_out.is_empty()
    }

    fn evaluate(
        &mut self,
        model: &mut Model,
        comm: &dyn Communicator,
        watch: &mut Watch,
    ) -> Result<Option<Measures>, TrainError> {
        evaluate::measure(model, &self.material, comm, watch)
    }

    /// Chosen by held-out images alone: test images choose nothing.
    fn keeps_best(&self) -> Option<KeepBest> {
        (!self.material.held_out.is_empty()).then(|| KeepBest::of(&self.config.eval))
    }

    fn model_config(&self, _: &Model) -> Value {
        let mut config = json!(self.section);
        config["model_type"] = json!("pixel-cnn");
        config
    }
}
