//! Tensors in safetensors files.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, Metadata, TensorInfo, TensorView};
use tch::{Device, Kind, Tensor};

use super::files::{read_error, write_error};
use crate::TrainError;

/// Bytes that are collected before they are written.
const WRITE_BUFFER: usize = 1 << 20;
/// Values begin at a multiple of this many bytes.
const HEADER_ALIGNMENT: usize = 8;

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
        let other = |what: String| TrainError::OtherModel { path: self.path.clone(), what };
        let tensor = self.tensors.remove(name).ok_or_else(|| other(format!("it has no tensor `{name}`")))?;
        if tensor.size() != shape {
            return Err(other(format!("`{name}` is {:?}, the model wants {shape:?}", tensor.size())));
        }
        Ok(tensor)
    }
}

/// Reads every tensor of a safetensors file.
pub fn read_tensors(path: &Path) -> Result<TensorFile, TrainError> {
    let bytes = fs::read(path).map_err(read_error(path))?;
    let damaged = |what: String| TrainError::Damaged { path: path.into(), what };
    let file =
        SafeTensors::deserialize(&bytes).map_err(|e| damaged(format!("not a safetensors file: {e}")))?;
    let mut tensors = BTreeMap::new();
    for (name, view) in file.tensors() {
        let tensor =
            to_tensor(&view).ok_or_else(|| damaged(format!("`{name}` has type {:?}", view.dtype())))?;
        tensors.insert(name, tensor);
    }
    Ok(TensorFile { path: path.into(), tensors })
}

fn to_tensor(view: &TensorView) -> Option<Tensor> {
    let (stored, kind) = match view.dtype() {
        Dtype::F64 => (Kind::Double, Kind::Float),
        Dtype::F32 => (Kind::Float, Kind::Float),
        Dtype::F16 => (Kind::Half, Kind::Float),
        Dtype::BF16 => (Kind::BFloat16, Kind::Float),
        Dtype::I64 => (Kind::Int64, Kind::Int64),
        Dtype::I32 => (Kind::Int, Kind::Int64),
        _ => return None,
    };
    let shape: Vec<i64> = view.shape().iter().map(|&n| n as i64).collect();
    Some(Tensor::f_from_data_size(view.data(), &shape, stored).ok()?.to_kind(kind))
}

/// Writes named tensors (f32 or i64) as a safetensors file and waits until it is on the disk. The same
/// tensors give the same bytes. The bytes of one tensor at a time are in memory.
pub fn write_tensors(path: &Path, tensors: &[(String, Tensor)]) -> Result<(), TrainError> {
    let mut stored: Vec<Stored> = tensors.iter().map(|(name, tensor)| Stored::new(name, tensor)).collect();
    // The order of the package's own writer: widest elements first, for alignment, then by name.
    stored.sort_by(|a, b| b.dtype.cmp(&a.dtype).then(a.name.cmp(b.name)));
    let header = header(&stored).map_err(|what| TrainError::Damaged { path: path.into(), what })?;
    let write = || {
        let mut file = BufWriter::with_capacity(WRITE_BUFFER, File::create(path)?);
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(&header)?;
        for tensor in &stored {
            file.write_all(&tensor.bytes())?;
        }
        file.into_inner()?.sync_all()
    };
    write().map_err(write_error(path))
}

/// A tensor that is about to be written.
struct Stored<'a> {
    name: &'a str,
    tensor: &'a Tensor,
    dtype: Dtype,
    kind: Kind,
}

impl<'a> Stored<'a> {
    fn new(name: &'a str, tensor: &'a Tensor) -> Self {
        let (dtype, kind) = match tensor.kind() {
            Kind::Int64 => (Dtype::I64, Kind::Int64),
            _ => (Dtype::F32, Kind::Float),
        };
        Self { name, tensor, dtype, kind }
    }

    fn bytes(&self) -> Vec<u8> {
        bytes_of(&self.tensor.detach().to_kind(self.kind).contiguous())
    }
}

/// Names, types, shapes and places, padded to a multiple of 8 bytes.
fn header(stored: &[Stored]) -> Result<Vec<u8>, String> {
    let mut offset = 0;
    let places = stored.iter().map(|stored| {
        let start = offset;
        offset += stored.tensor.numel() * stored.kind.elt_size_in_bytes();
        let shape = stored.tensor.size().iter().map(|&n| n as usize).collect();
        (stored.name.to_string(), TensorInfo { dtype: stored.dtype, shape, data_offsets: (start, offset) })
    });
    // One entry only: a hash map of several would be written in any order.
    let about = [("format".to_string(), "pt".to_string())].into();
    let metadata = Metadata::new(Some(about), places.collect()).map_err(|e| e.to_string())?;
    let mut text = serde_json::to_vec(&metadata).map_err(|e| e.to_string())?;
    text.resize(text.len().next_multiple_of(HEADER_ALIGNMENT), b' ');
    Ok(text)
}

/// Raw little-endian contents of a contiguous CPU tensor.
fn bytes_of(tensor: &Tensor) -> Vec<u8> {
    assert_eq!(tensor.device(), Device::Cpu);
    let mut bytes = vec![0u8; tensor.numel() * tensor.kind().elt_size_in_bytes()];
    tensor.copy_data_u8(&mut bytes, tensor.numel());
    bytes
}

#[cfg(test)]
mod tests {
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
        let kept: Vec<(String, Dtype, Vec<usize>, Vec<u8>)> = tensors
            .iter()
            .map(|(name, tensor)| {
                let stored = Stored::new(name, tensor);
                (
                    name.clone(),
                    stored.dtype,
                    tensor.size().iter().map(|&n| n as usize).collect(),
                    stored.bytes(),
                )
            })
            .collect();
        let views = kept.iter().map(|(name, dtype, shape, bytes)| {
            (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap())
        });
        let about = [("format".to_string(), "pt".to_string())].into();
        assert_eq!(fs::read(&path).unwrap(), safetensors::serialize(views, Some(about)).unwrap());
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
}
