//! The numbers in a row of `metrics.jsonl`, by name.

use serde_json::Value;

/// Keys of a row that say which row it is.
const PLACE: [&str; 3] = ["kind", "step", "attempt"];

/// The numbers of a row with their names, those of objects and lists in it too: `loss`, `without_memory/loss`,
/// `scores/sst2/dev/accuracy`.
pub fn numbers(row: &Value) -> Vec<(String, f64)> {
    let mut found = Vec::new();
    if let Some(row) = row.as_object() {
        row.iter()
            .filter(|(key, _)| !PLACE.contains(&key.as_str()))
            .for_each(|(key, value)| add(key, value, &mut found));
    }
    found
}

fn add(name: &str, value: &Value, found: &mut Vec<(String, f64)>) {
    match value {
        Value::Number(number) => found.extend(number.as_f64().map(|number| (name.to_string(), number))),
        Value::Object(inner) => {
            inner.iter().for_each(|(key, value)| add(&format!("{name}/{key}"), value, found))
        }
        Value::Array(inner) => inner.iter().for_each(|element| add_element(name, element, found)),
        _ => {}
    }
}

/// An element of a list goes by the name that it tells; a list of what has none is not a curve.
fn add_element(list: &str, element: &Value, found: &mut Vec<(String, f64)>) {
    if let (Some(name), Some(value)) = (element["name"].as_str(), element["value"].as_f64()) {
        // A list of metrics is told by who has it.
        let of = list.strip_suffix("/metrics").unwrap_or(list);
        found.push((format!("{of}/{name}"), value));
    } else if let (Some(task), Some(split)) = (element["task"].as_str(), element["split"].as_str()) {
        add(&format!("{list}/{task}/{split}"), element, found);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_go_by_the_names_on_their_way() {
        let row = json!({
            "kind": "eval", "step": 3, "attempt": 1, "value": 0.5, "best": true, "ids": [1, 2],
            "without_memory": { "loss": 2.0 },
            "scores": [{ "task": "sst2", "split": "dev", "count": 60, "metrics": [{ "name": "accuracy", "value": 0.9 }] }],
        });
        let mut found = numbers(&row);
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let expected = [
            ("scores/sst2/dev/accuracy", 0.9),
            ("scores/sst2/dev/count", 60.0),
            ("value", 0.5),
            ("without_memory/loss", 2.0),
        ];
        assert_eq!(found, expected.map(|(name, value)| (name.to_string(), value)));
    }
}
