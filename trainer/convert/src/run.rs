//! A conversion from end to end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use segue_configs::{ConfigError, ModelConfig, counted};
use segue_families::{FAMILIES, MODELS};
use segue_kernels::TrainError;
use segue_kernels::libtorch::is_finite;
use segue_task::heads_of;
use segue_tokenizer::{Tokenizer, longest_sequence};
use serde_json::{Map, Value, json};
use tch::Tensor;

use super::apply::{Applied, ApplyOptions, apply};
use super::head::{TensorFlowHead, flags_of_summary};
use super::invert::{program_of, recurrent};
use super::optimizer::{self, OptimizerState};
use super::report::Report;
use super::sources::{LABELS, RecurrentLayout, Source, detect, import_vocabulary};
use super::write;
use super::write::{TensorFlowFiles, TokenizerFiles, Weights};

/// What to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A folder in Hugging Face's layout, which is a model folder here.
    HuggingFace,
    /// A checkpoint of the TensorFlow program.
    TensorFlow,
    /// The state dict of a PyTorch program with recurrent language models.
    Recurrent(RecurrentLayout),
}

impl Target {
    /// What reports call it.
    fn name(self) -> &'static str {
        match self {
            Self::HuggingFace => "hugging_face",
            Self::TensorFlow => "tensorflow",
            Self::Recurrent(layout) => layout.name(),
        }
    }
}

/// How to convert.
#[derive(Debug, Clone)]
pub struct ConvertOptions {
    /// What to write.
    pub target: Target,
    /// A vocabulary file, where the source's own is not found.
    pub vocabulary: Option<PathBuf>,
    /// Leave variables out that have no place in the model.
    pub allow_skipped: bool,
    /// Take Adam's moments and the number of updates along.
    pub optimizer: bool,
    /// What TensorFlow's XLNet calls the layer that scores a sequence, where `config.json` does not say.
    pub head: Option<TensorFlowHead>,
    /// `model.KEY=VALUE`: what the source does not say, or says wrongly.
    pub overrides: Vec<String>,
    /// Texts that the result will be checked with by [`super::check_text`].
    pub texts: Vec<String>,
}

impl ConvertOptions {
    /// Everything as the source says, without its optimizer.
    pub fn new(target: Target) -> Self {
        Self {
            target,
            vocabulary: None,
            allow_skipped: false,
            optimizer: false,
            head: None,
            overrides: Vec::new(),
            texts: Vec::new(),
        }
    }
}

/// What a conversion has made.
pub struct Conversion {
    /// The account.
    pub report: Report,
    /// The model's configuration.
    pub config: ModelConfig,
}

/// A source with the configuration and the vocabulary it is converted with.
pub(super) struct Opened {
    pub source: Source,
    pub config: ModelConfig,
    tokenizer: Option<Tokenizer>,
    /// What the report says of it.
    vocabulary: Value,
}

/// Opens a source.
pub(super) fn open(path: &Path, options: &ConvertOptions) -> Result<Opened, TrainError> {
    let mut source = detect(path)?;
    let (tokenizer, mut vocabulary) = vocabulary(&mut source, options)?;
    let config = configuration(&source, &options.overrides, tokenizer.as_ref())?;
    let tokenizer = tokenizer.filter(|tokenizer| {
        let fits = tokenizer.vocab_size() <= config.vocab_size();
        if !fits {
            let sizes = (tokenizer.vocab_size(), config.vocab_size());
            let added = tokenizer.notes().first().map_or(String::new(), |note| format!(": {note}"));
            vocabulary =
                json!({ "problem": format!("it has {} entries, the model {}{added}", sizes.0, sizes.1) });
        }
        fits
    });
    if let Some(tokenizer) = &tokenizer {
        let unnamed = config.unnamed_rows(tokenizer.vocab_size());
        let told: Vec<String> = tokenizer.notes().iter().cloned().chain(unnamed).collect();
        // A folder of this program's has said so already.
        source.facts.notes.retain(|note| !told.contains(note));
        source.facts.notes.extend(told);
    }
    if options.vocabulary.is_some() && tokenizer.is_none() {
        let problem = vocabulary["problem"].as_str().unwrap_or("it cannot be used");
        return Err(TrainError::Layout(format!("the vocabulary of --vocab does not fit: {problem}")));
    }
    Ok(Opened { source, config, tokenizer, vocabulary })
}

