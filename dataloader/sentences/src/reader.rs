use std::ops::Range;
use std::sync::Arc;

use segue_data_error::DataError;
use segue_dataloader::Reader;

use crate::batch::{PairBatch, PairSymbols};
use crate::batches::TokenBatches;
use crate::pairs::SentencePairs;

/// Reads a rank's part of each step: step `nth`, from 1, of a run with `lanes` batches a step takes the batches at the
/// places `(nth - 1) * lanes` and on, of which the rank reads its range. The parts of all ranks, one after the other, are
/// what one rank alone would read.
pub struct PairReader {
    pairs: Arc<SentencePairs>,
    batches: Arc<TokenBatches>,
    lanes: usize,
    range: Range<usize>,
    symbols: PairSymbols,
}

impl PairReader {
    /// Reads `range` of the `lanes` batches that a step has over the whole job.
    pub fn new(
        pairs: Arc<SentencePairs>,
        batches: Arc<TokenBatches>,
        lanes: usize,
        range: Range<usize>,
        symbols: PairSymbols,
    ) -> Result<PairReader, DataError> {
        if range.is_empty() || range.end > lanes {
            let why = format!("the batches {range:?} of a rank are not among the {lanes} of a step");
            return Err(DataError::Usage(why));
        }
        Ok(PairReader { pairs, batches, lanes, range, symbols })
    }
}

impl Reader for PairReader {
    type Batch = Vec<PairBatch>;

    fn read(&mut self, nth: u64) -> Result<Vec<PairBatch>, DataError> {
        let first = (nth - 1) * self.lanes as u64;
        let numbers = self.range.clone().map(|lane| self.batches.at(first + lane as u64));
        numbers.map(|numbers| PairBatch::read(&self.pairs, numbers, self.symbols)).collect()
    }
}
