//! Where texts may be cut in parts that are encoded one by one.

use serde::Deserialize;
use serde_json::Value;

use super::words::is_space;

/// Bytes of the longest text that is encoded as a whole: a `tokenizer.json` takes up to two hundred times as much memory.
const LONGEST: usize = 32 << 20;
/// The same for SentencePiece models, which take up to six times as much.
const LONGEST_OF_PIECES: usize = 1 << 30;

/// How a text is cut in parts that are encoded one by one to the ids of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextCut {
    /// Where it may be cut.
    pub places: CutPlaces,
    /// Bytes of the longest part. A text that has no place to cut it in so many is too long.
    pub longest: usize,
}

/// Places at which a text may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutPlaces {
    /// Between any two characters.
    Anywhere,
    /// Before ASCII's white space that follows a character which is not white space.
    BeforeSpace,
    /// Before U+0020 that follows a character which is not white space.
    BeforeBlank,
    /// Nowhere: what an id is depends on all of the text, or nothing says that it does not.
    Nowhere,
}

impl TextCut {
    pub(crate) fn at(places: CutPlaces) -> TextCut {
        TextCut { places, longest: LONGEST }
    }

    /// Of a SentencePiece model. It is cut nowhere: spaces at the ends of a text go, one is put in front, and which of two
    /// equally good segmentations wins depends on how the scores of all before them round.
    pub(crate) fn of_pieces() -> TextCut {
        TextCut { places: CutPlaces::Nowhere, longest: LONGEST_OF_PIECES }
    }

    /// The same where what is done to a text before it is encoded needs all of it.
    pub fn nowhere(self) -> TextCut {
        TextCut { places: CutPlaces::Nowhere, ..self }
    }

    /// The last place at which a text may be cut, if there is one; before a line break where possible.
    pub fn last(self, text: &[u8]) -> Option<usize> {
        let last = |wanted: fn(&u8) -> bool| (1..text.len()).rev().find(|at| follows_word(text, *at, wanted));
        let at_space = || last(|byte| *byte == b'\n').or_else(|| last(is_blank));
        match self.places {
            CutPlaces::Anywhere => at_space().or_else(|| Some(char_border(text))),
            CutPlaces::BeforeSpace => at_space(),
            CutPlaces::BeforeBlank => last(|byte| *byte == b' '),
            CutPlaces::Nowhere => None,
        }
    }

    /// The first place from `from` on, which is not 0, at which a text may be cut, if there is one.
    pub fn first(self, text: &[u8], from: usize) -> Option<usize> {
        let first = |wanted: fn(&u8) -> bool| (from..text.len()).find(|at| follows_word(text, *at, wanted));
        match self.places {
            CutPlaces::Anywhere => (from..text.len()).find(|at| starts_char(text[*at])),
            CutPlaces::BeforeSpace => first(is_blank),
            CutPlaces::BeforeBlank => first(|byte| *byte == b' '),
            CutPlaces::Nowhere => None,
        }
    }
}

/// Whether a byte is white space that no normaliser removes, as one that cleans text removes a form feed.
fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Whether a wanted byte is at a place, behind a character that is not white space.
fn follows_word(text: &[u8], at: usize, wanted: fn(&u8) -> bool) -> bool {
    wanted(&text[at]) && !last_char(&text[..at]).is_some_and(is_space)
}

/// The last character, where it is whole.
fn last_char(text: &[u8]) -> Option<char> {
    let begin = last_start(text)?;
    std::str::from_utf8(&text[begin..]).ok()?.chars().next()
}

/// Where the last sequence of UTF-8 begins that may be one.
fn last_start(text: &[u8]) -> Option<usize> {
    /// Bytes of the longest UTF-8 sequence.
    const LONGEST: usize = 4;
    (text.len().saturating_sub(LONGEST)..text.len()).rev().find(|at| starts_char(text[*at]))
}

/// The last place that is not inside a UTF-8 sequence. Before the last character is right whether or not it is whole.
fn char_border(text: &[u8]) -> usize {
    last_start(text).filter(|at| *at > 0).unwrap_or(text.len())
}

