//! What goes into the script of a batch job: words of its directives, and words of the shell.

use crate::ClusterError;

/// Stands in a word of the job for the number of the job in its array.
pub const INDEX: &str = "{index}";

/// Refuses a text that is not one word of a directive: each system has its own way with blanks, quotes, backslashes and number signs. LSF makes an
/// array of a name with brackets.
pub fn one_word(what: &str, text: &str) -> Result<(), ClusterError> {
    let ends = |c: char| c.is_whitespace() || c.is_control() || "\"'`\\#[]".contains(c);
    let why = match text.chars().find(|c| ends(*c)) {
        None if !text.is_empty() => return Ok(()),
        None => "is empty".into(),
        Some(c) => format!("{text:?} holds {c:?}, which does not go into a directive"),
    };
    Err(unusable(format!(
        "its {what} {why}\nhint: write it with letters, digits and signs such as . _ - / %"
    )))
}

/// A word for the shell, which gets it as it is.
pub fn quoted(word: &str) -> Result<String, ClusterError> {
    let quoted = shlex::try_quote(word).map_err(|_| unusable(format!("{word:?} holds a NUL")))?;
    Ok(quoted.into_owned())
}

/// A word for the shell, with the variable `index` for each [`INDEX`] in it: what is around them is quoted by itself.
pub fn numbered(word: &str, index: &str) -> Result<String, ClusterError> {
    if !word.contains(INDEX) {
        return quoted(word);
    }
    let parts = word.split(INDEX).map(|part| if part.is_empty() { Ok(String::new()) } else { quoted(part) });
    Ok(parts.collect::<Result<Vec<String>, _>>()?.join(&format!("\"${{{index}}}\"")))
}

/// A script that cannot be made.
pub fn unusable(what: String) -> ClusterError {
    ClusterError::Template { what }
}
