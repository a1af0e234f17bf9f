//! From a corpus to batches: what lanes, the prefetcher and evaluation yield, against the plain list of tokens.

mod scratch;

use std::fs;
use std::time::Duration;

use proptest::prelude::*;
use scratch::{all_tokens, options};
use segue_dataloader::{
    BuildOptions, Corpus, DataError, EvalLanes, LaneCursor, Lanes, PADDING_ID, Prefetcher, Preset, Split,
    TokenStream, TokenizerKind, build,
};

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
    let cut = Lanes::new(stream.len(), lanes, segment).unwrap();
    let lane_tokens = tokens.len() / lanes;
    let mut cursors = vec![LaneCursor::default(); 3];
    for step in 0..cut.steps_per_epoch() + 2 {
        let batch = cut.batch(&stream, 2..5, &cursors).unwrap();
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
    assert_eq!(cut.batch(&stream, 5..8, &cursors).unwrap_err().exit_code(), 64);
}

#[test]
fn the_prefetcher_yields_the_same_batches_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let stream = stream(&folder);
    let cut = Lanes::new(stream.len(), 4, 5000).unwrap();
    let start = vec![LaneCursor { epoch: 3, offset: 15_000 }; 2];
    let mut prefetcher = Prefetcher::spawn(stream.clone(), cut, 1..3, start.clone()).unwrap();
    let mut cursors = start;
    for _ in 0..300 {
        let expected = cut.batch(&stream, 1..3, &cursors).unwrap();
        assert_eq!(prefetcher.next_batch().unwrap(), expected);
        cursors = expected.cursors_after;
    }
    assert!(prefetcher.waited() < Duration::from_secs(10));
}

#[test]
fn a_dropped_prefetcher_ends_its_thread() {
    let folder = tempfile::tempdir().unwrap();
    let stream = stream(&folder);
    let cut = Lanes::new(stream.len(), 1, 10).unwrap();
    for taken in 0..5 {
        let mut prefetcher =
            Prefetcher::spawn(stream.clone(), cut, 0..1, vec![LaneCursor::default()]).unwrap();
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
    // Lanes cut for a longer stream than this one.
    let cut = Lanes::new(stream.len() * 2, 2, 1000).unwrap();
    let mut prefetcher = Prefetcher::spawn(stream, cut, 1..2, vec![LaneCursor::default()]).unwrap();
    assert!(matches!(prefetcher.next_batch(), Err(DataError::OutOfRange { .. })));
    assert!(matches!(prefetcher.next_batch(), Err(DataError::Thread(_))));
}

#[test]
fn evaluation_predicts_every_token_once_at_any_number_of_lanes() {
    let folder = tempfile::tempdir().unwrap();
    let stream = stream(&folder);
    let tokens = all_tokens(&stream);
    for (lanes, segment) in [(1, 4096), (3, 70_001), (8, 1 << 19), (1000, 33)] {
        let cut = EvalLanes::new(stream.len(), lanes, segment).unwrap();
        let mut predicted = vec![Vec::new(); lanes];
        for step in 0..cut.steps() {
            // Two ranks, each with its lanes.
            for range in [0..lanes / 2, lanes / 2..lanes] {
                let batch = cut.batch(&stream, range.clone(), step).unwrap();
                for (row, lane) in range.enumerate() {
                    let (real, padding) =
                        batch.targets[row * segment..][..segment].split_at(batch.counts[row]);
                    let (inputs, after) =
                        batch.inputs[row * segment..][..segment].split_at(batch.counts[row]);
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
