//! What the reference says of configuration keys: name, type, default, range and the text of the doc comment.
//!
//! A section is a struct: its fields are the keys, their doc comments the text, `Default` the defaults,
//! [`Range`](crate::range::Range) the ranges, the variants of an enum the values.

use serde_json::Value;

use crate::keys::flatten;
use crate::models::{ModelType, Models};
pub use crate::section::{Key, Section};
use crate::{Config, finetuning_defaults, study, sweep};

/// Every section of a recipe, with that of every type of model in `models`.
pub fn sections(models: &'static Models) -> Vec<Section> {
    let defaults = |known: &ModelType| Config::default_with(models, (known.default)());
    let config = defaults(&models.types()[0]);
    let (first, others) = (&models.types()[0], &models.types()[1..]);
    let of_models = [Section::of_model(first).after_the_model_type(models)].into_iter();
    let of_models = of_models.chain(others.iter().map(Section::of_model)).chain(of_families(models));
    let mut all = config.described(of_models.collect());
    for section in all.iter_mut().filter(|section| section.name != "model") {
        for known in others {
            section.add_defaults(known.title, &defaults(known).to_json());
        }
        section.add_defaults("fine-tuning", &finetuning_defaults());
    }
    all
}

/// Sections that families own, each once.
fn of_families(models: &Models) -> Vec<Section> {
    let mut listed = Vec::new();
    for own in models.types().iter().flat_map(|known| known.sections) {
        let (title, defaults) = (own.title(), own.defaults());
        if listed.iter().all(|section: &Section| section.title != title) {
            let section = Section::of_schema(own.name, (own.schema)(), |key, _| defaults.get(key).cloned());
            listed.push(section.titled(&title));
        }
    }
    listed
}

/// Every table of a sweep's file.
pub fn sweep_sections() -> Vec<Section> {
    sweep::sections()
}

/// Every table of a study's file.
pub fn study_sections() -> Vec<Section> {
    study::sections()
}

impl Section {
    /// The section of a type of model; that of the first one is called by its plain name.
    fn of_model(known: &ModelType) -> Self {
        let defaults = (known.default)().to_json();
        let section = Self::of_schema("model", (known.schema)(), |key, _| defaults.get(key).cloned());
        section.titled(&format!("model: {}", known.name))
    }

    /// `model.model_type`, which says whose keys the section has, is no field of any.
    fn after_the_model_type(self, models: &Models) -> Self {
        let mut section = self.titled("model");
        let of = |(place, known): (usize, &ModelType)| {
            let keys = match place {
                0 => "with the keys of this table".to_string(),
                _ => format!("with [its own](#model-{})", known.name),
            };
            (known.name.to_string(), format!("{}, {keys}.", known.title))
        };
        let key = Key {
            name: "model_type".into(),
            kind: "text".into(),
            default: Some(models.types()[0].name.into()),
            elsewhere: Vec::new(),
            range: None,
            values: models.types().iter().enumerate().map(of).collect(),
            text: "The model. It decides which of the other keys there are.".into(),
        };
        section.keys.insert(0, key);
        section
    }

