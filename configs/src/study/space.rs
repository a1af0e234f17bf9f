//! What a study looks among: parameters of several scales, and how a point of the unit cube becomes settings.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::range::Range;

/// Where a parameter that does not apply lies, so that all points without it are one.
const NOWHERE: f64 = 0.5;
/// Share of a range within which a value counts as lying at its end.
const EDGE: f64 = 0.02;
/// Beyond this, neighbouring whole numbers are the same float.
const MOST_WHOLE: f64 = (1u64 << 53) as f64;

/// How the values of a parameter are spaced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Evenly.
    #[default]
    Linear,
    /// Their logarithms evenly; `low` has to be positive.
    Log,
    /// Whole numbers, both ends among them.
    Integer,
}

/// `[[parameter]]`: a configuration key and the values it may have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// Configuration key, by dotted name.
    pub key: String,
    /// Lowest value that is drawn.
    #[schemars(transform = Range::any())]
    pub low: f64,
    /// Highest value that is drawn, above `low`.
    #[schemars(transform = Range::any())]
    pub high: f64,
    /// How the values are spaced.
    #[serde(default)]
    pub scale: Scale,
    /// Values drawn below count as this one: all of them are the same setting.
    #[schemars(transform = Range::any())]
    pub floor: Option<f64>,
    /// Values drawn above count as this one.
    #[schemars(transform = Range::any())]
    pub ceiling: Option<f64>,
    /// The parameter applies only where another one, further up in the file, is large enough. Elsewhere its key is left as it is.
    pub when: Option<Condition>,
}

/// `[parameter.when]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// Key of the other parameter.
    pub key: String,
    /// The lowest value of it at which this one applies.
    #[schemars(transform = Range::any())]
    pub at_least: f64,
}

impl Parameter {
    fn check(&self, earlier: &[Parameter]) -> Result<(), String> {
        let ends = [Some(self.low), Some(self.high), self.floor, self.ceiling];
        let not = |what: &str| Err(format!("parameter `{}`: {what}", self.key));
        if ends.iter().flatten().any(|end| !end.is_finite()) || !(self.high - self.low).is_finite() {
            return not("its values are not finite");
        }
        if self.low >= self.high {
            return not(&format!("`low` is {} and `high` is {}, which is not above it", self.low, self.high));
        }
        let clamps = [self.floor, self.ceiling];
        if clamps.iter().flatten().any(|clamp| !(self.low..=self.high).contains(clamp)) {
            return not("`floor` and `ceiling` have to lie between `low` and `high`");
        }
        if matches!(clamps, [Some(floor), Some(ceiling)] if floor >= ceiling) {
            return not("`floor` has to be below `ceiling`");
        }
        match self.scale {
            Scale::Log if self.low <= 0.0 => return not("`low` has to be positive on a log scale"),
            Scale::Integer if ends.iter().flatten().any(|e| e.fract() != 0.0 || e.abs() > MOST_WHOLE) => {
                return not("its values are not whole numbers of up to 53 bits");
            }
            _ => {}
        }
        match &self.when {
            Some(when) if !earlier.iter().any(|p| p.key == when.key) => {
                let hint = "name a [[parameter]] that stands further up";
                not(&format!(
                    "its condition names `{}`, which is no earlier parameter\nhint: {hint}",
                    when.key
                ))
            }
            Some(when) if !when.at_least.is_finite() => not("the limit of its condition is not finite"),
            _ => Ok(()),
        }
    }

    /// The value at `place` in [0, 1] of its range.
    fn value(&self, place: f64) -> f64 {
        let place = place.clamp(0.0, 1.0);
        let drawn = match self.scale {
            Scale::Linear => rounded(self.low + place * (self.high - self.low)),
            Scale::Log => rounded((self.low.ln() + place * self.span()).exp()),
            Scale::Integer => self.low + (place * self.count()).floor(),
        };
        let drawn = drawn.clamp(self.low, self.high);
        drawn.max(self.floor.unwrap_or(drawn)).min(self.ceiling.unwrap_or(f64::INFINITY))
    }

