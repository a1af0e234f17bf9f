//! Tensors in safetensors files.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use segue_data_error::DataError;
use segue_foreign::{
    ElementType, SafetensorsEntry, SafetensorsFile, SafetensorsTensor, SharedBytes, write_safetensors,
};
use segue_kernels::TrainError;
use segue_kernels::libtorch::is_finite;
use segue_kernels::simd::are_finite;
use segue_publish::{FreshFile, open_regular};
use tch::{Device, Kind, Tensor};

use super::files::{read_error, write_error};

/// The tensors of one file, by name.
pub struct TensorFile {
    /// Where they came from.
    pub path: PathBuf,
    /// f32 and i64 tensors; f16, bf16 and f64 are read as f32, i32 as i64.
    pub tensors: BTreeMap<String, Tensor>,
}

impl TensorFile {
    /// Takes out the tensor of that name, which must have this shape.
    pub fn take(&mut self, name: &str, shape: &[i64]) -> Result<Tensor, TrainError> {
        wanted(&self.path, self.tensors.remove(name), name, shape)
    }
}

/// A tensor that was found in `path`, or not, which must be there and have this shape.
fn wanted(path: &Path, found: Option<Tensor>, name: &str, shape: &[i64]) -> Result<Tensor, TrainError> {
    match found {
        None => Err(missing(path, name)),
        Some(tensor) if tensor.size() != shape => Err(misshapen(path, name, &tensor.size(), shape)),
        Some(tensor) => Ok(tensor),
    }
}

fn missing(path: &Path, name: &str) -> TrainError {
    TrainError::OtherModel { path: path.into(), what: format!("it has no tensor `{name}`") }
}

fn misshapen(path: &Path, name: &str, found: &[i64], wanted: &[i64]) -> TrainError {
    let what = format!("`{name}` is {found:?}, the model wants {wanted:?}");
    TrainError::OtherModel { path: path.into(), what }
}

/// Reads every tensor of a safetensors file. The file is mapped: no more of it than the tensors is in memory.
pub fn read_tensors(path: &Path) -> Result<TensorFile, TrainError> {
    let file = map_tensors(path)?;
    let damaged = |what: String| TrainError::Damaged { path: path.into(), what };
    let mut tensors = BTreeMap::new();
    for entry in file.file.entries() {
        let tensor = to_tensor(entry)
            .ok_or_else(|| damaged(format!("`{}` has type {}", entry.name, entry.dtype.to_uppercase())))?;
        tensors.insert(entry.name.clone(), tensor);
    }
    Ok(TensorFile { path: path.into(), tensors })
}

/// A safetensors file of which what is asked for is read, and no more.
pub struct MappedTensors {
    path: PathBuf,
    file: SafetensorsFile,
}

/// Maps a safetensors file and reads its header.
pub fn map_tensors(path: &Path) -> Result<MappedTensors, TrainError> {
    let bytes = open_regular(path).and_then(SharedBytes::of_file).map_err(read_error(path))?;
    match SafetensorsFile::from_bytes(&bytes) {
        Ok(file) => Ok(MappedTensors { path: path.into(), file }),
        Err(what) => Err(TrainError::Damaged { path: path.into(), what }),
    }
}

impl MappedTensors {
    /// Names of the tables whose tensors are named `TABLE.PARAMETER`.
    pub fn tables(&self) -> BTreeSet<&str> {
        let entries = self.file.entries().iter();
        entries.filter_map(|entry| Some(entry.name.split_once('.')?.0)).collect()
    }

    /// Reads a tensor; `None` where there is none of that name, or of a type that is not read.
    pub fn get(&self, name: &str) -> Option<Tensor> {
        to_tensor(self.entry(name)?)
    }

    /// Reads `values`, by row-major number, of the tensor of that name, which must have this shape: `[values]`. Nothing else of it is
    /// read.
    pub fn read_part(&self, name: &str, shape: &[i64], values: Range<usize>) -> Result<Tensor, TrainError> {
        let entry = self.entry(name).ok_or_else(|| missing(&self.path, name))?;
        let found: Vec<i64> = entry.shape.iter().map(|&n| n as i64).collect();
        if found != shape {
            return Err(misshapen(&self.path, name, &found, shape));
        }
        let width = entry.element().map_or(0, ElementType::bytes);
        let part = entry.values().get(values.start * width..values.end * width);
        let part = part.and_then(|part| to_tensor_of(entry, &[values.len()], part));
        part.ok_or_else(|| missing(&self.path, name))
    }

    /// The first tensor with a value that is not finite, of those in single precision, which is all that checkpoints hold besides whole numbers.
    pub(super) fn first_not_finite(&self) -> Option<&str> {
        let spoiled = |entry: &&SafetensorsEntry| {
            entry.element() == Some(ElementType::F32) && !are_finite(entry.values())
        };
        self.file.entries().iter().find(spoiled).map(|entry| entry.name.as_str())
    }

