//! The state of a run, to a folder and back.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use segue_collectives::Communicator;
use segue_configs::{Config, ScheduleKind};
use segue_dataloader::{LaneCursor, Tokenizer};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tch::Tensor;

use super::files::{read_error, swap_link, sync_folder, write_durably, write_error};
use super::manifest::{MANIFEST, Manifest};
use super::model_folder::{WEIGHTS, hugging_face_config, read_weights};
use super::tensors::{read_tensors, write_tensors};
use super::writer::Job;
use crate::engine::Engine;
use crate::model::{self, Memory};
use crate::optim::Average;
use crate::{Parameters, TrainError};

/// Version of `trainer_state.json` this program writes.
const STATE_VERSION: u32 = 1;
/// Weights that training goes on from, where `model.safetensors` holds their mean.
const TRAINING_WEIGHTS: &str = "training_weights.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";
/// Marks of the memory's positions in that file.
const MARKS: &str = "documents";
const MEMORY: &str = "memory.safetensors";
const STATE: &str = "trainer_state.json";
const LATEST: &str = "latest";

/// Keys of a configuration that may differ between the parts of one run: they change when it stops and
/// what it shows, not what it computes.
const FREE_KEYS: [&str; 10] = [
    "/run",
    "/data/corpus",
    "/log",
    "/eval",
    "/checkpoint",
    "/published",
    "/train/steps",
    "/train/stop_at",
    "/train/bucket_bytes",
    "/train/check_replicas_every",
];

/// Loss added up over steps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct LossSum {
    /// Σ −log P, in nats.
    pub nats: f64,
    /// Targets it is a sum of.
    pub targets: f64,
}

/// What is known of the mean of weights.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AverageState {
    /// Weights in the mean; `None` before it has begun.
    pub count: Option<u64>,
    /// Validation losses so far, in nats a target, until it begins.
    pub losses: Vec<f64>,
}

impl AverageState {
    /// Takes note of a validation loss; true where the mean is to begin: the loss is above the best of those
    /// that lie `patience` evaluations or more back (Merity et al. 2018, algorithm 1).
    pub fn observe(&mut self, loss: f64, patience: u64) -> bool {
        if patience == 0 || self.count.is_some() {
            return false;
        }
        let old = self.losses.len().saturating_sub(patience as usize);
        let stalled = self.losses[..old].iter().any(|before| loss > *before);
        self.losses.push(loss);
        stalled
    }
}

/// `trainer_state.json`: what a run is besides its tensors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainState {
    /// Version of this file's layout.
    pub version: u32,
    /// Updates made.
    pub step: u64,
    /// Times the run has been started, from 1.
    pub attempt: u64,
    /// Targets trained on.
    pub tokens: u64,
    /// Loss since the last report, so that reports do not tell where a run was interrupted.
    pub unreported: LossSum,
    /// The last step that was evaluated.
    pub evaluated: u64,
    /// The mean of weights.
    #[serde(default)]
    pub average: AverageState,
    /// Place of every lane of the job.
    pub lanes: Vec<LaneCursor>,
    /// Fingerprint of the corpus.
    pub corpus: String,
    /// BLAKE3 of the parts of the configuration that decide the result.
    pub config_hash: String,
    /// The configuration.
    pub config: Value,
    /// The program that wrote it.
    pub segue: String,
    /// Ranks it ran on; any other number may go on.
    pub world_size: usize,
}

impl TrainState {
    /// The state before the first step.
    pub fn start(config: &Config, corpus: &str, lanes: Vec<LaneCursor>, world_size: usize) -> Self {
        Self {
            version: STATE_VERSION,
            step: 0,
            attempt: 1,
            tokens: 0,
            unreported: LossSum::default(),
            evaluated: 0,
            average: AverageState::default(),
            lanes,
            corpus: corpus.into(),
            config_hash: config_hash(config),
            config: resolved(config),
            segue: env!("CARGO_PKG_VERSION").into(),
            world_size,
        }
    }

    /// Takes over where `stored` stopped, as one more attempt.
    pub fn go_on_from(&mut self, stored: TrainState) {
        self.step = stored.step;
        self.attempt = stored.attempt + 1;
        self.tokens = stored.tokens;
        self.unreported = stored.unreported;
        self.evaluated = stored.evaluated;
        self.average = stored.average;
        self.lanes = stored.lanes;
    }
}

/// The configuration with the length of a schedule that follows `train.steps` spelled out: a run made
/// longer must not silently get other learning rates.
fn resolved(config: &Config) -> Value {
    let mut json = config.to_json();
    if matches!(config.schedule.kind, ScheduleKind::Cosine | ScheduleKind::Linear) {
        json["schedule"]["steps"] = json!(config.schedule_steps());
    }
    json
}

