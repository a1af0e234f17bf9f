//! Dotted names of keys, and what is done with them wherever configurations are read.

use serde_json::{Map, Value};

use crate::{ConfigError, foreign};

/// Keys this similar (Jaro-Winkler, 0 to 1) are worth suggesting.
const SIMILAR: f64 = 0.8;

/// The key as a JSON pointer.
pub(crate) fn pointer(key: &str) -> String {
    format!("/{}", key.replace('.', "/"))
}

/// Refuses assignments of a folder to runs that have one each.
pub(crate) fn check_folders(assignments: &[String]) -> Result<(), ConfigError> {
    match assignments.iter().find_map(|text| text.strip_prefix("run.dir=")) {
        None => Ok(()),
        Some(folder) => {
            let why = "each run has a folder of its own\nhint: give --output for all of them";
            Err(ConfigError::OutOfRange { key: "run.dir".into(), value: folder.into(), why: why.into() })
        }
    }
}

/// A value as an override has it.
pub(crate) fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A nested table as `key=value` texts.
pub(crate) fn assignments(set: &Map<String, Value>) -> Vec<String> {
    let all = flatten(&Value::Object(set.clone()));
    all.iter().map(|(key, value)| format!("{key}={}", text_of(value))).collect()
}

/// Leaves of a nested object by dotted name, in order. Lists are leaves.
pub(crate) fn flatten(value: &Value) -> Vec<(String, Value)> {
    fn walk(prefix: &str, value: &Value, out: &mut Vec<(String, Value)>) {
        match value {
            Value::Object(fields) => {
                for (name, inner) in fields {
                    let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
                    walk(&key, inner, out);
                }
            }
            leaf => out.push((prefix.to_string(), leaf.clone())),
        }
    }
    let mut out = Vec::new();
    walk("", value, &mut out);
    out
}

/// The known key that is most like one that is not known, where one is like it. `tunes`: whether it is a setting of fine-tuning.
pub(crate) fn nearest(key: &str, known: &[String], tunes: bool) -> Option<String> {
    // A family may have no such setting.
    let is_here = |found: &&str| known.iter().any(|key| found.split('=').next() == Some(key));
    if let Some(key) = foreign::key_of(key, tunes).filter(is_here) {
        return Some(key.into());
    }
    let score = |candidate: &String| {
        // A right name in the wrong section is as good a hint as a near miss.
        let last = |k: &str| k.rsplit('.').next().map(str::to_string);
        if last(candidate) == last(key) { 1.0 } else { strsim::jaro_winkler(key, candidate) }
    };
    known
        .iter()
        .map(|candidate| (score(candidate), candidate))
        .filter(|(similarity, _)| *similarity >= SIMILAR)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate.clone())
}
