use std::io::{BufRead, BufReader};
use std::time::Instant;

use segue_dataloader::{Corpus, PairBuild, PairFilter, Split, TokenizerChoice, build_pairs, open_text};
use segue_sentences::{BatchBudget, SentencePairs, Sentences, TokenBatches};
use segue_tokenizer::{TokenizerKind, TrainOptions};

/// Row S28. The data set as it is published, with a vocabulary of 10,000 pieces over both sides.
#[test]
fn multi30k_is_read_whole() {
    let Some(data) = segue_skip::shared_data("multi30k") else { return };
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("corpus");
    let training = TrainOptions { vocab_size: Some(10_000), ..TrainOptions::new(TokenizerKind::Bpe) };
    let build = PairBuild {
        valid: vec![data.join("val")],
        test: vec![data.join("test_2016_flickr"), data.join("test_2017_flickr")],
        filter: PairFilter { max_length: Some(175), max_ratio: None },
        ..PairBuild::new(
            ["de", "en"],
            vec![data.join("train")],
            TokenizerChoice::Train(training),
            output.clone(),
        )
    };
    let begun = Instant::now();
    let info = build_pairs(&build, &()).unwrap();
    let build_seconds = begun.elapsed().as_secs_f64();
    // The published numbers of pairs.
    for (split, pairs) in [(Split::Train, 29_000), (Split::Valid, 1_014), (Split::Test, 2_000)] {
        let found = &info.splits[&split];
        assert_eq!((found.documents, found.sentences, found.unknown), (pairs, 2 * pairs, 0));
        assert_eq!(found.pairs.as_ref().unwrap().kept, pairs);
    }
    let begun = Instant::now();
    let corpus = Corpus::open(&output).unwrap();
    let pairs = SentencePairs::open(&corpus, Split::Train).unwrap();
    let open_seconds = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    let batches = TokenBatches::new(&pairs, BatchBudget { tokens: 4096, sentences: 0 }, 1).unwrap();
    let group_seconds = begun.elapsed().as_secs_f64();
    let rows: usize = (0..batches.len() as u64).map(|place| batches.at(place).len()).sum();
    assert_eq!(rows, 29_000);
    println!(
        "built in {build_seconds:.2} s, opened in {open_seconds:.4} s, {} batches in {group_seconds:.4} s",
        batches.len()
    );
    // Line 1,007 of the first file of the test split, and line 7 of the second.
    let tokenizer = corpus.tokenizer().unwrap();
    let test = SentencePairs::open(&corpus, Split::Test).unwrap();
    for (place, file, line) in [(6, "test_2016_flickr.en.gz", 7), (1_006, "test_2017_flickr.en.gz", 7)] {
        let text =
            BufReader::new(open_text(&data.join(file)).unwrap()).lines().nth(line - 1).unwrap().unwrap();
        let ids = test.get(place).unwrap().target;
        assert_eq!(tokenizer.decode_signed(&ids[..ids.len() - 1]), text);
        let lines = Sentences::open(&data.join(file)).unwrap();
        let same = lines.map(Result::unwrap).find(|sentence| sentence.line == line as u64);
        assert_eq!(same.unwrap().text, text);
    }
}