/// The configuration without its free keys.
fn identity(config: &Value) -> Value {
    let mut identity = config.clone();
    for key in FREE_KEYS {
        if let Some((parent, name)) = key.rsplit_once('/')
            && let Some(Value::Object(fields)) = identity.pointer_mut(parent)
        {
            fields.remove(name);
        }
    }
    identity
}

fn config_hash(config: &Config) -> String {
    blake3::hash(identity(&resolved(config)).to_string().as_bytes()).to_hex().to_string()
}

/// One line for each key in which two configurations differ, free keys aside.
fn differences(then: &Value, now: &Value) -> String {
    let (then, now) = (identity(then), identity(now));
    let mut lines = String::new();
    let empty = serde_json::Map::new();
    let sections = now.as_object().unwrap_or(&empty);
    for (section, fields) in sections {
        for (name, value) in fields.as_object().unwrap_or(&empty) {
            let before = &then[section][name];
            if before != value {
                lines.push_str(&format!("  {section}.{name}: {before} then, {value} now\n"));
            }
        }
    }
    lines
}

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
    weights.extend(model::buffers(&config.model));
    let optimizer: Vec<_> =
        engine.optimizer.state(parameters).into_iter().map(|(n, t)| (n, t.copy())).collect();
    let (model_config, mut state) = (config.model.clone(), state.clone());
    state.average.count = engine.average.as_ref().map(Average::count);
    let (folder, keep) = (run.join("checkpoints"), config.checkpoint.keep);
    Ok(Some(Box::new(move || {
        publish(&folder, &format!("step-{:08}", state.step), keep, |dir| {
            write_tensors(&dir.join(WEIGHTS), &weights)?;
            if let Some(weights) = training_weights {
                write_tensors(&dir.join(TRAINING_WEIGHTS), &weights)?;
            }
            write_tensors(&dir.join(OPTIMIZER), &optimizer)?;
            write_tensors(&dir.join(MEMORY), &memory)?;
            write_json(&dir.join("config.json"), &hugging_face_config(&model_config))?;
            write_json(&dir.join(STATE), &json!(state))?;
            tokenizer.save(dir)?;
            Ok(())
        })
    })))
}

/// Copies of values of all parameters, with their names.
fn copies(parameters: &Parameters, values: &[Tensor]) -> Vec<(String, Tensor)> {
    let pairs = parameters.specs().iter().zip(values);
    pairs.map(|(spec, t)| (spec.name.clone(), t.detach().copy())).collect()
}

pub(crate) fn write_json(path: &Path, value: &Value) -> Result<(), TrainError> {
    let text = serde_json::to_string_pretty(value).unwrap_or_default() + "\n";
    write_durably(path, text.as_bytes())
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
        shape[0] = engine.layout.lanes as i64;
        let mut bytes = vec![0u8; own.numel() * own.kind().elt_size_in_bytes()];
        own.contiguous().copy_data_u8(&mut bytes, own.numel());
        if let Some(all) = comm.gather(0, &bytes)? {
            out.push((name, Tensor::f_from_data_size(&all.concat(), &shape, own.kind())?));
        }
    }
    Ok((comm.rank() == 0).then_some(out))
}

/// Fills a fresh folder beside its final place, then makes it appear whole: manifest last, everything on
/// the disk, renamed, `latest` swapped, old ones removed.
fn publish(
    folder: &Path,
    name: &str,
    keep: usize,
    fill: impl FnOnce(&Path) -> Result<(), TrainError>,
) -> Result<PathBuf, TrainError> {
    fs::create_dir_all(folder).map_err(write_error(folder))?;
    let (fresh, target) = (folder.join(format!(".{name}.part")), folder.join(name));
    remove_parts(folder)?;
    fs::create_dir(&fresh).map_err(write_error(&fresh))?;
    let written = fill(&fresh).and_then(|()| Manifest::write(&fresh)).and_then(|()| sync_folder(&fresh));
    if let Err(error) = written {
        // What is there of the part is worthless, and its space may be what is lacking.
        let _ = fs::remove_dir_all(&fresh);
        return Err(error);
    }
    // There already is one of this step only where it did not verify.
    remove_folder(&target)?;
    fs::rename(&fresh, &target).map_err(write_error(&target))?;
    sync_folder(folder)?;
    swap_link(folder, LATEST, name)?;
    for (_, old) in list(folder)?.into_iter().rev().skip(keep) {
        remove_folder(&old)?;
    }
    Ok(target)
}

