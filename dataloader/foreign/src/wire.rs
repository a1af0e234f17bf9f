//! Protocol buffer messages, field by field, without their descriptions.

/// The value of a field in a protocol buffer message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// Integers, booleans and enums.
    Varint(u64),
    /// Eight bytes.
    Fixed64(u64),
    /// Strings, bytes and messages.
    Bytes(&'a [u8]),
    /// Four bytes.
    Fixed32(u32),
}

impl<'a> Value<'a> {
    /// The value as bytes. `what` names it in the error, here and below.
    pub fn bytes(self, what: &str) -> Result<&'a [u8], String> {
        match self {
            Value::Bytes(bytes) => Ok(bytes),
            other => Err(format!("{what} is not bytes but {other:?}")),
        }
    }

    /// The value as a string.
    pub fn text(self, what: &str) -> Result<&'a str, String> {
        std::str::from_utf8(self.bytes(what)?).map_err(|e| format!("{what} is not UTF-8: {e}"))
    }

    /// The value as an integer.
    pub fn varint(self, what: &str) -> Result<u64, String> {
        match self {
            Value::Varint(number) => Ok(number),
            other => Err(format!("{what} is not an integer but {other:?}")),
        }
    }

    /// The value as a number of single precision.
    pub fn float(self, what: &str) -> Result<f32, String> {
        match self {
            Value::Fixed32(bits) => Ok(f32::from_bits(bits)),
            other => Err(format!("{what} is not a 32-bit float but {other:?}")),
        }
    }
}

/// Reads the fields of one protocol buffer message in order. It never reads past the message and never loops without
/// advancing; the first malformed field ends it with an error.
pub struct Fields<'a> {
    rest: &'a [u8],
    failed: bool,
}

impl<'a> Fields<'a> {
    /// The fields of a message.
    pub fn new(message: &'a [u8]) -> Fields<'a> {
        Fields { rest: message, failed: false }
    }

    fn field(&mut self) -> Result<(u32, Value<'a>), String> {
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).ok().filter(|number| *number > 0);
        let number = number.ok_or_else(|| format!("a field has the number {}", key >> 3))?;
        let value = match key & 7 {
            0 => Value::Varint(self.varint()?),
            1 => {
                let mut word = [0; 8];
                word.copy_from_slice(self.take(8)?);
                Value::Fixed64(u64::from_le_bytes(word))
            }
            2 => {
                let length = self.varint()?;
                Value::Bytes(self.take(length)?)
            }
            5 => {
                let mut word = [0; 4];
                word.copy_from_slice(self.take(4)?);
                Value::Fixed32(u32::from_le_bytes(word))
            }
            wire_type => return Err(format!("field {number} has the unknown wire type {wire_type}")),
        };
        Ok((number, value))
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0u64;
        for (place, byte) in self.rest.iter().enumerate().take(10) {
            // The tenth byte holds the highest bit alone.
            if place == 9 && *byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7F) << (7 * place);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[place + 1..];
                return Ok(value);
            }
        }
        Err(match self.rest.len() < 10 {
            true => "it ends inside a number".into(),
            false => "a number is longer than 64 bits".into(),
        })
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], String> {
        let available = self.rest.len();
        let length = usize::try_from(length).ok().filter(|length| *length <= available);
        let length = length.ok_or("a field reaches past the end")?;
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        Ok(taken)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        self.failed = field.is_err();
        Some(field)
    }
}

/// Reads integers that follow each other without keys, as packed lists hold them.
pub struct Varints<'a>(Fields<'a>);

impl<'a> Varints<'a> {
    /// The integers of a packed list.
    pub fn new(packed: &'a [u8]) -> Varints<'a> {
        Varints(Fields::new(packed))
    }
}

impl Iterator for Varints<'_> {
    type Item = Result<u64, String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.failed || self.0.rest.is_empty() {
            return None;
        }
        let number = self.0.varint();
        self.0.failed = number.is_err();
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(message: &[u8]) -> Result<Vec<(u32, Value<'_>)>, String> {
        Fields::new(message).collect()
    }

    /// The examples of the protocol buffer documentation: field 1 = 150, field 2 = "testing".
    #[test]
    fn documented_examples_are_read() {
        assert_eq!(read(&[0x08, 0x96, 0x01]).unwrap(), [(1, Value::Varint(150))]);
        let text = [0x12, 0x07, 0x74, 0x65, 0x73, 0x74, 0x69, 0x6e, 0x67];
        assert_eq!(read(&text).unwrap(), [(2, Value::Bytes(b"testing"))]);
        assert_eq!(read(&[0x15, 0, 0, 0x80, 0x3f]).unwrap()[0].1.float("x").unwrap(), 1.0);
        assert_eq!(read(&[0x09, 1, 0, 0, 0, 0, 0, 0, 0]).unwrap(), [(1, Value::Fixed64(1))]);
    }

    #[test]
    fn malformed_messages_are_refused() {
        for bad in [
            &[0x08][..],
            &[0x08, 0x80],
            &[0x12, 0x05, 1],
            &[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
            &[0x00, 0x00],
            &[0x0b],
            &[0x15, 0, 0],
            &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02],
        ] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic_and_never_hang(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let fields = Fields::new(&bytes).count();
            prop_assert!(fields <= bytes.len());
        }

        #[test]
        fn any_varint_survives(number: u64) {
            let mut message = vec![0x08];
            let mut rest = number;
            while rest >= 0x80 {
                message.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            message.push(rest as u8);
            prop_assert_eq!(read(&message).unwrap(), vec![(1, Value::Varint(number))]);
        }
    }
}
