//! Tokenizers trained on files, and how fast they are.

use crate::scratch;

use std::fs;

use scratch::text::sample_text;
use segue_dataloader::{Preset, TrainingText, bench_encode, train_tokenizer};
use segue_tokenizer::{Tokenizer, TokenizerKind, TrainOptions};

fn train(text: &str, options: &TrainOptions) -> Tokenizer {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("text");
    fs::write(&input, text).unwrap();
    train_tokenizer(&TrainingText::new(Preset::Documents, vec![input]), options, 2, &()).unwrap()
}

fn sized(kind: TokenizerKind, vocab_size: usize) -> TrainOptions {
    TrainOptions { vocab_size: Some(vocab_size), ..TrainOptions::new(kind) }
}

fn encode(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    let mut ids = Vec::new();
    tokenizer.encode(text, &mut ids);
    ids
}

#[test]
fn every_kind_survives_saving_and_training_depends_on_the_text_alone() {
    let text = sample_text(3000);
    for kind in TokenizerKind::TRAINABLE {
        let subword = matches!(kind, TokenizerKind::Bpe | TokenizerKind::Unigram);
        let options = if subword { sized(kind, 400) } else { TrainOptions::new(kind) };
        let tokenizer = train(&text, &options);
        let folder = tempfile::tempdir().unwrap();
        tokenizer.save(folder.path()).unwrap();
        let loaded = Tokenizer::load(folder.path()).unwrap();
        assert_eq!(loaded.fingerprint(), tokenizer.fingerprint(), "{kind}");
        assert_eq!((loaded.kind(), loaded.vocab_size()), (kind, tokenizer.vocab_size()));
        assert_eq!(encode(&loaded, &text[..5000]), encode(&tokenizer, &text[..5000]), "{kind}");
        for _ in 0..3 {
            assert_eq!(train(&text, &options).fingerprint(), tokenizer.fingerprint(), "{kind}");
        }
        if kind != TokenizerKind::Byte {
            let counted_at_once = scratch::text::train(&text, &options);
            assert_eq!(counted_at_once.fingerprint(), tokenizer.fingerprint(), "{kind}");
        }
        for id in 0..tokenizer.vocab_size() as u32 {
            let token = tokenizer.token(id).unwrap();
            assert!(
                kind == TokenizerKind::Byte || tokenizer.token_id(&token) == Some(id),
                "{kind} {token:?}"
            );
        }
    }
}

#[test]
fn options_that_a_kind_cannot_have_are_refused() {
    let refused = |options: TrainOptions| {
        let folder = tempfile::tempdir().unwrap();
        let input = folder.path().join("text");
        fs::write(&input, "a b").unwrap();
        train_tokenizer(&TrainingText::new(Preset::Documents, vec![input]), &options, 1, &())
            .unwrap_err()
            .exit_code()
    };
    assert_eq!(refused(sized(TokenizerKind::Byte, 100)), 64);
    assert_eq!(refused(sized(TokenizerKind::Bpe, 100)), 64);
    assert_eq!(refused(sized(TokenizerKind::Word, 1)), 64);
    assert_eq!(refused(TrainOptions::new(TokenizerKind::SentencePiece)), 64);
    let two_words =
        TrainOptions { special_tokens: vec!["a b".into()], ..TrainOptions::new(TokenizerKind::Word) };
    assert_eq!(refused(two_words), 64);
}

/// Before any text is read.
#[test]
fn special_tokens_that_are_there_already_are_refused() {
    use TokenizerKind::{Bpe, Char, Unigram, Word};
    let refused = |kind, tokens: &[&str]| {
        let special_tokens = tokens.iter().map(|token| token.to_string()).collect();
        let error = TrainOptions { special_tokens, ..TrainOptions::new(kind) }.check().unwrap_err();
        assert_eq!(error.exit_code(), 64, "{error}");
        error.to_string()
    };
    for kind in [Bpe, Char, Unigram, Word] {
        assert_eq!(
            refused(kind, &["<cls>", "<sep>", "<cls>"]),
            "the special token `<cls>` occurs twice",
            "{kind}"
        );
        assert!(refused(kind, &["<eos>"]).contains("one word other than <eos>"), "{kind}");
    }
    for kind in [Char, Word] {
        assert!(refused(kind, &["<unk>"]).ends_with("one word other than <eos> and <unk>"), "{kind}");
    }
    // Byte-level kinds know everything, so that `<unk>` is a token like any other.
    for kind in [Bpe, Unigram] {
        let special_tokens = vec!["<unk>".to_string()];
        TrainOptions { special_tokens, ..TrainOptions::new(kind) }.check().unwrap();
    }
}

/// The reference counts Penn Treebank and WikiText-2 over all splits, one after the other, with Python's `Counter`.
#[test]
fn words_of_all_splits_have_the_ids_of_the_reference() {
    let folder = tempfile::tempdir().unwrap();
    let inputs =
        [("train", "b a <unk>\na\n"), ("valid", "c b c\n"), ("test", "c d b\n")].map(|(name, text)| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            path
        });
    let words = |inputs: &[std::path::PathBuf]| {
        let text = TrainingText::new(Preset::WikiText, inputs.to_vec());
        let tokenizer = train_tokenizer(&text, &TrainOptions::new(TokenizerKind::Word), 2, &()).unwrap();
        (0..tokenizer.vocab_size() as u32).filter_map(|id| tokenizer.token(id)).collect::<Vec<_>>()
    };
    assert_eq!(words(&inputs), ["<eos>", "b", "c", "a", "<unk>", "d"]);
    assert_eq!(words(&inputs[..1]), ["<eos>", "a", "b", "<unk>"]);
}

#[test]
fn speed_is_measured() {
    let text = sample_text(2000);
    let tokenizer = train(&text, &sized(TokenizerKind::Bpe, 400));
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let encoded = bench_encode(&tokenizer, &lines, 2).unwrap();
    assert!(encoded.mb_per_s > 0.0);
    let mut expected = Vec::new();
    lines.iter().for_each(|line| tokenizer.encoder().encode(line, &mut expected).unwrap());
    assert_eq!(encoded.ids.concat().concat(), expected);
    assert_eq!(bench_encode(&tokenizer, &[], 2).err().unwrap().exit_code(), 65);
}
