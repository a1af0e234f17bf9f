//! A game of two networks with a known optimum: the worked example of a family. See `README.md` beside this file.

mod config;
mod data;
mod model;

use segue_collectives::Communicator;
use segue_configs::{Config, ModelType};
use segue_cost::{MicroStep, PER_MULTIPLY_ADD, Role, TurnWork, Work};
use segue_dataloader::Reader;
use segue_engine::{
    Better, Event, Family, FamilyReader, KeepBest, Labels, LossAs, Measures, Outcome, Place, Prepared, Watch,
};
use segue_family::{Entry, Job, own};
use segue_kernels::{Compute, TrainError};
use serde_json::{Value, json};
use tch::Tensor;

pub use config::MomentGameConfig;
pub use data::VectorReader;
pub use model::{CRITIC, GENERATOR, Players};

/// The family's line in the list.
pub static FAMILY: Entry = Entry {
    section: ModelType::of::<MomentGameConfig>,
    open: |_| Ok(Box::new(Vectors)),
    fit: |_| Ok(()),
    work,
    capabilities: &[],
};

/// Drawn vectors: there is nothing to open.
struct Vectors;

impl Job for Vectors {
    fn train(
        &self,
        config: &Config,
        _: Compute,
        comm: &dyn Communicator,
        stop: &dyn Fn() -> bool,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Outcome, TrainError> {
        let game: &MomentGameConfig = own(&config.model);
        let players = Players::new(&config.train, game);
        segue_engine::train(config, MomentGame { config, game }, players, comm, stop, on_event)
    }
}

/// What a run takes: a vector is multiplied with A once, and data and what is made with V. The critic's turn trains nothing of A.
fn work(config: &Config) -> Result<Work, TrainError> {
    let game: &MomentGameConfig = own(&config.model);
    let (vectors, size) = (config.train.micro_batch as f64, game.size as f64);
    let product = vectors * PER_MULTIPLY_ADD as f64 * size * size;
    let micro_step =
        || MicroStep::of_products(config.train.micro_batch as u64, 1, 3.0 * product, 4.0 * vectors * size);
    let turns = match game.critic_steps {
        0 => vec![TurnWork { steps: 1, networks: vec![GENERATOR, CRITIC], micro_step: micro_step() }],
        steps => vec![
            TurnWork { steps, networks: vec![CRITIC], micro_step: micro_step().with_forward_only(product) },
            TurnWork { steps: 1, networks: vec![GENERATOR], micro_step: micro_step() },
        ],
    };
    Ok(Work::of_turns(Players::specs(game), turns, |_| Role::Other).counted_in("vectors"))
}

/// A run of the game.
struct MomentGame<'a> {
    config: &'a Config,
    game: &'a MomentGameConfig,
}

impl Family for MomentGame<'_> {
    type Learner = Players;
    /// A batch is a function of its number: no place in the data to remember.
    type Cursor = ();

    fn labels(&self) -> Labels {
        let turns: &[&str] = if self.game.critic_steps == 0 { &[] } else { &["generator", "critic"] };
        Labels {
            doing: "train",
            step_of: "vectors",
            per_step: self.config.train.lanes as u64,
            rate_of: "vectors",
            loss_as: LossAs::Loss,
            group: (self.game.matching > 0.0).then_some(self.config.train.group_size() as u64),
            sources: ("turn", turns.iter().map(|name| name.to_string()).collect()),
        }
    }

    fn reader(&self, place: Place<()>) -> Result<FamilyReader<Self>, TrainError> {
        let layout = &place.layout;
        let shape = [layout.micro_steps.len(), layout.micro_batch, self.game.size].map(|n| n as i64);
        let reader = VectorReader {
            config: self.game.clone(),
            seed: self.config.train.seed,
            source: place.source,
            lanes: layout.lane_range(),
        };
        Ok(Box::new(reader.map(move |vectors| Prepared::of(Tensor::from_slice(&vectors).view(shape)))))
    }

    /// Measures the distance to the optimum, eq. 5. All of it is at hand on every rank: nothing is shared out.
    fn evaluate(
        &mut self,
        players: &mut Players,
        _: &dyn Communicator,
        _: &mut Watch,
    ) -> Result<Option<Measures>, TrainError> {
        let length = |difference: Tensor| difference.square().sum(None).sqrt().double_value(&[]);
        let (mean, covariance) = players.moments();
        let of_mean = length(mean - self.game.mean);
        let of_covariance = length(covariance - data::covariance(self.game));
        let values = [
            ("distance", of_mean.hypot(of_covariance)),
            ("mean_error", of_mean),
            ("covariance_error", of_covariance),
            ("critic_norm", players.critic_norm()),
        ];
        let distance = values[0].1;
        Ok(Some(Measures {
            lead: distance,
            better: Better::Lower,
            decide: None,
            tie: None,
            row: values.iter().map(|(name, value)| (name.to_string(), json!(value))).collect(),
            scalars: values.iter().map(|(name, value)| (format!("valid/{name}"), *value)).collect(),
            lines: vec![format!(
                "distance to the optimum {distance:.4}: mean {of_mean:.4}, covariance {of_covariance:.4}"
            )],
        }))
    }

    fn keeps_best(&self) -> Option<KeepBest> {
        Some(KeepBest::of(&self.config.eval))
    }

    fn model_config(&self, _: &Players) -> Value {
        let mut config = json!(self.game);
        config["model_type"] = json!("moment-game");
        config
    }
}
