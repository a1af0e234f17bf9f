//! A number learnt from pairs: the smallest family there can be.

mod config;
mod model;
mod trained;

use std::ops::Range;

use segue_collectives::Communicator;
use segue_configs::{Config, ModelConfig, ModelType};
use segue_cost::{MicroStep, Role, Work};
use segue_data_error::DataError;
use segue_dataloader::Reader;
use segue_engine::{
    Better, Event, Family, FamilyReader, Labels, LossAs, Measures, Outcome, Place, Prepared, Watch,
};
use segue_family::{Asked, Entry, Evaluations, Job, own};
use segue_kernels::{Compute, TrainError};
use segue_random::{Purpose, Stream};
use serde_json::{Value, json};
use tch::Tensor;

pub use config::SlopeConfig;
pub use model::Slope;

/// The family's line in the list.
pub static FAMILY: Entry = Entry {
    section: ModelType::of::<SlopeConfig>,
    open: |_| Ok(Box::new(Pairs)),
    fit: |_| Ok(()),
    work,
    capabilities: &[&Evaluations(&[Asked::of::<trained::SlopeError>()]), &trained::WRITES],
};

/// Drawn pairs: there is nothing to open.
struct Pairs;

impl Job for Pairs {
    fn train(
        &self,
        config: &Config,
        _: Compute,
        comm: &dyn Communicator,
        stop: &dyn Fn() -> bool,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Outcome, TrainError> {
        segue_engine::train(config, Fit { config }, Slope::new(config.train.seed), comm, stop, on_event)
    }
}

fn truth(model: &ModelConfig) -> f64 {
    own::<SlopeConfig>(model).truth
}

fn work(config: &Config) -> Result<Work, TrainError> {
    let pairs = config.train.micro_batch as f64;
    let micro_step = MicroStep::of_products(config.train.micro_batch as u64, 1, 2.0 * pairs, pairs);
    Ok(Work::new(Slope::specs(), micro_step, |_| Role::Other))
}

/// Draws pairs of one rank's lanes: a function of (seed, batch, lane).
struct PairReader {
    truth: f64,
    seed: u64,
    lanes: Range<usize>,
}

impl Reader for PairReader {
    type Batch = Vec<f32>;

    fn read(&mut self, nth: u64) -> Result<Vec<f32>, DataError> {
        let pair = |lane: usize| {
            let x = Stream::new(self.seed, Purpose::Synthetic, &[nth, lane as u64]).normal(0);
            [x as f32, (self.truth * x) as f32]
        };
        Ok(self.lanes.clone().flat_map(pair).collect())
    }
}

/// A run.
struct Fit<'a> {
    config: &'a Config,
}

impl Family for Fit<'_> {
    type Learner = Slope;
    type Cursor = ();

    fn labels(&self) -> Labels {
        Labels {
            doing: "train",
            step_of: "pairs",
            per_step: self.config.train.lanes as u64,
            rate_of: "pairs",
            loss_as: LossAs::Loss,
            group: None,
            sources: ("source", Vec::new()),
        }
    }

    fn reader(&self, place: Place<()>) -> Result<FamilyReader<Self>, TrainError> {
        let (truth, seed) = (truth(&self.config.model), self.config.train.seed);
        let shape = [place.layout.micro_steps.len() as i64, place.layout.micro_batch as i64, 2];
        let reader = PairReader { truth, seed, lanes: place.layout.lane_range() };
        Ok(Box::new(reader.map(move |pairs| Prepared::of(Tensor::from_slice(&pairs).view(shape)))))
    }

    fn evaluate(
        &mut self,
        slope: &mut Slope,
        _: &dyn Communicator,
        _: &mut Watch,
    ) -> Result<Option<Measures>, TrainError> {
        let distance = (slope.value() - truth(&self.config.model)).abs();
        Ok(Some(Measures {
            lead: distance,
            better: Better::Lower,
            decide: None,
            tie: None,
            row: json!({ "distance": distance }),
            scalars: vec![("valid/distance".into(), distance)],
            lines: vec![format!("distance {distance:.4}")],
        }))
    }

    fn model_config(&self, _: &Slope) -> Value {
        let mut config = json!(own::<SlopeConfig>(&self.config.model));
        config["model_type"] = json!("slope");
        config
    }
}
