//! Lines read by heads, one by one, and columns of drawn lengths: every token where and as often as it should be.

use crate::scratch;

use std::fs;

use proptest::prelude::*;
use scratch::{all_tokens, options};
use segue_dataloader::{
    Batch, Boundaries, Corpus, EvalLanes, Heads, LaneCursor, LaneReader, Lanes, Lengths, PADDING_ID, Preset,
    Reader, Segments, SentenceLanes, Split, StreamLanes, TokenStream, build,
};
use segue_tokenizer::TokenizerKind;

const SEED: u64 = 3;

/// A corpus of lines in which no word comes twice, with the id that ends a line.
struct Lines {
    stream: TokenStream,
    tokens: Vec<i64>,
    starts: Vec<u64>,
    eos: i64,
    corpus: Corpus,
    _folder: tempfile::TempDir,
}

impl Lines {
    /// Lines of so many words.
    fn of(lengths: impl IntoIterator<Item = usize>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (input, output) = (folder.path().join("text"), folder.path().join("corpus"));
        let mut next = 0;
        let line = |length: usize| {
            next += length;
            (next - length..next).map(|word| format!("w{word}")).collect::<Vec<_>>().join(" ") + "\n"
        };
        fs::write(&input, lengths.into_iter().map(line).collect::<String>()).unwrap();
        build(&options(Preset::Sentences, TokenizerKind::Word, &input, &output), &()).unwrap();
        let corpus = Corpus::open(&output).unwrap();
        let stream = corpus.tokens(Split::Train).unwrap();
        let boundaries = corpus.sentences(Split::Train).unwrap();
        let starts = (0..boundaries.len()).map(|i| boundaries.get(i).unwrap().unwrap()).collect();
        let eos = i64::from(corpus.tokenizer().unwrap().eos_id().unwrap());
        Self { tokens: all_tokens(&stream), stream, starts, eos, corpus, _folder: folder }
    }

    fn boundaries(&self) -> Boundaries {
        self.corpus.sentences(Split::Train).unwrap()
    }

    fn heads(&self, lanes: usize, jitter: u64) -> Heads {
        Heads::new(self.boundaries(), lanes, jitter, self.eos, SEED).unwrap()
    }

    fn read_by_heads(&self, lanes: usize, jitter: u64, segments: Segments) -> StreamLanes {
        let lanes_over = StreamLanes::new(self.stream.clone(), lanes, segments).unwrap();
        lanes_over.from_lines(self.heads(lanes, jitter))
    }

    fn episodes(&self, lanes: usize, segment: usize) -> SentenceLanes {
        let (stream, starts) = (self.stream.clone(), self.boundaries());
        let lanes = SentenceLanes::new(stream, starts, lanes, Segments::fixed(segment), self.eos, SEED);
        lanes.unwrap().as_episodes()
    }
}

/// Steps of all lanes from the start, until `enough`.
fn steps(lanes: &dyn Lanes, count: usize, mut enough: impl FnMut(&Batch) -> bool) -> Vec<Batch> {
    let mut cursors = vec![LaneCursor::default(); count];
    let mut batches = Vec::new();
    for step in 1.. {
        let batch = lanes.batch(0..count, &cursors, step).unwrap();
        // What a lane yields does not depend on who else is read, nor on how the run came to its cursor.
        let apart: Vec<Batch> = (0..count)
            .map(|lane| lanes.batch(lane..lane + 1, &cursors[lane..lane + 1], step).unwrap())
            .collect();
        assert_eq!(apart.iter().flat_map(|b| b.inputs.clone()).collect::<Vec<_>>(), batch.inputs);
        assert_eq!(apart.iter().flat_map(|b| b.targets.clone()).collect::<Vec<_>>(), batch.targets);
        cursors.clone_from(&batch.cursors_after);
        if enough(&batch) {
            return batches;
        }
        batches.push(batch);
    }
    batches
}

fn row<T: Copy>(values: &[T], lanes: usize, lane: usize) -> Vec<T> {
    let width = values.len() / lanes;
    values[lane * width..(lane + 1) * width].to_vec()
}

