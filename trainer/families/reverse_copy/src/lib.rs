//! Reverse copy (Melis 2023, §2.3.3): a string of drawn tokens is read, and written backwards. See `README.md` beside this file.

mod config;
mod data;
mod keys;
mod model;
mod trained;

use segue_collectives::Communicator;
use segue_configs::{Config, ModelType};
use segue_cost::{MicroStep, PER_MULTIPLY_ADD, Role, Work};
use segue_dataloader::Reader;
use segue_engine::{
    Better, Event, Family, FamilyReader, KeepBest, Labels, LossAs, Measures, Outcome, Place, Prepared, Share,
    Watch,
};
use segue_family::{Asked, Entry, Evaluations, Job, own};
use segue_kernels::libtorch::stream::put;
use segue_kernels::{Compute, TrainError};
use serde::Serialize;
use serde_json::{Value, json};
use tch::{Device, Tensor};

pub use data::{StringReader, Strings, Use};
pub use keys::{EvalConfig, ObjectiveConfig, ReverseCopyConfig};
pub use model::{Copier, Score};

/// The family's line in the list.
pub static FAMILY: Entry = Entry {
    section: ModelType::of::<ReverseCopyConfig>,
    open,
    fit: |_| Ok(()),
    work,
    capabilities: &[&Evaluations(&[Asked::of::<trained::CopiedStrings>()]), &trained::WRITES],
};

/// Values that backward needs of a position of a layer, of width n each: gates, cell, output, and what feeds them; and of a round of gates.
const KEPT_OF_A_LAYER: usize = 10;
const KEPT_OF_A_ROUND: usize = 2;

/// Drawn strings: there is nothing to open. The width follows from the budget.
fn open(config: &mut Config) -> Result<Box<dyn Job>, TrainError> {
    if let Some(copy) = config.model.get_mut::<ReverseCopyConfig>() {
        *copy = copy.sized();
    }
    Ok(Box::new(DrawnStrings))
}

struct DrawnStrings;

impl Job for DrawnStrings {
    fn check_validation(&self, _: &Config) -> Result<(), TrainError> {
        Ok(())
    }

    fn train(
        &self,
        config: &Config,
        compute: Compute,
        comm: &dyn Communicator,
        stop: &dyn Fn() -> bool,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Outcome, TrainError> {
        let copy: &ReverseCopyConfig = own(&config.model);
        let copier =
            Copier::new(copy, config.own.get::<ObjectiveConfig>().loss_over, config.train.seed, compute);
        segue_engine::train(config, ReverseCopy { config, copy, compute }, copier, comm, stop, on_event)
    }
}

/// What a run takes: every matrix but the tables of inputs meets every position once.
fn work(config: &Config) -> Result<Work, TrainError> {
    let copy = own::<ReverseCopyConfig>(&config.model).sized();
    let specs = model::specs(&copy);
    let positions = (config.train.micro_batch * copy.targets()) as f64;
    let matrices = specs.iter().filter(|spec| spec.shape.len() == 2 && !spec.name.contains("embedding"));
    let forward = positions * (PER_MULTIPLY_ADD * matrices.map(|s| s.numel() as u128).sum::<u128>()) as f64;
    let of_layer = (KEPT_OF_A_LAYER + KEPT_OF_A_ROUND * copy.mogrifier_rounds) * copy.d_model;
    let activations = positions * (2 * of_layer + copy.vocabulary() as usize) as f64;
    let targets = copy.targets() as u64;
    let micro_step =
        MicroStep::of_products(config.train.micro_batch as u64 * targets, targets, forward, activations);
    Ok(Work::new(specs, micro_step, |_| Role::Other))
}

/// A run of the task.
struct ReverseCopy<'a> {
    config: &'a Config,
    copy: &'a ReverseCopyConfig,
    compute: Compute,
}

/// How well strings are copied.
#[derive(Debug, Clone, Copy, Serialize)]
struct Copied {
    /// Strings.
    count: u64,
    /// nats a target: a token, or the mark at the end.
    loss: f64,
    /// exp(loss).
    ppl: f64,
    /// Share of tokens that are the most probable ones, where all before are right.
    accuracy: f64,
    /// Share of strings that are written without a mistake.
    string_accuracy: f64,
}

impl Copied {
    fn describe(&self) -> String {
        let (tokens, strings) = (100.0 * self.accuracy, 100.0 * self.string_accuracy);
        format!("loss {:.4}, {tokens:.2} % of tokens, {strings:.2} % of {} strings", self.loss, self.count)
    }
}

