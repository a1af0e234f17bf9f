//! The sorted table of an index file: blocks of entries with shared prefixes, then the footer that leads to them.

use crate::checksum::masked_crc32c;

const FOOTER_BYTES: usize = 48;
const MAGIC: u64 = 0xDB47_7524_8B80_FB57;
/// Type and checksum behind each block.
const TRAILER_BYTES: usize = 5;
/// Entries between places where keys are written in full.
const RESTART_INTERVAL: usize = 16;
/// A block is closed when it has grown to this.
const BLOCK_BYTES: usize = 256 << 10;
/// How many times longer than their block the names in it may be once written in full.
const MAX_UNFOLDING: usize = 16;
/// Bytes of a name.
const MAX_KEY: usize = 4096;

/// Place of a block, without its trailer.
#[derive(Clone, Copy)]
struct Handle {
    offset: u64,
    size: u64,
}

/// Keys with their values, in order.
type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// All entries of a table in the order of their keys.
pub(super) fn read_table(file: &[u8]) -> Result<Entries, String> {
    let footer = file.len().checked_sub(FOOTER_BYTES).map(|start| &file[start..]);
    let footer = footer.ok_or("it is shorter than a footer: is it the .index file of a checkpoint?")?;
    let (handles, magic) = footer.split_at(FOOTER_BYTES - 8);
    if magic != MAGIC.to_le_bytes() {
        return Err("it does not end with the mark of an index: is it truncated, or another file?".into());
    }
    let mut rest = handles;
    let _metaindex = handle(&mut rest)?;
    let index = block(file, handle(&mut rest)?)?;
    let mut all: Entries = Vec::new();
    let mut used = 0u64;
    for (_, value) in entries(index)? {
        let handle = handle(&mut &value[..])?;
        // Blocks lie one after another; those that overlap would multiply what the file holds.
        if handle.offset < used {
            return Err("its blocks overlap".into());
        }
        used = handle.offset.saturating_add(handle.size);
        all.extend(entries(block(file, handle)?)?);
    }
    if let Some(pair) = all.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
        return Err(format!("its names are not in order at `{}`", String::from_utf8_lossy(&pair[1].0)));
    }
    Ok(all)
}

fn handle(rest: &mut &[u8]) -> Result<Handle, String> {
    Ok(Handle { offset: varint(rest)?, size: varint(rest)? })
}

/// A block's contents, verified.
fn block(file: &[u8], handle: Handle) -> Result<&[u8], String> {
    let start = usize::try_from(handle.offset).ok();
    let range = start.and_then(|start| {
        let end = start.checked_add(usize::try_from(handle.size).ok()?)?;
        Some((start, end, end.checked_add(TRAILER_BYTES)?))
    });
    let reaches = || "a block reaches past the end: it is truncated".to_string();
    let (start, end, after) = range.ok_or_else(reaches)?;
    let whole = file.get(start..after).ok_or_else(reaches)?;
    let (contents, crc) = whole.split_at(end - start + 1);
    if masked_crc32c(contents).to_le_bytes() != crc {
        return Err(format!("the block at byte {start} does not match its checksum"));
    }
    match contents.split_last() {
        Some((0, contents)) => Ok(contents),
        _ => Err("it is compressed, which TensorFlow does not do to the index of a checkpoint".into()),
    }
}

/// Entries of one block: `shared, unshared, value length` as varints, the rest of the key, the value.
fn entries(block: &[u8]) -> Result<Entries, String> {
    let malformed = || "a block is malformed".to_string();
    let tail = block.len().checked_sub(4).ok_or_else(malformed)?;
    let restarts = block[tail..].try_into().map(u32::from_le_bytes).map_err(|_| malformed())?;
    let end = usize::try_from(restarts).ok().and_then(|n| tail.checked_sub(n.checked_mul(4)?));
    let mut rest = &block[..end.ok_or_else(malformed)?];
    let mut out: Entries = Vec::new();
    let mut budget = block.len().saturating_mul(MAX_UNFOLDING);
    while !rest.is_empty() {
        let mut length = || usize::try_from(varint(&mut rest)?).map_err(|_| malformed());
        let (shared, unshared, value) = (length()?, length()?, length()?);
        let last = out.last().map_or(&[][..], |(key, _)| key);
        let prefix = last.get(..shared).ok_or_else(malformed)?;
        let (own, after) = rest.split_at_checked(unshared).ok_or_else(malformed)?;
        let (value, after) = after.split_at_checked(value).ok_or_else(malformed)?;
        let key = [prefix, own].concat();
        // Short entries with long shared prefixes would unfold to much more than the file.
        budget =
            budget.checked_sub(key.len()).filter(|_| key.len() <= MAX_KEY).ok_or("its names are too long")?;
        out.push((key, value.to_vec()));
        rest = after;
    }
    Ok(out)
}

