//! Keys of the configuration as Markdown.

use segue_configs::reference::{Key, Section};
use serde_json::Value;

use super::markdown::{head, row, sentence, text, wrapped};

/// A table for each section, under a line with its title.
pub fn tables(all: &[Section]) -> String {
    let title = |section: &Section| match section.title.as_str() {
        "" => String::new(),
        title => format!("\n`{title}`: "),
    };
    let mut out = String::new();
    for section in all {
        let name = title(section);
        let text = lower_first(&section.text);
        out.push_str(&if name.is_empty() {
            table(section)
        } else {
            name + &table(&Section { text, ..section.clone() })
        });
    }
    out
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().collect::<String>() + chars.as_str())
}

/// The text of a section and its keys.
pub fn table(section: &Section) -> String {
    let paragraphs = section.text.lines().map(|paragraph| wrapped(&text(paragraph)));
    let mut out: String = paragraphs.map(|paragraph| paragraph + "\n").collect();
    out.push_str(&head(&["key", "type", "default", "range", "meaning"]));
    for key in &section.keys {
        let name = match section.name.as_str() {
            "" => key.name.clone(),
            section => format!("{section}.{}", key.name),
        };
        let range = key.range.clone().unwrap_or_default();
        out.push_str(&row(&[format!("`{name}`"), key.kind.clone(), default(key), range, meaning(key)]));
    }
    out
}

/// The default, and what else holds elsewhere.
fn default(key: &Key) -> String {
    let own = key.default.as_ref().map_or("required".to_string(), value);
    let elsewhere = key.elsewhere.iter().map(|(place, other)| format!("; *{place}*: {}", value(other)));
    own + &elsewhere.collect::<String>()
}

fn value(value: &Value) -> String {
    match value {
        Value::Null => "not set".into(),
        Value::String(text) if text.is_empty() => "none".into(),
        Value::String(text) => format!("`{text}`"),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Object(fields) if fields.is_empty() => "none".into(),
        other => format!("`{other}`"),
    }
}

/// The text of a key, and of each value that it may have.
fn meaning(key: &Key) -> String {
    let values = key.values.iter().map(|(name, meaning)| format!(" `{name}`: {}", sentence(&text(meaning))));
    let whole: String = text(&key.text.replace('\n', " "));
    sentence(&whole) + &values.collect::<String>()
}