fn starts_char(byte: u8) -> bool {
    byte & 0xC0 != 0x80
}

/// Normalisers that change each character, or one with the marks behind it, and leave white space as it is.
const KEEP_SPACE: [&str; 2] = ["Lowercase", "NFC"];
/// Those that may take away or make some beside a character.
const CHANGE_CHARACTERS: [&str; 5] = ["NFD", "NFKC", "NFKD", "StripAccents", "BertNormalizer"];
/// Pre-tokenizers that cut at white space and leave it out.
const DROP_SPACE: [&str; 3] = ["WhitespaceSplit", "Whitespace", "BertPreTokenizer"];
/// What may come behind one that cuts at white space: it looks at each word alone.
const CUT_WORDS: [&str; 6] =
    ["WhitespaceSplit", "Whitespace", "BertPreTokenizer", "ByteLevel", "Digits", "Punctuation"];

/// What of a `tokenizer.json` says whether it sees each word alone.
#[derive(Deserialize)]
struct Description {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    added_tokens: Vec<Value>,
    model: Model,
}

#[derive(Deserialize)]
struct Model {
    dropout: Option<f64>,
}

/// Where a `tokenizer.json` lets texts be cut: nowhere, but for makes that provably see each word alone. Those are byte-level
/// ones with GPT-2's words, and those that drop white space, as BERT's.
pub(crate) fn of_json(json: &[u8]) -> TextCut {
    let places = serde_json::from_slice(json).ok().and_then(|description| places_of(&description));
    TextCut::at(places.unwrap_or(CutPlaces::Nowhere))
}

fn places_of(description: &Description) -> Option<CutPlaces> {
    let normalizers = steps(&description.normalizer, "normalizers")?;
    let keeps_space = normalizers.iter().all(|step| is_one_of(step, &KEEP_SPACE));
    let sees_characters =
        normalizers.iter().all(|step| is_one_of(step, &KEEP_SPACE) || is_one_of(step, &CHANGE_CHARACTERS));
    let pre_tokenizers = steps(&description.pre_tokenizer, "pretokenizers")?;
    let (first, others) = pre_tokenizers.split_first()?;
    let sees_words = others.iter().all(|step| is_one_of(step, &CUT_WORDS));
    let is_drawn = description.model.dropout.is_some_and(|rate| rate > 0.0);
    if is_drawn || !sees_words || !description.added_tokens.iter().all(|token| is_local(token, keeps_space)) {
        return None;
    }
    match first["type"].as_str()? {
        "ByteLevel" if keeps_space && first["use_regex"] != false => {
            match first["add_prefix_space"] == true {
                // A blank is put before any other character that a part begins with.
                true => Some(CutPlaces::BeforeBlank),
                false => Some(CutPlaces::BeforeSpace),
            }
        }
        name if sees_characters && DROP_SPACE.contains(&name) => Some(CutPlaces::BeforeSpace),
        _ => None,
    }
}

/// The steps that a normaliser or pre-tokenizer consists of, in order.
fn steps<'a>(step: &'a Value, name: &str) -> Option<Vec<&'a Value>> {
    match step["type"].as_str() {
        None if step.is_null() => Some(Vec::new()),
        None => None,
        Some("Sequence") => {
            let nested = step[name].as_array()?.iter().map(|inner| steps(inner, name));
            Some(nested.collect::<Option<Vec<_>>>()?.concat())
        }
        Some(_) => Some(vec![step]),
    }
}

fn is_one_of(step: &Value, names: &[&str]) -> bool {
    step["type"].as_str().is_some_and(|name| names.contains(&name))
}

/// Whether an added token is the same on both sides of a cut before white space: it takes none behind itself, and has none but runs of it.
fn is_local(token: &Value, keeps_space: bool) -> bool {
    let content = token["content"].as_str().unwrap_or_default();
    let has_space = content.contains(char::is_whitespace);
    let is_space = content.chars().all(char::is_whitespace);
    token["rstrip"] == false && (!has_space || is_space && keeps_space && token["single_word"] == false)
}
