//! What fine-tuning costs, before the first step: the arithmetic of a dry run and of a plan over the batches that a pass takes.

use std::collections::BTreeMap;

use segue_configs::{ModelConfig, TrainConfig};
use segue_cost::{Beside, MicroStep, Role, TurnWork, Work};
use segue_kernels::TrainError;
use segue_language::{encoders, is_of_a_head, language};
use segue_tasks::{Kind, TaskConfig, TaskData, batches_of_pass};
use serde::Serialize;

use super::adapters::Adapters;
use super::batches::{example_order, training_examples};
use super::frozen;
use super::head_spec::heads;
use super::model::TaskModel;

/// What a pass over the training examples brings to the model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pass {
    /// Examples; of questions on paragraphs, windows.
    pub examples: u64,
    /// Steps.
    pub steps: u64,
    /// Tokens of all sequences, without padding.
    pub tokens: u64,
    /// Positions of all micro-batches, padding among them.
    pub positions: u64,
    /// Tokens of the longest sequence.
    pub longest: usize,
    /// How many micro-batches have so many sequences of so many positions.
    #[serde(skip)]
    shapes: BTreeMap<(usize, usize), u64>,
}

impl Pass {
    /// The first pass of a run over `tasks`, whose batches are those that training takes. Fails where a task has no training examples.
    pub fn first(train: &TrainConfig, task: &TaskConfig, tasks: &[TaskData]) -> Result<Self, TrainError> {
        let mut pass =
            Self { examples: 0, steps: 0, tokens: 0, positions: 0, longest: 0, shapes: BTreeMap::new() };
        for (number, data) in tasks.iter().enumerate() {
            let examples = training_examples(task, data)?;
            let mut order = example_order(train, task, tasks, number)?;
            let steps = batches_of_pass(examples.len(), train.lanes) as u64;
            (pass.examples, pass.steps) = (pass.examples + examples.len() as u64, pass.steps + steps);
            for step in 1..=steps {
                for micro_batch in order.batch(step).chunks(train.micro_batch) {
                    let sequences = || micro_batch.iter().flat_map(|&number| &examples[number].sequences);
                    let width = sequences().map(|sequence| sequence.ids.len()).max().unwrap_or(0);
                    let count = sequences().count();
                    pass.tokens += sequences().map(|sequence| sequence.ids.len() as u64).sum::<u64>();
                    pass.positions += (count * width) as u64;
                    pass.longest = pass.longest.max(width);
                    *pass.shapes.entry((count, width)).or_default() += 1;
                }
            }
        }
        Ok(pass)
    }

    /// Positions of padding, as a fraction of all.
    pub fn padding(&self) -> f64 {
        1.0 - self.tokens as f64 / self.positions.max(1) as f64
    }
}

/// What a run on `tasks` trains, and what its micro-steps take: those of `pass`, each for its fraction of the steps. `recompute`: whether the backward
/// pass makes layers again. Heads read their states for next to nothing and are not counted. Activations are those of a model that is trained whole.
pub fn work(
    model: &ModelConfig,
    task: &TaskConfig,
    recompute: bool,
    tasks: &[TaskData],
    pass: &Pass,
) -> Result<Work, TrainError> {
    let (family, roles) = (encoders(model)?, language(model)?);
    let (_, trained) = TaskModel::specs_apart(model, &heads(task, tasks), task);
    let words_alone = tasks.iter().all(|data| data.kind == Kind::Ranking);
    let frozen = frozen::fraction(family, model, task);
    let micro_step = |sequences: usize, length: usize| match words_alone {
        true => MicroStep::of_products((sequences * length) as u64, 1, 0.0, 0.0),
        false => {
            let step = family.encoding_step(model, recompute, sequences, length);
            let step = MicroStep { targets_per_lane: 1, ..step };
            let forward_only = frozen * step.forward.least;
            step.with_forward_only(forward_only)
        }
    };
    let turn = |(&(sequences, length), &steps): (&(usize, usize), &u64)| TurnWork {
        steps,
        networks: Vec::new(),
        micro_step: micro_step(sequences, length),
    };
    let role = |name: &str| if is_of_a_head(name) { Role::Head } else { roles.role(name) };
    let mut work = Work::new(trained, micro_step(1, 1), role);
    work.turns = pass.shapes.iter().map(turn).collect();
    work.beside = beside(model, task, tasks)?;
    Ok(work)
}

/// Weights that a run on `tasks` holds beside those it trains.
pub fn beside(model: &ModelConfig, task: &TaskConfig, tasks: &[TaskData]) -> Result<Beside, TrainError> {
    let family = encoders(model)?;
    let (frozen, _) = TaskModel::specs_apart(model, &heads(task, tasks), task);
    let adapters = Adapters::of(task, &family.encoder_specs(model));
    Ok(Beside {
        frozen: frozen.iter().map(|spec| spec.numel() as u64).sum(),
        computed: adapters.map_or(0, |adapters| adapters.values()),
    })
}
