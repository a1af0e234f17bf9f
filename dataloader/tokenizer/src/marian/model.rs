use std::collections::HashMap;
use std::ops::Range;

use ahash::AHashMap;

use crate::spiece::{SentencePiece, is_space};

/// Names of the three files.
pub(crate) const SOURCE_FILE: &str = "source.spm";
pub(crate) const TARGET_FILE: &str = "target.spm";
pub(crate) const VOCABULARY_FILE: &str = "vocab.json";

/// Special tokens of every Marian vocabulary.
pub(super) const END: &str = "</s>";
pub(super) const UNKNOWN: &str = "<unk>";
pub(super) const PADDING: &str = "<pad>";
/// What stands around the code of a language at the beginning of a source, `>>fr<<`.
const CODE: [&str; 2] = [">>", "<<"];

/// Pieces of two SentencePiece models with the ids of one vocabulary.
pub(crate) struct Marian {
    source: Side,
    target: Side,
    /// The vocabulary's file, unchanged.
    file: Vec<u8>,
    /// By id.
    tokens: Vec<String>,
    ids: AHashMap<String, u32>,
    unknown: u32,
    end: u32,
    padding: Option<u32>,
}

/// A SentencePiece model, and the id in the vocabulary of each of its pieces.
struct Side {
    pieces: SentencePiece,
    ids: Vec<u32>,
}

impl Side {
    fn new(pieces: SentencePiece, vocabulary: &AHashMap<String, u32>, unknown: u32) -> Side {
        let id = |piece: &str| vocabulary.get(piece).copied().unwrap_or(unknown);
        let ids = (0..pieces.vocab_size() as u32).filter_map(|piece| pieces.piece(piece).map(id)).collect();
        Side { pieces, ids }
    }
}

/// The text of one side.
#[derive(Clone, Copy)]
enum Of {
    Source,
    Target,
}

impl Marian {
    /// Of the two models, and the content of a `vocab.json`, which gives each id once.
    pub(crate) fn new(source: SentencePiece, target: SentencePiece, file: Vec<u8>) -> Result<Marian, String> {
        let listed: HashMap<String, u32> =
            serde_json::from_slice(&file).map_err(|e| format!("it is not an object of ids by token: {e}"))?;
        let mut tokens: Vec<Option<String>> = vec![None; listed.len()];
        for (token, id) in &listed {
            match tokens.get_mut(*id as usize) {
                Some(place @ None) => *place = Some(token.clone()),
                Some(Some(other)) => {
                    let (first, second) = if token < other { (token, &*other) } else { (&*other, token) };
                    return Err(format!("`{first}` and `{second}` both have the id {id}"));
                }
                None => {
                    let last = listed.len() - 1;
                    return Err(format!("`{token}` has the id {id}, and the last of its ids is {last}"));
                }
            }
        }
        // As many ids as tokens, each once: none is left out.
        let tokens: Vec<String> = tokens.into_iter().flatten().collect();
        let ids: AHashMap<String, u32> = tokens.iter().cloned().zip(0..).collect();
        let needed =
            |token: &str| ids.get(token).copied().ok_or_else(|| format!("it lacks the piece `{token}`"));
        let (unknown, end) = (needed(UNKNOWN)?, needed(END)?);
        let padding = ids.get(PADDING).copied();
        let [source, target] = [source, target].map(|pieces| Side::new(pieces, &ids, unknown));
        Ok(Marian { source, target, file, tokens, ids, unknown, end, padding })
    }

