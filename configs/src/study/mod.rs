//! Studies: one file that says among which settings of a recipe the best are looked for, and how.
//!
//! [`Study::load`] checks the ends of every parameter's range against the recipe before anything starts.

mod space;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::keys::{assignments, check_folders, flatten, pointer};
use crate::merge::Loaded;
use crate::models::Models;
use crate::range::{self, Range, schema_of};
use crate::recipe_reader::RecipeReader;
use crate::section::Section;
use crate::tables::sections_of;
use crate::{Config, ConfigError, shipped, toml_text};

pub use space::{Condition, Parameter, Scale, Space};

/// How settings are proposed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SearchKind {
    /// By a Gaussian process that is fitted to the trials so far, after `startup` random ones.
    #[default]
    Gaussian,
    /// At random.
    Random,
}

/// The file of a study. A later setting wins: recipe, `[set]`, command line, parameters.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StudyFile {
    /// Title of table and charts.
    name: String,
    /// Recipe under all trials: a file, whose relative path counts from the folder of this one, or the name of one that comes with the program.
    recipe: PathBuf,
    /// Folder of runs, journal and report.
    #[serde(default = "default_output")]
    output: PathBuf,
    /// Number of trials, all in all. A larger number goes on where a study had ended.
    #[schemars(transform = Range::at_least(1))]
    trials: usize,
    /// Seed of what is proposed; all trials train with the recipe's `train.seed`.
    #[serde(default = "default_seed")]
    #[schemars(transform = Range::at_least(0).at_most(i64::MAX))]
    seed: u64,
    /// How settings are proposed.
    #[serde(default)]
    search: SearchKind,
    /// Random trials before the first that a Gaussian process proposes.
    #[serde(default = "default_startup")]
    #[schemars(transform = Range::at_least(2))]
    startup: usize,
    /// Runs of the best settings with other seeds, after all trials: how much of a difference is noise.
    #[serde(default = "default_reruns")]
    reruns: usize,
    /// Times that a training which ended with an error is tried again; then its trial counts as one without a loss.
    #[serde(default = "default_retries")]
    retries: usize,
    /// The study stops where so many trials in a row, or all, failed with the same error; 0 for never.
    #[serde(default = "default_give_up_after")]
    give_up_after: usize,
    /// A value of evaluations that is wanted high, such as `information`: the report then shows the trials of which no other tells more and loses less.
    #[serde(default)]
    front: Option<String>,
    /// Configuration keys for every trial.
    #[serde(default)]
    set: Map<String, Value>,
    /// When a trial that does badly is given up. Without it each is trained to its end.
    stop: Option<Stopping>,
    /// A configuration key and the values it may have.
    #[serde(rename = "parameter")]
    parameters: Vec<Parameter>,
}

fn default_output() -> PathBuf {
    "runs/study".into()
}

fn default_seed() -> u64 {
    1
}

fn default_startup() -> usize {
    10
}

fn default_reruns() -> usize {
    3
}

fn default_retries() -> usize {
    1
}

fn default_give_up_after() -> usize {
    3
}

/// `[stop]`: after every turn a trial is given up whose best loss so far is above the median of what the others had up to that
/// turn, as the mean of their turns (Golovin et al. 2017, the median stopping rule).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stopping {
    /// Steps of a turn, a multiple of `eval.every`.
    #[schemars(transform = Range::at_least(1))]
    pub turn: u64,
    /// Number of first turns at whose ends no trial is given up.
    #[serde(default = "default_grace")]
    #[schemars(transform = Range::at_least(1))]
    pub grace: usize,
    /// Trials that have to have come as far before another is compared with them.
    #[serde(default = "default_least")]
    #[schemars(transform = Range::at_least(1))]
    pub least: usize,
}

fn default_grace() -> usize {
    1
}

fn default_least() -> usize {
    5
}

/// Every table of the file.
pub(crate) fn sections() -> Vec<Section> {
    sections_of::<StudyFile>()
}

/// The JSON schema of the file.
pub(crate) fn schema() -> Value {
    schema_of::<StudyFile>().clone()
}

