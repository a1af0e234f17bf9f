//! The sections of a recipe, with defaults and ranges.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::precision::Precision;
use crate::range::Range;

/// `[run]`: where a run lives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// Folder of the run: configuration, checkpoints, metrics, logs. Required.
    pub dir: String,
}

/// `[data]`: the text that a run reads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DataConfig {
    /// Corpus folder, as `segue data build` writes it; with `order = "records"` a folder of the XLNet reference's
    /// TFRecords. Required, unless there are `corpora`.
    pub corpus: String,
    /// Several corpora of one tokenizer instead, blended: each lane reads a piece of one of them. Needs
    /// `order = "pairs"`.
    pub corpora: Vec<String>,
    /// Shares of the streams, one number for each of `corpora`; largest remainders first, at least one stream each.
    /// Streams are lanes, or pairs of lanes with `pairs.bidirectional`. Empty: the corpora's numbers of tokens.
    pub weights: Vec<f64>,
    /// Corpus whose validation split is evaluated, built with the same tokenizer; empty for that of the corpus, or
    /// the first of `corpora` that has one.
    pub valid: String,
    /// Folder of the tokenizer that the records were made with: required with `order = "records"`, which hold none.
    pub tokenizer: String,
    /// The order in which lanes read the text.
    pub order: DataOrder,
    /// With `order = "lines"`: how many lines a lane may begin before or after its place, drawn anew each epoch.
    pub line_jitter: u64,
}

impl Default for DataConfig {
    fn default() -> Self {
        Self {
            corpus: String::new(),
            corpora: Vec::new(),
            weights: Vec::new(),
            valid: String::new(),
            tokenizer: String::new(),
            order: DataOrder::Stream,
            line_jitter: 100,
        }
    }
}

/// The order in which lanes read a corpus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "lowercase")]
pub enum DataOrder {
    /// Each lane reads one contiguous piece.
    #[default]
    Stream,
    /// The text as a ring that lanes read from equidistant lines on, all moved by one drawn number of lines (Melis 2023, §2.2).
    /// After as many tokens as a lane's share of the text it begins again, up to `line_jitter` lines away from its place. The
    /// first input is the end of the line before. Needs a corpus of lines that end in `<eos>`.
    Lines,
    /// Each line is an example of its own, from a fresh memory, in a new random order every epoch. A line longer than a segment
    /// goes on in the next one; what a line leaves of a segment is padding, which has no loss. Recurrent models alone.
    Episodes,
    /// Sentences in a new random order every epoch, packed into the lanes one after the other, for corpora that were
    /// built with one sentence a line, like One Billion Word; no pair of input and target crosses a sentence's
    /// borders.
    Sentences,
    /// Each lane reads one contiguous piece as sequences of reused text and two segments, as `[pairs]` says (Yang
    /// 2019, §2.2.2). The default of an XLNet, and for it alone.
    Pairs,
    /// The same as the XLNet reference has drawn and frozen them in TFRecords. `data.corpus` is their folder,
    /// `train.lanes` their `bsz_per_host` or a multiple of it up to the number of files, and `train.segment`,
    /// `model.reuse_len`, `pairs.bidirectional` and `pairs.num_predict` are theirs.
    Records,
}

impl DataOrder {
    /// Whether lanes read sequences of pairs.
    pub fn in_pairs(self) -> bool {
        matches!(self, DataOrder::Pairs | DataOrder::Records)
    }
}

/// Targets that a segment takes its loss from (Yang 2019, table 2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LossKind {
    /// All. With `ext_len = segment` every target has half a window before it and none is left out.
    Full,
    /// The most recent half of the segment, rounded up.
    Half,
}

/// What a document's end does to the memory of its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DocumentEnd {
    /// Nothing, as in the references.
    Carry,
    /// The segment after the one it lies in starts with a fresh memory.
    Reset,
    /// No position sees another document, in memory or segment.
    Mask,
}

/// Where a rank computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// A card where one can be used, else the processor.
    #[default]
    Auto,
    /// The processor.
    Cpu,
    /// NVIDIA's card.
    Cuda,
}

