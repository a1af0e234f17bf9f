//! The state of a run as contents of a checkpoint, and back.

use std::path::Path;

use segue_configs::{AverageKind, Config};
use segue_tokenizer::Tokenizer;
use serde::Deserialize;
use serde_json::json;
use tch::{Device, Tensor};

use super::family::{Family, Folder};
use super::learner::Learner;
use super::network::Network;
use super::staging::Staging;
use super::state::{FineTuning, TrainState};
use super::step::Engine;
use crate::checkpoint::{
    AVERAGES, CarryFiles, Contents, OPTIMIZER, STATE, Scattered, ScatteredTensor, TRAINING_WEIGHTS, WEIGHTS,
    carry_file, file_of, map_tensors, read_tensors,
};
use crate::optim::Optimizer;
use crate::optim::averaging::{AveragingError, Saved};
use crate::{Parameters, TrainError};

/// What rank `rank` has of a checkpoint: what its own lanes carry, which nobody writes to and which is shared; its part of what ranks
/// divide among themselves; and on rank 0 a copy of all else. Copies lie in `staging`.
pub fn snapshot<F: Family>(
    family: &F,
    engine: &Engine<F::Learner>,
    state: &TrainState,
    rank: usize,
    staging: &mut Staging,
) -> Contents {
    let lease = staging.begin();
    let mut contents = match rank {
        0 => state_of_all(family, engine, state, staging),
        _ => Contents::default(),
    };
    contents.lease = Some(lease);
    for (n, (network, (name, parameters))) in
        engine.networks.iter().zip(engine.learner.networks()).enumerate()
    {
        if network.shards().is_divided() {
            let tensors = scattered(network, parameters, staging);
            contents.scattered.push(Scattered { file: file_of(OPTIMIZER, n, name), tensors });
        }
    }
    // Nobody writes to it: on the CPU it is shared with the writer.
    let of_host = |(name, table): (String, Tensor)| (name, table.to_device(Device::Cpu));
    let of_file = |(lane, tables): (usize, Vec<(String, Tensor)>)| {
        (carry_file(lane), tables.into_iter().map(of_host).collect())
    };
    let carry = engine.carry_tables().into_iter().map(of_file);
    contents.tables.extend(carry);
    contents
}

/// A copy of what all ranks have alike.
fn state_of_all<F: Family>(
    family: &F,
    engine: &Engine<F::Learner>,
    state: &TrainState,
    staging: &mut Staging,
) -> Contents {
    let mut contents = model_folder(family, engine, staging);
    let mut state = state.clone();
    state.learner = engine.learner.state();
    state.loss_scale = engine.loss_scale.state();
    for (n, (network, (name, parameters))) in
        engine.networks.iter().zip(engine.learner.networks()).enumerate()
    {
        state.networks.insert(name.into(), network.optimizer.counts().clone());
        match n {
            0 => state.average = network.averaging.state(),
            _ => _ = state.averages.insert(name.into(), network.averaging.state()),
        }
        let averages = network.averaging.tables(parameters);
        if !averages.is_empty() {
            let averages = averages.into_iter().map(|(name, tensor)| (name, staging.copy(&tensor))).collect();
            contents.tables.push((file_of(AVERAGES, n, name), averages));
        }
        if network.averaging.chosen().is_some() {
            let training = copies(parameters, parameters.tensors(), staging);
            contents.tables.push((file_of(TRAINING_WEIGHTS, n, name), training));
        }
        if !network.shards().is_divided() {
            let own = optimizer_tables(network.optimizer.as_ref(), parameters);
            let own = own.into_iter().map(|(name, tensor)| (name, staging.copy(&tensor))).collect();
            contents.tables.push((file_of(OPTIMIZER, n, name), own));
        }
    }
    contents.documents.push((STATE.into(), json!(state)));
    contents
}

/// The tables of an optimizer whose state ranks have divided, with a copy of this rank's part.
fn scattered(network: &Network, parameters: &Parameters, staging: &mut Staging) -> Vec<ScatteredTensor> {
    let own: Vec<_> = network.optimizer.tables();
    let mut tensors = Vec::new();
    for (table, pieces) in own {
        for (i, spec) in parameters.specs().iter().enumerate() {
            let parts = network.shards().parts(i);
            let own = parts.iter().find(|part| part.is_own).map(|part| staging.copy(&pieces[part.number]));
            tensors.push(ScatteredTensor {
                name: format!("{table}.{}", spec.name),
                shape: spec.shape.clone(),
                parts: parts.iter().map(|part| (part.rank, part.piece.values.len())).collect(),
                own,
            });
        }
    }
    tensors
}

