//! A text that is cut where its tokenizer lets it be has, part by part, the ids of the whole: those of the `tokenizers`
//! crate, for any of the options of a `tokenizer.json`.

use crate::scratch;

use std::fs;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use scratch::{pieces, sample_text, train};
use segue_tokenizer::{CutPlaces, Tokenizer, TokenizerKind, TrainOptions};
use serde_json::{Value, json};

/// What stands for the bytes of the texts below in byte-level vocabularies.
fn byte_level_vocabulary() -> Value {
    let printable = (b'!'..=b'~').chain(0xA1..=0xAC).chain(0xAE..=0xFF).map(char::from);
    let others = ('\u{100}'..='\u{143}').chain(['▁']);
    let merged = ["ab", "aab", "Ġa", "ĊĠ", "ĠĠ", "Ċa"].map(String::from);
    let tokens = printable.chain(others).map(String::from).chain(merged);
    tokens.enumerate().map(|(id, token)| (token, json!(id))).collect::<serde_json::Map<_, _>>().into()
}

fn bpe() -> Value {
    let merges = ["a b", "a ab", "Ġ a", "Ċ Ġ", "Ġ Ġ", "Ċ a"];
    json!({ "type": "BPE", "vocab": byte_level_vocabulary(), "merges": merges })
}

fn word_pieces() -> Value {
    let listed = ["[UNK]", "a", "b", "##a", "##b", "ab", "é", "e", "x", "中", ".", "▁", "##▁", "s", "##s"];
    let vocabulary: serde_json::Map<_, _> =
        listed.iter().enumerate().map(|(id, piece)| (piece.to_string(), json!(id))).collect();
    json!({
        "type": "WordPiece", "vocab": vocabulary, "unk_token": "[UNK]", "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 20,
    })
}

fn unigram() -> Value {
    let listed = ["<unk>", "a", "b", "▁", "▁a", "ab", "\n", " ", "▁▁", "a▁", "Ġ", "Ċ", "Ġa", "Ċa"];
    let scored: Vec<Value> =
        listed.iter().enumerate().map(|(n, piece)| json!([piece, -1.0 - n as f64 / 4.0])).collect();
    json!({ "type": "Unigram", "unk_id": 0, "vocab": scored })
}

fn normalizers() -> Vec<Value> {
    let simple =
        ["Lowercase", "NFC", "NFD", "NFKC", "NFKD", "StripAccents"].map(|name| json!({ "type": name }));
    let strip = json!({ "type": "Strip", "strip_left": true, "strip_right": true });
    let bert = json!({
        "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true,
    });
    let replace = json!({ "type": "Replace", "pattern": { "String": " " }, "content": "▁" });
    let runs = json!({ "type": "Replace", "pattern": { "Regex": "\\s+" }, "content": " " });
    simple
        .into_iter()
        .chain([strip, bert, replace, runs, json!({ "type": "Prepend", "prepend": "▁" })])
        .collect()
}

fn pre_tokenizers() -> Vec<Value> {
    let byte_level = |prefix: bool, regex: bool| json!({ "type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": true, "use_regex": regex });
    let metaspace = |scheme: &str, split: bool| json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split });
    // GPT-4's words, in short: line breaks belong to the punctuation before them.
    let pattern = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+| ?\p{L}+|\p{N}{1,3}";
    let split =
        json!({ "type": "Split", "pattern": { "Regex": pattern }, "behavior": "Isolated", "invert": false });
    let simple = ["WhitespaceSplit", "Whitespace", "BertPreTokenizer"].map(|name| json!({ "type": name }));
    let mut all = vec![
        byte_level(false, true),
        byte_level(true, true),
        byte_level(false, false),
        byte_level(true, false),
        metaspace("always", true),
        metaspace("first", true),
        metaspace("never", false),
        metaspace("always", false),
        split,
        json!({ "type": "Digits", "individual_digits": true }),
        json!({ "type": "Punctuation", "behavior": "Isolated" }),
    ];
    all.extend(simple);
    all
}

/// Any steps of a kind, or none.
fn steps(all: Vec<Value>, most: usize, name: &'static str) -> impl Strategy<Value = Value> {
    let all = subsequence(all, 0..=most).prop_shuffle();
    all.prop_map(move |mut steps| match steps.len() {
        0 => Value::Null,
        1 => steps.remove(0),
        _ => json!({ "type": "Sequence", name: steps }),
    })
}

