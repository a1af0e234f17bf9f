//! The configuration of a recurrent model: sizes from its tensors, rates from its modules.

use segue_foreign::{RawTensor, View};
use serde_json::{Map, Value, json};

use super::gather::Gathered;
use super::tables::{Cell, Matrices, RecurrentLayout, Table};
use crate::convert::rules::fill;

/// First ids of tail clusters by the least number of words, as salesforce/awd-lstm-lm chooses them.
const USUAL_SPLITS: [(usize, [usize; 3]); 2] =
    [(500_000, [4200, 35_000, 180_000]), (75_000, [2800, 20_000, 76_000])];
/// What both programs with dropped weights do where the command line does not say.
const USUAL_WEIGHT_DROPOUT: f64 = 0.5;

/// What a file says of the model in it.
pub(super) struct Described {
    /// The names of its tensors.
    pub table: Table,
    /// The configuration.
    pub config: Map<String, Value>,
    /// Facts for the report.
    pub notes: Vec<String>,
    /// Keys that it does not tell.
    pub unsaid: Vec<(&'static str, String)>,
}

/// A layer's sizes.
struct Layer {
    width: usize,
    /// Blocks of rows in its first matrix.
    gates: usize,
    /// Columns of that matrix.
    columns: usize,
}

/// Reads what was gathered of a file; the error says what no model here computes.
pub(super) fn describe(gathered: &Gathered) -> Result<Described, String> {
    let has = |name: &str| gathered.find(name).is_some();
    let layout = match (has("rnn.weight_ih_l0"), has("prior.weight")) {
        (true, _) => RecurrentLayout::WordLanguageModel,
        (false, true) => RecurrentLayout::Mos,
        (false, false) => RecurrentLayout::AwdLstm,
    };
    let [words, d_embed] = matrix(gathered, "encoder.weight")?;
    let mut table = Table { layout, cell: Cell::Lstm, tied: is_tied(gathered), matrices: Matrices::Plain };
    let layers = layers(gathered, &mut table)?;
    let mut notes = Vec::new();
    table.cell = cell(gathered, table, &layers, d_embed, &mut notes)?;
    let (d_model, d_last) = widths(&layers)?;
    let mut config = Map::new();
    let mut put = |key: &str, value: Value| _ = config.insert(key.into(), value);
    put("model_type", json!("lstm"));
    put("vocab_size", json!(words));
    put("d_model", json!(d_model));
    put("d_embed", json!(d_embed));
    put("d_last", json!(if d_last == d_model { 0 } else { d_last }));
    put("n_layer", json!(layers.len()));
    put("wiring", json!("stack"));
    put("init", json!("uniform"));
    put("tie_word_embeddings", json!(table.tied));
    match table.cell {
        Cell::Lstm => {
            put("cell", json!("lstm"));
            put("input_gate", json!("plain"));
        }
        Cell::Gru => put("cell", json!("gru")),
        Cell::Elman => put("cell", json!("elman")),
        Cell::Qrnn { window } => {
            put("cell", json!("qrnn"));
            put("window", json!(window));
        }
    }
    put("two_biases", json!(!matches!(table.cell, Cell::Qrnn { .. })));
    if layout == RecurrentLayout::Mos {
        let experts = matrix(gathered, "prior.weight")?[0];
        put("mixture", json!(experts));
        if experts == 1 {
            put("mixture_of_one", json!(true));
        }
    }
    let mut unsaid = Vec::new();
    if let Some(tails) = gathered.find("criterion.tail_vectors") {
        let count = tails.tensor.shape().first().copied().unwrap_or(0);
        match cutoffs(gathered, count, words)? {
            Some(cutoffs) => put("cutoffs", json!(cutoffs)),
            None => unsaid.push((
                "cutoffs",
                format!(
                    "`criterion.tail_vectors` is of {count} clusters, whose first words a state dict does not name\nhint: add \
                     model.cutoffs=[..], the {count} numbers that the program was told"
                ),
            )),
        }
        if gathered.splits.is_none() {
            notes.push("a state dict does not name the clusters of its split softmax: those that the program chooses".into());
        }
    }
    rates(gathered, table, &mut config, &mut notes);
    if layout == RecurrentLayout::Mos {
        notes.push(
            "its program adds 1e-8 to each probability before the logarithm; here nothing is added".into(),
        );
    }
    Ok(Described { table, config, notes, unsaid })
}

/// A tensor with two axes of at least 1.
fn matrix(gathered: &Gathered, name: &str) -> Result<[usize; 2], String> {
    let tensor = &gathered.find(name).ok_or_else(|| format!("it has no `{name}`"))?.tensor;
    match tensor.shape() {
        &[rows, columns] if rows > 0 && columns > 0 => Ok([rows, columns]),
        shape => Err(format!("`{name}` is {shape:?}, not a matrix")),
    }
}

/// Whether the output table is the input embeddings: the same piece of the file, or the same values.
fn is_tied(gathered: &Gathered) -> bool {
    let tensor = |name| gathered.find(name).map(|named| &named.tensor);
    let same = |a: &RawTensor, b: &RawTensor| {
        let alike = (a.dtype(), a.shape()) == (b.dtype(), b.shape());
        a.shares_with(b) || (alike && a.to_bytes() == b.to_bytes())
    };
    match (tensor("encoder.weight"), tensor("decoder.weight")) {
        (Some(encoder), Some(decoder)) => same(encoder, decoder),
        _ => true,
    }
}

/// The sizes of all layers; tells `table` their kind, as far as names tell, and where they keep their matrices.
fn layers(gathered: &Gathered, table: &mut Table) -> Result<Vec<Layer>, String> {
    let quasi = gathered.tensors.iter().any(|named| named.name.starts_with("rnns.0.linear."));
    table.cell = if quasi { Cell::Qrnn { window: 1 } } else { Cell::Lstm };
    let there = |matrices: &Matrices| {
        let [_, of_state] = Table { matrices: *matrices, ..*table }.first_matrices();
        gathered.find(&fill(&of_state, "{i}", 0)).is_some()
    };
    table.matrices =
        Matrices::ALL.into_iter().find(there).ok_or("its first layer has no recurrent matrix")?;
    let [of_input, of_state] = table.first_matrices();
    let mut layers = Vec::new();
    for number in 0.. {
        let [of_input, of_state] = [&of_input, &of_state].map(|name| fill(name, "{i}", number));
        if gathered.find(&of_input).is_none() {
            break;
        }
        let [rows, columns] = matrix(gathered, &of_input)?;
        let width = match quasi {
            // Gates z, f and o; one without o has two.
            true => rows / table.cell.gates(),
            false => matrix(gathered, &of_state)?[1],
        };
        let whole = width > 0 && rows % width == 0;
        let gates = if whole { rows / width } else { 0 };
        if gates == 0 || layers.first().is_some_and(|first: &Layer| first.gates != gates) {
            return Err(format!(
                "`{of_input}` has {rows} rows, which are not the gates of a layer of width {width}"
            ));
        }
        layers.push(Layer { width, gates, columns });
    }
    Ok(layers)
}

/// What the layers are.
fn cell(
    gathered: &Gathered,
    table: Table,
    layers: &[Layer],
    d_embed: usize,
    notes: &mut Vec<String>,
) -> Result<Cell, String> {
    let Some(first) = layers.first() else { return Err("it has no layers".into()) };
    let module = first_layer(gathered, table);
    if let Cell::Qrnn { .. } = table.cell {
        return quasi(module, layers, d_embed);
    }
    let says = |name: &str| {
        let holders = [
            module.and_then(|module| module.attribute("mode")),
            gathered.model.and_then(|m| m.attribute("rnn_type")),
        ];
        holders.into_iter().flatten().any(|said| said.text() == Some(name))
    };
    if says("RNN_RELU") {
        return Err("its layers are rectified (RNN_RELU); no model here computes the same".into());
    }
    match first.gates {
        4 => Ok(Cell::Lstm),
        3 => Ok(Cell::Gru),
        1 => {
            if !says("RNN_TANH") {
                notes.push("a state dict does not tell RNN_TANH from RNN_RELU, which no model here computes: taken for RNN_TANH".into());
            }
            Ok(Cell::Elman)
        }
        gates => Err(format!("its layers have {gates} gates: an LSTM has 4, a GRU 3, an RNN 1")),
    }
}

/// A quasi-recurrent cell.
fn quasi(module: Option<View<'_>>, layers: &[Layer], d_embed: usize) -> Result<Cell, String> {
    let flag = |name: &str| module.and_then(|module| module.attribute(name));
    if flag("zoneout").and_then(View::float).is_some_and(|rate| rate != 0.0) {
        return Err("its layers have zoneout, which changes what they compute; no model here has it".into());
    }
    if flag("output_gate").and_then(View::truth) == Some(false) {
        return Err("its layers have no output gate; no model here is without".into());
    }
    let inputs = std::iter::once(d_embed).chain(layers.iter().map(|layer| layer.width));
    let windows = layers.iter().zip(inputs).map(|(layer, m)| (layer.columns, m));
    let mut window = 1;
    for (number, (columns, m)) in windows.enumerate() {
        let reads = if columns % m == 0 { columns / m } else { 0 };
        match (number, reads) {
            (0, 1 | 2) => window = reads,
            (1.., 1) => {}
            _ => {
                return Err(format!(
                    "layer {number} has {columns} columns for inputs of width {m}: the first layer reads 1 or 2 of them, others 1"
                ));
            }
        }
    }
    Ok(Cell::Qrnn { window })
}

/// The first layer's module, without what drops weights around it.
fn first_layer<'f>(gathered: &Gathered<'f>, table: Table) -> Option<View<'f>> {
    let model = gathered.model?;
    match table.layout {
        RecurrentLayout::WordLanguageModel => model.module("rnn"),
        _ => {
            let layer = model.module("rnns")?.module("0")?;
            Some(layer.module("module").unwrap_or(layer))
        }
    }
}

