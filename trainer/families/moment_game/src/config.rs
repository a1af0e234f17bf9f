//! The `[model]` section.

use std::any::Any;

use schemars::JsonSchema;
use segue_configs::range::{self, Range};
use segue_configs::{Config, ConfigError, DeviceKind, Idle, ModelSection, OwnSections};
use serde::{Deserialize, Serialize};

/// The covariance of a vector must fit into memory, whatever a file says.
const MAX_SIZE: usize = 4096;
/// Turns are counted in 64 bits.
const MAX_CRITIC_STEPS: u64 = 1 << 32;

/// `model_type = "moment-game"`: a linear generator learns the mean and the covariance of Gaussian vectors from a
/// quadratic critic. Both moments are known, so that a run can be held against its optimum.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MomentGameConfig {
    /// Coordinates of a vector, and of the noise it is generated from.
    #[schemars(transform = Range::at_least(1).at_most(MAX_SIZE).or_too_large("no game needs vectors that wide"))]
    pub size: usize,
    /// Mean μ of every coordinate of the data. Variances are 1.
    #[schemars(transform = Range::any())]
    pub mean: f64,
    /// Correlation ρ of neighbouring coordinates of the data; that of coordinates i and j is `ρ^|i − j|`.
    #[schemars(transform = Range::above(-1.0).below(1.0))]
    pub correlation: f64,
    /// Weight λ of the penalty `λ/2 · |w|²` on the critic's weights w. Without one the two networks need not settle at
    /// their optimum (Mescheder et al. 2018).
    #[schemars(transform = Range::above(0.0))]
    pub penalty: f64,
    /// Steps of the critic before each step of the generator; 0 updates both in every step.
    #[schemars(transform = Range::at_least(0).at_most(MAX_CRITIC_STEPS))]
    pub critic_steps: u64,
    /// Weight ν of the generator's term `ν/2 · |m − m'|²` a vector, m and m' the means of data and of what it makes over a group of
    /// `train.group` vectors (feature matching, Salimans et al. 2016, §3.1); 0 for none.
    #[schemars(transform = Range::at_least(0.0))]
    pub matching: f64,
    /// Largest singular value that the critic's quadratic form V has where it is used: one that is larger is scaled down to it, as one step of power
    /// iteration an update of the critic finds it (Miyato et al. 2018, §2.1); 0 for no bound.
    #[schemars(transform = Range::at_least(0.0))]
    pub spectral_bound: f64,
    /// Begin with a generator that has the mean of the first batch of data, and the variances of its coordinates, in place of drawn
    /// weights (data-dependent initialisation, Salimans and Kingma 2016, §3).
    pub prepared: bool,
}

impl Default for MomentGameConfig {
    fn default() -> Self {
        Self {
            size: 3,
            mean: 1.0,
            correlation: 0.5,
            penalty: 1.0,
            critic_steps: 2,
            matching: 0.0,
            spectral_bound: 0.0,
            prepared: false,
        }
    }
}

impl ModelSection for MomentGameConfig {
    const TYPE: &'static str = "moment-game";
    const TITLE: &'static str = "Moment game";
    const READS: &'static [&'static str] = &["train.batch_warmup", "train.batch_warmup_from", "train.group"];
    const NETWORKS: &'static [&'static str] = &["generator", "critic"];
    const TRAINS_ON_CARDS: bool = false;

    fn family() -> &'static (dyn Any + Send + Sync) {
        &crate::FAMILY
    }

    fn check(&self) -> Result<(), ConfigError> {
        range::check("model", self)
    }

    /// What losses of a lane have been divided by before they are scaled from the first version on: bits in half precision hang on it.
    fn targets_per_lane(&self, _: &OwnSections) -> usize {
        128
    }

    fn idle(&self, _: &OwnSections) -> Vec<Idle> {
        let why = "this game keeps its best state always";
        let mut idle = Idle::without_layers(Self::NETWORKS);
        idle.push(Idle::new("checkpoint.best", &["model.model_type"], why));
        let why = "no loss acts within a group: needs model.matching above 0";
        idle.extend(Idle::all(self.matching == 0.0, "train", &["group"], &["model.matching"], why));
        idle
    }

    fn run_defaults(config: &mut Config) {
        config.train.device = DeviceKind::Cpu;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_outside_their_ranges_are_refused_by_key() {
        let good = MomentGameConfig::default();
        good.check().unwrap();
        for (wrong, key) in [
            (MomentGameConfig { size: 0, ..good.clone() }, "model.size"),
            (MomentGameConfig { size: 4097, ..good.clone() }, "model.size"),
            (MomentGameConfig { mean: f64::NAN, ..good.clone() }, "model.mean"),
            (MomentGameConfig { correlation: 1.0, ..good.clone() }, "model.correlation"),
            (MomentGameConfig { penalty: 0.0, ..good.clone() }, "model.penalty"),
            (MomentGameConfig { matching: -1.0, ..good.clone() }, "model.matching"),
            (MomentGameConfig { spectral_bound: f64::NAN, ..good.clone() }, "model.spectral_bound"),
            (MomentGameConfig { critic_steps: u64::MAX, ..good.clone() }, "model.critic_steps"),
        ] {
            let message = wrong.check().unwrap_err().to_string();
            assert!(message.contains(key), "{message}");
        }
    }

    #[test]
    fn a_group_is_of_whole_micro_steps_and_has_an_effect() {
        let load = |keys: &[&str]| {
            let keys =
                ["model.model_type=moment-game", "train.lanes=8", "train.micro_batch=4"].iter().chain(keys);
            let keys: Vec<String> = keys.map(|key| key.to_string()).collect();
            let loaded = segue_testing::models::<crate::MomentGameConfig>().load(None, &keys);
            loaded.map(|loaded| loaded.config.train.group_size()).map_err(|error| error.to_string())
        };
        let matching = "model.matching=1";
        assert_eq!(load(&[matching]), Ok(4));
        assert_eq!(load(&[matching, "train.group=2"]), Ok(2));
        for (keys, says) in [
            (
                &[matching, "train.group=3"][..],
                "`train.group` = 3 is invalid: must divide train.micro_batch, which is 4",
            ),
            (&[matching, "train.group=8"], "`train.group` = 8 is invalid: must divide train.micro_batch"),
            (
                &["train.group=2"],
                "`train.group` = 2 is invalid: no loss acts within a group: needs model.matching above 0",
            ),
        ] {
            let message = load(keys).unwrap_err();
            assert!(message.contains(says), "{message}");
        }
    }

    #[test]
    fn rates_by_layer_are_refused_of_each_network() {
        for key in ["optim.layer_decay", "optim.critic.layer_decay", "optim.generator.layer_decay"] {
            let keys = ["model.model_type=moment-game".into(), format!("{key}=0.5")];
            let message = segue_testing::models::<crate::MomentGameConfig>()
                .load(None, &keys)
                .err()
                .unwrap()
                .to_string();
            assert!(
                message.contains(&format!("`{key}` = 0.5 is invalid: this model has no layers")),
                "{message}"
            );
        }
    }

    #[test]
    fn cards_are_refused() {
        let keys = ["model.model_type=moment-game", "train.device=cuda"].map(String::from);
        let message =
            segue_testing::models::<crate::MomentGameConfig>().load(None, &keys).err().unwrap().to_string();
        assert!(message.contains("this model trains on the processor"), "{message}");
    }
}
