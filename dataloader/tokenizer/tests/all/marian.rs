//! Tokenizers of Marian models. What is expected is worked out by hand after `MarianTokenizer` of transformers 5.23; that the two give the same ids on text, a test
//! of the whole binary shows.

use std::fs;
use std::path::Path;

use segue_data_error::DataError;
use segue_tokenizer::{Counts, Tokenizer, TokenizerKind, TrainOptions, count_text, train_on_text};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::scratch::pieces::{CONTROL, Model, NORMAL, UNKNOWN};

const SPECIALS: [(&str, f32, u8); 3] =
    [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)];

fn pieces(own: &[(&str, f32, u8)]) -> Vec<u8> {
    Model::of(&[&SPECIALS, own].concat()).file()
}

/// The source knows `a` and `b`, the target `b` and `c`; `▁z` is in neither list of pieces and `▁b` of no use to the vocabulary.
fn folder() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let source = [
        ("▁", -2.0, NORMAL),
        ("▁a", -1.0, NORMAL),
        ("a", -3.0, NORMAL),
        ("▁b", -1.5, NORMAL),
        ("b", -3.0, NORMAL),
    ];
    let target = [("▁", -2.0, NORMAL), ("b", -1.0, NORMAL), ("c", -2.0, NORMAL), ("▁c", -2.5, NORMAL)];
    fs::write(dir.path().join("source.spm"), pieces(&source)).unwrap();
    fs::write(dir.path().join("target.spm"), pieces(&target)).unwrap();
    let vocabulary = ["</s>", "<unk>", "▁a", "a", "b", "▁", "c", ">>x<<", "▁c", "<pad>"];
    let listed: serde_json::Map<String, Value> =
        vocabulary.iter().enumerate().map(|(id, token)| (token.to_string(), json!(id))).collect();
    write_vocabulary(dir.path(), &Value::Object(listed));
    dir
}

fn write_vocabulary(dir: &Path, vocabulary: &Value) {
    fs::write(dir.join("vocab.json"), vocabulary.to_string()).unwrap();
}

fn vocabulary(dir: &Path) -> Value {
    serde_json::from_slice(&fs::read(dir.join("vocab.json")).unwrap()).unwrap()
}

fn encode(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    let mut ids = Vec::new();
    tokenizer.encode(text, &mut ids);
    ids
}

fn encode_target(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    let mut ids = Vec::new();
    tokenizer.encoder().encode_target(text, &mut ids).unwrap();
    ids
}

#[test]
fn each_side_is_cut_by_its_own_model_and_both_have_the_ids_of_the_vocabulary() {
    let dir = folder();
    let tokenizer = Tokenizer::load(dir.path()).unwrap();
    assert_eq!((tokenizer.kind(), tokenizer.vocab_size()), (TokenizerKind::Marian, 10));
    let symbols = [tokenizer.eos_id(), tokenizer.unk_id(), tokenizer.pad_id()];
    assert_eq!(symbols, [Some(0), Some(1), Some(9)]);
    // `▁b` is a piece of the source and not in the vocabulary.
    assert_eq!(encode(&tokenizer, "a b aab"), [2, 1, 2, 3, 4]);
    // Unknown to the source's pieces, but a token of the vocabulary; `cc` is a run of them, and none.
    assert_eq!(encode(&tokenizer, "ac acc"), [2, 6, 2, 1]);
    assert_eq!(encode_target(&tokenizer, "bc c"), [5, 4, 6, 8]);
    assert_eq!(encode_target(&tokenizer, "a"), [5, 3]);
    let notes = tokenizer.notes();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].starts_with("vocab.json lacks 1 of the 5 pieces of source.spm"), "{notes:?}");
}

