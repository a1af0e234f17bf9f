use std::collections::BTreeSet;

/// Checks that there are names and that none occurs twice. `what` they are, in words.
pub fn check_unique(what: &str, names: impl Iterator<Item = String>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name.clone()) {
            return Err(format!("{what}: `{name}` occurs twice"));
        }
    }
    if seen.is_empty() { Err(format!("{what}: there is none\nhint: give at least one")) } else { Ok(()) }
}
