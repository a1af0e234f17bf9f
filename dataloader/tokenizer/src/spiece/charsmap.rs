/// The normalisation rules of a model: a Darts double-array trie from source bytes to places in a table of
/// zero-terminated replacements, preceded by the trie's size.
pub(crate) struct CharsMap {
    units: Vec<u32>,
    replacements: Vec<u8>,
}

impl CharsMap {
    /// Reads the rules; `None` for a model without any.
    pub(crate) fn parse(blob: &[u8]) -> Result<Option<CharsMap>, String> {
        if blob.is_empty() {
            return Ok(None);
        }
        let (size, rest) = blob.split_first_chunk::<4>().ok_or("its normalisation rules are truncated")?;
        let size = u32::from_le_bytes(*size) as usize;
        if size > rest.len() || !size.is_multiple_of(4) || size == 0 {
            return Err(format!("its normalisation rules promise a trie of {size} bytes in {}", rest.len()));
        }
        let (trie, replacements) = rest.split_at(size);
        let units = trie.as_chunks::<4>().0.iter().map(|unit| u32::from_le_bytes(*unit)).collect();
        Ok(Some(CharsMap { units, replacements: replacements.to_vec() }))
    }

    /// The rule for the longest prefix of the text that has one: the replacement and the length of the prefix.
    pub(crate) fn longest_rule(&self, text: &[u8]) -> Option<(&[u8], usize)> {
        let mut longest = None;
        let mut node = offset(*self.units.first()?);
        for (i, byte) in text.iter().enumerate() {
            node ^= *byte as usize;
            let Some(unit) = self.units.get(node).copied().filter(|unit| label(*unit) == *byte as u32) else {
                break;
            };
            node ^= offset(unit);
            if has_leaf(unit) {
                let Some(leaf) = self.units.get(node) else { break };
                longest = Some(((leaf & 0x7FFF_FFFF) as usize, i + 1));
            }
        }
        let (begin, length) = longest?;
        let replacement = self.replacements.get(begin..)?;
        let end = memchr::memchr(0, replacement).unwrap_or(replacement.len());
        Some((&replacement[..end], length))
    }
}

/// Whether a key ends at the unit.
fn has_leaf(unit: u32) -> bool {
    unit >> 8 & 1 == 1
}

/// The byte that leads to the unit; a leaf's highest bit makes it equal to no byte.
fn label(unit: u32) -> u32 {
    unit & (1 << 31 | 0xFF)
}

/// Distance to the unit's children.
fn offset(unit: u32) -> usize {
    ((unit >> 10) << ((unit & 1 << 9) >> 6)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_size_beyond_the_blob_is_refused() {
        assert!(CharsMap::parse(&[]).unwrap().is_none());
        assert!(CharsMap::parse(&[1, 0]).is_err());
        assert!(CharsMap::parse(&[8, 0, 0, 0, 1, 2, 3, 4]).is_err());
        assert!(CharsMap::parse(&[0, 0, 0, 0]).is_err());
    }

    proptest! {
        #[test]
        fn hostile_rules_never_panic(
            units in proptest::collection::vec(any::<u32>(), 1..200), text: Vec<u8>, replacements: Vec<u8>,
        ) {
            let map = CharsMap { units, replacements };
            if let Some((_, length)) = map.longest_rule(&text) {
                prop_assert!(length >= 1 && length <= text.len());
            }
        }
    }
}
