//! Arrays of NumPy and sparse matrices of SciPy, as their pickles of Python 2 and 3 spell them. Nothing is called: a call of a known
//! name with arguments of a known shape is read as what it would have made.

use super::view::{Kind, Value, View};
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

    /// The code of a type of elements, and whether their bytes begin with the highest: of `dtype(code, align, copy)` with the state
    /// `(version, byte order, ..)`.
    pub(super) fn element_code(self) -> Option<(&'a str, bool)> {
        let code = self.args()?.elements()?.next()?.text()?;
        let order = self.state().and_then(View::elements).and_then(|mut state| state.nth(1)?.text());
        Some((code, order == Some(">")))
    }

    /// `numpy.core.multiarray.scalar(dtype, bytes)`.
    pub(super) fn numpy_scalar(self) -> Option<Value> {
        let (module, name) = self.class()?;
        if !module.starts_with("numpy") || name != "scalar" {
            return None;
        }
        let args: Vec<_> = self.args()?.elements()?.take(2).collect();
        let (code, big_endian) = args.first()?.element_code()?;
        let mut bytes = args.get(1)?.bytes()?.to_vec();
        if big_endian {
            bytes.reverse();
        }
        let wide = |signed: bool| {
            let mut word = [if signed && bytes.last()? & 0x80 != 0 { 0xFF } else { 0 }; 8];
            word.get_mut(..bytes.len())?.copy_from_slice(&bytes);
            Some(Value::Int(i64::from_le_bytes(word)))
        };
        match code {
            "i1" | "i2" | "i4" | "i8" => wide(true),
            "u1" | "u2" | "u4" | "b1" => wide(false),
            "f4" => Some(Value::Float(f64::from(f32::from_le_bytes(bytes[..].try_into().ok()?)))),
            "f8" => Some(Value::Float(f64::from_le_bytes(bytes[..].try_into().ok()?))),
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
        let (code, big_endian) = dtype.element_code().ok_or("an array without a type")?;
        let dtype = element_type(code)?;
        let bytes = if big_endian { reversed(&bytes, dtype.bytes()).into() } else { bytes };
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

/// The bytes of each element, back to front.
fn reversed(bytes: &[u8], width: usize) -> Vec<u8> {
    bytes.chunks(width).flat_map(|element| element.iter().rev()).copied().collect()
}

/// The type that NumPy calls `code`.
fn element_type(code: &str) -> Result<ElementType, String> {
    Ok(match code {
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
    })
}

#[cfg(test)]
mod tests {
    use crate::Pickle;

    /// An array as Python 2 writes it, protocol 0.
    fn array(code: &str, order: char, shape: &str, bytes: &str) -> Vec<u8> {
        format!(
            "cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR(I1\n({shape}tcnumpy\ndtype\n\
             (S'{code}'\nI0\nI1\ntR(I3\nS'{order}'\nNNNI-1\nI-1\nI0\ntbI00\nS'{bytes}'\ntb."
        )
        .into_bytes()
    }

    /// Both orders of 1, 256 and -2, and of one byte each, which has none.
    #[test]
    fn arrays_of_either_byte_order_hold_the_same() {
        let read = |code, order, shape, bytes| {
            let pickle = Pickle::parse(&array(code, order, shape, bytes).into()).unwrap();
            pickle.root().array().unwrap().to_bytes()
        };
        let expected = [1i32, 256, -2].map(i32::to_le_bytes).concat();
        let big = r"\x00\x00\x00\x01\x00\x00\x01\x00\xff\xff\xff\xfe";
        let little = r"\x01\x00\x00\x00\x00\x01\x00\x00\xfe\xff\xff\xff";
        assert_eq!(read("i4", '>', "I3\n", big), expected);
        assert_eq!(read("i4", '<', "I3\n", little), expected);
        assert_eq!(read("b1", '|', "L2L\nI1\n", r"\x01\x00"), [1, 0]);
        let half = array("f8", '>', "I1\n", r"?\xe0\x00\x00\x00\x00\x00");
        let error = Pickle::parse(&half.into()).unwrap().root().array().unwrap_err();
        assert!(error.contains("7 bytes for a tensor of f64"), "{error}");
    }

    #[test]
    fn scalars_of_either_byte_order_are_one_number() {
        let read = |code: &str, order: char, bytes: &str| {
            let text = format!(
                "cnumpy.core.multiarray\nscalar\n(cnumpy\ndtype\n(S'{code}'\nI0\nI1\ntR(I3\nS'{order}'\nNNNI-1\nI-1\nI0\ntbS'{bytes}'\ntR."
            );
            let pickle = Pickle::parse(&text.into_bytes().into()).unwrap();
            (pickle.root().int(), pickle.root().float())
        };
        for (code, order, bytes, int, float) in [
            ("i8", '<', r"\x02\x01\x00\x00\x00\x00\x00\x00", Some(258), 258.0),
            ("i8", '>', r"\x00\x00\x00\x00\x00\x00\x01\x02", Some(258), 258.0),
            ("i2", '>', r"\xff\xfe", Some(-2), -2.0),
            ("f4", '>', r"?\x80\x00\x00", None, 1.0),
            ("f8", '<', r"\x00\x00\x00\x00\x00\x00\xe0?", None, 0.5),
        ] {
            assert_eq!(read(code, order, bytes), (int, Some(float)), "{code}{order}");
        }
    }
}
