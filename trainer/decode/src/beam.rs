//! Beam search: the most probable texts that a decoder can write, several candidates of each text side by side.
//!
//! K texts of each are alive at a time. Of their continuations the 2K most probable are looked at: those that end are finished, the others stay alive, K of them
//! at most. Which score decides, and when a search ends, differs between public programs: see [`LengthPenalty`] and [`Finish`].

mod step;
mod text;

use schemars::JsonSchema;
use segue_kernels::libtorch::stream::put;
use serde::{Deserialize, Serialize};
use tch::Tensor;

use self::step::Step;
use self::text::Text;
use super::Decoder;

/// What the log-probability of a text of L tokens, its end among them, is divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LengthPenalty {
    /// ((5 + L) / 6)^α of a text of L tokens (Wu et al. 2016, eq. 14; Tensor2Tensor).
    #[default]
    Gnmt,
    /// L^α, as in fairseq, where α is 1, and in Hugging Face's package.
    Length,
}

/// When the search for a text ends. It always does once no candidate can grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Finish {
    /// As many texts have ended as there are beams, and none that goes on can become better than the worst of them.
    #[default]
    Worst,
    /// None that goes on can become better than the best that has ended, as in Tensor2Tensor.
    Best,
    /// As `worst`, but an end counts where it is among as many most probable continuations as there are beams, and the last token that there may be
    /// is an end, whatever its probability: as in Hugging Face's package where `early_stopping` is `never` and `forced_eos_token_id` the end.
    Ranked,
    /// As many have ended as there are beams; an end counts where it is among as many most probable continuations, as in fairseq.
    First,
}

/// How to search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BeamSettings {
    /// K; 1 writes the most probable token each time.
    pub beams: usize,
    /// Exponent of the length penalty.
    pub alpha: f64,
    /// Its form.
    pub form: LengthPenalty,
    /// β of the coverage penalty, Σ_i β ln min(1, Σ_j attention of token j to source position i) (Wu et al. 2016, eq. 14), of decoders that tell their
    /// attention.
    pub coverage: f64,
    /// When it ends.
    pub finish: Finish,
    /// Whether texts come with the attention of each of their tokens.
    pub alignments: bool,
}

impl Default for BeamSettings {
    /// Those of the Transformer's paper.
    fn default() -> Self {
        Self {
            beams: 4,
            alpha: 0.6,
            form: LengthPenalty::Gnmt,
            coverage: 0.0,
            finish: Finish::Worst,
            alignments: false,
        }
    }
}

impl BeamSettings {
    /// What the log-probability of a text of `tokens` tokens is divided by.
    fn penalty(&self, tokens: usize) -> f64 {
        match self.form {
            LengthPenalty::Gnmt => ((5.0 + tokens as f64) / 6.0).powf(self.alpha),
            LengthPenalty::Length => (tokens as f64).powf(self.alpha),
        }
    }

    /// When it ends: one candidate cannot wait for a better one.
    fn finish(&self) -> Finish {
        if self.beams == 1 { Finish::First } else { self.finish }
    }

    fn watches_attention(&self) -> bool {
        self.coverage > 0.0 || self.alignments
    }
}

/// A text that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Hypothesis {
    /// Its tokens, without its end.
    pub tokens: Vec<i64>,
    /// ln P of all of them, and of its end.
    pub log_prob: f64,
    /// What it was chosen by: that over the length penalty, and the coverage penalty.
    pub score: f64,
    /// Whether it has ended by itself; else it was as long as it may be.
    pub ended: bool,
    /// Attention of each token to the source, `[tokens][source]`, where it was asked for.
    pub alignments: Vec<Vec<f32>>,
}

/// What texts are made of.
#[derive(Debug, Clone, Copy)]
pub struct Symbols {
    /// The token that a text begins after.
    pub start: i64,
    /// The token that ends it.
    pub end: i64,
    /// A token that is never written.
    pub never: Option<i64>,
}

/// Searches for texts, of which text k has at most `limits[k]` tokens, its end among them: for each those found, the best first, as many as there are beams at
/// most. `decoder` has read all but the start and has `settings.beams` rows for each text, those of a text together. A text that is done leaves it.
///
/// A text depends on no other one, but for what `decoder` rounds otherwise where it has other rows. Of equal scores the smaller tokens come first.
pub fn beam_search<'a>(
    mut decoder: Box<dyn Decoder + 'a>,
    limits: &[usize],
    symbols: Symbols,
    settings: &BeamSettings,
) -> Vec<Vec<Hypothesis>> {
    let mut found: Vec<Vec<Hypothesis>> = limits.iter().map(|_| Vec::new()).collect();
    let mut texts: Vec<(usize, Text)> =
        limits.iter().map(|limit| Text::new(*limit, settings)).enumerate().collect();
    let mut last = vec![symbols.start; texts.len() * settings.beams];
    while !texts.is_empty() {
        let step = Step::of(decoder.as_mut(), &last, symbols.never, settings);
        // Rows of the decoder that go on, in the order of texts and of their beams.
        let mut rows = Vec::with_capacity(last.len());
        last.clear();
        let mut going = Vec::with_capacity(texts.len());
        for (place, (number, mut text)) in texts.into_iter().enumerate() {
            let first = place * settings.beams;
            if text.advance(&step, first, symbols.end) {
                found[number] = text.found();
                continue;
            }
            for (parent, token) in text.beams() {
                rows.push((first + parent) as i64);
                last.push(token);
            }
            going.push((number, text));
        }
        texts = going;
        let as_they_are =
            rows.len() == step.rows() && rows.iter().enumerate().all(|(at, row)| at as i64 == *row);
        if !rows.is_empty() && !as_they_are {
            decoder.keep(&put(Tensor::from_slice(&rows), decoder.device()));
        }
    }
    found
}

#[cfg(test)]
mod tests;
