use std::cell::RefCell;
use std::iter::repeat_n;

use segue_kernels::libtorch::stream::put;
use tch::{Device, Kind, Tensor};

use super::super::fused::Block;
use super::chunk::Chunk;

/// Which keys all queries see, and how their weights are numbered.
pub struct Chunks {
    /// Added to scores, `[lanes or 1, query, key]`; `None` where all see all.
    mask: Option<Tensor>,
    /// The same as a bit a key, `[lanes or 1, query, words of 32 bits]`, an even number of words.
    seen: Option<Tensor>,
    /// Of each query, `[query, 4]` as integers of 32 bits, what [`Chunk::numbering`] says.
    numbering: Tensor,
    /// Leading keys that a query sees.
    keys: Vec<i64>,
    /// How many bytes the scores of a chunk take, about.
    bytes: i64,
}

impl Clone for Chunks {
    fn clone(&self) -> Self {
        Self {
            mask: self.mask.as_ref().map(Tensor::shallow_clone),
            seen: self.seen.as_ref().map(Tensor::shallow_clone),
            numbering: self.numbering.shallow_clone(),
            keys: self.keys.clone(),
            bytes: self.bytes,
        }
    }
}

impl Chunks {
    /// Scores of a chunk take about as many bytes: no more than a card has cache for.
    const BYTES: i64 = 32 << 20;
    /// Queries of a chunk at least, and what their number is a multiple of.
    const ROWS: i64 = 16;

    /// Queries that see what `blocks`, all of them in order, show, less what `mask`, `[lanes or 1, query, key]`, hides; the masks of the blocks
    /// themselves are not looked at.
    pub fn new(blocks: &[Block], mask: Option<Tensor>, device: Device) -> Self {
        let spans: Vec<(i64, i64)> = blocks.iter().map(|block| (block.rows, block.keys)).collect();
        let keys = spans.iter().flat_map(|(rows, keys)| repeat_n(*keys, *rows as usize)).collect();
        let numbering = numbering_of(spans, device);
        let mask = mask.map(|mask| mask.to_kind(float(mask.kind())));
        let seen = mask.as_ref().map(bits);
        Self { mask, seen, numbering, keys, bytes: Self::BYTES }
    }

    /// Keys that queries see beside what [`Chunks::numbering`] says, a bit a key; `None` where all are seen.
    pub(in super::super) fn seen(&self) -> Option<&Tensor> {
        self.seen.as_ref()
    }

    /// Of each query, `[query, 4]`, what [`Chunk::numbering`] says.
    pub(in super::super) fn numbering(&self) -> &Tensor {
        &self.numbering
    }

    /// The same in chunks of the fewest queries.
    #[cfg(test)]
    pub(super) fn in_small_chunks(self) -> Self {
        Self { bytes: 1, ..self }
    }

    /// All queries in chunks, where the scores of one query take `bytes`.
    pub(super) fn cut(&self, bytes: i64, queries: i64) -> Vec<Chunk> {
        assert_eq!(self.keys.len() as i64, queries, "queries of another pass");
        let most = self.bytes / bytes.max(1) / Self::ROWS * Self::ROWS;
        let most = most.max(Self::ROWS);
        let chunk = |start: i64| {
            let rows = most.min(queries - start);
            let keys = self.keys[start as usize..(start + rows) as usize].iter().copied().max().unwrap_or(0);
            let mask = self.mask.as_ref().map(|mask| mask.narrow(1, start, rows).narrow(2, 0, keys));
            Chunk { start, rows, keys, mask, numbering: self.numbering.narrow(0, start, rows) }
        };
        (0..queries).step_by(most as usize).map(chunk).collect()
    }

    /// Chunks of queries that see no key after their own position, the last of which is the last key: `mask` is
    /// `[lanes or 1, query, key]`.
    pub fn causal(mask: &Tensor) -> Self {
        let blocks = Block::causal_spans(mask.size()[1], mask.size()[2]);
        Self::new(&blocks, Some(mask.shallow_clone()), mask.device())
    }
}

/// Rows and keys of each block of queries, and where what they come to is.
type Spans = (Vec<(i64, i64)>, Device);

/// Numberings that are kept: those of training and evaluation, of all queries and of those at some places.
const KEPT: usize = 8;

thread_local! {
    /// Those of a segment are those of the one before, and cards wait for what is copied to them.
    static NUMBERINGS: RefCell<Vec<(Spans, Tensor)>> = const { RefCell::new(Vec::new()) };
}

/// [`Chunk::numbering`] of all queries.
fn numbering_of(spans: Vec<(i64, i64)>, device: Device) -> Tensor {
    let wanted = (spans, device);
    NUMBERINGS.with_borrow_mut(|numberings| {
        if let Some((_, numbering)) = numberings.iter().find(|(of, _)| *of == wanted) {
            return numbering.shallow_clone();
        }
        let (mut numbers, mut before) = (Vec::new(), 0);
        for &(rows, keys) in &wanted.0 {
            let of_row = |row: i64| [before, rows * keys, row * keys, keys].map(|n| n as i32);
            numbers.extend((0..rows).flat_map(of_row));
            before += rows * keys;
        }
        let numbering = put(Tensor::from_slice(&numbers).view([-1, 4]), device);
        numberings.truncate(KEPT - 1);
        numberings.insert(0, (wanted, numbering.shallow_clone()));
        numbering
    })
}

/// Where an additive mask, `[lanes or 1, query, key]`, shows keys, in words of 32 bits, key 0 in the lowest bit of the first: `[.., words]`.
fn bits(mask: &Tensor) -> Tensor {
    const WORD: i64 = 32;
    let [lanes, queries, keys] = mask.size()[..] else { unreachable!("[lanes or 1, query, key]") };
    let words = (keys as u64).div_ceil(2 * WORD as u64) as i64 * 2;
    let shown = mask.isfinite().constant_pad_nd([0, words * WORD - keys]);
    let values = Tensor::from_slice(&std::array::from_fn::<i64, { WORD as usize }, _>(|bit| 1 << bit));
    let words = shown.view([lanes, queries, words, WORD]) * put(values, mask.device());
    // What does not fit into a number with a sign comes out with the same bits.
    words.sum_dim_intlist([3i64].as_slice(), false, None::<Kind>).to_kind(Kind::Int)
}

/// The kind of numbers that a mask is added to.
fn float(kind: Kind) -> Kind {
    if kind == Kind::Double { kind } else { Kind::Float }
}
