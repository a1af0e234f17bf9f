//! Translations of sentences that stand side by side.

use std::sync::OnceLock;

use segue_decode::{BeamSettings, Decoder, Hypothesis, Symbols, beam_search};
use segue_kernels::Parameters;
use segue_kernels::libtorch::stream::put;
use segue_kernels::threads;
use segue_sentences::group_by_length;
use tch::Tensor;

use super::decoding::Translating;
use super::keys::TranslationConfig;
use super::model::Transformer;
use super::rows::{RowTransformer, RowTranslating};

/// Sentences that are translated side by side.
pub const TOGETHER: usize = 32;
/// Most scores of words in a step of a group.
const MOST_SCORES: usize = 1 << 23;
/// Most tokens of the sources of a group, times the beams.
const MOST_TOKENS: usize = 1 << 14;

/// How sentences are translated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Search {
    /// How translations are searched for.
    pub beam: BeamSettings,
    /// Tokens that a translation may have more than its source.
    pub more_tokens: usize,
}

/// A model as it translates.
pub enum DecodingModel {
    /// By rows: a sentence depends on no other one.
    Rows(Box<RowTransformer>),
    /// By tensors: products of other rows round otherwise.
    Tensors(Box<Transformer>),
}

impl DecodingModel {
    /// Over `parameters`: by rows where they are in f32 on the processor.
    pub fn new(config: &TranslationConfig, parameters: &Parameters) -> Self {
        match RowTransformer::new(config, parameters) {
            Some(rows) => Self::Rows(Box::new(rows)),
            None => Self::Tensors(Box::new(Transformer::new(config, parameters))),
        }
    }

    /// Its configuration.
    pub fn config(&self) -> &TranslationConfig {
        match self {
            Self::Rows(model) => model.config(),
            Self::Tensors(model) => model.config(),
        }
    }
}

/// Ids side by side, `[sources, longest]`, and the length of each.
fn padded(sources: &[Vec<i64>], padding: i64) -> (Tensor, Vec<i64>) {
    let longest = sources.iter().map(Vec::len).max().unwrap_or(0);
    let mut ids = Vec::with_capacity(sources.len() * longest);
    for (row, source) in sources.iter().enumerate() {
        ids.extend_from_slice(source);
        ids.resize((row + 1) * longest, padding);
    }
    let lengths = sources.iter().map(|source| source.len() as i64).collect();
    (Tensor::from_slice(&ids).view([-1, longest as i64]), lengths)
}

impl Search {
    /// Translations of `sources`, token ids with their ends: of each those found, the best first. By rows, groups of like length are translated on all threads,
    /// and no translation depends on which group it is in.
    pub fn translate(&self, model: &DecodingModel, sources: &[Vec<i64>]) -> Vec<Vec<Hypothesis>> {
        if sources.is_empty() {
            return Vec::new();
        }
        let rows = match model {
            DecodingModel::Rows(rows) => rows,
            DecodingModel::Tensors(model) => {
                let (ids, lengths) = padded(sources, model.config().pad_token_id as i64);
                let decoder = Translating::new(model, &put(ids, model.device()), &lengths, self.beam.beams);
                return self.together(model.config(), sources, Box::new(decoder));
            }
        };
        let groups = self.groups(sources, rows.config().vocab_size);
        let found: Vec<OnceLock<Vec<Hypothesis>>> = sources.iter().map(|_| OnceLock::new()).collect();
        threads::for_each(groups.len(), |group| {
            let own: Vec<Vec<i64>> =
                groups[group].iter().map(|number| sources[*number as usize].clone()).collect();
            let decoder = Box::new(RowTranslating::new(rows, &own, self.beam.beams));
            let of_group = self.together(rows.config(), &own, decoder);
            for (number, hypotheses) in groups[group].iter().zip(of_group) {
                // Each source is in one group.
                let _ = found[*number as usize].set(hypotheses);
            }
        });
        found.into_iter().map(|found| found.into_inner().unwrap_or_default()).collect()
    }

    /// Numbers of sources that are translated side by side, the longest first: as many as there are threads for, and so few that what a group keeps, and the scores
    /// of its words, have room.
    fn groups(&self, sources: &[Vec<i64>], words: usize) -> Vec<Vec<u32>> {
        let lengths: Vec<u32> = sources.iter().map(|source| source.len() as u32).collect();
        let fair = sources.len().div_ceil(threads::count());
        let scored = MOST_SCORES / (self.beam.beams * words).max(1);
        let most = TOGETHER.min(fair).min(scored).max(1);
        group_by_length(&lengths, MOST_TOKENS / self.beam.beams, most)
    }

    /// The same side by side, by a decoder that has begun with these.
    fn together(
        &self,
        config: &TranslationConfig,
        sources: &[Vec<i64>],
        decoder: Box<dyn Decoder + '_>,
    ) -> Vec<Vec<Hypothesis>> {
        let (end, padding) = (config.eos_token_id as i64, config.pad_token_id as i64);
        let most = config.max_position_embeddings;
        let limits: Vec<usize> =
            sources.iter().map(|source| (source.len() + self.more_tokens).min(most)).collect();
        let symbols = Symbols { start: padding, end, never: Some(padding) };
        beam_search(decoder, &limits, symbols, &self.beam)
    }
}
