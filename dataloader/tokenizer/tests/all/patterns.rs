//! Regular expressions of a `tokenizer.json`: those that match other text in the Python package are refused, the others give the same pieces.

use crate::scratch;

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use proptest::prelude::*;
use proptest::sample::select;
use scratch::{in_workspace, peer_python};
use segue_tokenizer::Tokenizer;
use serde_json::{Value, json};
use tokenizers::normalizers::Replace;
use tokenizers::normalizers::replace::ReplacePattern;
use tokenizers::{NormalizedString, Normalizer};

/// Patterns with constructs that were found to match other text there, for all characters or in texts as below, and with those that may.
const DIFFERENT: [&str; 59] = [
    r"\w+",
    r"\W",
    r"[\w']+",
    r"[^\W]",
    r"\bs",
    r"s\B",
    r"\<s",
    r"s\>",
    r"s\Z",
    r"\pL+",
    r"\PL",
    "[[:alpha:]]+",
    "[^[:space:]]+",
    "[[:punct:]]",
    "[[:^alpha:]]",
    "[a[:digit:]]+",
    "[[:upper:]]",
    "[[:lower:]]",
    "[[:word:]]",
    "[[:cntrl:]]",
    "[[:graph:]]",
    "[[:print:]]",
    "[[:blank:]]",
    "[[:alnum:]]",
    "[[:space:]]",
    "^s",
    "s$",
    r"\s+$",
    "(?=^)s",
    "(?m:.)",
    "(?x)s",
    "(?im:s.)",
    "s(?i)b|c",
    "(?i)ss",
    "(?i)ff",
    "(?i)s(?:s)",
    "(?i:(?:s)t)",
    "(?i:ß)",
    "(?i)é",
    r"(?i)\p{Lu}",
    r"(?i)\p{L}+",
    "(?i)[[:upper:]]",
    "(?i)[é]",
    r"(?i)s\x73",
    "s{2}+",
    "s{2,}+b",
    r"\p{N}{1,3}+",
    "s{1,2}+b",
    "s{2}?",
    "s{1}{2}",
    "s{1,2}{3}",
    "s{,}",
    "[a~~b]",
    "[s--b]",
    "[]^]s(?-m:^)",
    r"[\]]^",
    "(?#(?i[)^",
    "[^]a]$",
    "[[;]^]+$",
];

/// Patterns of public tokenizers, and constructs that are the same in both.
const SAME: [&str; 59] = [
    // GPT-2; Llama 3; Qwen 2; GPT-4o; DeepSeek; BLOOM.
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
    " ?[^(\\s|[.,!?…。，、।۔،])]+",
    "[一-龥\u{3040}-ゟ゠-ヿ]+",
    " {2,}",
    "[\\s\u{1C}-\u{1F}]+",
    r"\p{N}{1,3}",
    r"[^\s]+|\s+",
    "(?i:[sdmt]|ll|ve|re)",
    "(?i:['’]s)",
    "(?i)s|b",
    r"(?i)[a-z]+",
    r"(?i)[^a-z]",
    "(?i)s+",
    "(?i)(s)b",
    r"(?i)s(?-i:b)",
    "(?:(?i)s|b)c",
    "(?i)[[:xdigit:]]",
    "[[:ascii:]]+",
    "[[:^xdigit:]]",
    r"\d+",
    r"\D+",
    r"\h+",
    r"[\s\S]",
    r"[^\S\r\n]+",
    r"\p{Han}+",
    r"\p{Greek}",
    r"\p{P}+",
    r"\p{Sm}",
    r"\P{L}+",
    r"[\P{L}]",
    "[s-]",
    "[]s]",
    "[^]s]",
    "[s[^b]]",
    "[a-z&&[^s]]",
    r"[\b]",
    r"[\<\>]",
    r"\As",
    r"s\z",
    "s++b",
    "s*+",
    "s?+",
    "s{1,2}?",
    "s{,2}",
    "s{1",
    "s{x}",
    "(?>s+)b",
    "(?<=s)b",
    "(?<!s)b",
    "(?=s)",
    "(?<n>s)b",
    r"(s)\1",
    "(?#^)s",
    r"\^\$",
    r"[$^]",
];

/// A `tokenizer.json` of characters with parts of its own.
fn description(parts: Value) -> Value {
    let mut whole = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null, "added_tokens": [],
        "post_processor": null, "decoder": null, "model": { "type": "WordLevel", "vocab": { "<unk>": 0, "s": 1 }, "unk_token": "<unk>" },
    });
    whole.as_object_mut().unwrap().extend(parts.as_object().unwrap().clone());
    whole
}

