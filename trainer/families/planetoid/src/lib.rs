//! Classes of the nodes of a graph, of which few are labelled (Yang, Cohen and Salakhutdinov 2016). See `README.md` beside this file.

mod classes;
mod config;
mod data;
mod evaluate;
mod features;
mod learner;
mod losses;
mod model;
mod predict;
mod sections;
#[cfg(test)]
mod toy;
mod turns;
mod variant;

use std::sync::Arc;

use segue_collectives::Communicator;
use segue_configs::{Config, ModelType};
use segue_cost::{MicroStep, PER_MULTIPLY_ADD, Role, Work};
use segue_dataloader::Reader;
use segue_engine::{Event, Family, FamilyReader, Labels, LossAs, Measures, Outcome, Place, Prepared, Watch};
use segue_family::{Asked, Entry, Job, Predicts, fit_to_data, own};
use segue_kernels::{Compute, TrainError};
use serde_json::{Value, json};

pub use config::{Contexts, Hidden, LabelPairs, PairsPerWalk, PlanetoidConfig, Starts};
pub use data::{Material, Part, PartReader};
pub use evaluate::Prediction;
pub use features::Bags;
pub use learner::Classifier;
pub use losses::{PairCounts, disagreement, negative_contexts, softmax_contexts};
pub use model::{Network, Nodes, Scores};
pub use predict::Predictor;
pub use sections::{DataConfig, NodesEvalConfig, TurnsConfig};
pub use turns::{Task, Turns};
pub use variant::Variant;

/// The family's line in the list.
pub static FAMILY: Entry = Entry {
    section: ModelType::of::<PlanetoidConfig>,
    open,
    fit,
    work,
    capabilities: &[&Predicts(Asked::of::<classes::Classes>())],
};

/// A graph that is open.
struct Opened {
    material: Arc<Material>,
    /// Whether a model of features was asked for, of which the graph has none.
    lacks_features: bool,
}

fn open(config: &mut Config) -> Result<Box<dyn Job>, TrainError> {
    let mut fitted = own::<PlanetoidConfig>(&config.model).clone();
    let asked = fitted.variant;
    let material = Arc::new(Material::open(&config.own.get(), &config.own.get(), &mut fitted)?);
    let lacks_features = fitted.variant != asked;
    config.model = fitted.into();
    Ok(Box::new(Opened { material, lacks_features }))
}

/// Takes the sizes of the graph, where they are left open.
fn fit(config: &mut Config) -> Result<(), TrainError> {
    let section: &PlanetoidConfig = own(&config.model);
    let is_known = section.nodes > 0 && section.classes > 0;
    let has_data = !config.own.get::<DataConfig>().corpus.is_empty();
    fit_to_data(config, (has_data, is_known), "a graph", open)
}

impl Job for Opened {
    fn data(&self) -> String {
        self.material.data.fingerprint()
    }

    fn train(
        &self,
        config: &Config,
        _: Compute,
        comm: &dyn Communicator,
        stop: &dyn Fn() -> bool,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Outcome, TrainError> {
        let section: &PlanetoidConfig = own(&config.model);
        if self.lacks_features {
            let graph = &self.material.data.name;
            on_event(Event::Warning {
                what: format!(
                    "the graph `{graph}` has no features: it trains as model.variant=graph\n\
                     hint: add features.svm, or set model.variant=graph"
                ),
            });
        }
        let turns = config.own.get::<TurnsConfig>().into_owned();
        let network = Network::new(section, config.train.seed);
        let learner = Classifier::new(&config.train, &turns, network, self.material.clone());
        let family = Training { config, section, turns, material: self.material.clone() };
        segue_engine::train(config, family, learner, comm, stop, on_event)
    }
}

/// What a run takes. Products of a step of contexts, which is the dearest: all contexts for each anchor, of which a walk has one a node.
fn work(config: &Config) -> Result<Work, TrainError> {
    let section: &PlanetoidConfig = own(&config.model);
    let micro_steps = config.train.micro_steps().max(1) as f64;
    let anchors = (config.own.get::<TurnsConfig>().context_batch * section.walk_nodes) as f64 / micro_steps;
    let scores = match section.contexts {
        _ if !section.variant.has_contexts() => 0.0,
        Contexts::Softmax => anchors.min(section.context_nodes as f64) * section.context_nodes as f64,
        Contexts::Negative => anchors,
    };
    let forward = scores * section.d_embed as f64 * PER_MULTIPLY_ADD as f64;
    let micro_step = MicroStep::of_products(config.train.micro_batch as u64, 1, forward, 4.0 * scores);
    Ok(Work::new(Network::specs(section), micro_step, |_| Role::Other).counted_in("nodes"))
}

/// A run.
struct Training<'a> {
    config: &'a Config,
    section: &'a PlanetoidConfig,
    turns: TurnsConfig,
    material: Arc<Material>,
}

impl Family for Training<'_> {
    type Learner = Classifier;
    /// A batch is a function of its number: no place in the data to remember.
    type Cursor = ();

    fn fingerprint(&self) -> String {
        self.material.data.fingerprint()
    }

    fn labels(&self) -> Labels {
        Labels {
            doing: "train",
            step_of: "nodes",
            per_step: self.turns.batch.min(self.material.labelled.len()) as u64,
            rate_of: "steps",
            loss_as: LossAs::Loss,
            group: None,
            sources: ("task", Task::ALL.iter().map(|task| task.name().to_string()).collect()),
        }
    }

    fn reader(&self, place: Place<()>) -> Result<FamilyReader<Self>, TrainError> {
        let reader = PartReader {
            material: self.material.clone(),
            config: self.section.clone(),
            turns: self.turns.clone(),
            seed: self.config.train.seed,
            task: Task::ALL[place.source],
            micro_steps: place.layout.micro_steps,
            of: self.config.train.micro_steps(),
        };
        Ok(Box::new(reader.map(|batch| Prepared { work: Some(1.0), ..Prepared::of(batch) })))
    }

    fn evaluates(&self) -> bool {
        !self.material.data.test.is_empty()
    }

    /// Test nodes are few: every rank predicts all of them.
    fn evaluate(
        &mut self,
        classifier: &mut Classifier,
        _: &dyn Communicator,
        _: &mut Watch,
    ) -> Result<Option<Measures>, TrainError> {
        if !self.evaluates() {
            return Ok(None);
        }
        let (data, k) = (&self.material.data, self.config.own.get::<NodesEvalConfig>().recall_at);
        let of = |nodes: &[u32]| evaluate::predict(&classifier.network, &self.material, nodes);
        let ranked = match k {
            0 => Vec::new(),
            _ => of(&self.material.candidates(self.section.variant))?,
        };
        let (accuracy, row) = evaluate::measure(data, &of(&data.test)?, &ranked, k);
        Ok(Some(evaluate::measures(classifier, accuracy, row)))
    }

    fn model_config(&self, _: &Classifier) -> Value {
        let mut config = json!(self.section);
        config["model_type"] = json!("planetoid");
        // What the model is asked about, where nothing else is named: the test nodes of its split.
        if let (Some(fields), Value::Object(mut data)) =
            (config.as_object_mut(), json!(self.config.own.get::<DataConfig>()))
        {
            data.remove("corpus");
            fields.extend(data);
        }
        config
    }
}
