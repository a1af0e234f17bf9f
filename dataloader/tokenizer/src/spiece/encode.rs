//! Text to the ids of a model's pieces, with what XLNet does before and after.

use std::borrow::Cow;
use std::ops::Range;

use super::commas::cut_with_commas_apart;
use super::model::SentencePiece;
use super::origins::Origins;

impl SentencePiece {
    /// Appends the ids of a text. A run of unknown characters is one token, or its bytes where the model has pieces
    /// for them.
    pub(crate) fn encode(&self, text: &str, out: &mut Vec<u32>) {
        let normalized = match self.xlnet() {
            None => self.normalizer.normalize(text),
            Some(normalization) => self.normalizer.normalize(&normalization.prepare(text)),
        };
        self.for_each_token(&normalized, &mut |id, _| out.push(id));
    }

    /// The ids of a text, and the bytes of the text that each comes from.
    pub(crate) fn encode_with_spans(&self, text: &str) -> (Vec<u32>, Vec<Range<usize>>) {
        let (prepared, origins) = match self.xlnet() {
            None => (Cow::Borrowed(text), Origins::identity(text.len())),
            Some(normalization) => {
                let (prepared, origins) = normalization.prepare_traced(text);
                (Cow::Owned(prepared), origins)
            }
        };
        let mut of_normalized = Origins::default();
        let normalized = self.normalizer.normalize_traced(&prepared, &mut of_normalized);
        let (mut ids, mut spans) = (Vec::new(), Vec::new());
        self.for_each_token(&normalized, &mut |id, place| {
            ids.push(id);
            spans.push(origins.cover(of_normalized.cover(place)));
        });
        (ids, spans)
    }

    /// Calls `each` with the id of every token of a text, and with what it is in the normalised text.
    pub(crate) fn each_surface(&self, text: &str, each: &mut dyn FnMut(u32, &[u8])) {
        let normalized = self.normalizer.normalize(text);
        self.for_each_token(&normalized, &mut |id, place| each(id, &normalized[place]));
    }

    /// The same, with the bytes of the text that it comes from.
    pub(crate) fn each_surface_with_span(&self, text: &str, mut each: impl FnMut(u32, &[u8], Range<usize>)) {
        let mut origins = Origins::default();
        let normalized = self.normalizer.normalize_traced(text, &mut origins);
        self.for_each_token(&normalized, &mut |id, place| {
            each(id, &normalized[place.clone()], origins.cover(place));
        });
    }

    /// Calls `each` with the id of every token and its place in the normalised text.
    pub(super) fn for_each_token(&self, normalized: &[u8], each: &mut dyn FnMut(u32, Range<usize>)) {
        match self.xlnet() {
            None => self.for_each_piece(normalized, each),
            Some(_) => cut_with_commas_apart(self, normalized, each),
        }
    }
}
