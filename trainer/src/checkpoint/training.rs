//! The state of a run, to a folder and back.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use segue_collectives::Communicator;
use segue_configs::{Config, ModelConfig};
use segue_dataloader::Tokenizer;
use serde_json::{Value, json};
use tch::Tensor;

use super::files::{read_error, write_json};
use super::model_folder::{ModelFolder, WEIGHTS, as_stored, hugging_face_config, read_weights};
use super::publish::publish;
use super::state::{TrainState, differences, resolved, with_defaults};
use super::tensors::{read_tensors, write_tensors};
use super::writer::Job;
use crate::engine::Engine;
use crate::model::{self, Memory};
use crate::optim::{Adam, Average};
use crate::tasks::{self, TaskModel};
use crate::{Parameters, TrainError};

/// Weights that training goes on from, where `model.safetensors` holds their mean.
const TRAINING_WEIGHTS: &str = "training_weights.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";
/// Marks of the memory's positions in that file.
const MARKS: &str = "documents";
const MEMORY: &str = "memory.safetensors";
pub(super) const STATE: &str = "trainer_state.json";

/// Copies the whole state and gives the job that writes it under `run/checkpoints`; on rank 0 only, the
/// other ranks send their memory there and get `None`. A collective call.
pub fn snapshot(
    run: &Path,
    config: &Config,
    engine: &Engine,
    state: &TrainState,
    tokenizer: Arc<Tokenizer>,
    comm: &dyn Communicator,
) -> Result<Option<Job>, TrainError> {
    let Some(memory) = gather_memory(engine, comm)? else {
        return Ok(None);
    };
    let parameters = engine.objective.parameters();
    let mut weights = copies(parameters, parameters.tensors());
    let mut training_weights = None;
    if let Some(average) = engine.average.as_ref().filter(|average| average.count() > 0) {
        training_weights = Some(std::mem::replace(&mut weights, copies(parameters, average.mean())));
    }
    let mut state = state.clone();
    state.average.count = engine.average.as_ref().map(Average::count);
    Ok(Some(
        Contents {
            weights: as_stored(&config.model, weights),
            training_weights,
            optimizer: optimizer_copies(&engine.updater.optimizer, parameters),
            memory: Some(memory),
            model: hugging_face_config(&config.model),
            state,
            tokenizer,
        }
        .job(run, config),
    ))
}

/// The same of a model that is fine-tuned: it has no memory. On rank 0 only.
pub fn snapshot_of_task(
    run: &Path,
    config: &Config,
    model: &TaskModel,
    optimizer: &Adam,
    state: &TrainState,
    tokenizer: Arc<Tokenizer>,
) -> Job {
    let (frozen, parameters) = (model.frozen(), &model.parameters);
    // Nobody writes to what is frozen.
    let shared =
        frozen.specs().iter().zip(frozen.tensors()).map(|(spec, t)| (spec.name.clone(), t.shallow_clone()));
    let weights = shared.chain(copies(parameters, parameters.tensors())).collect();
    Contents {
        weights: as_stored(&config.model, weights),
        training_weights: None,
        optimizer: optimizer_copies(optimizer, parameters),
        memory: None,
        model: tasks::hugging_face_config(&config.model, model.heads()),
        state: state.clone(),
        tokenizer,
    }
    .job(run, config)
}

/// Everything a checkpoint holds.
struct Contents {
    weights: Vec<(String, Tensor)>,
    training_weights: Option<Vec<(String, Tensor)>>,
    optimizer: Vec<(String, Tensor)>,
    memory: Option<Vec<(String, Tensor)>>,
    model: Value,
    state: TrainState,
    tokenizer: Arc<Tokenizer>,
}

