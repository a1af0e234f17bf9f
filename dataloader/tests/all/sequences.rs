//! What other programs find beside a fine-tuned model: a `tokenizer.json` that lays texts out as they were in training.

use crate::scratch;

use std::fs;
use std::path::Path;

use scratch::text::sample_text;
use segue_dataloader::{Preset, TrainingText, train_tokenizer};
use segue_tasks::Template;
use segue_tokenizer::{TOKENIZER_FILE, Tokenizer, TokenizerKind, TrainOptions};
use serde_json::{Value, json};

/// Tokens of the longest sequence: more than the texts below have.
const LONGEST: usize = 4000;
const TEXTS: [&str; 6] = [
    "the lane reads segments of memory",
    "  a \u{a0} café,\tand 2,000 more.\n",
    "THE PAST IS CARRIED ON",
    "",
    "x",
    "日本語 \u{1f600} ünknown",
];

fn train(kind: TokenizerKind, special: &[&str], lower_case: bool) -> Tokenizer {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("text");
    fs::write(&input, sample_text(400)).unwrap();
    let special_tokens = special.iter().map(|token| token.to_string()).collect();
    let vocab_size = matches!(kind, TokenizerKind::Bpe | TokenizerKind::Unigram).then_some(400);
    let options = TrainOptions { special_tokens, lower_case, vocab_size, ..TrainOptions::new(kind) };
    train_tokenizer(&TrainingText::new(Preset::Documents, vec![input]), &options, 1, &()).unwrap()
}

