use std::path::{Path, PathBuf};

use segue_data_error::DataError;

use super::locate::{find_index, find_shard};
use super::message::{Record, parse_header};
use super::shard_suffix;
use super::table::read_table;
use crate::checksum::mask;
use crate::{ElementType, RawTensor, SharedBytes};

/// A checkpoint of TensorFlow, opened.
pub struct Bundle {
    /// The index file.
    pub index: PathBuf,
    entries: Vec<BundleEntry>,
    shards: Vec<(PathBuf, SharedBytes)>,
}

/// A variable of a checkpoint.
#[derive(Clone, Debug)]
pub struct BundleEntry {
    /// Its name.
    pub name: String,
    /// Type of its elements; `None` where this program has none like it (text, for one).
    pub dtype: Option<ElementType>,
    /// Sizes.
    pub shape: Vec<usize>,
    record: Record,
}

impl BundleEntry {
    /// Bytes of its values.
    pub fn bytes(&self) -> usize {
        usize::try_from(self.record.size).unwrap_or(usize::MAX)
    }
}

impl Bundle {
    /// Opens the checkpoint that `path` leads to: its prefix, its index, its data file, or its folder. Values are
    /// verified when they are read.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        let index = find_index(path)?;
        let bytes = SharedBytes::map(&index)?;
        let (entries, count) = parse_index(&bytes).map_err(|why| DataError::foreign(&index, why))?;
        let mut shards = Vec::new();
        let ends = entries.iter().map(|entry| entry.record.offset.saturating_add(entry.record.size));
        let length = ends.max().unwrap_or(0);
        for shard in 0..count {
            let data = find_shard(&index, (shard, count), length, path)?;
            if !data.is_file() {
                let why = format!("the checkpoint has {count} data files and needs all of them");
                return Err(DataError::Missing { path: data, why });
            }
            shards.push((data.clone(), SharedBytes::map(&data)?));
        }
        Ok(Self { index, entries, shards })
    }

    /// A checkpoint in memory: its index and its data files.
    pub fn from_bytes(index: &[u8], shards: Vec<SharedBytes>) -> Result<Self, String> {
        let (entries, count) = parse_index(index)?;
        if shards.len() != count as usize {
            return Err(format!("{} data files, its index says {count}", shards.len()));
        }
        let named = |(i, bytes)| (PathBuf::from(shard_suffix(i as u32, count)), bytes);
        Ok(Self {
            index: PathBuf::new(),
            entries,
            shards: shards.into_iter().enumerate().map(named).collect(),
        })
    }

    /// Its variables, by name.
    pub fn entries(&self) -> &[BundleEntry] {
        &self.entries
    }

    /// The files its values are in.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.shards.iter().map(|(path, _)| path.as_path())
    }

    /// The value of a variable, verified.
    pub fn tensor(&self, entry: &BundleEntry) -> Result<RawTensor, DataError> {
        let record = &entry.record;
        let Some((path, shard)) = self.shards.get(record.shard as usize) else {
            let why = format!("`{}` lies in shard {}, which does not exist", entry.name, record.shard);
            return Err(DataError::foreign(&self.index, why));
        };
        let bad = |why: &str| DataError::foreign(path, format!("`{}` {why}", entry.name));
        let dtype = entry.dtype.ok_or_else(|| bad("has an element type that is not numeric"))?;
        if record.slices > 0 {
            return Err(bad(
                "is a partitioned variable, stored in pieces\nhint: save the checkpoint without a \
                 partitioner",
            ));
        }
        let start = usize::try_from(record.offset).ok();
        let end = start.and_then(|start| start.checked_add(usize::try_from(record.size).ok()?));
        let bytes = start.zip(end).and_then(|(start, end)| shard.cut(start..end));
        let bytes = bytes.ok_or_else(|| bad("reaches past the end of the file: it is truncated"))?;
        if mask(crc32c::crc32c(&bytes)) != record.crc {
            return Err(bad("does not match its checksum"));
        }
        RawTensor::contiguous(dtype, entry.shape.clone(), bytes).map_err(|why| bad(&why))
    }
}

fn parse_index(bytes: &[u8]) -> Result<(Vec<BundleEntry>, u32), String> {
    let mut table = read_table(bytes)?.into_iter();
    let (_, header) = table.next().filter(|(key, _)| key.is_empty()).ok_or("it has no header")?;
    let shards = parse_header(&header)?;
    let mut entries = Vec::new();
    let mut places = Vec::new();
    for (key, value) in table {
        // Pieces of partitioned variables have binary keys that begin with 0; their variable names them.
        if key.first() == Some(&0) {
            continue;
        }
        let name = String::from_utf8(key).map_err(|_| "a name is not UTF-8")?;
        let record = Record::parse(&value).map_err(|why| format!("`{name}`: {why}"))?;
        let shape: Option<Vec<usize>> = record.shape.iter().map(|&size| usize::try_from(size).ok()).collect();
        let shape = shape.ok_or_else(|| format!("`{name}` has an absurd shape"))?;
        places.push((record.shard, record.offset, record.size, entries.len()));
        entries.push(BundleEntry { name, dtype: record.element_type(), shape, record });
    }
    places.retain(|place| place.2 > 0);
    places.sort_unstable();
    for pair in places.windows(2) {
        if pair[0].0 == pair[1].0 && pair[0].1.saturating_add(pair[0].2) > pair[1].1 {
            let (a, b) = (&entries[pair[0].3].name, &entries[pair[1].3].name);
            return Err(format!("`{a}` and `{b}` overlap"));
        }
    }
    Ok((entries, shards))
}

#[cfg(test)]
mod tests {
    use super::super::message::header;
    use super::super::table::write_table;
    use super::*;

    /// Opens an index of two variables of `[size / 4]` floats at these offsets, over 64 bytes of zeros.
    fn open(first: (u64, u64), second: (u64, u64)) -> Result<Bundle, String> {
        let record = |(offset, size): (u64, u64)| {
            let shape = vec![size / 4];
            Record { dtype: 1, shape, offset, size, ..Record::default() }.encode()
        };
        let entries =
            [(Vec::new(), header(1)), (b"a".to_vec(), record(first)), (b"b".to_vec(), record(second))];
        Bundle::from_bytes(&write_table(&entries), vec![vec![0; 64].into()])
    }

    #[test]
    fn variables_that_overlap_are_refused() {
        assert!(open((0, 32), (32, 32)).is_ok());
        let error = open((0, 36), (32, 32)).err().unwrap();
        assert!(error.contains("`a` and `b` overlap"), "{error}");
        assert!(open((0, u64::MAX), (32, 32)).is_err());
    }

    #[test]
    fn variables_outside_the_file_are_refused_when_read() {
        for place in [(64, 4), (1 << 62, 1 << 62), (0, 1 << 40)] {
            let bundle = open(place, (0, 0)).unwrap();
            assert_eq!(bundle.tensor(&bundle.entries()[0]).unwrap_err().exit_code(), 65, "{place:?}");
        }
    }

    #[test]
    fn shapes_that_do_not_fit_their_bytes_are_refused() {
        let record =
            Record { dtype: 1, shape: vec![1 << 40, 1 << 40], size: 4, crc: mask(0), ..Record::default() };
        let entries = [(Vec::new(), header(1)), (b"a".to_vec(), record.encode())];
        let bundle = Bundle::from_bytes(&write_table(&entries), vec![vec![0; 4].into()]).unwrap();
        assert!(bundle.tensor(&bundle.entries()[0]).is_err());
    }
}
