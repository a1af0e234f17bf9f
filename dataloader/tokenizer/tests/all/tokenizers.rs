//! Tokenizers: training, files, and the ids that other programs give.

use crate::scratch;

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use scratch::{sample_text, train};
use segue_tokenizer::{EOS, Tokenizer, TokenizerKind, TrainOptions, UNK};

fn sized(kind: TokenizerKind, vocab_size: usize) -> TrainOptions {
    TrainOptions { vocab_size: Some(vocab_size), ..TrainOptions::new(kind) }
}

fn encode(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    let mut ids = Vec::new();
    tokenizer.encode(text, &mut ids);
    ids
}

fn words_of(tokenizer: &Tokenizer) -> Vec<String> {
    (0..tokenizer.vocab_size() as u32).map(|id| tokenizer.token(id).unwrap()).collect()
}

#[test]
fn word_vocabularies_are_sorted_as_the_reference_sorts_them() {
    // Counts c 3, b 2, <unk> 2, a 1, d 1: equal counts in the order of first appearance, <eos> first of all.
    let text = "b c a\nc <unk> b\nd c <unk>\n";
    let all = train(text, &TrainOptions::new(TokenizerKind::Word));
    assert_eq!(words_of(&all), [EOS, "c", "b", UNK, "a", "d"]);
    assert_eq!((all.eos_id(), all.unk_id()), (Some(0), Some(3)));
    // What is left out counts for <unk>.
    let frequent = TrainOptions { min_frequency: Some(2), ..TrainOptions::new(TokenizerKind::Word) };
    assert_eq!(words_of(&train(text, &frequent)), [EOS, UNK, "c", "b"]);
    assert_eq!(words_of(&train(text, &sized(TokenizerKind::Word, 3))), [EOS, UNK, "c"]);
    // Text without <unk> still has an id for what it lacks: the last.
    assert_eq!(words_of(&train("x y x", &TrainOptions::new(TokenizerKind::Word))), [EOS, "x", "y", UNK]);
    let special =
        TrainOptions { special_tokens: vec!["<mask>".into()], ..TrainOptions::new(TokenizerKind::Word) };
    assert_eq!(words_of(&train("x", &special)), [EOS, "<mask>", "x", UNK]);
}

#[test]
fn lower_case_is_learned_and_kept() {
    for kind in [TokenizerKind::Word, TokenizerKind::Char, TokenizerKind::Bpe] {
        let vocab_size = (kind == TokenizerKind::Bpe).then_some(300);
        let options = TrainOptions { lower_case: true, vocab_size, ..TrainOptions::new(kind) };
        let tokenizer = train("The the THE ÉTÉ\n", &options);
        assert_eq!(encode(&tokenizer, "THE ÉTÉ"), encode(&tokenizer, "the été"), "{kind}");
        let unknown = tokenizer.unk_id();
        assert!(encode(&tokenizer, "THE ÉTÉ").iter().all(|id| Some(*id) != unknown), "{kind}");
        let folder = tempfile::tempdir().unwrap();
        tokenizer.save(folder.path()).unwrap();
        let loaded = Tokenizer::load(folder.path()).unwrap();
        assert_eq!(encode(&loaded, "THE"), encode(&tokenizer, "the"), "{kind}");
    }
}

#[test]
fn subwords_know_every_byte() {
    let text = "naïve \u{1F980}\u{0301} \t\n\n  中文 \u{0} ﷽ end  ";
    for kind in [TokenizerKind::Bpe, TokenizerKind::Unigram] {
        let tokenizer = train(&sample_text(500), &sized(kind, 400));
        assert_eq!(tokenizer.decode(&encode(&tokenizer, text)), text, "{kind}");
        assert_eq!(tokenizer.unk_id(), None, "{kind}");
        assert_eq!(tokenizer.token(tokenizer.eos_id().unwrap()).unwrap(), EOS, "{kind}");
    }
}

#[test]
fn raw_bytes_go_through_a_byte_tokenizer() {
    let (tokenizer, mut ids) = (Tokenizer::bytes(), Vec::new());
    tokenizer.encode_bytes(&[0xFF, 0, 0xC3], &mut ids).unwrap();
    assert_eq!(ids, [0xFF, 0, 0xC3]);
    assert_eq!(tokenizer.decode_bytes(&ids), [0xFF, 0, 0xC3]);
    let words = train("a b", &TrainOptions::new(TokenizerKind::Word));
    assert_eq!(words.encode_bytes(&[b'a', 0xFF], &mut ids).unwrap_err().exit_code(), 65);
}

/// The same `tokenizer.json` in the `tokenizers` crate.
fn reference(
    tokenizer: &Tokenizer,
    change: impl Fn(&mut serde_json::Value),
) -> (Tokenizer, tokenizers::Tokenizer) {
    let folder = tempfile::tempdir().unwrap();
    tokenizer.save(folder.path()).unwrap();
    let path = folder.path().join("tokenizer.json");
    let mut json: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut json);
    fs::write(&path, serde_json::to_vec(&json).unwrap()).unwrap();
    (Tokenizer::import(&path).unwrap(), tokenizers::Tokenizer::from_file(&path).unwrap())
}

