use crate::wire::{Fields, Value, Varints};

/// A `tf.train.Example`: lists of numbers or byte strings by name.
#[derive(Debug)]
pub struct Example<'a> {
    /// Name and `tf.train.Feature` message.
    features: Vec<(&'a str, &'a [u8])>,
}

impl<'a> Example<'a> {
    /// Reads which lists there are.
    pub fn parse(message: &'a [u8]) -> Result<Example<'a>, String> {
        let mut features = Vec::new();
        for part in messages(message, 1, "features") {
            for entry in messages(part?, 1, "a feature") {
                let (mut name, mut feature) = ("", &[][..]);
                for field in Fields::new(entry?) {
                    match field? {
                        (1, value) => name = value.text("a feature's name")?,
                        (2, value) => feature = value.bytes("a feature")?,
                        _ => {}
                    }
                }
                features.push((name, feature));
            }
        }
        Ok(Example { features })
    }

    /// The integers under a name. Where a name comes twice the last one counts, as in every protocol buffer map.
    pub fn int64s(&self, name: &str) -> Result<Vec<i64>, String> {
        let found = self.features.iter().rev().find(|(found, _)| *found == name);
        let (_, feature) = found.ok_or_else(|| {
            let names: Vec<&str> = self.features.iter().map(|(name, _)| *name).collect();
            format!("it has no field `{name}`, only {}", names.join(", "))
        })?;
        read_int64s(feature).map_err(|why| format!("`{name}`: {why}"))
    }
}

/// The integers of a `tf.train.Feature`, packed or not.
fn read_int64s(feature: &[u8]) -> Result<Vec<i64>, String> {
    let mut numbers = Vec::new();
    for field in Fields::new(feature) {
        let list = match field? {
            (3, value) => value.bytes("a list")?,
            (1 | 2, _) => return Err("it holds text or floats where integers are needed".into()),
            _ => continue,
        };
        for field in Fields::new(list) {
            match field? {
                // Negative numbers are written as their two's complement.
                (1, Value::Varint(number)) => numbers.push(number as i64),
                (1, Value::Bytes(packed)) => {
                    for number in Varints::new(packed) {
                        numbers.push(number? as i64);
                    }
                }
                (1, other) => return Err(format!("a number is {other:?}")),
                _ => {}
            }
        }
    }
    Ok(numbers)
}

/// The messages under a field's number.
fn messages<'a>(
    message: &'a [u8],
    number: u32,
    what: &'static str,
) -> impl Iterator<Item = Result<&'a [u8], String>> {
    Fields::new(message).filter_map(move |field| match field {
        Ok((found, value)) if found == number => Some(value.bytes(what)),
        Ok(_) => None,
        Err(why) => Some(Err(why)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Written by hand after the encoding guide of protocol buffers: `features { feature { key: "input" value {
    /// int64_list { value: [1, 300, -1, 5] } } } }` with packed numbers; then `"label"` with [7, 1] unpacked, and a number alone after the packed ones.
    #[rustfmt::skip]
    const BY_HAND: [u8; 51] = [
        0x0A, 49, // Example.features
          0x0A, 28, // Features.feature: a map entry
            0x0A, 5, b'i', b'n', b'p', b'u', b't', // key
            0x12, 19, // value: Feature
              0x1A, 17, // Feature.int64_list
                0x0A, 13, // Int64List.value, packed
                  0x01,
                  0xAC, 0x02, // 300
                  0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01, // -1
                0x08, 0x05, // Int64List.value, one more by itself
          0x0A, 17,
            0x0A, 5, b'l', b'a', b'b', b'e', b'l',
            0x12, 6, 0x1A, 4, 0x08, 0x07, 0x08, 0x01, // not packed
            0x18, 0x00, // a field of a later version
    ];

    #[test]
    fn an_example_written_by_hand_is_read() {
        let example = Example::parse(&BY_HAND).unwrap();
        assert_eq!(example.int64s("input").unwrap(), [1, 300, -1, 5]);
        assert_eq!(example.int64s("label").unwrap(), [7, 1]);
        let error = example.int64s("target").unwrap_err();
        assert!(error.contains("`target`") && error.contains("input, label"), "{error}");
    }

    #[test]
    fn floats_and_damage_are_refused() {
        let floats = [0x0A, 10, 0x0A, 8, 0x0A, 1, b'x', 0x12, 3, 0x12, 1, 0];
        let error = Example::parse(&floats).unwrap().int64s("x").unwrap_err();
        assert!(error.contains("`x`") && error.contains("floats"), "{error}");
        for length in 1..BY_HAND.len() {
            assert!(Example::parse(&BY_HAND[..length]).is_err(), "{length}");
        }
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(example) = Example::parse(&bytes) {
                let names: Vec<&str> = example.features.iter().map(|(name, _)| *name).collect();
                for name in names {
                    let _ = example.int64s(name);
                }
            }
        }
    }
}
