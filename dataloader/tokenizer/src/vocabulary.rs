use std::path::Path;

use segue_data_error::DataError;
use segue_foreign::{Kind, TorchFile, View};

use super::import::words_or_bytes;
use super::interface::Tokenizer;

/// Where objects keep the one with the symbols: the corpus of a cache, NVIDIA's checkpoints, a corpus of recurrent models.
const HOLDERS: [&str; 3] = ["vocab", "tokenizer", "dictionary"];
/// What the list of symbols is called, and the ids by symbol: in the Transformer-XL programs, and in those with recurrent models.
const NAMES: [(&str, &str); 2] = [("idx2sym", "sym2idx"), ("idx2word", "word2idx")];

/// The symbols of a vocabulary, in the order of their ids.
#[derive(Clone, Debug, PartialEq)]
pub struct Symbols {
    /// The symbols.
    pub symbols: Vec<String>,
    /// Whether text was turned into lower case before it was cut.
    pub lower_case: bool,
}

impl Symbols {
    /// A tokenizer with the same ids: bytes where the symbols are those of enwik8 (byte values in decimal) or of
    /// text8 (single characters, `_` for the space), words otherwise.
    pub fn tokenizer(self) -> Result<Tokenizer, String> {
        words_or_bytes(self.symbols, self.lower_case)
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
    let text =
        |value: View<'_>| value.text().map(str::to_owned).ok_or("a symbol of the vocabulary is not a string");
    let listed = member(holder, list).and_then(View::elements);
    let symbols = match listed {
        Some(listed) => listed.map(text).collect::<Result<Vec<_>, _>>()?,
        None => {
            let pairs = member(holder, ids).and_then(View::pairs).ok_or("the vocabulary is empty")?;
            let mut symbols = vec![None; pairs.len()];
            for (symbol, id) in pairs {
                let place = id
                    .size()
                    .and_then(|id| symbols.get_mut(id))
                    .ok_or("the ids of the vocabulary have gaps")?;
                *place = Some(text(symbol)?);
            }
            symbols.into_iter().collect::<Option<_>>().ok_or("two symbols of the vocabulary have one id")?
        }
    };
    Ok(Some(Symbols { symbols, lower_case }))
}

/// An entry of a dict or an attribute of an object.
fn member<'a>(holder: View<'a>, name: &str) -> Option<View<'a>> {
    match holder.kind() {
        Kind::Dict => holder.get(name),
        _ => holder.attribute(name),
    }
}

/// A tokenizer from a pickled vocabulary or from a file that holds one.
pub(super) fn import_vocabulary(path: &Path) -> Result<Tokenizer, DataError> {
    let file = TorchFile::open(path)?;
    let bad = |why: String| DataError::tokenizer(path, why);
    let symbols = find_symbols(file.root()).map_err(bad)?;
    let missing = || {
        "it holds no list of symbols (idx2sym, sym2idx, idx2word or word2idx), itself or under `vocab` or `dictionary`".to_string()
    };
    symbols.ok_or_else(|| bad(missing()))?.tokenizer().map_err(bad)
}
