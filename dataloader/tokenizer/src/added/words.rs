use std::ops::Range;

use ahash::AHashMap;
use serde::{Deserialize, Serialize};

use crate::spiece::Trie;

/// A token that is taken out of the text before it is cut into words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AddedWord {
    pub(crate) id: u32,
    pub(crate) content: String,
    /// Never lower-cased.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) special: bool,
}

/// A stretch of a text with tokens.
pub(crate) enum Part {
    /// What is to be cut into words.
    Text(Range<usize>),
    /// A token with this id.
    Token(u32, Range<usize>),
}

/// Tokens beside a list of words, found as transformers' `TransfoXLTokenizer` finds them: anywhere in the text, the leftmost first, and of those
/// that begin at one place the longest.
#[derive(Debug)]
pub(crate) struct AddedWords {
    words: Vec<AddedWord>,
    ids: AHashMap<String, u32>,
    /// Those that are looked for in the text as it is, and in its lower-cased form.
    as_is: Trie,
    lowered: Trie,
}

impl AddedWords {
    /// `lower_case`: text is lower-cased, and with it every token that is not special.
    pub(crate) fn new(mut words: Vec<AddedWord>, lower_case: bool) -> Self {
        for word in words.iter_mut().filter(|word| lower_case && !word.special) {
            word.content = word.content.to_lowercase();
        }
        words.sort_by_key(|word| word.id);
        let trie = |lowered: bool| {
            let of_form = words.iter().filter(|word| (lower_case && !word.special) == lowered);
            Trie::new(of_form.map(|word| (word.content.as_bytes(), word.id)).collect())
        };
        let (as_is, lowered) = (trie(false), trie(true));
        let ids = words.iter().map(|word| (word.content.clone(), word.id)).collect();
        Self { words, ids, as_is, lowered }
    }

    pub(crate) fn words(&self) -> &[AddedWord] {
        &self.words
    }

    pub(crate) fn id(&self, content: &str) -> Option<u32> {
        self.ids.get(content).copied()
    }

    pub(crate) fn content(&self, id: u32) -> Option<&str> {
        let place = self.words.binary_search_by_key(&id, |word| word.id).ok()?;
        Some(&self.words[place].content)
    }

    /// Whether one of them holds white space.
    pub(crate) fn hold_space(&self) -> bool {
        self.words.iter().any(|word| word.content.contains(char::is_whitespace))
    }

    /// One more than the largest id.
    pub(crate) fn end(&self) -> usize {
        self.words.last().map_or(0, |word| word.id as usize + 1)
    }

    /// The text as what lies between the tokens and the tokens in it, in their order.
    pub(crate) fn parts(&self, text: &str) -> Vec<Part> {
        let (mut parts, mut begin, mut at) = (Vec::new(), 0, 0);
        while let Some(c) = text[at..].chars().next() {
            let Some((id, length)) = self.at(&text[at..]) else {
                at += c.len_utf8();
                continue;
            };
            parts.push(Part::Text(begin..at));
            parts.push(Part::Token(id, at..at + length));
            at += length;
            begin = at;
        }
        parts.push(Part::Text(begin..at));
        parts
    }

    /// The longest token that a text begins with, and its length there.
    fn at(&self, text: &str) -> Option<(u32, usize)> {
        let as_is = self.as_is.longest_prefix(text.as_bytes());
        let as_is = as_is.and_then(|length| Some((self.id(&text[..length])?, length)));
        as_is.into_iter().chain(self.lowered_at(text)).max_by_key(|(_, length)| *length)
    }

    /// The same of those that are looked for in the lower-cased text.
    fn lowered_at(&self, text: &str) -> Option<(u32, usize)> {
        let (mut place, mut longest) = (self.lowered.root(), None);
        for (at, c) in text.char_indices() {
            for lower in c.to_lowercase() {
                for byte in lower.encode_utf8(&mut [0; 4]).bytes() {
                    match self.lowered.step(place, byte) {
                        Some(next) => place = next,
                        None => return longest,
                    }
                }
            }
            if let Some(id) = self.lowered.value(place) {
                longest = Some((id, at + c.len_utf8()));
            }
        }
        longest
    }
}
