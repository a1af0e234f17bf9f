//! The protocol for generated text of Yang 2019, §2.1.4: random passages of a split, each continued by a fixed number
//! of tokens, next to the real continuation. The first samples are kept, none is discarded.

use segue_data_error::DataError;
use segue_dataloader::TokenStream;
use segue_decode::{Sampling, Texts};
use segue_kernels::TrainError;
use segue_language::{NextToken, Writing};
use segue_random::{Purpose, Stream, derive};

use super::positions::scaled;

/// What is drawn.
#[derive(Debug, Clone, Copy)]
pub struct SampleOptions {
    /// Samples.
    pub samples: u64,
    /// Tokens of a seed text.
    pub seed_tokens: usize,
    /// Tokens to write.
    pub tokens: usize,
    /// Samples that are written side by side, one at least.
    pub lanes: usize,
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
/// samples, and the first samples do not depend on how many are drawn. With other `lanes` they are the same but where two tokens are as likely to
/// the last bits of their probabilities: a matrix product may round otherwise for more rows.
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
    let mut samples = Vec::new();
    for i in 0..options.samples {
        let start = scaled(draws.bits(i), places);
        let mut context = vec![0; length as usize];
        stream.read(start, &mut context)?;
        let reference = context.split_off(options.seed_tokens);
        samples.push(Sample { start, context, continuation: Vec::with_capacity(options.tokens), reference });
    }
    let sampling = |i: u64| Sampling { seed: derive(seed, Purpose::Evaluation, &[2, i]), ..options.sampling };
    let (mut first, mut written) = (0, 0);
    for group in samples.chunks_mut(options.lanes) {
        let contexts: Vec<Vec<i64>> = group.iter().map(|sample| sample.context.clone()).collect();
        let contexts: Vec<&[i64]> = contexts.iter().map(Vec::as_slice).collect();
        let samplings = (first..).take(group.len()).map(sampling).collect();
        first += group.len() as u64;
        let decoder = Box::new(Writing::new(model, contexts.len()));
        for tokens in Texts::new(decoder, &contexts, options.segment, samplings)?.take(options.tokens) {
            written += tokens.len() as u64;
            tokens.into_iter().for_each(|drawn| group[drawn.text].continuation.push(drawn.token));
            progress(written);
        }
    }
    Ok(samples)
}
