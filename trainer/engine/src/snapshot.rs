//! The state of a run as contents of a checkpoint, and back.

use std::collections::HashMap;
use std::path::Path;

use segue_configs::AverageKind;
use segue_kernels::{Parameters, TrainError};
use segue_tokenizer::Tokenizer;
use serde::Deserialize;
use serde_json::json;
use tch::{Device, Tensor};

use super::family::Family;
use super::fill::fill;
use super::learner::Learner;
use super::network::Network;
use super::staging::Staging;
use super::state::{FineTuning, TrainState};
use super::step::Engine;
use super::tables::{restore_tables, tables_of};
use crate::checkpoint::{
    AVERAGES, CarryFiles, Contents, OPTIMIZER, STATE, Scattered, ScatteredTensor, TABLES, TRAINING_WEIGHTS,
    WEIGHTS, carry_file, file_of, map_tensors, read_tensors,
};
use crate::optim::Optimizer;
use crate::optim::averaging::{AveragingError, Saved};

/// What rank `rank` has of a checkpoint: what its own lanes carry, which nobody writes to and which is shared; its part of what ranks
/// divide among themselves; and on rank 0 a copy of all else. Copies lie in `staging`. A collective call.
pub fn snapshot<F: Family>(
    family: &F,
    engine: &Engine<F::Learner>,
    state: &TrainState,
    rank: usize,
    staging: &mut Staging,
) -> Result<Contents, TrainError> {
    let lease = staging.begin();
    let mut contents = model_folder(family, engine, rank, staging)?;
    if rank == 0 {
        add_state_of_all(&mut contents, engine, state, staging)?;
    }
    contents.lease = Some(lease);
    for (n, (network, (name, parameters))) in
        engine.networks.iter().zip(engine.learner.networks()).enumerate()
    {
        if network.shards().is_divided() {
            for (file, tables) in
                [(OPTIMIZER, network.optimizer.tables()), (AVERAGES, network.averaging.tables())]
            {
                if file == OPTIMIZER || !tables.is_empty() {
                    let tensors = scattered(tables, network, parameters, staging)?;
                    contents.scattered.push(Scattered { file: file_of(file, n, name), tensors });
                }
            }
        }
    }
    // Nobody writes to it: on the CPU it is shared with the writer.
    let of_host = |(name, table): (String, Tensor)| (name, table.to_device(Device::Cpu));
    let of_file = |(lane, tables): (usize, Vec<(String, Tensor)>)| {
        (carry_file(lane), tables.into_iter().map(of_host).collect())
    };
    let carry = engine.carry_tables().into_iter().map(of_file);
    contents.tables.extend(carry);
    Ok(contents)
}

/// Adds a copy of what all ranks have alike.
fn add_state_of_all<L: Learner>(
    contents: &mut Contents,
    engine: &Engine<L>,
    state: &TrainState,
    staging: &mut Staging,
) -> Result<(), TrainError> {
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
        let averages = network.averaging.named_tables(parameters);
        if !averages.is_empty() && !network.shards().is_divided() {
            contents.tables.push((file_of(AVERAGES, n, name), named_copies(averages, staging)?));
        }
        if network.averaging.chosen().is_some() {
            let training = copies(parameters, parameters.tensors(), staging)?;
            contents.tables.push((file_of(TRAINING_WEIGHTS, n, name), training));
        }
        if !network.shards().is_divided() {
            let own = optimizer_tables(network.optimizer.as_ref(), parameters);
            contents.tables.push((file_of(OPTIMIZER, n, name), named_copies(own, staging)?));
        }
    }
    contents.documents.push((STATE.into(), json!(state)));
    Ok(())
}