fn import(parts: Value) -> Result<Tokenizer, segue_data_error::DataError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    fs::write(&path, description(parts).to_string()).unwrap();
    Tokenizer::import(&path)
}

fn splitting(pattern: &str) -> Value {
    json!({ "type": "Split", "pattern": { "Regex": pattern }, "behavior": "Isolated", "invert": false })
}

fn replacing(pattern: &str) -> Value {
    json!({ "type": "Replace", "pattern": { "Regex": pattern }, "content": "|" })
}

#[test]
fn patterns_that_match_other_text_in_the_package_are_refused() {
    for pattern in DIFFERENT {
        let error = import(json!({ "pre_tokenizer": splitting(pattern) })).expect_err(pattern);
        assert_eq!(error.exit_code(), 65, "{error}");
        let expected = format!("the pattern `{pattern}` of a Split in its pre_tokenizer has `");
        assert!(error.to_string().contains(&expected), "{error}");
        assert!(error.to_string().ends_with("which matches other text in the Python package"), "{error}");
        assert!(error.hint().unwrap().contains("\\p{L}"), "{error}");
    }
    let nested = |steps| json!({ "type": "Sequence", "normalizers": steps });
    let error = import(
        json!({ "normalizer": nested(json!([nested(json!([{ "type": "NFC" }, replacing("x[[:alpha:]]")]))])) }),
    );
    let error = error.unwrap_err().to_string();
    assert!(error.contains("of a Replace in its normalizer has `[:alpha:]`, which"), "{error}");
    // The same characters as they are.
    let quoted = json!({ "type": "Replace", "pattern": { "String": r"\w^$" }, "content": "|" });
    import(json!({ "normalizer": quoted })).unwrap();
}

#[test]
fn patterns_of_public_tokenizers_are_taken() {
    for pattern in SAME {
        import(json!({ "pre_tokenizer": splitting(pattern) }))
            .unwrap_or_else(|error| panic!("{pattern}: {error}"));
        import(json!({ "normalizer": replacing(pattern) }))
            .unwrap_or_else(|error| panic!("{pattern}: {error}"));
    }
}

proptest! {
    /// Whatever it says, also where it ends in the middle of something.
    #[test]
    fn any_pattern_is_taken_or_refused(
        parts in prop::collection::vec(select(vec![
            "[", "]", "[:", ":]", "[^", "\\", "(?", "(?i)", "(?i:", "(?#", "(", ")", "{", "}", "{1,", "p{L", "ß", "alpha", "s", "^", "&&", "--",
        ]), 0..12),
    ) {
        let _ = import(json!({ "pre_tokenizer": splitting(&parts.concat()) }));
    }
}

/// Texts of all characters, and of few ones in many orders.
fn texts() -> Vec<String> {
    const LETTERS: [&str; 32] = [
        "s", "b", "S", "B", "ß", "t", "f", "x", " ", "\n", "\r", "\t", "_", "²", "½", "\u{200D}", "é",
        "\u{301}", "1", "2", "٣", ".", "文", "<", "\u{A0}", "\u{85}", "\u{2028}", "'", "ll", "ⓐ", "ﬆ", "’",
    ];
    let mut state = 1u64;
    let mut draw = |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    let mut text = || (0..1 + draw(12)).map(|_| LETTERS[draw(LETTERS.len())]).collect();
    let all = (1..=0xFFFF).filter_map(char::from_u32).filter(|c| *c != '|').collect();
    (0..3000).map(|_| text()).chain([all]).collect()
}

fn replaced(pattern: &str, texts: &[String]) -> Vec<String> {
    let replace = Replace::new(ReplacePattern::Regex(pattern.into()), "|").unwrap();
    let one = |text: &String| {
        let mut normalized = NormalizedString::from(text.as_str());
        replace.normalize(&mut normalized).unwrap();
        normalized.get().to_owned()
    };
    texts.iter().map(one).collect()
}

#[test]
fn patterns_that_are_taken_match_what_they_match_in_the_package() {
    let Some(python) = peer_python("base") else { return };
    let texts = texts();
    let mut child = Command::new(&python)
        .arg(in_workspace("tests/peers/replace_patterns.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(json!([&SAME[..], texts]).to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let theirs: Vec<Vec<String>> = serde_json::from_slice(&output.stdout).unwrap();
    for (pattern, theirs) in SAME.iter().zip(theirs) {
        for ((text, ours), theirs) in texts.iter().zip(replaced(pattern, &texts)).zip(theirs) {
            assert!(ours == theirs, "{pattern} in {:?}", text.chars().take(20).collect::<String>());
        }
    }
}
