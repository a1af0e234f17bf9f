//! Options that take the values of a configuration key.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use schemars::{JsonSchema, schema_for};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Parses an option by the names that its values have in recipes; help and completion show these with their descriptions.
pub fn spelled<T>() -> impl TypedValueParser<Value = T>
where
    T: DeserializeOwned + JsonSchema + Clone + Send + Sync + 'static,
{
    let named = |name: String| serde_json::from_value::<T>(Value::String(name));
    PossibleValuesParser::new(values(&schema_for!(T).to_value())).try_map(named)
}

/// The values of an enumeration without fields, of which each has a description.
fn values(schema: &Value) -> Vec<PossibleValue> {
    let of = |variant: &Value| {
        let name = variant["const"].as_str()?.to_string();
        let help = variant["description"].as_str()?.replace('\n', " ");
        Some(PossibleValue::new(name).help(help.trim_end_matches('.').to_string()))
    };
    schema["oneOf"].as_array().into_iter().flatten().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use segue_configs::DeviceKind;
    use segue_decode::{Finish, LengthPenalty};
    use segue_measure::translation::{SmoothingMethod, Tokenizer};

    use super::*;

    fn names<T: JsonSchema>() -> Vec<String> {
        values(&schema_for!(T).to_value()).iter().map(|value| value.get_name().into()).collect()
    }

    #[test]
    fn options_take_the_names_of_recipes() {
        assert_eq!(names::<Finish>(), ["worst", "best", "ranked", "first"]);
        assert_eq!(names::<LengthPenalty>(), ["gnmt", "length"]);
        assert_eq!(names::<Tokenizer>(), ["none", "13a", "intl", "char"]);
        assert_eq!(names::<SmoothingMethod>(), ["exp", "floor", "add-k", "none"]);
        assert_eq!(names::<DeviceKind>(), ["auto", "cpu", "cuda"]);
        let command =
            || clap::Command::new("one").arg(clap::Arg::new("end").value_parser(spelled::<Finish>()));
        let parsed = command().try_get_matches_from(["one", "ranked"]).unwrap();
        assert_eq!(parsed.get_one("end"), Some(&Finish::Ranked));
        assert!(command().try_get_matches_from(["one", "Ranked"]).is_err());
    }
}
