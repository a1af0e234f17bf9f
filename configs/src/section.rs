//! A table of a configuration file as its struct declares it.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::range::{describe, schema_of};

/// A table of a configuration file.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// Dotted name before its keys; empty for the top of a file.
    pub name: String,
    /// Heading in the reference: the name, and which of several sections of that name.
    pub title: String,
    /// What it is for.
    pub text: String,
    /// Its keys, in their order.
    pub keys: Vec<Key>,
}

/// One key.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    /// Name within the section.
    pub name: String,
    /// Type in words: `integer`, `list of texts`.
    pub kind: String,
    /// The value where nothing is set; none where the key is required.
    pub default: Option<Value>,
    /// Defaults that hold elsewhere, such as in fine-tuning, with where.
    pub elsewhere: Vec<(&'static str, Value)>,
    /// The range of a number.
    pub range: Option<String>,
    /// The values of an enum, each with what it means.
    pub values: Vec<(String, String)>,
    /// What it means.
    pub text: String,
}

impl Section {
    pub(crate) fn of<T: JsonSchema + Serialize + 'static>(name: &str, defaults: &T) -> Self {
        let defaults = serde_json::to_value(defaults).unwrap_or_default();
        Self::of_schema(name, schema_of::<T>(), |key, _| defaults.get(key).cloned())
    }

    /// `default_of` tells the default of a key with this schema.
    pub(crate) fn of_schema(
        name: &str,
        schema: &Value,
        default_of: impl Fn(&str, &Value) -> Option<Value>,
    ) -> Self {
        // Properties are sorted by name; `required` has those of which a value is always written, in their order.
        let ordered = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let mut names: Vec<&str> = ordered.collect();
        let all = schema["properties"].as_object().into_iter().flatten();
        for (key, _) in all {
            if !names.contains(&key.as_str()) {
                names.push(key);
            }
        }
        let keys = names.iter().map(|key| {
            let property = &schema["properties"][key];
            Key::of(key, property, default_of(key, property))
        });
        Self { name: name.into(), title: name.into(), text: text_of(schema), keys: keys.collect() }
    }

    pub(crate) fn titled(self, title: &str) -> Self {
        Self { title: title.into(), ..self }
    }
}

impl Key {
    fn of(name: &str, property: &Value, default: Option<Value>) -> Self {
        let values = values_of(property);
        // A value that has a number too is written by its name.
        let default =
            default.map(|value| match value.as_u64().and_then(|number| values.get(number as usize)) {
                Some((name, _)) => name.clone().into(),
                None => value,
            });
        Self {
            name: name.into(),
            kind: if values.is_empty() { kind_of(property) } else { "text".into() },
            default,
            elsewhere: Vec::new(),
            range: describe(property),
            values,
            text: text_of(property),
        }
    }
}

/// A doc comment as one paragraph a line.
fn text_of(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    let lines = |paragraph: &str| paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    text.split("\n\n").map(lines).collect::<Vec<_>>().join("\n")
}

fn values_of(property: &Value) -> Vec<(String, String)> {
    let named = |value: &Value| Some((value["const"].as_str()?.to_string(), text_of(value)));
    property["oneOf"].as_array().into_iter().flatten().filter_map(named).collect()
}

fn kind_of(property: &Value) -> String {
    let name = match &property["type"] {
        Value::Array(several) => several.iter().find(|name| *name != "null").unwrap_or(&Value::Null),
        name => name,
    };
    match name.as_str().unwrap_or_default() {
        "array" => format!("list of {}s", kind_of(&property["items"])),
        "string" => "text".into(),
        "object" => "table".into(),
        "" if !values_of(property).is_empty() => "text".into(),
        name => name.into(),
    }
}
