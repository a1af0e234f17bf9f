use std::path::{Path, PathBuf};

use ahash::AHashMap;
use segue_data_error::DataError;
use serde_json::Value;

use super::files::mentions;
use super::named::Named;
use crate::files::{HUGGING_FACE_FILE, ORIGINAL_FILE, read_object};

/// Tokens that a note names one by one.
const NAMED_AT_MOST: usize = 8;

/// What the files of a folder say of the tokens of a vocabulary in it.
pub(crate) struct Siblings {
    dir: PathBuf,
    /// Those with an id first, by id; then the others in the order in which the package numbers them.
    tokens: Vec<Named>,
    /// Rows of the model in the folder, where its `config.json` says them.
    rows: Option<u32>,
}

/// A token with its place in the vocabulary.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Placed {
    pub(crate) id: u32,
    pub(crate) named: Named,
    /// Whether the vocabulary has it of itself.
    pub(crate) is_known: bool,
}

/// What is known of a vocabulary while tokens are added to it.
pub(crate) struct Known<'a> {
    pub(crate) id: &'a dyn Fn(&str) -> Option<u32>,
    pub(crate) name: &'a dyn Fn(u32) -> Option<String>,
    pub(crate) size: usize,
    /// What it is read from, for messages.
    pub(crate) file: &'a str,
}

/// Whether packages write a vocabulary under this name with other files beside it. Models of SentencePiece and pickles have any name.
fn is_of_a_package(name: &str) -> bool {
    const NAMES: [&str; 4] = [HUGGING_FACE_FILE, ORIGINAL_FILE, "vocab.json", "vocab.txt"];
    NAMES.contains(&name) || !(name.ends_with(".json") || name.ends_with(".txt"))
}

impl Siblings {
    /// Reads the files beside the vocabulary file `path`. Those that name a token have to agree on it. `of_class`: special tokens that the package's
    /// class has where no file gives their roles to others.
    pub(crate) fn of(path: &Path, of_class: &Value) -> Result<Self, DataError> {
        let dir = path.parent().unwrap_or(Path::new("")).to_path_buf();
        let own = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        let mut tokens: Vec<Named> = Vec::new();
        let mut places: AHashMap<String, usize> = AHashMap::new();
        let mut by_id: AHashMap<u32, String> = AHashMap::new();
        // Whatever else lies in a folder of downloads has nothing to do with a list of words there.
        let beside = if is_of_a_package(&own) { mentions(&dir, &own, of_class)? } else { Vec::new() };
        for named in beside {
            let refused = |why: String| DataError::tokenizer(&dir.join(named.file), why);
            if let Some(id) = named.id {
                let other = by_id.entry(id).or_insert_with(|| named.content.clone());
                if *other != named.content {
                    return Err(refused(format!(
                        "the id {id} is that of `{}` and of `{other}`",
                        named.content
                    )));
                }
            }
            match places.get(&named.content) {
                Some(place) => tokens[*place].join(named.clone()).map_err(refused)?,
                None => {
                    places.insert(named.content.clone(), tokens.len());
                    tokens.push(named);
                }
            }
        }
        tokens.sort_by_key(|named| named.id.unwrap_or(u32::MAX));
        let rows =
            read_object(&dir.join("config.json")).ok().and_then(|config| config["vocab_size"].as_u64());
        let rows = rows.and_then(|rows| u32::try_from(rows).ok());
        Ok(Self { dir, tokens, rows })
    }

    /// The tokens that the files name.
    pub(crate) fn tokens(&self) -> &[Named] {
        &self.tokens
    }

    /// The first token that `is_own` does not know.
    pub(crate) fn first_other(&self, is_own: impl Fn(&str) -> bool) -> Option<&Named> {
        self.tokens.iter().find(|named| !is_own(&named.content))
    }

    /// The error of a token that a vocabulary cannot take.
    pub(crate) fn refused(&self, named: &Named, why: &str) -> DataError {
        let id = named.id.map_or(String::new(), |id| format!(" with the id {id}"));
        DataError::tokenizer(
            &self.dir.join(named.file),
            format!("it adds `{}`{id}, and {why}", named.content),
        )
    }

    /// Gives every token its id in a vocabulary. One without an id in any file is numbered as the package does, where the model of the folder has a
    /// row for it. The notes say what was added.
    pub(crate) fn place(&self, known: &Known<'_>) -> Result<(Vec<Placed>, Vec<String>), DataError> {
        let mut next = known.size as u64;
        let (mut placed, mut notes) = (Vec::new(), Vec::new());
        for named in &self.tokens {
            let own = (known.id)(&named.content);
            self.check(named, own, known, next)?;
            let id = match named.id.or(own) {
                Some(id) => id,
                None => match u32::try_from(next).ok().filter(|id| self.rows.is_none_or(|rows| *id < rows)) {
                    Some(id) => id,
                    None => {
                        notes.push(format!(
                            "`{}` of {} has no id in any file and no row in the model: it is read as text",
                            named.content, named.file
                        ));
                        continue;
                    }
                },
            };
            next += u64::from(own.is_none());
            placed.push(Placed { id, named: named.clone(), is_known: own.is_some() });
        }
        notes.splice(0..0, describe(&placed));
        Ok((placed, notes))
    }

    /// Refuses an id that is not the vocabulary's own, or not the `next` one behind it.
    fn check(&self, named: &Named, own: Option<u32>, known: &Known<'_>, next: u64) -> Result<(), DataError> {
        let Some(id) = named.id else { return Ok(()) };
        let refused = |what: String| {
            let why = format!("it gives `{}` the id {id}, and {} {what}", named.content, known.file);
            Err(DataError::tokenizer(&self.dir.join(named.file), why))
        };
        match (own, (known.name)(id)) {
            (Some(own), _) if own != id => refused(format!("gives it {own}")),
            (None, Some(other)) => refused(format!("has `{other}` there")),
            (None, None) if u64::from(id) != next => refused(format!("leaves {next} for the next one")),
            _ => Ok(()),
        }
    }
}

/// What was added, by file.
fn describe(placed: &[Placed]) -> Vec<String> {
    let mut files: Vec<&str> = Vec::new();
    let new = |token: &&Placed| !token.is_known;
    for token in placed.iter().filter(new) {
        if !files.contains(&token.named.file) {
            files.push(token.named.file);
        }
    }
    let line = |file: &str| {
        let of_file: Vec<&Placed> =
            placed.iter().filter(new).filter(|token| token.named.file == file).collect();
        let shown = of_file.iter().take(NAMED_AT_MOST).map(|token| {
            let numbered = if token.named.id.is_none() { ", numbered as the package does" } else { "" };
            format!("`{}` {}{numbered}", token.named.content, token.id)
        });
        let more = if of_file.len() > NAMED_AT_MOST { ", .." } else { "" };
        let count = of_file.len();
        let tokens = if count == 1 { "token" } else { "tokens" };
        format!("{count} added {tokens} of {file}: {}{more}", shown.collect::<Vec<_>>().join(", "))
    };
    files.into_iter().map(line).collect()
}
