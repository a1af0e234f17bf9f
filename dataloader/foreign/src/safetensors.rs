//! safetensors files, single or as the shards of a large model.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::Path;

use safetensors::tensor::{Metadata, TensorInfo};
use safetensors::{Dtype, SafeTensors};
use segue_data_error::DataError;
use segue_publish::FlushedFile;
use serde::Deserialize;

use super::{ElementType, RawTensor, SharedBytes};

/// Bytes before the header: its length.
const LENGTH_BYTES: usize = 8;
/// Values begin at a multiple of this many bytes.
const HEADER_ALIGNMENT: usize = 8;
/// Bytes that are collected before they are written.
const WRITE_BUFFER: usize = 1 << 20;

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

    /// Type of its elements; `None` where this program has no type like it.
    pub fn element(&self) -> Option<ElementType> {
        self.element
    }

    /// Its row-major elements, little-endian, as they are in the file.
    pub fn values(&self) -> &[u8] {
        &self.bytes
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
/// use segue_foreign::SafetensorsFile;
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

/// What the format calls a type.
fn stored_type(element: ElementType) -> Dtype {
    match element {
        ElementType::F32 => Dtype::F32,
        ElementType::F64 => Dtype::F64,
        ElementType::F16 => Dtype::F16,
        ElementType::Bf16 => Dtype::BF16,
        ElementType::I64 => Dtype::I64,
        ElementType::I32 => Dtype::I32,
        ElementType::I16 => Dtype::I16,
        ElementType::I8 => Dtype::I8,
        ElementType::U8 => Dtype::U8,
        ElementType::Bool => Dtype::BOOL,
    }
}

/// A tensor that is to be written to a safetensors file.
pub struct SafetensorsTensor<'a> {
    /// Its name.
    pub name: &'a str,
    /// Type of its elements.
    pub dtype: ElementType,
    /// Sizes.
    pub shape: Vec<usize>,
    /// Gives its row-major elements, little-endian, piece by piece when it is its turn.
    pub values: Box<dyn Iterator<Item = Vec<u8>> + 'a>,
}

/// Writes a safetensors file with the one entry of metadata `format: "pt"`, and waits until it is on the disk. The same
/// tensors give the same bytes, in whatever order they come. One piece of a tensor's bytes at a time is in memory.
///
/// # Errors
///
/// [`DataError::Write`], and [`DataError::BadForeign`] where sizes overflow or values are not as many as the shape says.
pub fn write_safetensors(path: &Path, mut tensors: Vec<SafetensorsTensor<'_>>) -> Result<(), DataError> {
    let refused = |why: String| DataError::foreign(path, why);
    let failed = |e| DataError::write(path, e);
    // The order of the package's own writer: widest elements first, for alignment, then by name.
    tensors.sort_by(|a, b| stored_type(b.dtype).cmp(&stored_type(a.dtype)).then(a.name.cmp(b.name)));
    let (header, sizes) = header(&tensors).map_err(refused)?;
    let mut file = BufWriter::with_capacity(WRITE_BUFFER, FlushedFile::create(path).map_err(failed)?);
    file.write_all(&(header.len() as u64).to_le_bytes()).map_err(failed)?;
    file.write_all(&header).map_err(failed)?;
    for (tensor, size) in tensors.into_iter().zip(sizes) {
        let mut written = 0;
        for piece in tensor.values {
            written += piece.len();
            file.write_all(&piece).map_err(failed)?;
        }
        if written != size {
            return Err(refused(format!("`{}` has {written} bytes instead of {size}", tensor.name)));
        }
    }
    let file = file.into_inner().map_err(|e| failed(e.into_error()))?;
    file.sync_all().map_err(failed)
}

