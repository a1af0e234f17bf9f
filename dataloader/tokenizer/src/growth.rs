//! By how much the normaliser of a `tokenizer.json` may lengthen a text. A few lines of JSON can double it again and again.

use std::panic::{AssertUnwindSafe, catch_unwind};

use regex_syntax::hir::Hir;
use serde_json::Value;
use tokenizers::{NormalizedString, Normalizer, NormalizerWrapper};

/// Bytes that a normaliser may make of a byte, for all that is known of its steps. The chain of public tokenizers that may do most is that of XLNet and
/// ALBERT, compatibility forms (11), lower case (1.5) and a map whose longest entry has 33 bytes: 545, which no text comes near.
const MOST_GROWTH: f64 = 1024.0;
/// Bytes of the text that [`MOST_GROWTH`] is held against: what is put in front of a text counts, too.
const SAMPLE_BYTES: f64 = 1024.0;
/// The same for pre-tokenizers. Public ones turn bytes into characters (2) once.
const MOST_GROWTH_OF_WORDS: f64 = 4.0;
/// Bytes that a normaliser does make of each byte of a long text: spaces as `▁` (3), and as much again for a few other characters.
const MOST_MADE: usize = 4;
/// And those that it may make beside them: text of so many bytes is encoded in some hundred MiB.
const FREE_BYTES: usize = 1 << 20;
/// A long text is measured in pieces of so many bytes: they take little memory to normalise, and many are of ASCII alone.
const PIECE_BYTES: usize = 256;

/// Growth of UTF-8 text by Unicode's normal forms (Unicode FAQ, "What are the maximum expansion factors"), and by lower case (U+023A, of two bytes, has three).
const COMPOSED: f64 = 3.0;
const COMPATIBLE: f64 = 11.0;
const LOWER_CASE: f64 = 1.5;
/// Two spaces around each Chinese character, of three bytes at least.
const CHINESE: f64 = 5.0 / 3.0;
/// One byte as a character of its own.
const BYTE_AS_CHAR: f64 = 2.0;

/// A bound of the length that steps give a text, of all that they have in between, too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Growth {
    /// Bytes for each byte of the text.
    per_byte: f64,
    /// Bytes for each text.
    fixed: f64,
}

impl Growth {
    fn by(per_byte: f64) -> Growth {
        Growth { per_byte: per_byte.max(1.0), fixed: 0.0 }
    }

    fn then(self, next: Growth) -> Growth {
        Growth { per_byte: self.per_byte * next.per_byte, fixed: self.fixed * next.per_byte + next.fixed }
    }

    fn bound(self, bytes: f64) -> f64 {
        self.per_byte * bytes + self.fixed
    }

    /// Of a normaliser; refuses one that may lengthen a text too much.
    pub(crate) fn of_normalizer(normalizer: &Value) -> Result<Growth, String> {
        of_steps(normalizer, "normalizers").within(MOST_GROWTH, "normalizer")
    }

    /// Refuses a pre-tokenizer that may lengthen a text too much.
    pub(crate) fn check_pre_tokenizer(pre_tokenizer: &Value) -> Result<(), String> {
        of_steps(pre_tokenizer, "pretokenizers").within(MOST_GROWTH_OF_WORDS, "pre_tokenizer").map(|_| ())
    }

    fn within(self, most: f64, name: &str) -> Result<Growth, String> {
        let found = self.bound(SAMPLE_BYTES) / SAMPLE_BYTES;
        match found <= most {
            true => Ok(self),
            false => Err(format!(
                "its {name} may make {found:.0} bytes of each byte of a text, expected {most} at most\nhint: take the steps out of it \
                 that lengthen a text again and again"
            )),
        }
    }

