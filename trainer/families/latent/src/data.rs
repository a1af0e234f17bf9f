//! The examples of a run, and its batches.

use std::ops::Range;
use std::sync::Arc;

use segue_data_error::DataError;
use segue_dataloader::Reader;
use segue_random::{Permutation, Purpose};
use segue_sentences::SentenceTexts;
use tch::Tensor;

use crate::network::Sentences;

/// What is trained or evaluated on.
#[derive(Debug)]
pub enum Examples {
    /// The sentences of a split.
    Sentences(SentenceTexts),
    /// As many symbols, each a sentence of one token: what a uniform distribution is learnt from, and evaluated on (Melis 2023, §5.7.1).
    Symbols(u32),
}

impl Examples {
    /// How many there are.
    pub fn count(&self) -> usize {
        match self {
            Self::Sentences(texts) => texts.len(),
            Self::Symbols(symbols) => *symbols as usize,
        }
    }

    /// Tokens of example `n`.
    fn length(&self, n: u32) -> u32 {
        match self {
            Self::Sentences(texts) => texts.lengths()[n as usize],
            Self::Symbols(_) => 1,
        }
    }

    fn get(&self, n: u32) -> Result<Vec<i64>, DataError> {
        match self {
            Self::Sentences(texts) => texts.get(n),
            Self::Symbols(_) => Ok(vec![i64::from(n)]),
        }
    }

    /// How many lost their end.
    pub fn cut(&self) -> usize {
        match self {
            Self::Sentences(texts) => texts.cut(),
            Self::Symbols(_) => 0,
        }
    }

    /// All of them in groups of `most`, of like length.
    pub fn groups(&self, most: usize) -> Vec<Vec<u32>> {
        match self {
            Self::Sentences(texts) => texts.by_length(usize::MAX, most),
            Self::Symbols(symbols) => {
                (0..*symbols).collect::<Vec<_>>().chunks(most).map(<[u32]>::to_vec).collect()
            }
        }
    }
}

/// Examples number `numbers`, side by side.
pub fn sentences(examples: &Examples, numbers: &[u32], end: i64) -> Result<Sentences, DataError> {
    let rows = numbers.iter().map(|n| examples.get(*n)).collect::<Result<_, _>>()?;
    Ok(side_by_side(rows, end))
}

/// Sentences of these ids, side by side.
pub fn side_by_side(mut rows: Vec<Vec<i64>>, end: i64) -> Sentences {
    let lengths: Vec<i64> = rows.iter().map(|row| row.len() as i64).collect();
    let longest = rows.iter().map(Vec::len).max().unwrap_or(0);
    rows.iter_mut().for_each(|row| row.resize(longest, end));
    let ids = Tensor::from_slice(&rows.concat()).view([rows.len() as i64, longest as i64]);
    Sentences { ids, lengths: Tensor::from_slice(&lengths), end }
}

/// Reads the batches of one rank's lanes. The sentences of a step are the next of a random order of all, another one every epoch; they lie in its lanes by their
/// length, so that little of a micro-step is padding. A batch is a function of its number.
pub struct SentenceReader {
    /// The examples.
    pub examples: Arc<Examples>,
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
        let count = self.examples.count() as u64;
        let number = |lane: usize| {
            let place = (nth - 1) * self.all as u64 + lane as u64;
            let order = Permutation::new(count, self.seed, Purpose::Sentences, &[place / count]);
            order.at(place % count) as u32
        };
        let mut numbers: Vec<u32> = (0..self.all).map(number).collect();
        numbers.sort_by_key(|number| self.examples.length(*number));
        numbers
    }
}

impl Reader for SentenceReader {
    /// Those of each micro-step.
    type Batch = Vec<Sentences>;

    fn read(&mut self, nth: u64) -> Result<Vec<Sentences>, DataError> {
        let numbers = self.numbers(nth);
        let own = &numbers[self.own.clone()];
        own.chunks(self.micro_batch).map(|numbers| sentences(&self.examples, numbers, self.end)).collect()
    }
}
