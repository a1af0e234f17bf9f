//! Elements of a JSON file, parsed one by one, so that a broken one can be named and skipped.

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// The largest number up to which every whole one is a float of its own.
const MOST_EXACT: f64 = (1u64 << f64::MANTISSA_DIGITS) as f64;

/// What a file calls a record: a text, or a whole number by its digits, however many they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Name(String);

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.0
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Name, D::Error> {
        let raw = Box::<RawValue>::deserialize(from)?;
        match raw.get() {
            text if text.starts_with('"') => serde_json::from_str(text).map(Name).map_err(D::Error::custom),
            digits if is_whole(digits) => Ok(Name(digits.into())),
            _ => Err(D::Error::custom("a name is a text or a whole number")),
        }
    }
}

/// Whether a JSON value is a number without fraction and exponent.
pub(super) fn is_whole(value: &str) -> bool {
    let digits = value.strip_prefix('-').unwrap_or(value);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// A whole number from 0, be it written as one, with a fraction of nothing, as tables with gaps have it, or as a text.
pub(super) fn whole_number(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64().or_else(|| without_fraction(number.as_f64()?)),
        Value::String(text) => {
            let text = text.trim();
            text.parse().ok().or_else(|| without_fraction(text.parse().ok()?))
        }
        _ => None,
    }
}

fn without_fraction(number: f64) -> Option<u64> {
    (number.fract() == 0.0 && (0.0..=MOST_EXACT).contains(&number)).then_some(number as u64)
}

/// The lines that parts of a file begin on, for parts that are asked about in their order.
pub(super) struct Lines<'a> {
    file: &'a [u8],
    /// Bytes of it that have been looked at.
    to: usize,
    line: u64,
}

impl<'a> Lines<'a> {
    pub(super) fn of(file: &'a [u8]) -> Lines<'a> {
        Lines { file, to: 0, line: 1 }
    }

    /// The line, counted from 1, on which `part`, borrowed from the file, begins.
    pub(super) fn next(&mut self, part: &'a RawValue) -> u64 {
        let begin = part.get().as_ptr().addr().saturating_sub(self.file.as_ptr().addr());
        let passed = self.file.get(self.to..begin).unwrap_or_default();
        self.line += passed.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.to = self.to.max(begin);
        self.line
    }
}

/// What is wrong with a part, without the place that the error counts from the part's own beginning.
pub(super) fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.clone(), |(what, _)| what.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_on_their_lines() {
        let file = b"[1, 2,\n\n {\"a\":\n 3},\r\n\"x\"]";
        let parts: Vec<&RawValue> = serde_json::from_slice(file).unwrap();
        let mut lines = Lines::of(file);
        assert_eq!(parts.into_iter().map(|part| lines.next(part)).collect::<Vec<_>>(), [1, 1, 3, 5]);
    }

    #[test]
    fn names_are_texts_or_the_digits_of_whole_numbers() {
        let of = |json: &str| serde_json::from_str::<Name>(json).map(String::from);
        for digits in
            ["100", "-7", "9007199254740993", "18446744073709551616", "123456789012345678901234567890"]
        {
            assert_eq!(of(digits).unwrap(), digits);
        }
        assert_eq!(of(r#""a \u00e9""#).unwrap(), "a é");
        for wrong in ["1.5", "1e3", "null", "true", "[1]", "{}"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn whole_numbers_may_have_an_empty_fraction_or_be_texts() {
        let of = |json: &str| whole_number(&serde_json::from_str(json).unwrap());
        for json in ["24", "24.0", "2.4e1", "\"24\"", "\" 24.0 \""] {
            assert_eq!(of(json), Some(24), "{json}");
        }
        assert_eq!(of("18446744073709551615"), Some(u64::MAX));
        for json in
            ["24.5", "-1", "-1.0", "1e300", "\"x\"", "\"\"", "\"nan\"", "\"inf\"", "null", "true", "[24]"]
        {
            assert_eq!(of(json), None, "{json}");
        }
    }

    #[test]
    fn places_within_a_part_are_left_out() {
        let error = serde_json::from_str::<u8>("\n \"x\"").unwrap_err();
        assert_eq!(without_place(&error), "invalid type: string \"x\", expected u8");
    }
}
