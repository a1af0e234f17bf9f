//! Which examples the steps of a run take.

use segue_configs::TrainConfig;
use segue_kernels::TrainError;
use segue_tasks::{Example, ExampleOrder, TaskConfig, TaskData, batches_of_pass};

use super::mixture::Mixture;

/// Examples that a task is trained on; there is at least one.
pub fn training_examples<'a>(task: &TaskConfig, data: &'a TaskData) -> Result<&'a [Example], TrainError> {
    match &data.train {
        Some(split) if !split.examples.is_empty() => Ok(&split.examples),
        _ => {
            let what = format!("the task {} has no training examples in {}", data.name, task.data);
            Err(TrainError::Layout(format!("{what}\nhint: name the folder with its training file")))
        }
    }
}

/// The order in which training takes the examples of task number `number`.
pub fn example_order(
    train: &TrainConfig,
    task: &TaskConfig,
    tasks: &[TaskData],
    number: usize,
) -> Result<ExampleOrder, TrainError> {
    let examples = training_examples(task, &tasks[number])?;
    let widths = examples.iter().map(|example| example.width() as u32).collect();
    // Tasks of one seed must not take their examples in one rhythm.
    let seed = train.seed.wrapping_add(number as u64);
    Ok(ExampleOrder::new(widths, train.lanes, task.length_window, seed))
}

/// Which task step `step` is of, from 1, and the numbers of the examples that it takes, lane by lane.
pub fn batch_of_step(
    train: &TrainConfig,
    task: &TaskConfig,
    tasks: &[TaskData],
    step: u64,
) -> Result<(usize, Vec<usize>), TrainError> {
    let (number, nth) = mixture(train, task, tasks)?.at(step);
    Ok((number, example_order(train, task, tasks, number)?.batch(nth).to_vec()))
}

/// Which task each step is of.
pub fn mixture(train: &TrainConfig, task: &TaskConfig, tasks: &[TaskData]) -> Result<Mixture, TrainError> {
    let batches = |data| Ok(batches_of_pass(training_examples(task, data)?.len(), train.lanes));
    let batches: Vec<usize> = tasks.iter().map(batches).collect::<Result<_, TrainError>>()?;
    Ok(Mixture::new(&batches, train.seed))
}
