//! `[task]`: what a pre-trained model is fine-tuned to do. In fine-tuning a lane of `[train]` is one example of the
//! batch and `train.segment` the longest sequence.

use serde::{Deserialize, Serialize};

use crate::sections::out_of_range;
use crate::{Config, ConfigError};

/// How the options of an example compete (Yang 2019, §2.2.3: QNLI, WNLI).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskLoss {
    /// The task's own: softmax over classes or options, squared error, spans.
    Standard,
    /// QNLI: sentences of one question compete for being its answer.
    Ranking,
    /// WNLI: a wrong candidate costs more the less it lies behind the right one.
    Margin,
}

/// `[task]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskConfig {
    /// The task, or several separated by commas that share an encoder; empty where nothing is fine-tuned.
    pub name: String,
    /// Folder with the task's files as they are published; of several tasks, the folder with theirs.
    pub data: String,
    /// Passes over the training examples; 0 for `train.steps` as it stands.
    pub epochs: f64,
    /// Warm-up as a share of all steps; 0 for `schedule.warmup` as it stands.
    pub warmup_share: f64,
    /// Take sizes and tokenizer of the model folder and none of its weights: what pre-training is compared with.
    pub from_scratch: bool,
    /// What examples are trained with.
    pub loss: TaskLoss,
    /// Weight of the margin in the margin loss: α.
    pub margin_weight: f64,
    /// The margin itself: β.
    pub margin: f64,
    /// Batches whose examples are brought in order of length before they are cut; 1 for none.
    pub length_window: usize,
    /// Stop when this many evaluations in a row bring nothing better; 0 for never.
    pub patience: u64,
    /// Metric that checkpoints are chosen by; empty for the task's first.
    pub metric: String,
    /// Leave out lines and records that cannot be used, and count them, instead of failing.
    pub skip_bad: bool,
    /// Names of the labels, in order; empty for the task's own, or all that occur in the training file.
    pub labels: Vec<String>,
    /// Column of the text, by name or number from 0; empty for the task's own.
    pub text: String,
    /// Column of a second text; empty for none.
    pub second_text: String,
    /// Column of the label.
    pub label: String,
    /// Longest question of question answering, in tokens; what is over is cut off.
    pub max_question: usize,
    /// Longest answer of question answering, in tokens.
    pub max_answer: usize,
    /// Longest question and option of multiple choice, in tokens; what is over is cut off at the left.
    pub max_option: usize,
    /// Tokens between the beginnings of windows over a long paragraph.
    pub stride: usize,
    /// Starts of answers that are looked at in each window, and ends for each.
    pub beam: usize,
    /// Answers of each question that are written down.
    pub n_best: usize,
    /// Ranking: less relevant documents that each document of a query is compared with.
    pub negatives: usize,
}

impl Default for TaskConfig {
    fn default() -> Self {
        Self {
            name: String::new(),
            data: String::new(),
            epochs: 0.0,
            warmup_share: 0.0,
            from_scratch: false,
            loss: TaskLoss::Standard,
            margin_weight: 10.0,
            margin: 0.2,
            length_window: 50,
            patience: 0,
            metric: String::new(),
            skip_bad: false,
            labels: Vec::new(),
            text: String::new(),
            second_text: String::new(),
            label: String::new(),
            max_question: 64,
            max_answer: 64,
            max_option: 128,
            stride: 128,
            beam: 5,
            n_best: 5,
            negatives: 8,
        }
    }
}

/// What fine-tuning takes for granted where neither a recipe nor an override says otherwise: the rows that tasks have in
/// common in XLNet's table of fine-tuning (Yang et al. 2019), and three passes with a tenth of warm-up.
pub fn finetuning_defaults() -> serde_json::Value {
    serde_json::json!({
        "train": { "lanes": 32, "micro_batch": 8, "segment": 128 },
        "optim": {
            "kind": "adamw", "lr": 3e-5, "eps": 1e-6, "clip": 1.0, "no_decay": [".bias", "layer_norm", "LayerNorm"],
        },
        "schedule": { "kind": "linear" },
        "task": { "epochs": 3.0, "warmup_share": 0.1 },
        "checkpoint": { "every": 0, "keep": 2 },
    })
}

impl Config {
    pub(crate) fn check_task(&self) -> Result<(), ConfigError> {
        let t = &self.task;
        for (key, value) in [
            ("task.length_window", t.length_window),
            ("task.max_question", t.max_question),
            ("task.max_answer", t.max_answer),
            ("task.max_option", t.max_option),
            ("task.stride", t.stride),
            ("task.beam", t.beam),
            ("task.n_best", t.n_best),
            ("task.negatives", t.negatives),
        ] {
            if value == 0 {
                return Err(out_of_range(key, value, "must be at least 1"));
            }
        }
        for (key, value) in
            [("task.epochs", t.epochs), ("task.margin_weight", t.margin_weight), ("task.margin", t.margin)]
        {
            if !(value.is_finite() && value >= 0.0) {
                return Err(out_of_range(key, value, "must be 0 or more"));
            }
        }
        if !(0.0..1.0).contains(&t.warmup_share) {
            return Err(out_of_range("task.warmup_share", t.warmup_share, "must lie in [0, 1)"));
        }
        let decay = self.optim.layer_decay;
        if !(decay > 0.0 && decay <= 1.0) {
            return Err(out_of_range("optim.layer_decay", decay, "must lie in (0, 1]"));
        }
        Ok(())
    }
}
