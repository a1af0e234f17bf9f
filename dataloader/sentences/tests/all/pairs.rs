use std::fs;

use proptest::prelude::*;
use segue_dataloader::{BuildOptions, Corpus, Preset, Split, TokenizerChoice, build};
use segue_sentences::{BatchBudget, SentencePairs, TokenBatches};
use segue_tokenizer::{TokenizerKind, TrainOptions};

use crate::scratch::{built, pair};

/// Row S28. Across the borders of shards, too.
#[test]
fn pairs_come_back_in_the_order_of_their_files() {
    let lines: Vec<_> = (0..40_000).map(pair).collect();
    let (_folder, corpus) = built(&lines, |build| segue_dataloader::PairBuild { shard_tokens: 100, ..build });
    assert!(corpus.info().splits[&Split::Train].shards.len() > 1);
    let (pairs, tokenizer) =
        (SentencePairs::open(&corpus, Split::Train).unwrap(), corpus.tokenizer().unwrap());
    assert_eq!((pairs.len(), pairs.is_empty()), (lines.len(), false));
    let eos = i64::from(tokenizer.eos_id().unwrap());
    for (n, line) in lines.iter().enumerate() {
        let found = pairs.get(n as u32).unwrap();
        for (ids, text) in [(&found.source, &line.0), (&found.target, &line.1)] {
            let (end, ids) = ids.split_last().unwrap();
            assert_eq!((*end, &tokenizer.decode_signed(ids)), (eos, text));
        }
        assert_eq!(pairs.lengths(n as u32), (found.source.len(), found.target.len()));
    }
    assert_eq!(pairs.get(lines.len() as u32).unwrap_err().exit_code(), 70);
}

#[test]
fn a_corpus_of_another_preset_is_refused_with_the_command_that_makes_one() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("text"), folder.path().join("corpus"));
    fs::write(&input, "a b\nc d\n").unwrap();
    let tokenizer = TokenizerChoice::Train(TrainOptions::new(TokenizerKind::Word));
    let options =
        BuildOptions { tokenizer, ..BuildOptions::new(Preset::Sentences, vec![input], output.clone()) };
    build(&options, &()).unwrap();
    let corpus = Corpus::open(&output).unwrap();
    let error = SentencePairs::open(&corpus, Split::Train).unwrap_err();
    assert!(error.to_string().contains("its preset is `sentences`"), "{error}");
    assert!(error.hint().unwrap().contains("segue data build --preset pairs"));
    assert_eq!(error.exit_code(), 65);
    let (_folder, corpus) = built(&[pair(1)], |build| build);
    assert!(SentencePairs::open(&corpus, Split::Test).unwrap_err().to_string().contains("no test text"));
}

#[test]
fn a_pair_beyond_the_budget_is_refused_by_its_number() {
    let long = |words: usize| ("x ".repeat(words), "y".to_string());
    let (_folder, corpus) = built(&[long(3), long(9), long(4), long(12)], |build| build);
    let pairs = SentencePairs::open(&corpus, Split::Train).unwrap();
    let error = TokenBatches::new(&pairs, BatchBudget { tokens: 9, sentences: 0 }, 1).unwrap_err();
    let why = "pair 1: it has 10 tokens, more than the 9 of a batch; 2 such pairs in all";
    assert!(error.to_string().contains(why), "{error}");
    assert!(error.hint().unwrap().ends_with("--max-length 8"));
    assert_eq!(error.exit_code(), 65);
    assert!(TokenBatches::new(&pairs, BatchBudget { tokens: 13, sentences: 0 }, 1).is_ok());
    assert_eq!(
        TokenBatches::new(&pairs, BatchBudget { tokens: 0, sentences: 0 }, 1).unwrap_err().exit_code(),
        64
    );
}

#[test]
fn an_evaluation_reads_the_longest_first_whatever_the_ranks() {
    let lines: Vec<_> = (0..60).map(pair).collect();
    let (_folder, corpus) = built(&lines, |build| build);
    let pairs = SentencePairs::open(&corpus, Split::Train).unwrap();
    let groups = pairs.by_length(40, 6);
    let order = groups.concat();
    assert!(order.is_sorted_by_key(|n| (std::cmp::Reverse(pairs.longest(*n)), *n)));
    assert!(groups.iter().all(|group| group.len() <= 6 && group.len() * pairs.longest(group[0]) <= 40));
    let mut all = order;
    all.sort_unstable();
    assert_eq!(all, (0..60).collect::<Vec<_>>());
}

/// An index that gives no two sides a pair: of a shard of one corpus in another.
#[test]
fn a_damaged_index_is_told() {
    let (folder, corpus) = built(&[pair(3), pair(4)], |build| build);
    let path = folder.path().join("corpus/corpus.json");
    let mut info = corpus.info().clone();
    info.splits.get_mut(&Split::Train).unwrap().shards[0].sentences = 3;
    info.fingerprint = info.computed_fingerprint();
    fs::write(&path, serde_json::to_vec(&info).unwrap()).unwrap();
    let corpus = Corpus::open_lazily(&folder.path().join("corpus")).unwrap();
    let error = SentencePairs::open(&corpus, Split::Train).unwrap_err();
    assert!(error.to_string().contains("it has 3 sentences in 2 pairs"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Row S28. Of a corpus, as of planted lengths.
    #[test]
    fn batches_of_a_corpus_keep_to_their_tokens(count in 1usize..200, tokens in 12usize..90, seed: u64) {
        let lines: Vec<_> = (0..count).map(pair).collect();
        let (_folder, corpus) = built(&lines, |build| build);
        let pairs = SentencePairs::open(&corpus, Split::Train).unwrap();
        let budget = BatchBudget { tokens, sentences: 0 };
        let batches = TokenBatches::new(&pairs, budget, seed).unwrap();
        let epoch: Vec<&[u32]> = (0..batches.len() as u64).map(|place| batches.at(place)).collect();
        for batch in &epoch {
            prop_assert!(batch.len() * batch.iter().map(|n| pairs.longest(*n)).max().unwrap() <= tokens);
        }
        let mut all = epoch.concat();
        all.sort_unstable();
        prop_assert_eq!(all, (0..count as u32).collect::<Vec<_>>());
        prop_assert_eq!(batches, TokenBatches::new(&pairs, budget, seed).unwrap());
    }
}
