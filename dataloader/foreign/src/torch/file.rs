use std::collections::HashMap;
use std::path::Path;

use segue_data_error::DataError;

use super::container::{self, storage_id};
use crate::pickle::{Kind, Pickle, View};
use crate::{ElementType, RawTensor, SharedBytes};

/// Axes of a tensor, more than any has.
const MAX_AXES: usize = 16;

/// A file of `torch.save`, or a plain pickle.
///
/// ```
/// use segue_foreign::TorchFile;
///
/// // pickle.dumps({"n": 3}, protocol=2)
/// let file = TorchFile::from_bytes(&b"\x80\x02}q\x00X\x01\x00\x00\x00nq\x01K\x03s.".to_vec().into()).unwrap();
/// assert_eq!(file.root().get("n").and_then(|n| n.int()), Some(3));
/// ```
pub struct TorchFile {
    pickle: Pickle,
    storages: HashMap<String, SharedBytes>,
}

impl TorchFile {
    /// Maps and takes apart a file. The bytes of tensors are not read before they are asked for, but for their
    /// checksums.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        Self::from_bytes(&SharedBytes::map(path)?).map_err(|why| DataError::foreign(path, why))
    }

    /// Takes apart the contents of a file.
    pub fn from_bytes(bytes: &SharedBytes) -> Result<Self, String> {
        let container = container::open(bytes)?;
        Ok(Self { pickle: container.pickle, storages: container.storages })
    }

    /// The saved object.
    pub fn root(&self) -> View<'_> {
        self.pickle.root()
    }

    /// The tensor that a value is; `None` where it is something else.
    pub fn tensor(&self, value: View<'_>) -> Result<Option<RawTensor>, String> {
        let Some((module, function)) = value.class() else { return Ok(None) };
        let parameter = function == "_rebuild_parameter"
            || function == "_rebuild_parameter_with_state"
            || (module.starts_with("torch.nn") && function == "Parameter");
        if parameter {
            let data = value.args().and_then(|args| args.elements()?.next());
            // One level: a parameter is made from a tensor.
            return match data {
                Some(data) if data.class().is_some_and(|(_, name)| name.starts_with("_rebuild_tensor")) => {
                    self.rebuilt(data).map(Some)
                }
                _ => Err("a parameter is not made from a tensor".into()),
            };
        }
        match module == "torch._utils" && function.starts_with("_rebuild_tensor") {
            true => self.rebuilt(value).map(Some),
            false => Ok(None),
        }
    }

    /// `_rebuild_tensor_v2(storage, offset, size, stride, ..)`, its forerunner, and v3 with the type at the end.
    fn rebuilt(&self, value: View<'_>) -> Result<RawTensor, String> {
        let malformed = || "a tensor is made from unexpected arguments".to_string();
        let args = value.args().and_then(View::elements).ok_or_else(malformed)?;
        let args: Vec<View<'_>> = args.take(7).collect();
        let [storage, offset, size, stride, ..] = args[..] else { return Err(malformed()) };
        let id = storage_id(storage).ok_or_else(malformed)?;
        let named = args.get(6).and_then(|dtype| match dtype.kind() {
            Kind::Global { name, .. } => element_type(name),
            _ => None,
        });
        let dtype = id.dtype.or(named).ok_or("a tensor has an unsupported element type")?;
        let bytes = self.storages.get(id.key).ok_or_else(|| format!("its storage {} is missing", id.key))?;
        let sizes = |view: View<'_>| -> Result<Vec<usize>, String> {
            let mut members = view.elements().filter(|m| m.len() <= MAX_AXES).ok_or_else(malformed)?;
            members.try_fold(Vec::new(), |mut sizes, size| {
                sizes.push(size.size().ok_or_else(malformed)?);
                Ok(sizes)
            })
        };
        let offset =
            offset.size().and_then(|offset| offset.checked_add(id.view_offset)).ok_or_else(malformed)?;
        RawTensor::new(dtype, sizes(size)?, sizes(stride)?, offset, bytes.clone(), id.key)
    }
}

fn element_type(name: &str) -> Option<ElementType> {
    Some(match name {
        "float32" => ElementType::F32,
        "float64" => ElementType::F64,
        "float16" => ElementType::F16,
        "bfloat16" => ElementType::Bf16,
        "int64" => ElementType::I64,
        "int32" => ElementType::I32,
        "int16" => ElementType::I16,
        "int8" => ElementType::I8,
        "uint8" => ElementType::U8,
        "bool" => ElementType::Bool,
        _ => return None,
    })
}