/// How ranks add up what lies on their cards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CollectivesKind {
    /// From card to card where NCCL is there and every rank has a card of its own, else in the memory of hosts.
    #[default]
    Auto,
    /// From card to card.
    Nccl,
    /// In the memory of hosts, over MPI.
    Host,
}

/// What of the state of training is divided among ranks instead of being held by each (Rajbhandari et al. 2020, ZeRO).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Shard {
    /// Nothing.
    #[default]
    None,
    /// The optimizer's moments and averages of the weights: each rank updates its part of the weights and gives it to the others.
    Optimizer,
    /// These, and the summed gradients.
    Gradients,
}

/// `[train]`: how a run steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// Global steps of the whole run.
    #[schemars(transform = Range::at_least(1))]
    pub steps: u64,
    /// Model folder, checkpoint or run whose weights the first step begins with, a model of the same type and sizes;
    /// empty for fresh weights. A run that goes on does not look at it.
    pub init_from: String,
    /// Stop after this step with a checkpoint and exit code 0, the schedule untouched; 0 for never.
    pub stop_at: u64,
    /// Seconds of training, by the clock of rank 0: the run ends after the step in which they are over, with an evaluation and a checkpoint; 0 for no
    /// limit. Steps count over all attempts, and evaluations and checkpoints do not. Models that step at different speeds compare at equal
    /// time so; how many steps are made is no longer the same twice.
    #[schemars(transform = Range::at_least(0.0))]
    pub time_limit: f64,
    /// Seed of initial weights, dropout and data choices.
    #[schemars(transform = Range::at_least(0).at_most(i64::MAX).or_too_large("a seed has at most 63 bits"))]
    pub seed: u64,
    /// Parallel token streams of the global batch, over all ranks: a multiple of `micro_batch`.
    #[schemars(transform = Range::at_least(1))]
    pub lanes: usize,
    /// Lanes of one forward and backward pass.
    #[schemars(transform = Range::at_least(1))]
    pub micro_batch: usize,
    /// Tokens of a lane per step.
    #[schemars(transform = Range::at_least(1))]
    pub segment: usize,
    /// Tokens before the segment that are read again each step, as context without loss. The memory ends where they
    /// begin. 0 unless `data.order = "stream"`, and with `at_document_end = "reset"`.
    pub ext_len: usize,
    /// Targets that count in the loss.
    pub loss: LossKind,
    /// Segments of varying length, drawn for each step: 95 % around `segment`, the others around its half, with a
    /// standard deviation of 5, at least 5 and at most `segment`.
    pub varlen: bool,
    /// Fraction of steps that draw the length of their segments around half of `segment`, the others around all of it
    /// (AWD-LSTM: 0.05). Lengths are drawn where this or `segment_spread` is above 0, in place of `varlen`, and are rounded down.
    #[schemars(transform = Range::at_least(0.0).at_most(1.0))]
    pub segment_half: f64,
    /// Standard deviation of these lengths in tokens (AWD-LSTM: 5). None is below 5.
    #[schemars(transform = Range::at_least(0.0))]
    pub segment_spread: f64,
    /// Longest of them; 0 for no limit.
    pub segment_most: usize,
    /// Multiply the learning rate of a step with such lengths by length / `segment`.
    pub segment_rate: bool,
    /// Read what is left of a lane's epoch as one shorter segment, so that each of its tokens but the first is a target once; else it is
    /// left out. Needs `data.order = "stream"` or `"lines"`.
    pub segment_rest: bool,
    /// Probability that a lane forgets all it carries before a segment (Melis 2023: 0.01); with `objective.samples`, each sample by
    /// itself. Recurrent models alone.
    #[schemars(transform = Range::at_least(0.0).at_most(1.0))]
    pub drop_state: f64,
    /// Begin each lane at a random place of its piece, another one each epoch, and go round (the partial shuffle of Press 2019). Needs
    /// `data.order = "stream"`.
    pub roll: bool,
    /// What a document's end does to memory, in training and in its evaluations. Only `carry` unless
    /// `data.order = "stream"`.
    pub at_document_end: DocumentEnd,
    /// The same bits whatever the number of ranks. With more than one rank, `lanes / micro_batch / ranks` must then
    /// be a power of two; else it only has to be whole.
    pub exact: bool,
    /// Threads of libtorch in each rank. Part of exactness: sums split over threads round differently.
    #[schemars(transform = Range::at_least(1))]
    pub threads: usize,
    /// Steps over which the batch grows to all lanes: at first one of `batch_warmup_from` micro-steps takes part, then one
    /// of half as many, in stages of one length. Micro-steps take turns, and the lanes of the others wait. A multiple of
    /// `batch_warmup_from` times the number of stages, log2 of it; 0 for all lanes from the first step on.
    pub batch_warmup: u64,
    /// Of so many micro-steps one takes part in the first stage of `batch_warmup`: a power of two that divides the
    /// micro-steps of each rank.
    #[schemars(transform = Range::at_least(1))]
    pub batch_warmup_from: usize,
    /// Gradient bytes that are reduced at a time; does not change the result where `exact`.
    #[schemars(transform = Range::at_least(1))]
    pub bucket_bytes: usize,
    /// What products are computed in: `f32`, or 16 bits of them. Weights, moments, sums of gradients, norms, softmaxes and losses stay in
    /// single precision; evaluations are all in it.
    pub precision: Precision,
    /// Round the factors of products in single precision to TF32 on a card, with 10 bits of mantissa; a processor has no such products.
    pub tf32: bool,
    /// Keep only the inputs of layers for backward, which makes each layer again: less memory for activations, a third more time. Does not
    /// change the result.
    pub recompute: bool,
    /// Every so many steps all ranks compare a hash of their weights and, unless `shard` divides these, of averages and optimizer; 0 for at
    /// the start alone.
    pub check_replicas_every: u64,
    /// Every so many steps each rank makes one of its micro-steps twice and compares loss, carry and gradients bit by bit, which finds
    /// processors that compute wrongly now and then; 0 for never.
    pub check_repeats_every: u64,
    /// Where ranks compute. `auto` takes a card where one can be used; of several, ranks on a host take one after the other.
    pub device: DeviceKind,
    /// How ranks add up gradients that lie on cards: from card to card by `nccl`, or in the memory of the `host`. `auto` takes NCCL where it is there
    /// and every rank has a card of its own. Does not change the result where `exact`.
    pub collectives: CollectivesKind,
    /// What ranks divide among themselves: `none`, the `optimizer`'s moments and averages of the weights (ZeRO-1), or these and the summed
    /// `gradients` (ZeRO-2). Saves memory; does not change the result.
    pub shard: Shard,
    /// Seconds that a rank waits for others in one call before the job ends with exit code 82; 0 for as long as it takes.
    #[schemars(transform = Range::at_least(0))]
    pub deadline: u64,
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            steps: 1000,
            init_from: String::new(),
            stop_at: 0,
            time_limit: 0.0,
            seed: 1,
            lanes: 8,
            micro_batch: 4,
            segment: 128,
            ext_len: 0,
            loss: LossKind::Full,
            varlen: false,
            segment_half: 0.0,
            segment_spread: 0.0,
            segment_most: 0,
            segment_rate: true,
            segment_rest: false,
            drop_state: 0.0,
            roll: false,
            at_document_end: DocumentEnd::Carry,
            exact: true,
            threads: 1,
            batch_warmup: 0,
            batch_warmup_from: 1,
            bucket_bytes: 4 << 20,
            precision: Precision::F32,
            tf32: false,
            recompute: false,
            check_replicas_every: 100,
            check_repeats_every: 0,
            device: DeviceKind::Auto,
            collectives: CollectivesKind::Auto,
            shard: Shard::None,
            deadline: 1800,
        }
    }
}

