use std::fmt;

use super::SharedBytes;

/// Type of the elements of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ElementType {
    /// 32-bit float.
    F32,
    /// 64-bit float.
    F64,
    /// IEEE half precision.
    F16,
    /// bfloat16.
    Bf16,
    /// 64-bit integer.
    I64,
    /// 32-bit integer.
    I32,
    /// 16-bit integer.
    I16,
    /// 8-bit integer.
    I8,
    /// Byte.
    U8,
    /// One byte, 0 or 1.
    Bool,
}

impl ElementType {
    /// Bytes of one element.
    pub fn bytes(self) -> usize {
        match self {
            ElementType::F64 | ElementType::I64 => 8,
            ElementType::F32 | ElementType::I32 => 4,
            ElementType::F16 | ElementType::Bf16 | ElementType::I16 => 2,
            ElementType::I8 | ElementType::U8 | ElementType::Bool => 1,
        }
    }

    /// Short name, as in safetensors files but in lower case.
    pub fn name(self) -> &'static str {
        match self {
            ElementType::F32 => "f32",
            ElementType::F64 => "f64",
            ElementType::F16 => "f16",
            ElementType::Bf16 => "bf16",
            ElementType::I64 => "i64",
            ElementType::I32 => "i32",
            ElementType::I16 => "i16",
            ElementType::I8 => "i8",
            ElementType::U8 => "u8",
            ElementType::Bool => "bool",
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A tensor in the bytes of a file: little-endian elements, addressed as PyTorch does. What it refers to lies inside
/// its storage; that was checked when it was made.
#[derive(Clone, Debug)]
pub struct RawTensor {
    dtype: ElementType,
    shape: Vec<usize>,
    strides: Vec<usize>,
    offset: usize,
    storage: SharedBytes,
    storage_name: Box<str>,
}

impl RawTensor {
    /// A tensor over `storage`. `strides` and `offset` count elements. `storage_name` is the same for tensors that
    /// share a storage. Refuses views that reach past the storage or are larger than it.
    pub fn new(
        dtype: ElementType,
        shape: Vec<usize>,
        strides: Vec<usize>,
        offset: usize,
        storage: SharedBytes,
        storage_name: &str,
    ) -> Result<Self, String> {
        let available = storage.len() / dtype.bytes();
        let reaches = || {
            if shape.len() != strides.len() {
                return None;
            }
            let count = shape.iter().try_fold(1usize, |count, &size| count.checked_mul(size))?;
            if count == 0 {
                return Some((0, 0));
            }
            let last = shape
                .iter()
                .zip(&strides)
                .try_fold(offset, |at, (&size, &stride)| at.checked_add(stride.checked_mul(size - 1)?))?;
            Some((count, last.checked_add(1)?))
        };
        match reaches() {
            Some((count, end)) if count <= available && end <= available => {}
            _ => {
                return Err(format!(
                    "a tensor of shape {shape:?}, strides {strides:?} and offset {offset} does not fit into its \
                     storage of {available} elements"
                ));
            }
        }
        Ok(Self { dtype, shape, strides, offset, storage, storage_name: storage_name.into() })
    }

    /// A tensor whose elements follow each other in `storage`.
    pub fn contiguous(dtype: ElementType, shape: Vec<usize>, storage: SharedBytes) -> Result<Self, String> {
        let count = shape.iter().try_fold(dtype.bytes(), |count, &size| count.checked_mul(size));
        if count != Some(storage.len()) {
            return Err(format!("{} bytes for a tensor of {dtype} and shape {shape:?}", storage.len()));
        }
        let strides = contiguous_strides(&shape);
        Self::new(dtype, shape, strides, 0, storage, "")
    }

    /// Type of the elements.
    pub fn dtype(&self) -> ElementType {
        self.dtype
    }

    /// Sizes.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of elements.
    pub fn numel(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether two tensors of one file are the same view of the same storage: tied parameters.
    pub fn shares_with(&self, other: &RawTensor) -> bool {
        (&self.storage_name, self.offset, &self.shape, &self.strides)
            == (&other.storage_name, other.offset, &other.shape, &other.strides)
    }

    /// The elements in row-major order, little-endian.
    pub fn to_bytes(&self) -> Vec<u8> {
        let width = self.dtype.bytes();
        let count = self.numel();
        if count == 0 {
            return Vec::new();
        }
        if self.strides == contiguous_strides(&self.shape) {
            return self.storage[self.offset * width..(self.offset + count) * width].to_vec();
        }
        let mut out = Vec::with_capacity(count * width);
        let mut place = vec![0; self.shape.len()];
        for _ in 0..count {
            let at: usize = place.iter().zip(&self.strides).map(|(i, stride)| i * stride).sum();
            let at = (self.offset + at) * width;
            out.extend_from_slice(&self.storage[at..at + width]);
            for axis in (0..place.len()).rev() {
                place[axis] += 1;
                if place[axis] < self.shape[axis] {
                    break;
                }
                place[axis] = 0;
            }
        }
        out
    }
}

/// Strides of a row-major tensor. Axes of size 1 or 0 count as 1 wide, like PyTorch's.
fn contiguous_strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1usize; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(shape[axis].max(1));
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(count: u8) -> SharedBytes {
        (0..count).collect::<Vec<u8>>().into()
    }

    #[test]
    fn transposed_views_are_read_in_row_major_order() {
        let tensor = RawTensor::new(ElementType::U8, vec![3, 2], vec![1, 3], 1, bytes(7), "0").unwrap();
        assert_eq!(tensor.to_bytes(), [1, 4, 2, 5, 3, 6]);
    }

    #[test]
    fn views_that_do_not_fit_are_refused() {
        let new = |shape: &[usize], strides: &[usize], offset| {
            RawTensor::new(ElementType::I16, shape.into(), strides.into(), offset, bytes(8), "0")
        };
        assert!(new(&[2, 2], &[2, 1], 0).is_ok());
        assert!(new(&[2, 2], &[2, 1], 1).is_err());
        assert!(new(&[5], &[1], 0).is_err());
        // A stride of zero repeats one element without end.
        assert!(new(&[1 << 40], &[0], 0).is_err());
        assert!(new(&[usize::MAX, 2], &[1, 1], 0).is_err());
        assert!(new(&[2], &[usize::MAX], 0).is_err());
        assert!(new(&[2], &[], 0).is_err());
        assert_eq!(new(&[0, 7], &[7, 1], 99).unwrap().to_bytes(), [0u8; 0]);
    }
}
