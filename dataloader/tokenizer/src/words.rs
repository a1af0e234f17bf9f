use std::ops::Range;

use ahash::AHashMap;

use super::added::{AddedWords, Part};
use super::special_tokens::{EOS, UNK};

/// Words between white space as tokens, as WikiText and the Transformer-XL reference have them.
#[derive(Debug)]
pub(crate) struct WordTokenizer {
    words: Vec<Box<str>>,
    ids: AHashMap<Box<str>, u32>,
    lower_case: bool,
    unk: u32,
    eos: u32,
    /// Tokens that are found in the text before it is cut into words.
    added: Option<AddedWords>,
}

impl WordTokenizer {
    /// From the words in the order of their ids; `<unk>` and `<eos>` are among them.
    pub(crate) fn new(words: Vec<Box<str>>, lower_case: bool) -> Result<WordTokenizer, String> {
        WordTokenizer::with_specials(words, lower_case, UNK, EOS)
    }

    /// The same with other names for unknown words and for the end of a sentence.
    pub(crate) fn with_specials(
        words: Vec<Box<str>>,
        lower_case: bool,
        unk: &str,
        eos: &str,
    ) -> Result<WordTokenizer, String> {
        let mut ids = AHashMap::with_capacity(words.len());
        for (id, word) in words.iter().enumerate() {
            if word.is_empty() || word.contains(is_space) {
                return Err(format!("entry {} is {word:?}, which is not one word", id + 1));
            }
            if let Some(first) = ids.insert(word.clone(), id as u32) {
                return Err(format!("entries {} and {} are both {word:?}", first + 1, id + 1));
            }
        }
        let special = |name: &str| ids.get(name).copied().ok_or_else(|| format!("it has no {name}"));
        let (unk, eos) = (special(unk)?, special(eos)?);
        Ok(WordTokenizer { words, ids, lower_case, unk, eos, added: None })
    }

    /// The same words with tokens beside them.
    pub(crate) fn with_added(self, added: AddedWords) -> WordTokenizer {
        WordTokenizer { added: Some(added), ..self }
    }

    pub(crate) fn added(&self) -> Option<&AddedWords> {
        self.added.as_ref()
    }

    /// Number of ids.
    pub(crate) fn vocab_size(&self) -> usize {
        self.words.len().max(self.added.as_ref().map_or(0, AddedWords::end))
    }

    /// The word or token of an id.
    pub(crate) fn word(&self, id: u32) -> Option<&str> {
        let own = self.words.get(id as usize).map(|word| &**word);
        own.or_else(|| self.added.as_ref()?.content(id))
    }

    pub(crate) fn words(&self) -> &[Box<str>] {
        &self.words
    }

    pub(crate) fn lower_case(&self) -> bool {
        self.lower_case
    }

    pub(crate) fn unk(&self) -> u32 {
        self.unk
    }

    pub(crate) fn eos(&self) -> u32 {
        self.eos
    }

    pub(crate) fn id(&self, word: &str) -> Option<u32> {
        self.ids.get(word).copied().or_else(|| self.added.as_ref()?.id(word))
    }

    pub(crate) fn encode(&self, text: &str, out: &mut Vec<u32>) {
        let Some(added) = &self.added else { return self.encode_words(text, out) };
        for part in added.parts(text) {
            match part {
                Part::Text(place) => self.encode_words(&text[place], out),
                Part::Token(id, _) => out.push(id),
            }
        }
    }

    fn encode_words(&self, text: &str, out: &mut Vec<u32>) {
        if self.lower_case {
            self.encode_cased(&text.to_lowercase(), out);
        } else {
            self.encode_cased(text, out);
        }
    }

    fn encode_cased(&self, text: &str, out: &mut Vec<u32>) {
        out.extend(split_words(text).map(|word| self.ids.get(word).copied().unwrap_or(self.unk)));
    }

    /// The ids of a text, and the bytes of the text that each comes from.
    pub(crate) fn encode_with_spans(&self, text: &str) -> (Vec<u32>, Vec<Range<usize>>) {
        let parts = match &self.added {
            None => vec![Part::Text(0..text.len())],
            Some(added) => added.parts(text),
        };
        let (mut ids, mut spans) = (Vec::new(), Vec::new());
        for part in parts {
            let place = match part {
                Part::Text(place) => place,
                Part::Token(id, place) => {
                    ids.push(id);
                    spans.push(place);
                    continue;
                }
            };
            for word in split_words(&text[place]) {
                let begin = word.as_ptr() as usize - text.as_ptr() as usize;
                self.encode_words(word, &mut ids);
                spans.resize(ids.len(), begin..begin + word.len());
            }
        }
        (ids, spans)
    }

    /// Words with single spaces between them; `<eos>` reads as a line break.
    pub(crate) fn decode(&self, ids: &[u32]) -> String {
        let mut text = String::new();
        let mut begins_line = true;
        for id in ids {
            if *id == self.eos {
                text.push('\n');
                begins_line = true;
            } else if let Some(word) = self.word(*id) {
                if !begins_line {
                    text.push(' ');
                }
                text.push_str(word);
                begins_line = false;
            }
        }
        text
    }
}

/// The words of a text. White space is what Python's `str.split` takes for it, as the reference counts with that:
/// Unicode white space and the four separators U+001C to U+001F.
pub(crate) fn split_words(text: &str) -> impl Iterator<Item = &str> {
    text.split(is_space).filter(|word| !word.is_empty())
}

pub(crate) fn is_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{1c}'..='\u{1f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(lower_case: bool) -> WordTokenizer {
        let words = [EOS, "the", UNK, "cat"].map(Box::from).to_vec();
        WordTokenizer::new(words, lower_case).unwrap()
    }

    #[test]
    fn unknown_words_become_unk_and_lines_read_back() {
        let (tokenizer, mut ids) = (sample(false), Vec::new());
        tokenizer.encode(" the\u{a0}cat\u{1f}<unk>  The ", &mut ids);
        assert_eq!(ids, [1, 3, 2, 2]);
        ids.extend([0, 3]);
        assert_eq!(tokenizer.decode(&ids), "the cat <unk> <unk>\ncat");
    }

    #[test]
    fn lower_case_is_a_property_of_the_tokenizer() {
        let mut ids = Vec::new();
        sample(true).encode("THE Cat", &mut ids);
        assert_eq!(ids, [1, 3]);
    }

    #[test]
    fn a_list_with_a_fault_names_the_line() {
        let list = |words: &[&str]| words.iter().map(|w| Box::from(*w)).collect::<Vec<Box<str>>>();
        assert!(
            WordTokenizer::new(list(&[EOS, UNK, "a", "a"]), false).unwrap_err().contains("entries 3 and 4")
        );
        assert!(WordTokenizer::new(list(&[EOS, UNK, "a b"]), false).unwrap_err().contains("entry 3"));
        assert!(WordTokenizer::new(list(&["a"]), false).unwrap_err().contains(UNK));
    }
}
