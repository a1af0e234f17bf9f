//! The tables of the PyTorch programs with recurrent language models, read backwards: a model as the state dict of one of them.

use std::collections::{HashMap, HashSet};

use segue_configs::ModelConfig;
use segue_foreign::{ElementType, Saved, SavedTensor, SharedBytes};
use segue_layers::recurrent::InputGate;
use segue_lstm::{CellKind, GateNormKind, LstmConfig, Wiring};
use tch::Tensor;

use super::variable;
use crate::gates;
use crate::rules::{Operation, Rule, fill};
use crate::sources::{Cell, Matrices, RecurrentLayout, Table};

/// Where the program's last cluster ends, whatever the number of words.
const FAR: i64 = 100_000_000;
/// Beginning of the names that belong to the criterion.
const CRITERION: &str = "criterion.";

/// What a program's file holds.
pub(crate) struct TorchState {
    /// The state of the model, or a dict of `model`, `criterion` and its `splits`.
    pub value: Saved,
    /// Facts for the report.
    pub notes: Vec<String>,
}

/// `weights` as the state of a model of this program; the error says what it has no place for.
pub(crate) fn state(
    layout: RecurrentLayout,
    model: &ModelConfig,
    weights: &[(String, Tensor)],
) -> Result<TorchState, String> {
    let Some(config) = model.get::<LstmConfig>() else {
        return Err(format!("it is of recurrent models, and this is a {}", model.model_type()));
    };
    expressible(layout, config)?;
    let table = table(layout, config)?;
    let tensors = tensors(&table.rules(), config.n_layer as u64, &with_both_biases(config, weights))?;
    // What is stored once under two names is one tensor.
    let mut pieces: HashMap<String, SharedBytes> = HashMap::new();
    let (mut own, mut criterion) = (Vec::new(), Vec::new());
    for Stored { name, parameter, tensor } in tensors {
        let stored = variable(name, &tensor);
        let bytes = pieces.entry(parameter).or_insert_with(|| stored.bytes.into()).clone();
        let value = Saved::Tensor(SavedTensor { dtype: ElementType::F32, shape: stored.shape, bytes });
        match stored.name.strip_prefix(CRITERION) {
            Some(name) => criterion.push((name.to_string(), value)),
            None => own.push((stored.name, value)),
        }
    }
    let value = match criterion.is_empty() {
        true => Saved::Dict(own),
        false => {
            let inner = config.cutoffs.iter().map(|&end| end as i64);
            let splits = [0].into_iter().chain(inner).chain([FAR]).collect();
            let parts = [
                ("model", Saved::Dict(own)),
                ("criterion", Saved::Dict(criterion)),
                ("splits", Saved::Numbers(splits)),
            ];
            Saved::Dict(parts.map(|(name, value)| (name.to_string(), value)).into())
        }
    };
    Ok(TorchState {
        value,
        notes: vec![format!("arguments of the program's model: {}", arguments(layout, config))],
    })
}

/// The table of names for a model.
fn table(layout: RecurrentLayout, config: &LstmConfig) -> Result<Table, String> {
    let cell = match config.cell {
        CellKind::Lstm => Cell::Lstm,
        CellKind::Gru => Cell::Gru,
        CellKind::Elman => Cell::Elman,
        CellKind::Qrnn => Cell::Qrnn { window: config.window },
        CellKind::Mlstm | CellKind::Rewired => return Err("it has no such cell (model.cell)".into()),
    };
    // The program wraps the weights of a QRNN even where it drops none.
    let wrapped = layout != RecurrentLayout::WordLanguageModel
        && (config.weight_dropout > 0.0 || config.cell == CellKind::Qrnn);
    let matrices = if wrapped { Matrices::Raw } else { Matrices::Plain };
    Ok(Table { layout, cell, tied: config.tie_word_embeddings, matrices })
}

/// A tensor of the program, and the parameter it is of.
struct Stored {
    name: String,
    parameter: String,
    tensor: Tensor,
}

/// Every tensor that the table leads to from these parameters, none of which may be left over.
fn tensors(rules: &[Rule], layers: u64, weights: &[(String, Tensor)]) -> Result<Vec<Stored>, String> {
    let known: HashMap<&str, &Tensor> =
        weights.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let (mut made, mut used) = (Vec::new(), HashSet::new());
    for rule in rules.iter().filter(|rule| !matches!(rule.operation, Operation::Skip(_))) {
        let numbers = if rule.source.contains("{i}") { layers } else { 1 };
        for number in 0..numbers {
            let (name, parameter) = (fill(rule.source, "{i}", number), fill(rule.destination, "{i}", number));
            // A line for one layer stands before that for all.
            let again = rule.source.contains("{i}") && used.contains(&parameter);
            let Some(tensor) = inverted(rule.operation, &parameter, &known, &mut used).filter(|_| !again)
            else {
                continue;
            };
            made.push(Stored { name, parameter, tensor });
        }
    }
    match weights.iter().find(|(name, _)| !used.contains(name)) {
        Some((name, _)) => Err(format!("it has no place for `{name}`")),
        None => Ok(made),
    }
}

