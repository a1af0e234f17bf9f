//! Ranges of numbers. A range is declared once, at its key; reading a configuration checks it and the reference
//! prints it.
//!
//! ```ignore
//! #[schemars(transform = Range::at_least(1))]
//! pub steps: u64,
//! ```
//!
//! What is computed with is computed with in single precision, whatever a key is read as: a number with a fraction has to lie in its range there too,
//! and to be neither infinite nor a zero that it is not.
//!
//! A whole number without an upper bound of its own, unless it is [`Range::any`], is at most [`MOST`]: sums of such numbers stay far inside 64 bits.

use std::any::TypeId;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, transform::Transform};
use serde::Serialize;
use serde_json::{Number, Value};

use crate::ConfigError;

/// The most of anything that a key counts.
pub const MOST: u64 = 1 << 40;
/// The most lanes, or tokens of a lane, that a step or an evaluation reads.
pub const MOST_READ: u64 = 1 << 24;

/// Marks a number that may be anything.
const ANY: &str = "x-any";
/// Marks a number that is used in double precision alone, such as one of seconds.
const DOUBLE: &str = "x-double";
/// What to say of a number below or above its range, where that is more than the range itself.
const TOO_SMALL: &str = "x-too-small";
const TOO_LARGE: &str = "x-too-large";

