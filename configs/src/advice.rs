//! Advice in reasons.
//!
//! Reasons are made deep inside the crates and end as a field of an error. One that comes with advice is
//! `"the fact\nhint: the advice"`: errors show the fact, and give the advice away by their method `hint`.

const MARK: &str = "\nhint: ";

/// The reason without its advice.
///
/// ```
/// use segue_configs::advice::fact;
/// assert_eq!(fact("it is not empty\nhint: choose another folder"), "it is not empty");
/// ```
pub fn fact(reason: &str) -> &str {
    reason.split_once(MARK).map_or(reason, |(fact, _)| fact)
}

/// A reason out of an error and its hint, for an error that says more about the place.
pub fn joined(error: &impl std::fmt::Display, hint: Option<String>) -> String {
    match hint {
        Some(hint) => format!("{error}{MARK}{hint}"),
        None => error.to_string(),
    }
}

/// The advice of a reason, where it has any.
///
/// ```
/// use segue_configs::advice::hint;
/// assert_eq!(hint("it is not empty\nhint: choose another folder").unwrap(), "choose another folder");
/// assert_eq!(hint("it is not empty"), None);
/// ```
pub fn hint(reason: &str) -> Option<String> {
    reason.split_once(MARK).map(|(_, hint)| hint.to_owned())
}
