//! Merges defaults, recipe and overrides into one configuration that records the origin of each value.

mod idle;

use std::collections::BTreeMap;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::config::Networks;
use crate::keys::{flatten, nearest, pointer, text_of};
use crate::model::WrongValue;
use crate::models::Models;
use crate::names::listed;
use crate::own::OwnSections;
use crate::{Config, ConfigError, OptimConfig, ScheduleConfig};
use crate::{foreign, range, toml_text};

/// Origin of a value that nobody set.
const DEFAULT: &str = "default";
/// A key that says relative to the data what another one says outright: where the first is not 0, the second is reckoned
/// from it.
const RECKONED: [(&str, &str); 2] =
    [("task.epochs", "train.steps"), ("task.warmup_share", "schedule.warmup")];

/// A merged configuration.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The values.
    pub config: Config,
    /// Dotted key to the file or override that set it; `default` for the rest.
    pub origins: BTreeMap<String, String>,
}

impl Loaded {
    /// The merged configuration as TOML, each key followed by where it came from.
    pub fn render(&self) -> String {
        self.render_where(|_| true)
    }

    /// The same of the keys that somebody has set.
    pub fn render_changed(&self) -> String {
        self.render_where(|key| self.origins.get(key).is_some_and(|origin| origin != DEFAULT))
    }

    /// The key that another one follows from once the data is known.
    fn reckoned_from(&self, key: &str) -> Option<&'static str> {
        let (source, _) = RECKONED.into_iter().find(|(_, reckoned)| *reckoned == key)?;
        let value = self.config.to_json().pointer(&pointer(source))?.as_f64()?;
        (value > 0.0).then_some(source)
    }

    fn render_where(&self, shows: impl Fn(&str) -> bool) -> String {
        let mut text = String::new();
        let mut section = String::new();
        for (key, value) in flatten(&self.config.read_json()).into_iter().filter(|(key, _)| shows(key)) {
            let (head, name) = key.split_once('.').unwrap_or(("", &key));
            if head != section {
                section = head.to_string();
                text.push_str(&format!("\n[{section}]\n"));
            }
            let origin = self.origins.get(&key).map_or(DEFAULT, String::as_str);
            if let Some(source) = self.reckoned_from(&key) {
                text.push_str(&format!("# {name} follows from {source} and the data\n"));
                continue;
            }
            match value {
                Value::Null => text.push_str(&format!("# {name} is not set  # {origin}\n")),
                value => text.push_str(&format!("{name} = {value}  # {origin}\n")),
            }
        }
        text.trim_start().to_string()
    }
}

impl Models {
    /// Reads back what [`Config::to_json`] wrote.
    pub fn from_json(&'static self, value: &Value, origin: &str) -> Result<Config, ConfigError> {
        self.from_json_with(value, origin, &[])
    }

    /// The same, or any part of it with the rest at its defaults, under `key=value` overrides.
    pub fn from_json_with(
        &'static self,
        value: &Value,
        origin: &str,
        overrides: &[String],
    ) -> Result<Config, ConfigError> {
        let mut layers = Layers::new(self, value)?;
        layers.merge(value, origin, None)?;
        for text in overrides {
            layers.merge_override(text)?;
        }
        layers.finish(false).map(|loaded| loaded.config)
    }

    /// Merges defaults, the recipe at `path` and `key=value` overrides, later ones winning, and checks
    /// the result.
    pub fn load(&'static self, path: Option<&Path>, overrides: &[String]) -> Result<Loaded, ConfigError> {
        self.load_over(Vec::new(), path, overrides)
    }

    /// The same over layers that stand between the defaults and the recipe: values, and where they are from.
    pub fn load_over(
        &'static self,
        base: Vec<(Value, String)>,
        path: Option<&Path>,
        overrides: &[String],
    ) -> Result<Loaded, ConfigError> {
        load_over(self, base, path, overrides)
    }
}

fn load_over(
    models: &'static Models,
    base: Vec<(Value, String)>,
    path: Option<&Path>,
    overrides: &[String],
) -> Result<Loaded, ConfigError> {
    let defaults = base.len();
    let mut written: Vec<(Value, String, Option<&str>)> =
        base.into_iter().map(|(value, origin)| (value, origin, None)).collect();
    if let Some(path) = path {
        written.push((read_recipe(path)?, path.display().to_string(), None));
    }
    for text in overrides {
        let raw = text.split_once('=').map(|(_, value)| value);
        written.push((parse_override(text)?, format!("override `{text}`"), raw));
    }
    let mut layers = Layers::new(
        models,
        written.iter().map(|(v, ..)| v).rfind(|v| model_type(v).is_some()).unwrap_or(&Value::Null),
    )?;
    for (nth, (value, origin, raw)) in written.iter().enumerate() {
        layers.merge(value, origin, *raw)?;
        if nth >= defaults {
            layers.give(value);
        }
    }
    layers.finish(true)
}

