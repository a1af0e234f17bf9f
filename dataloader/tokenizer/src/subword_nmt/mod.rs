//! Byte-pair encoding of words in the files of subword-nmt, with the dictionaries of fairseq.
//!
//! Source: Sennrich, Haddow and Birch, ACL 2016, and the programs as they are: subword-nmt 0.3.8 and `data/dictionary.py` of fairseq.

mod codes;
mod dictionary;
mod learn;
mod model;
mod pair_counts;
mod segment;

pub(crate) use codes::{Codes, HEADER};
pub(crate) use dictionary::{Dictionary, END_OF_SENTENCE, SPECIALS};
pub(crate) use model::{CODES_FILE, DICTIONARY_FILE, SubwordNmt};

/// The words of a text, as subword-nmt cuts its lines: at blanks and line breaks. Other white space is part of a word.
pub(crate) fn split_words(text: &str) -> impl Iterator<Item = &str> {
    text.split([' ', '\n', '\r']).filter(|word| !word.is_empty())
}
