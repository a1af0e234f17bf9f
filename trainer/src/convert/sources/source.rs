use std::path::{Path, PathBuf};

use segue_data_error::DataError;
use segue_foreign::{Bundle, ElementType, RawTensor, SharedBytes, TorchFile, View};
use segue_tokenizer::{TOKENIZER_FILE, Tokenizer};
use serde_json::{Map, Value};
use tch::{Kind, Tensor};

use super::tensors::INDEX;
use super::{hugging_face, hugging_face_xlnet, kimiyoung, nvidia, recurrent, tensorflow};
use crate::TrainError;
use crate::checkpoint::{CHECKPOINTS, MANIFEST, Manifest};
use crate::convert::apply::to_float;
use crate::convert::rules::Rule;
use crate::convert::write::REPORT;
use crate::families;
use crate::families::language_model::ModelFolder;

/// Where a tar file says what it is.
const TAR_MARK: std::ops::Range<usize> = 257..262;

/// Where the values of variables are.
pub enum Values {
    /// In tensors of files of `torch.save` or safetensors, by number.
    Raw(Vec<RawTensor>),
    /// In a TensorFlow checkpoint, by number.
    Bundle(Box<Bundle>),
}

/// A variable of a source.
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Type of its elements, as reports have it.
    pub dtype: String,
    /// Sizes.
    pub shape: Vec<usize>,
    /// Bytes of its values.
    pub bytes: usize,
    /// Its number among the source's values; `None` for something that is listed and has no values that can be
    /// read here.
    pub number: Option<usize>,
}

impl Variable {
    /// The variables of a TensorFlow checkpoint.
    pub fn of_bundle(bundle: &Bundle) -> Vec<Self> {
        let variables = bundle.entries().iter().enumerate().map(|(number, entry)| Self {
            name: entry.name.clone(),
            dtype: entry.dtype.map_or("other", |dtype| dtype.name()).into(),
            shape: entry.shape.clone(),
            bytes: entry.bytes(),
            number: Some(number),
        });
        variables.collect()
    }
}

/// A checkpoint of another program, opened.
pub struct Source {
    /// What program: `hugging_face`, `kimiyoung`, `nvidia`, `tensorflow`, `word_language_model`, `awd_lstm_lm`, `mos`, `segue`.
    pub kind: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// Every variable.
    pub variables: Vec<Variable>,
    /// Their values.
    pub values: Values,
    /// The model's configuration in the words of Hugging Face's `config.json`.
    pub config: Map<String, Value>,
    /// What `config.json` says of a head that comes along.
    pub head: Map<String, Value>,
    /// The table for this source.
    pub rules: Vec<Rule>,
    /// Facts for the report.
    pub notes: Vec<String>,
    /// Keys of the configuration that it does not tell and the command line has to, with what to say where it does not.
    pub unsaid: Vec<(&'static str, String)>,
    /// The vocabulary that is part of it, and where it was.
    pub vocabulary: Option<(PathBuf, Result<Tokenizer, String>)>,
    /// Files of a tokenizer beside its vocabulary that only other programs read.
    pub companions: Vec<PathBuf>,
    /// The files that hold its values.
    pub files: Vec<PathBuf>,
}

/// What a TensorFlow checkpoint says of the model in it.
pub struct Described {
    /// The configuration in the words of Hugging Face's `config.json`.
    pub config: Map<String, Value>,
    /// What `config.json` would say of a head.
    pub head: Map<String, Value>,
    /// The table.
    pub rules: Vec<Rule>,
    /// Facts for the report.
    pub notes: Vec<String>,
    /// The vocabulary beside it.
    pub vocabulary: Option<PathBuf>,
}

impl Source {
    /// The source that a TensorFlow checkpoint is.
    pub fn of_bundle(bundle: Bundle, described: Described) -> Self {
        let Described { config, head, rules, notes, vocabulary } = described;
        let vocabulary = vocabulary.map(|path| {
            let tokenizer = import_vocabulary(&path, &config).map_err(|e| e.to_string());
            (path, tokenizer)
        });
        Self {
            kind: "tensorflow",
            path: bundle.index.clone(),
            variables: Variable::of_bundle(&bundle),
            config,
            head,
            rules,
            notes,
            unsaid: Vec::new(),
            vocabulary,
            companions: Vec::new(),
            files: bundle.files().map(Path::to_path_buf).collect(),
            values: Values::Bundle(Box::new(bundle)),
        }
    }

