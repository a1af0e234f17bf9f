//! The `[model]` section.

use std::any::Any;

use schemars::JsonSchema;
use segue_configs::model::{no_effect, out_of_range, refused, size, width};
use segue_configs::range::{self, Range};
use segue_configs::{
    Config, ConfigError, DeviceKind, Idle, ModelSection, OptimKind, OwnSections, ScheduleKind, SectionType,
};
use serde::{Deserialize, Serialize};

use super::sections::{DataConfig, NodesEvalConfig, TurnsConfig};
use super::variant::Variant;

/// Nonlinearity of the layers before the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Hidden {
    /// A softmax as wide as there are classes, as in the public program.
    Softmax,
    /// Rectified units, as in the text.
    Relu,
}

/// Loss of contexts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Contexts {
    /// The softmax over all nodes, with a bias a node (Yang 2019, eq. 3.11).
    Softmax,
    /// Pairs told from drawn ones (Yang 2019, eq. 3.12).
    Negative,
}

/// Which pairs of a walk count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PairsPerWalk {
    /// All within the window, as in the public program.
    All,
    /// One, drawn from them (Yang 2019, algorithm 2).
    One,
}

/// How a pair of labelled nodes is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LabelPairs {
    /// The anchor among all labelled nodes, then its partner among those of its class, as in the public program.
    Anchor,
    /// Among all pairs of one class alike (Yang 2019, algorithm 2).
    Uniform,
}

/// Where walks start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Starts {
    /// At every node once, in a random order, before any comes again, as in the public program; inductively at those alone that training
    /// sees.
    Permuted,
    /// At nodes drawn uniformly (Yang 2019, algorithm 2), inductively among those that training sees.
    Uniform,
}

/// `model_type = "planetoid"`: classes of the nodes of a graph, of which few are labelled (Yang, Cohen and Salakhutdinov
/// 2016), and the methods it is compared with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanetoidConfig {
    /// What predicts the class of a node.
    pub variant: Variant,
    /// Nonlinearity of the layers before the last.
    pub hidden: Hidden,
    /// Width of these layers with `hidden = "relu"`; 0 for the number of classes, which `softmax` layers always have.
    #[schemars(transform = width())]
    pub d_hidden: usize,
    /// Train each softmax layer as a classifier of its own too, by its own cross-entropy.
    pub layer_losses: bool,
    /// Move the embeddings of labelled nodes in supervised steps too, as the public program does unless told otherwise. Those of other nodes stay
    /// where contexts have put them, so that long training tells the two apart.
    pub update_embedding: bool,
    /// Width of the embedding.
    #[schemars(transform = size())]
    pub d_embed: usize,
    /// Standard deviation of the first embeddings of nodes.
    #[schemars(transform = Range::above(0.0))]
    pub embed_std: f64,
    /// Loss of contexts.
    pub contexts: Contexts,
    /// With `contexts = "negative"`: drawn pairs after each true one; 0 makes each pair a true one with probability `r1`.
    #[schemars(transform = Range::at_least(0).at_most(1 << 16))]
    pub negatives: usize,
    /// With `contexts = "negative"` and `negatives = 0`: probability that a pair is a true one.
    #[schemars(transform = Range::at_least(0.0).at_most(1.0))]
    pub r1: f64,
    /// Probability that a context comes of the graph and not of labels.
    #[schemars(transform = Range::at_least(0.0).at_most(1.0))]
    pub r2: f64,
    /// Nodes of a walk. The text has 10; the public program walks 10 steps, over 11 nodes.
    #[schemars(transform = Range::at_least(1).at_most(1 << 12))]
    pub walk_nodes: usize,
    /// Largest distance on a walk of the two nodes of a pair: 2 in the text, 3 in the public program.
    #[schemars(transform = Range::at_least(0).at_most(1 << 16))]
    pub window: usize,
    /// Whether a node on a walk is a context of itself there.
    pub self_pairs: bool,
    /// Which pairs of a walk count.
    pub pairs_per_walk: PairsPerWalk,
    /// Where walks start.
    pub starts: Starts,
    /// How a pair of labelled nodes is drawn.
    pub label_pairs: LabelPairs,
    /// λ, by which losses of contexts, and penalties, are multiplied. With plain gradient descent the rate of their steps is this times
    /// `optim.lr`.
    #[schemars(transform = Range::at_least(0.0))]
    pub lambda: f64,
    /// Take the mean over the pairs of a step of contexts and not their sum, as the public program does. Penalties are always means.
    pub context_mean: bool,
    /// With `variant = "label-spreading"`: what of a node comes of its neighbours, α of Zhou et al. 2004.
    #[schemars(transform = Range::above(0.0).below(1.0))]
    pub alpha: f64,
    /// Nodes; 0 until the graph is known, as with the two below.
    #[schemars(transform = width())]
    pub nodes: usize,
    /// Columns of the features.
    #[schemars(transform = width())]
    pub features: usize,
    /// Classes.
    #[schemars(transform = width())]
    pub classes: usize,
    /// Nodes that contexts are of: all, or those that training sees with their features.
    #[schemars(transform = width())]
    pub context_nodes: usize,
}