    /// Refuses a text of which the normaliser makes more than encoding has memory for. `normalized` is the length that it gives a piece.
    pub(crate) fn check(
        self,
        text: &str,
        mut normalized: impl FnMut(&str) -> Result<usize, String>,
    ) -> Result<(), String> {
        let most = MOST_MADE * text.len() + FREE_BYTES;
        if self.bound(text.len() as f64) <= most as f64 {
            return Ok(());
        }
        let (mut made, mut rest) = (0, text);
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(piece_end(rest));
            made += normalized(piece)?;
            rest = behind;
            if made > most {
                return Err(format!(
                    "the tokenizer's normalizer makes more than {MOST_MADE} times the bytes of it\nhint: choose another tokenizer, or take \
                     the steps out of its normalizer that lengthen a text"
                ));
            }
        }
        Ok(())
    }
}

/// Whether a normaliser makes ASCII of ASCII, and no more of it than there was.
pub(crate) fn keeps_ascii(normalizer: &Value) -> bool {
    let steps = normalizer["normalizers"].as_array().map_or(&[][..], Vec::as_slice);
    let keeps = match normalizer["type"].as_str().unwrap_or_default() {
        "NFC" | "NFD" | "NFKC" | "NFKD" | "Lowercase" | "StripAccents" | "BertNormalizer" | "Strip"
        | "Nmt" | "Sequence" => true,
        "Replace" => {
            of_step(normalizer) == Growth::by(1.0)
                && normalizer["content"].as_str().is_some_and(str::is_ascii)
        }
        "Precompiled" => map_keeps_ascii(normalizer),
        _ => false,
    };
    keeps && steps.iter().all(keeps_ascii)
}

/// Whether a map of characters does. It is asked for one grapheme after the other: in ASCII, for characters and the end of a line.
fn map_keeps_ascii(step: &Value) -> bool {
    let Ok(map) = serde_json::from_value::<NormalizerWrapper>(step.clone()) else { return false };
    let keeps = |grapheme: &str| {
        let mut normalized = NormalizedString::from(grapheme);
        let made = catch_unwind(AssertUnwindSafe(|| map.normalize(&mut normalized).is_ok()));
        made.unwrap_or(false) && normalized.get().is_ascii() && normalized.get().len() <= grapheme.len()
    };
    ('\0'..='\x7f').all(|c| keeps(c.encode_utf8(&mut [0; 4]))) && keeps("\r\n")
}

/// Of a step, and of those that it consists of under the key `nested`, in order.
fn of_steps(step: &Value, nested: &str) -> Growth {
    let steps = step[nested].as_array().map_or(&[][..], Vec::as_slice);
    steps.iter().map(|inner| of_steps(inner, nested)).fold(of_step(step), Growth::then)
}

fn of_step(step: &Value) -> Growth {
    let length = |key: &str| step[key].as_str().map_or(0, str::len) as f64;
    match step["type"].as_str().unwrap_or_default() {
        "Replace" => of_replacement(&step["pattern"], length("content")),
        "Prepend" => Growth { per_byte: 1.0, fixed: length("prepend") },
        "NFC" | "NFD" => Growth::by(COMPOSED),
        "NFKC" | "NFKD" => Growth::by(COMPATIBLE),
        "Lowercase" => Growth::by(LOWER_CASE),
        "BertNormalizer" => Growth::by(COMPOSED * LOWER_CASE * CHINESE),
        "ByteLevel" => Growth::by(BYTE_AS_CHAR),
        "Precompiled" => Growth::by(of_map(step["precompiled_charsmap"].as_str().unwrap_or_default())),
        _ => Growth::by(1.0),
    }
}

/// Of `content` bytes in the place of each match.
fn of_replacement(pattern: &Value, content: f64) -> Growth {
    let shortest = match (pattern["String"].as_str(), pattern["Regex"].as_str()) {
        (Some(text), _) => text.len(),
        // What looks ahead or behind is not read there, and may match nothing at all.
        (None, Some(regex)) => {
            regex_syntax::parse(regex).map_or(0, |hir: Hir| hir.properties().minimum_len().unwrap_or(1))
        }
        (None, None) => 0,
    };
    match shortest {
        // In front of each byte, and at the end.
        0 => Growth { per_byte: 1.0 + content, fixed: content },
        bytes => Growth::by(content / bytes as f64),
    }
}