/// Row M8.
#[test]
fn heads_are_equidistant_in_lines_and_jitter_each_epoch() {
    let lines = Lines::of((0..600).map(|i| 1 + i % 7));
    let (lanes, count) = (4, 600);
    let places: Vec<u64> = (0..lanes).map(|lane| lines.heads(lanes, 0).line(lane, 0)).collect();
    for lane in 0..lanes {
        assert_eq!((places[lane] + count - places[0]) % count, lane as u64 * count / lanes as u64);
        // Without jitter, epochs are alike.
        assert_eq!(lines.heads(lanes, 0).line(lane, 9), places[lane]);
    }
    let heads = lines.heads(lanes, 20);
    let mut shifts = Vec::new();
    for (lane, place) in places.iter().enumerate() {
        let shift = |epoch| ((heads.line(lane, epoch) + count + 20 - place) % count) as i64 - 20;
        shifts.extend((0..2000).map(shift));
    }
    assert!(shifts.iter().all(|shift| shift.abs() <= 20));
    let mean = shifts.iter().sum::<i64>() as f64 / shifts.len() as f64;
    // Five standard deviations of the mean of 8,000 draws of 41 numbers.
    assert!(mean.abs() < 5.0 * (140.0_f64 / 8000.0).sqrt(), "{mean}");
    assert!((-20..=20).all(|shift| shifts.contains(&shift)));
    // Another seed moves all of them.
    let other = Heads::new(lines.boundaries(), lanes, 0, lines.eos, SEED + 1).unwrap();
    assert_ne!(other.line(0, 0), places[0]);
}

/// Row M8.
#[test]
fn a_head_reads_the_ring_of_lines_from_its_own_on() {
    let lines = Lines::of((0..90).map(|i| 1 + (i * i) % 11));
    let (lanes, segment) = (3, 25);
    let cut = lines.read_by_heads(lanes, 5, Segments::fixed(segment));
    let (total, per_epoch) = (lines.tokens.len(), lines.tokens.len() / lanes / segment);
    let batches = steps(&cut, lanes, |batch| batch.cursors_after[0].epoch == 2);
    assert_eq!(batches.len(), 2 * per_epoch);
    let heads = lines.heads(lanes, 5);
    for (step, batch) in batches.iter().enumerate() {
        let (epoch, done) = (step / per_epoch, step % per_epoch * segment);
        assert_eq!(batch.restarts, vec![done == 0; lanes]);
        for lane in 0..lanes {
            let line = lines.starts[heads.line(lane, epoch as u64) as usize] as usize;
            let at = |position: usize| lines.tokens[(line + total + position - 1) % total];
            let expected: Vec<i64> = (done..=done + segment).map(at).collect();
            assert_eq!(row(&batch.inputs, lanes, lane), expected[..segment]);
            assert_eq!(row(&batch.targets, lanes, lane), expected[1..]);
            assert!(done > 0 || expected[0] == lines.eos);
        }
    }
}

#[test]
fn a_stream_without_ends_of_lines_has_no_heads() {
    let lines = Lines::of([3; 20]);
    let heads = Heads::new(lines.boundaries(), 2, 0, lines.eos + 1, SEED).unwrap();
    let cut = StreamLanes::new(lines.stream.clone(), 2, Segments::fixed(5)).unwrap().from_lines(heads);
    let error = cut.batch(0..1, &[LaneCursor::default()], 1).unwrap_err();
    assert!(error.to_string().contains("does not follow an end-of-sequence token"), "{error}");
    let too_many = Heads::new(lines.boundaries(), 21, 0, lines.eos, SEED).unwrap_err();
    assert!(too_many.to_string().contains("21 lanes cannot be made of 20 lines"), "{too_many}");
}

/// Row M8.
#[test]
fn evaluation_by_lines_predicts_the_text_from_ends_of_lines_on() {
    let lines = Lines::of((0..50).map(|i| 1 + (i * 5) % 13));
    let whole = EvalLanes::new(lines.stream.len(), 4, 9).unwrap();
    for (cut, episodes) in [
        (whole.clone().by_lines(&lines.starts, lines.eos), false),
        (whole.in_episodes(&lines.starts, lines.eos), true),
    ] {
        let mut found = vec![Vec::new(); 4];
        for step in 0..cut.steps() {
            let batch = cut.batch(&lines.stream, 0..4, step, None).unwrap();
            for (lane, found) in found.iter_mut().enumerate() {
                let (inputs, targets) = (row(&batch.inputs, 4, lane), row(&batch.targets, 4, lane));
                let count = batch.counts[lane];
                let begins = count > 0 && batch.restarts[lane];
                let before = if begins { lines.eos } else { *found.last().unwrap_or(&-1) };
                if count > 0 {
                    assert_eq!(inputs[0], before);
                    assert_eq!(inputs[1..count], targets[..count - 1]);
                    let starts_a_line = inputs[0] == lines.eos;
                    assert!(begins == (step == 0 || episodes && starts_a_line));
                }
                assert!(inputs[count..].iter().chain(&targets[count..]).all(|id| *id == PADDING_ID));
                found.extend(&targets[..count]);
            }
        }
        assert_eq!(found.concat(), lines.tokens);
    }
}