/// Converts `source` into the new folder `target`; nothing is left where it fails. `progress` is told variables
/// done and to do.
pub fn convert(
    source: &Path,
    target: &Path,
    options: &ConvertOptions,
    progress: impl FnMut(u64, u64),
) -> Result<Conversion, TrainError> {
    write::check_vacant(target)?;
    let Opened { mut source, config, tokenizer, vocabulary } = open(source, options)?;
    for text in &options.texts {
        can_read(tokenizer.as_ref(), text)?;
    }
    let (state, of_optimizer) = options.optimizer.then(|| optimizer::state(&source)).transpose()?.unzip();
    let apply_options = ApplyOptions { allow_skipped: options.allow_skipped, optimizer: options.optimizer };
    let mut applied = apply(&source, &config, apply_options, progress)?;
    let state = state.map(|state| OptimizerState { slots: applied.slots.len(), ..state });
    let mut notes = Vec::from_iter(source.facts.place.note());
    notes.append(&mut source.facts.notes);
    notes.append(&mut applied.notes);
    notes.extend(notes_on(&applied, &config));
    let spoiled = applied.weights.iter().chain(&applied.heads).filter(|(_, tensor)| !is_finite(tensor));
    notes.extend(
        spoiled.map(|(name, _)| {
            format!("warning: `{name}` holds values that are not finite, as its source does")
        }),
    );
    if !applied.heads.is_empty()
        && let Err(why) = heads_of(&MODELS, &Value::Object(source.facts.config.clone()))
    {
        notes.push(format!("{why}: its head is kept, and no command here answers with it"));
    }
    let mut guesses = source.facts.guesses(&config.to_json(), |key| is_told(&options.overrides, key));
    guesses.extend(of_optimizer.flatten());
    let mut report = Report {
        source_kind: source.kind,
        source: source.path.clone(),
        target: options.target.name(),
        counts: Report::count(&applied.variables),
        parameters_count: applied.weights.iter().chain(&applied.heads).map(|(_, t)| t.numel()).sum(),
        notes,
        guesses,
        config: config.to_json(),
        vocabulary,
        optimizer: state,
        variables: std::mem::take(&mut applied.variables),
        parameters: std::mem::take(&mut applied.parameters),
    };
    let own = if options.vocabulary.is_none() { source.companions.as_slice() } else { &[] };
    // A head reads sequences of texts, and other programs need to know how those are laid out.
    let longest = source.path.parent().and_then(longest_sequence);
    let laid_out = tokenizer.as_ref().filter(|_| !applied.heads.is_empty());
    let tokenizer = laid_out.and_then(|tokenizer| tokenizer.for_sequences(longest)).or(tokenizer);
    let told = match (options.target, segue_language::names(&config), &tokenizer) {
        (Target::HuggingFace, Some(names), Some(tokenizer)) => {
            let refused = |what| TrainError::OtherModel { path: source.path.clone(), what };
            names.tokenizer(&config, tokenizer).map_err(refused)?
        }
        _ => None,
    };
    let tokenizer = told.or(tokenizer);
    let tokenizer = TokenizerFiles { tokenizer: tokenizer.as_ref(), companions: own };
    match options.target {
        Target::HuggingFace => write::publish(target, |folder| {
            let weights = Weights { model: applied.weights, heads: applied.heads, slots: applied.slots };
            write::hugging_face(folder, &config, weights, &source.facts, tokenizer, &report)
        })?,
        Target::TensorFlow => {
            let made = to_tensorflow(&config, applied, &source.facts.head, options, &mut report)?;
            report.notes.extend(made.notes.iter().cloned());
            write::publish(target, |folder| write::tensorflow(folder, made, tokenizer, &report))?;
        }
        Target::Recurrent(layout) => {
            let made = to_recurrent(layout, &config, applied)?;
            report.notes.extend(made.notes.iter().cloned());
            write::pytorch(target, &made.value, tokenizer, &report)?;
        }
    }
    Ok(Conversion { report, config })
}

