//! Translations of sentences that stand side by side.

use std::sync::OnceLock;

use segue_decode::{Decoder, Decoding, Hypothesis, Sampling, Symbols, beam_search, draw_texts};
use segue_kernels::Parameters;
use segue_kernels::libtorch::stream::put;
use segue_kernels::threads;
use segue_random::{Purpose, derive};
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
    /// How translations are searched for, or drawn.
    pub decoding: Decoding,
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

/// Decodes some sources, of these numbers, by a decoder that has begun with them.
type Decode<'a> = dyn Fn(&[usize], Box<dyn Decoder + '_>) -> Vec<Vec<Hypothesis>> + Sync + 'a;

impl Search {
    /// Translations of `sources`, token ids with their ends: of each those found, the best first, or those drawn. What is drawn depends on the source and the seed
    /// alone; by tensors, whose products round by the number of rows, also on how many are drawn.
    pub fn translate(&self, model: &DecodingModel, sources: &[Vec<i64>]) -> Vec<Vec<Hypothesis>> {
        let config = model.config();
        let (end, padding) = (config.eos_token_id as i64, config.pad_token_id as i64);
        let symbols = Symbols { start: padding, end, never: Some(padding) };
        let limit = |source: &Vec<i64>| (source.len() + self.more_tokens).min(config.max_position_embeddings);
        match &self.decoding {
            Decoding::Search(beam) => decoded(model, sources, beam.beams, &|numbers, decoder| {
                let limits: Vec<usize> = numbers.iter().map(|number| limit(&sources[*number])).collect();
                beam_search(decoder, &limits, symbols, beam)
            }),
            Decoding::Sample { texts, sampling } => {
                let copies: Vec<Vec<i64>> =
                    sources.iter().flat_map(|source| std::iter::repeat_n(source.clone(), *texts)).collect();
                let drawn = decoded(model, &copies, 1, &|numbers, decoder| {
                    let of = |number: &usize| {
                        let source = &copies[*number];
                        (limit(source), of_source(*sampling, source, number % texts))
                    };
                    let (limits, samplings): (Vec<_>, Vec<_>) = numbers.iter().map(of).unzip();
                    draw_texts(decoder, &limits, symbols, &samplings)
                        .into_iter()
                        .map(|text| vec![text])
                        .collect()
                });
                drawn.chunks(*texts).map(|texts| texts.concat()).collect()
            }
        }
    }
}

/// The same for text number `text` of this source: with a seed of its own.
fn of_source(sampling: Sampling, source: &[i64], text: usize) -> Sampling {
    let counters: Vec<u64> = source.iter().map(|id| *id as u64).chain([text as u64]).collect();
    Sampling { seed: derive(sampling.seed, Purpose::Sampling, &counters), ..sampling }
}

/// What `decode` makes of each source, with `beams` rows of a decoder. By rows, groups of like length are decoded on all threads, and no translation depends on which
/// group it is in.
fn decoded(
    model: &DecodingModel,
    sources: &[Vec<i64>],
    beams: usize,
    decode: &Decode,
) -> Vec<Vec<Hypothesis>> {
    if sources.is_empty() {
        return Vec::new();
    }
    let rows = match model {
        DecodingModel::Rows(rows) => rows,
        DecodingModel::Tensors(model) => {
            let (ids, lengths) = padded(sources, model.config().pad_token_id as i64);
            let decoder = Translating::new(model, &put(ids, model.device()), &lengths, beams);
            let all: Vec<usize> = (0..sources.len()).collect();
            return decode(&all, Box::new(decoder));
        }
    };
    let groups = groups(sources, beams, rows.config().vocab_size);
    let found: Vec<OnceLock<Vec<Hypothesis>>> = sources.iter().map(|_| OnceLock::new()).collect();
    threads::for_each(groups.len(), |group| {
        let numbers: Vec<usize> = groups[group].iter().map(|number| *number as usize).collect();
        let own: Vec<Vec<i64>> = numbers.iter().map(|number| sources[*number].clone()).collect();
        let of_group = decode(&numbers, Box::new(RowTranslating::new(rows, &own, beams)));
        for (number, hypotheses) in numbers.iter().zip(of_group) {
            // Each source is in one group.
            let _ = found[*number].set(hypotheses);
        }
    });
    found.into_iter().map(|found| found.into_inner().unwrap_or_default()).collect()
}

/// Numbers of sources that are translated side by side, the longest first: as many as there are threads for, and so few that what a group keeps, and the scores
/// of its words, have room.
fn groups(sources: &[Vec<i64>], beams: usize, words: usize) -> Vec<Vec<u32>> {
    let lengths: Vec<u32> = sources.iter().map(|source| source.len() as u32).collect();
    let fair = sources.len().div_ceil(threads::count());
    let scored = MOST_SCORES / (beams * words).max(1);
    let most = TOGETHER.min(fair).min(scored).max(1);
    group_by_length(&lengths, MOST_TOKENS / beams, most)
}
