//! Which examples the steps of a run take.

use segue_configs::Config;
use segue_kernels::TrainError;
use segue_tasks::{Example, ExampleOrder, TaskConfig, TaskData, batches_of_pass};

use super::mixture::Mixture;

/// Examples that a task is trained on; there is at least one.
pub fn training_examples<'a>(config: &Config, data: &'a TaskData) -> Result<&'a [Example], TrainError> {
    match &data.train {
        Some(split) if !split.examples.is_empty() => Ok(&split.examples),
        _ => {
            let what = format!(
                "the task {} has no training examples in {}",
                data.name,
                config.own::<TaskConfig>().data
            );
            Err(TrainError::Layout(format!("{what}\nhint: name the folder with its training file")))
        }
    }
}

/// The order in which training takes the examples of task number `task`.
pub fn example_order(config: &Config, tasks: &[TaskData], task: usize) -> Result<ExampleOrder, TrainError> {
    let examples = training_examples(config, &tasks[task])?;
    let widths = examples.iter().map(|example| example.width() as u32).collect();
    // Tasks of one seed must not take their examples in one rhythm.
    let seed = config.train.seed.wrapping_add(task as u64);
    Ok(ExampleOrder::new(widths, config.train.lanes, config.own::<TaskConfig>().length_window, seed))
}

/// Which task step `step` is of, from 1, and the numbers of the examples that it takes, lane by lane.
pub fn batch_of_step(
    config: &Config,
    tasks: &[TaskData],
    step: u64,
) -> Result<(usize, Vec<usize>), TrainError> {
    let (task, nth) = mixture(config, tasks)?.at(step);
    Ok((task, example_order(config, tasks, task)?.batch(nth).to_vec()))
}

/// Which task each step is of.
pub fn mixture(config: &Config, tasks: &[TaskData]) -> Result<Mixture, TrainError> {
    let batches = |data| Ok(batches_of_pass(training_examples(config, data)?.len(), config.train.lanes));
    let batches: Vec<usize> = tasks.iter().map(batches).collect::<Result<_, TrainError>>()?;
    Ok(Mixture::new(&batches, config.train.seed))
}