/// What all ranks hold alike, by name: of each network its weights, then what follows from them, averages and tables of the optimizer
/// unless ranks have divided these.
pub fn replicated<L: Learner>(engine: &Engine<L>) -> Vec<(String, Tensor)> {
    let of_network = |(network, (_, parameters)): (&Network, (&str, &Parameters))| {
        let weights = parameters.specs().iter().zip(parameters.tensors());
        let weights = weights.map(|(spec, tensor)| (spec.name.clone(), tensor.shallow_clone()));
        let chosen = network.averaging.chosen().unwrap_or_default().iter().zip(parameters.specs());
        let chosen = chosen.map(|(tensor, spec)| (format!("average.{}", spec.name), tensor.shallow_clone()));
        let averages = chosen.chain(network.averaging.tables(parameters));
        let optimizer = match network.shards().is_divided() {
            true => Vec::new(),
            false => optimizer_tables(network.optimizer.as_ref(), parameters),
        };
        weights.chain(averages).chain(optimizer).collect::<Vec<_>>()
    };
    engine.networks.iter().zip(engine.learner.networks()).flat_map(of_network).collect()
}

/// The model of a run as a folder of its own: means of weights where they are kept, `config.json`, tokenizer.
pub fn model_folder<F: Family>(family: &F, engine: &Engine<F::Learner>, staging: &mut Staging) -> Contents {
    let table = |(n, (network, (name, parameters))): (usize, (&Network, (&'static str, &Parameters)))| {
        let values = network.averaging.chosen().unwrap_or(parameters.tensors());
        let stored = family.stored(&engine.learner, n, copies(parameters, values, staging));
        (file_of(WEIGHTS, n, name), stored)
    };
    let networks = engine.networks.iter().zip(engine.learner.networks()).enumerate();
    let Folder { config, tokenizer } = family.folder(&engine.learner);
    Contents {
        tables: networks.map(table).collect(),
        documents: vec![("config.json".into(), config)],
        tokenizer,
        ..Contents::default()
    }
}

/// Fills `engine` from the checkpoint `path`, which must belong to the same data and, but for what `[recovery]` allows,
/// the same configuration. Gives the rest of its state, and the keys that are other ones.
pub fn restore<F: Family>(
    path: &Path,
    config: &Config,
    family: &F,
    engine: &mut Engine<F::Learner>,
) -> Result<(TrainState, Vec<String>), TrainError> {
    let (mut state, changed) =
        TrainState::read(path, config, &family.fingerprint(), family.data_key(), engine.device())?;
    if kind_of_average(&state) != config.average.kind {
        // Stages are those of the average that was kept.
        state.fine_tuning = FineTuning::default();
    }
    check_tokenizer(path, family.folder(&engine.learner).tokenizer.as_deref())?;
    engine.begin_averages(&state.fine_tuning);
    for n in 0..engine.networks.len() {
        restore_network(path, &state, family, engine, n)?;
    }
    engine.loss_scale.restore(state.loss_scale);
    let mut carry = CarryFiles::find(path, engine.layout.lanes)?;
    engine.restore_carry(|names, lanes| carry.read(names, lanes))?;
    match engine.learner.restore(&state.learner) {
        true => Ok((state, changed)),
        false => {
            Err(TrainError::Damaged { path: path.join(STATE), what: "its learner is of another kind".into() })
        }
    }
}

/// Refuses to go on with another tokenizer than the one that lies in the checkpoint: numbers of tokens would mean other words.
fn check_tokenizer(path: &Path, now: Option<&Tokenizer>) -> Result<(), TrainError> {
    let Some(now) = now.map(Tokenizer::fingerprint) else { return Ok(()) };
    let then = Tokenizer::load(path)?.fingerprint();
    if then == now {
        return Ok(());
    }
    let differences = format!("  tokenizer: fingerprint {then} then, {now} now\n");
    Err(TrainError::OtherRun { path: path.into(), differences })
}

fn restore_network<F: Family>(
    path: &Path,
    state: &TrainState,
    family: &F,
    engine: &mut Engine<F::Learner>,
    n: usize,
) -> Result<(), TrainError> {
    let learner = &engine.learner;
    let (name, parameters) = learner.networks()[n];
    let network = &mut engine.networks[n];
    let mut weights = family.read(learner, n, &path.join(file_of(WEIGHTS, n, name)))?;
    let training = path.join(file_of(TRAINING_WEIGHTS, n, name));
    let chosen = match training.is_file() {
        false => weights.iter().map(Tensor::shallow_clone).collect(),
        true => {
            let mut training = read_tensors(&training)?;
            let take = |spec: &crate::ParameterSpec| training.take(&spec.name, &spec.shape);
            let training = parameters.specs().iter().map(take).collect::<Result<Vec<_>, _>>()?;
            std::mem::replace(&mut weights, training)
        }
    };
    fill(parameters.tensors().iter().zip(weights));
    match kind_of_average(state) == network.average_kind() {
        true => restore_average(path, state, chosen, network, n, parameters)?,
        // The keys of the run may change: an average of another kind begins with the weights as they are.
        false => network.begin_averages(parameters, &state.fine_tuning),
    }
    // Its tables are the most of a checkpoint: one tensor of them at a time is in memory twice, and of that what this rank keeps.
    let stored = map_tensors(&path.join(file_of(OPTIMIZER, n, name)))?;
    for (table, tensors) in network.optimizer.tables() {
        for (piece, tensor) in network.optimizer.pieces().iter().zip(tensors) {
            let spec = &parameters.specs()[piece.parameter];
            let saved =
                stored.read_part(&format!("{table}.{}", spec.name), &spec.shape, piece.values.clone())?;
            fill([(&tensor.view([-1]), saved)]);
        }
    }
    let counts = state.counts(name);
    if !counts.fit(parameters.specs().len()) {
        let what = format!("it counts updates of another number of parameters of network `{name}`");
        return Err(TrainError::Damaged { path: path.join(STATE), what });
    }
    network.optimizer.restore(counts);
    Ok(())
}

/// The kind of average that a run kept; that of before there were several where its configuration does not say.
fn kind_of_average(state: &TrainState) -> AverageKind {
    AverageKind::deserialize(&state.config["average"]["kind"]).unwrap_or_default()
}

/// Fills the average of network `n`, of which `chosen` weights were stored as the model.
fn restore_average(
    path: &Path,
    state: &TrainState,
    chosen: Vec<Tensor>,
    network: &mut Network,
    n: usize,
    parameters: &Parameters,
) -> Result<(), TrainError> {
    let averages = path.join(file_of(AVERAGES, n, network.name));
    let tables = match averages.is_file() {
        true => read_tensors(&averages)?.tensors.into_iter().collect(),
        false => Default::default(),
    };
    let of_network = if n == 0 { Some(&state.average) } else { state.averages.get(network.name) };
    let saved = Saved { state: of_network.cloned().unwrap_or_default(), chosen, tables };
    network.averaging.restore(saved, parameters).map_err(|error| match error {
        AveragingError::OtherPeriod { .. } => TrainError::Layout(error.to_string()),
        _ => TrainError::Damaged { path: path.into(), what: error.to_string() },
    })
}

/// State of an optimizer of whole parameters under the names a checkpoint stores: `TABLE.PARAMETER`. The tensors are the optimizer's own.
fn optimizer_tables(optimizer: &dyn Optimizer, parameters: &Parameters) -> Vec<(String, Tensor)> {
    let named = |(table, tensors): (&'static str, &[Tensor])| {
        let pairs = parameters.specs().iter().zip(tensors);
        pairs.map(|(spec, t)| (format!("{table}.{}", spec.name), t.shallow_clone())).collect::<Vec<_>>()
    };
    optimizer.tables().into_iter().flat_map(named).collect()
}

/// Copies of values of all parameters, with their names.
fn copies(parameters: &Parameters, values: &[Tensor], staging: &mut Staging) -> Vec<(String, Tensor)> {
    let pairs = parameters.specs().iter().zip(values);
    pairs.map(|(spec, t)| (spec.name.clone(), staging.copy(t))).collect()
}

/// Copies saved values into live tensors.
pub fn fill<'a>(pairs: impl IntoIterator<Item = (&'a Tensor, Tensor)>) {
    tch::no_grad(|| pairs.into_iter().for_each(|(live, saved)| live.shallow_clone().copy_(&saved)));
}