/// The program's tensor that goes to the parameters `destination`; `None` where the model has none of them.
fn inverted(
    operation: Operation,
    destination: &str,
    known: &HashMap<&str, &Tensor>,
    used: &mut HashSet<String>,
) -> Option<Tensor> {
    let mut take = |name: String| {
        let found = known.get(name.as_str())?.shallow_clone();
        used.insert(name);
        Some(found)
    };
    match operation {
        Operation::Copy => take(destination.into()),
        Operation::Reverse => Some(take(destination.into())?.flip([0])),
        Operation::Gates { pieces, windows } => {
            let parts: Option<Vec<Tensor>> =
                pieces.iter().map(|piece| take(format!("{destination}{}", piece.ending))).collect();
            gates::together(&parts?, pieces, windows)
        }
        _ => None,
    }
}

/// The parameters, with zeros for the biases of the state where a model keeps one for input and state: the programs add up two.
fn with_both_biases(config: &LstmConfig, weights: &[(String, Tensor)]) -> Vec<(String, Tensor)> {
    let mut all: Vec<_> =
        weights.iter().map(|(name, tensor)| (name.clone(), tensor.shallow_clone())).collect();
    if config.two_biases || config.cell == CellKind::Qrnn {
        return all;
    }
    for (name, tensor) in weights.iter().filter(|(name, _)| name.starts_with("layers.")) {
        for (ending, second) in [(".bias", ".bias_h"), (".bias_f", ".bias_fh")] {
            if let Some(layer) = name.strip_suffix(ending) {
                all.push((format!("{layer}{second}"), tensor.zeros_like()));
            }
        }
    }
    all
}

/// What a program cannot be told.
fn expressible(layout: RecurrentLayout, config: &LstmConfig) -> Result<(), String> {
    let (last, embed) = (config.last_width(), config.embed_width());
    let is_lstm = config.cell == CellKind::Lstm;
    let word = layout == RecurrentLayout::WordLanguageModel;
    let wrong = [
        (config.mogrifier_rounds > 0, "it has no mogrifier (model.mogrifier_rounds)"),
        (config.scale_vectors, "nothing scales input and state (model.scale_vectors)"),
        (config.gate_rank > 0, "matrices of its gates are whole (model.gate_rank)"),
        (config.gate_norm != GateNormKind::None, "its gates have no norm (model.gate_norm)"),
        (
            config.wiring != Wiring::Stack && config.n_layer > 1,
            "its layers are a stack, of which the last predicts words (model.wiring)",
        ),
        (is_lstm && config.input_gate != InputGate::Plain, "its input gates are plain (model.input_gate)"),
        (layout == RecurrentLayout::Mos && !config.mixes(), "it mixes softmaxes (model.mixture)"),
        (
            layout != RecurrentLayout::Mos && config.mixes(),
            "it mixes no softmaxes (model.mixture); --to mos does",
        ),
        (layout == RecurrentLayout::Mos && !is_lstm, "its layers are LSTMs (model.cell)"),
        (
            word && config.cell == CellKind::Qrnn,
            "it has no quasi-recurrent layers (model.cell); --to awd-lstm has",
        ),
        (
            word && last != config.d_model,
            "all its layers are as wide (model.d_last); --to awd-lstm has a narrower last one",
        ),
        (
            layout == RecurrentLayout::AwdLstm && config.cell == CellKind::Elman,
            "it has no such layers (model.cell); --to word-lm has",
        ),
        (
            layout != RecurrentLayout::AwdLstm && !config.cutoffs.is_empty(),
            "it has no split softmax (model.cutoffs); --to awd-lstm has",
        ),
        (
            config.cell == CellKind::Qrnn && config.window > 2,
            "its layers read one input or two (model.window)",
        ),
        (config.projects(), "it maps no states to the width of the embeddings (model.d_embed)"),
        (
            layout == RecurrentLayout::AwdLstm && config.tie_word_embeddings && last != embed,
            "its last layer is as wide as its embeddings (model.d_last)",
        ),
    ];
    wrong.into_iter().find(|(wrong, _)| *wrong).map_or(Ok(()), |(_, why)| Err(why.into()))
}

/// What a program's `RNNModel` is made with.
fn arguments(layout: RecurrentLayout, config: &LstmConfig) -> String {
    let rnn_type = match config.cell {
        CellKind::Gru => "GRU",
        CellKind::Elman => "RNN_TANH",
        CellKind::Qrnn => "QRNN",
        _ => "LSTM",
    };
    let tied = if config.tie_word_embeddings { "True" } else { "False" };
    let mut all = format!(
        "rnn_type={rnn_type} ntoken={} ninp={} nhid={} nlayers={} tie_weights={tied}",
        config.vocab_size,
        config.embed_width(),
        config.d_model,
        config.n_layer
    );
    if layout == RecurrentLayout::WordLanguageModel {
        return all + &format!(" dropout={}", config.output_dropout);
    }
    all += &format!(
        " dropout={} dropouth={} dropouti={} dropoute={} wdrop={}",
        config.output_dropout,
        config.inter_layer_dropout,
        config.input_dropout,
        config.embedding_dropout,
        config.weight_dropout
    );
    if layout == RecurrentLayout::Mos {
        all += &format!(
            " nhidlast={} n_experts={} ldropout={}",
            config.last_width(),
            config.mixture,
            config.projected_dropout()
        );
    }
    all
}
