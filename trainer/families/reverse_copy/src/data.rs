//! The data: strings that are drawn.

use std::ops::Range;

use segue_data_error::DataError;
use segue_dataloader::Reader;
use segue_random::{Draws, Permutation, Purpose};

use super::keys::ReverseCopyConfig;

/// What strings are for. Those of one use are drawn apart from those of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Training.
    Train,
    /// Evaluation while training.
    Valid,
    /// The last word.
    Test,
}

/// Strings of one use: a string is a function of (seed, use, number).
#[derive(Debug, Clone, Copy)]
pub struct Strings {
    seed: u64,
    purpose: Use,
    tokens: u64,
    length: usize,
}

impl Strings {
    /// Those that a run with this seed has.
    pub fn new(config: &ReverseCopyConfig, seed: u64, purpose: Use) -> Self {
        Self { seed, purpose, tokens: config.tokens as u64, length: config.length }
    }

    /// String `number`: its tokens, independent and uniform.
    pub fn string(&self, number: u64) -> impl Iterator<Item = i64> + use<> {
        let mut draws = Draws::new(self.seed, Purpose::Synthetic, &[self.purpose as u64, number]);
        let tokens = self.tokens;
        (0..self.length).map(move |_| draws.below(tokens) as i64)
    }
}

/// Reads the strings of one rank's lanes: each step has as many as there are lanes, and takes those that come next.
pub struct StringReader {
    /// The strings.
    pub strings: Strings,
    /// How many there are; 0 for ever new ones.
    pub count: u64,
    /// Lanes of the job.
    pub all: usize,
    /// Lanes of this rank, numbered over the job.
    pub lanes: Range<usize>,
}

impl StringReader {
    /// Number of the string at a place of the run, from 0.
    fn number(&self, place: u64) -> u64 {
        match self.count {
            0 => place,
            count => {
                let pass = place / count;
                Permutation::new(count, self.strings.seed, Purpose::Examples, &[pass]).at(place % count)
            }
        }
    }
}

impl Reader for StringReader {
    /// `[lanes, length]`, row by row.
    type Batch = Vec<i64>;

    fn read(&mut self, nth: u64) -> Result<Vec<i64>, DataError> {
        let place = |lane: usize| (nth - 1) * self.all as u64 + lane as u64;
        Ok(self.lanes.clone().flat_map(|lane| self.strings.string(self.number(place(lane)))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(count: u64, lanes: Range<usize>) -> StringReader {
        let config = ReverseCopyConfig { length: 5, ..Default::default() };
        StringReader { strings: Strings::new(&config, 7, Use::Train), count, all: 4, lanes }
    }

    /// Row M17.
    #[test]
    fn tokens_are_uniform_and_uses_share_no_string() {
        let config = ReverseCopyConfig { tokens: 8, length: 100, ..Default::default() };
        let of = |purpose| Strings::new(&config, 3, purpose);
        let mut counts = [0u32; 8];
        for number in 0..1000 {
            of(Use::Train).string(number).for_each(|token| counts[token as usize] += 1);
        }
        // Five standard deviations of a count with mean 12,500.
        assert!(counts.iter().all(|count| count.abs_diff(12_500) < 525), "{counts:?}");
        let mut all: Vec<Vec<i64>> = [Use::Train, Use::Valid, Use::Test]
            .into_iter()
            .flat_map(|purpose| (0..50).map(move |number| of(purpose).string(number).collect()))
            .collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 150);
    }

    /// Row M17.
    #[test]
    fn a_batch_is_a_function_of_its_number_and_of_no_rank() {
        for count in [0, 6] {
            let whole = reader(count, 0..4).read(3).unwrap();
            let parts = [reader(count, 0..1).read(3).unwrap(), reader(count, 1..4).read(3).unwrap()];
            assert_eq!(parts.concat(), whole);
        }
    }

    /// Row M17.
    #[test]
    fn a_pass_has_every_string_once() {
        let numbers = |reader: &StringReader, pass: u64| -> Vec<u64> {
            (6 * pass..6 * (pass + 1)).map(|place| reader.number(place)).collect()
        };
        let reader = reader(6, 0..4);
        let (first, second) = (numbers(&reader, 0), numbers(&reader, 1));
        for pass in [&first, &second] {
            let mut sorted = pass.clone();
            sorted.sort();
            assert_eq!(sorted, [0, 1, 2, 3, 4, 5]);
        }
        assert_ne!(first, second);
    }
}
