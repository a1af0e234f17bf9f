//! Normalisers that lengthen a text again and again take no memory: they are refused, or the text is.

use std::fs;

use segue_data_error::DataError;
use segue_tokenizer::Tokenizer;
use serde_json::{Value, json};

fn import(normalizer: Value, pre_tokenizer: Value) -> Result<Tokenizer, DataError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    let whole = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": normalizer, "pre_tokenizer": pre_tokenizer,
        "added_tokens": [], "post_processor": null, "decoder": null,
        "model": { "type": "WordLevel", "vocab": { "<unk>": 0, "a": 1 }, "unk_token": "<unk>" },
    });
    fs::write(&path, whole.to_string()).unwrap();
    Tokenizer::import(&path)
}

/// Doubles the letters of a text so many times.
fn doubling(times: usize) -> Value {
    let step = json!({ "type": "Replace", "pattern": { "String": "a" }, "content": "aa" });
    json!({ "type": "Sequence", "normalizers": vec![step; times] })
}

#[test]
fn a_normalizer_that_may_lengthen_a_text_a_thousandfold_is_refused() {
    import(doubling(10), Value::Null).unwrap();
    let nested = json!({ "type": "Sequence", "normalizers": [doubling(20), doubling(20)] });
    let untyped = json!({ "normalizers": [doubling(6), doubling(5)] });
    let long = json!({ "type": "Replace", "pattern": { "Regex": "" }, "content": "a".repeat(2000) });
    let fixed = json!({ "type": "Prepend", "prepend": "a".repeat(2 << 20) });
    for (normalizer, bytes) in [
        (doubling(11), "2048"),
        (nested, "1099511627776"),
        (untyped, "2048"),
        (long, "2003"),
        (fixed, "2049"),
    ] {
        let error = import(normalizer, Value::Null).unwrap_err();
        let expected =
            format!("its normalizer may make {bytes} bytes of each byte of a text, expected 1024 at most");
        assert!(error.exit_code() == 65 && error.to_string().ends_with(&expected), "{error}");
        assert!(error.hint().unwrap().contains("take the steps out"), "{error}");
    }
}

#[test]
fn a_pre_tokenizer_that_lengthens_a_text_again_and_again_is_refused() {
    let bytes =
        json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false });
    let steps = |times| json!({ "type": "Sequence", "pretokenizers": vec![bytes.clone(); times] });
    import(Value::Null, steps(2)).unwrap();
    let error = import(Value::Null, steps(30)).unwrap_err().to_string();
    assert!(error.contains("its pre_tokenizer may make 1073741824 bytes of each byte"), "{error}");
}

#[test]
fn a_long_text_that_becomes_too_long_is_refused_before_it_takes_memory() {
    let tokenizer = import(doubling(10), Value::Null).unwrap();
    let (long, plain) = ("a".repeat(1 << 20), "b".repeat(1 << 20));
    let mut ids = Vec::new();
    for text in [&plain[..], &long[..1 << 10]] {
        tokenizer.encoder().encode(text, &mut ids).unwrap();
    }
    assert_eq!(ids, [0, 0]);
    let errors = [
        tokenizer.encoder().encode(&long, &mut ids).unwrap_err(),
        tokenizer.encoder().encode_lines(&long, &mut ids, &mut Vec::new()).unwrap_err(),
    ];
    for error in errors {
        assert!(
            error.starts_with("the tokenizer's normalizer makes more than 4 times the bytes of it\nhint: "),
            "{error}"
        );
    }
    assert_eq!(ids, [0, 0]);
}

#[test]
fn the_chain_of_public_tokenizers_that_may_lengthen_most_is_taken() {
    // A map whose longest entry has 33 bytes, as that of compatibility forms, in base 64.
    let map = format!("BAAAAAAAAIBB{}QUEA", "QUFB".repeat(10));
    let replace =
        |pattern: Value, content: &str| json!({ "type": "Replace", "pattern": pattern, "content": content });
    let steps = [
        replace(json!({ "String": "``" }), "\""),
        replace(json!({ "String": "''" }), "\""),
        json!({ "type": "NFKD" }),
        json!({ "type": "StripAccents" }),
        json!({ "type": "Lowercase" }),
        json!({ "type": "Precompiled", "precompiled_charsmap": map }),
        replace(json!({ "Regex": " {2,}" }), "▁"),
    ];
    let metaspace =
        json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true });
    import(json!({ "type": "Sequence", "normalizers": steps }), metaspace).unwrap();
}