    /// The place in [0, 1] that stands for `value`: of whole numbers the middle of theirs.
    fn place(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value.ln() - self.low.ln()) / self.span(),
            Scale::Integer => (value - self.low + 0.5) / self.count(),
        }
    }

    /// On a log scale, from end to end.
    fn span(&self) -> f64 {
        self.high.ln() - self.low.ln()
    }

    fn count(&self) -> f64 {
        self.high - self.low + 1.0
    }

    /// The value as a configuration has it.
    fn text(&self, value: f64) -> String {
        match self.scale {
            Scale::Integer => format!("{}", value as i64),
            Scale::Linear | Scale::Log => format!("{value:?}"),
        }
    }
}

/// To six digits: people type what a study has found, and no end of a range is missed by the last bit.
fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// The parameters of a study. Points are in the unit cube, a coordinate for each parameter.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Space(Vec<Parameter>);

impl Space {
    /// Checks ranges, clamps and conditions. What is wrong comes as a message with [advice](crate::advice).
    pub fn new(parameters: Vec<Parameter>) -> Result<Self, String> {
        crate::unique::check_unique("keys of parameters", parameters.iter().map(|p| p.key.clone()))?;
        for (i, parameter) in parameters.iter().enumerate() {
            parameter.check(&parameters[..i])?;
        }
        Ok(Self(parameters))
    }

    /// The parameters, in the order of the file.
    pub fn parameters(&self) -> &[Parameter] {
        &self.0
    }

    /// The value of each parameter at a point; none where it does not apply.
    pub fn values(&self, point: &[f64]) -> Vec<Option<f64>> {
        let mut values: Vec<Option<f64>> = Vec::with_capacity(self.0.len());
        for (parameter, place) in self.0.iter().zip(point) {
            let applies = parameter.when.as_ref().is_none_or(|when| {
                let known = self.0.iter().zip(&values).find(|(other, _)| other.key == when.key);
                known.and_then(|(_, value)| *value).is_some_and(|value| value >= when.at_least)
            });
            values.push(applies.then(|| parameter.value(*place)));
        }
        values
    }

    /// The parameters that lie at an end of their range at a point, by key, with the value there and what the end is called. An end that a clamp
    /// holds is meant to be one.
    pub fn at_edges(&self, point: &[f64]) -> Vec<(String, String, &'static str)> {
        let known = self.0.iter().zip(self.values(point));
        let edge = |(p, value): (&Parameter, Option<f64>)| {
            let value = value?;
            // Of whole numbers the middle of the last one lies half a number from the end.
            let near = if p.scale == Scale::Integer { 0.5 / p.count() } else { EDGE };
            let end = match p.place(value) {
                place if place <= near && p.floor.is_none() => "low",
                place if place >= 1.0 - near && p.ceiling.is_none() => "high",
                _ => return None,
            };
            Some((p.key.clone(), p.text(value), end))
        };
        known.filter_map(edge).collect()
    }

    /// The one point that stands for all with the settings of this one.
    pub fn canonical(&self, point: &[f64]) -> Vec<f64> {
        let place = |(parameter, value): (&Parameter, Option<f64>)| {
            value.map_or(NOWHERE, |value| parameter.place(value))
        };
        self.0.iter().zip(self.values(point)).map(place).collect()
    }

    /// The settings of a point, by key, as texts of a configuration. Parameters that do not apply are left out.
    pub fn settings(&self, point: &[f64]) -> Vec<(String, String)> {
        let known = self.0.iter().zip(self.values(point));
        known.filter_map(|(p, value)| Some((p.key.clone(), p.text(value?)))).collect()
    }

    /// The point in the middle of all ranges, with parameter `moved` at `place`. Where that does not apply in the middle of those it depends on, these
    /// lie at their upper ends.
    pub(super) fn middle_but(&self, moved: usize, place: f64) -> Vec<f64> {
        let mut point: Vec<f64> =
            (0..self.0.len()).map(|i| if i == moved { place } else { NOWHERE }).collect();
        let mut inner = moved;
        while let Some((parent, when)) = self.condition_of(inner) {
            if self.0[parent].value(point[parent]) < when.at_least {
                point[parent] = 1.0;
            }
            inner = parent;
        }
        point
    }

    /// The parameter that another one depends on, which stands further up, and how.
    fn condition_of(&self, of: usize) -> Option<(usize, &Condition)> {
        let when = self.0[of].when.as_ref()?;
        Some((self.0[..of].iter().position(|parameter| parameter.key == when.key)?, when))
    }
}
