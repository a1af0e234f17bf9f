//! From a corpus to batches: what lanes, the prefetcher and evaluation yield, against the plain list of tokens.

use crate::scratch;

use std::fs;
use std::time::Duration;

use proptest::prelude::*;
use scratch::{all_tokens, options};
use segue_data_error::DataError;
use segue_dataloader::sections::DocumentEnd;
use segue_dataloader::{
    BuildOptions, Corpus, Documents, EvalLanes, LaneCursor, LaneReader, Lanes, Lengths, PADDING_ID,
    Prefetcher, Preset, Reader, Segments, SentenceLanes, Split, StreamLanes, TokenStream, build,
};
use segue_tokenizer::TokenizerKind;

/// A stream over several shards. No token is the padding id.
fn stream(folder: &tempfile::TempDir) -> TokenStream {
    let (input, output) = (folder.path().join("text"), folder.path().join("corpus"));
    let text: Vec<u8> = (0..2_300_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 25) as u8 + 1).collect();
    fs::write(&input, text).unwrap();
    let options = options(Preset::Documents, TokenizerKind::Byte, &input, &output);
    build(&BuildOptions { shard_tokens: 1_000_000, ..options }, &()).unwrap();
    Corpus::open(&output).unwrap().tokens(Split::Train).unwrap()
}

#[test]
fn lanes_read_their_own_piece_of_the_stream() {
    let folder = tempfile::tempdir().unwrap();
    let stream = stream(&folder);
    let tokens = all_tokens(&stream);
    let (lanes, segment) = (7, 1000);
    let cut = StreamLanes::new(stream, lanes, Segments::fixed(segment)).unwrap();
    let lane_tokens = tokens.len() / lanes;
    let mut cursors = vec![LaneCursor::default(); 3];
    for step in 0..cut.steps_per_epoch() + 2 {
        let batch = cut.batch(2..5, &cursors, step + 1).unwrap();
        let in_epoch = (step % cut.steps_per_epoch()) as usize;
        for (row, lane) in (2..5).enumerate() {
            let first = lane * lane_tokens + in_epoch * segment;
            assert_eq!(batch.inputs[row * segment..][..segment], tokens[first..first + segment]);
            assert_eq!(batch.targets[row * segment..][..segment], tokens[first + 1..first + 1 + segment]);
        }
        assert!(batch.restarts.iter().all(|restarts| *restarts == (in_epoch == 0)));
        cursors = batch.cursors_after;
        assert_eq!(cursors[0].epoch, step / cut.steps_per_epoch());
    }
    assert_eq!(cut.batch(5..8, &cursors, 1).unwrap_err().exit_code(), 64);
}

#[test]
fn batches_are_changed_on_the_way_and_errors_are_not() {
    struct Three;
    impl Reader for Three {
        type Batch = u64;

        fn read(&mut self, nth: u64) -> Result<u64, DataError> {
            if nth > 3 { Err(DataError::Usage("there are three".into())) } else { Ok(nth) }
        }
    }
    let mut made = 0;
    let counted = Three.map(move |nth| {
        made += 1;
        (nth, made)
    });
    let mut batches = Prefetcher::spawn(counted, 2).unwrap();
    let found = [batches.next_batch().unwrap(), batches.next_batch().unwrap()];
    assert_eq!(found, [(2, 1), (3, 2)]);
    assert!(batches.next_batch().unwrap_err().to_string().contains("there are three"));
}

#[test]
fn a_lane_too_short_for_one_segment_says_what_to_change() {
    let folder = tempfile::tempdir().unwrap();
    let stream = stream(&folder);
    let cut = |lanes, segment| StreamLanes::new(stream.clone(), lanes, Segments::fixed(segment));
    let error = cut(100_000, 23).unwrap_err();
    let text = format!("{error}\n{}", error.hint().unwrap());
    for part in ["23 tokens", "fewer lanes (now 100000)", "segment of 23 needs 24", "now 2300000 tokens"] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    assert_eq!(error.exit_code(), 65);
    assert!(cut(100_000, 22).is_ok());
    assert_eq!(cut(0, 1).unwrap_err().exit_code(), 64);
}