    /// Contents of the three files, as they were read.
    pub(crate) fn files(&self) -> [(&'static str, &[u8]); 3] {
        let [source, target] = [&self.source, &self.target].map(|side| side.pieces.file());
        [(SOURCE_FILE, source), (TARGET_FILE, target), (VOCABULARY_FILE, &self.file)]
    }

    pub(crate) fn vocab_size(&self) -> usize {
        self.tokens.len()
    }

    pub(crate) fn end(&self) -> u32 {
        self.end
    }

    pub(crate) fn unknown(&self) -> u32 {
        self.unknown
    }

    pub(crate) fn padding(&self) -> Option<u32> {
        self.padding
    }

    pub(crate) fn token(&self, id: u32) -> Option<&str> {
        self.tokens.get(id as usize).map(String::as_str)
    }

    pub(crate) fn id(&self, token: &str) -> Option<u32> {
        self.ids.get(token).copied()
    }

    /// Of each side the number of pieces that the vocabulary lacks, which are read as unknown, and of all: special symbols aside.
    pub(super) fn unlisted(&self) -> [(&'static str, usize, usize); 2] {
        [(SOURCE_FILE, &self.source), (TARGET_FILE, &self.target)].map(|(file, side)| {
            let pieces = (0..side.pieces.vocab_size() as u32).filter_map(|id| side.pieces.piece(id));
            let of_text = pieces.filter(|piece| !side.pieces.is_symbol(piece));
            let (mut unlisted, mut all) = (0, 0);
            for piece in of_text {
                all += 1;
                unlisted += usize::from(self.id(piece).is_none());
            }
            (file, unlisted, all)
        })
    }

    /// Appends the ids of a source, with the code of a language where it begins with one.
    pub(crate) fn encode(&self, text: &str, out: &mut Vec<u32>) {
        self.encode_of(Of::Source, text, out);
    }

    /// The same of a target, which is cut into pieces by the other model.
    pub(crate) fn encode_target(&self, text: &str, out: &mut Vec<u32>) {
        self.encode_of(Of::Target, text, out);
    }

    fn encode_of(&self, of: Of, text: &str, out: &mut Vec<u32>) {
        let (code, rest) = code_of(text);
        out.extend(code.map(|code| self.id(code).unwrap_or(self.unknown)));
        let side = self.side(of);
        side.pieces.each_surface(rest, &mut |piece, surface| out.push(self.id_of(side, piece, surface)));
    }

    fn side(&self, of: Of) -> &Side {
        match of {
            Of::Source => &self.source,
            Of::Target => &self.target,
        }
    }

    /// The id of a piece. Characters that the model does not know may be in the vocabulary all the same, for the other side's sake.
    fn id_of(&self, side: &Side, piece: u32, surface: &[u8]) -> u32 {
        if piece != side.pieces.unk_id() {
            return side.ids[piece as usize];
        }
        std::str::from_utf8(surface).ok().and_then(|surface| self.id(surface)).unwrap_or(self.unknown)
    }

    /// The ids of a source, and the bytes of the text that each comes from.
    pub(crate) fn encode_with_spans(&self, text: &str) -> (Vec<u32>, Vec<Range<usize>>) {
        let (mut ids, mut spans) = (Vec::new(), Vec::new());
        let (code, rest) = code_of(text);
        if let Some(code) = code {
            ids.push(self.id(code).unwrap_or(self.unknown));
            spans.push(0..code.len());
        }
        let before = text.len() - rest.len();
        let side = self.side(Of::Source);
        side.pieces.each_surface_with_span(rest, |piece, surface, span| {
            ids.push(self.id_of(side, piece, surface));
            spans.push(before + span.start..before + span.end);
        });
        (ids, spans)
    }

    /// The text of the ids of a target, without special tokens and white space at its ends.
    pub(crate) fn decode(&self, ids: &[u32]) -> String {
        let mut text = Vec::new();
        let special = |id: u32| id == self.unknown || id == self.end || Some(id) == self.padding;
        for id in ids.iter().filter(|id| !special(**id)) {
            if let Some(token) = self.token(*id) {
                self.target.pieces.append_surface(token, &mut text);
            }
        }
        String::from_utf8_lossy(&text).trim_matches(is_space).into()
    }
}

/// The code of a language that a text begins with, and the rest of the text.
fn code_of(text: &str) -> (Option<&str>, &str) {
    let [begin, end] = CODE;
    let found = text.starts_with(begin).then(|| text.find(end)).flatten();
    match found.map(|at| text.split_at(at + end.len())) {
        Some((code, rest)) => (Some(code), rest),
        None => (None, text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand, after `remove_language_code` of `MarianTokenizer`.
    #[test]
    fn a_code_of_a_language_stands_at_the_beginning() {
        for (text, code, rest) in [
            (">>fr<< a b", Some(">>fr<<"), " a b"),
            (">>fr<<>>de<<a", Some(">>fr<<"), ">>de<<a"),
            (">><<", Some(">><<"), ""),
            (">>fr a", None, ">>fr a"),
            (" >>fr<< a", None, " >>fr<< a"),
            ("a << >>", None, "a << >>"),
            ("", None, ""),
        ] {
            assert_eq!(code_of(text), (code, rest), "{text:?}");
        }
    }
}
