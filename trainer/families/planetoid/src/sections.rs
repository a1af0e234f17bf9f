//! The sections beside `[model]` that this family owns.

use std::path::Path;

use schemars::JsonSchema;
use segue_configs::model::{no_effect, out_of_range};
use segue_configs::range::Range;
use segue_configs::{ConfigError, OwnSection};
use segue_data_error::DataError;
use segue_graph::{NodeData, OpenOptions, Setting, Split};
use serde::{Deserialize, Serialize};

use super::variant::Variant;

/// Steps and batches are counted in 64 bits.
const MAX_COUNT: u64 = 1 << 32;

/// Steps of a round, on average: rounds without a step are passed over one by one.
const LEAST_STEPS: f64 = 1e-3;

/// `[data]`: the graph, and which of its nodes are labelled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DataConfig {
    /// Folder of the graph, with the files of the public data sets.
    pub corpus: String,
    /// Seed of a random split; 0 for the split of the files. Tune settings on another split than the one that results are reported on.
    #[schemars(transform = Range::at_least(0).at_most(i64::MAX).or_too_large("a seed has at most 63 bits"))]
    pub split_seed: u64,
    /// Labelled nodes of each class, with a `split_seed`.
    #[schemars(transform = Range::at_least(1).at_most(MAX_COUNT))]
    pub split_per_class: usize,
    /// Test nodes, with a `split_seed`.
    #[schemars(transform = Range::at_least(0).at_most(MAX_COUNT))]
    pub split_test: usize,
    /// Number of one of the splits that the data set brings, from 1: of the folders in its folder `splits`, or that beside its pickles, in the
    /// order of their names as numbers, each with `train.index` and `test.index`. 0 for the split of the files.
    #[schemars(transform = Range::at_least(0).at_most(1 << 16))]
    pub given_split: usize,
}

impl Default for DataConfig {
    fn default() -> Self {
        Self { corpus: String::new(), split_seed: 0, split_per_class: 20, split_test: 1000, given_split: 0 }
    }
}

impl DataConfig {
    /// Opens the graph at `path` as a model of this variant reads it.
    pub fn open(&self, path: &Path, variant: Variant) -> Result<NodeData, DataError> {
        let setting = if variant.is_inductive() { Setting::Inductive } else { Setting::Transductive };
        let split = match (self.given_split, self.split_seed) {
            (0, 0) => Split::Files,
            (0, seed) => Split::Drawn { per_class: self.split_per_class, test: self.split_test, seed },
            (number, _) => Split::Given(number),
        };
        let options = OpenOptions { split, features_needed: variant.reads_features(), ..Default::default() };
        NodeData::open_with(path, setting, options)
    }
}

impl OwnSection for DataConfig {
    const NAME: &'static str = "data";
    const TITLE: &'static str = "graph";

    fn check(&self) -> Result<(), ConfigError> {
        let usual = Self::default();
        for (key, value, usual) in [
            ("data.split_per_class", self.split_per_class, usual.split_per_class),
            ("data.split_test", self.split_test, usual.split_test),
        ] {
            if self.split_seed == 0 && value != usual {
                return Err(no_effect(key, value, "needs a data.split_seed"));
            }
        }
        if self.split_seed != 0 && self.given_split != 0 {
            let why = "there is a data.split_seed too\nhint: a split is drawn or given, set one to 0";
            return Err(out_of_range("data.given_split", self.given_split, why));
        }
        Ok(())
    }
}

/// Keys of `[train]`: the kinds of steps, their batches, and how they take turns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TurnsConfig {
    /// Labelled nodes of a supervised step, at most all of them.
    #[schemars(transform = Range::at_least(1).at_most(MAX_COUNT))]
    pub batch: usize,
    /// Walks or pairs of labelled nodes of a step of contexts; edges of a step of penalties.
    #[schemars(transform = Range::at_least(1).at_most(MAX_COUNT))]
    pub context_batch: usize,
    /// Pairs of labelled nodes of a step of `pretrain_label`.
    #[schemars(transform = Range::at_least(1).at_most(MAX_COUNT))]
    pub label_batch: usize,
    /// Steps of contexts of labels before all else.
    #[schemars(transform = Range::at_least(0).at_most(MAX_COUNT))]
    pub pretrain_label: u64,
    /// Steps of contexts after these and before the first supervised step.
    #[schemars(transform = Range::at_least(0).at_most(MAX_COUNT))]
    pub pretrain_contexts: u64,
    /// Supervised steps of a round. Of a fraction, the rest is the probability of one more.
    #[schemars(transform = Range::at_least(0.0).at_most(MAX_COUNT))]
    pub supervised_steps: f64,
    /// Steps of contexts, or of penalties, of a round, likewise.
    #[schemars(transform = Range::at_least(0.0).at_most(MAX_COUNT))]
    pub context_steps: f64,
}