impl Default for PlanetoidConfig {
    fn default() -> Self {
        Self {
            variant: Variant::Transductive,
            hidden: Hidden::Softmax,
            d_hidden: 0,
            layer_losses: true,
            update_embedding: true,
            d_embed: 50,
            embed_std: 0.01,
            contexts: Contexts::Softmax,
            negatives: 0,
            r1: 5.0 / 6.0,
            r2: 1.0,
            walk_nodes: 11,
            window: 3,
            self_pairs: true,
            pairs_per_walk: PairsPerWalk::All,
            starts: Starts::Permuted,
            label_pairs: LabelPairs::Anchor,
            lambda: 0.1,
            context_mean: false,
            alpha: 0.99,
            nodes: 0,
            features: 0,
            classes: 0,
            context_nodes: 0,
        }
    }
}

impl PlanetoidConfig {
    /// Width of the layers before the last.
    pub fn hidden_width(&self) -> usize {
        if self.d_hidden == 0 { self.classes } else { self.d_hidden }
    }

    /// Refuses keys that have no effect beside the others.
    fn check_together(&self) -> Result<(), ConfigError> {
        let negative = self.contexts == Contexts::Negative;
        let default = Self::default();
        if self.hidden == Hidden::Softmax && self.d_hidden > 0 {
            let why = "softmax layers are as wide as there are classes\nhint: choose model.hidden=relu";
            return Err(out_of_range("model.d_hidden", self.d_hidden, why));
        }
        if self.hidden == Hidden::Relu && self.layer_losses {
            let why = "rectified units are no distribution over classes\nhint: add model.layer_losses=false";
            return Err(out_of_range("model.layer_losses", true, why));
        }
        if !self.update_embedding && !matches!(self.variant, Variant::Transductive | Variant::Graph) {
            let why = "needs model.variant = \"transductive\" or \"graph\"";
            return Err(no_effect("model.update_embedding", false, why));
        }
        if !negative && self.negatives > 0 {
            return Err(no_effect("model.negatives", self.negatives, "needs model.contexts = \"negative\""));
        }
        if (!negative || self.negatives > 0) && self.r1 != default.r1 {
            let why = "needs model.contexts = \"negative\" and model.negatives = 0";
            return Err(no_effect("model.r1", self.r1, why));
        }
        if self.variant != Variant::LabelSpreading && self.alpha != default.alpha {
            return Err(no_effect("model.alpha", self.alpha, "needs model.variant = \"label-spreading\""));
        }
        if !self.self_pairs && (self.window == 0 || self.walk_nodes == 1) {
            let why = "a walk has no other pair\nhint: raise model.window or model.walk_nodes";
            return Err(out_of_range("model.self_pairs", false, why));
        }
        Ok(())
    }
}

impl ModelSection for PlanetoidConfig {
    const TYPE: &'static str = "planetoid";
    const TITLE: &'static str = "Planetoid";
    const TRAINS_ON_CARDS: bool = false;
    const SECTIONS: &'static [SectionType] = &[
        SectionType::of::<DataConfig>(),
        SectionType::of::<TurnsConfig>(),
        SectionType::of::<NodesEvalConfig>(),
    ];
    const READS: &'static [&'static str] = &["data", "train", "eval"];
    const MOVED: &'static [(&'static str, &'static str)] = &[
        ("model.split_seed", "data.split_seed"),
        ("model.split_per_class", "data.split_per_class"),
        ("model.split_test", "data.split_test"),
        ("model.given_split", "data.given_split"),
        ("model.batch", "train.batch"),
        ("model.context_batch", "train.context_batch"),
        ("model.label_batch", "train.label_batch"),
        ("model.pretrain_label", "train.pretrain_label"),
        ("model.pretrain_contexts", "train.pretrain_contexts"),
        ("model.supervised_steps", "train.supervised_steps"),
        ("model.context_steps", "train.context_steps"),
        ("model.recall_at", "eval.recall_at"),
    ];

    fn family() -> &'static (dyn Any + Send + Sync) {
        &crate::FAMILY
    }

    fn check(&self) -> Result<(), ConfigError> {
        range::check("model", self)?;
        self.check_together()
    }

    fn check_run(&self, config: &Config) -> Result<(), ConfigError> {
        config.own.get::<TurnsConfig>().check_rounds(self.variant)?;
        // Labels that spread are put in place by steps of length 1.
        let plain = config.optim.kind == OptimKind::Sgd && config.optim.lr == 1.0;
        if self.variant.spreads() && !(plain && config.schedule.kind == ScheduleKind::Constant) {
            let why = "labels spread with optim.kind = \"sgd\", optim.lr = 1 and schedule.kind = \"constant\" alone";
            return Err(refused(config, "optim.lr", why));
        }
        Ok(())
    }

    /// What losses of a lane have been divided by before they are scaled from the first version on: bits in half precision hang on it.
    fn targets_per_lane(&self, _: &OwnSections) -> usize {
        128
    }

    /// Evaluations are of test nodes: their accuracy is told, and chooses nothing.
    fn idle(&self, _: &OwnSections) -> Vec<Idle> {
        let chooses = "this model is evaluated on test nodes, which choose nothing";
        let is_loss = "is for losses, and this model is judged by its accuracy";
        [
            Idle::new("eval.patience", &["model.model_type"], chooses),
            Idle::new("checkpoint.best", &["model.model_type"], chooses),
            Idle::new("recovery.diverged_by", &["model.model_type"], is_loss),
            Idle::new("recovery.diverged_times", &["model.model_type"], is_loss),
        ]
        .into_iter()
        .chain(Idle::without_layers(Self::NETWORKS))
        .collect()
    }

    /// Plain gradient descent at one rate, as the public program has it, and a batch that up to four ranks share.
    fn run_defaults(config: &mut Config) {
        config.optim.kind = OptimKind::Sgd;
        config.optim.lr = 0.1;
        config.optim.clip = 0.0;
        config.schedule.kind = ScheduleKind::Constant;
        config.train.lanes = 4;
        config.train.micro_batch = 1;
        config.train.device = DeviceKind::Cpu;
    }
}