/// Shape of the decay after warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleKind {
    /// The peak for ever.
    Constant,
    /// Half a cosine down to the floor.
    Cosine,
    /// A straight line down to the floor.
    Linear,
    /// `lr · √(warmup / s)`.
    InverseSqrt,
    /// The peak, times `drop_factor` after each of the steps `drop_after`.
    Stepped,
    /// A straight line down to the floor, over and over, each of `cycle` steps (Izmailov et al. 2018).
    Cyclical,
}

/// Where cosine and linear decay begin to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DecayFrom {
    /// Step 0, as the PyTorch reference: a small drop where warm-up ends.
    Start,
    /// The end of warm-up, as the TensorFlow reference.
    Warmup,
}

/// How the learning rate follows the number of lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RateScale {
    /// Not at all.
    None,
    /// In proportion to them, usual with plain gradient descent (Krizhevsky 2014; Goyal et al. 2017).
    Linear,
    /// With their square root, usual with Adam and LAMB (Krizhevsky 2014; Hoffer et al. 2017).
    Sqrt,
}

/// `[schedule]`: the learning rate of step s, counted from 1, is `lr · s / warmup` while s < `warmup`, then the decay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleConfig {
    /// Shape of the decay after warm-up.
    pub kind: ScheduleKind,
    /// Steps of linear warm-up.
    pub warmup: u64,
    /// Steps of the whole schedule; 0 for `train.steps`.
    pub steps: u64,
    /// The learning rate never falls below this share of the peak after warm-up. Cosine and linear end there and
    /// stay; a cycle ends there.
    #[schemars(transform = Range::at_least(0.0).below(1.0))]
    pub floor: f64,
    /// Where cosine and linear begin to count.
    pub decay_from: DecayFrom,
    /// How the peak follows `train.lanes`: `optim.lr` is the peak at `base_lanes`.
    pub scale: RateScale,
    /// Lanes that `optim.lr` was chosen for; needed where `scale` is not `none`.
    pub base_lanes: usize,
    /// `stepped`: the steps after which the learning rate drops, rising, none of them within the warm-up or at the end of the run.
    pub drop_after: Vec<u64>,
    /// `stepped`: what each drop multiplies the learning rate by.
    #[schemars(transform = Range::above(0.0).below(1.0))]
    pub drop_factor: f64,
    /// `cyclical`: steps of a cycle. They are counted from step 1, whatever the warm-up, so that cycles end at its multiples, as the means of
    /// `average.every` take them in. Choose a `floor`: with one of 0 the last step of each cycle has a rate of 0. A warm-up that ends
    /// within a cycle rises towards the peak, and from there the rate drops to where the cycle is by then.
    pub cycle: u64,
}