fn added_tokens() -> impl Strategy<Value = Vec<Value>> {
    let content = select(vec!["<m>", "a b", "  ", "\n", "b\n", "é", " <"]);
    let flags = proptest::array::uniform4(proptest::bool::weighted(0.2));
    let token = (content, flags).prop_map(|(content, [single_word, lstrip, rstrip, normalized])| {
        // The crate panics on texts where normalising leaves nothing of a token.
        let normalized = normalized && !content.trim().is_empty();
        json!({
            "id": 900, "content": content, "single_word": single_word, "lstrip": lstrip, "rstrip": rstrip,
            "normalized": normalized, "special": !normalized,
        })
    });
    proptest::collection::vec(token, 0..2)
}

fn descriptions() -> impl Strategy<Value = Value> {
    let model = select(vec![bpe(), word_pieces(), unigram()]);
    let (normalizer, pre_tokenizer) =
        (steps(normalizers(), 2, "normalizers"), steps(pre_tokenizers(), 2, "pretokenizers"));
    (normalizer, pre_tokenizer, model, added_tokens()).prop_map(|(normalizer, pre_tokenizer, model, added)| {
        json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": normalizer,
            "pre_tokenizer": pre_tokenizer, "post_processor": null, "decoder": null, "model": model,
        })
    })
}

/// With ids for the added tokens that agree with the vocabulary.
fn with_ids(mut description: Value) -> Value {
    let vocabulary = description["model"]["vocab"].clone();
    let id_of = |token: &Value| match &vocabulary {
        Value::Object(ids) => token.as_str().and_then(|token| ids.get(token)?.as_u64()),
        pieces => pieces.as_array()?.iter().position(|piece| piece[0] == *token).map(|at| at as u64),
    };
    let mut next =
        vocabulary.as_object().map_or_else(|| vocabulary.as_array().map_or(0, Vec::len), |ids| ids.len());
    for token in description["added_tokens"].as_array_mut().into_iter().flatten() {
        token["id"] = json!(id_of(&token["content"]).unwrap_or_else(|| {
            next += 1;
            next as u64 - 1
        }));
    }
    description
}

fn import(description: &Value) -> Tokenizer {
    let description = with_ids(description.clone());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    fs::write(&path, description.to_string()).unwrap();
    Tokenizer::import(&path).unwrap()
}

/// Ids of the parts of a text that is cut wherever it may be, and their number.
fn in_parts(tokenizer: &Tokenizer, text: &str) -> (Result<Vec<u32>, String>, usize) {
    let (mut encoder, mut ids, mut begin, mut parts) = (tokenizer.encoder(), Vec::new(), 0, 0);
    let cut = tokenizer.text_cut();
    loop {
        parts += 1;
        let rest = &text[begin..];
        let end = if rest.len() < 2 { None } else { cut.first(rest.as_bytes(), 1) };
        if let Err(why) = encoder.encode(&rest[..end.unwrap_or(rest.len())], &mut ids) {
            return (Err(why), parts);
        }
        match end {
            Some(end) => begin += end,
            None => return (Ok(ids), parts),
        }
    }
}

const TEXT: &str =
    "([ab ]|[\n\t\r'.:<é中1s]|<m>|  |\u{301}|\u{a0}|\u{3000}|\u{85}|\u{1c}|\u{0}|\u{200b}|¨|▁){0,24}";

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn parts_have_the_ids_that_the_tokenizers_crate_gives_the_whole(
        description in descriptions(), texts in proptest::collection::vec(TEXT, 12),
    ) {
        let ours = import(&description);
        let theirs: tokenizers::Tokenizer = description.to_string().parse().unwrap();
        for text in &texts {
            let expected = theirs.encode_fast(text.as_str(), false).map(|encoding| encoding.get_ids().to_vec());
            let (found, parts) = in_parts(&ours, text);
            prop_assert_eq!(found.is_err(), expected.is_err(), "{} in {} parts", text, parts);
            if let (Ok(found), Ok(expected)) = (found, expected) {
                prop_assert_eq!(found, expected, "{:?} in {} parts", text, parts);
            }
        }
    }
}

