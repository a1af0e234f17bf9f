//! Keys of `[task]`: what the tasks of fine-tuning read, and how they are answered.

use schemars::JsonSchema;
use segue_configs::range::Range;
use segue_configs::{ConfigError, Idle, OwnSection, out_of_range};
use serde::{Deserialize, Serialize};

/// How the options of an example compete (Yang 2019, §2.2.3: QNLI, WNLI).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TaskLoss {
    /// The task's own: softmax over classes or options, squared error, spans.
    Standard,
    /// For `qnli`: sentences of one question compete for being its answer.
    Ranking,
    /// For `wnli`: readings of one sentence compete, and a wrong one costs more the less it lies behind the right
    /// one.
    Margin,
}

/// How the hidden states of a sequence are pooled into the input of a head that classifies, regresses or scores an option.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TaskSummary {
    /// That of the last position, `<cls>` (Yang 2019, §2.2.4).
    #[default]
    Last,
    /// The mean of those of all tokens. Hugging Face's class of the same kind counts padding too.
    Mean,
}

/// Keys of `[task]`: the data of the tasks, and how a model answers them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskConfig {
    /// Folder with the task's files as they are published (docs/book/src/formats/tasks.md); of GLUE also the folder
    /// that holds `CoLA`, `SST-2`, …; of several tasks the folder with theirs.
    pub data: String,
    /// Take sizes and tokenizer of `train.init_from` and none of its weights: what pre-training is compared with.
    pub from_scratch: bool,
    /// Loss that examples are trained with.
    pub loss: TaskLoss,
    /// Weight of the margin in the margin loss: α.
    #[schemars(transform = Range::at_least(0.0))]
    pub margin_weight: f64,
    /// The margin of the margin loss: β.
    #[schemars(transform = Range::at_least(0.0))]
    pub margin: f64,
    /// Fraction ε of each label's probability that is spread over all labels (Szegedy et al. 2016, §7): the target is (1 − ε) for the right label, plus ε/K for
    /// each of K. Classes, labels of words and options; training alone, scores are without it.
    #[schemars(transform = Range::at_least(0.0).below(1.0))]
    pub label_smoothing: f64,
    /// Weight of each label in the loss, in the order of the labels; empty for equal ones. Only their ratios count: the loss of a batch is divided by
    /// the sum of the weights of its labels. Classes and labels of words; training alone, scores are without it.
    pub class_weights: Vec<f64>,
    /// Weights of labels by their number in the training examples, N / (K · n): all labels weigh the same, however rare (King and Zeng 2001).
    pub balance_classes: bool,
    /// Keep the vectors of words as they are.
    pub freeze_embeddings: bool,
    /// Lowest layers that stay as they are, and the vectors of words with them. As many as the model has: heads alone are trained.
    pub freeze_layers: usize,
    /// Rank r of low-rank adapters (LoRA; Hu et al. 2022): the model stays as it is, and of each adapted matrix W two factors are trained beside the heads,
    /// W + α/r B A; 0 for none. The best model has them added in, and opens like any other.
    pub adapter_rank: usize,
    /// α of the adapters.
    #[schemars(transform = Range::above(0.0))]
    pub adapter_alpha: f64,
    /// Matrices that are adapted, by parts of their dotted names (`q`, `rel_attn.v`, `ff`); empty for all matrices of the layers.
    pub adapter_on: Vec<String>,
    /// What a sequence is summed up by, where it is answered as a whole.
    pub summary: TaskSummary,
    /// Batches of a pass whose examples are brought in order of length before they are cut, to save padding; 1 for none.
    #[schemars(transform = Range::at_least(1))]
    pub length_window: usize,
    /// Stop when this many evaluations in a row bring nothing better; 0 for never.
    pub patience: u64,
    /// Minimum improvement that resets `patience`, in units of the metric, over the last evaluation that reset it. Any improvement replaces the best model.
    #[schemars(transform = Range::at_least(0.0).in_double())]
    pub min_delta: f64,
    /// Metric that checkpoints are chosen by; empty for the task's first.
    pub metric: String,
    /// Leave out lines and records that cannot be used, and count them, instead of failing (65). What is scored keeps every
    /// record whose label is known.
    pub skip_bad: bool,
    /// Names of the labels in their order; empty for the task's own. Of `text` and `conll` these are what the training
    /// file holds; to evaluate without that file, name them. `-1`, which usually marks what has no label, is a class where it
    /// is named.
    pub labels: Vec<String>,
    /// Of `text` and `text-regression`: column of the text, by name, or by number from 0; empty for the one that is
    /// found.
    pub text: String,
    /// Of `text` and `text-regression`: column of a second text, likewise; empty for none.
    pub second_text: String,
    /// Of `text` and `text-regression`: column of the label, likewise.
    pub label: String,
    /// Question answering: longest question in tokens; what is over is cut off.
    #[schemars(transform = Range::at_least(1))]
    pub max_question: usize,
    /// Question answering: longest answer in tokens.
    #[schemars(transform = Range::at_least(1))]
    pub max_answer: usize,
    /// Multiple choice: longest question with option in tokens; what is over is cut off at the left.
    #[schemars(transform = Range::at_least(1))]
    pub max_option: usize,
    /// Question answering: tokens between the beginnings of windows over a long paragraph.
    #[schemars(transform = Range::at_least(1))]
    pub stride: usize,
    /// Question answering: beginnings looked at in each window, and ends for each.
    #[schemars(transform = Range::at_least(1))]
    pub beam: usize,
    /// Question answering: answers written down for each question.
    #[schemars(transform = Range::at_least(1))]
    pub n_best: usize,
    /// Ranking: less relevant documents of the same query that each document is compared with in training; they are
    /// drawn from `train.seed`, and are the same for all of `--seeds`.
    #[schemars(transform = Range::at_least(1))]
    pub negatives: usize,
}