fn varint(rest: &mut &[u8]) -> Result<u64, String> {
    let mut value = 0u64;
    for place in 0..10 {
        let (&byte, after) = rest.split_first().ok_or("it ends inside a number")?;
        *rest = after;
        value |= u64::from(byte & 0x7F).checked_shl(7 * place).unwrap_or(0);
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err("a number is longer than 64 bits".into())
}

pub(super) fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A table of `entries`, which are in the order of their keys.
pub(super) fn write_table(entries: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut index = BlockWriter::default();
    let mut data = BlockWriter::default();
    for (place, (key, value)) in entries.iter().enumerate() {
        data.add(key, value);
        if data.bytes.len() >= BLOCK_BYTES || place + 1 == entries.len() {
            let handle = std::mem::take(&mut data).finish(&mut file);
            // Any key that is not before the block's last one leads to it.
            index.add(key, &handle);
        }
    }
    let metaindex = BlockWriter::default().finish(&mut file);
    let index = index.finish(&mut file);
    let mut footer = [metaindex, index].concat();
    footer.resize(FOOTER_BYTES - 8, 0);
    footer.extend(MAGIC.to_le_bytes());
    file.extend(footer);
    file
}

#[derive(Default)]
struct BlockWriter {
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    entries: usize,
    last: Vec<u8>,
}

impl BlockWriter {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        let mut shared = 0;
        if self.entries.is_multiple_of(RESTART_INTERVAL) {
            self.restarts.push(self.bytes.len() as u32);
        } else {
            shared = key.iter().zip(&self.last).take_while(|(a, b)| a == b).count();
        }
        for length in [shared, key.len() - shared, value.len()] {
            push_varint(&mut self.bytes, length as u64);
        }
        self.bytes.extend(&key[shared..]);
        self.bytes.extend(value);
        self.entries += 1;
        self.last = key.to_vec();
    }

    /// Appends the block to the file; its handle.
    fn finish(mut self, file: &mut Vec<u8>) -> Vec<u8> {
        if self.restarts.is_empty() {
            self.restarts.push(0);
        }
        for restart in &self.restarts {
            self.bytes.extend(restart.to_le_bytes());
        }
        self.bytes.extend((self.restarts.len() as u32).to_le_bytes());
        let mut handle = Vec::new();
        push_varint(&mut handle, file.len() as u64);
        push_varint(&mut handle, self.bytes.len() as u64);
        self.bytes.push(0);
        let crc = masked_crc32c(&self.bytes);
        file.extend(&self.bytes);
        file.extend(crc.to_le_bytes());
        handle
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn tables_read_back(keys in proptest::collection::btree_set("[a-z/]{0,12}", 0..400), size in 0usize..2000) {
            let entries: Entries = keys.iter().map(|key| (key.as_bytes().to_vec(), vec![7; size])).collect();
            prop_assert_eq!(read_table(&write_table(&entries)).unwrap(), entries);
        }

        #[test]
        fn damage_is_an_error_or_leaves_the_entries(at in 0usize..10_000, bit in 0u8..8) {
            let entries: Entries = (0..40u8).map(|i| (vec![b'a', i], vec![i; 9])).collect();
            let mut file = write_table(&entries);
            let at = at % file.len();
            file[at] ^= 1 << bit;
            if let Ok(found) = read_table(&file) {
                prop_assert_eq!(found, entries);
            }
        }
    }

    #[test]
    fn truncated_tables_are_refused() {
        let file = write_table(&[(b"".to_vec(), vec![1]), (b"a".to_vec(), vec![2; 300])]);
        for length in 0..file.len() {
            assert!(read_table(&file[..length]).is_err(), "{length}");
        }
    }
}
