use std::fs::File;
use std::io::Write;
use std::path::Path;

use segue_data_error::DataError;
use zip::write::FileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::{ElementType, SharedBytes};

/// Folder inside the container, as PyTorch calls it where nobody names it.
const ROOT: &str = "archive";
/// Version of the container's layout.
const VERSION: &[u8] = b"3\n";
/// Alignment of entries, with which PyTorch can map them.
const ALIGNMENT: u16 = 64;
/// Entries from this size on need the larger header.
const LARGE: usize = 1 << 31;

/// A value of a file of `torch.save`.
#[derive(Clone, Debug)]
pub enum Saved {
    /// An `OrderedDict`.
    Dict(Vec<(String, Saved)>),
    /// A list of whole numbers.
    Numbers(Vec<i64>),
    /// A tensor.
    Tensor(SavedTensor),
}

/// A tensor in row-major order. Tensors whose bytes are one piece are tied: PyTorch stores such a piece once.
#[derive(Clone, Debug)]
pub struct SavedTensor {
    /// Type of its elements.
    pub dtype: ElementType,
    /// Sizes.
    pub shape: Vec<usize>,
    /// Elements, little-endian.
    pub bytes: SharedBytes,
}

/// Writes a file as `torch.save` of PyTorch 1.6 and later does, which `torch.load` reads with `weights_only`, and waits until it is on the disk.
/// The same value gives the same bytes.
pub fn write_torch(path: &Path, value: &Saved) -> Result<(), DataError> {
    let mut pickler = Pickler { out: b"\x80\x02".to_vec(), storages: Vec::new() };
    pickler.value(value);
    pickler.out.push(b'.');
    let numbered = pickler.storages.iter().enumerate();
    let storages = numbered.map(|(key, storage)| (format!("data/{key}"), &storage[..]));
    let first = [("data.pkl".to_string(), &pickler.out[..]), ("byteorder".to_string(), b"little")];
    let entries = first.into_iter().chain(storages).chain([("version".to_string(), VERSION)]);
    let failed = |e| DataError::write(path, e);
    let file = File::create(path).map_err(failed)?;
    let mut zip = ZipWriter::new(file);
    for (name, bytes) in entries {
        let options = FileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .large_file(bytes.len() >= LARGE);
        zip.start_file_aligned(format!("{ROOT}/{name}"), options, ALIGNMENT).map_err(|e| failed(e.into()))?;
        zip.write_all(bytes).map_err(failed)?;
    }
    zip.finish().map_err(|e| failed(e.into()))?.sync_all().map_err(failed)
}

/// Writes a pickle of protocol 2.
struct Pickler {
    out: Vec<u8>,
    /// Pieces of bytes by their keys.
    storages: Vec<SharedBytes>,
}

impl Pickler {
    fn value(&mut self, value: &Saved) {
        match value {
            Saved::Dict(entries) => {
                self.empty_dict();
                self.out.push(b'('); // MARK
                for (key, value) in entries {
                    self.text(key);
                    self.value(value);
                }
                self.out.push(b'u'); // SETITEMS
            }
            Saved::Numbers(numbers) => {
                self.out.extend(b"]("); // EMPTY_LIST, MARK
                numbers.iter().for_each(|&number| self.number(number));
                self.out.push(b'e'); // APPENDS
            }
            Saved::Tensor(tensor) => self.tensor(tensor),
        }
    }

    /// `_rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks)`.
    fn tensor(&mut self, tensor: &SavedTensor) {
        let place = |storage: &SharedBytes| (storage.as_ptr(), storage.len());
        let known = self.storages.iter().position(|storage| place(storage) == place(&tensor.bytes));
        let key = known.unwrap_or_else(|| {
            self.storages.push(tensor.bytes.clone());
            self.storages.len() - 1
        });
        self.global("torch._utils", "_rebuild_tensor_v2");
        self.out.extend(b"(("); // MARK of the arguments, MARK of the id
        self.text("storage");
        self.global("torch", storage_class(tensor.dtype));
        self.text(&key.to_string());
        self.text("cpu");
        self.number((tensor.bytes.len() / tensor.dtype.bytes()) as i64);
        self.out.extend(b"tQ"); // TUPLE, BINPERSID
        self.number(0);
        self.sizes(tensor.shape.iter().copied());
        let strides = (1..=tensor.shape.len()).map(|axis| tensor.shape[axis..].iter().product());
        self.sizes(strides);
        self.out.push(0x89); // NEWFALSE
        self.empty_dict();
        self.out.extend(b"tR"); // TUPLE, REDUCE
    }

