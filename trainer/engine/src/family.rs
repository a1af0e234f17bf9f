//! What a run needs to know of what it trains, past the step: data, evaluation, and what its folders hold.

use std::path::Path;
use std::sync::Arc;

use segue_collectives::Communicator;
use segue_configs::EvalConfig;
use segue_dataloader::Reader;
use segue_kernels::{Parameters, TrainError};
use segue_tokenizer::Tokenizer;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tch::Tensor;

use super::fill::fill;
use super::layout::Layout;
use super::learner::Learner;
use super::share::Watch;
use super::tables::restore_tables;
use crate::checkpoint::{WEIGHTS, file_of, locate, read_tensors, unverified};
use crate::optim::averaging::CandidateLoss;

/// What a rank trains on in one step, as a reader gives it.
pub struct Prepared<B, C> {
    /// The batch.
    pub batch: B,
    /// For each of this rank's lanes: what it carries must be fresh before this step. Empty where nothing is carried; as many entries a
    /// lane as it has parts, where these are forgotten by themselves.
    pub restarts: Vec<bool>,
    /// What the learning rates of the step are multiplied by, the same on all ranks.
    pub rate: f64,
    /// What the whole step does over all ranks, in units of [`Labels::rate_of`]; `None` for the targets of its loss.
    pub work: Option<f64>,
    /// For each of this rank's lanes: where the next step begins. Empty where a batch is a function of its number.
    pub cursors: Vec<C>,
}

impl<B, C> Prepared<B, C> {
    /// A batch that is a function of its number, of lanes that carry nothing.
    pub fn of(batch: B) -> Self {
        Self { batch, restarts: Vec::new(), rate: 1.0, work: None, cursors: Vec::new() }
    }
}

/// Where a rank begins to read a source.
pub struct Place<C> {
    /// Number of the source.
    pub source: usize,
    /// This rank's share of every batch.
    pub layout: Layout,
    /// Where this rank's lanes stand.
    pub cursors: Vec<C>,
}

/// How a run has begun with the weights of another one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Begun {
    /// Names of parameters that it left as they were drawn, where that is worth telling.
    pub fresh: Vec<String>,
    /// How the weights were found: what was passed over for them, such as a damaged best model, and whether they were verified.
    pub notes: Vec<String>,
}

impl Begun {
    /// Begun with the weights in `folder`, for which others were passed over.
    pub fn with(folder: &Path, passed_over: Vec<String>) -> Self {
        let notes = passed_over.into_iter().map(|why| format!("passed over {why}")).chain(unverified(folder));
        Self { notes: notes.collect(), ..Self::default() }
    }
}

/// Which of two values of a measure is the better one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// A loss.
    Lower,
    /// An accuracy.
    Higher,
}

/// What an evaluation found.
#[derive(Debug, Clone)]
pub struct Measures {
    /// The measure that weights and checkpoints are chosen by.
    pub lead: f64,
    /// Which of two values of it is the better one.
    pub better: Better,
    /// The loss that averages decide by, where that is another than the leading measure's.
    pub decide: Option<f64>,
    /// Of two evaluations with the same leading measure the one where this is lower is the better one.
    pub tie: Option<f64>,
    /// All of it: an object, for `metrics.jsonl` and the command's result.
    pub row: Value,
    /// For TensorBoard.
    pub scalars: Vec<(String, f64)>,
    /// For people, a line each.
    pub lines: Vec<String>,
}

impl Measures {
    /// The leading measure as a loss: lower is better.
    pub fn loss(&self) -> f64 {
        match self.better {
            Better::Lower => self.lead,
            Better::Higher => -self.lead,
        }
    }

    /// Whether the weights give a finite loss. A measure of answers alone may be a number that NaNs were ranked for, or none though the loss is one,
    /// as a correlation of answers that are all alike.
    pub fn is_finite(&self) -> bool {
        self.tie.unwrap_or(self.lead).is_finite()
    }

    /// What averages are told of the weights that were measured.
    pub fn of_candidate(&self) -> CandidateLoss {
        CandidateLoss { decide: self.decide.unwrap_or(self.loss()), ..self.loss().into() }
    }
}

/// In which words a run is reported.
#[derive(Debug, Clone)]
pub struct Labels {
    /// What the progress bar says.
    pub doing: &'static str,
    /// What a step has a number of, such as targets.
    pub step_of: &'static str,
    /// How many of them.
    pub per_step: u64,
    /// What speed is counted in.
    pub rate_of: &'static str,
    /// What a mean loss is also told as.
    pub loss_as: LossAs,
    /// Examples within which a loss acts that is no sum over them (`train.group`); `None` where there is no such loss.
    pub group: Option<u64>,
    /// What a source is called in a row of `metrics.jsonl`, and the names of all; empty where there is one source.
    pub sources: (&'static str, Vec<String>),
}

/// What a mean loss is also told as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossAs {
    /// Nothing else.
    Loss,
    /// e to its power.
    Perplexity,
    /// It divided by ln 2: bits per character.
    Bits,
}

