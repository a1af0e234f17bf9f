//! The protocol for generated text of Yang 2019, §2.1.4: random passages of a split, each continued by a fixed number
//! of tokens, next to the real continuation. The first samples are kept, none is discarded.

use segue_data_error::DataError;
use segue_dataloader::TokenStream;
use segue_random::{Purpose, Stream, derive};

use super::positions::scaled;
use crate::TrainError;
use crate::families::language_model::NextToken;
use crate::generate::{Generator, Sampling};

/// What is drawn.
#[derive(Debug, Clone, Copy)]
pub struct SampleOptions {
    /// Samples.
    pub samples: u64,
    /// Tokens of a seed text.
    pub seed_tokens: usize,
    /// Tokens to write.
    pub tokens: usize,
    /// Tokens of the seed text read at a time.
    pub segment: usize,
    /// How tokens are chosen. Its seed also draws the seed texts.
    pub sampling: Sampling,
}

/// One seed text, its continuation by the model, and its continuation in the split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Position of the seed text's first token in the split.
    pub start: u64,
    /// Token ids of the seed text.
    pub context: Vec<i64>,
    /// Token ids that the model wrote.
    pub continuation: Vec<i64>,
    /// Token ids that follow the seed text in the split, as many.
    pub reference: Vec<i64>,
}

/// Draws seed texts and continues them. `progress` gets tokens written in all. Equal options give equal
/// samples, and the first samples do not depend on how many are drawn.
pub fn draw_samples(
    model: &dyn NextToken,
    stream: &TokenStream,
    options: &SampleOptions,
    mut progress: impl FnMut(u64),
) -> Result<Vec<Sample>, TrainError> {
    let length = (options.seed_tokens + options.tokens) as u64;
    if options.seed_tokens == 0 || stream.len() < length {
        let why = format!(
            "a seed text of {} tokens and {} that follow it do not fit into a split of {} tokens",
            options.seed_tokens,
            options.tokens,
            stream.len()
        );
        return Err(DataError::Usage(why).into());
    }
    let places = stream.len() - length + 1;
    let seed = options.sampling.seed;
    let draws = Stream::new(seed, Purpose::Evaluation, &[1]);
    let mut written = 0;
    let mut out = Vec::new();
    for i in 0..options.samples {
        let start = scaled(draws.bits(i), places);
        let mut ids = vec![0; length as usize];
        stream.read(start, &mut ids)?;
        let reference = ids.split_off(options.seed_tokens);
        let sampling = Sampling { seed: derive(seed, Purpose::Evaluation, &[2, i]), ..options.sampling };
        let mut continuation = Vec::with_capacity(options.tokens);
        for token in Generator::new(model, &ids, options.segment, sampling).take(options.tokens) {
            continuation.push(token);
            written += 1;
            progress(written);
        }
        out.push(Sample { start, context: ids, continuation, reference });
    }
    Ok(out)
}
