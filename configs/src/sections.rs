//! The sections of a recipe, with defaults and ranges.

use serde::{Deserialize, Serialize};

use crate::{
    ConfigError, ModelConfig, ObjectiveConfig, ObjectiveKind, PairsConfig, PublishedConfig, TaskConfig,
    TransfoXlConfig,
};

/// Everything that describes a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Where the run lives.
    pub run: RunConfig,
    /// What it reads.
    pub data: DataConfig,
    /// How sequences of two segments are made of it.
    pub pairs: PairsConfig,
    /// How it steps.
    pub train: TrainConfig,
    /// What it trains.
    pub model: ModelConfig,
    /// What it is trained to do.
    pub objective: ObjectiveConfig,
    /// How gradients become updates.
    pub optim: OptimConfig,
    /// The learning rate over the steps.
    pub schedule: ScheduleConfig,
    /// Evaluation while training.
    pub eval: EvalConfig,
    /// The mean of weights over steps.
    pub average: AverageConfig,
    /// When state is written.
    pub checkpoint: CheckpointConfig,
    /// What is reported, and when.
    pub log: LogConfig,
    /// What is fine-tuned for.
    pub task: TaskConfig,
    /// What others report of this model.
    pub published: PublishedConfig,
}

/// `[run]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// Folder of config, checkpoints, metrics and logs.
    pub dir: String,
}

/// `[data]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct DataConfig {
    /// Corpus folder, as `segue data build` writes it, or for `order = "records"` a folder of the XLNet
    /// reference's TFRecords.
    pub corpus: String,
    /// Several corpora instead, blended: each lane reads a piece of one of them.
    pub corpora: Vec<String>,
    /// How many lanes each of `corpora` gets, in proportion; as many numbers as corpora. Empty for their
    /// sizes.
    pub weights: Vec<f64>,
    /// Corpus whose validation split is evaluated; empty for that of the corpus, or the first of `corpora`
    /// that has one.
    pub valid: String,
    /// Folder of the tokenizer, where `corpus` is a folder of TFRecords: they hold none.
    pub tokenizer: String,
    /// In which order lanes read it.
    pub order: DataOrder,
}

/// The order in which lanes read a corpus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum DataOrder {
    /// Each lane reads one contiguous piece.
    #[default]
    Stream,
    /// Sentences in a new random order every epoch, packed one after the other into the lanes: for
    /// corpora whose sentences are shuffled anyway, like One Billion Word.
    Sentences,
    /// Each lane reads one contiguous piece, as sequences of reused text, a segment A and a segment B
    /// (XLNet; Yang 2019, §2.2.2).
    Pairs,
    /// The same as the XLNet reference has drawn and frozen them in TFRecords.
    Records,
}

impl DataOrder {
    /// Whether lanes read sequences of pairs.
    pub fn in_pairs(self) -> bool {
        matches!(self, DataOrder::Pairs | DataOrder::Records)
    }
}

/// Targets that a segment takes its loss from (Yang 2019, table 2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LossKind {
    /// All.
    Full,
    /// The most recent ⌈segment / 2⌉.
    Half,
}

/// What a document's end does to the memory of its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DocumentEnd {
    /// Nothing, as in the references.
    Carry,
    /// The segment after the one in which a document ended starts with a fresh memory.
    Reset,
    /// No position sees another document, neither in memory nor in its own segment.
    Mask,
}

/// `[train]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// Global steps of the whole run.
    pub steps: u64,
    /// Model folder, checkpoint or run whose weights training begins with; empty for fresh ones.
    pub init_from: String,
    /// Stop after this step with a checkpoint, schedule untouched; 0 for never.
    pub stop_at: u64,
    /// Seed of weights, dropout and data choices.
    pub seed: u64,
    /// Parallel token streams of the global batch, over all ranks.
    pub lanes: usize,
    /// Lanes of one forward and backward pass.
    pub micro_batch: usize,
    /// Tokens of a lane per step.
    pub segment: usize,
    /// Tokens before them that are read again each step, as context without loss.
    pub ext_len: usize,
    /// Targets that count.
    pub loss: LossKind,
    /// Segments of varying length: 95 % whole, else half, then N(0, 5) more or less, at least 5 and at
    /// most `segment`.
    pub varlen: bool,
    /// Start each lane at a random place of its piece, another one each epoch.
    pub roll: bool,
    /// What a document's end does to memory.
    pub at_document_end: DocumentEnd,
    /// The same bits whatever the number of ranks.
    pub exact: bool,
    /// Threads of libtorch in each rank. Part of exactness: sums split over threads round differently.
    pub threads: usize,
    /// Gradient bytes that are reduced at a time.
    pub bucket_bytes: usize,
    /// Every so many steps all ranks compare a hash of their weights; 0 for never.
    pub check_replicas_every: u64,
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            steps: 1000,
            init_from: String::new(),
            stop_at: 0,
            seed: 1,
            lanes: 8,
            micro_batch: 4,
            segment: 128,
            ext_len: 0,
            loss: LossKind::Full,
            varlen: false,
            roll: false,
            at_document_end: DocumentEnd::Carry,
            exact: true,
            threads: 1,
            bucket_bytes: 4 << 20,
            check_replicas_every: 100,
        }
    }
}

