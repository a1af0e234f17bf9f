use std::path::{Path, PathBuf};

use segue_data_error::DataError;
use segue_foreign::{Bundle, ElementType, RawTensor, View};
use segue_kernels::TrainError;
use segue_language::Names;
use segue_tokenizer::{TOKENIZER_FILE, Tokenizer};
use serde_json::{Map, Value};
use tch::{Kind, Tensor};

use super::facts::Facts;
use super::tensors::Tensors;
use super::{hugging_face_xlnet, search};
use crate::apply::to_float;
use crate::rules::Rule;
use crate::write::REPORT;

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
    /// What it says of the model.
    pub facts: Facts,
    /// The table for this source.
    pub rules: Vec<Rule>,
    /// The vocabulary that is part of it, and where it was.
    pub vocabulary: Option<(PathBuf, Result<Tokenizer, String>)>,
    /// Files of a tokenizer beside its vocabulary that only other programs read.
    pub companions: Vec<PathBuf>,
    /// The files that hold its values.
    pub files: Vec<PathBuf>,
}

impl Source {
    /// The source that tensors of the file `path` are, without a vocabulary.
    pub fn of_tensors(
        kind: &'static str,
        path: &Path,
        tensors: Tensors,
        facts: Facts,
        rules: Vec<Rule>,
    ) -> Self {
        let files = if tensors.files.is_empty() { vec![path.into()] } else { tensors.files };
        Self {
            kind,
            path: path.into(),
            variables: tensors.variables,
            values: Values::Raw(tensors.values),
            facts,
            rules,
            vocabulary: None,
            companions: Vec::new(),
            files,
        }
    }

    /// The source that a TensorFlow checkpoint is. `vocabulary`: a file beside it.
    pub fn of_bundle(bundle: Bundle, facts: Facts, rules: Vec<Rule>, vocabulary: Option<PathBuf>) -> Self {
        let vocabulary = vocabulary.map(|path| {
            let tokenizer = import_vocabulary(&path, &facts.config).map_err(|e| e.to_string());
            (path, tokenizer)
        });
        Self {
            kind: "tensorflow",
            path: bundle.index.clone(),
            variables: Variable::of_bundle(&bundle),
            facts,
            rules,
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
    let named = config.get("model_type").and_then(Value::as_str).and_then(segue_families::named);
    match named.and_then(|family| family.capability::<Names>()) {
        Some(Names(names)) => names.import_vocabulary(path),
        None => Tokenizer::import(path),
    }
}

/// Opens whatever `path` is; the error says what was looked for.
pub fn detect(path: &Path) -> Result<Source, TrainError> {
    let mut source = search::open(path)?;
    if source.facts.config.get("model_type").is_some_and(|kind| kind == "xlnet") {
        hugging_face_xlnet::interpret(&mut source)?;
    }
    source.vocabulary = source.vocabulary.or_else(|| left_by_conversion(&source.path));
    Ok(source)
}

/// The vocabulary that a conversion to the format of another program has put beside what it wrote.
fn left_by_conversion(path: &Path) -> Option<(PathBuf, Result<Tokenizer, String>)> {
    let folder = search::folder_of(path);
    // Without the account of a conversion it may be anybody's.
    let is_there = [REPORT, TOKENIZER_FILE].iter().all(|name| folder.join(name).is_file());
    is_there.then(|| (folder.into(), Tokenizer::load(folder).map_err(|e| e.to_string())))
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
