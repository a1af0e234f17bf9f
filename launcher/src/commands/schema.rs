//! `segue schema`: what editors complete and check recipes, sweeps and studies by.

use clap::{Args, ValueEnum};
use segue_configs::schema;
use segue_families::MODELS;
use serde_json::{Value, json};

use super::print_text;
use crate::failure::Failure;

/// Arguments of `segue schema`.
#[derive(Args)]
#[command(after_help = "\
    An editor with a language server for TOML (taplo, Even Better TOML) looks for it beside a recipe, by its first line: \
    `#:schema recipe.schema.json`; of sweeps and studies by sweep.schema.json and study.schema.json.\n\n\
    Example:\n  \
    segue schema recipe > recipe.schema.json")]
pub struct SchemaArgs {
    /// File that the schema is of.
    #[arg(value_enum, default_value_t = Kind::Recipe)]
    of: Kind,
}

/// Kinds of files.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    /// A recipe: the configuration of a run.
    Recipe,
    /// A sweep: a table of runs.
    Sweep,
    /// A study: a search of `segue tune`.
    Study,
}

impl Kind {
    fn schema(self) -> Value {
        match self {
            Self::Recipe => schema::of_recipe(&MODELS),
            Self::Sweep => schema::of_sweep(&MODELS),
            Self::Study => schema::of_study(&MODELS),
        }
    }
}

/// Prints the schema.
pub fn run(args: &SchemaArgs, json: bool) -> Result<Value, Failure> {
    let schema = args.of.schema();
    if !json {
        print_text(format!("{schema:#}\n").as_bytes())?;
    }
    Ok(json!({ "schema": schema }))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    /// The first place where `value` is not as `schema` has it, by the words that these schemas use.
    fn fault(schema: &Value, value: &Value, place: &str) -> Option<String> {
        if let Some(several) = schema["anyOf"].as_array().or(schema["oneOf"].as_array()) {
            let fits = several.iter().any(|one| fault(one, value, place).is_none());
            return (!fits).then(|| format!("{place}: {value} fits none"));
        }
        let is_of = |kind: &str| match kind {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            _ => value.is_null(),
        };
        let kinds: Vec<&str> = match &schema["type"] {
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
            kind => kind.as_str().into_iter().collect(),
        };
        let known =
            schema.get("const").map(std::slice::from_ref).or(schema["enum"].as_array().map(Vec::as_slice));
        if !kinds.is_empty() && !kinds.iter().any(|kind| is_of(kind))
            || known.is_some_and(|all| !all.contains(value))
        {
            return Some(format!("{place}: {value}"));
        }
        let beyond = |word: &str, is: fn(f64, f64) -> bool| {
            value.as_f64().zip(schema[word].as_f64()).is_some_and(|(value, bound)| is(value, bound))
        };
        if beyond("minimum", |x, low| x < low) || beyond("maximum", |x, high| x > high) {
            return Some(format!("{place}: {value} is out of range"));
        }
        let of_key = |(key, value): (&String, &Value)| {
            let place = format!("{place}.{key}");
            match (&schema["properties"][key], &schema["additionalProperties"]) {
                (Value::Null, Value::Bool(false)) => Some(format!("{place}: unknown")),
                (Value::Null, Value::Null | Value::Bool(true)) => None,
                (Value::Null, other) => fault(other, value, &place),
                (own, _) => fault(own, value, &place),
            }
        };
        let missing =
            |name: &&Value| value.is_object() && name.as_str().is_some_and(|name| value.get(name).is_none());
        if let Some(name) = schema["required"].as_array().into_iter().flatten().find(missing) {
            return Some(format!("{place}: {name} is missing"));
        }
        let of_item = |value: &Value| fault(&schema["items"], value, place);
        let items = value.as_array().into_iter().flatten().find_map(of_item);
        items.or_else(|| value.as_object().into_iter().flatten().find_map(of_key))
    }

    fn files(folder: &str) -> Vec<PathBuf> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs").join(folder);
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|found| found == "toml")).collect()
    }

    fn read(path: &Path) -> Value {
        toml::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    }

    #[test]
    fn every_shipped_file_is_as_its_schema_has_it() {
        for (kind, folder) in [(Kind::Recipe, "recipes"), (Kind::Sweep, "sweeps"), (Kind::Study, "studies")] {
            let (schema, files) = (kind.schema(), files(folder));
            assert!(!files.is_empty());
            for file in files {
                assert_eq!(fault(&schema, &read(&file), ""), None, "{}", file.display());
            }
        }
    }

    /// A language server looks for the schema beside the file, wherever that was copied to.
    #[test]
    fn every_shipped_file_names_its_schema_in_its_first_line() {
        for (kind, folder) in [("recipe", "recipes"), ("sweep", "sweeps"), ("study", "studies")] {
            for file in files(folder) {
                let text = fs::read_to_string(&file).unwrap();
                let first = format!("#:schema {kind}.schema.json");
                assert_eq!(text.lines().next(), Some(first.as_str()), "{}", file.display());
            }
        }
    }

    #[test]
    fn what_a_sweep_or_a_study_cannot_do_without_is_required() {
        for kind in [Kind::Sweep, Kind::Study] {
            let schema = kind.schema();
            let required: Vec<&str> =
                schema["required"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
            assert!(required.contains(&"name") && !required.contains(&"output"), "{required:?}");
            assert!(fault(&schema, &json!({}), "").is_some());
        }
        assert!(Kind::Recipe.schema().get("required").is_none());
    }

    #[test]
    fn a_slip_in_any_section_is_found() {
        let schema = Kind::Recipe.schema();
        let sections = schema["properties"].as_object().unwrap();
        assert!(sections.len() > 14, "{}", sections.len());
        for section in sections.keys() {
            let slip = json!({ section: { "no_such_key": 1 } });
            assert!(fault(&schema, &slip, "").is_some(), "{section}");
        }
        for slip in [
            json!({ "model": { "model_type": "transformer" } }),
            json!({ "train": { "steps": "many" } }),
            json!({ "train": { "lanes": 0 } }),
            json!({ "schedule": { "kind": "cosin" } }),
            json!({ "trian": {} }),
        ] {
            assert!(fault(&schema, &slip, "").is_some(), "{slip}");
        }
        let networks =
            json!({ "model": { "model_type": "moment-game" }, "optim": { "critic": { "lr": 0.1 } } });
        assert_eq!(fault(&schema, &networks, ""), None);
    }
}
