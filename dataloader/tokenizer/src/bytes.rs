/// Bytes as tokens: every byte its own id, or only the bytes of a table, in the table's order.
///
/// The table is how the Transformer-XL reference codes enwik8 and text8: symbols sorted by frequency, and the
/// newline byte is no symbol at all (it separates the lines of the reference's intermediate file and vanishes).
#[derive(Clone, Debug)]
pub(crate) struct ByteTokenizer {
    /// The byte of each id.
    symbols: Vec<u8>,
    /// The id of each byte.
    codes: [Option<u8>; 256],
}

impl ByteTokenizer {
    /// All 256 bytes; the id is the byte.
    pub(crate) fn plain() -> ByteTokenizer {
        ByteTokenizer::from_distinct((0..=255).collect())
    }

    /// Only the given bytes; the id is the place in the table. The error says which byte occurs twice.
    pub(crate) fn coded(symbols: Vec<u8>) -> Result<ByteTokenizer, String> {
        let mut seen = [false; 256];
        for symbol in &symbols {
            if std::mem::replace(&mut seen[*symbol as usize], true) {
                return Err(format!("byte {symbol} has two codes"));
            }
        }
        match symbols.is_empty() {
            true => Err("the table of bytes is empty".into()),
            false => Ok(ByteTokenizer::from_distinct(symbols)),
        }
    }

    fn from_distinct(symbols: Vec<u8>) -> ByteTokenizer {
        let mut codes = [None; 256];
        for (id, symbol) in symbols.iter().enumerate() {
            codes[*symbol as usize] = Some(id as u8);
        }
        ByteTokenizer { symbols, codes }
    }

    pub(crate) fn is_plain(&self) -> bool {
        self.symbols.len() == 256
            && self.symbols.iter().enumerate().all(|(id, symbol)| id == *symbol as usize)
    }

    pub(crate) fn symbols(&self) -> &[u8] {
        &self.symbols
    }

    pub(crate) fn id(&self, byte: u8) -> Option<u32> {
        self.codes[byte as usize].map(u32::from)
    }

    /// Appends the ids of the bytes that have one.
    pub(crate) fn encode(&self, bytes: &[u8], out: &mut Vec<u32>) {
        out.extend(bytes.iter().filter_map(|byte| self.id(*byte)));
    }

    /// Position of the first byte that has no id. The newline may lack one: the reference drops it by design.
    pub(crate) fn first_unknown(&self, bytes: &[u8]) -> Option<usize> {
        bytes.iter().position(|byte| *byte != b'\n' && self.codes[*byte as usize].is_none())
    }

    pub(crate) fn decode(&self, ids: &[u32]) -> Vec<u8> {
        ids.iter().filter_map(|id| self.symbols.get(*id as usize).copied()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_bytes_are_their_own_ids() {
        let (tokenizer, mut ids) = (ByteTokenizer::plain(), Vec::new());
        tokenizer.encode(&[0, 10, 255], &mut ids);
        assert_eq!(ids, [0, 10, 255]);
        assert_eq!(tokenizer.decode(&ids), [0, 10, 255]);
        assert!(tokenizer.is_plain());
    }

    #[test]
    fn a_table_drops_the_newline_and_names_what_it_lacks() {
        let tokenizer = ByteTokenizer::coded(b"eta".to_vec()).unwrap();
        let mut ids = Vec::new();
        tokenizer.encode(b"tea\nate", &mut ids);
        assert_eq!(ids, [1, 0, 2, 2, 1, 0]);
        assert_eq!(tokenizer.first_unknown(b"te\na"), None);
        assert_eq!(tokenizer.first_unknown(b"te\nx"), Some(3));
        assert!(ByteTokenizer::coded(b"aa".to_vec()).is_err());
        assert!(ByteTokenizer::coded(Vec::new()).is_err());
    }
}