#[test]
fn the_code_of_a_language_is_one_token() {
    let dir = folder();
    let tokenizer = Tokenizer::load(dir.path()).unwrap();
    assert_eq!(encode(&tokenizer, ">>x<< a"), [7, 2]);
    assert_eq!(encode(&tokenizer, ">>x<<a"), [7, 2]);
    assert_eq!(encode(&tokenizer, ">>y<< a"), [1, 2]);
    assert_eq!(encode_target(&tokenizer, ">>x<< c"), [7, 8]);
    let located = tokenizer.encode_with_offsets(">>x<< a b aab").unwrap();
    assert_eq!(located.ids, encode(&tokenizer, ">>x<< a b aab"));
    assert_eq!(located.spans, [0..5, 6..7, 8..9, 10..11, 11..12, 12..13]);
}

#[test]
fn a_translation_is_read_without_special_tokens() {
    let dir = folder();
    let tokenizer = Tokenizer::load(dir.path()).unwrap();
    assert_eq!(tokenizer.decode(&[9, 8, 4, 1, 8, 6, 0]), "cb cc");
    // A token that the target's model does not know stands for itself.
    assert_eq!(tokenizer.decode(&[2, 3, 2]), "aa a");
    assert_eq!(tokenizer.decode(&[5, 5]), "");
}

#[test]
fn it_is_saved_and_loaded_as_it_is() {
    let (dir, saved) = (folder(), tempfile::tempdir().unwrap());
    let tokenizer = Tokenizer::load(dir.path()).unwrap();
    tokenizer.save(saved.path()).unwrap();
    let loaded = Tokenizer::load(saved.path()).unwrap();
    assert_eq!(loaded.fingerprint(), tokenizer.fingerprint());
    assert_eq!(encode(&loaded, ">>x<< a b"), encode(&tokenizer, ">>x<< a b"));
    for name in ["source.spm", "target.spm", "vocab.json"] {
        let read = |dir: &TempDir| fs::read(dir.path().join(name)).unwrap();
        assert!(read(&dir) == read(&saved), "{name}");
    }
    // Both models count.
    fs::write(dir.path().join("target.spm"), pieces(&[("▁", -2.0, NORMAL)])).unwrap();
    assert_ne!(Tokenizer::load(dir.path()).unwrap().fingerprint(), tokenizer.fingerprint());
}

/// The error of a folder that `change` has spoilt.
fn refused(change: impl FnOnce(&Path)) -> DataError {
    let dir = folder();
    change(dir.path());
    Tokenizer::load(dir.path()).unwrap_err()
}

