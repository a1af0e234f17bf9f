use std::ops::Range;

use crate::sections::DocumentEnd;
use segue_data_error::DataError;
use segue_random::{Purpose, Stream};

use super::{Batch, Documents, Heads, LaneCursor, Lanes, Segments, check_range};
use crate::corpus::TokenStream;

/// Lanes that read contiguous pieces of a token stream.
///
/// Lane `i` of `lanes` owns the tokens `i * lane_tokens .. (i + 1) * lane_tokens`; up to `lanes - 1` tokens at the
/// end of the stream belong to no lane. A lane is read from its start in segments; where less than one segment and
/// one more target are left, the lane begins again. With `ext_len`, up to so many tokens before a segment are read
/// again as its context. Lanes are numbered over the whole job.
///
/// Lanes with [`Heads`] read the whole stream as a ring instead, each from its own line on, for as many targets an epoch.
#[derive(Debug)]
pub struct StreamLanes {
    stream: TokenStream,
    lanes: usize,
    segments: Segments,
    lane_tokens: u64,
    start: Start,
    documents: Option<(Documents, DocumentEnd)>,
}

/// Where a lane begins an epoch.
#[derive(Debug)]
enum Start {
    /// At the start of its piece.
    OfPiece,
    /// At a place of its piece that is drawn with this seed.
    Drawn(u64),
    /// At a line of the whole stream.
    AtLine(Heads),
}

impl StreamLanes {
    /// Cuts a stream in `lanes` pieces.
    pub fn new(stream: TokenStream, lanes: usize, segments: Segments) -> Result<Self, DataError> {
        segments.check(lanes)?;
        let (total, segment) = (stream.len(), segments.tokens);
        let lane_tokens = total / lanes as u64;
        let needed = segment as u64 + 1;
        if lane_tokens < needed {
            return Err(DataError::LaneTooShort { lane_tokens, lanes, segment, needed, total });
        }
        Ok(Self { stream, lanes, segments, lane_tokens, start: Start::OfPiece, documents: None })
    }

    /// Begins each epoch of each lane at a place drawn with `seed` and goes round, as NVIDIA's `roll` does: the lane's
    /// end is followed by its start.
    pub fn rolled(mut self, seed: u64) -> Self {
        self.start = Start::Drawn(seed);
        self
    }

    /// Begins each epoch of each lane where `heads` says, and goes round the whole stream.
    pub fn from_lines(mut self, heads: Heads) -> Self {
        self.start = Start::AtLine(heads);
        // The first input of an epoch is the token before its share.
        self.lane_tokens += 1;
        self
    }

    /// Tells where documents end, as `policy` wants it.
    pub fn with_documents(mut self, documents: Documents, policy: DocumentEnd) -> Self {
        self.documents = Some((documents, policy));
        self
    }

    /// Tokens a lane owns.
    pub fn lane_tokens(&self) -> u64 {
        self.lane_tokens
    }

    /// Steps until a lane begins again, for segments of one length.
    pub fn steps_per_epoch(&self) -> u64 {
        let (targets, segment) = (self.lane_tokens - 1, self.segments.tokens as u64);
        if self.segments.rest { targets.div_ceil(segment) } else { targets / segment }
    }

    /// Where a segment of `length` at `cursor` really begins, and how long it is: at the start of the lane, if too little is left.
    fn begin(&self, cursor: LaneCursor, length: usize) -> (LaneCursor, usize) {
        let targets = self.lane_tokens - 1;
        let length = (length as u64).min(targets);
        let left = targets.saturating_sub(cursor.offset);
        let (begin, length) = if length <= left {
            (cursor, length)
        } else if self.segments.rest && left > 0 {
            (cursor, left)
        } else {
            (LaneCursor { epoch: cursor.epoch + 1, ..LaneCursor::default() }, length)
        };
        (begin, length as usize)
    }

    /// The parts of the stream that hold `len` tokens of a lane from `offset` of its epoch on: two where the lane goes
    /// round.
    fn parts(
        &self,
        lane: usize,
        epoch: u64,
        offset: u64,
        len: usize,
    ) -> Result<[(u64, usize); 2], DataError> {
        // Where the ring lies that the lane goes round, how long it is, and where the epoch begins on it.
        let (base, ring, shift) = match &self.start {
            Start::OfPiece => (lane as u64 * self.lane_tokens, self.lane_tokens, 0),
            Start::Drawn(seed) => {
                let draw = Stream::new(*seed, Purpose::Roll, &[epoch, lane as u64]).bits(0);
                (lane as u64 * self.lane_tokens, self.lane_tokens, draw % self.lane_tokens)
            }
            Start::AtLine(heads) => (0, self.stream.len(), heads.begin(lane, epoch, &self.stream)?),
        };
        let place = (offset + shift) % ring;
        let first = (ring - place).min(len as u64) as usize;
        Ok([(base + place, first), (base, len - first)])
    }