/// Whether a text that the result is to be checked with can be: that is known before any work is done.
fn can_read(tokenizer: Option<&Tokenizer>, text: &str) -> Result<(), TrainError> {
    let refused = |what: &str| Err(TrainError::Layout(what.into()));
    let Some(tokenizer) = tokenizer else {
        return refused("there is no vocabulary to read the text of the check with\nhint: add --vocab FILE");
    };
    let mut ids = Vec::new();
    tokenizer.encode(text, &mut ids);
    match ids.len() {
        0 | 1 => refused("the text to check with has fewer than two tokens"),
        _ => Ok(()),
    }
}

/// What the weights themselves give reason to say.
fn notes_on(applied: &Applied, config: &ModelConfig) -> Vec<String> {
    let mut notes = Vec::new();
    let mut others: BTreeMap<&str, usize> = BTreeMap::new();
    let kept = applied.variables.iter().filter(|v| v.fate != "noted" && !v.destinations.is_empty());
    for variable in kept.filter(|v| v.dtype != "f32") {
        *others.entry(&variable.dtype).or_default() += 1;
    }
    if !others.is_empty() {
        let others: Vec<String> = others
            .iter()
            .map(|(dtype, count)| format!("{} of {dtype}", counted(*count, "variable")))
            .collect();
        notes.push(format!("it holds {}; all is written as f32", others.join(", ")));
    }
    notes.extend(segue_language::names(config).and_then(|names| names.closed_to_hugging_face(config)));
    notes
}

/// The model as a checkpoint of its TensorFlow program.
fn to_tensorflow(
    config: &ModelConfig,
    applied: Applied,
    head: &Map<String, Value>,
    options: &ConvertOptions,
    report: &mut Report,
) -> Result<TensorFlowFiles, TrainError> {
    let refused = |why| TrainError::Layout(format!("the TensorFlow program cannot hold this model: {why}"));
    let Applied { mut weights, mut heads, mut slots, .. } = applied;
    let Some(program) = program_of(config) else {
        return Err(refused(format!("there is none for a {}", config.model_type())));
    };
    let strange =
        heads.iter().map(|(name, _)| name).filter(|name| program.knows(config, name) == Some(false));
    let strange: Vec<String> = strange.cloned().collect();
    if let Some(name) = strange.first().filter(|_| !options.allow_skipped) {
        return Err(refused(format!("it has no place for `{name}`\nhint: --allow-skipped leaves heads out")));
    }
    heads.retain(|(name, _)| !strange.contains(name));
    slots.retain(|(_, name, _)| !strange.contains(name));
    report.notes.extend(strange.iter().map(|name| format!("`{name}` is skipped: no head there has it")));
    let scope = program.scope_of_scores(&heads, options.head.as_ref(), head).map_err(refused)?;
    if scope.is_some() {
        report.notes.extend(flags_of_summary(head).map_err(refused)?);
    }
    weights.append(&mut heads);
    let invert = |weights: &[(String, Tensor)]| program.variables(config, weights, scope.as_deref());
    let mut variables = invert(&weights).map_err(refused)?;
    if let Some(state) = &report.optimizer {
        variables.extend(optimizer::to_tensorflow(state, &slots, invert).map_err(refused)?);
    }
    let mut files = program.files(config, variables);
    // The program reads what it knows and leaves the rest: names of labels, which it does not keep, find their way back.
    if scope.is_some()
        && let Some(names) = head.get(LABELS)
    {
        files.beside.1[LABELS] = names.clone();
    }
    Ok(files)
}

