//! Arrays of NumPy and sparse matrices of SciPy, as their pickles of Python 2 and 3 spell them. Nothing is called: a call of a known
//! name with arguments of a known shape is read as what it would have made.

use super::view::{Kind, Value, View};
use crate::{ElementType, RawTensor, SharedBytes};

/// A sparse matrix of SciPy. What its arrays promise each other is for the reader to check.
#[derive(Debug)]
pub struct SparseMatrix {
    /// Rows and columns.
    pub shape: [usize; 2],
    /// Where the values stand.
    pub places: SparsePlaces,
    /// Values.
    pub data: RawTensor,
}

/// Where the values of a sparse matrix stand.
#[derive(Debug)]
pub enum SparsePlaces {
    /// Of `csr_matrix`: where the values of each row begin, and the end, and the column of each value.
    Rows {
        /// `[rows + 1]`.
        indptr: RawTensor,
        /// `[values]`.
        indices: RawTensor,
    },
    /// Of `csc_matrix`: where the values of each column begin, and the end, and the row of each value.
    Columns {
        /// `[columns + 1]`.
        indptr: RawTensor,
        /// `[values]`.
        indices: RawTensor,
    },
    /// Of `coo_matrix` and `lil_matrix`: row and column of each value.
    Coordinates {
        /// `[values]`.
        rows: RawTensor,
        /// `[values]`.
        columns: RawTensor,
    },
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
        let mut bytes = args.get(1)?.bytes().filter(|bytes| bytes.len() <= size_of::<u64>())?.to_vec();
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
            "u8" if bytes.last().is_some_and(|high| high & 0x80 == 0) => wide(false),
            "f4" => Some(Value::Float(f64::from(f32::from_le_bytes(bytes[..].try_into().ok()?)))),
            "f8" => Some(Value::Float(f64::from_le_bytes(bytes[..].try_into().ok()?))),
            _ => None,
        }
    }

    /// Shape, type, order and content of an array of NumPy.
    fn array_parts(self) -> Result<ArrayParts<'a>, String> {
        let parts = match self.class() {
            Some((module, "_reconstruct")) if module.ends_with("core.multiarray") => {
                let state: Vec<_> = self.state().and_then(View::elements).into_iter().flatten().collect();
                match state[..] {
                    // (version, shape, dtype, whether columns come first, bytes)
                    [_, shape, dtype, fortran, content] => Some((shape, dtype, fortran.truth(), content)),
                    _ => None,
                }
            }
            Some((module, "_frombuffer")) if module.ends_with("core.numeric") => {
                let args: Vec<_> = self.args().and_then(View::elements).into_iter().flatten().collect();
                match args[..] {
                    [content, dtype, shape, order] => {
                        Some((shape, dtype, order.text().map(|order| order == "F"), content))
                    }
                    _ => None,
                }
            }
            _ => return Err(format!("{}, expected an array of NumPy", self.described())),
        };
        let (shape, dtype, fortran, content) = parts.ok_or("an array without its parts")?;
        let shape: Option<Vec<usize>> = shape.elements().and_then(|sizes| sizes.map(View::size).collect());
        let shape = shape.ok_or("an array without a shape")?;
        Ok(ArrayParts { shape, dtype, columns_first: fortran == Some(true), content })
    }

    /// An array of NumPy. Unsigned integers of more than 8 bits become signed ones that hold them.
    ///
    /// # Errors
    ///
    /// What the value is instead, or why its array cannot be read.
    pub fn array(self) -> Result<RawTensor, String> {
        let ArrayParts { shape, dtype, columns_first, content } = self.array_parts()?;
        let bytes = content.bytes().ok_or("an array whose elements are not bytes")?;
        let (code, big_endian) = dtype.element_code().ok_or("an array without a type")?;
        let (dtype, bytes) = elements(code, big_endian, bytes)?;
        // The whole table is there, whatever order it is in.
        RawTensor::contiguous(dtype, shape.clone(), bytes.clone())?;
        let mut strides = vec![1usize; shape.len()];
        for axis in 1..shape.len() {
            let (outer, inner) =
                if columns_first { (axis, axis - 1) } else { (shape.len() - 1 - axis, shape.len() - axis) };
            strides[outer] = strides[inner].saturating_mul(shape[inner].max(1));
        }
        RawTensor::new(dtype, shape, strides, 0, bytes, "")
    }

    /// Members of an array of Python's objects in one dimension.
    fn array_of_objects(self) -> Result<Vec<View<'a>>, String> {
        let ArrayParts { shape, dtype, content, .. } = self.array_parts()?;
        let code = dtype.element_code().map(|(code, _)| code);
        let members: Option<Vec<_>> = content.elements().map(Iterator::collect);
        match (members, &shape[..]) {
            (Some(members), [length])
                if members.len() == *length && code.is_some_and(|c| c.starts_with('O')) =>
            {
                Ok(members)
            }
            _ => Err(format!("an array of shape {shape:?}, expected one of objects in one dimension")),
        }
    }

    /// A matrix of SciPy, `csr_matrix`, `csc_matrix`, `coo_matrix` or `lil_matrix`, or the array of the same form.
    ///
    /// # Errors
    ///
    /// What the value is instead, or why one of its arrays cannot be read.
    pub fn sparse_matrix(self) -> Result<SparseMatrix, String> {
        let form = match self.class() {
            Some((module, name)) if module == "scipy.sparse" || module.starts_with("scipy.sparse.") => {
                name.strip_suffix("_matrix").or_else(|| name.strip_suffix("_array"))
            }
            _ => None,
        };
        let unread = || {
            format!(
                "{}, expected a csr_matrix, csc_matrix, coo_matrix or lil_matrix of SciPy",
                self.described()
            )
        };
        let form = form.filter(|form| ["csr", "csc", "coo", "lil"].contains(form)).ok_or_else(unread)?;
        let shape = self.attribute("_shape").or_else(|| self.attribute("shape"));
        let shape: Option<Vec<usize>> =
            shape.and_then(View::elements).and_then(|sizes| sizes.map(View::size).collect());
        let shape =
            shape.and_then(|sizes| sizes.try_into().ok()).ok_or("a matrix without rows and columns")?;
        if form == "lil" {
            let (places, data) = self.lists_of_rows()?;
            return Ok(SparseMatrix { shape, places, data });
        }
        let places = match form {
            "csr" => SparsePlaces::Rows { indptr: self.part("indptr")?, indices: self.part("indices")? },
            "csc" => SparsePlaces::Columns { indptr: self.part("indptr")?, indices: self.part("indices")? },
            _ => self.coordinates()?,
        };
        Ok(SparseMatrix { shape, places, data: self.part("data")? })
    }

    /// An array of a matrix.
    fn part(self, name: &str) -> Result<RawTensor, String> {
        let array = self.attribute(name).ok_or_else(|| format!("a matrix without `{name}`"))?;
        array.array().map_err(|why| format!("`{name}` of a matrix: {why}"))
    }

    /// Of a `coo_matrix`: `row` and `col`, or since SciPy 1.13 `coords` with both.
    fn coordinates(self) -> Result<SparsePlaces, String> {
        let Some(coords) = self.attribute("coords") else {
            return Ok(SparsePlaces::Coordinates { rows: self.part("row")?, columns: self.part("col")? });
        };
        let coords: Vec<_> = coords.elements().into_iter().flatten().collect();
        let [rows, columns] = coords[..] else { return Err("a matrix without rows and columns".into()) };
        let array = |array: View<'_>| array.array().map_err(|why| format!("`coords` of a matrix: {why}"));
        Ok(SparsePlaces::Coordinates { rows: array(rows)?, columns: array(columns)? })
    }

    /// Of a `lil_matrix`: `rows` has a list of columns for each row, `data` one of their values.
    fn lists_of_rows(self) -> Result<(SparsePlaces, RawTensor), String> {
        let lists = |name: &str| match self.attribute(name) {
            Some(array) => array.array_of_objects().map_err(|why| format!("`{name}` of a matrix: {why}")),
            None => Err(format!("a matrix without `{name}`")),
        };
        let (columns_of, values_of) = (lists("rows")?, lists("data")?);
        if columns_of.len() != values_of.len() {
            return Err(format!(
                "a matrix with {} lists of columns and {} of values",
                columns_of.len(),
                values_of.len()
            ));
        }
        let (mut rows, mut columns, mut data) = (Vec::new(), Vec::new(), Vec::new());
        for (row, (of_columns, of_values)) in columns_of.iter().zip(values_of).enumerate() {
            let bad = || format!("row {row} of a matrix is not a list of columns and one of as many values");
            let (Some(of_columns), Some(of_values)) = (of_columns.elements(), of_values.elements()) else {
                return Err(bad());
            };
            if of_columns.len() != of_values.len() {
                return Err(bad());
            }
            if rows.len() + of_columns.len() > self.pickle_bytes() {
                return Err(format!("more values than its {} bytes can hold", self.pickle_bytes()));
            }
            for (column, value) in of_columns.zip(of_values) {
                rows.push(row as i64);
                columns.push(column.int().ok_or_else(bad)?);
                data.push(value.float().ok_or_else(bad)?);
            }
        }
        let table = |dtype, bytes: Vec<u8>| RawTensor::contiguous(dtype, vec![rows.len()], bytes.into());
        let integers = |numbers: &[i64]| numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
        let places = SparsePlaces::Coordinates {
            rows: table(ElementType::I64, integers(&rows))?,
            columns: table(ElementType::I64, integers(&columns))?,
        };
        Ok((places, table(ElementType::F64, data.iter().flat_map(|x| x.to_le_bytes()).collect())?))
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

/// What a pickle says of an array.
struct ArrayParts<'a> {
    shape: Vec<usize>,
    dtype: View<'a>,
    columns_first: bool,
    /// Bytes, or the members of an array of objects.
    content: View<'a>,
}

/// Elements of the type that NumPy calls `code`, little-endian. There is no unsigned type of more than 8 bits here: these are widened.
fn elements(code: &str, big_endian: bool, bytes: SharedBytes) -> Result<(ElementType, SharedBytes), String> {
    let (width, wide) = match code {
        "u2" => (2, ElementType::I32),
        "u4" => (4, ElementType::I64),
        "u8" => (8, ElementType::I64),
        _ => {
            let dtype = element_type(code)?;
            let bytes = if big_endian { reversed(&bytes, dtype.bytes()).into() } else { bytes };
            return Ok((dtype, bytes));
        }
    };
    if !bytes.len().is_multiple_of(width) {
        return Err(format!("{} bytes for elements of type `{code}`", bytes.len()));
    }
    let little = if big_endian { reversed(&bytes, width).into() } else { bytes };
    if width == 8 {
        return match little.chunks(8).any(|element| element[7] & 0x80 != 0) {
            true => Err("an element of type `u8` of more than 63 bits".into()),
            false => Ok((wide, little)),
        };
    }
    let zeros = [0u8; 4];
    let widened: Vec<u8> =
        little.chunks(width).flat_map(|element| element.iter().chain(&zeros[..width])).copied().collect();
    Ok((wide, widened.into()))
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
