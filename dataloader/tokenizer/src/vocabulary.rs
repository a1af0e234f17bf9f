use std::path::Path;

use ahash::AHashSet;
use segue_data_error::DataError;
use segue_foreign::{Kind, TorchFile, View};

use super::interface::Tokenizer;
use super::kind::TokenizerKind;
use super::model::Model;
use super::word_list::words_or_bytes;

/// Where objects keep the one with the symbols: the corpus of a cache, NVIDIA's checkpoints, a corpus of recurrent models.
const HOLDERS: [&str; 3] = ["vocab", "tokenizer", "dictionary"];
/// What the list of symbols is called, and the ids by symbol: in the Transformer-XL programs, and in those with recurrent models.
const NAMES: [(&str, &str); 2] = [("idx2sym", "sym2idx"), ("idx2word", "word2idx")];

/// What transformers' tokenizers call ids by added token.
const ADDED: [&str; 2] = ["_added_tokens_encoder", "added_tokens_encoder"];

/// What one file holds.
pub(super) struct Vocabulary {
    pub(super) kind: TokenizerKind,
    pub(super) model: Model,
    /// Tokens that it was saved with, and that its program looks for in other files.
    pub(super) beside: Vec<(String, u32)>,
}

/// The symbols of a vocabulary, in the order of their ids.
#[derive(Clone, Debug, PartialEq)]
pub struct Symbols {
    /// The symbols.
    pub symbols: Vec<String>,
    /// Whether text was turned into lower case before it was cut.
    pub lower_case: bool,
    /// Tokens that transformers' tokenizer had beside them when it was saved, with their ids. It does not read them back: files beside it count.
    pub beside: Vec<(String, u32)>,
}

impl Symbols {
    /// A tokenizer with the same ids: bytes where the symbols are those of enwik8 (byte values in decimal) or of
    /// text8 (single characters, `_` for the space), words otherwise.
    pub fn tokenizer(self) -> Result<Tokenizer, String> {
        words_or_bytes(self.symbols, self.lower_case).map(|(kind, model)| Tokenizer::new(kind, model))
    }
}

/// Finds the vocabulary in what `torch.save` or pickle has written for the Transformer-XL programs or those with recurrent models: an object
/// or dict with `idx2sym` or `sym2idx`, `idx2word` or `word2idx`, itself or under `vocab` or `dictionary`.
pub fn find_symbols(root: View<'_>) -> Result<Option<Symbols>, String> {
    let names = |holder| {
        NAMES.into_iter().find(|(list, ids)| [list, ids].iter().any(|name| member(holder, name).is_some()))
    };
    let inner = HOLDERS.iter().filter_map(|name| member(root, name));
    let found = std::iter::once(root).chain(inner).find_map(|holder| Some((holder, names(holder)?)));
    let Some((holder, (list, ids))) = found else { return Ok(None) };
    let lower_case = member(holder, "lower_case").and_then(View::truth).unwrap_or(false);
    // A list that is empty beside a full one was never filled.
    let listed = member(holder, list).and_then(View::elements).filter(|listed| listed.len() > 0);
    let listed = listed.map(|listed| listed.map(text).collect::<Result<Vec<_>, _>>()).transpose()?;
    let numbered = member(holder, ids).and_then(View::pairs).filter(|pairs| !pairs.is_empty());
    let numbered = numbered.map(by_number).transpose()?;
    let symbols = match (listed, numbered) {
        (Some(listed), Some(numbered)) => {
            agree(&listed, &numbered).map_err(|why| format!("its {list} and {ids} disagree: {why}"))?;
            listed
        }
        (Some(symbols), None) | (None, Some(symbols)) => symbols,
        (None, None) => return Err("the vocabulary is empty".into()),
    };
    let beside = beside(holder, &symbols)?;
    Ok(Some(Symbols { symbols, lower_case, beside }))
}

/// The tokens that a saved tokenizer had beside these symbols; of symbols it has to give the same ids.
fn beside(holder: View<'_>, symbols: &[String]) -> Result<Vec<(String, u32)>, String> {
    let mut beside = Vec::new();
    let encoder = ADDED.into_iter().find_map(|name| member(holder, name)?.pairs()).unwrap_or_default();
    if encoder.is_empty() {
        return Ok(beside);
    }
    // There may be as many tokens as symbols.
    let known: AHashSet<&str> = symbols.iter().map(String::as_str).collect();
    for (token, id) in encoder {
        let token = text(token)?;
        let id = id.size().ok_or_else(|| format!("the id of its added token `{token}` is not a number"))?;
        match symbols.get(id) {
            Some(symbol) if *symbol == token => {}
            None if !known.contains(token.as_str()) => beside.extend(u32::try_from(id).map(|id| (token, id))),
            _ => return Err(format!("its added tokens give `{token}` the id {id}, and its symbols do not")),
        }
    }
    Ok(beside)
}

/// Symbols in the order of the ids that a dict gives them.
fn by_number(pairs: Vec<(View<'_>, View<'_>)>) -> Result<Vec<String>, String> {
    let mut symbols = vec![None; pairs.len()];
    for (symbol, id) in pairs {
        let place =
            id.size().and_then(|id| symbols.get_mut(id)).ok_or("the ids of the vocabulary have gaps")?;
        *place = Some(text(symbol)?);
    }
    let whole: Option<Vec<String>> = symbols.into_iter().collect();
    whole.ok_or_else(|| "two symbols of the vocabulary have one id".into())
}

/// Where two lists of the same symbols are not the same.
fn agree(listed: &[String], numbered: &[String]) -> Result<(), String> {
    let differs = listed.iter().zip(numbered).position(|(a, b)| a != b);
    match differs {
        Some(id) => {
            Err(format!("the id {id} is `{}` in one and `{}` in the other", listed[id], numbered[id]))
        }
        None if listed.len() != numbered.len() => {
            Err(format!("one has {} symbols, the other {}", listed.len(), numbered.len()))
        }
        None => Ok(()),
    }
}

fn text(value: View<'_>) -> Result<String, String> {
    value.text().map(str::to_owned).ok_or_else(|| "a symbol of the vocabulary is not a string".into())
}

/// An entry of a dict or an attribute of an object.
fn member<'a>(holder: View<'a>, name: &str) -> Option<View<'a>> {
    match holder.kind() {
        Kind::Dict => holder.get(name),
        _ => holder.attribute(name),
    }
}

/// The vocabulary in a file that Python has pickled, and the tokens saved beside it.
pub(super) fn import_vocabulary(path: &Path) -> Result<Vocabulary, DataError> {
    let file = TorchFile::open(path)?;
    let bad = |why: String| DataError::tokenizer(path, why);
    let missing = || {
        "it holds no list of symbols (idx2sym, sym2idx, idx2word or word2idx), itself or under `vocab` or `dictionary`".to_string()
    };
    let Symbols { symbols, lower_case, beside } =
        find_symbols(file.root()).map_err(bad)?.ok_or_else(missing).map_err(bad)?;
    let (kind, model) = words_or_bytes(symbols, lower_case).map_err(bad)?;
    Ok(Vocabulary { kind, model, beside })
}