    fn empty_dict(&mut self) {
        self.global("collections", "OrderedDict");
        self.out.extend(b")R"); // EMPTY_TUPLE, REDUCE
    }

    fn sizes(&mut self, sizes: impl Iterator<Item = usize>) {
        self.out.push(b'('); // MARK
        sizes.for_each(|size| self.number(size as i64));
        self.out.push(b't'); // TUPLE
    }

    fn global(&mut self, module: &str, name: &str) {
        self.out.extend(format!("c{module}\n{name}\n").bytes());
    }

    fn text(&mut self, text: &str) {
        self.out.push(b'X'); // BINUNICODE
        self.out.extend((text.len() as u32).to_le_bytes());
        self.out.extend(text.bytes());
    }

    fn number(&mut self, number: i64) {
        match i32::try_from(number) {
            Ok(small) => {
                self.out.push(b'J'); // BININT
                self.out.extend(small.to_le_bytes());
            }
            Err(_) => {
                self.out.extend([0x8A, 8]); // LONG1
                self.out.extend(number.to_le_bytes());
            }
        }
    }
}

fn storage_class(dtype: ElementType) -> &'static str {
    match dtype {
        ElementType::F32 => "FloatStorage",
        ElementType::F64 => "DoubleStorage",
        ElementType::F16 => "HalfStorage",
        ElementType::Bf16 => "BFloat16Storage",
        ElementType::I64 => "LongStorage",
        ElementType::I32 => "IntStorage",
        ElementType::I16 => "ShortStorage",
        ElementType::I8 => "CharStorage",
        ElementType::U8 => "ByteStorage",
        ElementType::Bool => "BoolStorage",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TorchFile;

    #[test]
    fn what_is_written_is_read_back_and_tied_tensors_are_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.pt");
        let table: SharedBytes = (0..24u8).collect::<Vec<_>>().into();
        let tensor = |bytes: &SharedBytes, shape: &[usize]| {
            Saved::Tensor(SavedTensor { dtype: ElementType::F32, shape: shape.into(), bytes: bytes.clone() })
        };
        let model = Saved::Dict(vec![
            ("encoder.weight".into(), tensor(&table, &[3, 2])),
            ("decoder.weight".into(), tensor(&table, &[3, 2])),
            ("decoder.bias".into(), tensor(&vec![1u8; 12].into(), &[3])),
        ]);
        let ends = Saved::Numbers(vec![0, 2, 1 << 40]);
        write_torch(&path, &Saved::Dict(vec![("model".into(), model), ("splits".into(), ends)])).unwrap();
        let file = TorchFile::open(&path).unwrap();
        let found = file.tensors(file.root()).unwrap();
        let names: Vec<_> = found.iter().map(|named| named.name.as_str()).collect();
        assert_eq!(names, ["model.encoder.weight", "model.decoder.weight", "model.decoder.bias"]);
        assert_eq!((found[0].tensor.shape(), found[0].tensor.to_bytes()), (&[3, 2][..], table.to_vec()));
        assert!(
            found[0].tensor.shares_with(&found[1].tensor) && !found[0].tensor.shares_with(&found[2].tensor)
        );
        let splits = file.root().get("splits").and_then(|splits| splits.elements()).unwrap();
        assert_eq!(splits.map(|end| end.int().unwrap()).collect::<Vec<_>>(), [0, 2, 1 << 40]);
    }
}