#[cfg(test)]
mod tests {
    use segue_configs::study::Study;
    use segue_testing::models;

    use super::*;

    #[test]
    fn keys_without_effect_are_refused() {
        let good = PlanetoidConfig::default();
        good.check().unwrap();
        for (wrong, key) in [
            (PlanetoidConfig { d_hidden: 8, ..good.clone() }, "model.d_hidden"),
            (PlanetoidConfig { hidden: Hidden::Relu, ..good.clone() }, "model.layer_losses"),
            (PlanetoidConfig { negatives: 5, ..good.clone() }, "model.negatives"),
            (PlanetoidConfig { r1: 0.5, ..good.clone() }, "model.r1"),
            (
                PlanetoidConfig { update_embedding: false, variant: Variant::Inductive, ..good.clone() },
                "model.update_embedding",
            ),
            (PlanetoidConfig { alpha: 0.5, ..good.clone() }, "model.alpha"),
            (PlanetoidConfig { walk_nodes: 4097, ..good.clone() }, "model.walk_nodes"),
            (PlanetoidConfig { window: 0, self_pairs: false, ..good.clone() }, "model.self_pairs"),
            (PlanetoidConfig { lambda: -1.0, ..good.clone() }, "model.lambda"),
            (PlanetoidConfig { d_embed: 0, ..good.clone() }, "model.d_embed"),
        ] {
            let message = wrong.check().unwrap_err().to_string();
            assert!(message.contains(key), "{message}");
        }
    }

    #[test]
    fn an_accuracy_on_test_nodes_chooses_nothing() {
        let load = |keys: &[&str]| {
            let keys: Vec<String> =
                ["model.model_type=planetoid"].iter().chain(keys).map(|key| key.to_string()).collect();
            models::<crate::PlanetoidConfig>()
                .load(None, &keys)
                .map(|loaded| loaded.config)
                .map_err(|error| error.to_string())
        };
        for (keys, says) in [
            (
                &["eval.patience=3", "eval.every=5"][..],
                "`eval.patience` = 3 is invalid: this model is evaluated on test nodes",
            ),
            (&["checkpoint.best=true"], "`checkpoint.best` = true is invalid"),
            (
                &["recovery.non_finite=restore_best", "recovery.diverged_times=1.2"],
                "`recovery.diverged_times` = 1.2 is invalid: is for losses",
            ),
            (
                &["recovery.non_finite=restore_best", "recovery.diverged_by=0.5"],
                "`recovery.diverged_by` = 0.5",
            ),
        ] {
            let message = load(keys).unwrap_err();
            assert!(message.contains(says), "{keys:?}: {message}");
        }
        load(&["recovery.non_finite=restore_best", "checkpoint.best=false"]).unwrap();
        // What a checkpoint holds was taken once.
        let mut stored = load(&[]).unwrap().to_json();
        stored["checkpoint"]["best"] = true.into();
        models::<crate::PlanetoidConfig>().from_json(&stored, "the checkpoint").unwrap();
    }

    /// Studies keep the best models of their trials where there is such a thing.
    #[test]
    fn a_study_asks_for_no_best_model() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        file("recipe.toml", "[model]\nmodel_type = \"planetoid\"\n");
        let text = "name = \"rates\"\nrecipe = \"recipe.toml\"\noutput = \"out\"\ntrials = 2\n\
                    [[parameter]]\nkey = \"optim.lr\"\nlow = 0.1\nhigh = 0.2\n";
        let study = Study::load(models::<crate::PlanetoidConfig>(), &file("study.toml", text), &[]).unwrap();
        assert!(!study.base.checkpoint.best);
        study.config_at(&[0.5]).unwrap();
    }
}
