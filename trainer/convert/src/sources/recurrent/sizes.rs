//! The configuration of a recurrent model: sizes from its tensors, rates from its modules.

use segue_foreign::View;
use serde_json::{Value, json};

use super::gather::Gathered;
use super::tables::{Cell, Matrices, RecurrentLayout, Table};
use crate::rules::fill;
use crate::sources::facts::Facts;
use crate::sources::place::unwrapped;

/// First ids of tail clusters by the least number of words, as salesforce/awd-lstm-lm chooses them.
const USUAL_SPLITS: [(usize, [usize; 3]); 2] =
    [(500_000, [4200, 35_000, 180_000]), (75_000, [2800, 20_000, 76_000])];
/// What both programs with dropped weights do where the command line does not say.
const USUAL_WEIGHT_DROPOUT: f64 = 0.5;
/// The rate of what drops the first layer's weights.
const WEIGHT_DROP: &str = "rnns.0.dropout";
/// Rates by their attributes.
const AWD_RATES: [(&str, &str); 4] = [
    ("input_dropout", "dropouti"),
    ("inter_layer_dropout", "dropouth"),
    ("output_dropout", "dropout"),
    ("embedding_dropout", "dropoute"),
];
const MOS_RATES: [(&str, &str); 5] =
    [AWD_RATES[0], AWD_RATES[1], AWD_RATES[2], AWD_RATES[3], ("projection_dropout", "dropoutl")];
/// Why rates are guessed.
const NO_RATES: &str = "a state dict names no rates";

/// A layer's sizes.
struct Layer {
    width: usize,
    /// Blocks of rows in its first matrix.
    gates: usize,
    /// Columns of that matrix.
    columns: usize,
}

/// Reads what was gathered of a file: the names of its tensors, and what it says of the model. The error says what no model here computes.
pub(super) fn describe(gathered: &Gathered) -> Result<(Table, Facts), String> {
    let has = |name: &str| gathered.find(name).is_some();
    let layout = match (has("rnn.weight_ih_l0"), has("prior.weight")) {
        (true, _) => RecurrentLayout::WordLanguageModel,
        (false, true) => RecurrentLayout::Mos,
        (false, false) => RecurrentLayout::AwdLstm,
    };
    let [words, d_embed] = matrix(gathered, "encoder.weight")?;
    let mut facts = Facts::default();
    let tied = tie(gathered, &mut facts);
    let mut table = Table { layout, cell: Cell::Lstm, tied, matrices: Matrices::Plain };
    let layers = layers(gathered, &mut table)?;
    table.cell = cell(gathered, table, &layers, d_embed, &mut facts)?;
    let (d_model, d_last) = widths(&layers)?;
    let mut put = |key: &str, value: Value| facts.put(key, value);
    put("model_type", json!("lstm"));
    put("vocab_size", json!(words));
    put("d_model", json!(d_model));
    put("d_embed", json!(d_embed));
    put("d_last", json!(if d_last == d_model { 0 } else { d_last }));
    put("n_layer", json!(layers.len()));
    put("wiring", json!("stack"));
    put("init", json!("uniform"));
    match table.cell {
        Cell::Lstm => {
            put("cell", json!("lstm"));
            put("input_gate", json!("plain"));
        }
        Cell::Gru => put("cell", json!("gru")),
        // Told where the kind was.
        Cell::Elman => {}
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
    if let Some(tails) = gathered.find("criterion.tail_vectors") {
        let count = tails.tensor.shape().first().copied().unwrap_or(0);
        match (cutoffs(gathered, count, words)?, gathered.splits) {
            (Some(cutoffs), Some(_)) => facts.put("cutoffs", cutoffs),
            (Some(cutoffs), None) => {
                let why = "a state dict does not name the first words of clusters; those that the program chooses";
                facts.guess("cutoffs", cutoffs, why);
            }
            (None, _) => facts.unsaid.push((
                "cutoffs",
                format!(
                    "`criterion.tail_vectors` is of {count} clusters, whose first words a state dict does not name\nhint: add \
                     model.cutoffs=[..], the {count} numbers that the program was told"
                ),
            )),
        }
    }
    rates(gathered, table, &mut facts);
    if layout == RecurrentLayout::Mos {
        facts.notes.push(
            "its program adds 1e-8 to each probability before the logarithm; here nothing is added".into(),
        );
    }
    Ok((table, facts))
}

/// A tensor with two axes of at least 1.
fn matrix(gathered: &Gathered, name: &str) -> Result<[usize; 2], String> {
    let tensor = &gathered.find(name).ok_or_else(|| format!("it has no `{name}`"))?.tensor;
    match tensor.shape() {
        &[rows, columns] if rows > 0 && columns > 0 => Ok([rows, columns]),
        shape => Err(format!("`{name}` is {shape:?}, not a matrix")),
    }
}

/// Whether the output table is the input embeddings: the same piece of the file, or, which is a guess, the same values.
fn tie(gathered: &Gathered, facts: &mut Facts) -> bool {
    const KEY: &str = "tie_word_embeddings";
    let tensor = |name| gathered.find(name).map(|named| &named.tensor);
    let (Some(encoder), Some(decoder)) = (tensor("encoder.weight"), tensor("decoder.weight")) else {
        facts.guess(KEY, true, "there is no decoder.weight");
        return true;
    };
    let alike = || (encoder.dtype(), encoder.shape()) == (decoder.dtype(), decoder.shape());
    if encoder.shares_with(decoder) {
        facts.put(KEY, true);
    } else if alike() && encoder.to_bytes() == decoder.to_bytes() {
        facts.guess(KEY, true, "encoder.weight and decoder.weight are stored apart and hold the same values");
    } else {
        facts.put(KEY, false);
        return false;
    }
    true
}

/// The sizes of all layers; tells `table` their kind, as far as names tell, and where they keep their matrices.
fn layers(gathered: &Gathered, table: &mut Table) -> Result<Vec<Layer>, String> {
    let quasi = gathered.tensors.iter().any(|named| named.name.starts_with("rnns.0.linear."));
    table.cell = if quasi { Cell::Qrnn { window: 1 } } else { Cell::Lstm };
    let there = |matrices: &&Matrices| {
        let [_, of_state] = Table { matrices: **matrices, ..*table }.first_matrices();
        gathered.find(&fill(&of_state, "{i}", 0)).is_some()
    };
    let found = Matrices::of(table.layout).iter().find(there);
    table.matrices = *found.ok_or("its first layer has no recurrent matrix")?;
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
    facts: &mut Facts,
) -> Result<Cell, String> {
    let Some(first) = layers.first() else { return Err("it has no layers".into()) };
    let module = first_layer(gathered, table);
    if let Cell::Qrnn { .. } = table.cell {
        return quasi(module, layers, d_embed, facts);
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
            match says("RNN_TANH") {
                true => facts.put("cell", "elman"),
                false => facts.guess(
                    "cell",
                    "elman",
                    "a state dict does not tell RNN_TANH from RNN_RELU, which no model here computes; taken for RNN_TANH",
                ),
            }
            Ok(Cell::Elman)
        }
        gates => Err(format!("its layers have {gates} gates: an LSTM has 4, a GRU 3, an RNN 1")),
    }
}