pub(crate) fn read_recipe(path: &Path) -> Result<Value, ConfigError> {
    toml_text::parse(&toml_text::read_text(path)?, &path.display().to_string())
}

/// `a.b=value` as the nested object `{a: {b: value}}`. A value that is not TOML is a string.
pub(crate) fn parse_override(text: &str) -> Result<Value, ConfigError> {
    let malformed = || ConfigError::NotAnOverride { text: text.into() };
    let (key, value) = text.split_once('=').ok_or_else(malformed)?;
    if key.is_empty() || key.split('.').any(str::is_empty) {
        return Err(malformed());
    }
    let parsed = toml::from_str::<Value>(&format!("x = {value}"))
        .ok()
        .and_then(|table| table.get("x").cloned())
        // What no JSON has, such as `nan`.
        .filter(|value| !value.is_null())
        .unwrap_or_else(|| Value::String(value.into()));
    Ok(key.rsplit('.').fold(parsed, |inner, part| Value::Object(Map::from_iter([(part.to_string(), inner)]))))
}

fn model_type(value: &Value) -> Option<&Value> {
    value.get("model").and_then(|m| m.get("model_type"))
}

struct Layers {
    merged: Value,
    /// The defaults, of the type of model that the configuration names.
    defaults: Config,
    origins: BTreeMap<String, String>,
    /// Keys that a recipe or an override sets, each with the number of the last that does.
    given: BTreeMap<String, usize>,
    /// How many have been merged.
    givers: usize,
    /// Keys of sections that this family does not have and another one has, each with its last value and its default there.
    elsewhere: BTreeMap<String, (Value, Value)>,
}

/// Sections that a network may have to itself, as `[SECTION.NETWORK]`.
pub(crate) const OF_NETWORKS: [&str; 2] = ["optim", "schedule"];

impl Layers {
    /// Starts from the defaults of the model that `chooser` names (the first of `models` where it names none).
    fn new(models: &'static Models, chooser: &Value) -> Result<Self, ConfigError> {
        let model = match model_type(chooser) {
            None => (models.types()[0].default)(),
            Some(name) => {
                let unknown = || ConfigError::WrongType {
                    key: "model.model_type".into(),
                    origin: "the configuration".into(),
                    message: format!("unknown model {name}\nhint: known are {}", models.names()),
                };
                name.as_str().and_then(|name| models.default_of(name)).ok_or_else(unknown)?
            }
        };
        let defaults = Config::default_with(models, model);
        let merged = defaults.to_json();
        Ok(Self {
            merged,
            defaults,
            origins: BTreeMap::new(),
            given: BTreeMap::new(),
            givers: 0,
            elsewhere: BTreeMap::new(),
        })
    }

