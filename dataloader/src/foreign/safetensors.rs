//! safetensors files, single or as the shards of a large model.

use std::collections::BTreeMap;
use std::path::Path;

use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;

use super::{ElementType, RawTensor, SharedBytes};
use crate::error::DataError;

/// Bytes before the header: its length.
const LENGTH_BYTES: usize = 8;

/// A tensor of a safetensors file.
#[derive(Clone, Debug)]
pub struct SafetensorsEntry {
    /// Its name.
    pub name: String,
    /// Type of its elements, in lower case.
    pub dtype: String,
    /// Sizes.
    pub shape: Vec<usize>,
    element: Option<ElementType>,
    bytes: SharedBytes,
}

impl SafetensorsEntry {
    /// Bytes of its values.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Its values; an error where this program has no type like theirs.
    pub fn tensor(&self) -> Result<RawTensor, String> {
        let element = self.element.ok_or_else(|| format!("unsupported element type {}", self.dtype))?;
        RawTensor::contiguous(element, self.shape.clone(), self.bytes.clone())
    }
}

/// A safetensors file, opened. Values are not read before they are asked for.
///
/// ```
/// use segue_dataloader::foreign::SafetensorsFile;
///
/// let header = br#"{"w":{"dtype":"I16","shape":[2],"data_offsets":[0,4]}}"#;
/// let file = [&(header.len() as u64).to_le_bytes()[..], header, &[1, 0, 2, 0]].concat();
/// let file = SafetensorsFile::from_bytes(&file.into()).unwrap();
/// assert_eq!(file.entries()[0].tensor().unwrap().to_bytes(), [1, 0, 2, 0]);
/// ```
pub struct SafetensorsFile {
    entries: Vec<SafetensorsEntry>,
}

impl SafetensorsFile {
    /// Maps a file and reads its header.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        Self::from_bytes(&SharedBytes::map(path)?).map_err(|why| DataError::foreign(path, why))
    }

    /// Reads the header of a file in memory.
    pub fn from_bytes(bytes: &SharedBytes) -> Result<Self, String> {
        let damaged = |e: safetensors::SafeTensorError| format!("not a safetensors file: {e}");
        let (header, metadata) = SafeTensors::read_metadata(bytes).map_err(damaged)?;
        let start = LENGTH_BYTES + header;
        let mut entries = Vec::new();
        for (name, info) in metadata.tensors() {
            let (from, to) = info.data_offsets;
            let values = bytes.cut(start + from..start + to);
            let values = values.ok_or_else(|| format!("`{name}` reaches past the end of the file"))?;
            entries.push(SafetensorsEntry {
                dtype: format!("{:?}", info.dtype).to_lowercase(),
                shape: info.shape.clone(),
                element: element_type(info.dtype),
                bytes: values,
                name,
            });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Self { entries })
    }

    /// Its tensors, by name.
    pub fn entries(&self) -> &[SafetensorsEntry] {
        &self.entries
    }
}

fn element_type(dtype: Dtype) -> Option<ElementType> {
    Some(match dtype {
        Dtype::F32 => ElementType::F32,
        Dtype::F64 => ElementType::F64,
        Dtype::F16 => ElementType::F16,
        Dtype::BF16 => ElementType::Bf16,
        Dtype::I64 => ElementType::I64,
        Dtype::I32 => ElementType::I32,
        Dtype::I16 => ElementType::I16,
        Dtype::I8 => ElementType::I8,
        Dtype::U8 => ElementType::U8,
        Dtype::BOOL => ElementType::Bool,
        _ => return None,
    })
}

/// `*.index.json` beside the pieces of a model: which file holds which tensor.
///
/// ```
/// use segue_dataloader::foreign::ShardIndex;
///
/// let index = ShardIndex::parse(br#"{"weight_map":{"a":"2.bin","b":"1.bin"}}"#).unwrap();
/// assert_eq!(index.files["2.bin"], ["a"]);
/// ```
#[derive(Debug)]
pub struct ShardIndex {
    /// Names of the tensors in each file, by its name.
    pub files: BTreeMap<String, Vec<String>>,
}

/// What the file says.
#[derive(Deserialize)]
struct Stored {
    weight_map: BTreeMap<String, String>,
}

impl ShardIndex {
    /// Reads the list. Files lie beside it: names that lead elsewhere are refused.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let stored: Stored = serde_json::from_slice(text).map_err(|e| e.to_string())?;
        let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, file) in stored.weight_map {
            if file.is_empty() || file.contains(['/', '\\', '\0']) || file == "." || file == ".." {
                return Err(format!("`{name}` is listed in {file:?}, which is not a file beside it"));
            }
            files.entry(file).or_default().push(name);
        }
        if files.is_empty() {
            return Err("it lists no files".into());
        }
        Ok(Self { files })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, values: &[u8]) -> Result<SafetensorsFile, String> {
        let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), values].concat();
        SafetensorsFile::from_bytes(&bytes.into())
    }

    #[test]
    fn headers_that_lie_are_refused() {
        let header = |dtype: &str, shape: &str, from: u64, to: u64| {
            format!(r#"{{"w":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{from},{to}]}}}}"#)
        };
        assert!(file(&header("F32", "[1]", 0, 4), &[0; 4]).is_ok());
        for (shape, from, to) in [
            ("[2]", 0, 4),
            ("[1]", 4, 8),
            ("[1]", 4, 0),
            ("[18446744073709551615,2]", 0, 4),
            ("[4611686018427387904]", 0, u64::MAX),
        ] {
            assert!(file(&header("F32", shape, from, to), &[0; 4]).is_err(), "{shape} {from} {to}");
        }
        let bytes = u64::MAX.to_le_bytes().to_vec();
        assert!(SafetensorsFile::from_bytes(&bytes.into()).is_err());
    }

    #[test]
    fn types_without_a_counterpart_are_listed_and_not_read() {
        let header = r#"{"w":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[0,3]}}"#;
        let file = file(header, &[0; 3]).unwrap();
        let entry = &file.entries()[0];
        assert_eq!((entry.dtype.as_str(), entry.bytes()), ("f8_e4m3", 3));
        assert!(entry.tensor().unwrap_err().contains("f8_e4m3"));
    }

    #[test]
    fn lists_that_lead_elsewhere_are_refused() {
        for file in ["../a", "/etc/passwd", "", ".."] {
            let text = format!(r#"{{"weight_map":{{"w":"{file}"}}}}"#);
            assert!(ShardIndex::parse(text.as_bytes()).is_err(), "{file}");
        }
        assert!(ShardIndex::parse(br#"{"weight_map":{}}"#).is_err());
    }
}
