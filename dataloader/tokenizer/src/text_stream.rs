use super::interface::Tokenizer;

/// Tokens that are decoded anew with each one that comes. What decoders do to a token depends on those right before it at most: on the
/// first bytes of its character, on a line break, on the run of bytes it is in.
const CONTEXT: usize = 16;
/// Places where [`CONTEXT`] or more tokens begin that are tried in turn: a character has four bytes at most.
const CUTS: usize = 8;

/// Text of tokens as they come: the same text as that of all of them decoded at once, in time that does not grow with their number, but within
/// a run of bytes that are no text. A character whose bytes are not all there yet is held back.
///
/// One thing cannot be the same: decoders of Llama's kind (`ByteFallback`) take back a run of bytes once it contains a bad one. What was
/// handed over of it stays.
///
/// ```
/// use segue_tokenizer::{TextStream, Tokenizer};
///
/// let tokenizer = Tokenizer::bytes();
/// let mut stream = TextStream::new(&tokenizer, vec![65]);
/// assert_eq!([0xC3, 0xA9, 66].map(|id| stream.push(id)), ["", "é", "B"]);
/// ```
pub struct TextStream<'a> {
    tokenizer: &'a Tokenizer,
    /// The last tokens.
    ids: Vec<u32>,
    /// Bytes of their text that have been handed over.
    shown: usize,
    /// Number of `ids` from which on older ones are dropped.
    full: usize,
}

impl<'a> TextStream<'a> {
    /// Goes on after `ids`, whose text is known already.
    pub fn new(tokenizer: &'a Tokenizer, ids: Vec<u32>) -> Self {
        let text = tokenizer.decode(&ids);
        let mut this = Self { tokenizer, ids, shown: text.len(), full: 2 * CONTEXT };
        this.drop_old(&text);
        this
    }

    /// The text that one more token makes certain. An id outside the vocabulary stands for no text.
    pub fn push(&mut self, id: u32) -> String {
        if (id as usize) < self.tokenizer.vocab_size() {
            self.ids.push(id);
        }
        let text = self.tokenizer.decode(&self.ids);
        let certain = text.trim_end_matches(char::REPLACEMENT_CHARACTER).len();
        let new = self.take(&text[..certain]);
        self.drop_old(&text);
        new
    }

    /// What was held back, where no more tokens come.
    pub fn rest(&mut self) -> String {
        let text = self.tokenizer.decode(&self.ids);
        // The decoder has taken back what was handed over: of what is held back, nothing is told but that it is bad.
        if text.trim_end_matches(char::REPLACEMENT_CHARACTER).len() < self.shown && text.len() > self.shown {
            self.shown = text.len();
            return char::REPLACEMENT_CHARACTER.into();
        }
        self.take(&text)
    }

    fn take(&mut self, text: &str) -> String {
        let new = text.get(self.shown..).unwrap_or_default().to_string();
        self.shown = self.shown.max(text.len());
        new
    }

    /// Drops tokens where there are many: those without which the rest still has the end of `text`, which is that of all. A cut inside of a
    /// character would make another text.
    fn drop_old(&mut self, text: &str) {
        if self.ids.len() < self.full || text.ends_with(char::REPLACEMENT_CHARACTER) {
            return;
        }
        let last = self.ids.len() - CONTEXT;
        let cut = (1..=last).rev().take(CUTS).find_map(|begin| {
            let rest = self.tokenizer.decode(&self.ids[begin..]);
            let dropped = text.len().checked_sub(rest.len())?;
            // Decoders treat the begin of a text in their own way: it has to be behind.
            (text.ends_with(&rest) && dropped < self.shown).then_some((begin, dropped))
        });
        match cut {
            Some((begin, dropped)) => {
                self.ids.drain(..begin);
                self.shown -= dropped;
                self.full = 2 * CONTEXT;
            }
            // Not again for each token.
            None => self.full = 2 * self.ids.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_tokens_are_decoded_however_many_came() {
        let tokenizer = Tokenizer::bytes();
        let text = "né 中文 \u{1F980}\u{1F980}\u{1F980}\u{1F980} x".repeat(100);
        let mut ids = Vec::new();
        tokenizer.encode(&text, &mut ids);
        let mut stream = TextStream::new(&tokenizer, ids.clone());
        for id in ids {
            assert!(stream.ids.len() <= 2 * CONTEXT + CUTS, "{} tokens", stream.ids.len());
            stream.push(id);
        }
    }

    #[test]
    fn what_is_held_back_comes_at_the_end() {
        let tokenizer = Tokenizer::bytes();
        let mut stream = TextStream::new(&tokenizer, vec![65]);
        assert_eq!([0xC3, 0xA9, 66, 0xC3].map(|id| stream.push(id)), ["", "é", "B", ""]);
        assert_eq!((stream.rest(), stream.rest()), ("\u{fffd}".into(), String::new()));
    }
}