/// A study, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Study {
    /// Title of its report.
    pub name: String,
    /// The recipe under every trial.
    pub recipe: PathBuf,
    /// Folder of its runs and results.
    pub output: PathBuf,
    /// Number of trials, all in all.
    pub trials: usize,
    /// Seed of what is proposed.
    pub seed: u64,
    /// How settings are proposed.
    pub search: SearchKind,
    /// Random trials before the first by a Gaussian process.
    pub startup: usize,
    /// Runs of the best settings with other seeds.
    pub reruns: usize,
    /// Times that a training which failed is tried again.
    pub retries: usize,
    /// The study stops where its first trials, so many or all, failed with the same error; 0 for never.
    pub give_up_after: usize,
    /// When a trial is given up.
    pub stop: Option<Stopping>,
    /// The value of evaluations that the loss is set against.
    pub front: Option<String>,
    /// What is looked among.
    pub space: Space,
    /// The configuration under every trial.
    pub base: Config,
    overrides: Vec<String>,
    recipes: RecipeReader,
}

impl Study {
    /// Reads a study. `overrides` apply to every trial. A relative recipe is looked for beside the file, and then among those that
    /// come with the program.
    pub fn load(models: &'static Models, path: &Path, overrides: &[String]) -> Result<Self, ConfigError> {
        let text = toml_text::read_text(path)?;
        let wrong = |message: String| ConfigError::Syntax { origin: path.display().to_string(), message };
        let mut file: StudyFile = toml_text::parse(&text, &path.display().to_string())?;
        file.recipe = shipped::find_beside(&file.recipe, path.parent().unwrap_or(Path::new(".")));
        file.check(models, overrides, &wrong)
    }

    /// `key=value` texts of the trial at `point`, in the order in which they apply.
    pub fn overrides_at(&self, point: &[f64]) -> Vec<String> {
        let settings = self.space.settings(point);
        let own = settings.into_iter().map(|(key, value)| format!("{key}={value}"));
        self.overrides.iter().cloned().chain(own).collect()
    }

    /// The configuration of the trial at `point`.
    pub fn config_at(&self, point: &[f64]) -> Result<Config, ConfigError> {
        Ok(self.recipes.load(Some(&self.recipe), &self.overrides_at(point))?.config)
    }

    /// The configuration of the trial at `point` as the text of a recipe, with all that recipe, `[set]` and command line set, for a run of its own:
    /// it names no `run.dir`. What is published of the recipe is not of these settings, and is left out too.
    pub fn recipe_at(&self, point: &[f64]) -> Result<String, ConfigError> {
        let overrides = self.overrides_at(point);
        let Loaded { config, origins } = self.recipes.load(Some(&self.recipe), &overrides)?;
        let below = self.recipes.origins_below(Some(&self.recipe), &overrides)?;
        let (values, mut recipe) = (config.to_json(), Map::new());
        // In one file with what makes it useless, a key would be refused.
        let idle: BTreeSet<String> = config.idle().into_iter().map(|idle| idle.key).collect();
        let own = |key: &str| {
            !["run", "published"].contains(&key.split('.').next().unwrap_or(key)) && !idle.contains(key)
        };
        // What fine-tuning and the model it begins with say stands under the recipe too.
        let given = origins.iter().filter(|(_, origin)| !below.contains(origin)).map(|(key, _)| key);
        for key in given.filter(|key| own(key)) {
            // TOML has no null: a key that is not set is left out.
            if let Some(value) = values.pointer(&pointer(key)).filter(|value| !value.is_null()) {
                put(&mut recipe, key, value.clone());
            }
        }
        let wrong = |message: String| ConfigError::Syntax { origin: "the best recipe".into(), message };
        let text = toml::to_string(&recipe).map_err(|e| wrong(e.to_string()))?;
        self.check_recipe(&text, &values, &own, &wrong)?;
        Ok(text)
    }

