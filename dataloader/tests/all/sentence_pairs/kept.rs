use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;

use proptest::prelude::*;
use segue_dataloader::{
    BuildObserver, Corpus, CorpusInfo, FaultyPairs, PairBuild, PairCounts, PairFilter, Split,
    TokenizerChoice, build_pairs,
};
use segue_tokenizer::{Tokenizer, TokenizerKind, TrainOptions};

use super::{files, gzip, options, pairs};
use crate::scratch::tree;

fn counts(info: &CorpusInfo, split: Split) -> PairCounts {
    info.splits[&split].pairs.clone().unwrap()
}

fn faulty(count: u64, first: &[u64]) -> FaultyPairs {
    FaultyPairs { count, first: first.into() }
}

/// Collects the notes of a build.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl BuildObserver for Notes {
    fn note(&self, message: &str) {
        self.0.lock().unwrap().push(message.into());
    }
}

/// A sentence of so many words, the last of which is `mark`.
fn sentence(words: usize, mark: &str) -> String {
    let mut all = vec!["a"; words - 1];
    all.push(mark);
    all.join(" ")
}

/// Row S28. What is longer than 6 words or more than 1.5 times as long as its partner is marked `no`.
#[test]
fn the_filter_keeps_exactly_the_marked_pairs() {
    let lengths =
        [(6, 6), (7, 6), (6, 7), (3, 2), (2, 3), (4, 2), (2, 4), (1, 1), (2, 1), (7, 1), (6, 4), (5, 3)];
    let keeps = |(source, target): (usize, usize)| {
        source.max(target) <= 6 && source.max(target) * 2 <= 3 * source.min(target)
    };
    let mut text = [String::new(), String::new()];
    for pair in lengths {
        let mark = if keeps(pair) { "yes" } else { "no" };
        text[0] += &(sentence(pair.0, mark) + "\n");
        text[1] += &(sentence(pair.1, mark) + "\n");
    }
    // Lines 13 to 15.
    text[0] += "\nno\n \u{A0}\n";
    text[1] += "no\n\t\n\n";
    let folder = files(&text[0], &text[1]);
    let filter = PairFilter { max_length: Some(6), max_ratio: Some(1.5) };
    let notes = Notes::default();
    // Whatever is dropped from the train split stays in the others.
    let test = vec![folder.path().join("train")];
    let build = PairBuild { filter, test, ..options(folder.path()) };
    let info = build_pairs(&build, &notes).unwrap();
    let kept = pairs(folder.path(), Split::Train);
    assert_eq!(kept.len(), lengths.into_iter().filter(|pair| keeps(*pair)).count());
    assert!(kept.iter().all(|(source, target)| source.ends_with("yes") && target.ends_with("yes")));
    let expected = PairCounts {
        read: 15,
        kept: 5,
        empty_source: faulty(2, &[13, 15]),
        empty_target: faulty(1, &[14]),
        too_long: faulty(3, &[2, 3, 10]),
        ratio: faulty(4, &[6, 7, 9, 12]),
    };
    assert_eq!(counts(&info, Split::Train), expected);
    assert_eq!(pairs(folder.path(), Split::Test).len(), 15);
    let of_test = counts(&info, Split::Test);
    assert_eq!((of_test.read, of_test.kept, of_test.empty_source), (15, 15, faulty(2, &[13, 15])));
    // They can be read again.
    assert_eq!(Corpus::open(&build.output).unwrap().info(), &info);
    let notes = notes.0.into_inner().unwrap();
    let file = folder.path().join("train.de").display().to_string();
    assert_eq!(notes[0], format!("train: dropped 2 pairs with an empty source: {file}:13, {file}:15"));
    assert_eq!(
        notes[2],
        format!("train: dropped 3 pairs with a side of more than 6 tokens: {file}:2, {file}:3, {file}:10")
    );
    assert!(notes[3].contains("one side more than 1.5 times as long as the other"), "{notes:?}");
    assert!(notes[4].starts_with("test: kept 2 pairs with an empty source"), "{notes:?}");
}

#[test]
fn no_more_than_five_places_are_told() {
    let folder = files("\n".repeat(9) + "x\n", "y\n".repeat(10));
    let notes = Notes::default();
    let info = build_pairs(&options(folder.path()), &notes).unwrap();
    assert_eq!(counts(&info, Split::Train).empty_source, faulty(9, &[1, 2, 3, 4, 5]));
    let notes = notes.0.into_inner().unwrap().join("\n");
    assert!(
        notes.contains("dropped 9 pairs with an empty source: first ") && notes.ends_with("train.de:5"),
        "{notes}"
    );
}

