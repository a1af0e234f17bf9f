use segue_data_error::DataError;

use crate::pairs::{Pair, SentencePairs};

/// Ids that a batch has besides those of its pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairSymbols {
    /// Stands before the target as the decoder reads it: padding in Marian models, the end-of-sentence token in fairseq's.
    pub start: i64,
    /// Fills rows up.
    pub pad: i64,
}

/// Pairs side by side, filled up at the right. The decoder reads `target_input` and predicts `target_output`: the start,
/// then the target without its last token; and the target with its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairBatch {
    /// Number of pairs.
    pub rows: usize,
    /// Token ids, `[rows, source_length]`.
    pub source: Vec<i64>,
    /// Tokens of the longest source, with its end.
    pub source_length: usize,
    /// Tokens of each source, with its end: `[rows]`.
    pub source_lengths: Vec<i64>,
    /// Token ids, `[rows, target_length]`.
    pub target_input: Vec<i64>,
    /// Token ids, `[rows, target_length]`.
    pub target_output: Vec<i64>,
    /// Tokens of the longest target, with its end.
    pub target_length: usize,
    /// Tokens of each target, with its end: `[rows]`.
    pub target_lengths: Vec<i64>,
    /// Number of each pair in its split: `[rows]`.
    pub numbers: Vec<u32>,
}

impl PairBatch {
    /// Reads these pairs of a split.
    pub fn read(
        pairs: &SentencePairs,
        numbers: &[u32],
        symbols: PairSymbols,
    ) -> Result<PairBatch, DataError> {
        let rows = numbers.iter().map(|n| pairs.get(*n)).collect::<Result<Vec<Pair>, _>>()?;
        Ok(PairBatch::of(&rows, numbers, symbols))
    }

    fn of(rows: &[Pair], numbers: &[u32], symbols: PairSymbols) -> PairBatch {
        let longest =
            |side: fn(&Pair) -> &Vec<i64>| rows.iter().map(|pair| side(pair).len()).max().unwrap_or(0);
        let lengths =
            |side: fn(&Pair) -> &Vec<i64>| rows.iter().map(|pair| side(pair).len() as i64).collect();
        let (source_length, target_length) = (longest(|pair| &pair.source), longest(|pair| &pair.target));
        let fill = |ids: &mut Vec<i64>, row: usize, length| ids.resize((row + 1) * length, symbols.pad);
        let (mut source, mut target_input, mut target_output) = (Vec::new(), Vec::new(), Vec::new());
        for (row, pair) in rows.iter().enumerate() {
            source.extend_from_slice(&pair.source);
            fill(&mut source, row, source_length);
            target_input.push(symbols.start);
            target_input.extend(pair.target.split_last().into_iter().flat_map(|(_, before)| before));
            fill(&mut target_input, row, target_length);
            target_output.extend_from_slice(&pair.target);
            fill(&mut target_output, row, target_length);
        }
        PairBatch {
            rows: rows.len(),
            source,
            source_length,
            source_lengths: lengths(|pair| &pair.source),
            target_input,
            target_output,
            target_length,
            target_lengths: lengths(|pair| &pair.target),
            numbers: numbers.to_vec(),
        }
    }

    /// Targets that count in the loss: those that are no padding.
    pub fn targets(&self) -> i64 {
        self.target_lengths.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_padded_at_the_right_and_the_decoder_reads_one_behind() {
        let pair = |source: &[i64], target: &[i64]| Pair { source: source.into(), target: target.into() };
        let rows = [pair(&[5, 0], &[6, 7, 0]), pair(&[8, 9, 4, 0], &[0])];
        let batch = PairBatch::of(&rows, &[31, 2], PairSymbols { start: 1, pad: -1 });
        assert_eq!((batch.rows, batch.source_length, batch.target_length), (2, 4, 3));
        assert_eq!(batch.source, [5, 0, -1, -1, 8, 9, 4, 0]);
        assert_eq!(batch.target_input, [1, 6, 7, 1, -1, -1]);
        assert_eq!(batch.target_output, [6, 7, 0, 0, -1, -1]);
        assert_eq!(
            (batch.source_lengths.as_slice(), batch.target_lengths.as_slice()),
            (&[2, 4][..], &[3, 1][..])
        );
        assert_eq!((batch.numbers.as_slice(), batch.targets()), (&[31, 2][..], 4));
    }
}