impl Default for ScheduleConfig {
    fn default() -> Self {
        Self {
            kind: ScheduleKind::Cosine,
            warmup: 0,
            steps: 0,
            floor: 0.0,
            decay_from: DecayFrom::Warmup,
            scale: RateScale::None,
            base_lanes: 0,
            drop_after: Vec::new(),
            drop_factor: 0.1,
            cycle: 0,
        }
    }
}

/// `[eval]`: evaluation of the validation split while training. A corpus without one is not evaluated. There is always
/// one after the last step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EvalConfig {
    /// Steps between evaluations; 0 for the end only.
    pub every: u64,
    /// Pre-training: stop when this many evaluations in a row bring nothing better, and keep the best model as
    /// `checkpoint.best` does; 0 for never.
    pub patience: u64,
    /// Parallel pieces the split is cut into; 1 gives every token its whole past. With pairs: made up to a multiple of
    /// `train.micro_batch`.
    #[schemars(transform = Range::at_least(1))]
    pub lanes: usize,
    /// Pieces in one forward pass; ranks take groups of so many in turn. 0: the largest groups that give every rank that the run
    /// could have one, at most `train.micro_batch`. With pairs it is always that. The last bits of a result depend on it, and
    /// its speed: where few ranks are used of many possible ones, larger groups are faster.
    pub group: usize,
    /// With pairs: sequences of each lane that are evaluated, once with memory and once without; 0 for all that the
    /// split has.
    pub steps: u64,
    /// Tokens of a piece per forward pass; 0 for `train.segment`.
    pub segment: usize,
    /// Tokens before each segment that are read again, as context.
    pub ext_len: usize,
    /// Positions of memory; below 0 for the model's.
    #[schemars(transform = Range::any())]
    pub mem_len: i64,
    /// Same-length attention while evaluating, with a memory of at least 1; a model that has it keeps it.
    pub same_length: bool,
    /// Clamp of distances while evaluating; -1 for none, 0 for the model's.
    #[schemars(transform = Range::any())]
    pub clamp_len: i64,
}

