//! The tables of a file that is no recipe, for the reference.

use schemars::JsonSchema;
use serde_json::Value;

use crate::range::schema_of;
use crate::section::Section;

/// Every table of a file that is read as a `T`, the top of the file first.
pub(crate) fn sections_of<T: JsonSchema + 'static>() -> Vec<Section> {
    let mut all = Vec::new();
    walk("", "", schema_of::<T>(), &mut all);
    all
}

/// The table of this name, and those in it. Its title is the name as a file has it: `[name]`, `[[name]]`.
fn walk(name: &str, title: &str, schema: &Value, all: &mut Vec<Section>) {
    let written = schema["required"].as_array();
    let mut section = Section::of_schema(name, schema, |key, property| {
        let optional = property["type"][1] == "null" || !written.is_some_and(|all| all.contains(&key.into()));
        property.get("default").cloned().or(optional.then_some(Value::Null))
    });
    let mut inner = Vec::new();
    section.keys.retain(|key| match table_of(&schema["properties"][&key.name]) {
        Some((table, many)) => {
            inner.push((key.name.clone(), key.text.clone(), table, many));
            false
        }
        None => true,
    });
    section.title = title.into();
    all.push(section);
    for (key, text, table, many) in inner {
        let name = if name.is_empty() { key } else { format!("{name}.{key}") };
        let title = if many { format!("[[{name}]]") } else { format!("[{name}]") };
        let at = all.len();
        walk(&name, &title, table, all);
        // What a table is for is said where it stands.
        all[at].text = text;
    }
}

/// The schema of a table or of the tables of a list, and which of both it is; none of a key with a value.
fn table_of(property: &Value) -> Option<(&Value, bool)> {
    let alone = |schema: &'_ Value| schema["properties"].is_object();
    let options = property["anyOf"].as_array().into_iter().flatten();
    if let Some(table) = options.chain([property]).find(|schema| alone(schema)) {
        return Some((table, false));
    }
    Some((&property["items"], true)).filter(|(items, _)| alone(items))
}