#[test]
fn an_episode_is_a_line_from_a_fresh_memory() {
    let lines = Lines::of((0..41).map(|i| 1 + (i * 3) % 17));
    let (lanes, segment) = (4, 8);
    let cut = lines.episodes(lanes, segment);
    let mut texts = vec![Vec::new(); lanes];
    let mut over = false;
    let batches = steps(&cut, lanes, |batch| {
        let was_over = over;
        over = batch.cursors_after.iter().all(|cursor| cursor.epoch > 0);
        was_over
    });
    for batch in &batches {
        let counts = batch.counts.as_ref().unwrap();
        for lane in 0..lanes {
            let (inputs, targets) = (row(&batch.inputs, lanes, lane), row(&batch.targets, lanes, lane));
            let count = counts[lane];
            assert!(count > 0 && inputs[count..].iter().chain(&targets[count..]).all(|id| *id == PADDING_ID));
            assert_eq!(inputs[1..count], targets[..count - 1]);
            assert_eq!(batch.restarts[lane], inputs[0] == lines.eos);
            if batch.restarts[lane] {
                texts[lane].push(Vec::new());
            }
            texts[lane].last_mut().unwrap().extend_from_slice(&targets[..count]);
        }
    }
    // Lane k has the lines k, k + lanes, .. of the epoch's order.
    let of_epoch = |lane: usize| texts[lane][..(41 - lane).div_ceil(lanes)].to_vec();
    let mut found: Vec<Vec<i64>> = (0..lanes).flat_map(of_epoch).collect();
    let unshuffled: Vec<Vec<i64>> = lines
        .starts
        .iter()
        .zip(lines.starts[1..].iter().chain([&lines.stream.len()]))
        .map(|(start, end)| lines.tokens[*start as usize..*end as usize].to_vec())
        .collect();
    assert_ne!(found, unshuffled);
    found.sort();
    let mut expected = unshuffled;
    expected.sort();
    assert_eq!(found, expected);
}

/// Lanes of a stream over distinct words, with what of AWD-LSTM's reading is asked for.
fn columns(lines: &Lines, lanes: usize, segment: usize, seed: u64, roll: bool) -> StreamLanes {
    let lengths = Lengths::Around { half: 0.05, spread: 5.0, most: 0, seed };
    let segments = Segments { lengths, rest: true, ..Segments::fixed(segment) };
    let cut = StreamLanes::new(lines.stream.clone(), lanes, segments).unwrap();
    if roll { cut.rolled(seed) } else { cut }
}

