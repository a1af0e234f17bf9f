use crate::SharedBytes;

/// Reads the input of the machine; every read is checked against what is left.
pub(super) struct Reader<'a> {
    input: &'a SharedBytes,
    pub at: usize,
}

impl<'a> Reader<'a> {
    pub fn new(input: &'a SharedBytes) -> Self {
        Self { input, at: 0 }
    }

    pub fn take(&mut self, length: u64) -> Result<SharedBytes, String> {
        let end = usize::try_from(length).ok().and_then(|length| self.at.checked_add(length));
        let piece = end.and_then(|end| self.input.cut(self.at..end));
        let piece = piece.ok_or_else(|| format!("it ends inside a value at byte {}", self.at))?;
        self.at += piece.len();
        Ok(piece)
    }

    pub fn word<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut word = [0; N];
        word.copy_from_slice(&self.take(N as u64)?);
        Ok(word)
    }

    pub fn u8(&mut self) -> Result<u8, String> {
        Ok(self.word::<1>()?[0])
    }

    pub fn u32(&mut self) -> Result<u32, String> {
        Ok(u32::from_le_bytes(self.word()?))
    }

    pub fn u64(&mut self) -> Result<u64, String> {
        Ok(u64::from_le_bytes(self.word()?))
    }

    /// A length that older protocols write as a signed number.
    pub fn signed_length(&mut self) -> Result<u64, String> {
        let length = i32::from_le_bytes(self.word()?);
        u64::try_from(length).map_err(|_| format!("a length of {length} at byte {}", self.at))
    }

    /// Up to the next line feed, which is taken and not returned.
    pub fn line(&mut self) -> Result<SharedBytes, String> {
        let length = memchr::memchr(b'\n', &self.input[self.at..]);
        let length = length.ok_or_else(|| format!("it ends inside a line at byte {}", self.at))?;
        let line = self.take(length as u64)?;
        self.at += 1;
        Ok(line)
    }

    pub fn text_line(&mut self) -> Result<String, String> {
        let at = self.at;
        let line = self.line()?;
        String::from_utf8(line.to_vec()).map_err(|_| format!("the line at byte {at} is not UTF-8"))
    }
}

/// Bytes of a quoted Python 2 string: `'it\'s'`.
pub(super) fn unquote(line: &[u8]) -> Result<Vec<u8>, String> {
    let quoted = match line {
        [b'\'', inner @ .., b'\''] | [b'"', inner @ .., b'"'] => inner,
        _ => return Err("a string is not quoted".into()),
    };
    let mut out = Vec::with_capacity(quoted.len());
    let mut rest = quoted.iter().copied();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let hex = |byte: Option<u8>| byte.and_then(|byte| (byte as char).to_digit(16));
        out.push(match rest.next().ok_or("a string ends in a backslash")? {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'a' => 7,
            b'b' => 8,
            b'f' => 12,
            b'v' => 11,
            b'x' => match (hex(rest.next()), hex(rest.next())) {
                (Some(high), Some(low)) => (high * 16 + low) as u8,
                _ => return Err("a string has a bad \\x escape".into()),
            },
            other => other,
        });
    }
    Ok(out)
}

/// Text in Python's raw-unicode-escape: Latin-1 with `\uXXXX` and `\UXXXXXXXX`.
pub(super) fn unescape(line: &[u8]) -> Result<String, String> {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((&byte, after)) = rest.split_first() {
        let digits = match (byte, after.first()) {
            (b'\\', Some(b'u')) => 4,
            (b'\\', Some(b'U')) => 8,
            _ => {
                out.push(char::from(byte));
                rest = after;
                continue;
            }
        };
        let hex = after.get(1..1 + digits).and_then(|hex| std::str::from_utf8(hex).ok());
        let code = hex.and_then(|hex| u32::from_str_radix(hex, 16).ok());
        // Surrogates cannot stand alone in Rust's text.
        out.push(code.ok_or("a text has a bad \\u escape").map(|c| char::from_u32(c).unwrap_or('\u{FFFD}'))?);
        rest = &after[1 + digits..];
    }
    Ok(out)
}
