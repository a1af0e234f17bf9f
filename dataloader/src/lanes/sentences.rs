use std::ops::Range;

use segue_configs::counted;
use segue_data_error::DataError;
use segue_random::{Permutation, Purpose};

use super::{Batch, LaneCursor, Lanes, PADDING_ID, Segments, check_range};
use crate::corpus::{Boundaries, TokenStream};

/// Lanes that are filled with whole sentences, one behind the other, in an order drawn anew every epoch
/// (`LMShuffledIterator` of Transformer-XL's program, for One Billion Word).
///
/// A sentence is its words and the end-of-sequence token; the first word is predicted from that token too, so that a
/// sentence of n words gives n + 1 pairs and none of them crosses its borders. A sentence that a segment cuts goes on in
/// the next. Sentence `k` of an epoch's order belongs to lane `k mod lanes`.
///
/// As episodes, each begins a segment of its own with a fresh memory, and padding fills the last of its segments.
#[derive(Debug)]
pub struct SentenceLanes {
    stream: TokenStream,
    starts: Boundaries,
    lanes: usize,
    segments: Segments,
    eos: i64,
    seed: u64,
    episodes: bool,
}

impl SentenceLanes {
    /// Packs the sentences that begin at `starts` and end with `eos` each.
    pub fn new(
        stream: TokenStream,
        starts: Boundaries,
        lanes: usize,
        segments: Segments,
        eos: i64,
        seed: u64,
    ) -> Result<Self, DataError> {
        segments.check(lanes)?;
        if starts.len() < lanes as u64 {
            let sentences = counted(starts.len(), "sentence");
            let why = format!("{lanes} lanes cannot be filled with {sentences}\nhint: lower train.lanes");
            return Err(DataError::EmptyInput { why });
        }
        Ok(Self { stream, starts, lanes, segments, eos, seed, episodes: false })
    }

    /// Gives each sentence segments and a memory of its own.
    pub fn as_episodes(self) -> Self {
        Self { episodes: true, ..self }
    }

    /// The order of an epoch.
    fn order(&self, epoch: u64) -> Permutation {
        Permutation::new(self.starts.len(), self.seed, Purpose::Sentences, &[epoch])
    }

    /// The tokens of the sentence at a cursor, the end-of-sequence token once more in front.
    fn sentence(&self, lane: usize, cursor: LaneCursor, out: &mut Vec<i64>) -> Result<(), DataError> {
        let number = self.order(cursor.epoch).at(cursor.sentence * self.lanes as u64 + lane as u64);
        let start = self.starts.get(number)?.unwrap_or(0);
        let end = self.starts.get(number + 1)?.unwrap_or(self.stream.len());
        out.clear();
        out.resize((end.saturating_sub(start) + 1) as usize, self.eos);
        self.stream.read(start, &mut out[1..])?;
        if out.len() > 1 && out.last() == Some(&self.eos) {
            return Ok(());
        }
        Err(DataError::EmptyInput {
            why: format!(
                "sentence {number} of the corpus does not end with <eos>\nhint: build the corpus with `segue data build --preset sentences` for \
                 this data.order"
            ),
        })
    }

    /// The cursor of the sentence after this one.
    fn next(&self, lane: usize, cursor: LaneCursor) -> LaneCursor {
        let next = LaneCursor { sentence: cursor.sentence + 1, offset: 0, ..cursor };
        if next.sentence * self.lanes as u64 + (lane as u64) < self.starts.len() {
            next
        } else {
            LaneCursor { epoch: cursor.epoch + 1, ..LaneCursor::default() }
        }
    }
}

impl Lanes for SentenceLanes {
    fn batch(&self, range: Range<usize>, cursors: &[LaneCursor], step: u64) -> Result<Batch, DataError> {
        check_range(&range, cursors, self.lanes)?;
        let segment = self.segments.length(step);
        let mut batch = Batch {
            segment,
            context: 0,
            overlap: 0,
            inputs: Vec::with_capacity(range.len() * segment),
            targets: Vec::with_capacity(range.len() * segment),
            documents: None,
            pairs: None,
            counts: self.episodes.then(|| Vec::with_capacity(range.len())),
            restarts: Vec::with_capacity(range.len()),
            cursors_after: Vec::with_capacity(range.len()),
        };
        let mut sentence = Vec::new();
        for (lane, cursor) in range.zip(cursors) {
            let (mut cursor, mut missing) = (*cursor, segment);
            batch.restarts.push(self.episodes && cursor.offset == 0);
            let mut ended = false;
            while missing > 0 && !(ended && self.episodes) {
                self.sentence(lane, cursor, &mut sentence)?;
                let from = (cursor.offset as usize).min(sentence.len() - 1);
                let take = missing.min(sentence.len() - 1 - from);
                batch.inputs.extend_from_slice(&sentence[from..from + take]);
                batch.targets.extend_from_slice(&sentence[from + 1..from + 1 + take]);
                missing -= take;
                cursor.offset = (from + take) as u64;
                ended = from + take + 1 == sentence.len();
                if ended {
                    cursor = self.next(lane, cursor);
                }
            }
            if let Some(counts) = &mut batch.counts {
                counts.push(segment - missing);
                batch.inputs.resize(batch.inputs.len() + missing, PADDING_ID);
                batch.targets.resize(batch.targets.len() + missing, PADDING_ID);
            }
            batch.cursors_after.push(cursor);
        }
        Ok(batch)
    }
}