#[test]
fn the_prefetcher_yields_the_same_batches_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let stream = stream(&folder);
    let segments = Segments { ext_len: 7, lengths: Lengths::Varlen { seed: 1 }, ..Segments::fixed(5000) };
    let cut = || StreamLanes::new(stream.clone(), 4, segments).unwrap().rolled(2);
    let start = vec![LaneCursor { epoch: 3, offset: 15_000, ..LaneCursor::default() }; 2];
    let reader = LaneReader::new(Box::new(cut()), 1..3, start.clone());
    let mut prefetcher = Prefetcher::spawn(reader, 9).unwrap();
    let mut cursors = start;
    for step in 9..309 {
        let expected = cut().batch(1..3, &cursors, step).unwrap();
        assert_eq!(prefetcher.next_batch().unwrap(), expected);
        cursors = expected.cursors_after;
    }
    assert!(prefetcher.waited() < Duration::from_secs(10));
}

/// Groups of two lanes, one of which advances in odd steps and the other in even ones.
#[test]
fn a_group_that_waits_stays_where_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let stream = stream(&folder);
    let cut = || StreamLanes::new(stream.clone(), 6, Segments::fixed(5000)).unwrap().rolled(2);
    // The second and third of three groups.
    let start = vec![LaneCursor::default(); 4];
    let reader = LaneReader::new(Box::new(cut()), 2..6, start.clone());
    let mut reader = reader.in_turns(2, |step, group| step % 2 == group as u64 % 2);
    let mut cursors = start;
    let mut restarted = 0;
    for step in 1..=300 {
        let batch = reader.read(step).unwrap();
        for (group, own) in [(1usize, 0..2), (2, 2..4)] {
            let expected = cut().batch(group * 2..group * 2 + 2, &cursors[own.clone()], step).unwrap();
            let rows = own.start * 5000..own.end * 5000;
            assert_eq!(batch.inputs[rows.clone()], expected.inputs);
            assert_eq!(batch.targets[rows], expected.targets);
            if step % 2 == group as u64 % 2 {
                assert_eq!(batch.restarts[own.clone()], expected.restarts);
                restarted += usize::from(expected.restarts[0]);
                cursors[own].copy_from_slice(&expected.cursors_after);
            } else {
                assert_eq!(batch.restarts[own], [false; 2]);
            }
        }
        assert_eq!(batch.cursors_after, cursors);
    }
    assert!(restarted > 2, "no lane came round");
}

#[test]
fn a_dropped_prefetcher_ends_its_thread() {
    let folder = tempfile::tempdir().unwrap();
    let stream = stream(&folder);
    for taken in 0..5 {
        let lanes = StreamLanes::new(stream.clone(), 1, Segments::fixed(10)).unwrap();
        let reader = LaneReader::new(Box::new(lanes), 0..1, vec![LaneCursor::default()]);
        let mut prefetcher = Prefetcher::spawn(reader, 1).unwrap();
        for _ in 0..taken {
            prefetcher.next_batch().unwrap();
        }
        // Dropping joins the thread: a thread that did not end would hang this test.
    }
}

#[test]
fn the_prefetcher_passes_errors_on() {
    let folder = tempfile::tempdir().unwrap();
    let stream = stream(&folder);
    let sentences = Corpus::open(&folder.path().join("corpus")).unwrap().sentences(Split::Train).unwrap();
    // No sentence of bytes ends with a token of this id.
    let lanes = SentenceLanes::new(stream, sentences, 1, Segments::fixed(10), 1000, 1).unwrap();
    let reader = LaneReader::new(Box::new(lanes), 0..1, vec![LaneCursor::default()]);
    let mut prefetcher = Prefetcher::spawn(reader, 1).unwrap();
    assert!(matches!(prefetcher.next_batch(), Err(DataError::EmptyInput { .. })));
    assert!(matches!(prefetcher.next_batch(), Err(DataError::Thread(_))));
}

