//! Folders in Hugging Face's layout: `config.json` and `model.safetensors`, with or without the rest of a
//! checkpoint.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use segue_configs::{Config, ModelConfig, Models, OwnSections};
use segue_data_error::DataError;
use segue_dataloader::sections::ObjectiveConfig;
use segue_engine::checkpoint::{WEIGHTS, map_tensors};
use segue_engine::{Begun, fill};
use segue_family::{Capability, Trained, find, recorded};
use segue_foreign::SafetensorsFile;
use segue_kernels::{Compute, ParameterSpec, Parameters, TrainError};
use segue_tokenizer::Tokenizer;
use serde_json::{Value, json};
use tch::{Kind, Tensor};

use super::family::{Language, PredictsTokens, TextModel};
use super::next_token::NextToken;
use super::objective::Objective;
use super::weights::{is_of_a_head, read_finite, read_weights, refuse_foreign_weights};
use crate::{names, next_tokens, specs};

/// A model on disk.
pub struct ModelFolder {
    /// The folder with `config.json`.
    pub path: PathBuf,
    /// The model's configuration.
    pub config: ModelConfig,
    /// The models that the program knows.
    pub models: &'static Models,
    /// Its family.
    pub family: &'static dyn TextModel,
    /// The tokenizer that lies beside the weights; `None` where there is none that this program reads.
    pub vocabulary: Option<Tokenizer>,
    /// What is to be known of how it was found, a line each: which folder of a run it is, what was passed over, tokens that files beside the
    /// vocabulary add, rows without a token.
    pub notes: Vec<String>,
    /// What was passed over for this one, a damaged best model or newer checkpoints, and what is wrong with it.
    pub passed_over: Vec<String>,
    /// Where its weights are put.
    pub compute: Compute,
}

impl ModelFolder {
    /// Opens a model folder, a checkpoint (verified), or of a run folder the best model, else the newest whole checkpoint. The model is one of
    /// `models`.
    pub fn open(models: &'static Models, path: &Path) -> Result<Self, TrainError> {
        Self::of(Trained::open(models, path)?)
    }

    /// The language model that a folder holds.
    pub fn of(trained: Trained) -> Result<Self, TrainError> {
        let Some(Language(family)) = find(&trained.config) else {
            return Err(trained.is_not(Language::OF));
        };
        let Trained { path, mut config, models, mut notes, passed_over, compute, .. } = trained;
        let weights = path.join(WEIGHTS);
        refuse_foreign_weights(&path)?;
        if let Some(names) = names(&config)
            && !names.copies(&config).is_empty()
            && weights.is_file()
        {
            let stored = map_tensors(&weights)?;
            names.correct(&mut config, &|name| stored.get(name));
        }
        let vocabulary = match Tokenizer::load(&path) {
            Ok(tokenizer) => {
                notes.extend(tokenizer.notes().iter().cloned());
                notes.extend(config.unnamed_rows(tokenizer.vocab_size()));
                Some(tokenizer)
            }
            Err(DataError::Missing { .. }) => None,
            Err(why) => {
                notes.push(format!("warning: its tokenizer cannot be used: {why}"));
                None
            }
        };
        Ok(Self { path, config, models, family: *family, vocabulary, notes, passed_over, compute })
    }