/// Tables of the optimizer or of averages that ranks have divided, with a copy of this rank's part.
fn scattered(
    tables: Vec<(&'static str, &[Tensor])>,
    network: &Network,
    parameters: &Parameters,
    staging: &mut Staging,
) -> Result<Vec<ScatteredTensor>, TrainError> {
    let mut tensors = Vec::new();
    for (table, pieces) in tables {
        let copies = staging.copy(pieces)?;
        for (i, spec) in parameters.specs().iter().enumerate() {
            let parts = network.shards().parts(i);
            let own = parts.iter().find(|part| part.is_own).map(|part| copies[part.number].shallow_clone());
            tensors.push(ScatteredTensor {
                name: format!("{table}.{}", spec.name),
                shape: spec.shape.clone(),
                parts: parts.iter().map(|part| (part.rank, part.piece.values.len())).collect(),
                own,
            });
        }
    }
    Ok(tensors)
}

/// What all ranks hold alike, by name: of each network its weights, then, unless ranks have divided these, what follows from them: averages and
/// tables of the optimizer; and what the learner keeps as it is, and its tables.
pub fn replicated<L: Learner>(engine: &Engine<L>) -> Vec<(String, Tensor)> {
    let of_network = |(network, (_, parameters)): (&Network, (&str, &Parameters))| {
        let weights = parameters.specs().iter().zip(parameters.tensors());
        let weights = weights.map(|(spec, tensor)| (spec.name.clone(), tensor.shallow_clone()));
        if network.shards().is_divided() {
            return weights.collect();
        }
        let chosen = network.averaging.chosen().unwrap_or_default().iter().zip(parameters.specs());
        let chosen = chosen.map(|(tensor, spec)| (format!("average.{}", spec.name), tensor.shallow_clone()));
        let averages = chosen.chain(network.averaging.named_tables(parameters));
        let optimizer = optimizer_tables(network.optimizer.as_ref(), parameters);
        weights.chain(averages).chain(optimizer).collect::<Vec<_>>()
    };
    let tables = tables_of(&engine.learner).into_iter().map(|(name, table)| (format!("table.{name}"), table));
    let frozen = engine.learner.frozen().into_iter().flat_map(|own| own.specs().iter().zip(own.tensors()));
    let frozen = frozen.map(|(spec, tensor)| (format!("frozen.{}", spec.name), tensor.shallow_clone()));
    let networks = engine.networks.iter().zip(engine.learner.networks());
    networks.flat_map(of_network).chain(frozen).chain(tables).collect()
}

/// The model of a run as a folder of its own: means of weights where they are kept, tables of the learner, `config.json`, tokenizer. Rank 0 has it, and the others nothing
/// of it. A collective call.
pub fn model_folder<F: Family>(
    family: &F,
    engine: &Engine<F::Learner>,
    rank: usize,
    staging: &mut Staging,
) -> Result<Contents, TrainError> {
    let mut tables = Vec::new();
    for (n, (name, parameters)) in engine.learner.networks().into_iter().enumerate() {
        let copies = model_of(engine, n, parameters, rank, staging)?;
        if rank == 0 {
            tables.push((file_of(WEIGHTS, n, name), family.stored(&engine.learner, n, copies)));
        }
    }
    if rank > 0 {
        return Ok(Contents::default());
    }
    let own = tables_of(&engine.learner);
    if !own.is_empty() {
        tables.push((TABLES.into(), named_copies(own, staging)?));
    }
    let documents = vec![("config.json".into(), family.model_config(&engine.learner))];
    Ok(Contents { tables, documents, tokenizer: family.tokenizer().cloned(), ..Contents::default() })
}

/// Copies of the weights that network `n` has as its model, on rank 0. A collective call.
fn model_of<L: Learner>(
    engine: &Engine<L>,
    n: usize,
    parameters: &Parameters,
    rank: usize,
    staging: &mut Staging,
) -> Result<Vec<(String, Tensor)>, TrainError> {
    let network = &engine.networks[n];
    let chosen = network.averaging.chosen();
    if !network.shards().is_divided() || chosen.is_none() {
        let values = chosen.unwrap_or(parameters.tensors());
        return if rank == 0 { copies(parameters, values, staging) } else { Ok(Vec::new()) };
    }
    let _stand_in = engine.stand_in(n, chosen)?;
    match (rank, staging.shares()) {
        (0, false) => copies(parameters, parameters.tensors(), staging),
        // What stands in does not stay.
        (0, true) => {
            let whole: Vec<Tensor> = parameters.tensors().iter().map(|t| t.detach().copy()).collect();
            copies(parameters, &whole, staging)
        }
        _ => Ok(Vec::new()),
    }
}

/// Fills `engine` from the checkpoint `path`, which must belong to the same data and, but for the sections and keys in `may_change`,
/// the same configuration. Gives the rest of its state, and the keys that are other ones.
pub fn restore<F: Family>(
    path: &Path,
    may_change: &[String],
    family: &F,
    engine: &mut Engine<F::Learner>,
) -> Result<(TrainState, Vec<String>), TrainError> {
    let (config, device) = (engine.config, engine.device());
    let (mut state, changed) =
        TrainState::read(path, config, may_change, (family.data_key(), &family.fingerprint()), device)?;
    if kind_of_average(&state) != config.average.kind {
        // Stages are those of the average that was kept.
        state.fine_tuning = FineTuning::default();
    }
    check_tokenizer(path, family.tokenizer().map(AsRef::as_ref))?;
    engine.begin_averages(&state.fine_tuning);
    for n in 0..engine.networks.len() {
        restore_network(path, &state, family, engine, n)?;
    }
    restore_tables(path, &engine.learner)?;
    engine.loss_scale.restore(state.loss_scale);
    let lanes = engine.layout.lanes;
    CarryFiles::find(path, lanes)
        .and_then(|mut carry| engine.restore_carry(|names, lanes| carry.read(names, lanes)))
        .map_err(|error| of_other_lanes(error, path, &state, lanes))?;
    match engine.learner.restore(&state.learner) {
        true => Ok((state, changed)),
        false => {
            Err(TrainError::Damaged { path: path.join(STATE), what: "its learner is of another kind".into() })
        }
    }
}

/// What an `error` of what lanes carry is where the run is to go on with another number of lanes.
fn of_other_lanes(error: TrainError, path: &Path, state: &TrainState, now: usize) -> TrainError {
    let then = state.config["train"]["lanes"].as_u64().filter(|then| *then != now as u64);
    match (error, then) {
        (TrainError::Damaged { .. }, Some(then)) => TrainError::Layout(format!(
            "train.lanes cannot change to {now}: the checkpoint {} holds the memory of {then} lanes\n\
             hint: set it back, or start in a new run.dir",
            path.display()
        )),
        (error, _) => error,
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
            let take = |spec: &segue_kernels::ParameterSpec| training.take(&spec.name, &spec.shape);
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
        true => own_averages(&averages, network, parameters)?,
        false => HashMap::new(),
    };
    let chosen = network.part_of(chosen);
    let of_network = if n == 0 { Some(&state.average) } else { state.averages.get(network.name) };
    let saved = Saved { state: of_network.cloned().unwrap_or_default(), chosen, tables };
    network.restore_averages(saved, parameters).map_err(|error| match error {
        AveragingError::OtherPeriod { .. } => TrainError::Layout(error.to_string()),
        _ => TrainError::Damaged { path: path.into(), what: error.to_string() },
    })
}

/// What this rank keeps of the averages in the file `path`, by their names there. No more of it is read.
fn own_averages(
    path: &Path,
    network: &Network,
    parameters: &Parameters,
) -> Result<HashMap<String, Tensor>, TrainError> {
    let stored = map_tensors(path)?;
    let mut own = HashMap::new();
    for table in stored.tables() {
        for (piece, part) in network.shards().own().iter().zip(network.averaged(parameters).specs()) {
            let whole = &parameters.specs()[piece.parameter].shape;
            let name = format!("{table}.{}", part.name);
            let values = stored.read_part(&name, whole, piece.values.clone())?;
            own.insert(name, values.view(part.shape.as_slice()));
        }
    }
    Ok(own)
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
fn copies(
    parameters: &Parameters,
    values: &[Tensor],
    staging: &mut Staging,
) -> Result<Vec<(String, Tensor)>, TrainError> {
    Ok(parameters.specs().iter().map(|spec| spec.name.clone()).zip(staging.copy(values)?).collect())
}

/// Copies of tensors that have names.
fn named_copies(
    named: Vec<(String, Tensor)>,
    staging: &mut Staging,
) -> Result<Vec<(String, Tensor)>, TrainError> {
    let copies = staging.copy(named.iter().map(|(_, tensor)| tensor))?;
    Ok(named.into_iter().map(|(name, _)| name).zip(copies).collect())
}
