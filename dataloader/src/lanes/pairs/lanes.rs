use std::ops::Range;

use crate::sections::{MaskDraws, PAIR_SPECIALS};
use segue_data_error::DataError;
use segue_random::{Draws, Purpose};
use segue_tokenizer::Tokenizer;

use super::arrange::{Arrangement, DrawKey, Sequence};
use super::edges::View;
use super::options::PairOptions;
use super::pieces::{PairSource, Piece, cut};
use super::segments::Segments;
use super::spans::SpanSampler;
use super::symbols::Symbols;
use crate::corpus::{Corpus, Split};
use crate::lanes::{Batch, LaneCursor, Lanes, check_range};

/// Lanes that read contiguous pieces of one or several corpora as sequences `[reused, A, SEP, B, SEP, CLS]`, forwards
/// or backwards, as XLNet's `data_utils.py` does.
///
/// A lane goes on by the reused part every step, so that the memory of one step is the text just before the next. It
/// begins again where less than a sequence is left. Everything random is a function of the seed, the stream, its
/// direction, how often it was read and the place in it.
///
/// The reference ends a pass a step or so earlier where a drawn B touches the end of the text, because it stores the
/// token after B; here a pass has the same number of steps whatever is drawn.
#[derive(Debug)]
pub struct PairLanes {
    sources: Vec<PairSource>,
    pieces: Vec<Piece>,
    options: PairOptions,
    sampler: SpanSampler,
    arrangement: Arrangement,
}

impl PairLanes {
    /// Lanes over one split of corpora, which share one tokenizer, weighted as `data.weights` says.
    pub fn open(
        options: PairOptions,
        weights: &[f64],
        corpora: &[Corpus],
        split: Split,
    ) -> Result<PairLanes, DataError> {
        let first = corpora.first().ok_or_else(|| DataError::Usage("there is no corpus to read".into()))?;
        let tokenizer = first.tokenizer()?;
        let mut sources = Vec::with_capacity(corpora.len());
        for corpus in corpora {
            let (found, expected) = (corpus.tokenizer()?.fingerprint(), tokenizer.fingerprint());
            if found != expected {
                let why = format!(
                    "its tokenizer is {found}, but that of {} is {expected}\nhint: build both corpora \
                     with the same tokenizer",
                    first.dir().display()
                );
                return Err(DataError::corpus(corpus.dir(), why));
            }
            sources.push(PairSource::open(corpus, split)?);
        }
        for (source, weight) in sources.iter_mut().zip(weights) {
            source.weight = *weight;
        }
        PairLanes::new(sources, &tokenizer, options)
    }

    /// Lanes over streams of one tokenizer.
    pub fn new(
        sources: Vec<PairSource>,
        tokenizer: &Tokenizer,
        options: PairOptions,
    ) -> Result<PairLanes, DataError> {
        let symbols = Symbols::of(tokenizer)?;
        let pieces = cut(&sources, options.streams(), options.lanes, options.layout.segment)?;
        let sampler = SpanSampler::new(options.spans);
        let (layout, task, seed) = (options.layout, options.task, options.seed);
        let arrangement = Arrangement { layout, task, symbols, seed };
        Ok(PairLanes { sources, pieces, options, sampler, arrangement })
    }

    /// The options that the sequences are drawn with.
    pub fn options(&self) -> &PairOptions {
        &self.options
    }

    /// Number of the corpus that a lane reads.
    pub fn corpus_of(&self, lane: usize) -> usize {
        self.pieces[self.options.stream_of(lane).0].source
    }

    /// Steps until a lane begins again.
    pub fn steps_per_pass(&self, lane: usize) -> u64 {
        let piece = self.pieces[self.options.stream_of(lane).0];
        let layout = self.options.layout;
        (piece.len - layout.segment as u64) / layout.reuse_len as u64 + 1
    }

    /// Where a lane stands before a step (from 1), without reading the steps before it.
    pub fn cursor(&self, lane: usize, step: u64) -> LaneCursor {
        let (steps, before) = (self.steps_per_pass(lane), step.saturating_sub(1));
        let offset = before % steps * self.options.layout.reuse_len as u64;
        LaneCursor { epoch: before / steps, offset, ..LaneCursor::default() }
    }

    /// Where a step at `cursor` really begins: at the start of the lane, if less than a sequence is left.
    fn begin(&self, piece: Piece, cursor: LaneCursor) -> LaneCursor {
        let end = cursor.offset.checked_add(self.options.layout.segment as u64);
        match end.is_some_and(|end| end <= piece.len) {
            true => cursor,
            false => LaneCursor { epoch: cursor.epoch + 1, ..LaneCursor::default() },
        }
    }

    /// Draws the sequence of a lane at `offset` of its piece.
    fn draw(&self, view: &View<'_>, offset: u64, key: DrawKey, out: &mut Sequence) -> Result<(), DataError> {
        let (layout, symbols) = (self.options.layout, &self.arrangement.symbols);
        let reused = layout.reuse_len;
        let total = layout.segment - reused - PAIR_SPECIALS;
        let mut draws = Draws::new(self.options.seed, Purpose::Pairs, &key);
        let pair = Segments::draw(view, offset + reused as u64, total as u64, &mut draws)?;
        let a_end = reused + (pair.a.end - pair.a.start) as usize;
        // A follows the reused part, so they are read in one go.
        view.read(offset, &mut out.tokens[..a_end])?;
        view.read(pair.b.start, &mut out.tokens[a_end + 1..layout.segment - 2])?;
        out.tokens[a_end] = symbols.sep;
        out.tokens[layout.segment - 2] = symbols.sep;
        out.tokens[layout.segment - 1] = symbols.cls;
        out.segments[..=a_end].fill(0);
        out.segments[a_end + 1..].fill(1);
        out.segments[layout.segment - 1] = 2;
        (out.follows, out.reversed) = (pair.follows, view.reversed);
        self.choose(key, out);
        Ok(())
    }

