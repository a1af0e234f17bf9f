use super::charsmap::CharsMap;
use super::origins::Trace;
use super::trie::Trie;

/// What a space is written as inside pieces: U+2581.
pub(crate) const SPACE_SYMBOL: &str = "\u{2581}";

/// How a model prepares text before it is cut into pieces.
pub(crate) struct Normalizer {
    pub(crate) rules: Option<CharsMap>,
    /// Symbols that are never changed.
    pub(crate) user_defined: Option<Trie>,
    pub(crate) add_dummy_prefix: bool,
    pub(crate) remove_extra_whitespaces: bool,
    pub(crate) escape_whitespaces: bool,
    pub(crate) treat_whitespace_as_suffix: bool,
}

impl Normalizer {
    /// The text as the pieces are matched against; white space at the ends is gone, spaces are [`SPACE_SYMBOL`].
    pub(crate) fn normalize(&self, text: &str) -> Vec<u8> {
        self.normalize_traced(text, &mut ())
    }

    /// [`Normalizer::normalize`], with `trace` told which bytes of the text each byte comes from.
    pub(super) fn normalize_traced(&self, text: &str, trace: &mut impl Trace) -> Vec<u8> {
        let mut input = text;
        if self.remove_extra_whitespaces {
            while !input.is_empty() {
                let (piece, consumed) = self.normalize_prefix(input);
                if piece != b" " {
                    break;
                }
                input = &input[consumed..];
            }
        }
        if input.is_empty() {
            return Vec::new();
        }
        let space = self.space();
        let mut normalized = Vec::with_capacity(input.len() * 2);
        if self.add_dummy_prefix && !self.treat_whitespace_as_suffix {
            normalized.extend_from_slice(space);
            let begin = text.len() - input.len();
            trace.push(space.len(), begin..begin);
        }
        let mut after_space = self.remove_extra_whitespaces;
        while !input.is_empty() {
            let (mut piece, consumed) = self.normalize_prefix(input);
            while after_space && let Some(rest) = piece.strip_prefix(b" ") {
                piece = rest;
            }
            let before = normalized.len();
            for byte in piece {
                match byte {
                    b' ' => normalized.extend_from_slice(space),
                    byte => normalized.push(*byte),
                }
            }
            if let Some(last) = piece.last() {
                after_space = *last == b' ';
            }
            after_space &= self.remove_extra_whitespaces;
            let begin = text.len() - input.len();
            trace.push(normalized.len() - before, begin..begin + consumed);
            input = &input[consumed..];
        }
        if self.remove_extra_whitespaces {
            while normalized.ends_with(space) {
                normalized.truncate(normalized.len() - space.len());
            }
            trace.truncate(normalized.len());
        }
        if self.add_dummy_prefix && self.treat_whitespace_as_suffix {
            normalized.extend_from_slice(space);
            trace.push(space.len(), text.len()..text.len());
        }
        normalized
    }

    /// What a space is in normalised text.
    pub(super) fn space(&self) -> &'static [u8] {
        if self.escape_whitespaces { SPACE_SYMBOL.as_bytes() } else { b" " }
    }

    /// The normal form of the shortest stretch of text that has one of its own, and the length of that stretch.
    fn normalize_prefix<'a>(&'a self, text: &'a str) -> (&'a [u8], usize) {
        let bytes = text.as_bytes();
        if let Some(length) = self.user_defined.as_ref().and_then(|symbols| symbols.longest_prefix(bytes)) {
            return (&bytes[..length], length);
        }
        let one_char = text.chars().next().map_or(1, char::len_utf8);
        match self.rules.as_ref().and_then(|rules| rules.longest_rule(bytes)) {
            // A rule of a hostile file may end inside a character, which a rule of an honest one cannot.
            Some((replacement, length)) if text.is_char_boundary(length) => (replacement, length),
            _ => (&bytes[..one_char], one_char),
        }
    }
}
