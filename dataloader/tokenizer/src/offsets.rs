use std::ops::Range;

use super::interface::Tokenizer;
use super::model::Model;

/// A text as ids, each with the part of the text that it stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Located {
    /// As [`Tokenizer::encode`] gives them.
    pub ids: Vec<u32>,
    /// The bytes of the text that each id stands for, without white space at the ends; of an id that stands for white
    /// space alone, or for nothing, an empty range. Ranges begin and end between characters, in the order of the text;
    /// two tokens of one character have the same.
    pub spans: Vec<Range<usize>>,
}

impl Tokenizer {
    /// The ids of a text, and where in the text each comes from. The spans are exact whatever normalisation does to the
    /// text: they are kept along its steps, not guessed from the result. Fails where [`super::Encoder::encode`] does.
    ///
    /// ```
    /// use segue_tokenizer::Tokenizer;
    ///
    /// let located = Tokenizer::bytes().encode_with_offsets("aé").unwrap();
    /// assert_eq!(located.ids, [97, 0xC3, 0xA9]);
    /// assert_eq!(located.spans, [0..1, 1..3, 1..3]);
    /// ```
    pub fn encode_with_offsets(&self, text: &str) -> Result<Located, String> {
        let (ids, spans) = match self.model() {
            Model::SentencePiece(pieces) => pieces.encode_with_spans(text),
            Model::HuggingFace(hugging_face) => hugging_face.encode_with_spans(text)?,
            Model::Bytes(bytes) => {
                let known =
                    text.bytes().enumerate().filter_map(|(at, byte)| Some((bytes.id(byte)?, at..at + 1)));
                known.unzip()
            }
            Model::Characters(_) => {
                let characters = text.char_indices().map(|(at, c)| at..at + c.len_utf8());
                self.encode_each(text, characters)
            }
            Model::Words(words) => words.encode_with_spans(text),
            Model::SubwordNmt(words) => words.encode_with_spans(text),
            Model::Marian(marian) => marian.encode_with_spans(text),
        };
        let spans = spans.into_iter().map(|span| trimmed(text, span)).collect();
        Ok(Located { ids, spans })
    }

    /// Of kinds that look at each part of a text alone.
    fn encode_each(
        &self,
        text: &str,
        parts: impl Iterator<Item = Range<usize>>,
    ) -> (Vec<u32>, Vec<Range<usize>>) {
        let (mut ids, mut spans) = (Vec::new(), Vec::new());
        for part in parts {
            self.encode(&text[part.clone()], &mut ids);
            spans.resize(ids.len(), part);
        }
        (ids, spans)
    }
}

/// A part of a text, widened to whole characters, without white space at the ends.
fn trimmed(text: &str, span: Range<usize>) -> Range<usize> {
    let cuts = |at: &usize| text.is_char_boundary(*at);
    let begin = (0..=span.start.min(text.len())).rev().find(cuts).unwrap_or(0);
    let end = (span.end.min(text.len())..=text.len()).find(cuts).unwrap_or(text.len());
    let part = &text[begin..end];
    let begin = begin + (part.len() - part.trim_start().len());
    begin..begin + part.trim().len()
}