    /// Where a tensor lies.
    pub(super) fn entry(&self, name: &str) -> Option<&SafetensorsEntry> {
        self.file.entries().iter().find(|entry| entry.name == name)
    }
}

fn to_tensor(entry: &SafetensorsEntry) -> Option<Tensor> {
    to_tensor_of(entry, &entry.shape, entry.values())
}

/// The tensor of `shape` whose elements, of the type of `entry`, are `values`.
fn to_tensor_of(entry: &SafetensorsEntry, shape: &[usize], values: &[u8]) -> Option<Tensor> {
    let (stored, kind) = match entry.element()? {
        ElementType::F64 => (Kind::Double, Kind::Float),
        ElementType::F32 => (Kind::Float, Kind::Float),
        ElementType::F16 => (Kind::Half, Kind::Float),
        ElementType::Bf16 => (Kind::BFloat16, Kind::Float),
        ElementType::I64 => (Kind::Int64, Kind::Int64),
        ElementType::I32 => (Kind::Int, Kind::Int64),
        _ => return None,
    };
    let shape: Vec<i64> = shape.iter().map(|&n| n as i64).collect();
    Some(Tensor::f_from_data_size(values, &shape, stored).ok()?.to_kind(kind))
}

/// The rows `rows` of a stored table, `[rows.len(), ..]`; `None` where it has not that many, or is of a type that is not
/// read. Nothing else of it is read.
pub(super) fn rows_of(entry: &SafetensorsEntry, rows: Range<usize>) -> Option<Tensor> {
    let width = entry.bytes().checked_div(*entry.shape.first()?)?;
    let values = entry.values().get(rows.start * width..rows.end * width)?;
    let shape = [&[rows.len()], &entry.shape[1..]].concat();
    to_tensor_of(entry, &shape, values)
}

/// The error of the first of these weights in the file at `path` that holds a NaN or an infinity.
pub fn check_finite<'a>(
    path: &Path,
    mut weights: impl Iterator<Item = (&'a str, &'a Tensor)>,
) -> Result<(), TrainError> {
    match weights.find(|(_, weights)| !is_finite(weights)) {
        None => Ok(()),
        Some((name, _)) => Err(TrainError::WeightsNotFinite { path: path.into(), name: name.into() }),
    }
}

/// Writes named tensors (f32 or i64) as a safetensors file and waits until it is on the disk. The same
/// tensors give the same bytes.
pub fn write_tensors(path: &Path, tensors: &[(String, Tensor)]) -> Result<(), TrainError> {
    write_stored(path, tensors.iter().map(|(name, tensor)| to_stored(name, tensor)).collect())
}

/// The same with tensors whose bytes come from elsewhere.
pub fn write_stored(path: &Path, stored: Vec<SafetensorsTensor<'_>>) -> Result<(), TrainError> {
    segue_faults::io("tensors.write").map_err(write_error(path))?;
    write_safetensors(path, stored).map_err(|error| match error {
        DataError::Write { path, source } => TrainError::Write { path, source },
        DataError::BadForeign { path, why } => TrainError::Damaged { path, what: why },
        other => other.into(),
    })
}

/// The same as a file that appears whole or not at all.
pub fn publish_tensors(path: &Path, tensors: &[(String, Tensor)]) -> Result<(), TrainError> {
    let fresh = FreshFile::create(path)?;
    write_tensors(fresh.path(), tensors)?;
    Ok(fresh.publish()?)
}

fn to_stored<'a>(name: &'a str, tensor: &'a Tensor) -> SafetensorsTensor<'a> {
    let (dtype, kind) = match tensor.kind() {
        Kind::Int64 => (ElementType::I64, Kind::Int64),
        _ => (ElementType::F32, Kind::Float),
    };
    let shape = tensor.size().iter().map(|&n| n as usize).collect();
    let pieces = (0..tensor.numel()).step_by(PIECE);
    let flat = std::cell::LazyCell::new(move || tensor.detach().contiguous().view([-1]));
    let values = pieces.map(move |start| {
        segue_faults::gets_on();
        let piece = flat.narrow(0, start as i64, PIECE.min(tensor.numel() - start) as i64);
        bytes_of(&piece.to_kind(kind))
    });
    SafetensorsTensor { name, dtype, shape, values: Box::new(values) }
}

/// Values of a tensor that are made bytes at once.
const PIECE: usize = 1 << 20;

/// Raw little-endian contents of a contiguous CPU tensor.
pub fn bytes_of(tensor: &Tensor) -> Vec<u8> {
    assert_eq!(tensor.device(), Device::Cpu);
    let mut bytes = vec![0u8; tensor.numel() * tensor.kind().elt_size_in_bytes()];
    tensor.copy_data_u8(&mut bytes, tensor.numel());
    bytes
}

#[cfg(test)]
mod tests {
    use std::fs;

    use safetensors::tensor::{Dtype, TensorView};

    use super::*;