/// Names, types, shapes and places, padded; and the bytes of each tensor.
fn header(tensors: &[SafetensorsTensor<'_>]) -> Result<(Vec<u8>, Vec<usize>), String> {
    let (mut places, mut sizes, mut offset) = (Vec::new(), Vec::new(), 0usize);
    for tensor in tensors {
        let size = tensor.shape.iter().try_fold(tensor.dtype.bytes(), |size, &n| size.checked_mul(n));
        let end = size.and_then(|size| offset.checked_add(size));
        let (Some(size), Some(end)) = (size, end) else {
            return Err(format!("`{}` of {:?} is too large", tensor.name, tensor.shape));
        };
        let (dtype, shape) = (stored_type(tensor.dtype), tensor.shape.clone());
        places.push((tensor.name.to_string(), TensorInfo { dtype, shape, data_offsets: (offset, end) }));
        sizes.push(size);
        offset = end;
    }
    // One entry only: a hash map of several would be written in any order.
    let about = [("format".to_string(), "pt".to_string())].into();
    let metadata = Metadata::new(Some(about), places).map_err(|e| e.to_string())?;
    let mut text = serde_json::to_vec(&metadata).map_err(|e| e.to_string())?;
    text.resize(text.len().next_multiple_of(HEADER_ALIGNMENT), b' ');
    Ok((text, sizes))
}

/// `*.index.json` beside the pieces of a model: which file holds which tensor.
///
/// ```
/// use segue_foreign::ShardIndex;
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
    fn what_is_written_is_what_the_package_writes_and_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let shapes: [&[usize]; 3] = [&[2, 3], &[0, 4], &[]];
        use ElementType::*;
        let types = [Bf16, Bool, F16, F32, F64, I16, I32, I64, I8, U8];
        let all: Vec<(String, ElementType, &[usize], Vec<u8>)> = (0..30)
            .map(|i| {
                let (dtype, shape) = (types[i % types.len()], shapes[i % shapes.len()]);
                let size = shape.iter().product::<usize>() * dtype.bytes();
                (format!("a \"{i}\""), dtype, shape, (0..size as u8).collect())
            })
            .collect();
        let write =
            |name: &str, order: &mut dyn Iterator<Item = &(String, ElementType, &[usize], Vec<u8>)>| {
                let tensors = order.map(|(name, dtype, shape, values)| SafetensorsTensor {
                    name,
                    dtype: *dtype,
                    shape: shape.to_vec(),
                    values: Box::new(values.chunks(3).map(<[u8]>::to_vec)),
                });
                write_safetensors(&dir.path().join(name), tensors.collect()).unwrap();
                std::fs::read(dir.path().join(name)).unwrap()
            };
        let written = write("one", &mut all.iter());
        assert_eq!(written, write("two", &mut all.iter().rev()));
        let views = all.iter().map(|(name, dtype, shape, values)| {
            let dtype = format!("\"{}\"", dtype.name().to_uppercase());
            let dtype: Dtype = serde_json::from_str(&dtype).unwrap();
            (name, safetensors::tensor::TensorView::new(dtype, shape.to_vec(), values).unwrap())
        });
        let about = [("format".to_string(), "pt".to_string())].into();
        assert_eq!(written, safetensors::serialize(views, Some(about)).unwrap());
        let file = SafetensorsFile::open(&dir.path().join("one")).unwrap();
        assert_eq!(file.entries().len(), all.len());
        for (name, dtype, shape, values) in &all {
            let entry = file.entries().iter().find(|entry| entry.name == *name).unwrap();
            assert_eq!(
                (entry.element(), &entry.shape[..], entry.values()),
                (Some(*dtype), *shape, &values[..])
            );
        }
    }

    #[test]
    fn tensors_whose_values_do_not_fit_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for (shape, bytes) in [(vec![2], 7), (vec![usize::MAX, 2], 8)] {
            let values = Box::new(std::iter::repeat_n(vec![0], bytes));
            let tensor = SafetensorsTensor { name: "w", dtype: ElementType::F32, shape, values };
            let error = write_safetensors(&dir.path().join("f"), vec![tensor]).unwrap_err();
            assert!(error.exit_code() == 65 && error.to_string().contains("`w`"), "{error}");
        }
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