fn numbered(name: &str, lines: std::ops::Range<usize>) -> String {
    lines.map(|line| format!("{name}{line}\n")).collect()
}

/// Row S28.
#[test]
fn every_23rd_pair_is_validated_on_and_no_pair_is_in_two_splits() {
    let folder = files(numbered("d", 1..101), numbered("e", 1..101));
    let build = PairBuild { valid_every: Some(23), ..options(folder.path()) };
    let info = build_pairs(&build, &()).unwrap();
    let pair = |n: usize| (format!("d{n}"), format!("e{n}"));
    let (valid, train): (Vec<usize>, Vec<usize>) = (1..101).partition(|n| n % 23 == 0);
    assert_eq!(valid, [23, 46, 69, 92]);
    // The tokenizer has seen the train split alone.
    let unknown = |_: usize| (String::from("<unk>"), String::from("<unk>"));
    assert_eq!(pairs(folder.path(), Split::Valid), valid.into_iter().map(unknown).collect::<Vec<_>>());
    assert_eq!(pairs(folder.path(), Split::Train), train.into_iter().map(pair).collect::<Vec<_>>());
    assert_eq!((counts(&info, Split::Train).read, counts(&info, Split::Valid).read), (96, 4));
}

/// Row S28. One table serves both languages, trained on both.
#[test]
fn both_sides_share_one_vocabulary() {
    let folder = files("das Haus ist rot\n", "the house is red is\n");
    let info = build_pairs(&options(folder.path()), &()).unwrap();
    let tokenizer = Tokenizer::load(&folder.path().join("corpus/tokenizer")).unwrap();
    for word in ["das", "Haus", "house", "red"] {
        assert!(tokenizer.token_id(word).is_some(), "{word}");
    }
    // `is` and `ist` by how often they occur on both sides together.
    assert_eq!((tokenizer.token_id("is"), tokenizer.token_id("das")), (Some(1), Some(2)));
    assert_eq!(info.splits[&Split::Train].unknown, 0);
    let sides = info.pairs.unwrap();
    assert_eq!((sides.source.as_str(), sides.target.as_str(), sides.lower_case), ("de", "en", false));
}

#[test]
fn several_prefixes_are_read_one_after_the_other_packed_or_not() {
    let folder = files("eins\n", "one\n");
    let path = |name: &str| folder.path().join(name);
    fs::write(path("b.de.gz"), gzip("zwei\r\ndrei")).unwrap();
    fs::write(path("b.en.zst"), zstd::encode_all(&b"two\nthree\n"[..], 1).unwrap()).unwrap();
    fs::write(path("c.de"), "\u{FEFF}vier\n").unwrap();
    fs::write(path("c.en"), "four").unwrap();
    let records = "{\"de\": \"f\\u00fcnf\", \"en\": \"five\"}\n\n{\"translation\": {\"en\": \"six\", \"de\": \"sechs\"}, \"id\": 1}\n";
    fs::write(path("d.jsonl.gz"), gzip(records)).unwrap();
    let train = ["train", "b", "c", "d.jsonl.gz"].map(path).to_vec();
    let info = build_pairs(&PairBuild { train, ..options(folder.path()) }, &()).unwrap();
    let expected = [
        ("eins", "one"),
        ("zwei", "two"),
        ("drei", "three"),
        ("vier", "four"),
        ("fünf", "five"),
        ("sechs", "six"),
    ];
    assert_eq!(pairs(folder.path(), Split::Train), expected.map(|(a, b)| (a.to_string(), b.to_string())));
    let split = &info.splits[&Split::Train];
    let text: String = expected.map(|(a, b)| format!("{a}\n{b}\n")).concat();
    assert_eq!((split.bytes, split.chars), (text.len() as u64, text.chars().count() as u64));
}