impl Default for TurnsConfig {
    fn default() -> Self {
        Self {
            batch: 200,
            context_batch: 200,
            label_batch: 100,
            pretrain_label: 2000,
            pretrain_contexts: 70,
            supervised_steps: 1.0,
            context_steps: 0.0,
        }
    }
}

impl TurnsConfig {
    /// Refuses rounds in which nothing happens to a model of this variant.
    pub(super) fn check_rounds(&self, variant: Variant) -> Result<(), ConfigError> {
        let has_others = variant.has_contexts() || variant.has_penalty();
        let in_a_round = self.supervised_steps + if has_others { self.context_steps } else { 0.0 };
        if in_a_round < LEAST_STEPS {
            let why = "a round needs a step\nhint: raise it, or train.context_steps where there are contexts";
            return Err(out_of_range("train.supervised_steps", self.supervised_steps, why));
        }
        Ok(())
    }
}

impl OwnSection for TurnsConfig {
    const NAME: &'static str = "train";
    const TITLE: &'static str = "nodes";
}

/// Keys of `[eval]`: what is reported of the test nodes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodesEvalConfig {
    /// Report how many test nodes of each class are among so many nodes of its highest probability, of all that are not trained on; 0 for not.
    #[schemars(transform = Range::at_least(0).at_most(MAX_COUNT))]
    pub recall_at: usize,
}

impl OwnSection for NodesEvalConfig {
    const NAME: &'static str = "eval";
    const TITLE: &'static str = "nodes";
}

#[cfg(test)]
mod tests {
    use segue_configs::Config;
    use segue_testing::models;

    use super::super::config::PlanetoidConfig;
    use super::*;

    fn load(keys: &[&str]) -> Result<Config, String> {
        let keys: Vec<String> =
            ["model.model_type=planetoid"].iter().chain(keys).map(|key| key.to_string()).collect();
        models::<PlanetoidConfig>()
            .load(None, &keys)
            .map(|loaded| loaded.config)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn keys_without_effect_are_refused() {
        for (keys, key) in [
            (&["data.split_test=10"][..], "`data.split_test` = 10"),
            (&["data.split_seed=3", "data.given_split=1"], "`data.given_split` = 1"),
            (&["train.supervised_steps=0"], "`train.supervised_steps` = 0"),
            (
                &["model.variant=features", "train.supervised_steps=0", "train.context_steps=1"],
                "`train.supervised_steps` = 0",
            ),
        ] {
            let message = load(keys).unwrap_err();
            assert!(message.contains(key), "{message}");
        }
    }

    /// Until 0.1 they were keys of the model.
    #[test]
    fn the_names_of_earlier_versions_are_read() {
        let before = load(&["model.batch=7", "model.split_seed=3", "model.recall_at=5"]).unwrap();
        let now = load(&["train.batch=7", "data.split_seed=3", "eval.recall_at=5"]).unwrap();
        assert_eq!(before, now);
        assert_eq!(before.own.get::<TurnsConfig>().batch, 7);
        let place = tempfile::tempdir().unwrap();
        let recipe = place.path().join("both.toml");
        let text = "[model]\nmodel_type = \"planetoid\"\nbatch = 7\n[train]\nbatch = 9\n";
        std::fs::write(&recipe, text).unwrap();
        let both = models::<PlanetoidConfig>().load(Some(&recipe), &[]).unwrap_err().to_string();
        assert!(both.contains("`model.batch` = 7") && both.contains("train.batch"), "{both}");
        let message = load(&["model.batch=many"]).unwrap_err();
        assert!(message.contains("train.batch"), "{message}");
    }
}
