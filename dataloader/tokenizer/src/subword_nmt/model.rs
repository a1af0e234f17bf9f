use std::borrow::Cow;
use std::ops::Range;

use compact_str::CompactString;

use super::codes::{Codes, Version};
use super::dictionary::Dictionary;
use super::learn::learn;
use super::segment::{SEPARATOR, Segmenter};
use super::split_words;
use crate::byte_level::MergeCache;
use crate::count::Counts;
use crate::merges::MergeScratch;
use crate::train_options::TrainOptions;

/// Names of the two files, as published models of fairseq have them.
pub(crate) const CODES_FILE: &str = "bpecodes";
pub(crate) const DICTIONARY_FILE: &str = "dict.txt";

/// Words between blanks in pieces, with the ids of a dictionary.
#[derive(Debug)]
pub(crate) struct SubwordNmt {
    codes: Codes,
    segmenter: Segmenter,
    dictionary: Dictionary,
    lower_case: bool,
}

impl SubwordNmt {
    pub(crate) fn new(codes: Codes, dictionary: Dictionary, lower_case: bool) -> SubwordNmt {
        SubwordNmt { segmenter: Segmenter::new(&codes), codes, dictionary, lower_case }
    }

    /// Learns merges on counted words; the dictionary is that of the same words in pieces.
    pub(crate) fn train(words: Counts<CompactString>, options: &TrainOptions) -> Result<SubwordNmt, String> {
        let (version, words) = (Version::EndGlued, words.by_frequency());
        let merges = learn(&words, options.most_merges(), options.subword_frequency(), version);
        let codes = Codes::of_merges(version, &merges)?;
        let (segmenter, mut scratch) = (Segmenter::new(&codes), MergeScratch::default());
        let mut pieces: Counts<CompactString> = Counts::default();
        for (word, count) in &words {
            segmenter.pieces(word, &mut scratch, |piece, _| pieces.add(piece.into(), *count));
        }
        let dictionary = Dictionary::of_counts(pieces, &options.special_tokens)?;
        Ok(SubwordNmt { codes, segmenter, dictionary, lower_case: options.lower_case })
    }

    pub(crate) fn codes(&self) -> &Codes {
        &self.codes
    }

    pub(crate) fn dictionary(&self) -> &Dictionary {
        &self.dictionary
    }

    pub(crate) fn lower_case(&self) -> bool {
        self.lower_case
    }

    /// Number of merges that make a piece which the dictionary lacks. Most are only steps on the way to a longer one.
    pub(crate) fn unlisted_merges(&self) -> usize {
        let is_listed = |piece: &str| self.dictionary.id(piece).is_some();
        let is_unlisted = |symbol: &str| {
            let (piece, other) = self.segmenter.forms(symbol);
            !is_listed(&piece) && !other.is_some_and(|other| is_listed(&other))
        };
        self.codes.merges.iter().filter(|(left, right)| is_unlisted(&[left.as_str(), right].concat())).count()
    }

    pub(crate) fn encode(&self, text: &str, cache: &mut MergeCache, out: &mut Vec<u32>) {
        for word in split_words(text) {
            if self.lower_case {
                self.encode_word(&word.to_lowercase(), cache, out);
            } else {
                self.encode_word(word, cache, out);
            }
        }
    }

    fn encode_word(&self, word: &str, cache: &mut MergeCache, out: &mut Vec<u32>) {
        if cache.recall(word.as_bytes(), out) {
            return;
        }
        let first = out.len();
        let dictionary = &self.dictionary;
        self.segmenter.pieces(word, &mut cache.scratch, |piece, _| out.push(dictionary.id_or_unknown(piece)));
        cache.remember(word.as_bytes(), &out[first..]);
    }

    /// The ids of a text, and the bytes of the text that each comes from.
    pub(crate) fn encode_with_spans(&self, text: &str) -> (Vec<u32>, Vec<Range<usize>>) {
        let (mut ids, mut spans, mut scratch) = (Vec::new(), Vec::new(), MergeScratch::default());
        for word in split_words(text) {
            let begin = word.as_ptr() as usize - text.as_ptr() as usize;
            let cased = if self.lower_case { word.to_lowercase().into() } else { Cow::Borrowed(word) };
            let origins = self.origins(word, begin);
            let mut at = 0;
            self.segmenter.pieces(&cased, &mut scratch, |piece, bytes| {
                ids.push(self.dictionary.id_or_unknown(piece));
                let from = origins.get(at..at + bytes).unwrap_or_default();
                let span = from.first().zip(from.last()).map(|(first, last)| first.start..last.end);
                spans.push(span.unwrap_or(begin..begin + word.len()));
                at += bytes;
            });
        }
        (ids, spans)
    }

    /// The character of the text that each byte of a word comes from, as it is encoded. In lower case, a sigma at the end of a word is as long as
    /// another, so each character may be looked at by itself.
    fn origins(&self, word: &str, begin: usize) -> Vec<Range<usize>> {
        let mut origins = Vec::with_capacity(word.len());
        for (at, c) in word.char_indices() {
            let encoded: usize =
                if self.lower_case { c.to_lowercase().map(char::len_utf8).sum() } else { c.len_utf8() };
            let origin = begin + at..begin + at + c.len_utf8();
            origins.resize(origins.len() + encoded, origin);
        }
        origins
    }

    /// The text of ids: pieces without separator end a word, and words have single blanks between them. The end of a sentence reads as a line
    /// break; what begins one, and what fills up a batch, as nothing.
    pub(crate) fn decode(&self, ids: &[u32]) -> String {
        let mut text = String::new();
        let mut is_joined = true;
        for id in ids.iter().filter(|id| !self.dictionary.is_silent(**id)) {
            let Some(symbol) = self.dictionary.symbol(*id) else { continue };
            if *id == self.dictionary.end() {
                text.push('\n');
                is_joined = true;
                continue;
            }
            if !is_joined {
                text.push(' ');
            }
            let inner = symbol.strip_suffix(SEPARATOR);
            text.push_str(inner.unwrap_or(symbol));
            is_joined = inner.is_some();
        }
        text
    }
}
