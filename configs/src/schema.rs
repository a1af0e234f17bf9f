//! JSON schemas (draft 2020-12) of recipes, sweeps and studies: editors complete and check TOML by them.

use serde_json::{Map, Value, json};

use crate::merge::OF_NETWORKS;
use crate::models::Models;
use crate::{Config, study, sweep};

/// The name of the table in a sweep that holds parts of a recipe.
const PART: &str = "set";

/// That of a recipe: every section with the keys that any of `models` has in it.
pub fn of_recipe(models: &Models) -> Value {
    let mut sections = Map::new();
    for (name, schema) in Config::schemas() {
        add(&mut sections, name, schema);
    }
    for known in models.types() {
        add(&mut sections, "model", (known.schema)());
        known.sections.iter().for_each(|own| add(&mut sections, own.name, (own.schema)()));
    }
    let names: Vec<&str> = models.types().iter().map(|known| known.name).collect();
    sections["model"]["properties"]["model_type"] =
        json!({ "enum": names, "description": "The model. It decides which of the other keys there are." });
    for (before, now) in models.types().iter().flat_map(|known| known.moved) {
        if let Some((section, key)) = before.split_once('.') {
            sections[section]["properties"][key] =
                json!({ "deprecated": true, "description": format!("It is called `{now}` now.") });
        }
    }
    for name in OF_NETWORKS {
        let own = sections[name].clone();
        for network in models.types().iter().flat_map(|known| known.networks) {
            sections[name]["properties"][*network] = own.clone();
        }
    }
    // Files leave out what is to be at its default, and schemas of what is written name all of it.
    let sections = with_required(Value::Object(sections), &|_| false);
    titled(
        "Recipe of Segue",
        json!({ "type": "object", "properties": sections, "additionalProperties": false }),
    )
}

/// That of a sweep.
pub fn of_sweep(models: &Models) -> Value {
    titled("Sweep of Segue", with_parts(with_required(sweep::schema(), &is_needed), &of_recipe(models)))
}

/// That of a study.
pub fn of_study(models: &Models) -> Value {
    titled("Study of Segue", with_parts(with_required(study::schema(), &is_needed), &of_recipe(models)))
}

fn titled(title: &str, mut schema: Value) -> Value {
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = title.into();
    schema
}

/// Adds the keys of a section to those that it has of other families. A key that two have differently is as either has it.
fn add(sections: &mut Map<String, Value>, name: &str, schema: &Value) {
    let section = sections.entry(name).or_insert_with(|| {
        json!({ "type": "object", "description": schema["description"], "properties": {}, "additionalProperties": false })
    });
    for (key, own) in schema["properties"].as_object().into_iter().flatten() {
        let known = &mut section["properties"][key];
        if known.is_null() {
            *known = own.clone();
        } else if let Some(several) = known.get_mut("anyOf").and_then(Value::as_array_mut) {
            if !several.contains(own) {
                several.push(own.clone());
            }
        } else if known != own {
            *known = json!({ "anyOf": [known.take(), own] });
        }
    }
}

/// A schema whose tables `set`, at any depth, are parts of a recipe.
fn with_parts(mut schema: Value, recipe: &Value) -> Value {
    match &mut schema {
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                let is_part = name == PART && value["type"] == "object";
                *value = if is_part { recipe.clone() } else { with_parts(value.take(), recipe) };
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| *value = with_parts(value.take(), recipe)),
        _ => {}
    }
    schema
}

/// Whether a file has to have a key with this schema: it has no default and cannot be absent. Tables and lists can be empty.
fn is_needed(property: &Value) -> bool {
    let options = property["anyOf"].as_array().into_iter().flatten();
    let may_be_absent = options.chain([property]).any(|option| match &option["type"] {
        Value::Array(kinds) => kinds.contains(&"null".into()),
        kind => ["null", "object", "array"].iter().any(|absent| kind == absent),
    });
    property.get("default").is_none() && !may_be_absent
}

/// A schema whose tables require, of the keys that they list so, those that are `needed`.
fn with_required(mut schema: Value, needed: &dyn Fn(&Value) -> bool) -> Value {
    match &mut schema {
        Value::Object(fields) => {
            if let Some(Value::Array(names)) = fields.get("required").cloned() {
                let all = fields.get("properties").cloned().unwrap_or_default();
                let is_needed = |name: &Value| name.as_str().is_some_and(|name| needed(&all[name]));
                let names: Vec<Value> = names.into_iter().filter(is_needed).collect();
                match names.is_empty() {
                    true => _ = fields.remove("required"),
                    false => fields["required"] = names.into(),
                }
            }
            fields.values_mut().for_each(|value| *value = with_required(value.take(), needed));
        }
        Value::Array(values) => {
            values.iter_mut().for_each(|value| *value = with_required(value.take(), needed))
        }
        _ => {}
    }
    schema
}