/// The numbers that a key may have, in the words of JSON Schema.
#[derive(Debug, Clone, PartialEq)]
pub struct Range(Vec<(&'static str, Value)>);

impl Range {
    /// Every number of the key's type.
    pub fn any() -> Self {
        Self(vec![(ANY, true.into())])
    }

    /// From `low` on.
    pub fn at_least(low: impl Into<Value>) -> Self {
        Self(vec![("minimum", low.into())])
    }

    /// Larger than `low`.
    pub fn above(low: impl Into<Value>) -> Self {
        Self(vec![("exclusiveMinimum", low.into())])
    }

    /// Up to `high`, included.
    pub fn at_most(self, high: impl Into<Value>) -> Self {
        self.with("maximum", high.into())
    }

    /// Smaller than `high`.
    pub fn below(self, high: impl Into<Value>) -> Self {
        self.with("exclusiveMaximum", high.into())
    }

    /// Lanes, or tokens of one, from `low` on.
    pub fn read(low: impl Into<Value>) -> Self {
        Self::at_least(low).at_most(MOST_READ)
    }

    /// Of a number that nothing computes with in single precision.
    pub fn in_double(self) -> Self {
        self.with(DOUBLE, true.into())
    }

    /// Says this of smaller numbers.
    pub fn or_too_small(self, why: &str) -> Self {
        self.with(TOO_SMALL, why.into())
    }

    /// Says this of larger numbers.
    pub fn or_too_large(self, why: &str) -> Self {
        self.with(TOO_LARGE, why.into())
    }

    fn with(mut self, word: &'static str, value: Value) -> Self {
        self.0.push((word, value));
        self
    }
}

impl Transform for Range {
    fn transform(&mut self, schema: &mut Schema) {
        for (word, value) in &self.0 {
            schema.insert(word.to_string(), value.clone());
        }
    }
}

/// The JSON Schema of a section: its keys with type, range and text, `required` naming them in their order.
pub(crate) fn schema_of<T: JsonSchema + 'static>() -> &'static Value {
    // To make one takes much longer than to check by it; there are as many as sections.
    static MADE: LazyLock<Mutex<HashMap<TypeId, &'static Value>>> = LazyLock::new(Mutex::default);
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    made.entry(TypeId::of::<T>()).or_insert_with(|| {
        let settings =
            SchemaSettings::draft2020_12().for_serialize().with(|settings| settings.inline_subschemas = true);
        Box::leak(Box::new(settings.into_generator().into_root_schema_for::<T>().to_value()))
    })
}

/// Checks every number of a section against the range at its key.
pub fn check<T: JsonSchema + Serialize + 'static>(section: &str, values: &T) -> Result<(), ConfigError> {
    check_by(schema_of::<T>(), section, values)
}

/// The same by the section's schema.
pub(crate) fn check_by<T: Serialize>(schema: &Value, section: &str, values: &T) -> Result<(), ConfigError> {
    let values = serde_json::to_value(values).unwrap_or_default();
    let Some(properties) = schema["properties"].as_object() else { return Ok(()) };
    for (key, property) in properties {
        let refuse = |value: String, why: String| ConfigError::OutOfRange {
            key: format!("{section}.{key}"),
            value,
            why,
        };
        match &values[key] {
            Value::Number(number) => {
                Bounds::of(property).check(number).map_err(|why| refuse(plain(number), why))?
            }
            // JSON has no word for what is not finite.
            Value::Null if property["type"] == "number" => {
                return Err(refuse("what is not a finite number".into(), "must be a finite number".into()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The range of a property as the reference prints it; none of what is not a number.
pub(crate) fn describe(property: &Value) -> Option<String> {
    Bounds::of(property).describe()
}

struct Bound {
    value: Number,
    /// Whether the bound itself lies outside.
    open: bool,
}

struct Bounds<'a> {
    property: &'a Value,
    low: Option<Bound>,
    high: Option<Bound>,
}

impl<'a> Bounds<'a> {
    fn of(property: &'a Value) -> Self {
        let bound = |closed: &str, open: &str| {
            let of = |word: &str, open| property[word].as_number().map(|n| Bound { value: n.clone(), open });
            of(open, true).or_else(|| of(closed, false))
        };
        let (low, high) = (bound("minimum", "exclusiveMinimum"), bound("maximum", "exclusiveMaximum"));
        let most = || Bound { value: MOST.into(), open: false };
        let counts = is_whole(property) && property[ANY] != true;
        Self { property, low, high: high.or_else(|| counts.then(most)) }
    }

    fn whole(&self) -> bool {
        is_whole(self.property)
    }

    fn check(&self, number: &Number) -> Result<(), String> {
        self.check_range(number)?;
        let (Some(value), false) = (number.as_f64(), self.whole() || self.property[DOUBLE] == true) else {
            return Ok(());
        };
        let single = value as f32;
        let is_at = |bound: &Option<Bound>| {
            let bound = bound.as_ref().filter(|bound| bound.open).and_then(|bound| bound.value.as_f64());
            bound.is_some_and(|bound| bound as f32 == single)
        };
        let lost = !counts_in_single(value) || is_at(&self.low) || is_at(&self.high);
        if lost { Err(format!("in single precision it is {single}")) } else { Ok(()) }
    }

    fn check_range(&self, number: &Number) -> Result<(), String> {
        let outside = |bound: &Bound, wrong: Ordering| {
            let order = compare(number, &bound.value);
            order == wrong || (bound.open && order == Ordering::Equal)
        };
        let why = |word: &str, plainly: &dyn Fn() -> String| {
            Err(self.property[word].as_str().map(str::to_string).unwrap_or_else(plainly))
        };
        match (&self.low, &self.high) {
            (Some(low), _) if outside(low, Ordering::Less) => why(TOO_SMALL, &|| self.low_in_words(low)),
            (_, Some(high)) if outside(high, Ordering::Greater) => {
                why(TOO_LARGE, &|| self.high_in_words(high))
            }
            _ => Ok(()),
        }
    }

    fn low_in_words(&self, low: &Bound) -> String {
        let value = plain(&low.value);
        match (low.open, self.whole()) {
            (_, false) if self.high.is_some() => self.interval_in_words(),
            (true, _) if value == "0" => "must be positive".into(),
            (true, _) => format!("must be above {value}"),
            (false, true) => format!("must be at least {value}"),
            (false, false) => format!("must be {value} or more"),
        }
    }

    fn high_in_words(&self, high: &Bound) -> String {
        let value = plain(&high.value);
        match (high.open, self.whole()) {
            (_, false) if self.low.is_some() => self.interval_in_words(),
            (true, _) => format!("must be below {value}"),
            (false, _) => format!("must be at most {value}"),
        }
    }

    fn interval_in_words(&self) -> String {
        format!("must lie in {}", self.describe().unwrap_or_default())
    }

    fn describe(&self) -> Option<String> {
        let text = |bound: &Bound| short(&bound.value);
        Some(match (&self.low, &self.high) {
            (Some(low), Some(high)) if self.whole() && !low.open && !high.open => {
                format!("{} to {}", text(low), text(high))
            }
            (Some(low), Some(high)) => {
                let (left, right) = (if low.open { '(' } else { '[' }, if high.open { ')' } else { ']' });
                format!("{left}{}, {}{right}", text(low), text(high))
            }
            (Some(low), None) => format!("{} {}", if low.open { '>' } else { '≥' }, text(low)),
            (None, Some(high)) => format!("{} {}", if high.open { '<' } else { '≤' }, text(high)),
            (None, None) if self.property[ANY] == true => "any".into(),
            (None, None) => return None,
        })
    }
}

fn is_whole(property: &Value) -> bool {
    let kind = &property["type"];
    kind == "integer" || kind[0] == "integer"
}

/// Whether single precision has room for a number: it is finite there, and no zero unless it is one.
pub(crate) fn counts_in_single(value: f64) -> bool {
    let single = value as f32;
    single.is_finite() && (single == 0.0) == (value == 0.0)
}

/// Whole numbers are compared as such: a float has no room for all of 64 bits.
fn compare(a: &Number, b: &Number) -> Ordering {
    let whole = |n: &Number| n.as_i64().map(i128::from).or_else(|| n.as_u64().map(i128::from));
    match (whole(a), whole(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => {
            let float = |n: &Number| n.as_f64().unwrap_or(f64::NAN);
            float(a).total_cmp(&float(b))
        }
    }
}

/// A number without an exponent or a fraction of zero, unless it is long.
fn plain(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() => shortened(float.to_string()),
        _ => number.to_string(),
    }
}

/// A value as messages repeat it: a number of more digits than anybody counts has an exponent.
pub(crate) fn shortened(value: String) -> String {
    const LONGEST: usize = 40;
    match value.parse::<f64>() {
        Ok(number) if value.len() > LONGEST => format!("{number:e}"),
        _ => value,
    }
}

/// The same, with long powers of two as such.
fn short(number: &Number) -> String {
    const LONG: u64 = 1 << 20;
    let power = |n: u64| {
        let digits = n.ilog2().to_string();
        let raised = |c: char| c.to_digit(10).and_then(|d| "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().nth(d as usize));
        format!("2{}", digits.chars().filter_map(raised).collect::<String>())
    };
    match number.as_u64() {
        Some(n) if n >= LONG && n.is_power_of_two() => power(n),
        Some(n) if n >= LONG && n != u64::MAX && (n + 1).is_power_of_two() => format!("{} − 1", power(n + 1)),
        _ => plain(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of every kind.
    #[derive(Serialize, JsonSchema)]
    struct Numbers {
        #[schemars(transform = Range::at_least(1))]
        count: u64,
        #[schemars(transform = Range::at_least(0).at_most(i64::MAX).or_too_large("63 bits"))]
        seed: u64,
        #[schemars(transform = Range::above(0.0))]
        rate: f64,
        #[schemars(transform = Range::at_least(0.0).below(1.0))]
        share: f64,
        #[schemars(transform = Range::any())]
        offset: i64,
        untold: f64,
        #[schemars(transform = Range::at_least(0.0).in_double())]
        seconds: f64,
        width: usize,
    }

    const GOOD: Numbers = Numbers {
        count: 1,
        seed: i64::MAX as u64,
        rate: 1e-9,
        share: 0.0,
        offset: -3,
        untold: -1.0,
        seconds: 0.0,
        width: 0,
    };

    #[test]
    fn what_lies_outside_is_refused_with_its_range() {
        check("s", &GOOD).unwrap();
        for (wrong, message) in [
            (Numbers { count: 0, ..GOOD }, "`s.count` = 0 is invalid: must be at least 1"),
            (
                Numbers { width: usize::MAX, ..GOOD },
                "`s.width` = 18446744073709551615 is invalid: must be at most 1099511627776",
            ),
            (Numbers { seed: 1 << 63, ..GOOD }, "`s.seed` = 9223372036854775808 is invalid: 63 bits"),
            (Numbers { rate: 0.0, ..GOOD }, "`s.rate` = 0 is invalid: must be positive"),
            (
                Numbers { rate: -1e30, ..GOOD },
                "`s.rate` = -1000000000000000000000000000000 is invalid: must be positive",
            ),
            (Numbers { rate: -1e300, ..GOOD }, "`s.rate` = -1e300 is invalid: must be positive"),
            (Numbers { share: 1.0, ..GOOD }, "`s.share` = 1 is invalid: must lie in [0, 1)"),
            (Numbers { share: -0.5, ..GOOD }, "`s.share` = -0.5 is invalid: must lie in [0, 1)"),
        ] {
            assert_eq!(check("s", &wrong).unwrap_err().to_string(), message);
        }
        for wrong in [f64::NAN, f64::INFINITY] {
            assert!(
                check("s", &Numbers { untold: wrong, ..GOOD }).unwrap_err().to_string().contains("s.untold")
            );
        }
    }

    #[test]
    fn what_single_precision_has_no_room_for_is_refused() {
        let least = f64::from(f32::from_bits(1));
        for (wrong, message) in [
            (Numbers { rate: 1e-46, ..GOOD }, "is invalid: in single precision it is 0"),
            (Numbers { rate: 3.5e38, ..GOOD }, "is invalid: in single precision it is inf"),
            (Numbers { untold: -1e39, ..GOOD }, "is invalid: in single precision it is -inf"),
            (Numbers { share: 1.0 - 1e-9, ..GOOD }, "is invalid: in single precision it is 1"),
            (Numbers { share: 1e-50, ..GOOD }, "is invalid: in single precision it is 0"),
        ] {
            let found = check("s", &wrong).unwrap_err().to_string();
            assert!(found.ends_with(message), "{found}");
        }
        for good in [
            Numbers { rate: least, ..GOOD },
            Numbers { rate: f64::from(f32::MAX), untold: f64::from(f32::MIN), ..GOOD },
            Numbers { share: 1.0 - 1e-7, ..GOOD },
            Numbers { seconds: 1e300, ..GOOD },
            Numbers { seconds: 1e-300, ..GOOD },
        ] {
            check("s", &good).unwrap();
        }
    }

    #[test]
    fn ranges_are_printed_as_they_are_declared() {
        let schema = schema_of::<Numbers>();
        let printed = |key: &str| describe(&schema["properties"][key]);
        let expected = ["1 to 2⁴⁰", "0 to 2⁶³ − 1", "> 0", "[0, 1)", "any"];
        let keys = ["count", "seed", "rate", "share", "offset"];
        assert_eq!(keys.map(|key| printed(key).unwrap()), expected);
        assert_eq!((printed("untold"), printed("width").as_deref()), (None, Some("0 to 2⁴⁰")));
    }
}