    /// The values of a variable in single precision.
    pub fn load(&self, variable: &Variable) -> Result<Tensor, TrainError> {
        let damaged = |what: String| TrainError::Damaged {
            path: self.path.clone(),
            what: format!("`{}`: {what}", variable.name),
        };
        let unreadable = || damaged(format!("unsupported element type {}", variable.dtype));
        let number = variable.number.ok_or_else(unreadable)?;
        match &self.values {
            Values::Raw(tensors) => raw(&tensors[number]).map_err(damaged),
            Values::Bundle(bundle) => raw(&bundle.tensor(&bundle.entries()[number])?).map_err(damaged),
        }
    }
}

/// A vocabulary file of a source of this configuration.
pub fn import_vocabulary(path: &Path, config: &Map<String, Value>) -> Result<Tokenizer, DataError> {
    let named = config.get("model_type").and_then(Value::as_str).and_then(families::named);
    match named.and_then(|family| family.language) {
        Some(family) => family.import_vocabulary(path),
        None => Tokenizer::import(path),
    }
}

/// Opens whatever `path` is; the error says what was looked for.
pub fn detect(path: &Path) -> Result<Source, TrainError> {
    let mut source = open(path)?;
    if source.config.get("model_type").is_some_and(|kind| kind == "xlnet") {
        hugging_face_xlnet::interpret(&mut source)?;
    }
    source.vocabulary = source.vocabulary.or_else(|| left_by_conversion(&source.path));
    Ok(source)
}

/// The vocabulary that a conversion to the format of another program has put beside what it wrote.
fn left_by_conversion(path: &Path) -> Option<(PathBuf, Result<Tokenizer, String>)> {
    let folder = match path.parent() {
        _ if path.is_dir() => path,
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        parent => parent?,
    };
    // Without the account of a conversion it may be anybody's.
    let is_there = [REPORT, TOKENIZER_FILE].iter().all(|name| folder.join(name).is_file());
    is_there.then(|| (folder.into(), Tokenizer::load(folder).map_err(|e| e.to_string())))
}

fn open(path: &Path) -> Result<Source, TrainError> {
    if path.is_dir() {
        return detect_folder(path);
    }
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if path.is_file() && !name.contains(".data-") && !name.ends_with(".index") {
        if name.ends_with(".safetensors") || name.ends_with(INDEX) {
            return hugging_face::open(path);
        }
        // A renamed data file of TensorFlow has no mark of its own.
        let start = SharedBytes::map(path)?;
        if start.get(TAR_MARK).is_some_and(|mark| mark == b"ustar") {
            let what = "it is a tar file, as torch.save wrote before PyTorch 0.1.10\nhint: load it with a PyTorch that does, and save it again";
            return Err(TrainError::Damaged { path: path.into(), what: what.into() });
        }
        if start.starts_with(b"PK\x03\x04") || matches!(start.first(), Some(0x80 | b'(' | b'c')) {
            return detect_torch(path);
        }
    }
    match tensorflow::open(path) {
        Err(TrainError::Data(DataError::Missing { .. })) if path.is_file() => {
            let what = "it is none of the files that are known: safetensors, pickles of PyTorch, checkpoints of TensorFlow";
            Err(TrainError::Damaged { path: path.into(), what: what.into() })
        }
        opened => opened,
    }
}

fn detect_folder(folder: &Path) -> Result<Source, TrainError> {
    let has_manifest = folder.join(MANIFEST).is_file();
    let weights = hugging_face::NAMES.iter().map(|name| folder.join(name)).find(|path| path.is_file());
    if folder.join(CHECKPOINTS).is_dir() || (has_manifest && weights.is_some()) {
        let opened = ModelFolder::open(folder)?;
        let mut source = hugging_face::open(&opened.path.join(hugging_face::WEIGHTS))?;
        source.kind = "segue";
        source.notes.extend(opened.notes);
        return Ok(source);
    }
    if has_manifest {
        // A checkpoint that was converted to the TensorFlow program's.
        Manifest::verify(folder)?;
    }
    if folder.join("config.json").is_file()
        && let Some(weights) = weights
    {
        return hugging_face::open(&weights);
    }
    for name in ["model.pt", "checkpoint_best.pt", "checkpoint_last.pt"] {
        if folder.join(name).is_file() {
            return detect_torch(&folder.join(name));
        }
    }
    tensorflow::open(folder).map_err(|error| match error {
        TrainError::Data(DataError::Missing { .. }) => {
            let what = "it holds no config.json with model.safetensors or pytorch_model.bin, whole or in pieces with \
                        their *.index.json (Hugging Face), no model.pt (kimiyoung/transformer-xl), no checkpoint_last.pt (NVIDIA) and no *.index \
                        (TensorFlow)";
            TrainError::NoCheckpoint { path: folder.into(), what: what.into() }
        }
        other => other,
    })
}

fn detect_torch(path: &Path) -> Result<Source, TrainError> {
    let file = TorchFile::open(path)?;
    let root = file.root();
    if root.get("model_state").is_some() {
        return nvidia::open(path, &file);
    }
    if let Some(source) = recurrent::open(path, &file)? {
        return Ok(source);
    }
    if root.attribute("_modules").is_some() {
        return kimiyoung::open(path, &file);
    }
    if path.with_file_name("config.json").is_file() {
        return hugging_face::open(path);
    }
    let what = "it is neither a pickled module (kimiyoung/transformer-xl) nor a checkpoint with model_state (NVIDIA), it holds no recurrent \
                model (encoder.weight with rnn.weight_ih_l0 or rnns.0.*), and there is no config.json beside it that would tell the model's \
                sizes (Hugging Face)";
    Err(TrainError::Damaged { path: path.into(), what: what.into() })
}

/// A truth value or a number of a pickle as JSON; `None` where it is neither.
pub(super) fn number(value: View<'_>) -> Option<Value> {
    match value.kind() {
        segue_foreign::Kind::Bool(value) => Some(value.into()),
        segue_foreign::Kind::Float(value) => Some(value.into()),
        _ => value.int().map(Value::from),
    }
}

fn raw(tensor: &RawTensor) -> Result<Tensor, String> {
    let kind = match tensor.dtype() {
        ElementType::F32 => Kind::Float,
        ElementType::F64 => Kind::Double,
        ElementType::F16 => Kind::Half,
        ElementType::Bf16 => Kind::BFloat16,
        ElementType::I64 => Kind::Int64,
        ElementType::I32 => Kind::Int,
        ElementType::I16 => Kind::Int16,
        ElementType::I8 => Kind::Int8,
        ElementType::U8 => Kind::Uint8,
        ElementType::Bool => Kind::Bool,
    };
    to_float(&tensor.to_bytes(), tensor.shape(), kind)
}
