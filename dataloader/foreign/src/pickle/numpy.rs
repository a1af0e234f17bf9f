//! Arrays of NumPy and sparse matrices of SciPy, as their pickles of Python 2 and 3 spell them. Nothing is called: a call of a known
//! name with arguments of a known shape is read as what it would have made.

use super::view::{Kind, View};
use crate::{ElementType, RawTensor, SharedBytes};

/// A sparse matrix of SciPy in compressed rows. What its arrays promise each other is for the reader to check.
#[derive(Debug)]
pub struct SparseMatrix {
    /// Rows and columns.
    pub shape: [usize; 2],
    /// Where each row begins in the other two, and the end.
    pub indptr: RawTensor,
    /// Columns.
    pub indices: RawTensor,
    /// Values.
    pub data: RawTensor,
}

impl<'a> View<'a> {
    /// Bytes that a pickle of Python 3 has as `_codecs.encode(text, 'latin1')` or `bytes()`, because its protocol has none.
    pub(super) fn encoded_bytes(self) -> Option<SharedBytes> {
        let mut args = self.args()?.elements()?;
        match self.class()? {
            ("_codecs", "encode") => {
                let text = args.next()?.text()?;
                let bytes = text.chars().map(|c| u8::try_from(u32::from(c))).collect::<Result<Vec<u8>, _>>();
                Some(bytes.ok()?.into())
            }
            ("__builtin__" | "builtins", "bytes") if args.len() == 0 => Some(Vec::new().into()),
            _ => None,
        }
    }

    /// An array of NumPy.
    ///
    /// # Errors
    ///
    /// What the value is instead, or why its array cannot be read.
    pub fn array(self) -> Result<RawTensor, String> {
        let parts = match self.class() {
            Some((module, "_reconstruct")) if module.ends_with("core.multiarray") => {
                let state: Vec<_> = self.state().and_then(View::elements).into_iter().flatten().collect();
                match state[..] {
                    // (version, shape, dtype, whether columns come first, bytes)
                    [_, shape, dtype, fortran, bytes] => Some((shape, dtype, fortran.truth(), bytes)),
                    _ => None,
                }
            }
            Some((module, "_frombuffer")) if module.ends_with("core.numeric") => {
                let args: Vec<_> = self.args().and_then(View::elements).into_iter().flatten().collect();
                match args[..] {
                    [bytes, dtype, shape, order] => {
                        Some((shape, dtype, order.text().map(|order| order == "F"), bytes))
                    }
                    _ => None,
                }
            }
            _ => return Err(format!("{}, expected an array of NumPy", self.described())),
        };
        let (shape, dtype, fortran, bytes) = parts.ok_or("an array without its parts")?;
        let shape: Option<Vec<usize>> = shape.elements().and_then(|sizes| sizes.map(View::size).collect());
        let shape = shape.ok_or("an array without a shape")?;
        let bytes = bytes.bytes().ok_or("an array whose elements are not bytes")?;
        let dtype = element_type(dtype)?;
        // The whole table is there, whatever order it is in.
        RawTensor::contiguous(dtype, shape.clone(), bytes.clone())?;
        let mut strides = vec![1usize; shape.len()];
        let columns_first = fortran == Some(true);
        for axis in 1..shape.len() {
            let (outer, inner) =
                if columns_first { (axis, axis - 1) } else { (shape.len() - 1 - axis, shape.len() - axis) };
            strides[outer] = strides[inner].saturating_mul(shape[inner].max(1));
        }
        RawTensor::new(dtype, shape, strides, 0, bytes, "")
    }

    /// A matrix of SciPy in compressed rows, `csr_matrix` or `csr_array`.
    ///
    /// # Errors
    ///
    /// What the value is instead, or why one of its arrays cannot be read.
    pub fn sparse_matrix(self) -> Result<SparseMatrix, String> {
        match self.class() {
            Some((module, "csr_matrix" | "csr_array"))
                if module == "scipy.sparse" || module.starts_with("scipy.sparse.") => {}
            _ => return Err(format!("{}, expected a csr_matrix of SciPy", self.described())),
        }
        let shape = self.attribute("_shape").or_else(|| self.attribute("shape"));
        let shape: Option<Vec<usize>> =
            shape.and_then(View::elements).and_then(|sizes| sizes.map(View::size).collect());
        let shape =
            shape.and_then(|sizes| sizes.try_into().ok()).ok_or("a matrix without rows and columns")?;
        let array = |name: &str| match self.attribute(name) {
            Some(array) => array.array().map_err(|why| format!("`{name}` of a matrix: {why}")),
            None => Err(format!("a matrix without `{name}`")),
        };
        Ok(SparseMatrix { shape, indptr: array("indptr")?, indices: array("indices")?, data: array("data")? })
    }

    /// What a value is, for a message.
    pub fn described(self) -> String {
        match (self.class(), self.kind()) {
            (Some((module, name)), _) => format!("an object of {module}.{name}"),
            (None, Kind::Str(_) | Kind::Bytes(_)) => "a text".into(),
            (None, Kind::Global { module, name }) => format!("the name {module}.{name}"),
            (None, kind) => format!("a value of kind {kind:?}"),
        }
    }
}

/// The type of the elements of an array: `dtype(code, align, copy)` with the state `(version, byte order, ..)`.
fn element_type(dtype: View<'_>) -> Result<ElementType, String> {
    let code = dtype.args().and_then(View::elements).and_then(|mut args| args.next()?.text());
    let order = dtype.state().and_then(View::elements).and_then(|mut state| state.nth(1)?.text());
    let dtype = match code.ok_or("an array without a type")? {
        "f4" => ElementType::F32,
        "f8" => ElementType::F64,
        "f2" => ElementType::F16,
        "i8" => ElementType::I64,
        "i4" => ElementType::I32,
        "i2" => ElementType::I16,
        "i1" => ElementType::I8,
        "u1" => ElementType::U8,
        "b1" => ElementType::Bool,
        other => return Err(format!("unsupported element type `{other}`")),
    };
    match order {
        Some(">") => Err("elements of big-endian byte order".into()),
        _ => Ok(dtype),
    }
}