#[test]
fn makes_that_see_each_word_alone_may_be_cut_and_others_not() {
    let places = |change: &dyn Fn(&mut Value)| {
        let byte_level = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true });
        let mut description = json!({ "added_tokens": [], "pre_tokenizer": byte_level, "model": bpe() });
        change(&mut description);
        import(&description).text_cut().places
    };
    let added = |content: &str, rstrip: bool| {
        json!([{
            "id": 900, "content": content, "single_word": false, "lstrip": true, "rstrip": rstrip, "normalized": false,
            "special": true,
        }])
    };
    assert_eq!(places(&|_| {}), CutPlaces::BeforeSpace);
    assert_eq!(
        places(&|json| json["pre_tokenizer"]["add_prefix_space"] = true.into()),
        CutPlaces::BeforeBlank
    );
    assert_eq!(places(&|json| json["normalizer"] = json!({ "type": "Lowercase" })), CutPlaces::BeforeSpace);
    assert_eq!(places(&|json| json["added_tokens"] = added("<mask>", false)), CutPlaces::BeforeSpace);
    assert_eq!(places(&|json| json["added_tokens"] = added("<mask>", true)), CutPlaces::Nowhere);
    assert_eq!(places(&|json| json["added_tokens"] = added("<a b>", false)), CutPlaces::Nowhere);
    assert_eq!(
        places(&|json| json["normalizer"] = json!({ "type": "Prepend", "prepend": "▁" })),
        CutPlaces::Nowhere
    );
    let metaspace =
        json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": true });
    assert_eq!(places(&|json| json["pre_tokenizer"] = metaspace.clone()), CutPlaces::Nowhere);
    let bert = [
        json!({ "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                        "strip_accents": null, "lowercase": true }),
        json!({ "type": "BertPreTokenizer" }),
    ];
    let as_bert = |json: &mut Value| {
        [json["normalizer"], json["pre_tokenizer"]] = bert.clone();
        json["model"] = word_pieces();
    };
    assert_eq!(places(&as_bert), CutPlaces::BeforeSpace);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parts_have_the_ids_of_the_whole_with_tokenizers_trained_here(
        text in "([abΣσ ]|[\n\t\r'.é中1]|\u{301}|\u{a0}|\u{3000}|\u{85}|\u{1c}){0,40}",
    ) {
        thread_local! {
            static TRAINED: Vec<Tokenizer> = [
                TokenizerKind::Char, TokenizerKind::Word, TokenizerKind::Bpe, TokenizerKind::Unigram,
            ].into_iter().flat_map(|kind| [false, true].map(|lower_case| {
                let subword = matches!(kind, TokenizerKind::Bpe | TokenizerKind::Unigram);
                let options = TrainOptions {
                    lower_case, vocab_size: subword.then_some(330), ..TrainOptions::new(kind)
                };
                train(&format!("{}ab aa ΑΣ\nbΣ é中\u{301}", sample_text(40)), &options)
            })).chain([Tokenizer::bytes()]).collect();
        }
        TRAINED.with(|trained| trained.iter().try_for_each(|tokenizer| {
            prop_assert!(tokenizer.text_cut().places != CutPlaces::Nowhere);
            let mut whole = Vec::new();
            tokenizer.encode(&text, &mut whole);
            let (found, parts) = in_parts(tokenizer, &text);
            prop_assert_eq!(found.unwrap(), whole, "{:?} in {} parts by {:?}", text, parts, tokenizer);
            Ok(())
        }))?;
    }

    /// The last place is one that the search from the start finds, too, or the end of a text without any.
    #[test]
    fn the_last_place_is_one_of_all(text in TEXT) {
        for places in [CutPlaces::Anywhere, CutPlaces::BeforeSpace, CutPlaces::BeforeBlank, CutPlaces::Nowhere] {
            let cut = segue_tokenizer::TextCut { places, longest: 1 };
            let bytes = text.as_bytes();
            let all = |at: &usize| *at > 0 && *at < bytes.len() && cut.first(bytes, *at) == Some(*at);
            match cut.last(bytes) {
                Some(last) => prop_assert!(all(&last) || last == bytes.len()),
                None => prop_assert!(!(0..bytes.len()).any(|at| all(&at))),
            }
        }
    }
}

#[test]
fn a_sentencepiece_model_is_cut_nowhere() {
    let model = pieces::Model::of(&[("<unk>", 0.0, pieces::UNKNOWN), ("a", -1.0, pieces::NORMAL)]);
    assert_eq!(model.import().text_cut().places, CutPlaces::Nowhere);
}
