use std::ops::Range;
use std::sync::Arc;

use proptest::prelude::*;
use segue_dataloader::{Prefetcher, Reader, Split};
use segue_sentences::{BatchBudget, PairBatch, PairReader, PairSymbols, SentencePairs, TokenBatches};

use crate::scratch::{built, pair};

const SYMBOLS: PairSymbols = PairSymbols { start: 0, pad: 0 };

/// Pairs with their batches of 60 tokens.
fn batches(count: usize, seed: u64) -> (Arc<SentencePairs>, Arc<TokenBatches>, tempfile::TempDir) {
    let lines: Vec<_> = (0..count).map(pair).collect();
    let (folder, corpus) = built(&lines, |build| build);
    let pairs = SentencePairs::open(&corpus, Split::Train).unwrap();
    let batches = TokenBatches::new(&pairs, BatchBudget { tokens: 60, sentences: 0 }, seed).unwrap();
    (Arc::new(pairs), Arc::new(batches), folder)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Row S28. The parts of two and four ranks, one after the other, are what one rank reads.
    #[test]
    fn batches_do_not_depend_on_the_number_of_ranks(count in 1usize..120, seed: u64, steps in 1u64..12) {
        const LANES: usize = 4;
        let (pairs, batches, _folder) = batches(count, seed);
        let reader = |range: Range<usize>| PairReader::new(pairs.clone(), batches.clone(), LANES, range, SYMBOLS).unwrap();
        let mut whole = reader(0..LANES);
        for ranks in [2, 4] {
            let each = LANES / ranks;
            let mut parts: Vec<PairReader> = (0..ranks).map(|rank| reader(rank * each..(rank + 1) * each)).collect();
            for step in 1..=steps {
                let together: Vec<PairBatch> = parts.iter_mut().flat_map(|part| part.read(step).unwrap()).collect();
                prop_assert_eq!(together, whole.read(step).unwrap());
            }
        }
    }
}

/// Row S28. A step of several batches goes on where the one before it ended, over the end of an epoch.
#[test]
fn steps_read_every_pair_once_an_epoch() {
    let (pairs, batches, _folder) = batches(100, 7);
    let epoch = batches.len() as u64;
    assert!(epoch > 4 && !epoch.is_multiple_of(3));
    let reader = PairReader::new(pairs.clone(), batches, 3, 0..3, SYMBOLS).unwrap();
    // A prefetcher takes it as any reader.
    let mut ahead = Prefetcher::spawn(reader, 1).unwrap();
    let read: Vec<PairBatch> = (0..epoch).flat_map(|_| ahead.next_batch().unwrap()).collect();
    for epoch in read.chunks(epoch as usize) {
        let mut all: Vec<u32> = epoch.iter().flat_map(|batch| batch.numbers.clone()).collect();
        all.sort_unstable();
        assert_eq!(all, (0..100).collect::<Vec<_>>());
    }
    for batch in &read {
        assert_eq!(batch.source.len(), batch.rows * batch.source_length);
        assert_eq!(batch.target_input.len(), batch.rows * batch.target_length);
        for (row, n) in batch.numbers.iter().enumerate() {
            let pair = pairs.get(*n).unwrap();
            let target = &batch.target_output[row * batch.target_length..][..pair.target.len()];
            assert_eq!((target, batch.target_lengths[row]), (&pair.target[..], pair.target.len() as i64));
            assert_eq!(&batch.source[row * batch.source_length..][..pair.source.len()], &pair.source[..]);
        }
    }
}

#[test]
fn batches_that_a_step_does_not_have_are_refused() {
    let (pairs, batches, _folder) = batches(10, 1);
    for range in [2..5, 1..1] {
        let refused = PairReader::new(pairs.clone(), batches.clone(), 4, range, SYMBOLS);
        assert_eq!(refused.err().unwrap().exit_code(), 64);
    }
}