/// A quasi-recurrent cell.
fn quasi(
    module: Option<View<'_>>,
    layers: &[Layer],
    d_embed: usize,
    facts: &mut Facts,
) -> Result<Cell, String> {
    if module.is_none() {
        let why = "a state dict does not tell layers with zoneout, which no model here computes; taken for layers without";
        facts.leave(&["cell"], why);
    }
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
        RecurrentLayout::WordLanguageModel => model.module("rnn").map(unwrapped),
        _ => {
            let layer = unwrapped(model.module("rnns")?).module("0").map(unwrapped)?;
            Some(layer.module("module").map_or(layer, unwrapped))
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
fn rates(gathered: &Gathered, table: Table, facts: &mut Facts) {
    let is_word = table.layout == RecurrentLayout::WordLanguageModel;
    if !is_word {
        facts.put("locked_dropout", true);
    }
    let attributes: &[(&str, &str)] = match table.layout {
        RecurrentLayout::WordLanguageModel => {
            &[("input_dropout", "drop"), ("inter_layer_dropout", "drop"), ("output_dropout", "drop")]
        }
        RecurrentLayout::AwdLstm => &AWD_RATES,
        RecurrentLayout::Mos => &MOS_RATES,
    };
    let of_weights = (!is_word).then_some(("weight_dropout", WEIGHT_DROP));
    for (key, name) in attributes.iter().copied().chain(of_weights) {
        let Some(model) = gathered.model else {
            guess_rate(key, table, facts);
            continue;
        };
        let rate = match name {
            "drop" => model.module("drop").and_then(|drop| drop.attribute("p")),
            WEIGHT_DROP if table.matrices == Matrices::Plain => continue,
            WEIGHT_DROP => weight_drop(model, table).and_then(|layer| layer.attribute("dropout")),
            _ => model.attribute(name),
        };
        match rate.and_then(View::float) {
            Some(rate) => facts.put(key, rate),
            None => facts.leave(&[key], &format!("its model has no rate `{name}`")),
        }
    }
}

/// What a rate is taken for that nothing says. Names say that weights of an LSTM or a GRU are dropped: the program wraps them then alone. The
/// weights of a QRNN it wraps always.
fn guess_rate(key: &'static str, table: Table, facts: &mut Facts) {
    let quasi = matches!(table.cell, Cell::Qrnn { .. });
    match key {
        "weight_dropout" if table.matrices == Matrices::Raw && !quasi => {
            let why = format!(
                "{NO_RATES}, and the names of its tensors say that weights are dropped; the program's usual rate"
            );
            facts.guess(key, USUAL_WEIGHT_DROPOUT, &why);
        }
        "weight_dropout" if table.matrices == Matrices::Plain => {}
        // Below 0 it is that of the output.
        "projection_dropout" => facts.leave(&[key], NO_RATES),
        _ => facts.guess(key, 0.0, NO_RATES),
    }
}

/// What drops the first layer's weights.
fn weight_drop(model: View<'_>, table: Table) -> Option<View<'_>> {
    let layer = unwrapped(model.module("rnns")?).module("0").map(unwrapped)?;
    if matches!(table.cell, Cell::Qrnn { .. }) { layer.module("linear").map(unwrapped) } else { Some(layer) }
}