/// Width of all layers but the last, and of the last.
fn widths(layers: &[Layer]) -> Result<(usize, usize), String> {
    let all: Vec<usize> = layers.iter().map(|layer| layer.width).collect();
    match &all[..] {
        [only] => Ok((*only, *only)),
        [first, between @ .., last] if between.iter().all(|width| width == first) => Ok((*first, *last)),
        _ => Err(format!("its layers are {all:?} wide; a model here has one width for all but the last")),
    }
}

/// First words of `count` tail clusters; `None` where nothing tells them.
fn cutoffs(gathered: &Gathered, count: usize, words: usize) -> Result<Option<Vec<usize>>, String> {
    let Some(splits) = gathered.splits else {
        let usual = USUAL_SPLITS.iter().find(|(least, _)| words > *least).map(|(_, splits)| splits.to_vec());
        return Ok(usual.filter(|splits| splits.len() == count));
    };
    let ends: Option<Vec<usize>> = splits.elements().and_then(|mut ends| {
        ends.try_fold(Vec::new(), |mut all, end| {
            all.push(end.size()?);
            Some(all)
        })
    });
    match ends.as_deref() {
        // From 0 to somewhere behind the last word.
        Some([0, inner @ .., last]) if inner.len() == count && *last >= words => Ok(Some(inner.to_vec())),
        _ => Err(format!("the splits of its criterion do not fit its {count} tail vectors")),
    }
}