/// The model as the state dict of a PyTorch program.
fn to_recurrent(
    layout: RecurrentLayout,
    config: &ModelConfig,
    applied: Applied,
) -> Result<recurrent::TorchState, TrainError> {
    let refused = |why| TrainError::Layout(format!("{} cannot hold this model: {why}", layout.name()));
    if let Some((name, _)) = applied.heads.first() {
        return Err(refused(format!("it has no head, such as `{name}`")));
    }
    if !applied.slots.is_empty() {
        return Err(refused("it keeps no moments of Adam\nhint: leave --optimizer out".into()));
    }
    recurrent::state(layout, config, &applied.weights).map_err(refused)
}

/// The source's configuration with what the command line says.
fn configuration(
    source: &Source,
    overrides: &[String],
    tokenizer: Option<&Tokenizer>,
) -> Result<ModelConfig, TrainError> {
    let mut config: Map<String, Value> = source.facts.config.clone();
    // Programs that name no model are those of the first family.
    let model_type = config.entry("model_type").or_insert(json!((FAMILIES[0].section)().name)).clone();
    let model_type = model_type.as_str().unwrap_or_default();
    if source.kind != "hugging_face"
        && source.kind != "segue"
        && let Some(eos) = tokenizer.and_then(Tokenizer::eos_id)
    {
        config.insert("eos_token_id".into(), json!(eos));
    }
    let known = MODELS.default_of(model_type).map(|config| config.to_json()).unwrap_or_default();
    for text in overrides {
        let pair = text.split_once('=').and_then(|(key, value)| Some((key.strip_prefix("model.")?, value)));
        let Some((key, value)) = pair else {
            return Err(ConfigError::NotAnOverride { text: text.clone() }.into());
        };
        if known.get(key).is_none() {
            let origin = "the command line".into();
            return Err(ConfigError::UnknownKey {
                key: format!("model.{key}"),
                origin,
                nearest: None,
                tunes: false,
            }
            .into());
        }
        let value = serde_json::from_str(value).unwrap_or_else(|_| json!(value));
        config.insert(key.into(), value);
    }
    if let Some((_, what)) = source.facts.unsaid.iter().find(|(key, _)| !is_told(overrides, key)) {
        return Err(TrainError::OtherModel { path: source.path.clone(), what: what.clone() });
    }
    let origin = source.path.display().to_string();
    Ok(MODELS.from_hugging_face(&Value::Object(config).to_string(), &origin)?)
}

/// Whether the command line sets a key of the model.
fn is_told(overrides: &[String], key: &str) -> bool {
    let told = overrides.iter().filter_map(|text| text.strip_prefix("model.")?.split_once('='));
    told.into_iter().any(|(other, _)| other == key)
}

/// The tokenizer to put beside the weights, and what the report says of it.
fn vocabulary(
    source: &mut Source,
    options: &ConvertOptions,
) -> Result<(Option<Tokenizer>, Value), TrainError> {
    if let Some(path) = &options.vocabulary {
        let tokenizer = match path.is_dir() {
            true => Tokenizer::load(path)?,
            false => import_vocabulary(path, &source.facts.config)?,
        };
        let account = account(path, &tokenizer);
        return Ok((Some(tokenizer), account));
    }
    Ok(match source.vocabulary.take() {
        None => (None, json!({ "problem": "the source has none; --vocab FILE adds one" })),
        Some((path, Err(why))) => (None, json!({ "file": path, "problem": why })),
        Some((path, Ok(tokenizer))) => {
            let account = account(&path, &tokenizer);
            (Some(tokenizer), account)
        }
    })
}

fn account(path: &Path, tokenizer: &Tokenizer) -> Value {
    json!({ "file": path, "kind": tokenizer.kind(), "entries": tokenizer.vocab_size() })
}