    /// Reads a recipe back, which is to give the values of `meant`, of all sections, for its `own` keys.
    fn check_recipe(
        &self,
        text: &str,
        meant: &Value,
        own: &dyn Fn(&str) -> bool,
        wrong: &dyn Fn(String) -> ConfigError,
    ) -> Result<(), ConfigError> {
        let written: Value = toml::from_str(text).map_err(|e| wrong(e.to_string()))?;
        let read = self.recipes.read_back(written, "the best recipe")?.to_json();
        let other = flatten(meant)
            .into_iter()
            .find(|(key, value)| own(key) && read.pointer(&pointer(key)) != Some(value));
        other.map_or(Ok(()), |(key, value)| {
            Err(wrong(format!("`{key}` is {value} in the trial, and another value in its recipe")))
        })
    }

    /// What proposals depend on besides the base configuration: another value is another study.
    pub fn rules(&self) -> Value {
        json!({
            "parameters": self.space, "search": self.search, "seed": self.seed, "startup": self.startup,
            "stop": self.stop,
        })
    }
}

/// Puts a value in its place.
fn put(tables: &mut Map<String, Value>, key: &str, value: Value) {
    match key.split_once('.') {
        None => _ = tables.insert(key.into(), value),
        Some((table, rest)) => {
            let inner = tables.entry(table).or_insert_with(|| Map::new().into());
            inner.as_object_mut().into_iter().for_each(|inner| put(inner, rest, value.clone()));
        }
    }
}

impl StudyFile {
    fn check(
        self,
        models: &'static Models,
        overrides: &[String],
        wrong: &dyn Fn(String) -> ConfigError,
    ) -> Result<Study, ConfigError> {
        range::check("study", &self)?;
        let space = Space::new(self.parameters).map_err(wrong)?;
        let mut all = assignments(&self.set);
        all.extend(overrides.iter().cloned());
        check_folders(&all)?;
        // The best model of a trial is what it is judged by: it stays, unless recipe, `[set]` or command line say no.
        let kept = json!({ "checkpoint": { "best": true } });
        let recipes = RecipeReader::new(models);
        let mut base = recipes.load_over(vec![(kept, "the study".into())], Some(&self.recipe), &all)?.config;
        // Some models keep none.
        base.checkpoint.best &= !base.idle().iter().any(|idle| idle.key == "checkpoint.best");
        if base.checkpoint.best {
            all.insert(0, "checkpoint.best=true".into());
        }
        if let Some(stop) = &self.stop {
            range::check("stop", stop)?;
            if base.eval.every == 0 || !stop.turn.is_multiple_of(base.eval.every) {
                return Err(ConfigError::OutOfRange {
                    key: "stop.turn".into(),
                    value: stop.turn.to_string(),
                    why: format!(
                        "a turn ends with an evaluation, and eval.every is {}\nhint: set eval.every to a divisor of stop.turn",
                        base.eval.every
                    ),
                });
            }
        }
        let Self { name, recipe, output, trials, seed, search, startup, .. } = self;
        let Self { reruns, retries, give_up_after, stop, front, .. } = self;
        let study = Study {
            name,
            recipe,
            output,
            trials,
            seed,
            search,
            startup,
            reruns,
            retries,
            give_up_after,
            stop,
            front,
            space,
            base,
            overrides: all,
            recipes,
        };
        study.check_ends()?;
        Ok(study)
    }
}

impl Study {
    /// Tries both ends of each range where it applies, the others in their middle.
    fn check_ends(&self) -> Result<(), ConfigError> {
        for (i, parameter) in self.space.parameters().iter().enumerate() {
            for place in [0.0, 1.0] {
                let point = self.space.middle_but(i, place);
                let Err(error) = self.config_at(&point) else { continue };
                let middle = self.config_at(&self.space.middle_but(i, 0.5)).map(|_| ());
                // What is wrong in the middle too is no fault of this range.
                let at = match (middle, self.space.values(&point)[i]) {
                    (Err(same), _) if same.to_string() == error.to_string() => {
                        format!("with parameter `{}` in the middle of its range too", parameter.key)
                    }
                    (_, value) => format!(
                        "with parameter `{}` at {}, the others in the middle of their ranges",
                        parameter.key,
                        value.unwrap_or(f64::NAN)
                    ),
                };
                return Err(ConfigError::Tried { at, error: Box::new(error) });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