/// Rates of dropout, which attributes of the model are.
fn rates(gathered: &Gathered, table: Table, config: &mut Map<String, Value>, notes: &mut Vec<String>) {
    if table.layout != RecurrentLayout::WordLanguageModel {
        config.insert("locked_dropout".into(), json!(true));
    }
    let Some(model) = gathered.model else {
        notes.push("a state dict names no rates of dropout: 0, where model.KEY=VALUE does not say".into());
        if table.matrices.are_dropped() {
            notes.push(format!(
                "its weights are dropped; model.weight_dropout is the program's usual {USUAL_WEIGHT_DROPOUT}"
            ));
            config.insert("weight_dropout".into(), json!(USUAL_WEIGHT_DROPOUT));
        }
        return;
    };
    let attribute = |name: &'static str| (name, model.attribute(name));
    let found = match table.layout {
        RecurrentLayout::WordLanguageModel => {
            let rate = ("drop.p", model.module("drop").and_then(|drop| drop.attribute("p")));
            ["input_dropout", "inter_layer_dropout", "output_dropout"].map(|key| (key, rate)).to_vec()
        }
        _ => vec![
            ("input_dropout", attribute("dropouti")),
            ("inter_layer_dropout", attribute("dropouth")),
            ("output_dropout", attribute("dropout")),
            ("embedding_dropout", attribute("dropoute")),
        ],
    };
    let of_mixture =
        (table.layout == RecurrentLayout::Mos).then(|| ("projection_dropout", attribute("dropoutl")));
    let of_weights = table.matrices.are_dropped().then(|| {
        let rate = weight_drop(model, table).and_then(|layer| layer.attribute("dropout"));
        ("weight_dropout", ("rnns.0.dropout", rate))
    });
    for (key, (name, rate)) in found.into_iter().chain(of_mixture).chain(of_weights) {
        match rate.and_then(View::float) {
            Some(rate) => _ = config.insert(key.into(), json!(rate)),
            None => {
                notes.push(format!("its model has no rate `{name}`: model.{key} is as if nothing were said"))
            }
        }
    }
}

/// What drops the first layer's weights.
fn weight_drop(model: View<'_>, table: Table) -> Option<View<'_>> {
    let layer = model.module("rnns")?.module("0")?;
    if matches!(table.cell, Cell::Qrnn { .. }) { layer.module("linear") } else { Some(layer) }
}