    /// Its family as one whose models tell the next token.
    pub fn next_tokens(&self) -> Result<&'static dyn PredictsTokens, TrainError> {
        next_tokens(&self.config)
    }

    /// The model's own weights, in single precision; those of heads for one task or another are left alone.
    pub fn parameters(&self) -> Result<Parameters, TrainError> {
        let specs = specs(&self.config);
        let weights = read_finite(&self.path.join(WEIGHTS), &self.config, &specs)?;
        Ok(Parameters::from_tensors(specs, weights, Kind::Float).to(self.compute.device()))
    }

    /// The error of a command that needs another model.
    pub fn is_not(&self, wanted: &str) -> TrainError {
        let what = format!(
            "config.json says model_type `{}`, and what was asked for needs {wanted} (eval of a split, generate and \
             score take both models)",
            self.config.model_type()
        );
        TrainError::OtherModel { path: self.path.clone(), what }
    }

    /// Ids mean the same to the model and to the text in `text` only where both have the same tokenizer; that of the text has this `fingerprint` and so many
    /// `tokens`. Of a folder from elsewhere without one, that of the text is taken. Gives what is to be said of rows that no token has.
    ///
    /// # Errors
    ///
    /// The tokenizers differ, or the model has fewer rows than there are tokens.
    pub fn check_ids_of(
        &self,
        text: &Path,
        fingerprint: &str,
        tokens: usize,
    ) -> Result<Option<String>, TrainError> {
        let (model, text) = (self.path.display(), text.display());
        let Some(own) = &self.vocabulary else {
            let rows = self.config.vocab_size();
            return match rows < tokens {
                false => Ok(self.config.unnamed_rows(tokens)),
                true => Err(TrainError::Layout(format!(
                    "{model} has {rows} rows, and {text} {tokens} tokens: it was trained with another tokenizer\nhint: build the corpus with the \
                     tokenizer of the model: segue data build --tokenizer FOLDER"
                ))),
            };
        };
        let known = own.fingerprint();
        if known == fingerprint {
            return Ok(None);
        }
        let sizes = match own.vocab_size() == tokens {
            true => [String::new(), String::new()],
            false => [own.vocab_size(), tokens].map(|size| format!("{size} tokens, ")),
        };
        Err(TrainError::Layout(format!(
            "{model} was trained with another tokenizer ({}{known}) than {text} was built with ({}{fingerprint})\nhint: build the corpus with \
             --tokenizer {model}",
            sizes[0], sizes[1]
        )))
    }

    /// How the model of this folder was trained, under `key=value` overrides. A run and its checkpoints tell, but of a
    /// task; of a folder from elsewhere only the model is known, and the rest has its defaults: where that model has
    /// no memory or reuses none of a sequence, those of pretraining are taken. `named`: the path it was
    /// opened by.
    pub fn training_config(&self, named: &Path, overrides: &[String]) -> Result<Config, TrainError> {
        let of_run = recorded(&self.path, named);
        let mut model = self.config.clone();
        let (mut json, origin) = of_run.unwrap_or_else(|| {
            let usual = names(&self.config).map_or(json!({}), |names| names.usual_training(&mut model));
            (usual, self.path.join("config.json"))
        });
        json["model"] = model.to_json();
        json["model"]["model_type"] = json!(model.model_type());
        Ok(self.models.from_json_with(&json, &origin.display().to_string(), overrides)?)
    }

    /// The tokenizer that lies beside the weights; it has no ids beyond their rows.
    pub fn tokenizer(&self) -> Result<Tokenizer, TrainError> {
        let Some(tokenizer) = &self.vocabulary else { return Ok(Tokenizer::load(&self.path)?) };
        let (names, rows) = (tokenizer.vocab_size(), self.config.vocab_size());
        if names <= rows {
            return Ok(tokenizer.clone());
        }
        let added = tokenizer.notes().first().map_or(String::new(), |note| format!(", {note}"));
        let what = format!(
            "its tokenizer has {names} tokens, and the model {rows} rows{added}\nhint: give the folder the tokenizer that the model was trained with"
        );
        Err(TrainError::OtherModel { path: self.path.clone(), what })
    }
}

/// The model of a folder from left to right, in single precision.
pub fn load_next_token(folder: &ModelFolder) -> Result<Box<dyn NextToken>, TrainError> {
    Ok(folder.next_tokens()?.next_token(&folder.config, folder.parameters()?))
}

/// A model from left to right whose weights are drawn from `seed`, in single precision.
pub fn fresh_next_token(config: &ModelConfig, seed: u64) -> Result<Box<dyn NextToken>, TrainError> {
    let family = next_tokens(config)?;
    let parameters = Parameters::initialise(family.specs(config), seed, Kind::Float);
    Ok(family.next_token(config, parameters))
}

/// The model of a folder with what it was trained to do, heads included where `own` has them, in single precision. `steps`: those of the
/// schedule.
pub fn load_objective(
    folder: &ModelFolder,
    model: &ModelConfig,
    own: &OwnSections,
    steps: u64,
) -> Result<Box<dyn Objective>, TrainError> {
    let specs = folder.family.trained_specs(model, own);
    let path = folder.path.join(WEIGHTS);
    let stored = SafetensorsFile::open(&path)?;
    let is_there = |spec: &ParameterSpec| stored.entries().iter().any(|entry| entry.name == spec.name);
    if let Some(spec) = specs.iter().find(|spec| is_of_a_head(&spec.name) && !is_there(spec)) {
        let what = format!(
            "it has no head that tells whether sentences follow each other (no tensor `{}`), and objective.next_sentence \
             is {}\nhint: say objective.next_sentence=0, or open a model that was trained with it",
            spec.name,
            own.get::<ObjectiveConfig>().next_sentence
        );
        return Err(TrainError::OtherModel { path, what });
    }
    let weights = read_finite(&path, model, &specs)?;
    let parameters = Parameters::from_tensors(specs, weights, Kind::Float).to(folder.compute.device());
    Ok(folder.family.objective_over(model, own, steps, parameters))
}

/// Gives a model the weights of `folder`, which must be of its type and sizes. Heads for one task or another keep what they have.
pub fn start_from(
    folder: ModelFolder,
    model: &ModelConfig,
    parameters: &Parameters,
) -> Result<Begun, TrainError> {
    if folder.config.model_type() != model.model_type() {
        let what = format!("it is a {}, and a {} is trained", folder.config.model_type(), model.model_type());
        return Err(TrainError::OtherModel { path: folder.path, what });
    }
    let specs = specs(model);
    let weights = read_weights(&folder.path.join(WEIGHTS), model, &specs)?;
    let names = parameters.specs().iter().map(|spec| spec.name.as_str());
    let by_name: HashMap<&str, &Tensor> = names.zip(parameters.tensors()).collect();
    fill(specs.iter().map(|spec| by_name[spec.name.as_str()]).zip(weights));
    Ok(Begun::with(&folder.path, folder.passed_over))
}

/// `config.json` as Hugging Face writes it, every width spelled out.
pub fn hugging_face_config(model: &ModelConfig) -> Value {
    let mut json = model.to_json();
    json["model_type"] = json!(model.model_type());
    json["torch_dtype"] = json!("float32");
    if let Some(names) = names(model) {
        names.complete_hugging_face(model, &mut json);
    }
    json
}
