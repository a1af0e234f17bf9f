//! Evaluation on sequences of pairs, sharded over ranks: the same sequences, targets and orders every time, and
//! the same bits at any number of ranks.

use segue_collectives::Communicator;
use segue_configs::{ModelConfig, OwnSections, TrainConfig};
use segue_dataloader::sections::{MaskDraws, TextEvalConfig};
use segue_dataloader::{Corpus, LaneCursor, Lanes, PairLanes, PairOptions, Split};
use segue_engine::{Share, Watch};
use segue_kernels::TrainError;
use tch::{Kind, Tensor};

use super::evaluate::{Evaluation, OfPairs, WithoutMemory};
use super::micro_batches::micro_batches;
use crate::{Batch, Objective, Scores};

/// A split as the validation of a run that trains on pairs reads it: as lanes.
pub struct PairValidation {
    lanes: PairLanes,
    micro_batch: usize,
    micro_steps: usize,
    /// Steps that every lane makes: as configured, and never so many that it would begin again.
    steps: u64,
}

/// Sums over sequences.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    nats: f64,
    targets: f64,
    hits: f64,
    told: f64,
    sequences: f64,
}

impl PairValidation {
    /// Lanes over a split of `corpus`: `eval.lanes`, made up to whole micro-batches.
    pub fn open(
        train: &TrainConfig,
        model: &ModelConfig,
        own: &OwnSections,
        corpus: &Corpus,
        split: Split,
    ) -> Result<Self, TrainError> {
        let micro_batch = train.micro_batch;
        let eval = own.get::<TextEvalConfig>();
        let count = eval.lanes.next_multiple_of(micro_batch);
        let options = PairOptions::of(train, model, own)?.over(count, MaskDraws::Same);
        let lanes = PairLanes::open(options, &[], std::slice::from_ref(corpus), split)?;
        let whole = (0..count).map(|lane| lanes.steps_per_pass(lane)).min().unwrap_or(0);
        let steps = if eval.steps == 0 { whole } else { whole.min(eval.steps) };
        Ok(Self { lanes, micro_batch, micro_steps: count / micro_batch, steps })
    }

    /// Lanes that are read.
    pub fn lanes(&self) -> usize {
        self.micro_batch * self.micro_steps
    }

    /// Evaluates with the memory that `eval` says, and once more without any. A collective call.
    pub fn evaluate(
        &self,
        objective: &mut dyn Objective,
        eval: &TextEvalConfig,
        comm: &dyn Communicator,
        watch: &mut Watch,
    ) -> Result<Evaluation, TrainError> {
        objective.look(Some(eval));
        let with = self.pass(objective, comm, watch);
        objective.look(Some(&TextEvalConfig { mem_len: 0, ..eval.clone() }));
        let without = with.and_then(|with| Ok((with, self.pass(objective, comm, watch)?)));
        objective.look(None);
        let (with, without) = without?;
        let loss = without.nats / without.targets;
        let accuracy = |sums: &Sums| sums.hits / sums.targets;
        Ok(Evaluation::of_pairs(
            with.nats,
            with.targets as u64,
            OfPairs {
                accuracy: accuracy(&with),
                follows_accuracy: (with.sequences > 0.0).then(|| with.told / with.sequences),
                without_memory: WithoutMemory { loss, ppl: loss.exp(), accuracy: accuracy(&without) },
            },
        ))
    }

    /// One walk over all lanes: rank r takes the micro-batches r, r + ranks, ..
    fn pass(
        &self,
        objective: &dyn Objective,
        comm: &dyn Communicator,
        watch: &mut Watch,
    ) -> Result<Sums, TrainError> {
        let device = objective.parameters().options().1;
        let share = Share::new(comm, self.micro_steps);
        let sums = share.each(self.steps, watch, |number, done| {
            let range = number * self.micro_batch..(number + 1) * self.micro_batch;
            let mut memory = objective.memory_start(self.micro_batch as i64);
            let mut cursors = vec![LaneCursor::default(); self.micro_batch];
            let mut sum = Sums::default();
            for step in 1..=self.steps {
                let tokens = self.lanes.batch(range.clone(), &cursors, step)?;
                for batch in
                    micro_batches(&tokens, self.micro_batch).into_iter().map(|batch| batch.to(device))
                {
                    let scores = objective.score(&batch, &memory);
                    sum.add(&batch, &scores);
                    memory = scores.memory;
                }
                cursors = tokens.cursors_after;
                done()?;
            }
            Ok([sum.nats, sum.targets, sum.hits, sum.told, sum.sequences])
        })?;
        let [nats, targets, hits, told, sequences] = share.sum(&sums)?;
        Ok(Sums { nats, targets, hits, told, sequences })
    }
}

impl Sums {
    fn add(&mut self, batch: &Batch, scores: &Scores) {
        let total = |t: &Tensor| t.sum(Kind::Double).double_value(&[]);
        let Some(pairs) = &batch.pairs else { return };
        let weights = pairs.weights.to_kind(Kind::Double);
        self.nats += total(&(scores.nll.to_kind(Kind::Double) * &weights));
        self.targets += total(&weights);
        if let Some(hits) = &scores.hits {
            self.hits += total(&(hits.to_kind(Kind::Double) * &weights));
        }
        if let Some(told) = &scores.follows {
            self.told += total(&told.to_kind(Kind::Double));
            self.sequences += told.numel() as f64;
        }
    }
}
