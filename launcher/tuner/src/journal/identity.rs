//! In which values two studies differ.

use std::collections::BTreeSet;

use serde_json::Value;

/// Values that a message names; it counts the rest.
const NAMED: usize = 4;

/// In words; empty where nothing is known of one of them.
pub(super) fn differences(was: Option<&Value>, is: &Value) -> String {
    let mut found = Vec::new();
    was.iter().for_each(|was| compare("", was, is, &mut found));
    let more = found.len().saturating_sub(NAMED);
    found.truncate(NAMED);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    found.join(", ") + &rest
}

fn compare(key: &str, was: &Value, is: &Value, found: &mut Vec<String>) {
    match (was, is) {
        (Value::Object(a), Value::Object(b)) => {
            for name in a.keys().chain(b.keys()).collect::<BTreeSet<_>>() {
                let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                let at = |of: &serde_json::Map<String, Value>| of.get(name).cloned().unwrap_or_default();
                compare(&key, &at(a), &at(b), found);
            }
        }
        _ if was == is => {}
        (Value::Array(_) | Value::Object(_), _) | (_, Value::Array(_) | Value::Object(_)) => {
            found.push(format!("`{key}` differs"));
        }
        _ => found.push(format!("`{key}` was {was} and is {is}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_that_differ_are_named_and_the_rest_counted() {
        let was = json!({ "train": { "steps": 20, "lanes": 8 }, "parameters": [1], "stop": null, "a": 1, "b": 1, "c": 1 });
        let is = json!({ "train": { "steps": 30, "lanes": 8 }, "parameters": [2], "stop": { "turn": 3 }, "a": 1, "b": 2 });
        let expected =
            "`b` was 1 and is 2, `c` was 1 and is null, `parameters` differs, `stop` differs and 1 more";
        assert_eq!(differences(Some(&was), &is), expected);
        let only = json!({ "train": { "steps": 30 } });
        assert_eq!(
            differences(Some(&json!({ "train": { "steps": 20 } })), &only),
            "`train.steps` was 20 and is 30"
        );
        assert_eq!(differences(None, &is), "");
    }
}
