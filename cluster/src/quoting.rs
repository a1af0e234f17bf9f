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

/// Refuses [`INDEX`] in a directive that all jobs of an array share.
pub fn without_index(what: &str, text: &str) -> Result<(), ClusterError> {
    if !text.contains(INDEX) {
        return Ok(());
    }
    Err(unusable(format!(
        "its {what} {text:?} holds {INDEX}, and all jobs of an array share it\nhint: leave {INDEX} out of it; the command, --setup and --log may hold it"
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

/// Shell code, with the variable `index` for each [`INDEX`] in it, in quotes or not. `${index}`, a variable of the code's own, stays, and so does what
/// stands behind a backslash or in a comment.
pub fn numbered_code(code: &str, index: &str) -> String {
    let (mut made, mut rest) = (String::with_capacity(code.len()), code);
    let (mut quote, mut before) = (None, '\n');
    while let Some(c) = rest.chars().next() {
        let taken = match (quote, c) {
            (None, '#') if before.is_whitespace() || ";&|()".contains(before) => {
                rest.find('\n').unwrap_or(rest.len())
            }
            // What is escaped is not looked at.
            (None | Some('"'), '\\') => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            (_, '{') if before != '$' && rest.starts_with(INDEX) => {
                // Single quotes end before the variable and begin again behind it.
                let around = if quote == Some('\'') { ["'\"", "\"'"] } else { ["", ""] };
                made.push_str(&format!("{}${{{index}}}{}", around[0], around[1]));
                (rest, before) = (&rest[INDEX.len()..], '}');
                continue;
            }
            (None, '\'' | '"') => {
                quote = Some(c);
                1
            }
            (Some(open), _) if open == c => {
                quote = None;
                1
            }
            _ => c.len_utf8(),
        };
        made.push_str(&rest[..taken]);
        // A dollar sign behind a backslash begins no variable.
        before = if taken == c.len_utf8() { c } else { '\\' };
        rest = &rest[taken..];
    }
    made
}

/// A script that cannot be made.
pub fn unusable(what: String) -> ClusterError {
    ClusterError::Template { what }
}