impl Default for TaskConfig {
    fn default() -> Self {
        Self {
            data: String::new(),
            from_scratch: false,
            loss: TaskLoss::Standard,
            margin_weight: 10.0,
            margin: 0.2,
            label_smoothing: 0.0,
            class_weights: Vec::new(),
            balance_classes: false,
            freeze_embeddings: false,
            freeze_layers: 0,
            adapter_rank: 0,
            adapter_alpha: 16.0,
            adapter_on: Vec::new(),
            summary: TaskSummary::Last,
            length_window: 50,
            patience: 0,
            min_delta: 0.0,
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

impl OwnSection for TaskConfig {
    const NAME: &'static str = "task";
    const TITLE: &'static str = "data and answers";

    fn idle(&self) -> Vec<Idle> {
        let why = "needs task.patience of at least 1";
        let mut idle = Idle::all(self.patience == 0, Self::NAME, &["min_delta"], &["task.patience"], why);
        let (keys, why) = (["adapter_alpha", "adapter_on"], "needs task.adapter_rank above 0");
        idle.extend(Idle::all(self.adapter_rank == 0, Self::NAME, &keys, &["task.adapter_rank"], why));
        idle
    }

    fn check(&self) -> Result<(), ConfigError> {
        let positive = |weight: &f64| weight.is_finite() && *weight > 0.0;
        if let Some(weight) = self.class_weights.iter().find(|weight| !positive(weight)) {
            return Err(out_of_range("task.class_weights", weight, "weights are above 0"));
        }
        if self.balance_classes && !self.class_weights.is_empty() {
            let why = "task.class_weights has weights already\nhint: leave one of the two out";
            return Err(out_of_range("task.balance_classes", true, why));
        }
        if self.label_smoothing > 0.0 && self.loss == TaskLoss::Margin {
            let why = "a margin is kept or missed by how far the right one leads, which has no probability to spread";
            return Err(out_of_range("task.label_smoothing", self.label_smoothing, why));
        }
        Ok(())
    }
}