#[test]
fn lower_case_is_that_of_the_text_and_of_a_tokenizer_that_is_trained() {
    let folder = files("Das ÄHRE\n", "The EAR\n");
    let lower = |build: PairBuild| build_pairs(&PairBuild { lower_case: true, ..build }, &()).unwrap();
    let info = lower(options(folder.path()));
    let expected = [("das ähre".to_string(), "the ear".to_string())];
    assert_eq!(pairs(folder.path(), Split::Train), expected);
    assert!(info.pairs.unwrap().lower_case);
    let trained = Tokenizer::load(&folder.path().join("corpus/tokenizer")).unwrap();
    let mut ids = Vec::new();
    trained.encode("DAS", &mut ids);
    assert_eq!(trained.decode(&ids), "das");
    // A tokenizer that is given stays as it is.
    let given = {
        let folder = files("das ähre\n", "the ear\n");
        build_pairs(&options(folder.path()), &()).unwrap();
        Tokenizer::load(&folder.path().join("corpus/tokenizer")).unwrap()
    };
    fs::remove_dir_all(folder.path().join("corpus")).unwrap();
    let info =
        lower(PairBuild { tokenizer: TokenizerChoice::Given(given.clone()), ..options(folder.path()) });
    assert_eq!(
        (pairs(folder.path(), Split::Train), info.splits[&Split::Train].unknown),
        (expected.into(), 0)
    );
    assert_eq!(info.tokenizer.fingerprint, given.fingerprint());
}

/// More pairs than a chunk holds, and shards that are small.
#[test]
fn the_corpus_does_not_depend_on_the_number_of_workers() {
    let lines = |name: &str| numbered(name, 0..60_000);
    let folder = files(lines("d"), lines("e"));
    let options = |workers, name: &str| {
        let mut training = TrainOptions::new(TokenizerKind::Bpe);
        training.vocab_size = Some(300);
        let (tokenizer, output) = (TokenizerChoice::Train(training), folder.path().join(name));
        PairBuild { workers, tokenizer, output, shard_tokens: 50_000, ..options(folder.path()) }
    };
    let info = build_pairs(&options(1, "corpus"), &()).unwrap();
    build_pairs(&options(4, "other"), &()).unwrap();
    assert_eq!(tree(&folder.path().join("corpus")), tree(&folder.path().join("other")));
    assert!(info.splits[&Split::Train].shards.len() > 2);
    assert!(Corpus::open(&folder.path().join("corpus")).unwrap().verify(&mut |_, _| {}).unwrap().ok);
    let all = pairs(folder.path(), Split::Train);
    assert!(
        all.iter()
            .enumerate()
            .all(|(n, (source, target))| *source == format!("d{n}") && *target == format!("e{n}"))
    );
}

/// The lines of one side with their ends: `\n` or `\r\n` after each, or none after the last.
fn ended(lines: &[String], crlf: &[bool], last: bool) -> String {
    let end = |n: usize| if crlf[n % crlf.len()] { "\r\n" } else { "\n" };
    let mut text: String = lines.iter().enumerate().map(|(n, line)| format!("{line}{}", end(n))).collect();
    if !last && lines.last().is_some_and(|line| !line.is_empty()) {
        text.truncate(text.trim_end_matches(['\r', '\n']).len());
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Row S28. Pairs come back in order whatever ends their lines and however their files are packed.
    #[test]
    fn pairs_come_back_in_order(
        lines in prop::collection::vec(("[ab]{0,2}", "[cd]{0,2}"), 1..30), crlf in prop::collection::vec(any::<bool>(), 2..5),
        last: [bool; 2], packed: [bool; 2],
    ) {
        let folder = tempfile::tempdir().unwrap();
        // At least one pair holds text.
        let lines: Vec<(String, String)> = lines.into_iter().chain([("x".into(), "y".into())]).collect();
        let sides: [Vec<String>; 2] = [lines.iter().map(|l| l.0.clone()).collect(), lines.iter().map(|l| l.1.clone()).collect()];
        for (side, name) in ["de", "en"].into_iter().enumerate() {
            let text = ended(&sides[side], &crlf[side..], last[side]);
            let file = |end: &str| -> PathBuf { folder.path().join(format!("train.{name}{end}")) };
            match packed[side] {
                true => fs::write(file(".gz"), gzip(text)).unwrap(),
                false => fs::write(file(""), text).unwrap(),
            }
        }
        let test = vec![folder.path().join("train")];
        build_pairs(&PairBuild { test, ..options(folder.path()) }, &()).unwrap();
        let known = |pair: &&(String, String)| !pair.0.is_empty() && !pair.1.is_empty();
        prop_assert_eq!(pairs(folder.path(), Split::Train), lines.iter().filter(known).cloned().collect::<Vec<_>>());
        prop_assert_eq!(pairs(folder.path(), Split::Test).len(), lines.len());
    }
}