/// Row S12.
#[test]
fn every_position_after_the_first_is_a_target_exactly_once_an_epoch() {
    let lines = Lines::of([2000]);
    for (lanes, segment, roll) in [(1, 70, false), (3, 70, true), (4, 20, true), (7, 6, false)] {
        let cut = columns(&lines, lanes, segment, 5, roll);
        let piece = lines.tokens.len() / lanes;
        let mut ended = 0;
        let batches = steps(&cut, lanes, |batch| {
            ended = batch.cursors_after[0].epoch;
            ended == 3
        });
        let mut by_epoch = vec![Vec::new(); 3];
        batches.iter().for_each(|batch| by_epoch[batch.cursors_after[0].epoch as usize].push(batch));
        let mut orders = Vec::new();
        for epoch in &by_epoch {
            let lengths: Vec<usize> = epoch.iter().map(|batch| batch.segment).collect();
            assert_eq!(lengths.iter().sum::<usize>(), piece - 1, "{lengths:?}");
            assert!(epoch[0].restarts.iter().all(|restarts| *restarts));
            assert!(epoch[1..].iter().all(|batch| !batch.restarts.contains(&true)));
            for lane in 0..lanes {
                let inputs: Vec<i64> =
                    epoch.iter().flat_map(|batch| row(&batch.inputs, lanes, lane)).collect();
                let targets: Vec<i64> =
                    epoch.iter().flat_map(|batch| row(&batch.targets, lanes, lane)).collect();
                assert_eq!(inputs[1..], targets[..targets.len() - 1]);
                // The piece in its cyclic order, each token once: the first is no target.
                let whole = [&inputs[..1], &targets].concat();
                let own = &lines.tokens[lane * piece..(lane + 1) * piece];
                let shift = own.iter().position(|token| *token == whole[0]).unwrap();
                assert!(roll || shift == 0);
                assert_eq!(whole, [&own[shift..], &own[..shift]].concat());
                orders.push(shift);
            }
        }
        assert!(!roll || orders.iter().any(|shift| *shift != orders[0]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever the lengths: each lane's targets follow each other, and an epoch has all of them.
    /// Row S12.
    #[test]
    fn no_target_of_an_epoch_is_lost(
        words in 60usize..400, lanes in 1usize..5, segment in 1usize..40, seed: u64, by_heads: bool,
    ) {
        let lines = Lines::of([words / 3, words / 3, words - 2 * (words / 3)]);
        prop_assume!(lines.tokens.len() / lanes > segment && (!by_heads || lanes <= 3));
        let mut cut = columns(&lines, lanes, segment, seed, false);
        let mut targets = lines.tokens.len() / lanes - 1;
        if by_heads {
            cut = cut.from_lines(lines.heads(lanes, 1));
            targets += 1;
        }
        let batches = steps(&cut, lanes, |batch| batch.cursors_after[0].epoch == 1);
        prop_assert_eq!(batches.iter().map(|batch| batch.segment).sum::<usize>(), targets);
        prop_assert_eq!(batches.iter().map(|batch| batch.targets.len()).sum::<usize>(), targets * lanes);
        let last = &batches[batches.len() - 1];
        prop_assert_eq!(last.cursors_after[0].offset, targets as u64);
    }

    /// A reader that goes on from where another stopped reads what it would have read.
    #[test]
    fn a_lane_goes_on_after_a_stop(stop in 1u64..30, seed: u64, order in 0..3) {
        let lines = Lines::of((0..60).map(|i| 1 + i % 9));
        let open = || -> Box<dyn Lanes> {
            match order {
                0 => Box::new(lines.read_by_heads(2, 3, Segments { rest: true, ..Segments::fixed(11) })),
                1 => Box::new(lines.episodes(2, 5)),
                _ => Box::new(columns(&lines, 2, 30, seed, true)),
            }
        };
        let read = |reader: &mut LaneReader, from: u64, to: u64| -> Vec<Batch> {
            (from..to).map(|step| reader.read(step).unwrap()).collect()
        };
        let fresh = || vec![LaneCursor::default(); 2];
        let reader = |cursors| LaneReader::new(open(), 0..2, cursors).forgetting(0.2, 1, seed);
        let whole = read(&mut reader(fresh()), 1, 40);
        let mut parts = read(&mut reader(fresh()), 1, stop);
        let cursors = parts.last().map_or(fresh(), |batch| batch.cursors_after.clone());
        parts.extend(read(&mut reader(cursors), stop, 40));
        prop_assert_eq!(parts, whole);
    }
}

/// Melis 2023, §2.2: 1 % of segments. Each sample of a lane is forgotten by itself, and a lane that waits keeps what it has.
/// Row M8.
#[test]
fn states_are_dropped_at_the_given_rate() {
    let lines = Lines::of([7; 400]);
    let (lanes, parts, count) = (10, 2, 5000);
    let open = |range: std::ops::Range<usize>| {
        let cut = StreamLanes::new(lines.stream.clone(), lanes, Segments::fixed(2)).unwrap();
        let cursors = vec![LaneCursor { offset: 1, ..LaneCursor::default() }; range.len()];
        LaneReader::new(Box::new(cut), range, cursors)
    };
    let mut reader = open(0..lanes).forgetting(0.01, parts, SEED);
    let mut second = open(5..lanes).forgetting(0.01, parts, SEED);
    let mut restarted = open(0..lanes);
    let (mut dropped, mut draws, mut together) = (0, 0, 0);
    for step in 1..=count {
        let restarts = reader.read(step).unwrap().restarts;
        // The same whichever rank reads the lane.
        assert_eq!(second.read(step).unwrap().restarts, restarts[5 * parts..]);
        for (of_lane, begins) in restarts.chunks(parts).zip(restarted.read(step).unwrap().restarts) {
            assert!(!begins || of_lane.iter().all(|restarts| *restarts));
            if !begins {
                draws += parts;
                dropped += of_lane.iter().filter(|dropped| **dropped).count();
                together += usize::from(of_lane.iter().all(|dropped| *dropped));
            }
        }
    }
    assert!(draws > 99_000);
    let rate = dropped as f64 / draws as f64;
    assert!((rate - 0.01).abs() < 0.002, "{rate}");
    // Samples are forgotten apart: both at once in one of 10,000 segments.
    assert!(together < 25, "{together}");
    let mut waiting = open(0..lanes).in_turns(5, |_, group| group == 1).forgetting(1.0, 1, SEED);
    assert_eq!(waiting.read(1).unwrap().restarts, [[false; 5], [true; 5]].concat());
}
