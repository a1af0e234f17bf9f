use std::path::{Path, PathBuf};

use segue_dataloader::Tokenizer;
use segue_dataloader::foreign::{Bundle, ElementType, RawTensor, SharedBytes, TorchFile};
use serde_json::{Map, Value};
use tch::{Kind, Tensor};

use super::{hugging_face, hugging_face_xlnet, kimiyoung, nvidia, tensorflow};
use crate::TrainError;
use crate::checkpoint::{MANIFEST, ModelFolder};
use crate::convert::apply::to_float;
use crate::convert::rules::Rule;

/// Where the values of variables are.
pub enum Values {
    /// In tensors of a `torch.save` file, by number.
    Raw(Vec<RawTensor>),
    /// In a TensorFlow checkpoint, by number.
    Bundle(Box<Bundle>),
    /// In a safetensors file.
    SafeTensors(SharedBytes),
}

/// A variable of a source.
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Type of its elements, as reports have it.
    pub dtype: String,
    /// Sizes.
    pub shape: Vec<usize>,
    /// Its number among the source's values; `None` for something that is listed and has no values here.
    pub number: Option<usize>,
}

/// A checkpoint of another program, opened.
pub struct Source {
    /// What program: `hugging_face`, `kimiyoung`, `nvidia`, `tensorflow`, `segue`.
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
    /// The vocabulary that is part of it, and where it was.
    pub vocabulary: Option<(PathBuf, Result<Tokenizer, String>)>,
}

impl Source {
    /// The values of a variable in single precision.
    pub fn load(&self, variable: &Variable) -> Result<Tensor, TrainError> {
        let damaged = |what: String| TrainError::Damaged {
            path: self.path.clone(),
            what: format!("`{}`: {what}", variable.name),
        };
        let number = variable.number.ok_or_else(|| damaged("it has no values".into()))?;
        match &self.values {
            Values::Raw(tensors) => raw(&tensors[number]).map_err(damaged),
            Values::Bundle(bundle) => raw(&bundle.tensor(&bundle.entries()[number])?).map_err(damaged),
            Values::SafeTensors(bytes) => from_safetensors(bytes, &variable.name).map_err(damaged),
        }
    }
}

/// Opens whatever `path` is; the error says what was looked for.
pub fn detect(path: &Path) -> Result<Source, TrainError> {
    let mut source = open(path)?;
    if source.config.get("model_type").is_some_and(|kind| kind == "xlnet") {
        hugging_face_xlnet::interpret(&mut source)?;
    }
    Ok(source)
}

fn open(path: &Path) -> Result<Source, TrainError> {
    if path.is_dir() {
        return detect_folder(path);
    }
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if path.is_file() && !name.contains(".data-") && !name.ends_with(".index") {
        if name.ends_with(".safetensors") {
            return hugging_face::open(path);
        }
        // A renamed data file of TensorFlow has no mark of its own.
        let start = SharedBytes::map(path)?;
        if start.starts_with(b"PK\x03\x04") || matches!(start.first(), Some(0x80 | b'(' | b'c')) {
            return detect_torch(path);
        }
    }
    tensorflow::open(path)
}

fn detect_folder(folder: &Path) -> Result<Source, TrainError> {
    let is_run = folder.join("checkpoints").is_dir() || folder.join(MANIFEST).is_file();
    if is_run {
        let opened = ModelFolder::open(folder)?;
        let mut source = hugging_face::open(&opened.path.join(hugging_face::WEIGHTS))?;
        source.kind = "segue";
        source.notes.extend(opened.refused.iter().map(|refused| format!("passed over: {refused}")));
        return Ok(source);
    }
    for name in [hugging_face::WEIGHTS, hugging_face::PYTORCH_WEIGHTS] {
        if folder.join("config.json").is_file() && folder.join(name).is_file() {
            return hugging_face::open(&folder.join(name));
        }
    }
    for name in ["model.pt", "checkpoint_best.pt", "checkpoint_last.pt"] {
        if folder.join(name).is_file() {
            return detect_torch(&folder.join(name));
        }
    }
    tensorflow::open(folder).map_err(|error| match error {
        TrainError::Data(segue_dataloader::DataError::Missing { .. }) => {
            let what = "it holds no config.json with model.safetensors or pytorch_model.bin (Hugging Face), no \
                        model.pt (kimiyoung/transformer-xl), no checkpoint_last.pt (NVIDIA) and no *.index \
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
    if root.attribute("_modules").is_some() {
        return kimiyoung::open(path, &file);
    }
    if path.with_file_name("config.json").is_file() {
        return hugging_face::open(path);
    }
    let what = "it is neither a pickled module (kimiyoung/transformer-xl) nor a checkpoint with model_state (NVIDIA), \
                and there is no config.json beside it that would tell the model's sizes (Hugging Face)";
    Err(TrainError::Damaged { path: path.into(), what: what.into() })
}

/// Variables and values of tensors out of a `torch.save` file.
pub(super) fn raw_variables(tensors: Vec<segue_dataloader::foreign::NamedTensor>) -> (Vec<Variable>, Values) {
    let variables = tensors.iter().enumerate().map(|(number, named)| Variable {
        name: named.name.clone(),
        dtype: named.tensor.dtype().to_string(),
        shape: named.tensor.shape().to_vec(),
        number: Some(number),
    });
    (variables.collect(), Values::Raw(tensors.into_iter().map(|named| named.tensor).collect()))
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

fn from_safetensors(bytes: &[u8], name: &str) -> Result<Tensor, String> {
    let file = safetensors::SafeTensors::deserialize(bytes).map_err(|e| e.to_string())?;
    let view = file.tensor(name).map_err(|e| e.to_string())?;
    let kind = safetensors_kind(view.dtype()).ok_or("it holds no numbers of a known type")?;
    to_float(view.data(), view.shape(), kind)
}

fn safetensors_kind(dtype: safetensors::Dtype) -> Option<Kind> {
    use safetensors::Dtype;
    Some(match dtype {
        Dtype::F32 => Kind::Float,
        Dtype::F64 => Kind::Double,
        Dtype::F16 => Kind::Half,
        Dtype::BF16 => Kind::BFloat16,
        Dtype::I64 => Kind::Int64,
        Dtype::I32 => Kind::Int,
        Dtype::I16 => Kind::Int16,
        Dtype::I8 => Kind::Int8,
        Dtype::U8 => Kind::Uint8,
        Dtype::BOOL => Kind::Bool,
        _ => return None,
    })
}