#[test]
fn context_is_the_tokens_before_a_segment_and_overlap_what_comes_again() {
    let folder = tempfile::tempdir().unwrap();
    let stream = stream(&folder);
    let tokens = all_tokens(&stream);
    let segments = Segments { ext_len: 250, ..Segments::fixed(100) };
    let cut = StreamLanes::new(stream.clone(), 3, segments).unwrap();
    let lane_tokens = cut.lane_tokens() as usize;
    let mut cursors = vec![LaneCursor::default()];
    for (step, context, overlap) in [(1, 0, 100), (2, 100, 200), (3, 200, 250), (4, 250, 250)] {
        let batch = cut.batch(1..2, &cursors, step).unwrap();
        assert_eq!((batch.context, batch.overlap, batch.segment), (context, overlap, 100));
        let first = lane_tokens + (step as usize - 1) * 100;
        assert_eq!(batch.inputs, tokens[first - context..first + 100]);
        assert_eq!(batch.targets, tokens[first + 1..first + 101]);
        cursors = batch.cursors_after;
    }
    let eval = EvalLanes::new(stream.len(), 2, 100).unwrap().with_context(250);
    for (step, context, overlap) in [(0, 0, 100), (1, 100, 200), (2, 200, 250), (7, 250, 250)] {
        let batch = eval.batch(&stream, 1..2, step, None).unwrap();
        assert_eq!((batch.context, batch.overlap), (context, overlap));
        let first = eval.targets(1).start as usize - 1 + step as usize * 100;
        assert_eq!(batch.inputs, tokens[first - context..first + 100]);
        assert_eq!(batch.targets, tokens[first + 1..first + 101]);
    }
}

#[test]
fn a_rolled_lane_reads_its_piece_from_another_place_each_epoch_and_goes_round() {
    let folder = tempfile::tempdir().unwrap();
    let stream = stream(&folder);
    let tokens = all_tokens(&stream);
    let cut = StreamLanes::new(stream, 5, Segments::fixed(999)).unwrap().rolled(7);
    let lane_tokens = cut.lane_tokens() as usize;
    let piece = &tokens[3 * lane_tokens..4 * lane_tokens];
    let mut cursors = vec![LaneCursor::default()];
    let mut starts = Vec::new();
    for epoch in 0..3 {
        let mut read = Vec::new();
        for step in 0..cut.steps_per_epoch() {
            let batch = cut.batch(3..4, &cursors, epoch * cut.steps_per_epoch() + step + 1).unwrap();
            read.extend(&batch.inputs);
            cursors = batch.cursors_after;
            assert_eq!(batch.targets[..998], batch.inputs[1..]);
        }
        let doubled = [piece, piece].concat();
        // The text repeats itself: only the whole epoch tells its start.
        let start = (0..lane_tokens).find(|i| doubled[*i..].starts_with(&read));
        assert!(start.is_some(), "epoch {epoch} is not the lane read round from some place");
        starts.push(start);
    }
    assert!(starts[0] != starts[1] && starts[1] != starts[2], "{starts:?}");
}

