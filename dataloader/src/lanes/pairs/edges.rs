use segue_data_error::DataError;

use super::pieces::{PairSource, Piece};

/// The tokens of a piece as a lane sees them, from the end if it reads backwards, and the edges of the sentences.
///
/// Positions count from the lane's beginning. An edge stands between the positions `edge - 1` and `edge`; the ends of
/// the piece are none.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    pub(super) source: &'a PairSource,
    pub(super) piece: Piece,
    pub(super) reversed: bool,
    /// Ends a document and is a sentence of its own.
    pub(super) eod: Option<i64>,
}

impl View<'_> {
    /// Number of tokens.
    pub(super) fn len(&self) -> u64 {
        self.piece.len
    }

    /// The tokens from `start` on.
    pub(super) fn read(&self, start: u64, out: &mut [i64]) -> Result<(), DataError> {
        if !self.reversed {
            return self.source.stream.read(self.piece.start + start, out);
        }
        let end = self.piece.start + self.piece.len - start;
        self.source.stream.read(end - out.len() as u64, out)?;
        out.reverse();
        Ok(())
    }

    /// The first edge at `position` or after it; the end of the piece, if there is none.
    pub(super) fn edge_from(&self, position: u64) -> Result<u64, DataError> {
        match self.reversed {
            false => self.next(position),
            true => Ok(self.len() - self.last(self.len() - position)?),
        }
    }

    /// The last edge at `position` or before it; 0, if there is none.
    pub(super) fn edge_until(&self, position: u64) -> Result<u64, DataError> {
        match self.reversed {
            false => self.last(position),
            true => Ok(self.len() - self.next(self.len() - position)?),
        }
    }

    /// `edge_from` in the direction of the text.
    fn next(&self, position: u64) -> Result<u64, DataError> {
        let (stream, place) = (&self.source.stream, self.piece.start + position.max(1));
        let before = self.source.sentences.count_through(place - 1)?;
        let end = self.source.sentences.get(before)?.unwrap_or(stream.len());
        let start = self.begin(before)?;
        let edge = if end - 1 > start && end > place && self.is_eod(end - 1)? { end - 1 } else { end };
        Ok((edge - self.piece.start).min(self.len()))
    }

    /// `edge_until` in the direction of the text.
    fn last(&self, position: u64) -> Result<u64, DataError> {
        let place = self.piece.start + position.min(self.len() - 1);
        let before = self.source.sentences.count_through(place)?;
        let end = self.source.sentences.get(before)?.unwrap_or(self.source.stream.len());
        let start = self.begin(before)?;
        let edge = if end - 1 == place && place > start && self.is_eod(place)? { place } else { start };
        Ok(edge.saturating_sub(self.piece.start))
    }

    /// Where the last of the first `count` sentences begins.
    fn begin(&self, count: u64) -> Result<u64, DataError> {
        let Some(last) = count.checked_sub(1) else { return Ok(0) };
        Ok(self.source.sentences.get(last)?.unwrap_or(0))
    }

    fn is_eod(&self, place: u64) -> Result<bool, DataError> {
        let Some(eod) = self.eod else { return Ok(false) };
        let mut token = [0];
        self.source.stream.read(place, &mut token)?;
        Ok(token[0] == eod)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EOD: i64 = 9;

    proptest! {
        /// Against a list of flags that flip at each sentence, as the reference has them; `<eod>` is a sentence.
        #[test]
        fn edges_are_where_the_flags_flip(
            tokens in proptest::collection::vec(0u8..6, 4..60), places in proptest::collection::vec(any::<bool>(), 60),
            ends in proptest::collection::vec(any::<bool>(), 60), from in 0usize..60, len in 2usize..60,
        ) {
            let mut tokens = tokens;
            let (from, starts) = (from % (tokens.len() - 1), (0..tokens.len()).filter(|i| places[*i]));
            let len = len.min(tokens.len() - from);
            let starts: Vec<usize> = starts.collect();
            // Some sentences end with an end of document.
            for (i, start) in starts.iter().enumerate().filter(|(i, start)| **start > 0 && ends[*i]) {
                let before = if i == 0 { 0 } else { starts[i - 1] };
                if *start > before { tokens[start - 1] = EOD as u8 }
            }
            let flips = |place: usize| {
                let ends_document = |place: usize| tokens[place] == EOD as u8;
                starts.contains(&place) || ends_document(place) || ends_document(place - 1)
            };
            let folder = tempfile::tempdir().unwrap();
            let list: Vec<u32> = starts.iter().map(|start| *start as u32).collect();
            let source = PairSource::of_tokens(&tokens, &list, folder.path());
            let piece = Piece { source: 0, start: from as u64, len: len as u64 };
            for reversed in [false, true] {
                let view = View { source: &source, piece, reversed, eod: Some(EOD) };
                let is_edge = |place: usize| flips(from + if reversed { len - place } else { place });
                let mut read = vec![0; len - 1];
                view.read(1, &mut read).unwrap();
                for place in 0..len {
                    let next = (place.max(1)..len).find(|place| is_edge(*place)).unwrap_or(len);
                    let last = (1..=place).rev().find(|place| is_edge(*place)).unwrap_or(0);
                    prop_assert_eq!(view.edge_from(place as u64).unwrap(), next as u64, "from {}", place);
                    prop_assert_eq!(view.edge_until(place as u64).unwrap(), last as u64, "until {}", place);
                    let there = from + if reversed { len - 1 - place } else { place };
                    prop_assert!(place == 0 || read[place - 1] == i64::from(tokens[there]));
                }
            }
        }
    }
}