impl Default for EvalConfig {
    fn default() -> Self {
        Self {
            every: 0,
            patience: 0,
            lanes: 4,
            group: 0,
            steps: 0,
            segment: 0,
            ext_len: 0,
            mem_len: -1,
            same_length: false,
            clamp_len: 0,
        }
    }
}

impl EvalConfig {
    /// Pieces of one forward pass. Of the run's keys alone, so that a result does not depend on the number of ranks.
    pub fn lanes_per_group(&self, train: &TrainConfig) -> usize {
        let most_ranks = (train.lanes / train.micro_batch).max(1);
        match self.group {
            0 => (self.lanes / most_ranks).clamp(1, train.micro_batch),
            group => group.min(self.lanes),
        }
    }
}

/// `[checkpoint]`: when state is written, and how much of it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckpointConfig {
    /// Steps between checkpoints; 0 for the last step only.
    pub every: u64,
    /// Minutes between checkpoints, by the clock of rank 0, beside those of `every`; 0 for none.
    #[schemars(transform = Range::at_least(0.0))]
    pub minutes: f64,
    /// Checkpoints of every so many steps are kept for good; 0 for none.
    pub keep_every: u64,
    /// Pre-training: keep the model of the best evaluation in the run's folder `best`. Fine-tuning always does.
    pub best: bool,
    /// Number of newest checkpoints that are kept.
    #[schemars(transform = Range::at_least(2)
        .or_too_small("two checkpoints at least: the newest may be the one that breaks"))]
    pub keep: usize,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        Self { every: 1000, minutes: 0.0, keep_every: 0, best: false, keep: 3 }
    }
}

/// `[log]`: what is reported, and when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogConfig {
    /// Steps between two reports.
    #[schemars(transform = Range::at_least(1))]
    pub every: u64,
    /// Write TensorBoard event files beside `metrics.jsonl`.
    pub tensorboard: bool,
    /// Where rows of `metrics.jsonl` go besides: `"csv"` to `RUN/metrics.csv`, `"mlflow"` to the file store of MLflow.
    pub sinks: Vec<SinkKind>,
    /// Folder of the MLflow store; empty for `RUN/mlruns`.
    pub mlflow_dir: String,
    /// Name of the MLflow experiment.
    pub mlflow_experiment: String,
    /// Every so many steps the gradient noise scale is measured, from the gradients of single micro-steps and of the whole
    /// batch; 0 for never. Needs two micro-steps at least.
    pub noise_scale_every: u64,
    /// First step that is traced.
    #[schemars(transform = Range::at_least(1))]
    pub trace_from: u64,
    /// Steps that are traced: what each thread of each rank does and when, to `RUN/trace`; 0 for none.
    pub trace_steps: u64,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            every: 10,
            tensorboard: true,
            sinks: Vec::new(),
            mlflow_dir: String::new(),
            mlflow_experiment: "segue".into(),
            noise_scale_every: 0,
            trace_from: 1,
            trace_steps: 0,
        }
    }
}

/// What rows are written to besides `metrics.jsonl`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SinkKind {
    /// A line for each number.
    Csv,
    /// MLflow's file store.
    Mlflow,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_that_there_could_be_evaluates_a_group_where_there_are_lanes_enough() {
        for (lanes, micro_batch, pieces, group) in [
            (8, 2, 4, 1),
            (32, 16, 16, 8),
            (4, 4, 16, 4),
            (256, 8, 10, 1),
            (2, 1, 4, 1),
            (64, 32, 7, 3),
            (1, 1, 1, 1),
        ] {
            let train = TrainConfig { lanes, micro_batch, ..TrainConfig::default() };
            let eval = EvalConfig { lanes: pieces, ..EvalConfig::default() };
            assert_eq!(
                eval.lanes_per_group(&train),
                group,
                "{lanes} lanes by {micro_batch}, {pieces} pieces"
            );
            let groups = pieces.div_ceil(group);
            assert!(groups >= (lanes / micro_batch).min(pieces) && group <= micro_batch);
            let given = EvalConfig { group: 5, ..eval };
            assert_eq!(given.lanes_per_group(&train), 5.min(pieces));
        }
    }
}