fn assert_equal_ids(ours: &Tokenizer, theirs: &tokenizers::Tokenizer, text: &str) {
    let expected = theirs.encode(text, false).unwrap();
    assert_eq!(encode(ours, text), expected.get_ids(), "{text:?}");
}

const HARD_TEXTS: [&str; 8] = [
    "",
    " ",
    "it's <eos>the<eos><eos> end<eo",
    "  the\n\n lobster's\tocean \u{a0}it",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "Ünïcode中文 1998,1998 lobsterlobsterlobsterlobster",
    "\u{0}\u{7f}\u{80}\u{10FFFF}",
    "<eos>",
];

#[test]
fn fast_bpe_gives_the_ids_of_the_tokenizers_crate() {
    let tokenizer = train(&sample_text(3000), &sized(TokenizerKind::Bpe, 600));
    type Change = fn(&mut serde_json::Value);
    let variants: [(&str, Change); 5] = [
        ("as trained", |_| {}),
        ("prefix space", |json| json["pre_tokenizer"]["add_prefix_space"] = true.into()),
        ("whole words first", |json| json["model"]["ignore_merges"] = true.into()),
        ("normalised", |json| json["normalizer"] = serde_json::json!({ "type": "NFKC" })),
        ("greedy added token", |json| json["added_tokens"][0]["rstrip"] = true.into()),
    ];
    for (name, change) in variants {
        let (ours, theirs) = reference(&tokenizer, change);
        println!("{name}");
        for text in HARD_TEXTS {
            assert_equal_ids(&ours, &theirs, text);
        }
        assert_equal_ids(&ours, &theirs, &sample_text(300));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn fast_bpe_gives_the_ids_of_the_tokenizers_crate_on_any_text(
        texts in proptest::collection::vec("[ \n'a-eost<>é中]{0,60}|\\PC{0,30}", 8),
    ) {
        thread_local! {
            static PAIR: (Tokenizer, tokenizers::Tokenizer) =
                reference(&train(&"it's cost case test best toast <eos> eaten stated ".repeat(50),
                                 &sized(TokenizerKind::Bpe, 330)), |_| {});
        }
        PAIR.with(|(ours, theirs)| texts.iter().for_each(|text| assert_equal_ids(ours, theirs, text)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// A sigma at the end of a word has a lower-case form of its own, which characters that stand alone do not show.
    #[test]
    fn characters_know_all_that_they_were_trained_on(text in "[ΣσςİAa .\n]{1,20}|\\PC{1,30}") {
        for lower_case in [false, true] {
            let options = TrainOptions { lower_case, ..TrainOptions::new(TokenizerKind::Char) };
            let tokenizer = train(&text, &options);
            prop_assert!(!encode(&tokenizer, &text).contains(&tokenizer.unk_id().unwrap()), "{lower_case}");
        }
    }
}

#[test]
fn imported_files_are_told_by_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("vocab.txt"), "the 10\ncat\t3\n<unk>\n").unwrap();
    let words = Tokenizer::import(&path("vocab.txt")).unwrap();
    assert_eq!(words_of(&words), ["the", "cat", UNK, EOS]);
    assert_eq!(encode(&words, "cat dog"), [1, 2]);

    let refused = |name: &str, content: &[u8], part: &str| {
        fs::write(path(name), content).unwrap();
        let error = Tokenizer::import(&path(name)).unwrap_err();
        assert_eq!(error.exit_code(), 65);
        assert!(error.to_string().contains(part), "`{part}` is not in: {error}");
        assert!(error.to_string().contains(name), "{error}");
    };
    refused("double.txt", b"a\nb\na\n", "entries 1 and 3");
    refused("gap.txt", b"a\n\nb\n", "line 2 is empty");
    refused("latin1.txt", b"caf\xe9\n", "byte 3");
    refused("none.txt", b"", "empty");
    refused("broken.json", b"{\"model\": 3}", "Model");
    refused("broken.model", b"\xff\xff", "not a SentencePiece model");
    assert_eq!(Tokenizer::import(&path("missing.json")).unwrap_err().exit_code(), 66);
    assert_eq!(Tokenizer::load(Path::new("/nonexistent")).unwrap_err().exit_code(), 66);
}

#[test]
fn an_altered_tokenizer_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    train("a b c", &TrainOptions::new(TokenizerKind::Word)).save(folder.path()).unwrap();
    let vocabulary = folder.path().join("vocab.txt");
    fs::write(&vocabulary, "<eos>\na\nc\nb\n<unk>\n").unwrap();
    let error = Tokenizer::load(folder.path()).unwrap_err();
    assert!(error.to_string().contains("does not match the hash"), "{error}");
}
