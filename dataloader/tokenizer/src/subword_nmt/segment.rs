//! Words cut into pieces by merges, as `apply_bpe` does it.

use ahash::AHashMap;
use compact_str::CompactString;

use super::codes::{Codes, END, Version};
use crate::merges::{MergeScratch, MergeTable};

/// Marks the pieces that end no word.
pub(crate) const SEPARATOR: &str = "@@";
/// Tokens of characters that no merge has: those that end no word, and those that do. Symbols of merges have lower ones.
const STRANGERS: u32 = 1 << 30;
const LAST_STRANGERS: u32 = 1 << 31;

/// Merges, with a token for each symbol that is in one.
#[derive(Debug)]
pub(crate) struct Segmenter {
    version: Version,
    symbols: Vec<CompactString>,
    merges: MergeTable,
    /// Tokens of characters that end no word, and of those that do.
    inner: AHashMap<char, u32>,
    last: AHashMap<char, u32>,
    /// The token of [`END`] alone, where a merge has it.
    end: Option<u32>,
}

/// Gives symbols their tokens.
#[derive(Default)]
struct Tokens {
    symbols: Vec<CompactString>,
    by_symbol: AHashMap<CompactString, u32>,
}

impl Tokens {
    fn of(&mut self, symbol: &str) -> u32 {
        if let Some(token) = self.by_symbol.get(symbol) {
            return *token;
        }
        let token = self.symbols.len() as u32;
        self.by_symbol.insert(symbol.into(), token);
        self.symbols.push(symbol.into());
        token
    }
}

impl Segmenter {
    pub(crate) fn new(codes: &Codes) -> Segmenter {
        let (mut tokens, mut merges) = (Tokens::default(), MergeTable::default());
        for (rank, (left, right)) in (0..).zip(&codes.merges) {
            let merged = tokens.of(&[left.as_str(), right].concat());
            merges.insert(tokens.of(left), tokens.of(right), rank, merged);
        }
        let characters = |glued: &str| {
            let of = |(symbol, token): (&CompactString, u32)| {
                Some((single(symbol.strip_suffix(glued).unwrap_or_default())?, token))
            };
            tokens.symbols.iter().zip(0..).filter_map(of).collect()
        };
        let (inner, last) = match codes.version {
            Version::EndAlone => (characters(""), AHashMap::new()),
            Version::EndGlued => (characters(""), characters(END)),
        };
        let end = tokens.by_symbol.get(END).copied();
        Segmenter { version: codes.version, symbols: tokens.symbols, merges, inner, last, end }
    }

    /// Hands over the pieces of a word, those that do not end it with [`SEPARATOR`] behind them, and how many bytes of the word each stands for.
    pub(crate) fn pieces(&self, word: &str, scratch: &mut MergeScratch, mut each: impl FnMut(&str, usize)) {
        let mut tokens = Vec::new();
        self.merges.merge_in_rounds(self.tokens(word), scratch, &mut tokens);
        // An end of word that stands alone is not printed.
        let alone = self.version == Version::EndAlone && tokens.last() == Some(&self.end_token());
        tokens.truncate(tokens.len() - usize::from(alone));
        let Some((last, inner)) = tokens.split_last() else { return };
        let mut piece = String::new();
        for token in inner {
            self.write_symbol(*token, &mut piece);
            let bytes = piece.len();
            piece.push_str(SEPARATOR);
            each(&piece, bytes);
            piece.clear();
        }
        self.write_symbol(*last, &mut piece);
        let piece = if alone { &piece } else { piece.strip_suffix(END).unwrap_or(&piece) };
        each(piece, piece.len());
    }

    /// The tokens of a word before any merge.
    fn tokens(&self, word: &str) -> impl Iterator<Item = u32> {
        let last = match self.version {
            Version::EndAlone => None,
            Version::EndGlued => word.chars().next_back(),
        };
        let inner = &word[..word.len() - last.map_or(0, char::len_utf8)];
        let of = |tokens: &AHashMap<char, u32>, c: char, strangers: u32| {
            tokens.get(&c).copied().unwrap_or(strangers + u32::from(c))
        };
        let ends = match last {
            Some(c) => of(&self.last, c, LAST_STRANGERS),
            None => self.end_token(),
        };
        inner.chars().map(move |c| of(&self.inner, c, STRANGERS)).chain([ends])
    }

    /// The token of an end of word that stands alone; of one that no merge has, one that is nothing's.
    fn end_token(&self) -> u32 {
        self.end.unwrap_or(LAST_STRANGERS)
    }

    fn write_symbol(&self, token: u32, out: &mut String) {
        match self.symbols.get(token as usize) {
            Some(symbol) => out.push_str(symbol),
            None => out.extend(char::from_u32(token & !(STRANGERS | LAST_STRANGERS))),
        }
    }

    /// The pieces that a symbol can be in a text; the second one only of an end of word that stands alone.
    pub(crate) fn forms(&self, symbol: &str) -> (String, Option<String>) {
        match (symbol.strip_suffix(END), self.version) {
            (Some(ended), _) if !ended.is_empty() => (ended.into(), None),
            (_, Version::EndGlued) => (format!("{symbol}{SEPARATOR}"), None),
            (_, Version::EndAlone) => (format!("{symbol}{SEPARATOR}"), Some(symbol.into())),
        }
    }
}

/// The character of a text that has one.
fn single(text: &str) -> Option<char> {
    let mut chars = text.chars();
    chars.next().filter(|_| chars.next().is_none())
}
