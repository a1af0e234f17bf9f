//! Translations that are written by rows, a token of each at a time.

use segue_decode::{Attention, Decoder};
use segue_kernels::libtorch::as_f32_mut;
use segue_layers::position_vector;
use segue_layers::rows::mapped;
use tch::{Device, Kind, Tensor};

use super::{RowLayer, RowTransformer};
use crate::side::Side;

/// Where the tokens of a source are.
#[derive(Clone, Copy)]
struct SourceSpan {
    /// Place of its first token among those of all.
    first: usize,
    tokens: usize,
}

/// Translations of several sources, `beams` rows of each. Keys and values of what is written stay where they were made; a row that is kept remembers where.
pub struct RowTranslating<'a> {
    model: &'a RowTransformer,
    beams: usize,
    sources: Vec<SourceSpan>,
    /// Of each layer, keys and values of the tokens of all sources, `[tokens, 2 d_model]`.
    of_sources: Vec<Vec<f32>>,
    /// Of each layer and step, keys and values of each row, `[rows, 2 d_model]`.
    written: Vec<Vec<Vec<f32>>>,
    /// Of each row, which row of each step it was.
    history: Vec<Vec<u32>>,
    /// Attention of the last step to the source, of each row, the mean over the heads of the last layer.
    attention: Vec<Vec<f32>>,
}

impl<'a> RowTranslating<'a> {
    /// Of `sources`, ids with their ends, with `beams` rows each.
    pub fn new(model: &'a RowTransformer, sources: &[Vec<i64>], beams: usize) -> Self {
        let states = model.encode(sources);
        let of_source =
            |layer: &RowLayer| layer.source.as_ref().map(|(_, map)| mapped(map, &states)).unwrap_or_default();
        let mut first = 0;
        let places = sources.iter().map(|source| {
            let place = SourceSpan { first, tokens: source.len() };
            first += source.len();
            place
        });
        Self {
            beams,
            sources: places.collect(),
            of_sources: model.decoder.iter().map(of_source).collect(),
            written: model.decoder.iter().map(|_| Vec::new()).collect(),
            history: vec![Vec::new(); sources.len() * beams],
            attention: Vec::new(),
            model,
        }
    }

    /// Takes in the last token of each row; returns what predicts the next one, `[rows, d_model]`.
    fn advance(&mut self, last: &[i64]) -> Vec<f32> {
        let (model, width) = (self.model, self.model.config.d_model);
        let step = self.history.first().map_or(0, Vec::len);
        let position: Vec<f32> = position_vector(step, width).collect();
        let mut states = vec![0.0; last.len() * width];
        for (token, to) in last.iter().zip(states.chunks_exact_mut(width)) {
            model.embed(*token, &position, to);
        }
        self.history.iter_mut().zip(0..).for_each(|(history, row)| history.push(row));
        for (index, layer) in model.decoder.iter().enumerate() {
            model.add(&mut states, &layer.own.norm, |input| {
                let all = mapped(&layer.own.query, input);
                let rows = all.chunks_exact(3 * width);
                self.written[index].push(rows.clone().flat_map(|row| &row[width..]).copied().collect());
                let queries = rows.map(|row| &row[..width]);
                mapped(&layer.own.out, &self.read_own(index, queries))
            });
            if let Some((reading, _)) = &layer.source {
                model.add(&mut states, &reading.norm, |input| {
                    let queries = mapped(&reading.query, input);
                    let is_last = index + 1 == model.decoder.len();
                    mapped(&reading.out, &self.read_sources(index, &queries, is_last))
                });
            }
            model.feed(&mut states, layer);
        }
        model.end(&mut states, Side::Decoder);
        states
    }

