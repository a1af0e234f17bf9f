//! Translations that are written, a token of each at a time: keys and values of the source are made once, those of the target are kept.

use segue_decode::{Attention, Decoder};
use segue_layers::attention::multi_head::KeyValues;
use tch::{Device, Tensor};

use super::model::{Transformer, padding_mask};

/// Translations of several sources, `beams` rows of each.
pub struct Translating<'a> {
    model: &'a Transformer,
    beams: i64,
    /// Of each layer, keys and values of the sources.
    sources: Vec<KeyValues>,
    /// `[sources, 1, source]`
    mask: Option<Tensor>,
    /// Of each layer, keys and values of what was written, a row each.
    written: Vec<Option<KeyValues>>,
    position: i64,
    /// Tokens of each source.
    lengths: Vec<usize>,
    /// Of the last step, `[rows, source]`.
    attention: Option<Tensor>,
}

impl<'a> Translating<'a> {
    /// Of `sources`, `[sources, source]` padded ids of these `lengths`, with `beams` rows each.
    pub fn new(model: &'a Transformer, sources: &Tensor, lengths: &[i64], beams: usize) -> Self {
        tch::no_grad(|| {
            let mask = padding_mask(lengths, sources.size()[1], model.device());
            let states = model.encode(sources, mask.as_ref(), None);
            let layers = model.decoder_layers();
            let of_source = layers.iter().filter_map(|layer| layer.to_source());
            let sources = of_source.map(|(heads, _)| heads.key_values(&states)).collect();
            let written = layers.iter().map(|_| None).collect();
            let lengths = lengths.iter().map(|length| *length as usize).collect();
            Self { model, beams: beams as i64, sources, mask, written, position: 0, lengths, attention: None }
        })
    }
}

impl Decoder for Translating<'_> {
    fn read(&mut self, ids: &Tensor) {
        for position in 0..ids.size()[1] {
            let _ = self.advance(&ids.select(1, position));
        }
    }

    fn step(&mut self, last: &Tensor) -> Tensor {
        let states = self.advance(last);
        tch::no_grad(|| self.model.log_probs(&states))
    }

    /// Rows of a source stay together; a source none of whose rows is kept goes.
    fn keep(&mut self, rows: &Tensor) {
        let heads = self.heads();
        for written in self.written.iter_mut().flatten() {
            *written = written.select(rows, heads);
        }
        let first_rows = rows.view([-1, self.beams]).select(1, 0);
        let sources = first_rows.divide_scalar_mode(self.beams, "floor").to_kind(tch::Kind::Int64);
        if self.sources.first().is_some_and(|first| first.rows(heads) != sources.size()[0]) {
            self.sources.iter_mut().for_each(|source| *source = source.select(&sources, heads));
            self.mask = self.mask.as_ref().map(|mask| mask.index_select(0, &sources));
            let kept = Vec::<i64>::try_from(&sources).unwrap_or_default();
            self.lengths = kept.iter().map(|source| self.lengths[*source as usize]).collect();
        }
    }

    fn attention(&self) -> Option<Attention> {
        let weights = self.attention.as_ref()?.shallow_clone();
        let rows = self.lengths.iter().flat_map(|length| vec![*length; self.beams as usize]);
        Some(Attention { weights, lengths: rows.collect() })
    }

    fn device(&self) -> Device {
        self.model.device()
    }
}

impl Translating<'_> {
    fn heads(&self) -> i64 {
        self.model.config().decoder_attention_heads as i64
    }

    /// Takes in the last token of each row, `[rows]`; returns what predicts the next one, `[rows, d_model]`.
    fn advance(&mut self, last: &Tensor) -> Tensor {
        let _no_graph = tch::no_grad_guard();
        let (written, sources, mask) = (&mut self.written, &self.sources, self.mask.as_ref());
        let (beams, rows) = (self.beams, last.size()[0]);
        let mut attention = None;
        let states = self.model.step(last, self.position, |index, layer, stream| {
            let (heads, around) = layer.attention();
            let own = around.input(&stream);
            let more = heads.key_values(&own);
            let all = match written[index].take() {
                Some(before) => before.then(&more),
                None => more,
            };
            let read = heads.read(&own, &all, None, None);
            written[index] = Some(all);
            let stream = around.add(&read, &heads.out, &stream, None);
            let Some((heads, around)) = layer.to_source() else { return layer.feed(stream, None) };
            // Beams of a source are queries of one text: its keys and values are there once.
            let own = around.input(&stream).view([rows / beams, beams, -1]);
            let (read, weights) = heads.read_with_weights(&own, &sources[index], mask);
            attention = Some(weights.view([rows, -1]));
            layer.feed(around.add(&read.view([rows, 1, -1]), &heads.out, &stream, None), None)
        });
        self.attention = attention;
        self.position += 1;
        states
    }
}
