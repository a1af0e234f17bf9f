//! `[task]`: what tells fine-tuning from training, and how long it takes. In fine-tuning a lane of `[train]` is one example of the
//! batch and `train.segment` the longest sequence. What tasks read, and how they are answered, are keys of those who read them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::range::Range;
use crate::{Config, Idle};

/// `[task]`: what a pre-trained model is fine-tuned to do. In fine-tuning a lane is one example of the batch, and
/// `train.segment` the longest sequence.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FinetuneConfig {
    /// The task, or several separated by commas that share an encoder; empty where nothing is fine-tuned.
    pub name: String,
    /// Passes over the training examples; 0 for `train.steps` as it stands. A pass is as many batches as it takes; one of
    /// them is smaller where the examples do not fill it.
    #[schemars(transform = Range::at_least(0.0).in_double())]
    pub epochs: f64,
    /// Warm-up as a share of all steps; 0 for `schedule.warmup` as it stands.
    #[schemars(transform = Range::at_least(0.0).below(1.0))]
    pub warmup_share: f64,
}

/// What fine-tuning takes for granted where neither a recipe nor an override says otherwise: the rows that tasks have in
/// common in XLNet's table of fine-tuning (Yang et al. 2019), and three passes with a tenth of warm-up.
pub fn finetuning_defaults() -> serde_json::Value {
    serde_json::json!({
        // A card is taken where one is asked for: fine-tuning has not run on one yet.
        "train": { "lanes": 32, "micro_batch": 8, "segment": 128, "device": "cpu" },
        "optim": {
            "kind": "adamw", "lr": 3e-5, "eps": 1e-6, "clip": 1.0, "no_decay": [".bias", "layer_norm", "LayerNorm"],
        },
        "schedule": { "kind": "linear" },
        "task": { "epochs": 3.0, "warmup_share": 0.1 },
        // By the clock: steps take as long as the model and its sequences make them.
        "checkpoint": { "every": 0, "minutes": 5.0, "keep": 2 },
    })
}

impl Config {
    pub(crate) fn idle_task(&self) -> Vec<Idle> {
        let tunes = !self.task.name.is_empty();
        let why = "fine-tuning has a patience of its own, task.patience";
        let mut idle = Idle::all(tunes, "eval", &["patience"], &["task.name"], why);
        let why = "fine-tuning has a least improvement of its own, task.min_delta";
        idle.extend(Idle::all(tunes, "eval", &["min_delta"], &["task.name"], why));
        let why = "fine-tuning keeps its best model always";
        idle.extend(Idle::all(tunes, "checkpoint", &["best"], &["task.name"], why));
        // The evaluation at the end of a run ends nothing.
        let (never, why) = (tunes && self.eval.every == 0, Idle::COUNTS_EVALUATIONS);
        idle.extend(Idle::all(never, "task", &["patience"], &["eval.every"], why));
        idle
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::MODELS;

    #[test]
    fn the_patience_of_pre_training_is_refused() {
        let load = |keys: &[&str]| {
            let keys: Vec<String> = keys.iter().map(|key| key.to_string()).collect();
            MODELS.load(None, &keys).err().map(|error| error.to_string())
        };
        let message = load(&["task.name=sst2", "eval.patience=3"]).unwrap_or_default();
        assert!(message.contains("`eval.patience` = 3 is invalid") && message.contains("task.patience"));
        let message = load(&["task.name=sst2", "eval.min_delta=0.1"]).unwrap_or_default();
        assert!(message.contains("task.min_delta"), "{message}");
        for keys in [&["task.name=sst2", "task.epochs=3"][..], &["eval.patience=3", "task.name=sst2"]] {
            assert_eq!(load(keys), None);
        }
    }
}