impl Contents {
    fn job(self, run: &Path, config: &Config) -> Job {
        let (folder, keep) = (run.join("checkpoints"), config.checkpoint.keep);
        Box::new(move || {
            publish(&folder, &format!("step-{:08}", self.state.step), keep, |dir| {
                write_tensors(&dir.join(WEIGHTS), &self.weights)?;
                if let Some(weights) = &self.training_weights {
                    write_tensors(&dir.join(TRAINING_WEIGHTS), weights)?;
                }
                write_tensors(&dir.join(OPTIMIZER), &self.optimizer)?;
                if let Some(memory) = &self.memory {
                    write_tensors(&dir.join(MEMORY), memory)?;
                }
                write_json(&dir.join("config.json"), &self.model)?;
                write_json(&dir.join(STATE), &json!(self.state))?;
                self.tokenizer.save(dir)?;
                Ok(())
            })
        })
    }
}

fn optimizer_copies(optimizer: &Adam, parameters: &Parameters) -> Vec<(String, Tensor)> {
    optimizer.state(parameters).into_iter().map(|(name, tensor)| (name, tensor.copy())).collect()
}

/// Copies of values of all parameters, with their names.
fn copies(parameters: &Parameters, values: &[Tensor]) -> Vec<(String, Tensor)> {
    let pairs = parameters.specs().iter().zip(values);
    pairs.map(|(spec, t)| (spec.name.clone(), t.detach().copy())).collect()
}

/// Memory of all lanes of the job on rank 0: `layer.I` of `[lanes, mem, d_model]`, and `documents` of
/// `[lanes, mem]` where marks are kept.
fn gather_memory(
    engine: &Engine,
    comm: &dyn Communicator,
) -> Result<Option<Vec<(String, Tensor)>>, TrainError> {
    let layers = engine.memory.first().map_or(0, |m| m.layers.len());
    let mut parts: Vec<(String, Vec<&Tensor>)> = (0..layers)
        .map(|layer| (format!("layer.{layer}"), engine.memory.iter().map(|m| &m.layers[layer]).collect()))
        .collect();
    let marks: Vec<&Tensor> = engine.memory.iter().filter_map(|m| m.documents.as_ref()).collect();
    if !marks.is_empty() {
        parts.push((MARKS.into(), marks));
    }
    let mut out = Vec::with_capacity(parts.len());
    for (name, own) in parts {
        let own = Tensor::cat(&own, 0);
        let mut shape = own.size();
        shape[0] = engine.updater.layout.lanes as i64;
        let mut bytes = vec![0u8; own.numel() * own.kind().elt_size_in_bytes()];
        own.contiguous().copy_data_u8(&mut bytes, own.numel());
        if let Some(all) = comm.gather(0, &bytes)? {
            out.push((name, Tensor::f_from_data_size(&all.concat(), &shape, own.kind())?));
        }
    }
    Ok((comm.rank() == 0).then_some(out))
}

/// Fills `engine` from the checkpoint `path`, which must belong to the same configuration and corpus,
/// and gives the rest of its state.
pub fn restore(
    path: &Path,
    config: &Config,
    corpus: &str,
    engine: &mut Engine,
) -> Result<TrainState, TrainError> {
    let state = read_state(path, config, corpus)?;
    let parameters = engine.objective.parameters();
    let mut weights = read_weights(&path.join(WEIGHTS), &config.model, parameters.specs())?;
    if let Some(count) = state.average.count {
        if count > 0 {
            let training = read_weights(&path.join(TRAINING_WEIGHTS), &config.model, parameters.specs())?;
            let mean = std::mem::replace(&mut weights, training);
            engine.average = Some(Average::restored(mean, count));
        } else {
            engine.average = Some(Average::new(parameters));
        }
    }
    fill(parameters.tensors().iter().zip(weights));
    restore_optimizer(path, state.step, &mut engine.updater.optimizer, parameters)?;
    let stored = read_tensors(&path.join(MEMORY))?;
    engine.memory = own_memory(engine, &stored.tensors).ok_or_else(|| TrainError::Damaged {
        path: path.join(MEMORY),
        what: format!("it does not hold the memory of {} lanes", engine.updater.layout.lanes),
    })?;
    Ok(state)
}

