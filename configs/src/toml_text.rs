//! TOML as text: recipes, studies, sweeps, machines, and the values of overrides.

use std::path::Path;

use serde::de::DeserializeOwned;
use toml::de::{DeInteger, DeTable, DeValue};

use crate::ConfigError;

/// The numbers that a key can hold at all; its own range is narrower.
const WHOLE: &str = "whole numbers go from -9223372036854775808 to 18446744073709551615";
const REAL: &str = "numbers go from -1.8e308 to 1.8e308";

/// The text of a file of settings.
pub(crate) fn read_text(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|source| match source.kind() {
        std::io::ErrorKind::InvalidData => {
            ConfigError::Syntax { origin: path.display().to_string(), message: "it is not UTF-8".into() }
        }
        _ => ConfigError::Missing { path: path.into(), source },
    })
}

/// Reads a file of settings, `origin`.
pub(crate) fn parse<T: DeserializeOwned>(text: &str, origin: &str) -> Result<T, ConfigError> {
    toml::from_str(text).map_err(|error| {
        let of_line = |(line, why)| format!("line {line}: {why}");
        let message = out_of_range(text).map_or_else(|| error.to_string(), of_line);
        ConfigError::Syntax { origin: origin.into(), message }
    })
}

/// The first number of a TOML text that no key can hold: its line, and what is wrong with it.
pub(crate) fn out_of_range(text: &str) -> Option<(usize, String)> {
    let table = DeTable::parse(text).ok()?;
    let mut values: Vec<_> = table.get_ref().values().collect();
    let mut wrong = Vec::new();
    while let Some(value) = values.pop() {
        match value.get_ref() {
            DeValue::Integer(number) if !is_held(number) => {
                wrong.push((value.span().start, number.to_string(), WHOLE))
            }
            DeValue::Float(number) if is_too_large(number.as_str()) => {
                wrong.push((value.span().start, number.to_string(), REAL));
            }
            DeValue::Array(array) => values.extend(array.iter()),
            DeValue::Table(table) => values.extend(table.values()),
            _ => {}
        }
    }
    let (at, number, range) = wrong.into_iter().min()?;
    let line = 1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count();
    Some((line, format!("number out of range: {number}, where {range}")))
}

fn is_held(number: &DeInteger<'_>) -> bool {
    let (digits, radix) = (number.as_str(), number.radix());
    i64::from_str_radix(digits, radix).is_ok() || u64::from_str_radix(digits, radix).is_ok()
}

fn is_too_large(number: &str) -> bool {
    !number.contains("inf") && number.parse::<f64>().is_ok_and(f64::is_infinite)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_number_that_no_key_can_hold_is_told_with_its_line_and_the_range() {
        let of = |text: &str| parse::<Value>(text, "a.toml").unwrap_err().to_string();
        for (number, range) in [
            ("99999999999999999999", "from -9223372036854775808 to 18446744073709551615"),
            ("-9223372036854775809", "from -9223372036854775808 to 18446744073709551615"),
            ("1e999", "from -1.8e308 to 1.8e308"),
            ("999999999999999999999999999999999999999999999", "from -9223372036854775808"),
        ] {
            for text in [format!("[a]\nb = {number}\n"), format!("[a]\nb = [1, {{ c = {number} }}]\n")] {
                let message = of(&text);
                let why = format!("a.toml cannot be parsed: line 2: number out of range: {number}, where ");
                assert!(message.starts_with(&why) && message.contains(range), "{message}");
            }
        }
        assert_eq!(parse::<Value>("a = 18446744073709551615", "a.toml").unwrap()["a"], u64::MAX);
        assert!(of("[a\n").contains("line 1") && !of("[a\n").contains("out of range"));
        assert_eq!(out_of_range("a = inf\nb = \"1e999\"\nc = 0xFF\n"), None);
    }
}
