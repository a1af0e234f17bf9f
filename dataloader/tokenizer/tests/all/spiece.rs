//! A SentencePiece model gives the ids that the SentencePiece library gives, on ten thousand pieces of real text.

use std::io::Read;

use proptest::prelude::*;
use segue_skip::shared_data;
use segue_tokenizer::{Tokenizer, TokenizerKind};
use serde::Deserialize;

/// `fixtures/spiece_ids.json`; `fixtures/spiece_ids.py` says what it means.
#[derive(Deserialize)]
struct Expected {
    model: String,
    longest: usize,
    total: usize,
    text_blake3: String,
    decoded_blake3: String,
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    file: String,
    separator: String,
    only_non_ascii: bool,
    count: usize,
}

fn expected() -> (Expected, Vec<Vec<u32>>) {
    let description = serde_json::from_str(include_str!("../fixtures/spiece_ids.json")).unwrap();
    let packed = include_bytes!("../fixtures/spiece_ids.zst").as_slice();
    let ids = zstd::decode_all(packed).unwrap();
    let mut rest = ids.as_slice();
    let mut pieces = Vec::new();
    while let Some((count, after)) = rest.split_first_chunk::<4>() {
        let (piece, after) = after.split_at(u32::from_le_bytes(*count) as usize * 2);
        pieces.push(piece.as_chunks::<2>().0.iter().map(|id| u16::from_le_bytes(*id) as u32).collect());
        rest = after;
    }
    (description, pieces)
}

fn chosen_pieces(entry: &Entry, longest: usize) -> Option<Vec<String>> {
    let path = shared_data(&entry.file)?;
    let mut content = std::fs::read(&path).unwrap();
    if path.extension().is_some_and(|extension| extension == "gz") {
        let mut unpacked = Vec::new();
        flate2::read::MultiGzDecoder::new(content.as_slice()).read_to_end(&mut unpacked).unwrap();
        content = unpacked;
    }
    let text = String::from_utf8_lossy(&content);
    let wanted = |piece: &&str| !(piece.is_empty() || entry.only_non_ascii && piece.is_ascii());
    let all: Vec<&str> = text.split(entry.separator.as_str()).filter(wanted).collect();
    let chosen = (0..entry.count).map(|i| all[i * all.len() / entry.count]);
    Some(chosen.map(|piece| piece.chars().take(longest).collect()).collect())
}

#[test]
fn ids_are_those_of_the_library_on_ten_thousand_pieces_of_text() {
    let (description, expected) = expected();
    let Some(model) = shared_data(&description.model) else { return };
    let tokenizer = Tokenizer::import(&model).unwrap();
    assert_eq!(tokenizer.kind(), TokenizerKind::SentencePiece);
    assert_eq!((tokenizer.vocab_size(), tokenizer.unk_id(), tokenizer.eos_id()), (32_000, Some(0), Some(2)));
    let (mut text_hash, mut decoded_hash) = (blake3::Hasher::new(), blake3::Hasher::new());
    let mut expected_ids = expected.iter();
    let (mut checked, mut unknown) = (0, 0);
    for entry in &description.entries {
        let Some(pieces) = chosen_pieces(entry, description.longest) else { return };
        for piece in pieces {
            let mut ids = Vec::new();
            tokenizer.encode(&piece, &mut ids);
            assert_eq!(&ids, expected_ids.next().unwrap(), "{} in {}", piece, entry.file);
            text_hash.update(piece.as_bytes()).update(b"\0");
            decoded_hash.update(tokenizer.decode(&ids).as_bytes()).update(b"\0");
            checked += 1;
            unknown += ids.iter().filter(|id| **id == 0).count();
        }
    }
    assert_eq!(text_hash.finalize().to_hex().as_str(), description.text_blake3, "another text was encoded");
    assert_eq!(decoded_hash.finalize().to_hex().as_str(), description.decoded_blake3, "decoded text differs");
    assert_eq!((checked, expected.len()), (description.total, description.total));
    assert!(checked >= 10_000);
    println!("{checked} pieces of text, {unknown} unknown tokens, all ids equal");
}

#[test]
fn a_saved_model_is_the_same_file() {
    let Some(model) = shared_data("xlnet_spiece/spiece.model") else { return };
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = Tokenizer::import(&model).unwrap();
    tokenizer.save(folder.path()).unwrap();
    assert_eq!(std::fs::read(folder.path().join("spiece.model")).unwrap(), std::fs::read(&model).unwrap());
    let loaded = Tokenizer::load(folder.path()).unwrap();
    assert_eq!(loaded.fingerprint(), tokenizer.fingerprint());
}

/// One field of a protocol buffer message.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    assert!(content.len() < 128);
    [&[number << 3 | 2, content.len() as u8], content].concat()
}

/// A piece with its score and type.
fn piece(text: &str, score: f32, kind: u8) -> Vec<u8> {
    let message =
        [field(1, text.as_bytes()), [&[0x15], score.to_le_bytes().as_slice()].concat(), vec![0x18, kind]];
    field(1, &message.concat())
}

fn import(model: &[u8]) -> Result<Tokenizer, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spiece.model");
    std::fs::write(&path, model).unwrap();
    Tokenizer::import(&path).map_err(|e| e.to_string())
}

fn small_model() -> Vec<Vec<u8>> {
    vec![
        piece("<unk>", 0.0, 2),
        piece("</s>", 0.0, 3),
        piece("▁a", -1.0, 1),
        piece("b", -2.0, 1),
        piece("<x>", 0.0, 4),
    ]
}

#[test]
fn a_model_without_rules_is_read() {
    let tokenizer = import(&small_model().concat()).unwrap();
    let mut ids = Vec::new();
    tokenizer.encode("  ab<x>  qqb ", &mut ids);
    // The run of unknown characters (the space before the q's among them) is one token.
    assert_eq!(ids, [2, 3, 4, 0, 3]);
    assert_eq!(tokenizer.decode(&[1, 2, 3, 4]), "ab<x>");
}

#[test]
fn models_that_cannot_be_used_say_why() {
    let bpe = [small_model().concat(), field(2, &[0x18, 2])].concat();
    for (model, part) in [
        (bpe, "BPE type"),
        (small_model()[2..].concat(), "no unknown piece"),
        ([small_model().concat(), piece("b", -1.0, 1)].concat(), "occurs twice"),
        ([small_model().concat(), piece("z", f32::NAN, 1)].concat(), "score"),
        ([small_model().concat(), piece("z", 1.0, 9)].concat(), "unknown type 9"),
        ([small_model().concat(), field(3, &field(2, &[255, 0, 0, 0]))].concat(), "trie of 255 bytes"),
        (b"this is no model".to_vec(), "not a SentencePiece model"),
        (Vec::new(), "no unknown piece"),
    ] {
        let error = import(&model).unwrap_err();
        assert!(error.contains(part), "`{part}` is not in: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_model_is_refused_or_works(at in 0usize..80, byte: u8, text: String) {
        let mut model = small_model().concat();
        let at = at % model.len();
        model[at] = byte;
        if let Ok(tokenizer) = import(&model) {
            let mut ids = Vec::new();
            tokenizer.encode(&text, &mut ids);
            tokenizer.decode(&ids);
        }
    }
}