    fn read(&self, parts: [(u64, usize); 2], tokens: &mut [i64]) -> Result<(), DataError> {
        let (first, second) = tokens.split_at_mut(parts[0].1);
        self.stream.read(parts[0].0, first)?;
        self.stream.read(parts[1].0, second)
    }
}

impl Lanes for StreamLanes {
    fn batch(&self, range: Range<usize>, cursors: &[LaneCursor], step: u64) -> Result<Batch, DataError> {
        check_range(&range, cursors, self.lanes)?;
        let drawn = self.segments.length(step);
        let first = cursors.first().copied().unwrap_or_default();
        let (LaneCursor { offset, .. }, segment) = self.begin(first, drawn);
        let context = offset.min(self.segments.ext_len as u64) as usize;
        let width = context + segment;
        let mut batch = Batch {
            segment,
            context,
            overlap: width.min(self.segments.ext_len),
            inputs: Vec::with_capacity(range.len() * width),
            targets: Vec::with_capacity(range.len() * segment),
            pairs: None,
            documents: None,
            counts: None,
            restarts: Vec::with_capacity(range.len()),
            cursors_after: Vec::with_capacity(range.len()),
        };
        let mut marks = Vec::with_capacity(range.len() * width);
        let (mut tokens, mut numbers) = (vec![0; width + 1], vec![0; width + 1]);
        for (lane, cursor) in range.zip(cursors) {
            let (begin, _) = self.begin(*cursor, drawn);
            if begin.offset != offset {
                return Err(DataError::Usage("the lanes of a step stand at different places".into()));
            }
            let parts = self.parts(lane, begin.epoch, offset - context as u64, width + 1)?;
            self.read(parts, &mut tokens)?;
            if let (Start::AtLine(heads), 0) = (&self.start, offset) {
                heads.check_first(tokens[0])?;
            }
            batch.inputs.extend_from_slice(&tokens[..width]);
            batch.targets.extend_from_slice(&tokens[context + 1..]);
            let mut after = LaneCursor { offset: offset + segment as u64, forget: false, ..begin };
            if let Some((documents, policy)) = &self.documents {
                let (first, second) = numbers.split_at_mut(parts[0].1);
                documents.fill(parts[0].0, first)?;
                documents.fill(parts[1].0, second)?;
                marks.extend_from_slice(&numbers[..width]);
                after.forget = *policy == DocumentEnd::Reset && numbers[context] != numbers[width];
            }
            batch.restarts.push(offset == 0 || begin.forget);
            batch.cursors_after.push(after);
        }
        if matches!(self.documents, Some((_, DocumentEnd::Mask))) {
            batch.documents = Some(marks);
        }
        Ok(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Lanes of so many tokens over nothing.
    fn cut(lane_tokens: u64, segment: usize) -> StreamLanes {
        StreamLanes {
            stream: TokenStream::new(Vec::new(), crate::corpus::Text::default()),
            lanes: 1,
            segments: Segments::fixed(segment),
            lane_tokens,
            start: Start::OfPiece,
            documents: None,
        }
    }

    proptest! {
        /// Against a list of the positions that a plain loop over one lane visits.
        #[test]
        fn a_lane_visits_every_whole_segment_once_an_epoch(segment in 1usize..40, extra in 1u64..200) {
            let cut = cut(segment as u64 + extra, segment);
            let mut expected = Vec::new();
            let mut position = 0;
            while position + (segment as u64) < cut.lane_tokens() {
                expected.push(position);
                position += segment as u64;
            }
            prop_assert_eq!(cut.steps_per_epoch(), expected.len() as u64);
            let mut cursor = LaneCursor::default();
            for epoch in 0..3 {
                for offset in &expected {
                    let (begin, length) = cut.begin(cursor, segment);
                    prop_assert_eq!((begin.epoch, begin.offset, length), (epoch, *offset, segment));
                    cursor = LaneCursor { offset: begin.offset + segment as u64, ..begin };
                }
            }
        }

        #[test]
        fn any_cursor_leads_to_a_readable_step(
            lane_tokens in 2u64..1 << 40, segment in 1usize..5000, offset: u64, epoch in 0..u64::MAX / 2,
        ) {
            prop_assume!(lane_tokens > segment as u64);
            let (begin, length) =
                cut(lane_tokens, segment).begin(LaneCursor { epoch, offset, ..LaneCursor::default() }, segment);
            prop_assert!(length == segment && begin.offset + (segment as u64) < lane_tokens);
        }
    }
}