/// A tokenizer of another make, which cuts, fills up and puts its own tokens around texts.
fn foreign(folder: &Path) -> Tokenizer {
    let words = ["<eos>", "[UNK]", "the", "lane", "reads", "x", "[CLS]", "[SEP]"];
    let vocabulary: Value =
        words.iter().enumerate().map(|(id, word)| (word.to_string(), json!(id))).collect();
    let json = json!({
        "version": "1.0",
        "truncation": { "direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0 },
        "padding": { "strategy": { "Fixed": 9 }, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
                     "pad_type_id": 0, "pad_token": "<eos>" },
        "added_tokens": [],
        "normalizer": { "type": "Lowercase" },
        "pre_tokenizer": { "type": "WhitespaceSplit" },
        "post_processor": { "type": "BertProcessing", "sep": ["[SEP]", 7], "cls": ["[CLS]", 6] },
        "decoder": null,
        "model": { "type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]" },
    });
    let path = folder.join("foreign.json");
    fs::write(&path, json.to_string()).unwrap();
    Tokenizer::import(&path).unwrap()
}

/// A SentencePiece model of a few pieces, without XLNet's tokens.
fn sentence_piece(folder: &Path) -> Tokenizer {
    let piece = |text: &str, score: f32, kind: u8| {
        let mut body = vec![0x0A, text.len() as u8];
        body.extend(text.as_bytes());
        body.push(0x15);
        body.extend(score.to_le_bytes());
        body.extend([0x18, kind]);
        [&[0x0A, body.len() as u8][..], &body].concat()
    };
    let pieces = [
        piece("<unk>", 0.0, 2),
        piece("<eos>", 0.0, 3),
        piece("▁the", -1.0, 1),
        piece("▁", -2.0, 1),
        piece("e", -3.0, 1),
        piece("lan", -3.5, 1),
        piece("r", -4.0, 1),
        piece("2,", -1.5, 1),
        piece("a", -4.5, 1),
        piece("000", -4.5, 1),
    ];
    let path = folder.join("small.model");
    fs::write(&path, pieces.concat()).unwrap();
    Tokenizer::import(&path).unwrap()
}

fn all_kinds(folder: &Path) -> Vec<(&'static str, Tokenizer)> {
    use TokenizerKind::{Bpe, Char, Unigram, Word};
    vec![
        ("bpe", train(Bpe, &["<cls>", "<sep>", "<pad>"], false)),
        ("bpe without symbols, in lower case", train(Bpe, &[], true)),
        ("unigram", train(Unigram, &["<cls>", "<sep>"], false)),
        ("words", train(Word, &["<cls>", "<sep>", "<pad>"], false)),
        ("words in lower case", train(Word, &[], true)),
        ("characters", train(Char, &["<cls>", "<sep>"], false)),
        ("characters in lower case", train(Char, &[], true)),
        ("foreign", foreign(folder)),
        ("SentencePiece", sentence_piece(folder)),
    ]
}

#[test]
fn the_public_library_lays_texts_out_as_a_task_does() {
    let folder = tempfile::tempdir().unwrap();
    for (name, tokenizer) in all_kinds(folder.path()) {
        let dir = folder.path().join(name);
        tokenizer.for_sequences(Some(LONGEST)).unwrap().save(&dir).unwrap();
        let theirs = tokenizers::Tokenizer::from_file(dir.join("tokenizer.json")).unwrap();
        let template = Template::new(&tokenizer, LONGEST).unwrap();
        let encode = |text: &str| {
            let mut ids = Vec::new();
            tokenizer.encode(text, &mut ids);
            ids
        };
        let agree = |found: tokenizers::Encoding, expected: segue_tasks::Sequence, text: &str| {
            let segments: Vec<u32> = expected.segments.iter().map(|segment| u32::from(*segment)).collect();
            assert_eq!(
                (found.get_ids(), found.get_type_ids()),
                (&expected.ids[..], &segments[..]),
                "{name}: {text:?}"
            );
        };
        for text in TEXTS {
            agree(theirs.encode(text, true).unwrap(), template.single(&encode(text)), text);
            let other = TEXTS[0];
            let pair = template.pair(&encode(text), &encode(other));
            agree(theirs.encode((text, other), true).unwrap(), pair, text);
        }
    }
}

#[test]
fn the_folder_is_still_the_same_tokenizer_here() {
    let folder = tempfile::tempdir().unwrap();
    for (name, tokenizer) in all_kinds(folder.path()) {
        let dir = folder.path().join(name);
        tokenizer.for_sequences(Some(LONGEST)).unwrap().save(&dir).unwrap();
        let loaded = Tokenizer::load(&dir).unwrap();
        assert_eq!(loaded.fingerprint(), tokenizer.fingerprint(), "{name}");
        let ids = |tokenizer: &Tokenizer| {
            let mut ids = Vec::new();
            TEXTS.iter().for_each(|text| tokenizer.encode(text, &mut ids));
            ids
        };
        assert_eq!(ids(&loaded), ids(&tokenizer), "{name}");
        // Saved as it was loaded, it is what it was before.
        let again = folder.path().join(format!("{name} again"));
        loaded.save(&again).unwrap();
        assert!(!again.join("tokenizer.original.json").exists(), "{name}");
        assert_eq!(Tokenizer::load(&again).unwrap().fingerprint(), tokenizer.fingerprint(), "{name}");
    }
    let damaged = folder.path().join("bpe/tokenizer.original.json");
    fs::write(&damaged, fs::read(folder.path().join("bpe/tokenizer.json")).unwrap()).unwrap();
    let error = Tokenizer::load(&folder.path().join("bpe")).unwrap_err();
    assert!(error.exit_code() == 65 && error.to_string().contains("tokenizer.original.json"), "{error}");
}

#[test]
fn the_description_names_class_tokens_and_side() {
    let folder = tempfile::tempdir().unwrap();
    for (name, tokenizer) in all_kinds(folder.path()) {
        let dir = folder.path().join(name);
        tokenizer.for_sequences(Some(77)).unwrap().save(&dir).unwrap();
        let config: Value =
            serde_json::from_slice(&fs::read(dir.join("tokenizer_config.json")).unwrap()).unwrap();
        let has = |token: &str| tokenizer.token_id(token).is_some();
        let or_eos = |token: &'static str| if has(token) { token } else { "<eos>" };
        let pad = if has("<pad>") { "<pad>" } else { or_eos("<sep>") };
        assert_eq!(config["tokenizer_class"], "PreTrainedTokenizerFast", "{name}");
        assert_eq!(
            (&config["padding_side"], &config["pad_token_type_id"]),
            (&json!("left"), &json!(3)),
            "{name}"
        );
        let tokens = [&config["sep_token"], &config["cls_token"], &config["pad_token"]];
        assert_eq!(tokens, [or_eos("<sep>"), or_eos("<cls>"), pad], "{name}");
        assert_eq!(
            (&config["eos_token"], &config["model_max_length"]),
            (&json!("<eos>"), &json!(77)),
            "{name}"
        );
        // The manifest is there last, as a sign that all is.
        assert!(dir.join(TOKENIZER_FILE).is_file());
    }
}

#[test]
fn bytes_have_no_such_files() {
    assert!(Tokenizer::bytes().for_sequences(None).is_none());
}