/// Whether a run keeps the best model it has seen in a folder of its own, beside its checkpoints.
#[derive(Debug, Clone, Copy, Default)]
pub struct KeepBest {
    /// Evaluations in a row without a better one that end the run; 0 for never.
    pub patience: u64,
    /// How much better one has to be for that, in units of the leading measure.
    pub min_delta: f64,
}

impl KeepBest {
    /// As `[eval]` says.
    pub fn of(config: &EvalConfig) -> Self {
        Self { patience: config.patience, min_delta: config.min_delta }
    }
}

/// What family `F` trains on in one step.
pub type FamilyBatch<F> = Prepared<<<F as Family>::Learner as Learner>::Batch, <F as Family>::Cursor>;
/// A reader of one source of family `F`.
pub type FamilyReader<F> = Box<dyn Reader<Batch = FamilyBatch<F>>>;

/// A kind of run: what is around the steps of a learner.
pub trait Family {
    /// What is trained.
    type Learner: Learner;
    /// Where a lane stands.
    type Cursor: Clone + Serialize + DeserializeOwned + Send + 'static;

    /// Names the data: a run goes on with the same only. Empty where the configuration says all of it.
    fn fingerprint(&self) -> String {
        String::new()
    }

    /// Names the data of evaluations where it is other data, which all ranks have to share. A run may go on with another.
    fn evaluated_on(&self) -> String {
        String::new()
    }

    /// The key of the configuration that names the data, for the message where it is other data.
    fn data_key(&self) -> &'static str {
        "data.corpus"
    }

    /// In which words it is reported.
    fn labels(&self) -> Labels;

    /// Where all lanes of the job stand before the first step; none where a batch is a function of its number.
    fn cursors(&self) -> Vec<Self::Cursor> {
        Vec::new()
    }

    /// Reads a source, ahead of time and on a thread of its own. Batches of tensors lie where the model lives. At most one source of a run has lanes with
    /// cursors.
    fn reader(&self, place: Place<Self::Cursor>) -> Result<FamilyReader<Self>, TrainError>
    where
        Self: Sized;

    /// Fills fresh weights, and the tables of the learner, with those of `from`, which `train.init_from` names: a run, a checkpoint or a model folder.
    fn begin(&self, learner: &Self::Learner, from: &Path) -> Result<Begun, TrainError> {
        let (folder, passed_over) = locate(from)?;
        for (n, (name, parameters)) in learner.networks().into_iter().enumerate() {
            let stored = self.read(learner, n, &folder.join(file_of(WEIGHTS, n, name)))?;
            fill(parameters.tensors().iter().zip(stored));
        }
        restore_tables(&folder, learner)?;
        Ok(Begun::with(&folder, passed_over))
    }

    /// Whether there is anything to evaluate on.
    fn evaluates(&self) -> bool {
        true
    }

    /// Evaluates; `None` where there is nothing to evaluate on. `watch` hears of what is done, and may end it
    /// where the work is done by [`Share::each`](super::Share::each). A collective call: every rank gets the same result.
    fn evaluate(
        &mut self,
        learner: &mut Self::Learner,
        comm: &dyn Communicator,
        watch: &mut Watch,
    ) -> Result<Option<Measures>, TrainError>;

    /// Whether the best model is kept.
    fn keeps_best(&self) -> Option<KeepBest> {
        None
    }

    /// Files beside the best model and its `metrics.json`: the model that `measures` of step `step` are of.
    fn beside_best(&self, measures: &Measures, step: u64) -> Vec<(String, Vec<u8>)> {
        let _ = (measures, step);
        Vec::new()
    }

    /// `config.json` of a folder of the model.
    fn model_config(&self, learner: &Self::Learner) -> Value;

    /// The tokenizer of the text that the family reads: it lies in every folder of the model, and a run does not go on with another. `None` where
    /// there is no text.
    fn tokenizer(&self) -> Option<&Arc<Tokenizer>> {
        None
    }

    /// `weights` of network `network`, in the order of its parameters, as they are stored: under names that other
    /// programs find, and with what belongs to the model and is not trained.
    fn stored(
        &self,
        learner: &Self::Learner,
        network: usize,
        weights: Vec<(String, Tensor)>,
    ) -> Vec<(String, Tensor)> {
        let _ = (learner, network);
        weights
    }

    /// The weights of network `network` out of a file that [`Family::stored`] names filled, in the order of its
    /// parameters.
    fn read(&self, learner: &Self::Learner, network: usize, path: &Path) -> Result<Vec<Tensor>, TrainError> {
        let (_, parameters) = learner.networks()[network];
        read_plain(path, parameters)
    }
}

/// Weights under the parameters' own names.
fn read_plain(path: &Path, parameters: &Parameters) -> Result<Vec<Tensor>, TrainError> {
    let mut file = read_tensors(path)?;
    parameters.specs().iter().map(|spec| file.take(&spec.name, &spec.shape)).collect()
}
