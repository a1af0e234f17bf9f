//! The files with which Hugging Face's `AutoTokenizer` gives XLNet's ids, numbers before commas aside. Its own
//! `XLNetTokenizer`, made from a `spiece.model` alone, moves spaces around punctuation and does not cut `2000,` again.

use std::sync::LazyLock;

use segue_foreign::wire::Fields;
use serde_json::{Map, Value, json};
use unicode_normalization::char::canonical_combining_class;

use super::commas::ends_in_digit_and_comma;
use super::model::{ListedPiece, PieceType, SentencePiece};
use super::normalize::SPACE_SYMBOL;
use super::xlnet::XlnetNormalization;

/// How many times worse than the worst piece one is made that must never be chosen.
const NEVER: f64 = 100.0;
/// How much worse transformers' converter makes pieces such as `2000,`.
const AVOIDED: f64 = 100.0;
/// The roles of XLNet's special tokens in `tokenizer_config.json`.
const ROLES: [(&str, &str); 7] = [
    ("bos_token", "<s>"),
    ("eos_token", "</s>"),
    ("unk_token", "<unk>"),
    ("sep_token", "<sep>"),
    ("pad_token", "<pad>"),
    ("cls_token", "<cls>"),
    ("mask_token", "<mask>"),
];

/// `tokenizer.json`: the model for Hugging Face's `tokenizers`; `None` where the model has something that this format
/// cannot say.
///
/// `post_processor`: what puts special tokens around texts.
///
/// Of XLNet's models, pieces such as `2000,` are there, but too bad to be chosen. That comes close to the reference's second segmentation,
/// which cuts only the piece before the comma anew: about one line in a thousand has another cut of a number.
/// Special tokens that stand in the text become special tokens, which they do not here.
pub(crate) fn tokenizer_json(model: &SentencePiece, post_processor: Value) -> Option<Value> {
    let normalizer = &model.normalizer;
    if normalizer.treat_whitespace_as_suffix || !normalizer.escape_whitespaces {
        return None;
    }
    let scheme = if normalizer.add_dummy_prefix { "always" } else { "never" };
    // `add_prefix_space` says to versions of 2023 and before what `prepend_scheme` says to later ones.
    let metaspace = json!({
        "type": "Metaspace", "replacement": SPACE_SYMBOL, "add_prefix_space": normalizer.add_dummy_prefix,
        "prepend_scheme": scheme, "split": false,
    });
    Some(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": special_tokens(model),
        "normalizer": { "type": "Sequence", "normalizers": normalizers(model) },
        "pre_tokenizer": metaspace,
        "post_processor": post_processor,
        "decoder": metaspace,
        "model": {
            "type": "Unigram",
            "unk_id": model.unk_id(),
            "vocab": vocabulary(model),
            "byte_fallback": model.byte_ids.is_some(),
        },
    }))
}

/// The `tokenizer.json` that transformers' converter makes of an XLNet's `spiece.model`, without special tokens. Numbers before commas are not cut again, nor
/// is white space trimmed: with tokens that stand in the text these are the package's ids and not those of XLNet's own program.
pub(crate) fn package_json(model: &SentencePiece, normalization: XlnetNormalization) -> Value {
    let mut steps = vec![replace("String", "``", "\""), replace("String", "''", "\"")];
    if !normalization.keep_accents {
        steps.extend([json!({ "type": "NFKD" }), json!({ "type": "StripAccents" })]);
    }
    if normalization.lower_case {
        steps.push(json!({ "type": "Lowercase" }));
    }
    steps.extend(precompiled(model));
    steps.push(replace("Regex", " {2,}", " "));
    let metaspace = json!({
        "type": "Metaspace", "replacement": SPACE_SYMBOL, "add_prefix_space": true, "prepend_scheme": "always", "split": true,
    });
    let score = |piece: &ListedPiece| {
        f64::from(piece.score) - if ends_in_digit_and_comma(&piece.text) { AVOIDED } else { 0.0 }
    };
    let vocabulary: Vec<Value> = model.pieces.iter().map(|piece| json!([piece.text, score(piece)])).collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": { "type": "Sequence", "normalizers": steps },
        "pre_tokenizer": metaspace, "post_processor": null, "decoder": metaspace,
        "model": { "type": "Unigram", "unk_id": model.unk_id(), "vocab": vocabulary },
    })
}