    /// Networks that may have sections of their own.
    fn networks(&self) -> &'static [&'static str] {
        let models = self.defaults.models();
        models.find(self.defaults.model.model_type()).map_or(&[], |known| known.networks)
    }

    /// The name that a key of an earlier version has now, where it is one.
    fn moved(&self, key: &str) -> Option<&'static str> {
        let known = self.defaults.models().find(self.defaults.model.model_type())?;
        known.moved.iter().find(|(before, _)| *before == key).map(|(_, now)| *now)
    }

    /// The key that `key` sets for one network of several, where it is one: `optim.lr` for `optim.critic.lr`.
    fn of_all_networks(&self, key: &str) -> Option<String> {
        let (section, rest) = key.split_once('.')?;
        let (network, name) = rest.split_once('.')?;
        (OF_NETWORKS.contains(&section) && self.networks().contains(&network))
            .then(|| format!("{section}.{name}"))
    }

    fn merge_override(&mut self, text: &str) -> Result<(), ConfigError> {
        let raw = text.split_once('=').map(|(_, value)| value);
        let value = parse_override(text)?;
        self.merge(&value, &format!("override `{text}`"), raw)?;
        self.give(&value);
        Ok(())
    }

    /// Takes note of what a recipe or an override sets.
    fn give(&mut self, value: &Value) {
        self.givers += 1;
        for (key, _) in flatten(value) {
            let key = self.moved(&key).map_or(key, String::from);
            self.given.insert(key, self.givers);
        }
    }

    /// Turns a relative key of [`RECKONED`] off where its absolute one is set explicitly and takes precedence: over a default, and over a relative key set
    /// earlier. An absolute key that is set before its relative one, or in the same file, is a conflict.
    fn settle(&mut self) -> Result<(), ConfigError> {
        for (relative, outright) in RECKONED {
            let slot = self.merged.pointer_mut(&pointer(relative));
            let Some(slot) = slot.filter(|value| value.as_f64().is_some_and(|share| share > 0.0)) else {
                continue;
            };
            let Some(given) = self.given.get(outright) else { continue };
            if self.given.get(relative).is_some_and(|relative| relative >= given) {
                let why = format!(
                    "{outright} would be reckoned from it, and is given too ({}; {})\nhint: leave one of them out, or \
                     set {relative}=0",
                    self.origins[relative], self.origins[outright]
                );
                return Err(ConfigError::OutOfRange { key: relative.into(), value: slot.to_string(), why });
            }
            *slot = 0.0.into();
            let instead = match self.origins.get(relative).filter(|_| self.given.contains_key(relative)) {
                Some(origin) => format!(", in the place of that in {origin}"),
                None => String::new(),
            };
            self.origins.insert(relative.into(), format!("{outright} is given{instead}"));
        }
        Ok(())
    }

    /// `raw` is the text of an override: a key that wants text takes it as it stands, were it a number.
    fn merge(&mut self, value: &Value, origin: &str, raw: Option<&str>) -> Result<(), ConfigError> {
        let known: Vec<String> = flatten(&self.merged).into_iter().map(|(key, _)| key).collect();
        let written = flatten(value);
        for (key, value) in &written {
            let Some(now) = self.moved(key).filter(|now| written.iter().any(|(other, _)| other == now))
            else {
                continue;
            };
            let why = format!("it is called {now} now, which is given too\nhint: leave it out");
            return Err(ConfigError::OutOfRange { key: key.clone(), value: text_of(value), why });
        }
        for (key, value) in written {
            let key = self.moved(&key).map_or(key, String::from);
            let general = self.of_all_networks(&key);
            if !known.contains(general.as_ref().unwrap_or(&key)) {
                if let Some(default) = self.defaults.models().default_of_key(&key) {
                    self.elsewhere.insert(key, (value, default));
                    continue;
                }
                // Keys of other families are no advice where one of this family is like it.
                let tunes = self.merged["task"]["name"].as_str().is_some_and(|task| !task.is_empty());
                let known: Vec<String> =
                    known.into_iter().filter(|key| tunes || !key.starts_with("task.")).collect();
                let of_others = || self.defaults.models().own_keys().collect::<Vec<_>>();
                return Err(ConfigError::UnknownKey {
                    nearest: nearest(&key, &known, tunes).or_else(|| nearest(&key, &of_others(), tunes)),
                    key,
                    origin: origin.into(),
                    tunes,
                });
            }
            let is_text =
                self.merged.pointer(&pointer(general.as_ref().unwrap_or(&key))).is_some_and(Value::is_string);
            let value = match raw {
                Some(raw) if is_text && !value.is_string() => Value::String(raw.into()),
                // What is not TOML is a text, but a number that is too large is none.
                Some(raw) if !is_text && value.is_string() => {
                    match toml_text::out_of_range(&format!("x = {raw}")) {
                        Some((_, why)) => {
                            return Err(ConfigError::OutOfRange { key, value: raw.into(), why });
                        }
                        None => value,
                    }
                }
                _ => value,
            };
            match (general, self.merged.pointer_mut(&pointer(&key))) {
                (_, Some(slot)) => *slot = value,
                (Some(_), None) => {
                    let parts: Vec<&str> = key.split('.').collect();
                    self.merged[parts[0]][parts[1]][parts[2]] = value;
                }
                (None, None) => {}
            }
            self.origins.insert(key, origin.into());
        }
        Ok(())
    }

    /// Takes the sections of single networks out of those of all.
    fn take_networks(&self, merged: &mut Value) -> Networks {
        let mut taken = Networks::new();
        for section in OF_NETWORKS {
            for network in self.networks() {
                let own = merged[section].as_object_mut().and_then(|fields| fields.remove(*network));
                if let Some(Value::Object(values)) = own {
                    taken.entry(section.into()).or_default().insert((*network).into(), values);
                }
            }
        }
        taken
    }

    /// Checks what has been merged. Of what was `given`, that is not stored, no key is left at a value that nothing reads: a later setting may have
    /// taken its use away.
    fn finish(mut self, given: bool) -> Result<Loaded, ConfigError> {
        self.settle()?;
        let mut config = self.read()?;
        for network in self.networks() {
            let (_, _): (OptimConfig, ScheduleConfig) = (
                self.section(&format!("optim.{network}"), &config.over("optim", network))?,
                self.section(&format!("schedule.{network}"), &config.over("schedule", network))?,
            );
            let own = config.of_network(network);
            range::check(&format!("optim.{network}"), &own.optim)?;
            range::check(&format!("schedule.{network}"), &own.schedule)?;
        }
        config.check()?;
        self.refuse_idle(config.idle(), &config.to_json())?;
        if given {
            self.take_unread_back(config.idle_of_families());
            config = self.read()?;
        }
        config.fit_positions();
        Ok(Loaded { config, origins: self.origins })
    }

    /// What has been merged as sections, unchecked but for the types of values.
    fn read(&self) -> Result<Config, ConfigError> {
        let mut merged = self.merged.clone();
        let networks = self.take_networks(&mut merged);
        if let Some(fields) = merged["model"].as_object_mut() {
            fields.remove("model_type");
        }
        let Some(known) = self.defaults.models().find(self.defaults.model.model_type()) else {
            return Err(ConfigError::NotAnOverride { text: "model.model_type".into() });
        };
        let wrong = |section: &str, error| self.wrong_type(section, error);
        let own = OwnSections::take(known.sections, &mut merged, wrong)?;
        Config::of_json(self.defaults.models, &merged, own, networks, known.read, wrong)
    }

    fn section<T: DeserializeOwned>(&self, name: &str, value: &Value) -> Result<T, ConfigError> {
        serde_path_to_error::deserialize(value).map_err(|error| self.wrong_type(name, error))
    }

    fn wrong_type(&self, section: &str, error: WrongValue) -> ConfigError {
        let key = format!("{section}.{}", error.path());
        // A wrong list element is named `key[2]`; its origin is the key's.
        let whole = key.split('[').next().unwrap_or(&key);
        let origin = self.origins.get(whole).cloned().unwrap_or_else(|| DEFAULT.into());
        let message = in_words(&error.inner().to_string());
        let message = match self.written_as_list(&key) {
            Some(hint) => format!("{message}\nhint: {hint}"),
            None => message,
        };
        ConfigError::WrongType { key, origin, message }
    }

    /// How the value of a key of a list is written that is given as something else.
    fn written_as_list(&self, key: &str) -> Option<String> {
        let default = self.defaults.to_json();
        default.pointer(&pointer(key))?.as_array()?;
        let given = text_of(self.merged.pointer(&pointer(key)).filter(|given| !given.is_array())?);
        let other = foreign::note_on_value(key, &given).map(String::from);
        other.or_else(|| Some(format!("write a list, in quotes for the shell: {key}='{}'", listed(&given))))
    }
}