/// The update rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimKind {
    /// Adam; weight decay, if any, is added to the gradient.
    Adam,
    /// AdamW; weight decay is taken off the weights.
    Adamw,
}

/// `[optim]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OptimConfig {
    /// The update rule.
    pub kind: OptimKind,
    /// Peak learning rate.
    pub lr: f64,
    /// Decay of the mean of gradients.
    pub beta1: f64,
    /// Decay of the mean of squares.
    pub beta2: f64,
    /// Added to the root of the mean of squares.
    pub eps: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// Parameters whose name contains one of these are not decayed. `bias` also spares attention's `r_w_bias` and
    /// its like, which `.bias` does not.
    pub no_decay: Vec<String>,
    /// Correct the bias of the moments towards zero (Kingma and Ba 2015); XLNet's AdamW does not.
    pub bias_correction: bool,
    /// Largest global norm of the gradient; 0 for no clipping.
    pub clip: f64,
    /// Each layer below the last learns at this share of the rate of the one above it; embeddings and heads learn
    /// at the full rate (Yang et al. 2019, table of fine-tuning).
    pub layer_decay: f64,
    /// What `layer_decay` is a share of.
    pub layer_decay_of: LayerDecay,
}

/// What layer-wise decay scales.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LayerDecay {
    /// The learning rate, as published.
    Rate,
    /// The clipped gradient, as the XLNet reference's code does; Adam nearly cancels it.
    Gradient,
}

impl Default for OptimConfig {
    fn default() -> Self {
        Self {
            kind: OptimKind::Adam,
            lr: 2.5e-4,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 0.0,
            no_decay: vec!["bias".into(), "layer_norm".into()],
            bias_correction: true,
            clip: 0.25,
            layer_decay: 1.0,
            layer_decay_of: LayerDecay::Rate,
        }
    }
}

/// Shape of the decay after warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleKind {
    /// The peak for ever.
    Constant,
    /// Half a cosine down to the floor.
    Cosine,
    /// A straight line down to the floor.
    Linear,
    /// Peak · √(warmup / step).
    InverseSqrt,
}

/// Where cosine and linear decay begin to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecayFrom {
    /// At step 0, as the PyTorch reference: a small drop where warm-up ends.
    Start,
    /// At the end of warm-up, as the TensorFlow reference.
    Warmup,
}

/// `[schedule]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduleConfig {
    /// Shape of the decay.
    pub kind: ScheduleKind,
    /// Steps of linear warm-up.
    pub warmup: u64,
    /// Steps of the whole schedule; 0 for `train.steps`.
    pub steps: u64,
    /// The learning rate never falls below this share of the peak after warm-up.
    pub floor: f64,
    /// Where the decay counts from.
    pub decay_from: DecayFrom,
}

impl Default for ScheduleConfig {
    fn default() -> Self {
        Self { kind: ScheduleKind::Cosine, warmup: 0, steps: 0, floor: 0.0, decay_from: DecayFrom::Warmup }
    }
}

/// `[eval]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvalConfig {
    /// Steps between evaluations; 0 for the end only.
    pub every: u64,
    /// Parallel pieces the split is cut into; 1 gives every token its whole past.
    pub lanes: usize,
    /// Sequences of each lane, of a run that trains on pairs; 0 for all that the split has.
    pub steps: u64,
    /// Tokens of a lane per forward pass; 0 for `train.segment`.
    pub segment: usize,
    /// Tokens before them that are read again in each pass, as context.
    pub ext_len: usize,
    /// Memory; -1 for the model's.
    pub mem_len: i64,
    /// Same-length attention while evaluating.
    pub same_length: bool,
    /// Clamp of distances while evaluating; -1 for none, 0 for the model's.
    pub clamp_len: i64,
}

impl Default for EvalConfig {
    fn default() -> Self {
        Self {
            every: 0,
            lanes: 4,
            steps: 0,
            segment: 0,
            ext_len: 0,
            mem_len: -1,
            same_length: false,
            clamp_len: 0,
        }
    }
}

/// `[average]`: the mean of the weights after each step from some step on (Polyak; AWD-LSTM's
/// non-monotonic trigger, Merity et al. 2018). Once it has begun, evaluations and `model.safetensors`
/// are of the mean.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct AverageConfig {
    /// Begin after this step; 0 for never.
    pub start: u64,
    /// Begin when the validation loss has not fallen below that of this many evaluations before; 0 for
    /// never.
    pub patience: u64,
}

/// `[checkpoint]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckpointConfig {
    /// Steps between checkpoints; 0 for the last step only.
    pub every: u64,
    /// Newest checkpoints kept, never fewer than two.
    pub keep: usize,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        Self { every: 1000, keep: 3 }
    }
}

