//! The files that name tokens, each in its own layout.

use std::path::Path;

use segue_data_error::DataError;
use serde_json::Value;

use super::named::Named;
use crate::files::{HUGGING_FACE_CONFIG, HUGGING_FACE_FILE, read_object};

/// Ids by token: what versions before 4.34 write, and some later ones beside the others.
const ADDED_TOKENS: &str = "added_tokens.json";
/// Special tokens by role.
const SPECIAL_TOKENS_MAP: &str = "special_tokens_map.json";
/// The roles in the order in which the package numbers tokens that have none.
const ROLES: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];
/// Lists of special tokens without a role, as versions before 5 and today's call them.
const LISTS: [&str; 2] = ["additional_special_tokens", "extra_special_tokens"];

/// What stands for the file where none says it and the package's class does.
const CLASS: &str = "the package's class";

/// Every mention of a token in the files of `dir`, but for those in the file `own`, in the order in which they count: with ids first, then special
/// tokens by their roles. `of_class`: roles that count where no file names them.
pub(super) fn mentions(dir: &Path, own: &str, of_class: &Value) -> Result<Vec<Named>, DataError> {
    let mut found = Vec::new();
    let mut read = |file: &'static str, list: fn(&Value, &'static str) -> Result<Vec<Named>, String>| {
        let value = read_object(&dir.join(file))?;
        found.extend(list(&value, file).map_err(|why| DataError::tokenizer(&dir.join(file), why))?);
        Ok::<_, DataError>(value)
    };
    let config = read(HUGGING_FACE_CONFIG, decoder)?;
    read(ADDED_TOKENS, ids)?;
    if own != HUGGING_FACE_FILE {
        read(HUGGING_FACE_FILE, serialized)?;
    }
    let map = read(SPECIAL_TOKENS_MAP, |_, _| Ok(Vec::new()))?;
    // Versions that write `added_tokens_decoder` read roles from the same file, earlier ones from the map first.
    let mut roles = [(&map, SPECIAL_TOKENS_MAP), (&config, HUGGING_FACE_CONFIG), (of_class, CLASS)];
    if config["added_tokens_decoder"].is_object() {
        roles.swap(0, 1);
    }
    for (key, value, file) in by_key(roles) {
        found.extend(special(key, value, file).map_err(|why| DataError::tokenizer(&dir.join(file), why))?);
    }
    found.retain(|named| !named.content.is_empty());
    Ok(found)
}

/// `added_tokens_decoder`: tokens with their flags by id, as versions since 4.34 have them.
fn decoder(config: &Value, file: &'static str) -> Result<Vec<Named>, String> {
    let Some(tokens) = config["added_tokens_decoder"].as_object() else { return Ok(Vec::new()) };
    let token = |(id, token): (&String, &Value)| {
        let id = id.parse().map_err(|_| format!("`{id}` of added_tokens_decoder is not an id"))?;
        Ok(Named { id: Some(id), flags_win: true, ..Named::of(token, false, file)? })
    };
    tokens.iter().map(token).collect()
}

fn ids(value: &Value, file: &'static str) -> Result<Vec<Named>, String> {
    let tokens = match value {
        Value::Null => return Ok(Vec::new()),
        Value::Object(tokens) => tokens,
        _ => return Err("it is not an object of ids by token".into()),
    };
    let token = |(content, id): (&String, &Value)| {
        let id = id_of(id).ok_or_else(|| format!("the id of `{content}` is {id}"))?;
        Ok(Named { id: Some(id), ..Named::of(&content.as_str().into(), false, file)? })
    };
    tokens.iter().map(token).collect()
}

/// `added_tokens` of a `tokenizer.json`.
fn serialized(json: &Value, file: &'static str) -> Result<Vec<Named>, String> {
    let Some(tokens) = json["added_tokens"].as_array() else { return Ok(Vec::new()) };
    let token = |token: &Value| {
        let id = id_of(&token["id"]).ok_or_else(|| format!("a token of added_tokens has no id: {token}"))?;
        Ok(Named { id: Some(id), ..Named::of(token, false, file)? })
    };
    tokens.iter().map(token).collect()
}

/// What files say of special tokens, each before those after it: tokens with a role, then those that have a name of their own, then lists.
fn by_key<'a>(files: [(&'a Value, &'static str); 3]) -> Vec<(&'a str, &'a Value, &'static str)> {
    let mut said: Vec<(&str, &Value, &'static str)> = Vec::new();
    for (fields, file) in files {
        for (key, value) in fields.as_object().into_iter().flatten() {
            // One list goes by two names.
            let is_said = |known: &str| known == key || [known, key].iter().all(|name| LISTS.contains(name));
            let mut before = said.iter().filter(|(.., other)| *other != file);
            if rank(key, value).is_some() && !before.any(|(known, ..)| is_said(known)) {
                said.push((key, value, file));
            }
        }
    }
    said.sort_by_key(|(key, value, _)| rank(key, value));
    said
}

/// The place of a key among those of special tokens; `None` for any other.
fn rank(key: &str, value: &Value) -> Option<usize> {
    let order = |names: &[&str]| names.iter().position(|name| *name == key);
    match order(&ROLES) {
        _ if value.is_null() => None,
        Some(place) => Some(place),
        None if key.ends_with("_token") => (value.is_string() || value.is_object()).then_some(ROLES.len()),
        None => Some(ROLES.len() + 1 + order(&LISTS)?),
    }
}

fn special(key: &str, value: &Value, file: &'static str) -> Result<Vec<Named>, String> {
    let tokens: Vec<&Value> = match value {
        Value::Array(listed) => listed.iter().collect(),
        Value::Object(named) if LISTS.contains(&key) => named.values().collect(),
        one => vec![one],
    };
    tokens.into_iter().map(|token| Named::of(token, true, file)).collect()
}

fn id_of(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|id| u32::try_from(id).ok())
}
