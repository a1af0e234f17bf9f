//! The sentences of a run, and its batches.

use std::ops::Range;
use std::sync::Arc;

use segue_data_error::DataError;
use segue_dataloader::Reader;
use segue_random::{Permutation, Purpose};
use segue_sentences::SentenceTexts;
use tch::Tensor;

use crate::network::Sentences;

/// Sentences number `numbers`, side by side.
pub fn sentences(texts: &SentenceTexts, numbers: &[u32], end: i64) -> Result<Sentences, DataError> {
    let mut rows: Vec<Vec<i64>> = numbers.iter().map(|n| texts.get(*n)).collect::<Result<_, _>>()?;
    let lengths: Vec<i64> = rows.iter().map(|row| row.len() as i64).collect();
    let longest = rows.iter().map(Vec::len).max().unwrap_or(0);
    rows.iter_mut().for_each(|row| row.resize(longest, end));
    let ids = Tensor::from_slice(&rows.concat()).view([rows.len() as i64, longest as i64]);
    Ok(Sentences { ids, lengths: Tensor::from_slice(&lengths), end })
}

/// Reads the batches of one rank's lanes. The sentences of a step are the next of a random order of all, another one every epoch; they lie in its lanes by their
/// length, so that little of a micro-step is padding. A batch is a function of its number.
pub struct SentenceReader {
    /// The sentences.
    pub texts: Arc<SentenceTexts>,
    /// The id that ends them.
    pub end: i64,
    /// Seed of the run.
    pub seed: u64,
    /// Lanes of the job.
    pub all: usize,
    /// Lanes of this rank, numbered over the job.
    pub own: Range<usize>,
    /// Lanes of a micro-step.
    pub micro_batch: usize,
}

impl SentenceReader {
    /// The sentences of all lanes in step `nth`, from 1, the shortest first.
    fn numbers(&self, nth: u64) -> Vec<u32> {
        let count = self.texts.len() as u64;
        let number = |lane: usize| {
            let place = (nth - 1) * self.all as u64 + lane as u64;
            let order = Permutation::new(count, self.seed, Purpose::Sentences, &[place / count]);
            order.at(place % count) as u32
        };
        let mut numbers: Vec<u32> = (0..self.all).map(number).collect();
        numbers.sort_by_key(|number| self.texts.lengths()[*number as usize]);
        numbers
    }
}

impl Reader for SentenceReader {
    /// Those of each micro-step.
    type Batch = Vec<Sentences>;

    fn read(&mut self, nth: u64) -> Result<Vec<Sentences>, DataError> {
        let numbers = self.numbers(nth);
        let own = &numbers[self.own.clone()];
        own.chunks(self.micro_batch).map(|numbers| sentences(&self.texts, numbers, self.end)).collect()
    }
}