#[test]
fn documents_are_marked_or_forgotten_where_they_end() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("texts");
    fs::create_dir(&input).unwrap();
    let lengths = [37, 1, 20, 64, 5];
    for (i, length) in lengths.iter().enumerate() {
        fs::write(input.join(format!("{i}.txt")), "x".repeat(*length)).unwrap();
    }
    let output = folder.path().join("corpus");
    build(&options(Preset::Documents, TokenizerKind::Byte, &input, &output), &()).unwrap();
    let corpus = Corpus::open(&output).unwrap();
    let stream = corpus.tokens(Split::Train).unwrap();
    let documents = || Documents::new(corpus.documents(Split::Train).unwrap());
    // The plain list: the document of each token, from 1.
    let starts: Vec<u64> = {
        let starts = corpus.documents(Split::Train).unwrap();
        (0..starts.len()).map(|i| starts.get(i).unwrap().unwrap()).collect()
    };
    assert_eq!(starts.len(), lengths.len());
    let of: Vec<i64> =
        (0..stream.len()).map(|p| starts.iter().filter(|start| **start <= p).count() as i64).collect();

    let cut = |policy| {
        StreamLanes::new(stream.clone(), 1, Segments::fixed(10)).unwrap().with_documents(documents(), policy)
    };
    let (mask, reset) = (cut(DocumentEnd::Mask), cut(DocumentEnd::Reset));
    let eval = EvalLanes::new(stream.len(), 1, 10).unwrap();
    let (mut cursors, mut masked) = (vec![LaneCursor::default()], vec![LaneCursor::default()]);
    for step in 0..mask.steps_per_epoch() as usize {
        let batch = mask.batch(0..1, &masked, step as u64 + 1).unwrap();
        assert_eq!(batch.documents.unwrap(), of[step * 10..step * 10 + 10]);
        masked = batch.cursors_after;
        let ended = step == 0 || of[step * 10 - 10] != of[step * 10];
        let batch = reset.batch(0..1, &cursors, step as u64 + 1).unwrap();
        assert_eq!((batch.restarts[0], &batch.documents), (ended, &None), "step {step}");
        cursors = batch.cursors_after;
        let documents = documents();
        let batch = eval.batch(&stream, 0..1, step as u64, Some((&documents, DocumentEnd::Reset))).unwrap();
        assert_eq!(batch.restarts[0], ended);
        let batch = eval.batch(&stream, 0..1, step as u64, Some((&documents, DocumentEnd::Mask))).unwrap();
        assert_eq!(batch.documents.unwrap(), of[step * 10..step * 10 + 10]);
    }
}

#[test]
fn evaluation_predicts_every_token_once_at_any_number_of_lanes() {
    let folder = tempfile::tempdir().unwrap();
    let stream = stream(&folder);
    let tokens = all_tokens(&stream);
    for (lanes, segment) in [(1, 4096), (3, 70_001), (8, usize::MAX), (1000, 33)] {
        let longest = (stream.len() as usize - 1).div_ceil(lanes);
        let width = segment.min(longest);
        let cut = EvalLanes::new(stream.len(), lanes, segment).unwrap();
        let mut predicted = vec![Vec::new(); lanes];
        for step in 0..cut.steps() {
            // Two ranks, each with its lanes.
            for range in [0..lanes / 2, lanes / 2..lanes] {
                let batch = cut.batch(&stream, range.clone(), step, None).unwrap();
                for (row, lane) in range.enumerate() {
                    let (real, padding) = batch.targets[row * width..][..width].split_at(batch.counts[row]);
                    let (inputs, after) = batch.inputs[row * width..][..width].split_at(batch.counts[row]);
                    let at = cut.targets(lane).start as usize + predicted[lane].len();
                    assert_eq!(inputs, &tokens[at - 1..at - 1 + inputs.len()]);
                    assert!(padding.iter().chain(after).all(|id| *id == PADDING_ID));
                    predicted[lane].extend_from_slice(real);
                }
            }
        }
        assert!(predicted.concat() == tokens[1..], "{lanes} lanes");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_range_of_the_stream_reads_as_the_list(ranges in proptest::collection::vec((0u64..2_300_100, 0usize..3000), 30)) {
        thread_local! {
            static STREAM: (tempfile::TempDir, TokenStream, Vec<i64>) = {
                let folder = tempfile::tempdir().unwrap();
                let stream = stream(&folder);
                let tokens = all_tokens(&stream);
                (folder, stream, tokens)
            };
        }
        STREAM.with(|(_, stream, tokens)| {
            for (start, length) in ranges {
                let mut out = vec![-1; length];
                let expected = tokens.get(start as usize..start as usize + length);
                match stream.read(start, &mut out) {
                    Ok(()) => assert_eq!(Some(out.as_slice()), expected),
                    Err(_) => assert!(expected.is_none()),
                }
            }
        });
    }
}
