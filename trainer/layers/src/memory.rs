use segue_kernels::libtorch::stream::put;
use segue_kernels::{Carry, Options};
use tch::{Device, Kind, Tensor};

/// Name of the table of marks among those of a carry.
const MARKS: &str = "documents";

/// The mark of a place of the memory that nothing was written to.
pub const NO_DOCUMENT: i64 = -1;

/// Detached hidden states that lanes carry from segment to segment.
#[derive(Debug)]
pub struct Memory {
    /// Inputs of layers 1..=n of past segments: `[lanes, mem, d_model]` each.
    pub layers: Vec<Tensor>,
    /// The document of each position, `[lanes, mem]`, [`NO_DOCUMENT`] where nothing was written; `None`
    /// where all of the memory is seen by everyone.
    pub documents: Option<Tensor>,
}

impl Memory {
    /// `mem_len` zero vectors a layer; with `mem_len` 0, nothing.
    pub fn zeros(layers: usize, lanes: i64, mem_len: i64, d_model: i64, options: Options) -> Self {
        let layer = || Tensor::zeros([lanes, mem_len, d_model], options);
        Self { layers: (0..layers).map(|_| layer()).collect(), documents: None }
    }

    /// The same with its places marked: `document` for all of them.
    pub fn marked(self, document: i64) -> Self {
        let size = [self.layers.first().map_or(0, |layer| layer.size()[0]), self.len()];
        Self { documents: Some(Tensor::full(size, document, (Kind::Int64, self.device()))), ..self }
    }

    /// Where it lies.
    fn device(&self) -> Device {
        self.layers.first().map_or(Device::Cpu, Tensor::device)
    }

    /// Positions held.
    pub fn len(&self) -> i64 {
        self.layers.first().map_or(0, |layer| layer.size()[1])
    }

    /// Whether it holds no position.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory of the lanes of these numbers, `[kept]` of 64 bits, in their order.
    pub fn of_lanes(&self, lanes: &Tensor) -> Self {
        let of = |table: &Tensor| table.index_select(0, lanes);
        Self { layers: self.layers.iter().map(of).collect(), documents: self.documents.as_ref().map(of) }
    }

    /// The last `mem_len` positions of old memory and new hidden states, cut off from the graph
    /// (Yang 2019, §2.1.3: m' is the tail of m ∘ h). `documents`: those of the new states, `[lanes, new]`,
    /// where the memory keeps marks.
    pub fn extended(&self, hidden: &[Tensor], documents: Option<&Tensor>, mem_len: i64) -> Self {
        let layers = self.layers.iter().zip(hidden).map(|(old, new)| tail(old, new, mem_len)).collect();
        let documents = self.documents.as_ref().zip(documents).map(|(old, new)| tail(old, new, mem_len));
        Self { layers, documents }
    }
}

impl Carry for Memory {
    /// `layer.I` of `[lanes, mem, d_model]`, and `documents` of `[lanes, mem]` where marks are kept.
    fn tables(&self) -> Vec<(String, Tensor)> {
        let layers = self.layers.iter().enumerate().map(|(i, t)| (format!("layer.{i}"), t.shallow_clone()));
        let marks = self.documents.iter().map(|t| (MARKS.to_string(), t.shallow_clone()));
        layers.chain(marks).collect()
    }

    fn of_tables(&self, mut tables: Vec<Tensor>) -> Self {
        let documents = self.documents.as_ref().and_then(|_| tables.pop());
        Self { layers: tables, documents }
    }

    /// A memory without marks can only be
    /// forgotten by all lanes at once; one with marks keeps its length, so that all of a job's have one shape.
    fn forget(&mut self, lanes: &[bool], fresh: Memory) {
        let device = self.device();
        let Some(documents) = &mut self.documents else {
            assert!(lanes.iter().all(|forgets| *forgets), "a memory without marks is forgotten as a whole");
            *self = fresh;
            return;
        };
        let forgets = put(Tensor::from_slice(lanes).unsqueeze(1), device);
        // Where it lies: a number on a card that the host reads waits for all that is queued there.
        let mark = match fresh.documents.filter(|marks| marks.numel() > 0) {
            Some(marks) => marks.get(0).get(0),
            None => Tensor::full([1], NO_DOCUMENT, (Kind::Int64, device)),
        };
        // A row for each entry: a lane, or a part of its positions.
        let filled = |table: &Tensor, value: &Tensor| match table.numel() {
            0 => table.shallow_clone(),
            _ => {
                let rows = table.reshape([lanes.len() as i64, -1]);
                value.where_self(&forgets, &rows).reshape_as(table)
            }
        };
        *documents = filled(documents, &mark);
        for layer in &mut self.layers {
            *layer = filled(layer, &Tensor::zeros([1], (layer.kind(), device)));
        }
    }
}

/// The last `mem_len` places of `old` and `new` on axis 1, detached.
fn tail(old: &Tensor, new: &Tensor, mem_len: i64) -> Tensor {
    let (old, new) = (old.detach(), new.detach());
    let (have, add) = (old.size()[1], new.size()[1]);
    if add >= mem_len {
        return new.narrow(1, add - mem_len, mem_len).contiguous();
    }
    let keep = (mem_len - add).min(have);
    Tensor::cat(&[old.narrow(1, have - keep, keep), new], 1)
}

impl Clone for Memory {
    fn clone(&self) -> Self {
        Self {
            layers: self.layers.iter().map(Tensor::shallow_clone).collect(),
            documents: self.documents.as_ref().map(Tensor::shallow_clone),
        }
    }
}