/// Fills a model that is fine-tuned and its optimizer from the checkpoint `path`, which must belong to the same
/// configuration and data, and gives the rest of its state.
pub fn restore_task(
    path: &Path,
    config: &Config,
    data: &str,
    model: &TaskModel,
    optimizer: &mut Adam,
) -> Result<TrainState, TrainError> {
    let state = read_state(path, config, data)?;
    let specs: Vec<_> = model.weights().map(|(spec, _)| spec.clone()).collect();
    let weights = read_weights(&path.join(WEIGHTS), &config.model, &specs)?;
    fill(model.weights().map(|(_, tensor)| tensor).zip(weights));
    restore_optimizer(path, state.step, optimizer, &model.parameters)?;
    Ok(state)
}

/// Reads `trainer_state.json` and refuses that of another configuration or of other data.
fn read_state(path: &Path, config: &Config, corpus: &str) -> Result<TrainState, TrainError> {
    let file = path.join(STATE);
    let text = fs::read(&file).map_err(read_error(&file))?;
    let damaged = |what: String| TrainError::Damaged { path: file.clone(), what };
    let state: TrainState = serde_json::from_slice(&text).map_err(|e| damaged(e.to_string()))?;
    let mut differing = differences(&with_defaults(&state.config), &resolved(config));
    if state.corpus != corpus {
        let key = if config.task.name.is_empty() { "data.corpus" } else { "task.data" };
        differing.push_str(&format!("  {key}: fingerprint {} then, {corpus} now\n", state.corpus));
    }
    match differing.is_empty() {
        true => Ok(state),
        false => Err(TrainError::OtherRun { path: path.into(), differences: differing }),
    }
}

fn restore_optimizer(
    path: &Path,
    step: u64,
    optimizer: &mut Adam,
    parameters: &Parameters,
) -> Result<(), TrainError> {
    let mut stored = read_tensors(&path.join(OPTIMIZER))?;
    for (name, tensor) in optimizer.state(parameters) {
        let saved = stored.take(&name, &tensor.size())?;
        fill([(&tensor, saved)]);
    }
    optimizer.restore(step);
    Ok(())
}

/// Gives a model the weights of the folder at `path`, which must be of its type and sizes. Heads for one task or
/// another keep what they have.
pub fn start_from(path: &Path, model: &ModelConfig, parameters: &Parameters) -> Result<(), TrainError> {
    let folder = ModelFolder::open(path)?;
    if folder.config.model_type() != model.model_type() {
        let what = format!("it is a {}, and a {} is trained", folder.config.model_type(), model.model_type());
        return Err(TrainError::OtherModel { path: folder.path, what });
    }
    let specs = model::specs(model);
    let weights = read_weights(&folder.path.join(WEIGHTS), model, &specs)?;
    let own: Vec<Tensor> = specs.iter().map(|spec| parameters.get(&spec.name)).collect();
    fill(own.iter().zip(weights));
    Ok(())
}

/// Copies saved values into live tensors.
pub(super) fn fill<'a>(pairs: impl IntoIterator<Item = (&'a Tensor, Tensor)>) {
    tch::no_grad(|| pairs.into_iter().for_each(|(live, saved)| live.shallow_clone().copy_(&saved)));
}

/// This rank's lanes out of all lanes' memory, cut into micro-steps.
fn own_memory(engine: &Engine, tensors: &BTreeMap<String, Tensor>) -> Option<Vec<Memory>> {
    let (lanes, each) = (engine.updater.layout.lanes as i64, engine.updater.layout.micro_batch as i64);
    let layers = engine.memory.first()?.layers.len();
    let take = |name: &str| tensors.get(name).filter(|t| t.size().first() == Some(&lanes));
    let whole: Vec<&Tensor> = (0..layers).map(|i| take(&format!("layer.{i}"))).collect::<Option<_>>()?;
    let marks = match engine.memory.first()?.documents {
        Some(_) => Some(take(MARKS)?),
        None => None,
    };
    let cut = |t: &Tensor, micro_step: usize| t.narrow(0, micro_step as i64 * each, each).contiguous();
    let part = |micro_step: usize| Memory {
        layers: whole.iter().map(|t| cut(t, micro_step)).collect(),
        documents: marks.map(|t| cut(t, micro_step)),
    };
    Some(engine.updater.layout.micro_steps.clone().map(part).collect())
}