/// Whole numbers from here on are floats where they were JSON.
const MOST_WHOLE: f64 = (1_u64 << 63) as f64;

/// A message about types with words in the place of Rust's names of them.
fn in_words(message: &str) -> String {
    let Some((found, expected)) = message.rsplit_once("expected ") else { return message.into() };
    // JSON holds a whole number beyond 64 bits as a float.
    let float = found.split('`').nth(1).filter(|_| found.contains("floating point"));
    let too_large = float.and_then(|text| text.parse::<f64>().ok()).is_some_and(|x| x.abs() >= MOST_WHOLE);
    let found = match float {
        Some(number) if too_large => format!("number out of range: {number}, "),
        _ => found.to_string(),
    };
    let expected = match expected {
        "usize" | "u64" if too_large => "a whole number from 0 to 18446744073709551615",
        "isize" | "i64" if too_large => "a whole number from -9223372036854775808 to 9223372036854775807",
        "usize" | "u64" => "a whole number from 0 on",
        "u32" => "a whole number from 0 to 4294967295",
        "u16" => "a whole number from 0 to 65535",
        "u8" => "a whole number from 0 to 255",
        "isize" | "i64" => "a whole number",
        "i32" => "a whole number from -2147483648 to 2147483647",
        "f64" | "f32" => "a number",
        "a boolean" => "true or false",
        "a string" => "a text",
        "a sequence" => "a list",
        other => other,
    };
    format!("{found}expected {expected}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{Data, MODELS, Segments};

    fn overrides(list: &[&str]) -> Vec<String> {
        list.iter().map(|s| s.to_string()).collect()
    }

    fn fails(list: &[&str]) -> String {
        let error = MODELS.load(None, &overrides(list)).unwrap_err();
        crate::advice::joined(&error, error.hint())
    }

    #[test]
    fn unknown_key_names_the_nearest() {
        assert!(fails(&["train.step=3"]).contains("did you mean `train.steps`"));
        assert!(fails(&["n_layer=3"]).contains("did you mean `model.n_layer`"));
    }

    #[test]
    fn wrong_type_names_key_and_origin() {
        let message = fails(&["train.steps=soon"]);
        assert!(message.contains("train.steps") && message.contains("soon"), "{message}");
    }

    #[test]
    fn later_layers_win_and_origins_are_kept() {
        let dir = tempfile_with("[train]\nlanes = 16\nsegment = 64\n");
        let loaded = MODELS.load(Some(&dir), &overrides(&["train.lanes=4"])).unwrap();
        assert_eq!((loaded.config.train.lanes, loaded.config.own.get::<Segments>().segment), (4, 64));
        assert!(loaded.origins["train.lanes"].contains("override"));
        assert!(loaded.render().contains("steps = 1000  # default"));
        std::fs::remove_file(dir).unwrap();
    }

    #[test]
    fn json_round_trip_is_the_same_config() {
        let config =
            MODELS.load(None, &overrides(&["model.cutoffs=[3,5]", "optim.kind=adamw"])).unwrap().config;
        assert_eq!(MODELS.from_json(&config.to_json(), "test").unwrap(), config);
    }

    #[test]
    fn overrides_win_over_json() {
        let json = MODELS
            .load(None, &overrides(&["model.model_type=paired", "train.lanes=4"]))
            .unwrap()
            .config
            .to_json();
        let config =
            MODELS.from_json_with(&json, "the test", &overrides(&["eval.every=6", "data.corpus=7"])).unwrap();
        assert_eq!((config.train.lanes, config.eval.every), (4, 6));
        assert_eq!(config.own.get::<Data>().corpus, "7");
        assert!(MODELS.from_json_with(&json, "the test", &overrides(&["eval.ever=6"])).is_err());
        let part = serde_json::json!({"model": {"model_type": "paired", "mem_len": 9}});
        let config = MODELS.from_json_with(&part, "the test", &[]).unwrap();
        assert_eq!(config.model.mem_len(), 9);
        assert_eq!(
            (&config.to_json()["data"]["order"], config.own.get::<Segments>().segment),
            (&json!("pairs"), 512)
        );
    }

    #[test]
    fn strings_need_no_quotes_in_overrides() {
        let loaded = MODELS.load(None, &overrides(&["run.dir=runs/a b", "data.corpus=\"x\""])).unwrap();
        assert_eq!(MODELS.load(None, &overrides(&["run.dir=2026"])).unwrap().config.run.dir, "2026");
        assert_eq!(
            (loaded.config.run.dir.as_str(), loaded.config.own.get::<Data>().corpus.as_str()),
            ("runs/a b", "x")
        );
    }

    #[test]
    fn a_network_of_several_has_what_is_its_own_and_the_rest_of_all() {
        let keys =
            ["model.model_type=paired", "optim.lr=0.5", "optim.writer.lr=0.25", "optim.writer.kind=adamw"];
        let config = MODELS.load(None, &overrides(&keys)).unwrap().config;
        let rates = ["reader", "writer"].map(|network| config.of_network(network).optim.lr);
        assert_eq!(rates, [0.5, 0.25]);
        assert_eq!(config.of_network("writer").optim.kind, crate::OptimKind::Adamw);
        assert_eq!(MODELS.from_json(&config.to_json(), "test").unwrap(), config);
        let fails = |more: &str| {
            MODELS.load(None, &overrides(&[&keys[..], &[more]].concat())).unwrap_err().to_string()
        };
        assert!(fails("optim.printer.lr=1").contains("optim.printer.lr"));
        assert!(fails("optim.writer.rate=1").contains("optim.writer.rate"));
        assert!(fails("optim.writer.lr=-1").contains("`optim.writer.lr` = -1"));
        assert!(fails("schedule.reader.kind=9").contains("schedule.reader.kind"));
        // One network has no sections of its own.
        assert!(MODELS.load(None, &overrides(&["optim.writer.lr=1"])).is_err());
    }

    #[test]
    fn what_is_given_outright_wins_over_what_a_default_reckons() {
        let base = || vec![(crate::finetuning_defaults(), "fine-tuning".to_string())];
        let load = |keys: &[&str]| MODELS.load_over(base(), None, &overrides(keys));
        let given = load(&["train.steps=20"]).unwrap();
        assert_eq!((given.config.task.epochs, given.config.train.steps), (0.0, 20));
        assert_eq!(given.config.task.warmup_share, 0.1);
        assert_eq!(given.origins["task.epochs"], "train.steps is given");
        assert_eq!(load(&["schedule.warmup=0"]).unwrap().config.task.warmup_share, 0.0);
        assert_eq!(load(&[]).unwrap().config.task.epochs, 3.0);
        assert_eq!(load(&["task.epochs=0", "train.steps=20"]).unwrap().config.train.steps, 20);
        let later = load(&["task.epochs=2", "train.steps=20"]).unwrap();
        assert_eq!((later.config.task.epochs, later.config.train.steps), (0.0, 20));
        assert!(later.origins["task.epochs"].ends_with("in the place of that in override `task.epochs=2`"));
        let both = load(&["train.steps=20", "task.epochs=2"]).unwrap_err().to_string();
        assert!(
            both.contains("override `task.epochs=2`") && both.contains("override `train.steps=20`"),
            "{both}"
        );
    }

    #[test]
    fn lanes_must_be_whole_micro_batches() {
        assert!(fails(&["train.lanes=7", "train.micro_batch=2"]).contains("multiple"));
    }

    fn tempfile_with(text: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("segue-config-{}.toml", std::process::id()));
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn wrong_types_are_told_in_words() {
        for (value, expected) in [
            ("train.lanes=many", "invalid type: string \"many\", expected a whole number from 0 on"),
            ("optim.lr=nan", "expected a number"),
            ("train.exact=maybe", "expected true or false"),
        ] {
            let error = MODELS.load(None, &[value.into()]).unwrap_err().to_string();
            assert!(error.ends_with(expected), "{error}");
        }
    }

    #[test]
    fn a_list_without_brackets_is_told_how_it_is_written() {
        for (given, written) in [
            ("model.cutoffs=3,5", "model.cutoffs='[3, 5]'"),
            ("model.cutoffs=3", "model.cutoffs='[3]'"),
            ("optim.no_decay=bias,norm", "optim.no_decay='[\"bias\",\"norm\"]'"),
            ("optim.no_decay=[bias]", "optim.no_decay='[\"bias\"]'"),
        ] {
            let error = fails(&[given]);
            assert!(
                error.contains("expected a list\nhint: write a list, in quotes for the shell: "),
                "{error}"
            );
            assert!(error.ends_with(written), "{error}");
        }
    }

    #[test]
    fn a_number_beyond_64_bits_is_out_of_range_and_no_text() {
        let whole = "whole numbers go from -9223372036854775808 to 18446744073709551615";
        for (assignment, range) in [
            ("train.steps=99999999999999999999", whole),
            ("train.steps=-99999999999999999999", whole),
            ("train.steps=0xfffffffffffffffff", whole),
            ("optim.lr=100000000000000000000", whole),
            ("model.cutoffs=[3, 99999999999999999999]", whole),
            ("optim.lr=1e999", "numbers go from -1.8e308 to 1.8e308"),
        ] {
            let (key, value) = assignment.split_once('=').unwrap();
            let error = fails(&[assignment]);
            assert!(
                error.starts_with(&format!("`{key}` = {value} is invalid: number out of range: ")),
                "{error}"
            );
            assert!(error.ends_with(range), "{error}");
        }
        let digits = "run.dir=99999999999999999999";
        assert_eq!(MODELS.load(None, &overrides(&[digits])).unwrap().config.run.dir, "99999999999999999999");
        let stored = serde_json::from_str(r#"{"train": {"steps": 99999999999999999999}}"#).unwrap();
        let error = MODELS.from_json(&stored, "the checkpoint").unwrap_err().to_string();
        let range = "number out of range: 1e+20, expected a whole number from 0 to 18446744073709551615";
        assert!(error.contains("`train.steps` in the checkpoint") && error.ends_with(range), "{error}");
    }
}
