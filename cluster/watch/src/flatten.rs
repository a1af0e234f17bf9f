//! The numbers in a row of `metrics.jsonl`, by name.

use serde_json::Value;

/// Keys of a row that say which row it is.
const PLACE: [&str; 3] = ["kind", "step", "attempt"];

/// Longest name, in bytes. Those of rows have dozens; a name that a file makes up is repeated for each number below it.
pub const LONGEST_NAME: usize = 256;
/// Most numbers of a row. Those of rows are a hundred or so.
pub const MOST_NUMBERS: usize = 1024;

/// What is found in a row.
#[derive(Debug, Default, PartialEq)]
pub struct Numbers {
    /// Numbers with their names.
    pub values: Vec<(String, f64)>,
    /// How many more there are, beyond [`MOST_NUMBERS`] or with names longer than [`LONGEST_NAME`].
    pub left_out: usize,
}

/// The numbers of a row with their names, those of objects and lists in it too: `loss`, `without_memory/loss`,
/// `scores/sst2/dev/accuracy`.
pub fn numbers(row: &Value) -> Numbers {
    let mut found = Numbers::default();
    for (key, value) in
        row.as_object().into_iter().flatten().filter(|(key, _)| !PLACE.contains(&key.as_str()))
    {
        found.add(Some(key).filter(|key| key.len() <= LONGEST_NAME), value);
    }
    found
}

/// The name of what `key` is in what `name` is; `None` where it would be too long.
fn below(name: Option<&str>, key: &str) -> Option<String> {
    let name = name.filter(|name| name.len() + 1 + key.len() <= LONGEST_NAME)?;
    Some(format!("{name}/{key}"))
}

impl Numbers {
    fn push(&mut self, name: Option<String>, value: f64) {
        match name.filter(|_| self.values.len() < MOST_NUMBERS) {
            Some(name) => self.values.push((name, value)),
            None => self.left_out += 1,
        }
    }

    fn add(&mut self, name: Option<impl AsRef<str>>, value: &Value) {
        let name = name.as_ref().map(AsRef::as_ref);
        match value {
            Value::Number(number) => {
                number.as_f64().into_iter().for_each(|number| self.push(name.map(String::from), number));
            }
            Value::Object(inner) => inner.iter().for_each(|(key, value)| self.add(below(name, key), value)),
            Value::Array(inner) => inner.iter().for_each(|element| self.add_element(name, element)),
            _ => {}
        }
    }

    /// An element of a list goes by the name that it tells; a list of what has none is not a curve.
    fn add_element(&mut self, list: Option<&str>, element: &Value) {
        if let (Some(name), Some(value)) = (element["name"].as_str(), element["value"].as_f64()) {
            // A list of metrics is told by who has it.
            let of = list.map(|list| list.strip_suffix("/metrics").unwrap_or(list));
            self.push(below(of, name), value);
        } else if let (Some(task), Some(split)) = (element["task"].as_str(), element["split"].as_str()) {
            self.add(below(below(list, task).as_deref(), split), element);
        }
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
        let Numbers { values: mut found, left_out } = numbers(&row);
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let expected = [
            ("scores/sst2/dev/accuracy", 0.9),
            ("scores/sst2/dev/count", 60.0),
            ("value", 0.5),
            ("without_memory/loss", 2.0),
        ];
        assert_eq!(found, expected.map(|(name, value)| (name.to_string(), value)));
        assert_eq!(left_out, 0);
    }

    #[test]
    fn a_row_has_so_many_numbers_with_names_so_long_and_says_how_many_more() {
        let long = |length: usize| "n".repeat(length);
        let many: serde_json::Map<String, Value> = (0..2000).map(|i| (i.to_string(), json!(i))).collect();
        for (row, kept, left_out) in [
            (json!({ long(LONGEST_NAME): 1, long(LONGEST_NAME + 1): 2 }), 1, 1),
            (json!({ long(200): { long(55): 1, long(56): 2, "a": { "b": 3, "c": { "d": 4 } } } }), 3, 1),
            (json!({ long(300): { "name": "a", "b": [{ "name": "c", "value": 1 }] } }), 0, 1),
            (json!({ "a": [{ "task": long(300), "split": "dev", "count": 1, "more": { "b": 2 } }] }), 0, 2),
            (json!({ "a": [{ "name": long(300), "value": 1 }, { "name": "b", "value": 2 }] }), 1, 1),
            (json!({ "a": many }), MOST_NUMBERS, 2000 - MOST_NUMBERS),
        ] {
            let found = numbers(&row);
            assert_eq!((found.values.len(), found.left_out), (kept, left_out), "{row}");
            assert!(found.values.iter().all(|(name, _)| name.len() <= LONGEST_NAME));
        }
    }
}
