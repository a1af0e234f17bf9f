use serde_json::{Map, Value};

/// How a token is looked for in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flags {
    /// Takes the white space before it along.
    pub(crate) lstrip: bool,
    /// Takes the white space behind it along.
    pub(crate) rstrip: bool,
    /// Found as a word of its own alone.
    pub(crate) single_word: bool,
    /// Looked for in the text as normalised.
    pub(crate) normalized: bool,
}

impl Flags {
    /// Those of a token of which nothing is said.
    pub(crate) fn usual(special: bool) -> Self {
        Self { lstrip: false, rstrip: false, single_word: false, normalized: !special }
    }
}

/// A token as the files of a folder name it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Named {
    pub(crate) content: String,
    /// Its id, where a file says it.
    pub(crate) id: Option<u32>,
    pub(crate) flags: Option<Flags>,
    /// Whether `flags` win over those in the file that the tokenizer is made of.
    pub(crate) flags_win: bool,
    pub(crate) special: bool,
    /// The file that says its id, else the first that names it.
    pub(crate) file: &'static str,
}

impl Named {
    /// A token in the form of a text or of an object with flags; the error says what it is instead.
    pub(super) fn of(value: &Value, special: bool, file: &'static str) -> Result<Self, String> {
        let plain = |content: &str| Self {
            content: content.into(),
            id: None,
            flags: None,
            flags_win: false,
            special,
            file,
        };
        match value {
            Value::String(content) => Ok(plain(content)),
            Value::Object(fields) => {
                let content = fields.get("content").and_then(Value::as_str);
                let content = content.ok_or_else(|| format!("a token has no `content`: {value}"))?;
                let special = special || flag(fields, "special")?.unwrap_or(false);
                let flags = Flags {
                    lstrip: flag(fields, "lstrip")?.unwrap_or(false),
                    rstrip: flag(fields, "rstrip")?.unwrap_or(false),
                    single_word: flag(fields, "single_word")?.unwrap_or(false),
                    normalized: flag(fields, "normalized")?.unwrap_or(!special),
                };
                Ok(Self { flags: Some(flags), special, ..plain(content) })
            }
            other => Err(format!("{other} is not a token")),
        }
    }

    /// Takes over what `other` says of the same token; the error says in what they disagree.
    pub(super) fn join(&mut self, other: Self) -> Result<(), String> {
        match (self.id, other.id) {
            (Some(own), Some(id)) if own != id => {
                return Err(format!(
                    "it gives `{}` the id {id}, and {} gives it {own}",
                    self.content, self.file
                ));
            }
            (None, Some(_)) => (self.id, self.file) = (other.id, other.file),
            _ => {}
        }
        self.special |= other.special;
        self.flags = self.flags.or(other.flags);
        Ok(())
    }
}

fn flag(fields: &Map<String, Value>, name: &str) -> Result<Option<bool>, String> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(value)) => Ok(Some(*value)),
        Some(other) => Err(format!("`{name}` of a token is {other}, expected true or false")),
    }
}