    #[test]
    fn tensors_survive_a_round_trip_and_bytes_do_not_vary() {
        let dir = tempfile::tempdir().unwrap();
        let tensors = vec![
            ("b".to_string(), Tensor::from_slice(&[1.5f32, -0.0, f32::MIN_POSITIVE]).view([3, 1])),
            ("a".to_string(), Tensor::from_slice(&[i64::MAX, -1])),
        ];
        let (one, two) = (dir.path().join("1"), dir.path().join("2"));
        write_tensors(&one, &tensors).unwrap();
        write_tensors(&two, &tensors).unwrap();
        assert_eq!(fs::read(&one).unwrap(), fs::read(&two).unwrap());
        let back = read_tensors(&one).unwrap();
        assert_eq!(back.tensors["b"], tensors[0].1);
        assert_eq!(back.tensors["a"], tensors[1].1);
    }

    #[test]
    fn files_are_those_of_the_format_s_own_writer() {
        let dir = tempfile::tempdir().unwrap();
        let tensors = vec![
            (
                "z.weight".to_string(),
                Tensor::from_slice(&[1.5f32, 2.0, 3.0, 4.0]).view([2, 2]).transpose(0, 1),
            ),
            ("a\"b".to_string(), Tensor::from_slice(&[7i64])),
            ("empty".to_string(), Tensor::from_slice::<f32>(&[])),
            ("half".to_string(), Tensor::from_slice(&[0.5f32]).to_kind(Kind::Half)),
        ];
        let path = dir.path().join("t");
        write_tensors(&path, &tensors).unwrap();
        let floats = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        let stored = [
            ("z.weight", Dtype::F32, vec![2, 2], floats(&[1.5, 3.0, 2.0, 4.0])),
            ("a\"b", Dtype::I64, vec![1], 7i64.to_le_bytes().to_vec()),
            ("empty", Dtype::F32, vec![0], floats(&[])),
            ("half", Dtype::F32, vec![1], floats(&[0.5])),
        ];
        let views = stored.iter().map(|(name, dtype, shape, bytes)| {
            (*name, TensorView::new(*dtype, shape.clone(), bytes).unwrap())
        });
        let about = [("format".to_string(), "pt".to_string())].into();
        assert_eq!(fs::read(&path).unwrap(), safetensors::serialize(views, Some(about)).unwrap());
    }

    #[test]
    fn half_and_double_precision_are_read_as_single_and_short_integers_as_long() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        // 1.5 and -2 in the formats of IEEE 754 and of bfloat16 (the upper half of single precision).
        let halves = [0x3e00u16, 0xc000].iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        let brains = [0x3fc0u16, 0xc000].iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        let doubles = [1.5f64, -2.0].iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        let integers = [3i32, -4].iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        let views = [
            ("f16", Dtype::F16, &halves),
            ("bf16", Dtype::BF16, &brains),
            ("f64", Dtype::F64, &doubles),
            ("i32", Dtype::I32, &integers),
        ]
        .map(|(name, dtype, bytes)| (name, TensorView::new(dtype, vec![2], bytes).unwrap()));
        fs::write(&path, safetensors::serialize(views, None).unwrap()).unwrap();
        let read = read_tensors(&path).unwrap().tensors;
        for name in ["f16", "bf16", "f64"] {
            assert_eq!(read[name], Tensor::from_slice(&[1.5f32, -2.0]), "{name}");
            assert_eq!(read[name].kind(), Kind::Float, "{name}");
        }
        assert_eq!((read["i32"].kind(), &read["i32"]), (Kind::Int64, &Tensor::from_slice(&[3i64, -4])));
    }

    #[test]
    fn truncated_file_is_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        write_tensors(&path, &[("a".into(), Tensor::from_slice(&[1f32; 100]))]).unwrap();
        let bytes = fs::read(&path).unwrap();
        for keep in [0, 4, 20, bytes.len() - 1] {
            fs::write(&path, &bytes[..keep]).unwrap();
            assert_eq!(read_tensors(&path).err().unwrap().exit_code(), 65, "{keep} bytes");
        }
    }

    #[test]
    fn errors_name_the_file_and_the_tensor() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        let message = || read_tensors(&path).err().unwrap().to_string();
        let missing = format!("cannot read {}: No such file or directory (os error 2)", path.display());
        assert_eq!((message(), read_tensors(&path).err().unwrap().exit_code()), (missing, 66));
        let view = TensorView::new(Dtype::U8, vec![2], &[1, 2]).unwrap();
        fs::write(&path, safetensors::serialize([("mask", view)], None).unwrap()).unwrap();
        assert_eq!(message(), format!("{} is damaged: `mask` has type U8", path.display()));
        fs::write(&path, [9; 4]).unwrap();
        assert!(message().starts_with(&format!("{} is damaged: not a safetensors file: ", path.display())));
        let error = read_tensors(dir.path()).err().unwrap();
        assert!(error.to_string().ends_with("Is a directory (os error 21)"), "{error}");
    }
}