/// The longest entry of a map of characters: the size of its trie, the trie, and entries that end in zeros. One takes the place of a byte at least.
fn of_map(base64: &str) -> f64 {
    let blob = decode_base64(base64);
    let entries =
        blob.split_first_chunk::<4>().and_then(|(size, rest)| rest.get(u32::from_le_bytes(*size) as usize..));
    entries.unwrap_or_default().split(|byte| *byte == 0).map(<[u8]>::len).max().unwrap_or(0) as f64
}

/// Bytes in base 64, as the standard has it; what is of no digit ends them.
fn decode_base64(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits: Vec<u8> = text.bytes().map_while(digit).collect();
    let bytes = |four: &[u8]| {
        let bits = four
            .iter()
            .enumerate()
            .fold(0, |bits, (place, digit)| bits | u32::from(*digit) << (26 - 6 * place));
        bits.to_be_bytes().into_iter().take(four.len() * 6 / 8)
    };
    digits.chunks(4).flat_map(bytes).collect()
}

/// Where the first piece of a text ends that is measured by itself.
fn piece_end(text: &str) -> usize {
    let end = (1..=PIECE_BYTES).rev().find(|end| *end < text.len() && text.is_char_boundary(*end));
    end.filter(|_| text.len() > PIECE_BYTES).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;
    use serde_json::json;

    use super::*;

    /// Length that a normaliser gives a text.
    fn length(normalizer: &Value, text: &str) -> usize {
        let normalizer: NormalizerWrapper = serde_json::from_value(normalizer.clone()).unwrap();
        let mut normalized = NormalizedString::from(text);
        normalizer.normalize(&mut normalized).unwrap();
        normalized.get().len()
    }

    /// A map that has an entry for `a`.
    fn map(entry: &str) -> Value {
        let units = (0..256u32).map(|at| match at {
            // The root's children lie at their bytes, and the leaf of `a` one off.
            0 => 0,
            96 => 1 << 31,
            97 => 1 << 10 | 1 << 8 | 97,
            _ => 1 << 31 | 7,
        });
        let trie: Vec<u8> = units.flat_map(u32::to_le_bytes).collect();
        let blob = [&(trie.len() as u32).to_le_bytes()[..], &trie, entry.as_bytes(), &[0]].concat();
        json!({ "type": "Precompiled", "precompiled_charsmap": encode_base64(&blob) })
    }

    fn encode_base64(bytes: &[u8]) -> String {
        const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let digits = |three: &[u8]| {
            let bits = three
                .iter()
                .enumerate()
                .fold(0u32, |bits, (at, byte)| bits | u32::from(*byte) << (16 - 8 * at));
            let digit = |place: usize| DIGITS[(bits >> (18 - 6 * place)) as usize & 63] as char;
            (0..4).map(|place| if place <= three.len() { digit(place) } else { '=' }).collect::<String>()
        };
        bytes.chunks(3).map(digits).collect()
    }

    #[test]
    fn base64_is_that_of_the_standard() {
        // RFC 4648, section 10.
        for (text, bytes) in [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9vYmFy", "foobar")] {
            assert_eq!(decode_base64(text), bytes.as_bytes());
        }
        assert_eq!(decode_base64("+/8="), [0xFB, 0xFF]);
    }

    #[test]
    fn each_step_has_its_bound() {
        let replace = |pattern: Value, content: &str| json!({ "type": "Replace", "pattern": pattern, "content": content });
        let bound = |step: Value| of_steps(&step, "normalizers").bound(10.0);
        assert_eq!(bound(replace(json!({ "String": "ab" }), "abc")), 15.0);
        assert_eq!(bound(replace(json!({ "String": " " }), "▁")), 30.0);
        assert_eq!(bound(replace(json!({ "Regex": " {2,}" }), "▁")), 15.0);
        assert_eq!(bound(replace(json!({ "Regex": "a?" }), "bc")), 32.0);
        assert_eq!(bound(replace(json!({ "Regex": "a(?=b)" }), "c")), 21.0);
        assert_eq!(bound(replace(json!({ "Regex": "é" }), "")), 10.0);
        assert_eq!(bound(json!({ "type": "Prepend", "prepend": "▁" })), 13.0);
        assert_eq!(bound(map("abcdefg")), 70.0);
        assert_eq!(length(&map("abcdefg"), "aab"), 15);
        assert_eq!(
            bound(json!({ "type": "Sequence", "normalizers": [
            { "type": "Prepend", "prepend": "ab" }, { "type": "ByteLevel" }, { "type": "Prepend", "prepend": "a" },
        ] })),
            25.0
        );
    }

    #[test]
    fn a_text_is_cut_in_pieces_that_are_it_again() {
        for text in ["", "a", &"é".repeat(127), &"é".repeat(128), &"aé".repeat(2000), &"文".repeat(1000)]
        {
            let (mut rest, mut again) = (text, String::new());
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at(piece_end(rest));
                assert!(!piece.is_empty() && piece.len() <= PIECE_BYTES);
                again.push_str(piece);
                rest = behind;
            }
            assert_eq!(text, again);
        }
    }

    /// Steps of all kinds.
    fn steps() -> impl Strategy<Value = Value> {
        let replace = |(kind, pattern, content): (&str, &str, String)| json!({ "type": "Replace", "pattern": { kind: pattern }, "content": content });
        let patterns = select(vec!["a", "ab", "é", " ", "A"]);
        // None that matches nothing: the crate takes no step behind one.
        let regexes = select(vec!["a", "a+", "[ab]{2}", "\\s+(?!\\S)", "\\p{L}", "."]);
        let named = ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "ByteLevel"];
        let bert = |(clean, chinese, strip, lower): (bool, bool, bool, bool)| {
            json!({ "type": "BertNormalizer", "clean_text": clean, "handle_chinese_chars": chinese, "strip_accents": strip,
                    "lowercase": lower })
        };
        prop_oneof![
            select(named.to_vec()).prop_map(|name| json!({ "type": name })),
            any::<(bool, bool, bool, bool)>().prop_map(bert),
            (Just("String"), patterns, "[abé ﷺ]{0,4}").prop_map(replace),
            (Just("Regex"), regexes, "[abé ﷺ]{0,4}").prop_map(replace),
            "[aé▁]{1,3}".prop_map(|prepend| json!({ "type": "Prepend", "prepend": prepend })),
            "[abﷺ]{1,5}".prop_map(|entry| map(&entry)),
        ]
    }

    #[test]
    fn maps_keep_ascii_that_make_no_more_of_it() {
        assert!(keeps_ascii(&map("b")) && keeps_ascii(&map("")));
        assert!(!keeps_ascii(&map("bc")) && !keeps_ascii(&map("é")));
        assert!(!keeps_ascii(
            &json!({ "type": "Sequence", "normalizers": [{ "type": "NFC" }, { "type": "ByteLevel" }] })
        ));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_text_is_longer_than_the_bound(
            steps in prop::collection::vec(steps(), 0..4), text in "([abAé Ⱥİΐﷺᾂ文\\u{1D160}\\n]|\\PC){0,20}",
        ) {
            let normalizer = json!({ "type": "Sequence", "normalizers": steps });
            let bound = of_steps(&normalizer, "normalizers").bound(text.len() as f64);
            prop_assert!(length(&normalizer, &text) as f64 <= bound, "{}", normalizer);
            let ascii: String = text.chars().filter(char::is_ascii).collect();
            prop_assert!(!keeps_ascii(&normalizer) || length(&normalizer, &ascii) <= ascii.len(), "{}", normalizer);
        }
    }
}
