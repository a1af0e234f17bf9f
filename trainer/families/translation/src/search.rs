//! Translations of sentences that stand side by side.

use segue_decode::{BeamSettings, Hypothesis, Symbols, beam_search};
use segue_kernels::libtorch::stream::put;
use tch::Tensor;

use super::decoding::Translating;
use super::model::Transformer;

/// How sentences are translated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Search {
    /// How translations are searched for.
    pub beam: BeamSettings,
    /// Tokens that a translation may have more than its source.
    pub more_tokens: usize,
}

impl Search {
    /// Translations of `sources`, token ids with their ends: of each those found, the best first.
    pub fn translate(&self, model: &Transformer, sources: &[Vec<i64>]) -> Vec<Vec<Hypothesis>> {
        let Some(longest) = sources.iter().map(Vec::len).max() else { return Vec::new() };
        let config = model.config();
        let (end, padding) = (config.eos_token_id as i64, config.pad_token_id as i64);
        let mut ids = Vec::with_capacity(sources.len() * longest);
        for (row, source) in sources.iter().enumerate() {
            ids.extend_from_slice(source);
            ids.resize((row + 1) * longest, padding);
        }
        let ids = put(Tensor::from_slice(&ids).view([-1, longest as i64]), model.device());
        let lengths: Vec<i64> = sources.iter().map(|source| source.len() as i64).collect();
        let decoder = Translating::new(model, &ids, &lengths, self.beam.beams);
        let most = config.max_position_embeddings;
        let limits: Vec<usize> =
            sources.iter().map(|source| (source.len() + self.more_tokens).min(most)).collect();
        let symbols = Symbols { start: padding, end, never: Some(padding) };
        beam_search(Box::new(decoder), &limits, symbols, &self.beam)
    }
}