    /// Chooses the targets, the odd one in the reused part.
    fn choose(&self, key: DrawKey, out: &mut Sequence) {
        let layout = self.options.layout;
        let mut draws = Draws::new(self.options.seed, Purpose::Spans, &key);
        let goals = [layout.targets - layout.targets / 2, layout.targets / 2];
        let parts = [0..layout.reuse_len, layout.reuse_len..layout.segment];
        for (part, goal) in parts.into_iter().zip(goals) {
            let (tokens, chosen) = (&out.tokens[part.clone()], &mut out.chosen[part]);
            self.sampler.choose(tokens, out.reversed, goal, &self.arrangement.symbols, &mut draws, chosen);
        }
    }
}

impl Lanes for PairLanes {
    fn batch(&self, range: Range<usize>, cursors: &[LaneCursor], _step: u64) -> Result<Batch, DataError> {
        check_range(&range, cursors, self.options.lanes)?;
        let mut batch = self.arrangement.batch(range.len());
        let mut sequence = Sequence::empty(self.options.layout.segment);
        for (lane, cursor) in range.zip(cursors) {
            let (stream, reversed) = self.options.stream_of(lane);
            let piece = self.pieces[stream];
            let eod = self.arrangement.symbols.eod;
            let view = View { source: &self.sources[piece.source], piece, reversed, eod };
            let begin = self.begin(piece, *cursor);
            let key = |pass| [stream as u64, u64::from(reversed), pass, begin.offset];
            let (pass, order) = match self.options.draws {
                MaskDraws::Fresh => (key(begin.epoch), key(begin.epoch)),
                MaskDraws::Same => (key(0), key(begin.epoch)),
            };
            self.draw(&view, begin.offset, pass, &mut sequence)?;
            self.arrangement.add(&sequence, order, pass, &mut batch)?;
            batch.restarts.push(begin.offset == 0);
            let offset = begin.offset + self.options.layout.reuse_len as u64;
            batch.cursors_after.push(LaneCursor { offset, ..begin });
        }
        Ok(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::pairs::options::{Layout, Spans, Task};
    use crate::sections::SpanKind;
    use proptest::prelude::*;

    /// Lanes over nothing but these tokens, with SEP 1, CLS 2 and mask 3.
    fn lanes(source: PairSource, lanes: usize, bidirectional: bool, layout: Layout, seed: u64) -> PairLanes {
        let spans = Spans { kind: SpanKind::Words, mask_beta: 1, mask_alpha: 6, longest: 5 };
        let (task, draws) = (Task::Permutation, MaskDraws::Fresh);
        let micro_batch = lanes;
        let options = PairOptions { lanes, micro_batch, seed, bidirectional, draws, layout, spans, task };
        let sources = vec![source];
        PairLanes {
            pieces: cut(&sources, options.streams(), lanes, layout.segment).unwrap(),
            sampler: SpanSampler::new(spans),
            arrangement: Arrangement { layout, task, symbols: Symbols::plain(60), seed },
            sources,
            options,
        }
    }

    proptest! {
        /// Whatever the corpus: sequences are made of what stands in the lane's piece, and of nothing else.
        #[test]
        fn any_tiny_corpus_gives_sequences_of_its_own_text(
            reused in 1usize..12, rest in 4usize..24, streams in 1usize..4, spare in 0usize..40,
            flips in proptest::collection::vec(any::<bool>(), 250), bidirectional: bool, seed: u64, step in 1u64..60,
        ) {
            let segment = reused + rest;
            // No token occurs twice in a piece of at most 50, so that places can be told from tokens.
            let len = (segment + spare).min(50).max(segment) * streams;
            let text: Vec<u8> = (0..len).map(|place| 4 + (place % 50) as u8).collect();
            let starts: Vec<u32> = (0..len as u32).filter(|place| flips[*place as usize]).collect();
            let folder = tempfile::tempdir().unwrap();
            let source = PairSource::of_tokens(&text, &starts, folder.path());
            let layout = Layout { segment, reuse_len: reused, perm_size: 0, targets: reused.min(rest) };
            let count = if bidirectional { 2 * streams } else { streams };
            let lanes = lanes(source, count, bidirectional, layout, seed);
            let cursors: Vec<LaneCursor> = (0..count).map(|lane| lanes.cursor(lane, step)).collect();
            let batch = lanes.batch(0..count, &cursors, step).unwrap();
            for (lane, cursor) in cursors.iter().enumerate() {
                let row = &batch.inputs[lane * segment..][..segment];
                let segments = &batch.pairs.as_ref().unwrap().segments[lane * segment..][..segment];
                let (stream, reversed) = lanes.options.stream_of(lane);
                let mut piece = text[stream * len / streams..][..len / streams].to_vec();
                if reversed {
                    piece.reverse();
                }
                let a_end = segments.iter().position(|segment| *segment == 1).unwrap() - 1;
                let holds = |part: &[i64], at: usize| {
                    part.iter().zip(&piece[at..]).all(|(token, own)| *token == i64::from(*own))
                };
                prop_assert!(holds(&row[..a_end], cursor.offset as usize));
                let b = &row[a_end + 1..segment - 2];
                let anywhere = (0..=piece.len() - b.len()).any(|at| holds(b, at));
                prop_assert!(anywhere, "{:?} is not in {:?}", b, piece);
                prop_assert_eq!((row[a_end], row[segment - 2], row[segment - 1]), (1, 1, 2));
            }
        }
    }
}
