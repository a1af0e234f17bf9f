//! Recipes of many runs, those of tasks among them, which are read over the model that they begin with.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::keys::{pointer, text_of};
use crate::merge::{parse_override, read_recipe};
use crate::models::KnownModels;
use crate::{Config, ConfigError, Loaded, ModelConfig, Models, finetuning_defaults};

/// The configuration of a model as a layer under a recipe. `folder`: the one that has it.
pub fn model_layer(model: &ModelConfig, folder: &Path) -> (Value, String) {
    let mut section = model.to_json();
    section["model_type"] = json!(model.model_type());
    (json!({ "model": section }), folder.join("config.json").display().to_string())
}

/// Reads recipes under overrides. One that names a task is read as `segue finetune` reads it, over the model of `train.init_from`; each model is opened
/// once.
#[derive(Debug, Clone)]
pub struct RecipeReader {
    models: KnownModels,
    opened: RefCell<BTreeMap<String, (Value, String)>>,
}

/// What has been opened says nothing of what is read.
impl PartialEq for RecipeReader {
    fn eq(&self, other: &Self) -> bool {
        self.models == other.models
    }
}

impl RecipeReader {
    /// A reader of recipes of `models`.
    pub fn new(models: &'static Models) -> Self {
        Self { models: KnownModels(models), opened: RefCell::default() }
    }

    /// Merges what the run stands on, the recipe at `recipe` and `key=value` overrides; see [`Models::load`].
    pub fn load(&self, recipe: Option<&Path>, overrides: &[String]) -> Result<Loaded, ConfigError> {
        self.load_over(Vec::new(), recipe, overrides)
    }

    /// The same over the layers `base`.
    pub fn load_over(
        &self,
        mut base: Vec<(Value, String)>,
        recipe: Option<&Path>,
        overrides: &[String],
    ) -> Result<Loaded, ConfigError> {
        let given = Given::read(recipe, overrides)?;
        base.extend(self.layers(&given)?);
        self.models.0.load_over(base, recipe, overrides)
    }

    /// Where values are from that neither a recipe nor overrides set: the origins of what the run stands on.
    pub(crate) fn origins_below(
        &self,
        recipe: Option<&Path>,
        overrides: &[String],
    ) -> Result<Vec<String>, ConfigError> {
        let layers = self.layers(&Given::read(recipe, overrides)?)?;
        Ok(layers.into_iter().map(|(_, origin)| origin).collect())
    }

    /// Reads a recipe that was written down of a merged configuration.
    pub(crate) fn read_back(&self, written: Value, origin: &str) -> Result<Config, ConfigError> {
        let mut layers = self.layers(&Given(vec![written.clone()]))?;
        if layers.is_empty() {
            return self.models.0.from_json(&written, origin);
        }
        layers.push((written, origin.to_string()));
        Ok(self.models.0.load_over(layers, None, &[])?.config)
    }

    /// What a recipe stands on: nothing, where it names no task.
    fn layers(&self, given: &Given) -> Result<Vec<(Value, String)>, ConfigError> {
        if given.text("task.name").is_empty() {
            return Ok(Vec::new());
        }
        let mut layers = vec![(finetuning_defaults(), "fine-tuning".to_string())];
        let model = given.text("train.init_from");
        if let Some(open) = self.models.0.open().filter(|_| !model.is_empty()) {
            let known = self.opened.borrow().get(&model).cloned();
            let layer = match known {
                Some(layer) => layer,
                None => {
                    let (config, folder) = open(&PathBuf::from(&model))?;
                    model_layer(&config, &folder)
                }
            };
            self.opened.borrow_mut().insert(model, layer.clone());
            layers.push(layer);
        }
        Ok(layers)
    }
}

/// What a recipe and overrides set, later ones last.
struct Given(Vec<Value>);

impl Given {
    fn read(recipe: Option<&Path>, overrides: &[String]) -> Result<Self, ConfigError> {
        let recipe = recipe.map(read_recipe).transpose()?;
        let overrides = overrides.iter().map(|text| parse_override(text)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self(recipe.into_iter().chain(overrides).collect()))
    }

    /// The last value of a key of a text; empty where nothing sets it.
    fn text(&self, key: &str) -> String {
        self.0.iter().rev().find_map(|value| value.pointer(&pointer(key))).map(text_of).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ModelType;
    use crate::testing::{Paired, Plain};

    fn read(overrides: &[&str]) -> Config {
        let models =
            Models::new(vec![ModelType::of::<Plain>(), ModelType::of::<Paired>()]).opened_by(|path| {
                let mem_len = path.display().to_string().len();
                Ok((Paired { mem_len, ..Default::default() }.into(), path.into()))
            });
        let models: &'static Models = Box::leak(Box::new(models));
        let overrides: Vec<String> = overrides.iter().map(|text| text.to_string()).collect();
        RecipeReader::new(models).load(None, &overrides).unwrap().config
    }

    /// The double of a model has a memory as long as its path.
    #[test]
    fn a_task_stands_on_the_model_it_begins_with_and_on_what_fine_tuning_takes_for_granted() {
        let config = read(&["task.name=sst2", "train.init_from=four", "optim.lr=0.5"]);
        assert_eq!((config.model.model_type(), config.model.mem_len()), ("paired", 4));
        assert_eq!((config.task.epochs, config.optim.lr, config.train.lanes), (3.0, 0.5, 32));
        let later =
            read(&["task.name=sst2", "train.init_from=four", "train.init_from=fifth", "model.mem_len=9"]);
        assert_eq!((later.train.init_from.as_str(), later.model.mem_len()), ("fifth", 9));
        let plain = read(&["train.init_from=four"]);
        assert_eq!((plain.model.model_type(), plain.task.epochs), ("plain", 0.0));
    }
}