    /// What each row reads of what it has written by its query, `[rows, d_model]`.
    fn read_own<'q>(&self, index: usize, queries: impl Iterator<Item = &'q [f32]>) -> Vec<f32> {
        let (heads, steps) = (self.model.decoder[index].own.heads, &self.written[index]);
        let width = heads.d_model;
        let mut read = vec![0.0; self.history.len() * width];
        let mut weights = Vec::new();
        for ((query, history), to) in queries.zip(&self.history).zip(read.chunks_exact_mut(width)) {
            let rows = steps.iter().zip(history);
            let from: Vec<&[f32]> =
                rows.map(|(step, row)| &step[*row as usize * 2 * width..][..2 * width]).collect();
            heads.read(query, &from, &mut weights, to);
        }
        read
    }

    /// What each row reads of its source by its query, `[rows, d_model]`; remembers the weights, if they are to be `kept`.
    fn read_sources(&mut self, index: usize, queries: &[f32], kept: bool) -> Vec<f32> {
        let Some((reading, _)) = &self.model.decoder[index].source else { return Vec::new() };
        let (heads, of_sources) = (reading.heads, &self.of_sources[index]);
        let width = heads.d_model;
        let mut read = vec![0.0; queries.len()];
        let mut weights = Vec::new();
        if kept {
            self.attention.clear();
        }
        let rows = queries.chunks_exact(width * self.beams).zip(read.chunks_exact_mut(width * self.beams));
        for (source, (queries, read)) in self.sources.iter().zip(rows) {
            let of_source = &of_sources[source.first * 2 * width..][..source.tokens * 2 * width];
            let from: Vec<&[f32]> = of_source.chunks_exact(2 * width).collect();
            for (query, to) in queries.chunks_exact(width).zip(read.chunks_exact_mut(width)) {
                heads.read(query, &from, &mut weights, to);
                if kept {
                    self.attention.push(mean_of_heads(&weights, source.tokens));
                }
            }
        }
        read
    }
}

/// The mean over heads of their weights, `[heads, count]`.
fn mean_of_heads(weights: &[f32], count: usize) -> Vec<f32> {
    let heads = (weights.len() / count.max(1)) as f32;
    let mut mean = vec![0.0; count];
    for of_head in weights.chunks_exact(count) {
        mean.iter_mut().zip(of_head).for_each(|(mean, weight)| *mean += weight / heads);
    }
    mean
}

impl Decoder for RowTranslating<'_> {
    fn read(&mut self, ids: &Tensor) {
        for position in 0..ids.size()[1] {
            let _ = self.advance(&ids_of(&ids.select(1, position)));
        }
    }

    fn step(&mut self, last: &Tensor) -> Tensor {
        let states = self.advance(&ids_of(last));
        let words = self.model.config.vocab_size as i64;
        let mut log_probs = Tensor::empty([last.size()[0], words], (Kind::Float, Device::Cpu));
        self.model.log_probs(&states, as_f32_mut(&mut log_probs));
        log_probs
    }

    /// Rows of a source stay together; a source none of whose rows is kept goes.
    fn keep(&mut self, rows: &Tensor) {
        let rows = ids_of(rows);
        let kept = rows.iter().step_by(self.beams).map(|row| self.sources[*row as usize / self.beams]);
        self.sources = kept.collect();
        self.history = rows.iter().map(|row| self.history[*row as usize].clone()).collect();
    }

    fn attention(&self) -> Option<Attention> {
        let lengths: Vec<usize> = self.attention.iter().map(Vec::len).collect();
        let longest = lengths.iter().copied().max()?;
        let mut weights = Vec::with_capacity(lengths.len() * longest);
        for (number, row) in self.attention.iter().enumerate() {
            weights.extend_from_slice(row);
            weights.resize((number + 1) * longest, 0.0);
        }
        Some(Attention { weights: Tensor::from_slice(&weights).view([-1, longest as i64]), lengths })
    }

    fn device(&self) -> Device {
        Device::Cpu
    }
}

/// The ids of a tensor.
fn ids_of(ids: &Tensor) -> Vec<i64> {
    let mut values = vec![0i64; ids.numel()];
    ids.contiguous().view([-1]).copy_data(&mut values, ids.numel());
    values
}
