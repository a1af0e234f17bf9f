//! The types of models that a program knows.

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::model::WrongValue;
use crate::own::SectionType;
use crate::range::schema_of;
use crate::{Config, ConfigError, ModelConfig, ModelSection};

/// Names that Hugging Face's package also takes for sizes, and the usual ones.
const OTHER_NAMES: [(&str, &str); 4] = [
    ("n_token", "vocab_size"),
    ("hidden_size", "d_model"),
    ("num_attention_heads", "n_head"),
    ("num_hidden_layers", "n_layer"),
];

/// One type of model that a program knows.
pub struct ModelType {
    /// What `model.model_type` calls it.
    pub name: &'static str,
    /// What people call it.
    pub title: &'static str,
    /// Networks with sections of their own.
    pub networks: &'static [&'static str],
    pub(crate) sections: &'static [SectionType],
    pub(crate) moved: &'static [(&'static str, &'static str)],
    pub(crate) default: fn() -> ModelConfig,
    pub(crate) read: fn(&Value) -> Result<ModelConfig, WrongValue>,
    pub(crate) run_defaults: fn(&mut Config),
    pub(crate) schema: fn() -> &'static Value,
    hugging_face_defaults: fn(&mut Map<String, Value>, &Map<String, Value>),
    check_hugging_face: fn(&Map<String, Value>) -> Result<(), ConfigError>,
    of_hugging_face: fn(&ModelConfig) -> Result<ModelConfig, ConfigError>,
}

impl ModelType {
    /// The type with this section.
    pub fn of<T: ModelSection>() -> Self {
        Self {
            name: T::TYPE,
            title: T::TITLE,
            networks: T::NETWORKS,
            sections: T::SECTIONS,
            moved: T::MOVED,
            default: || T::default().into(),
            read: |fields| Ok(serde_path_to_error::deserialize::<_, T>(fields)?.into()),
            run_defaults: |config| {
                if T::LANES_ARE_BATCHES {
                    config.train.micro_batch = 1;
                }
                T::run_defaults(config);
            },
            schema: schema_of::<T>,
            hugging_face_defaults: T::hugging_face_defaults,
            check_hugging_face: T::check_hugging_face,
            of_hugging_face: |model| match model.get::<T>() {
                Some(section) => Ok(section.clone().of_hugging_face()?.into()),
                None => Ok(model.clone()),
            },
        }
    }
}

/// The types of models that a program knows; the first is the one that a recipe without `model.model_type` trains.
pub struct Models {
    types: Vec<ModelType>,
    /// Opens a model on disk, where the program does.
    open: Option<OpenModel>,
}

/// Opens the model of a model folder, a checkpoint or a run: its configuration, and the folder that has it.
pub type OpenModel = fn(&Path) -> Result<(ModelConfig, PathBuf), ConfigError>;

impl Models {
    /// These types, of which there is at least one.
    pub fn new(types: Vec<ModelType>) -> Self {
        assert!(!types.is_empty(), "a program knows at least one type of model");
        Self { types, open: None }
    }

    /// The same in a program that opens models on disk by `open`: recipes of tasks are read over the model they begin with.
    pub fn opened_by(self, open: OpenModel) -> Self {
        Self { open: Some(open), ..self }
    }

    /// How the program opens a model on disk.
    pub(crate) fn open(&self) -> Option<OpenModel> {
        self.open
    }

    /// All of them.
    pub fn types(&self) -> &[ModelType] {
        &self.types
    }

    /// The type of that name.
    pub fn find(&self, name: &str) -> Option<&ModelType> {
        self.types.iter().find(|known| known.name == name)
    }

    /// The configuration of `model_type` with every key at its default.
    pub fn default_of(&self, model_type: &str) -> Option<ModelConfig> {
        self.find(model_type).map(|known| (known.default)())
    }

    /// The default of a key that sections of some family have.
    pub(crate) fn default_of_key(&self, key: &str) -> Option<Value> {
        let (section, name) = key.split_once('.')?;
        let own = self.types.iter().flat_map(|known| known.sections).filter(|own| own.name == section);
        own.into_iter().find_map(|own| own.defaults().remove(name))
    }

    /// Keys of the own sections of all families.
    pub(crate) fn own_keys(&self) -> impl Iterator<Item = String> {
        let all = self.types.iter().flat_map(|known| known.sections);
        all.flat_map(|own| own.defaults().into_iter().map(|(key, _)| format!("{}.{key}", own.name)))
    }

    /// Names of all, for messages.
    pub(crate) fn names(&self) -> String {
        self.types.iter().map(|known| known.name).collect::<Vec<_>>().join(", ")
    }

    /// Reads a Hugging Face `config.json`. Keys that only that package uses are left alone; its other names for
    /// sizes, `n_token` of 2019 among them, are understood where the usual one is not there.
    pub fn from_hugging_face(&self, text: &str, origin: &str) -> Result<ModelConfig, ConfigError> {
        let syntax = |message: String| ConfigError::Syntax { origin: origin.into(), message };
        let json: Map<String, Value> = serde_json::from_str(text).map_err(|e| syntax(e.to_string()))?;
        let model_type = json.get("model_type").and_then(|v| v.as_str()).unwrap_or_default();
        let known_type = self.find(model_type).ok_or_else(|| {
            syntax(format!("unknown model_type `{model_type}`\nhint: known are {}", self.names()))
        })?;
        let mut merged = (known_type.default)().to_json();
        let Some(known) = merged.as_object_mut() else {
            return Err(syntax("the section of a model must be a table".into()));
        };
        (known_type.check_hugging_face)(&json)?;
        (known_type.hugging_face_defaults)(known, &json);
        let aliases = OTHER_NAMES.iter().filter(|(_, usual)| !json.contains_key(*usual));
        let renamed =
            aliases.filter_map(|(other, usual)| Some((usual.to_string(), json.get(*other)?.clone())));
        let renamed: Vec<(String, Value)> = renamed.collect();
        for (key, value) in json.into_iter().chain(renamed) {
            if known.contains_key(&key) && !value.is_null() {
                known.insert(key, value);
            }
        }
        let read = (known_type.read)(&merged).map_err(|e| ConfigError::WrongType {
            key: e.path().to_string(),
            origin: origin.into(),
            message: e.inner().to_string(),
        })?;
        (known_type.of_hugging_face)(&read)
    }
}

impl Debug for Models {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.types.iter().map(|known| known.name)).finish()
    }
}

/// The types that a configuration was read with. Says nothing of the configuration itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownModels(pub &'static Models);

impl PartialEq for KnownModels {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
