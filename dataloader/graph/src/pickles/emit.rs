//! Pickles of protocol 2, which Python 2 and 3 read, as much of them as data sets need.

/// The bytes of a pickle that is being written.
pub(super) struct Emitter {
    out: Vec<u8>,
}

impl Emitter {
    pub fn new() -> Self {
        // PROTO
        Self { out: vec![0x80, 2] }
    }

    /// The pickle, with its STOP.
    pub fn finish(mut self) -> Vec<u8> {
        self.out.push(b'.');
        self.out
    }

    /// One opcode without arguments.
    fn op(&mut self, opcode: u8) {
        self.out.push(opcode);
    }

    fn global(&mut self, module: &str, name: &str) {
        self.out.extend(format!("c{module}\n{name}\n").bytes());
    }

    /// A number by the shortest opcode: BININT1, BININT2, BININT, LONG1.
    fn int(&mut self, value: i64) {
        if let Ok(value) = u8::try_from(value) {
            self.out.extend([b'K', value]);
        } else if let Ok(value) = u16::try_from(value) {
            self.op(b'M');
            self.out.extend(value.to_le_bytes());
        } else if let Ok(value) = i32::try_from(value) {
            self.op(b'J');
            self.out.extend(value.to_le_bytes());
        } else {
            self.out.extend([0x8A, 8]);
            self.out.extend(value.to_le_bytes());
        }
    }

    /// A short text of ASCII, `str` in Python 2 as in 3: SHORT_BINSTRING.
    fn text(&mut self, text: &'static str) {
        self.out.extend([b'U', text.len() as u8]);
        self.out.extend(text.bytes());
    }

    /// Bytes, as Python 3 writes them for this protocol: `_codecs.encode(text, 'latin1')`.
    fn bytes(&mut self, bytes: &[u8]) {
        self.global("_codecs", "encode");
        let text: String = bytes.iter().copied().map(char::from).collect();
        self.op(b'X');
        self.out.extend((text.len() as u32).to_le_bytes());
        self.out.extend(text.bytes());
        self.text("latin1");
        // TUPLE2, REDUCE
        self.out.extend([0x86, b'R']);
    }

    /// An array of NumPy; `code` is its type, as `f4`.
    pub fn array(&mut self, code: &'static str, shape: &[usize], bytes: &[u8]) {
        self.global("numpy.core.multiarray", "_reconstruct");
        self.global("numpy", "ndarray");
        self.int(0);
        self.op(0x85);
        self.text("b");
        self.out.extend([0x87, b'R']);
        self.op(b'(');
        self.int(1);
        self.op(b'(');
        shape.iter().for_each(|size| self.int(*size as i64));
        self.op(b't');
        self.dtype(code);
        // NEWFALSE: rows come first.
        self.op(0x89);
        self.bytes(bytes);
        self.out.extend([b't', b'b']);
    }

    fn dtype(&mut self, code: &'static str) {
        self.global("numpy", "dtype");
        self.text(code);
        self.int(0);
        self.int(1);
        self.out.extend([0x87, b'R', b'(']);
        self.int(3);
        self.text("<");
        self.out.extend([b'N', b'N', b'N']);
        self.int(-1);
        self.int(-1);
        self.int(0);
        self.out.extend([b't', b'b']);
    }

    /// A matrix of SciPy in compressed rows of single precision.
    pub fn sparse_matrix(&mut self, shape: [usize; 2], starts: &[i32], columns: &[i32], values: &[f32]) {
        self.global("scipy.sparse", "csr_matrix");
        // EMPTY_TUPLE, NEWOBJ, EMPTY_DICT, MARK
        self.out.extend([b')', 0x81, b'}', b'(']);
        self.text("_shape");
        shape.iter().for_each(|size| self.int(*size as i64));
        self.op(0x86);
        self.text("maxprint");
        self.int(50);
        self.text("indptr");
        self.array("i4", &[starts.len()], bytemuck::cast_slice(starts));
        self.text("indices");
        self.array("i4", &[columns.len()], bytemuck::cast_slice(columns));
        self.text("data");
        self.array("f4", &[values.len()], bytemuck::cast_slice(values));
        // SETITEMS, BUILD
        self.out.extend([b'u', b'b']);
    }

    /// A `defaultdict(list)` of the lists of nodes 0, 1, ..
    pub fn lists<'a>(&mut self, lists: impl Iterator<Item = &'a [u32]>) {
        self.global("collections", "defaultdict");
        self.global("__builtin__", "list");
        self.out.extend([0x85, b'R', b'(']);
        for (node, list) in lists.enumerate() {
            self.int(node as i64);
            self.out.extend([b']', b'(']);
            list.iter().for_each(|other| self.int(i64::from(*other)));
            self.op(b'e');
        }
        self.op(b'u');
    }
}