#[test]
fn a_bad_folder_is_refused_with_what_is_wrong() {
    let with = |token: &'static str, id: Value| {
        move |dir: &Path| {
            let mut changed = vocabulary(dir);
            changed[token] = id;
            write_vocabulary(dir, &changed);
        }
    };
    let without = |token: &'static str| {
        move |dir: &Path| {
            let listed = vocabulary(dir);
            let kept = listed.as_object().unwrap().keys().filter(|key| *key != token);
            write_vocabulary(dir, &kept.enumerate().map(|(id, key)| (key.clone(), json!(id))).collect());
        }
    };
    let remove = |name: &'static str| move |dir: &Path| fs::remove_file(dir.join(name)).unwrap();
    let cases: Vec<(DataError, &str)> = vec![
        (refused(remove("source.spm")), "it has no source.spm"),
        (refused(remove("target.spm")), "it has no target.spm"),
        (refused(remove("vocab.json")), "it has no vocab.json"),
        (refused(without("</s>")), "it lacks the piece `</s>`"),
        (refused(without("<unk>")), "it lacks the piece `<unk>`"),
        (refused(with("b", json!(3))), "`a` and `b` both have the id 3"),
        (refused(with("b", json!(10))), "`b` has the id 10, and the last of its ids is 9"),
        (refused(with("b", json!("x"))), "it is not an object of ids by token"),
        (refused(|dir| fs::write(dir.join("source.spm"), "x").unwrap()), "source.spm"),
        (refused(|dir| fs::write(dir.join("target_vocab.json"), "{}").unwrap()), "vocabularies of their own"),
        (
            refused(|dir| {
                fs::write(dir.join("tokenizer_config.json"), r#"{"separate_vocabs": true}"#).unwrap()
            }),
            "vocabularies of their own",
        ),
    ];
    for (error, expected) in cases {
        assert!(error.to_string().contains(expected), "{error}, expected {expected}");
    }
    let class = |dir: &Path| {
        ["source.spm", "target.spm"].iter().for_each(|name| fs::remove_file(dir.join(name)).unwrap());
        fs::write(dir.join("tokenizer_config.json"), r#"{"tokenizer_class": "MarianTokenizer"}"#).unwrap();
    };
    assert!(refused(class).to_string().contains("it has no source.spm"));
}

#[test]
fn a_sentencepiece_model_is_written_for_both_sides() {
    let dir = tempfile::tempdir().unwrap();
    let model = Model::of(
        &[&SPECIALS[..], &[("▁a", -1.0, NORMAL), ("▁", -2.0, NORMAL), ("<pad>", -9.0, NORMAL)]].concat(),
    );
    let tokenizer = model.import();
    tokenizer.for_translation(6, 512).unwrap().save(dir.path()).unwrap();
    let read = |name: &str| fs::read(dir.path().join(name)).unwrap();
    assert!(read("source.spm") == model.file() && read("target.spm") == model.file());
    // `<pad>` is a piece of the model, and another one than what fills up its batches.
    let expected = json!({ "<unk>": 0, "<s>": 1, "</s>": 2, "▁a": 3, "▁": 4, "<pad>": 5, "<pad_1>": 6 });
    assert_eq!(vocabulary(dir.path()), expected);
    let config: Value = serde_json::from_slice(&read("tokenizer_config.json")).unwrap();
    let said = ["tokenizer_class", "eos_token", "unk_token", "pad_token"].map(|key| config[key].clone());
    assert_eq!(said, ["MarianTokenizer", "</s>", "<unk>", "<pad_1>"].map(Value::from));
    assert_eq!(Tokenizer::load(dir.path()).unwrap().fingerprint(), tokenizer.fingerprint());
}

#[test]
fn a_tokenizer_that_the_package_cannot_read_for_a_translation_is_refused_by_name() {
    let why = Tokenizer::bytes().for_translation(256, 512).unwrap_err();
    assert!(why.contains("no token that ends a text"), "{why}");
    let dir = tempfile::tempdir().unwrap();
    let paths = [("codes", "#version: 0.2\na b</w>\n"), ("dict", "ab 2\n")].map(|(name, content)| {
        fs::write(dir.path().join(name), content).unwrap();
        dir.path().join(name)
    });
    let tokenizer = Tokenizer::import_subword_nmt(&paths[0], &paths[1], false).unwrap();
    let why = tokenizer.for_translation(1, 512).unwrap_err();
    assert!(why.starts_with("a tokenizer of the subword-nmt kind has no form"), "{why}");
}

/// What `AutoTokenizer` has to find: the end behind a text, padding, and characters that are put together as they are.
#[test]
fn other_kinds_are_written_as_a_tokenizer_json() {
    let mut counts = Counts::default();
    let options = TrainOptions::new(TokenizerKind::Char);
    count_text("ab ba", &options, &mut counts);
    let tokenizer =
        train_on_text(counts, &options, &rayon::ThreadPoolBuilder::new().build().unwrap()).unwrap();
    let (dir, size) = (tempfile::tempdir().unwrap(), tokenizer.vocab_size() as u32);
    tokenizer.for_translation(size, 512).unwrap().save(dir.path()).unwrap();
    let read =
        |name: &str| -> Value { serde_json::from_slice(&fs::read(dir.path().join(name)).unwrap()).unwrap() };
    let json = read("tokenizer.json");
    assert_eq!(json["decoder"], json!({ "type": "Fuse" }));
    assert_eq!(json["post_processor"]["single"][1]["SpecialToken"]["id"], "<eos>");
    let padding = &json["added_tokens"][0];
    assert_eq!((&padding["content"], &padding["id"]), (&json!("<pad>"), &json!(size)));
    let config = read("tokenizer_config.json");
    assert_eq!((&config["eos_token"], &config["pad_token"]), (&json!("<eos>"), &json!("<pad>")));
}