/// Removes what writers that were killed have left. One job at a time writes to a run folder.
fn remove_parts(folder: &Path) -> Result<(), TrainError> {
    for entry in fs::read_dir(folder).map_err(read_error(folder))? {
        let path = entry.map_err(read_error(folder))?.path();
        if path
            .file_name()
            .and_then(|n| n.to_str())
            .is_some_and(|n| n.starts_with(".step-") && n.ends_with(".part"))
        {
            remove_folder(&path)?;
        }
    }
    Ok(())
}

/// Removes a folder, its manifest first: half removed, it does not count as a checkpoint.
fn remove_folder(path: &Path) -> Result<(), TrainError> {
    let remove = || -> std::io::Result<()> {
        match fs::remove_file(path.join(MANIFEST)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        match fs::remove_dir_all(path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    };
    remove().map_err(write_error(path))
}

/// Checkpoints in `folder` by rising step, whole or not.
pub fn list(folder: &Path) -> Result<Vec<(u64, PathBuf)>, TrainError> {
    let mut found = Vec::new();
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(found),
        Err(e) => return Err(read_error(folder)(e)),
    };
    for entry in entries {
        let entry = entry.map_err(read_error(folder))?;
        let name = entry.file_name();
        if let Some(step) = name.to_str().and_then(|n| n.strip_prefix("step-")).and_then(|n| n.parse().ok()) {
            found.push((step, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

/// The newest checkpoint in `folder` that verifies, and what was wrong with newer ones. `None` where
/// there is no checkpoint at all; an error where none verifies.
pub fn find(folder: &Path) -> Result<Option<(PathBuf, Vec<String>)>, TrainError> {
    let found = search(folder)?;
    Ok(found.map(|(path, refused)| (path, refused.into_iter().map(|(_, why)| why).collect())))
}

/// Like [`find`], for the job that owns the folder: renames those that do not verify to `damaged-step-..`, so
/// that they do not count among the checkpoints to keep.
pub fn find_and_set_aside(folder: &Path) -> Result<Option<(PathBuf, Vec<String>)>, TrainError> {
    let Some((path, refused)) = search(folder)? else { return Ok(None) };
    for (damaged, _) in &refused {
        if let Some(name) = damaged.file_name().and_then(|n| n.to_str()) {
            let aside = folder.join(format!("damaged-{name}"));
            remove_folder(&aside)?;
            fs::rename(damaged, &aside).map_err(write_error(&aside))?;
        }
    }
    Ok(Some((path, refused.into_iter().map(|(_, why)| why).collect())))
}

/// A whole checkpoint, and newer ones with what is wrong with them.
type Search = (PathBuf, Vec<(PathBuf, String)>);

fn search(folder: &Path) -> Result<Option<Search>, TrainError> {
    let mut refused = Vec::new();
    for (_, path) in list(folder)?.into_iter().rev() {
        match Manifest::verify(&path) {
            Ok(_) => return Ok(Some((path, refused))),
            Err(error) => refused.push((path, error.to_string())),
        }
    }
    if refused.is_empty() {
        return Ok(None);
    }
    let reasons: Vec<String> = refused.into_iter().map(|(_, why)| why).collect();
    let what = format!("no checkpoint verifies:\n  {}", reasons.join("\n  "));
    Err(TrainError::Damaged { path: folder.into(), what })
}

/// Fills `engine` from the checkpoint `path`, which must belong to the same configuration and corpus,
/// and gives the rest of its state.
pub fn restore(
    path: &Path,
    config: &Config,
    corpus: &str,
    engine: &mut Engine,
) -> Result<TrainState, TrainError> {
    let file = path.join(STATE);
    let text = fs::read(&file).map_err(read_error(&file))?;
    let damaged = |what: String| TrainError::Damaged { path: file.clone(), what };
    let state: TrainState = serde_json::from_slice(&text).map_err(|e| damaged(e.to_string()))?;
    let mut differing = differences(&state.config, &resolved(config));
    if state.corpus != corpus {
        differing.push_str(&format!("  data.corpus: fingerprint {} then, {corpus} now\n", state.corpus));
    }
    if !differing.is_empty() {
        return Err(TrainError::OtherRun { path: path.into(), differences: differing });
    }
    let parameters = engine.objective.parameters();
    let mut weights = read_weights(&path.join(WEIGHTS), &config.model)?;
    if let Some(count) = state.average.count {
        if count > 0 {
            let training = read_weights(&path.join(TRAINING_WEIGHTS), &config.model)?;
            let mean = std::mem::replace(&mut weights, training);
            engine.average = Some(Average::restored(mean, count));
        } else {
            engine.average = Some(Average::new(parameters));
        }
    }
    fill(parameters.tensors().iter().zip(weights));
    let mut stored = read_tensors(&path.join(OPTIMIZER))?;
    for (name, tensor) in engine.optimizer.state(parameters) {
        let saved = stored.take(&name, &tensor.size())?;
        fill([(&tensor, saved)]);
    }
    engine.optimizer.restore(state.step);
    let stored = read_tensors(&path.join(MEMORY))?;
    engine.memory = own_memory(engine, &stored.tensors).ok_or_else(|| TrainError::Damaged {
        path: path.join(MEMORY),
        what: format!("it does not hold the memory of {} lanes", engine.layout.lanes),
    })?;
    Ok(state)
}

/// Copies saved values into live tensors.
fn fill<'a>(pairs: impl IntoIterator<Item = (&'a Tensor, Tensor)>) {
    tch::no_grad(|| pairs.into_iter().for_each(|(live, saved)| live.shallow_clone().copy_(&saved)));
}

/// This rank's lanes out of all lanes' memory, cut into micro-steps.
fn own_memory(engine: &Engine, tensors: &BTreeMap<String, Tensor>) -> Option<Vec<Memory>> {
    let (lanes, each) = (engine.layout.lanes as i64, engine.layout.micro_batch as i64);
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
    Some(engine.layout.micro_steps.clone().map(part).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(dir: &Path) -> Result<(), TrainError> {
        write_durably(&dir.join("f"), b"x")
    }

    #[test]
    fn only_the_newest_are_kept_and_latest_points_at_the_last() {
        let dir = tempfile::tempdir().unwrap();
        for step in 1..=4 {
            publish(dir.path(), &format!("step-{step:08}"), 2, touch).unwrap();
        }
        let steps: Vec<u64> = list(dir.path()).unwrap().into_iter().map(|(s, _)| s).collect();
        assert_eq!(steps, [3, 4]);
        assert_eq!(fs::read_link(dir.path().join(LATEST)).unwrap(), Path::new("step-00000004"));
    }

    #[test]
    fn failed_write_leaves_the_previous_checkpoint_and_no_part() {
        let dir = tempfile::tempdir().unwrap();
        publish(dir.path(), "step-00000001", 2, touch).unwrap();
        let fails = |_: &Path| Err(TrainError::Layout("no".into()));
        assert!(publish(dir.path(), "step-00000002", 2, fails).is_err());
        let (found, refused) = find(dir.path()).unwrap().unwrap();
        assert!(found.ends_with("step-00000001") && refused.is_empty());
        assert!(!dir.path().join(".step-00000002.part").exists());
    }

    #[test]
    fn damaged_checkpoint_gives_way_to_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        for step in [1, 2] {
            publish(dir.path(), &format!("step-{step:08}"), 2, touch).unwrap();
        }
        let newest = dir.path().join("step-00000002");
        fs::write(newest.join("f"), "y").unwrap();
        let (found, refused) = find(dir.path()).unwrap().unwrap();
        assert!(found.ends_with("step-00000001"));
        assert!(refused[0].contains("BLAKE3"), "{refused:?}");
        fs::remove_file(newest.join("f")).unwrap();
        assert!(find(dir.path()).unwrap().unwrap().1[0].contains("step-00000002"));
    }

    #[test]
    fn configurations_differ_only_in_keys_that_decide_the_result() {
        let load = |o: &[&str]| {
            segue_configs::load(None, &o.iter().map(|s| s.to_string()).collect::<Vec<_>>()).unwrap().config
        };
        let (a, b, c) = (load(&[]), load(&["train.stop_at=7", "run.dir=x"]), load(&["optim.lr=0.5"]));
        assert_eq!(config_hash(&a), config_hash(&b));
        let longer = load(&["train.steps=2000"]);
        assert!(
            differences(&resolved(&a), &resolved(&longer)).contains("schedule.steps: 1000 then, 2000 now")
        );
        let constant = |steps: &str| load(&["schedule.kind=constant", steps]);
        assert_eq!(config_hash(&constant("train.steps=5")), config_hash(&constant("train.steps=6")));
        assert_ne!(config_hash(&a), config_hash(&c));
        assert_eq!(differences(&a.to_json(), &b.to_json()), "");
        assert!(differences(&a.to_json(), &c.to_json()).contains("optim.lr: 0.00025 then, 0.5 now"));
    }

    #[test]
    fn model_type_is_part_of_the_identity() {
        let json = segue_configs::load(None, &[]).unwrap().config.to_json();
        assert!(identity(&json)["model"]["model_type"].is_string());
    }
}