impl ReverseCopy<'_> {
    /// Scores `count` strings of one use in groups, which ranks share. A collective call.
    fn score(
        &self,
        copier: &Copier,
        (purpose, count): (Use, u64),
        comm: &dyn Communicator,
        watch: &mut Watch,
    ) -> Result<Copied, TrainError> {
        let strings = Strings::new(self.copy, self.config.train.seed, purpose);
        let group = match self.config.own.get::<EvalConfig>().group {
            0 => self.config.train.micro_batch as u64,
            group => group as u64,
        };
        score(copier, &strings, (count, group), comm, watch)
    }
}

/// Scores the first `count` strings in groups, which ranks share. A collective call.
fn score(
    copier: &Copier,
    strings: &Strings,
    (count, group): (u64, u64),
    comm: &dyn Communicator,
    watch: &mut Watch,
) -> Result<Copied, TrainError> {
    let config = copier.config();
    let share = Share::new(comm, count.div_ceil(group) as usize);
    let sums = share.each(1, watch, |part, done| {
        let first = part as u64 * group;
        let tokens: Vec<i64> =
            (first..count.min(first + group)).flat_map(|number| strings.string(number)).collect();
        let Score { nats, tokens, strings } =
            copier.score(&strings_of(&tokens, config.length, copier.device()));
        done()?;
        Ok([nats, tokens, strings])
    })?;
    let [nats, tokens, right] = share.sum(&sums)?;
    let loss = nats / (count * config.targets() as u64) as f64;
    let (accuracy, string_accuracy) = (tokens / (count * config.length as u64) as f64, right / count as f64);
    Ok(Copied { count, loss, ppl: loss.exp(), accuracy, string_accuracy })
}

/// Strings of `length` tokens, where the model lives: `[lanes, length]`.
fn strings_of(tokens: &[i64], length: usize, device: Device) -> Tensor {
    put(Tensor::from_slice(tokens).view([-1, length as i64]), device)
}

impl Family for ReverseCopy<'_> {
    type Learner = Copier;
    /// A batch is a function of its number: no place in the data to remember.
    type Cursor = ();

    fn labels(&self) -> Labels {
        Labels {
            doing: "train",
            step_of: "targets",
            per_step: (self.config.train.lanes * self.copy.targets()) as u64,
            rate_of: "tokens",
            loss_as: LossAs::Perplexity,
            group: None,
            sources: ("source", Vec::new()),
        }
    }

    fn reader(&self, place: Place<()>) -> Result<FamilyReader<Self>, TrainError> {
        let reader = StringReader {
            strings: Strings::new(self.copy, self.config.train.seed, Use::Train),
            count: self.copy.train_strings,
            all: place.layout.lanes,
            lanes: place.layout.lane_range(),
        };
        let (length, device) = (self.copy.length, self.compute.device());
        let each = place.layout.micro_batch * length;
        let batch = move |tokens: Vec<i64>| {
            tokens.chunks_exact(each).map(|tokens| strings_of(tokens, length, device)).collect()
        };
        Ok(Box::new(reader.map(move |tokens| Prepared::of(batch(tokens)))))
    }

    fn evaluate(
        &mut self,
        copier: &mut Copier,
        comm: &dyn Communicator,
        watch: &mut Watch,
    ) -> Result<Option<Measures>, TrainError> {
        let valid = self.score(copier, (Use::Valid, self.copy.valid_strings), comm, watch)?;
        let (mut row, mut lines) = (json!(valid), vec![format!("validation: {}", valid.describe())]);
        if self.copy.test_strings > 0 {
            let test = self.score(copier, (Use::Test, self.copy.test_strings), comm, watch)?;
            row["test"] = json!(test);
            lines.push(format!("test: {}", test.describe()));
        }
        let Copied { loss, accuracy, string_accuracy, .. } = valid;
        let scalars = [("loss", loss), ("accuracy", accuracy), ("string_accuracy", string_accuracy)];
        Ok(Some(Measures {
            lead: loss,
            better: Better::Lower,
            decide: None,
            tie: None,
            row,
            scalars: scalars.map(|(name, value)| (format!("valid/{name}"), value)).into(),
            lines,
        }))
    }

    fn keeps_best(&self) -> Option<KeepBest> {
        self.config.keeps_best().then(|| KeepBest::of(&self.config.eval))
    }

    fn model_config(&self, _: &Copier) -> Value {
        let mut config = json!(self.copy);
        config["model_type"] = json!("reverse-copy");
        config
    }
}