    /// Notes defaults that differ from a key's own.
    fn add_defaults(&mut self, place: &'static str, config: &Value) {
        for (name, value) in flatten(&config[&self.name]) {
            let key = self.keys.iter_mut().find(|key| key.name == name);
            if let Some(key) = key.filter(|key| key.default.as_ref() != Some(&value)) {
                key.elsewhere.push((place, value));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MODELS;

    fn all() -> Vec<(String, Key)> {
        let every = sections(&MODELS).into_iter().chain(sweep_sections()).chain(study_sections());
        every.flat_map(|s| s.keys.into_iter().map(move |k| (format!("{}: {}", s.title, k.name), k))).collect()
    }

    /// What a text says beyond the name of its key.
    const WORDS: usize = 4;

    #[test]
    fn every_key_says_what_it_is_for() {
        for (name, key) in all() {
            let words = key.text.split_whitespace().count();
            assert!(words >= WORDS, "{name}: a doc comment of {words} words says nothing: {}", key.text);
            for (value, text) in &key.values {
                assert!(!text.is_empty(), "{name}: the value {value} has no doc comment");
            }
            let numeric = ["integer", "number"].contains(&key.kind.as_str());
            assert!(!numeric || key.range.is_some(), "{name}: a number needs a Range, were it Range::any()");
        }
        for section in sections(&MODELS) {
            assert!(section.text.split_whitespace().count() >= WORDS, "{}: {}", section.title, section.text);
        }
    }

    /// The list is complete, in both directions, and in the order of the structs.
    #[test]
    fn sections_are_those_of_the_configuration() {
        let mut expected: Vec<String> = Vec::new();
        for known in MODELS.types() {
            let all = flatten(&Config::default_with(&MODELS, (known.default)()).to_json());
            expected.extend(all.into_iter().map(|(key, _)| key));
        }
        let mut named: Vec<String> = Vec::new();
        for section in sections(&MODELS) {
            named.extend(section.keys.iter().map(|key| format!("{}.{}", section.name, key.name)));
            for key in &section.keys {
                assert!(key.default.is_some(), "{}.{} has no default", section.name, key.name);
            }
        }
        for list in [&mut expected, &mut named] {
            list.sort();
            list.dedup();
        }
        assert_eq!(named, expected);
        let train = sections(&MODELS).into_iter().find(|section| section.name == "train").unwrap();
        let first: Vec<&str> = train.keys.iter().take(4).map(|key| key.name.as_str()).collect();
        assert_eq!(first, ["steps", "init_from", "stop_at", "time_limit"]);
    }

    #[test]
    fn a_key_is_described_from_its_declaration() {
        let find = |title: &str, name: &str| {
            let section = sections(&MODELS).into_iter().find(|section| section.title == title).unwrap();
            section.keys.into_iter().find(|key| key.name == name).unwrap()
        };
        let lanes = find("train", "lanes");
        assert_eq!(
            (lanes.kind.as_str(), lanes.default, lanes.range.as_deref()),
            ("integer", Some(8.into()), Some("1 to 2²⁴"))
        );
        assert_eq!(lanes.elsewhere, [("fine-tuning", 32.into())]);
        let model = find("model", "model_type");
        assert_eq!((model.default, model.values.len()), (Some("plain".into()), 2));
        assert_eq!(find("model: paired", "reuse_len").default, Some(256.into()));
        assert_eq!(find("model", "cutoffs").kind, "list of integers");
        assert_eq!(find("data", "order").elsewhere, [("Paired", "pairs".into())]);
        assert_eq!(find("optim", "layer_decay").range.as_deref(), Some("(0, 1]"));
    }

    #[test]
    fn a_sweep_has_tables_in_tables() {
        let all = sweep_sections();
        let titles: Vec<&str> = all.iter().map(|section| section.title.as_str()).collect();
        let evaluate = ["", "[evaluate]", "[evaluate.memory]", "[evaluate.window]", "[evaluate.protocols]"];
        let within = ["[[cell]]", "[cell.published]"];
        assert_eq!(titles, [&evaluate[..], &within, &["[[axis]]", "[[axis.values]]", "[[expect]]"]].concat());
        let default = |title: &str, name: &str| {
            let section = all.iter().find(|section| section.title == title).unwrap();
            section.keys.iter().find(|key| key.name == name).unwrap().default.clone()
        };
        assert_eq!(default("", "recipe"), None);
        assert_eq!(default("", "seeds"), Some(serde_json::json!([1, 2, 3])));
        assert_eq!(default("[evaluate.memory]", "init"), Some(Value::Null));
        assert_eq!(default("[[expect]]", "at"), Some("best".into()));
    }
}
