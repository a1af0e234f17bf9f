use ahash::AHashMap;

use super::special_tokens::{EOS, UNK};

/// Characters (Unicode scalar values) as tokens, with an id for unknown ones and one that ends a sentence.
#[derive(Clone, Debug)]
pub(crate) struct CharTokenizer {
    symbols: Vec<String>,
    ids: AHashMap<char, u32>,
    lower_case: bool,
    unk: u32,
    eos: u32,
}

impl CharTokenizer {
    /// From the symbols in the order of their ids: single characters, `<unk>`, `<eos>` and other special tokens.
    pub(crate) fn new(symbols: Vec<String>, lower_case: bool) -> Result<CharTokenizer, String> {
        let mut ids = AHashMap::with_capacity(symbols.len());
        for (id, symbol) in symbols.iter().enumerate() {
            let mut chars = symbol.chars();
            if let (Some(single), None) = (chars.next(), chars.next())
                && ids.insert(single, id as u32).is_some()
            {
                return Err(format!("the character {single:?} has two ids"));
            }
        }
        let special = |name: &str| {
            let place = symbols.iter().position(|symbol| symbol == name);
            place.map(|id| id as u32).ok_or_else(|| format!("it has no {name}"))
        };
        let (unk, eos) = (special(UNK)?, special(EOS)?);
        Ok(CharTokenizer { symbols, ids, lower_case, unk, eos })
    }

    pub(crate) fn symbols(&self) -> &[String] {
        &self.symbols
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

    pub(crate) fn encode(&self, text: &str, out: &mut Vec<u32>) {
        each_char(text, self.lower_case, |c| out.push(self.ids.get(&c).copied().unwrap_or(self.unk)));
    }

    /// The end of a sentence reads as a line break, an unknown character as U+FFFD.
    pub(crate) fn decode(&self, ids: &[u32]) -> String {
        let mut text = String::with_capacity(ids.len());
        for id in ids {
            match self.symbols.get(*id as usize) {
                _ if *id == self.eos => text.push('\n'),
                _ if *id == self.unk => text.push(char::REPLACEMENT_CHARACTER),
                Some(symbol) => text.push_str(symbol),
                None => {}
            }
        }
        text
    }
}

/// Hands over the characters that are counted and encoded of a text. Each is lower-cased by itself: `str::to_lowercase` writes a sigma at the
/// end of a word in another way.
pub(crate) fn each_char(text: &str, lower_case: bool, each: impl FnMut(char)) {
    match lower_case {
        true => text.chars().flat_map(char::to_lowercase).for_each(each),
        false => text.chars().for_each(each),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_characters_and_line_ends_have_ids_of_their_own() {
        let symbols = [EOS, UNK, "a", "é"].map(String::from).to_vec();
        let (tokenizer, mut ids) = (CharTokenizer::new(symbols, false).unwrap(), Vec::new());
        tokenizer.encode("aéz", &mut ids);
        assert_eq!(ids, [2, 3, 1]);
        ids.push(tokenizer.eos());
        assert_eq!(tokenizer.decode(&ids), "aé\u{FFFD}\n");
    }

    #[test]
    fn a_table_without_its_special_tokens_is_refused() {
        assert!(CharTokenizer::new(vec!["a".into()], false).is_err());
        assert!(CharTokenizer::new(["a", "a", UNK, EOS].map(String::from).to_vec(), false).is_err());
    }
}