/// `tokenizer_config.json`: the class that takes `tokenizer.json` as it is, and the roles of the special tokens.
pub(crate) fn tokenizer_config(model: &SentencePiece) -> Map<String, Value> {
    let mut config = object(json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "padding_side": "left",
        "pad_token_type_id": 3,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "clean_up_tokenization_spaces": false,
    }));
    if let Some(normalization) = model.xlnet() {
        config.extend(object(json!({
            "do_lower_case": normalization.lower_case,
            "keep_accents": normalization.keep_accents,
            "remove_space": !normalization.keep_spaces,
        })));
    }
    for (role, name) in ROLES.into_iter().filter(|(_, name)| model.piece_id(name).is_some()) {
        config.insert(role.into(), name.into());
    }
    config
}

fn object(value: Value) -> Map<String, Value> {
    if let Value::Object(fields) = value { fields } else { Map::new() }
}

fn special_tokens(model: &SentencePiece) -> Vec<Value> {
    let special = |kind| matches!(kind, PieceType::Control | PieceType::Unknown);
    let listed = model.pieces.iter().enumerate().filter(|(_, piece)| special(piece.kind));
    listed
        .map(|(id, piece)| {
            // The space before <mask> is part of it, as in Hugging Face's own classes.
            json!({
                "id": id, "content": piece.text, "single_word": false, "lstrip": piece.text == "<mask>",
                "rstrip": false, "normalized": false, "special": true,
            })
        })
        .collect()
}

fn vocabulary(model: &SentencePiece) -> Vec<Value> {
    let never = f64::from(model.segmenter.min_score.min(-1.0)) * NEVER;
    let score = |id: usize| {
        let (listed, piece) = (&model.pieces[id], model.segmenter.pieces[id]);
        match piece.unused || model.xlnet().is_some() && ends_in_digit_and_comma(&listed.text) {
            true => never,
            false => model.segmenter.score(piece, listed.text.len()),
        }
    };
    model.pieces.iter().enumerate().map(|(id, piece)| json!([piece.text, score(id)])).collect()
}

fn replace(kind: &str, what: &str, by: &str) -> Value {
    json!({ "type": "Replace", "pattern": { kind: what }, "content": by })
}

fn strip() -> Value {
    json!({ "type": "Strip", "strip_left": true, "strip_right": true })
}

fn normalizers(model: &SentencePiece) -> Vec<Value> {
    let mut steps = Vec::new();
    if let Some(normalization) = model.xlnet() {
        steps = xlnet_steps(normalization);
    }
    steps.extend(precompiled(model));
    if model.normalizer.remove_extra_whitespaces {
        steps.extend([replace("Regex", " {2,}", " "), strip()]);
    }
    steps
}

/// What XLNet does to text before its model does.
fn xlnet_steps(normalization: XlnetNormalization) -> Vec<Value> {
    let mut steps = Vec::new();
    if !normalization.keep_spaces {
        steps.extend([replace("Regex", "[\\s\u{1C}-\u{1F}]+", " "), strip()]);
    }
    steps.extend([replace("String", "``", "\""), replace("String", "''", "\"")]);
    if !normalization.keep_accents {
        steps.extend([json!({ "type": "NFKD" }), replace("Regex", &COMBINING_CHARACTERS, "")]);
    }
    if normalization.lower_case {
        steps.push(json!({ "type": "Lowercase" }));
    }
    steps
}

/// A regular expression for the characters whose canonical combining class is not 0.
static COMBINING_CHARACTERS: LazyLock<String> = LazyLock::new(|| {
    let mut ranges: Vec<(char, char)> = Vec::new();
    for c in ('\0'..=char::MAX).filter(|c| canonical_combining_class(*c) != 0) {
        match ranges.last_mut() {
            Some((_, last)) if *last as u32 + 1 == c as u32 => *last = c,
            _ => ranges.push((c, c)),
        }
    }
    let body: String = ranges.iter().map(|(first, last)| format!("{first}-{last}")).collect();
    format!("[{body}]")
});

/// The model's own rules as a step, if there are such.
fn precompiled(model: &SentencePiece) -> Option<Value> {
    let rules = precompiled_rules(model.file())?;
    Some(json!({ "type": "Precompiled", "precompiled_charsmap": base64(rules) }))
}

/// `normalizer_spec.precompiled_charsmap` of a model file, if there are such rules.
fn precompiled_rules(file: &[u8]) -> Option<&[u8]> {
    let field = |message, number| {
        Fields::new(message).flatten().filter(|(found, _)| *found == number).last()?.1.bytes("a field").ok()
    };
    field(field(file, 3)?, 2).filter(|rules| !rules.is_empty())
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let word = group.iter().chain(&[0; 2]).take(3).fold(0u32, |word, byte| word << 8 | u32::from(*byte));
        for place in 0..4 {
            let digit = ALPHABET[(word >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= group.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 4648, section 10.
    #[test]
    fn base64_is_that_of_the_standard() {
        let examples = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (text, expected) in examples {
            assert_eq!(base64(text.as_bytes()), expected);
        }
    }
}