/// `[log]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogConfig {
    /// Steps between reports.
    pub every: u64,
    /// TensorBoard event files beside `metrics.jsonl`.
    pub tensorboard: bool,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { every: 10, tensorboard: true }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            run: RunConfig::default(),
            data: DataConfig::default(),
            pairs: PairsConfig::default(),
            train: TrainConfig::default(),
            model: ModelConfig::TransfoXl(TransfoXlConfig::default()),
            objective: ObjectiveConfig::default(),
            optim: OptimConfig::default(),
            schedule: ScheduleConfig::default(),
            eval: EvalConfig::default(),
            average: AverageConfig::default(),
            checkpoint: CheckpointConfig::default(),
            log: LogConfig::default(),
            task: TaskConfig::default(),
            published: PublishedConfig::default(),
        }
    }
}

/// Length of XLNet's sequences (Yang 2019, §2.2.3).
const XLNET_SEGMENT: usize = 512;

impl Config {
    /// Every key at its default for this model.
    pub(crate) fn default_with(model: ModelConfig) -> Self {
        let mut config = Self { model, ..Self::default() };
        if let ModelConfig::Xlnet(_) = config.model {
            config.data.order = DataOrder::Pairs;
            config.train.segment = XLNET_SEGMENT;
            config.objective.kind = ObjectiveKind::Permutation;
        }
        config
    }

    /// Micro-steps of one global step, over all ranks.
    pub fn micro_steps(&self) -> usize {
        self.train.lanes / self.train.micro_batch
    }

    /// Steps of the learning-rate schedule.
    pub fn schedule_steps(&self) -> u64 {
        if self.schedule.steps == 0 { self.train.steps } else { self.schedule.steps }
    }

    /// Checks every range, and what sections say of each other.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let t = &self.train;
        for (key, value) in [
            ("train.lanes", t.lanes),
            ("train.micro_batch", t.micro_batch),
            ("train.segment", t.segment),
            ("train.threads", t.threads),
            ("train.bucket_bytes", t.bucket_bytes),
            ("eval.lanes", self.eval.lanes),
        ] {
            if value == 0 {
                return Err(out_of_range(key, value, "must be at least 1"));
            }
        }
        if t.steps == 0 {
            return Err(out_of_range("train.steps", t.steps, "must be at least 1"));
        }
        if !t.lanes.is_multiple_of(t.micro_batch) {
            let why = format!("must be a multiple of train.micro_batch, which is {}", t.micro_batch);
            return Err(out_of_range("train.lanes", t.lanes, &why));
        }
        if t.seed > i64::MAX as u64 {
            return Err(out_of_range("train.seed", t.seed, "a seed has at most 63 bits"));
        }
        if self.checkpoint.keep < 2 {
            let why = "must be at least 2: the newest checkpoint may be the one that breaks";
            return Err(out_of_range("checkpoint.keep", self.checkpoint.keep, why));
        }
        if self.log.every == 0 {
            return Err(out_of_range("log.every", 0, "must be at least 1"));
        }
        let o = &self.optim;
        for (key, value) in [("optim.lr", o.lr), ("optim.eps", o.eps)] {
            if !(value.is_finite() && value > 0.0) {
                return Err(out_of_range(key, value, "must be positive"));
            }
        }
        for (key, value) in [("optim.clip", o.clip), ("optim.weight_decay", o.weight_decay)] {
            if !(value.is_finite() && value >= 0.0) {
                return Err(out_of_range(key, value, "must be 0 or more"));
            }
        }
        for (key, value) in
            [("optim.beta1", o.beta1), ("optim.beta2", o.beta2), ("schedule.floor", self.schedule.floor)]
        {
            if !(0.0..1.0).contains(&value) {
                return Err(out_of_range(key, value, "must lie in [0, 1)"));
            }
        }
        if self.data.order != DataOrder::Stream {
            if t.roll {
                return Err(out_of_range("train.roll", true, "needs data.order = \"stream\""));
            }
            if t.at_document_end != DocumentEnd::Carry {
                let why = "only data.order = \"stream\" knows where documents end; the others support carry";
                return Err(out_of_range("train.at_document_end", "other than carry", why));
            }
            if t.ext_len > 0 {
                return Err(out_of_range("train.ext_len", t.ext_len, "needs data.order = \"stream\""));
            }
        }
        if t.at_document_end == DocumentEnd::Reset && t.ext_len > 0 {
            let why = "with train.at_document_end = \"reset\" the context would still show the old \
                document\nhint: use \"mask\"";
            return Err(out_of_range("train.ext_len", t.ext_len, why));
        }
        self.model.check()?;
        match self.task.name.is_empty() {
            true => self.check_pretraining()?,
            false => self.check_task()?,
        }
        let mem_len = self.model.mem_len();
        if self.eval.same_length && (self.eval.mem_len == 0 || self.eval.mem_len < 0 && mem_len == 0) {
            return Err(out_of_range("eval.same_length", true, "needs a memory of at least 1"));
        }
        Ok(())
    }
}

pub(crate) fn out_of_range(key: &'static str, value: impl ToString, why: &str) -> ConfigError {
    ConfigError::OutOfRange { key, value: value.to_string(), why: why.into() }
}
