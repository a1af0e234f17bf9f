//! Text of tokens as they come is that of all of them decoded at once.

use crate::scratch;

use std::fs;
use std::sync::LazyLock;

use proptest::prelude::*;
use scratch::{sample_text, train};
use segue_tokenizer::{TextStream, Tokenizer, TokenizerKind, TrainOptions};
use serde_json::{Value, json};

/// What a stream hands over after `prompt`, of which it knows the text.
fn streamed(tokenizer: &Tokenizer, prompt: &[u32], ids: &[u32]) -> String {
    let mut stream = TextStream::new(tokenizer, prompt.to_vec());
    let mut text: String = ids.iter().map(|id| stream.push(*id)).collect();
    text.push_str(&stream.rest());
    text
}

/// The same by decoding all.
fn decoded(tokenizer: &Tokenizer, prompt: &[u32], ids: &[u32]) -> String {
    let whole = tokenizer.decode(&[prompt, ids].concat());
    whole[tokenizer.decode(prompt).len()..].to_string()
}

fn imported(name: &str, content: &[u8]) -> Tokenizer {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, content).unwrap();
    Tokenizer::import(&path).unwrap()
}

/// A SentencePiece model with a piece for every byte, and pieces with spaces before, behind and alone.
fn sentence_pieces() -> Tokenizer {
    let field = |number: u8, content: &[u8]| [&[number << 3 | 2, content.len() as u8], content].concat();
    let piece = |text: &str, kind: u8| {
        let score = [&[0x15], (-1f32).to_le_bytes().as_slice()].concat();
        field(1, &[field(1, text.as_bytes()), score, vec![0x18, kind]].concat())
    };
    let mut model = [piece("<unk>", 2), piece("</s>", 3), piece("<cls>", 4)].concat();
    for text in ["▁", "▁▁", "▁a", "b", "é", "中", "a▁"] {
        model.extend(piece(text, 1));
    }
    (0..=255).for_each(|byte| model.extend(piece(&format!("<0x{byte:02X}>"), 6)));
    imported("spiece.model", &model)
}

/// A `tokenizer.json` with this decoder. A token follows each other, so a decoder that drops, joins or strips shows all it can.
fn foreign(tokens: &[String], decoder: Value) -> Tokenizer {
    let vocabulary: serde_json::Map<String, Value> =
        tokens.iter().cloned().zip((0..).map(Value::from)).collect();
    let json = json!({
        "version": "1.0",
        "added_tokens": [],
        "normalizer": null,
        "pre_tokenizer": null,
        "post_processor": null,
        "decoder": decoder,
        "model": { "type": "WordLevel", "vocab": vocabulary, "unk_token": tokens[0] },
    });
    imported("tokenizer.json", &serde_json::to_vec(&json).unwrap())
}

/// Tokenizers under which every sequence of ids can be streamed.
static TOKENIZERS: LazyLock<Vec<(&str, Tokenizer)>> = LazyLock::new(|| {
    let trained = |kind, vocab_size| {
        let options = TrainOptions { vocab_size, ..TrainOptions::new(kind) };
        train(&sample_text(300), &options)
    };
    let words = |words: &str| words.split(' ').map(String::from).collect::<Vec<_>>();
    let metaspace =
        json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true });
    vec![
        ("bytes", Tokenizer::bytes()),
        ("characters", trained(TokenizerKind::Char, None)),
        ("words", trained(TokenizerKind::Word, None)),
        ("byte pairs", trained(TokenizerKind::Bpe, Some(300))),
        ("unigrams", trained(TokenizerKind::Unigram, Some(300))),
        ("SentencePiece", sentence_pieces()),
        (
            "word pieces",
            foreign(
                &words("[UNK] a ##b ## . ' ##中 do"),
                json!({ "type": "WordPiece", "prefix": "##", "cleanup": true }),
            ),
        ),
        ("metaspace", foreign(&words("<unk> ▁ ▁a ▁▁ b é a▁"), metaspace)),
        (
            "suffixes",
            foreign(&words("<unk> a</w> b </w> é</w>"), json!({ "type": "BPEDecoder", "suffix": "</w>" })),
        ),
        ("no decoder", foreign(&words("<unk> a b é"), Value::Null)),
    ]
});

/// As Llama has it: bytes for what has no token, and one space less at the begin.
static BYTE_FALLBACK: LazyLock<Tokenizer> = LazyLock::new(|| {
    let bytes = (0..=255).map(|byte| format!("<0x{byte:02X}>"));
    let tokens: Vec<String> = bytes.chain(["▁", "▁a", "b"].map(String::from)).collect();
    let replaced = json!({ "type": "Replace", "pattern": { "String": "▁" }, "content": " " });
    let stripped = json!({ "type": "Strip", "content": " ", "start": 1, "stop": 0 });
    let decoders = [replaced, json!({ "type": "ByteFallback" }), json!({ "type": "Fuse" }), stripped];
    foreign(&tokens, json!({ "type": "Sequence", "decoders": decoders }))
});

/// A character that is cut off in the end makes the decoder take back all characters before it.
#[test]
fn one_character_that_is_cut_off_is_one_bad_character() {
    let whole = "中".repeat(10);
    let ids: Vec<u32> = whole.bytes().map(u32::from).chain([0xE4]).collect();
    assert_eq!(streamed(&BYTE_FALLBACK, &[], &ids), whole + "\u{fffd}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn random_tokens_are_written_as_they_are_decoded_at_once(
        prompt in "[ \na-cé中\u{1F980}]{0,60}",
        draws in proptest::collection::vec(any::<u32>(), 0..150),
    ) {
        for (name, tokenizer) in &*TOKENIZERS {
            // Two ids more than there are tokens, as of a padded vocabulary.
            let vocabulary = tokenizer.vocab_size() as u32 + 2;
            let ids: Vec<u32> = draws.iter().map(|draw| draw % vocabulary).collect();
            let mut known = Vec::new();
            tokenizer.encode(&prompt, &mut known);
            prop_assert_eq!(streamed(tokenizer, &known, &ids), decoded(tokenizer, &known, &ids), "{}", name);
        }
    }

    #[test]
    fn characters_cut_between_tokens_are_written_whole(
        text in "[ aé中\u{1F980}b]{0,100}",
        seed: u64,
    ) {
        // Bytes of whole characters, and spaces of tokens' own between them.
        let ids: Vec<u32> = text.bytes().map(|byte| if byte == b' ' { 256 + (seed % 3) as u32 } else { byte.into() }).collect();
        for split in [0, text.chars().take(text.chars().count() / 2).map(char::len_utf8).sum()] {
            let (known, ids) = ids.split_at(split);
            prop_assert_eq!(streamed(&BYTE_FALLBACK, known, ids), decoded(&BYTE_FALLBACK, known, ids));
        }
    }
}
