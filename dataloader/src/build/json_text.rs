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
}
