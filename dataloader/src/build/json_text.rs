use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

/// The string of a JSON object under a name. A dot in the name goes into an object inside, unless a key has the dot
/// itself.
pub(crate) fn text_of_record<'t>(line: &'t [u8], name: &str) -> serde_json::Result<Cow<'t, str>> {
    let mut json = serde_json::Deserializer::from_slice(line);
    let text = Member { name }.deserialize(&mut json)?;
    json.end()?;
    text.ok_or_else(|| Error::custom(format_args!("missing field `{name}`")))
}

/// A line with U+FFFD for each sequence of bytes that is not UTF-8 and for each escape of half a surrogate pair, which
/// Python's `json.dumps` writes; and the number of both.
pub(crate) fn repaired(line: &[u8]) -> (String, u64) {
    let mut text = String::from_utf8_lossy(line).into_owned();
    let mut replaced = line.utf8_chunks().filter(|chunk| !chunk.invalid().is_empty()).count() as u64;
    let mut at = 0;
    while let Some(found) = text[at..].find('\\') {
        at += found;
        let next = text.get(at + ESCAPE..).unwrap_or_default();
        at += match (escaped_unit(&text[at..]), escaped_unit(next)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => 2 * ESCAPE,
            (Some(0xD800..=0xDFFF), _) => {
                text.replace_range(at..at + ESCAPE, "\\ufffd");
                replaced += 1;
                ESCAPE
            }
            // A backslash that is escaped begins no escape.
            _ if text[at + 1..].starts_with('\\') => 2,
            _ => 1,
        };
    }
    (text, replaced)
}

/// Bytes of an escape such as `\u00e9`.
const ESCAPE: usize = 6;

/// The UTF-16 unit of the escape that a text begins with.
fn escaped_unit(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u32::from_str_radix(digits, 16).ok().filter(|_| is_hex)
}

/// Text that is borrowed from its line where it has no escapes.
#[derive(Deserialize)]
struct Text<'t>(#[serde(borrow)] Cow<'t, str>);

/// The member of an object that a name leads to; `None` where there is none.
#[derive(Clone, Copy)]
struct Member<'n> {
    name: &'n str,
}

impl<'t> DeserializeSeed<'t> for Member<'_> {
    type Value = Option<Cow<'t, str>>;

    fn deserialize<D: Deserializer<'t>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'t> Visitor<'t> for Member<'_> {
    type Value = Option<Cow<'t, str>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let nested = self.name.split_once('.');
        let (mut whole, mut inner) = (None, None);
        while let Some(Text(key)) = members.next_key()? {
            if key == self.name {
                let Text(text) = members.next_value()?;
                if whole.replace(text).is_some() {
                    return Err(Error::custom(format_args!("duplicate field `{key}`")));
                }
            } else if let Some((_, name)) = nested.filter(|(outer, _)| key == *outer) {
                inner = members.next_value_seed(Member { name })?;
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(whole.or(inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_into_objects_and_whole_names_come_first() {
        let found = |line: &str, name: &str| text_of_record(line.as_bytes(), name).map(Cow::into_owned);
        let line = r#"{"id": [1], "text": "a\nb", "meta": {"body": {"x": "c"}, "é.é": "d"}}"#;
        assert_eq!(found(line, "text").unwrap(), "a\nb");
        assert_eq!(found(line, "meta.body.x").unwrap(), "c");
        assert_eq!(found(line, "meta.é.é").unwrap(), "d");
        assert_eq!(found(r#"{"a": {"b": "inner"}, "a.b": "whole"}"#, "a.b").unwrap(), "whole");
        assert!(matches!(text_of_record(br#"{"text": "plain"}"#, "text").unwrap(), Cow::Borrowed("plain")));
        for (line, name, why) in [
            ("{}", "text", "missing field `text`"),
            (r#"{"meta": {}}"#, "meta.body", "missing field `meta.body`"),
            (r#"{"meta": "x"}"#, "meta.body", "expected an object"),
            (r#"{"text": null}"#, "text", "invalid type: null"),
            (r#"{"text": "a", "text": "b"}"#, "text", "duplicate field `text`"),
            (r#"{"text": "a"} x"#, "text", "trailing characters"),
            (r#"["a"]"#, "text", "expected an object"),
        ] {
            let error = found(line, name).unwrap_err().to_string();
            assert!(error.contains(why), "{line}: {error}");
        }
    }

    #[test]
    fn what_is_not_text_is_replaced_and_nothing_else() {
        let check = |line: &[u8], expected: &str, count: u64| {
            let shown = String::from_utf8_lossy(line);
            assert_eq!(repaired(line), (expected.to_string(), count), "{shown}");
        };
        for text in [r#"{"a": "\ud83d\ude00 \u00e9 \\ud800 \n"}"#, r"\ud80 \u \u+d80 \ud8", "\\é\\"] {
            check(text.as_bytes(), text, 0);
        }
        check(br"\ud800", r"\ufffd", 1);
        check(br"\uDC00\ud83d\ud83d\ude00\\\udfff", r"\ufffd\ufffd\ud83d\ude00\\\ufffd", 3);
        check(br"\ud83d\n\ud83d\u0041", r"\ufffd\n\ufffd\u0041", 2);
        check(b"caf\xe9 \xe2\x82 \\ud800", "caf\u{FFFD} \u{FFFD} \\ufffd", 3);
        check(b"\\\xe9\\ud800", "\\\u{FFFD}\\ufffd", 2);
    }
}
