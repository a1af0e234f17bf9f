//! What lies between the products by kernels for cards.

use std::ffi::c_void;
use std::ptr;

use segue_kernels::cards::{self, Source, kind_name, params};
use segue_kernels::noise::Drops;
use tch::{Kind, Tensor};

use super::chunk::{Chunk, Gradients, Lanes, Products};

pub static ATTENTION: Source = Source::new("layers/attention/chunked/rows", include_str!("rows.cu"));

/// Threads of a block, which has the row of one query, head and lane.
const THREADS: u32 = 128;

/// Those that make weights in `kind` where the products lie.
pub fn kernels(products: &Products, kind: Kind) -> Option<cards::Kernels> {
    let made_for = products.content.kind() == Kind::Float && kind_name(kind).is_some();
    if made_for { ATTENTION.kernels(&products.content) } else { None }
}

/// `Scores` of rows.cu.
#[repr(C)]
struct Scores {
    content: *const c_void,
    position: *const c_void,
    other: *const c_void,
    of_queries: *const c_void,
    of_keys: *const c_void,
    mask: *const c_void,
    numbering: *const c_void,
    statistics: *const c_void,
    other_step: i64,
    of_queries_step: i64,
    of_keys_step: i64,
    mask_step: i64,
    mask_row_step: i64,
    statistics_step: i64,
    all: i32,
    lanes: i32,
    rows: i32,
    keys: i32,
}

/// A tensor of this shape whose rows have no gaps, and how far one is from the next along its first axes.
fn placed<const N: usize>(tensor: &Tensor, shape: [i64; N], kind: Kind) -> (*const c_void, [i64; N]) {
    let steps: [i64; N] = tensor.stride().try_into().expect("as many axes as are asked for");
    assert!(
        tensor.size() == shape && tensor.kind() == kind && steps[N - 1] == 1,
        "{tensor:?} is not {shape:?}"
    );
    (tensor.data_ptr().cast_const(), steps)
}

impl Scores {
    fn new(chunk: &Chunk, lanes: &Lanes, products: &Products, statistics: &Tensor) -> Self {
        let (rows, keys, count) = (chunk.rows, chunk.keys, lanes.count);
        let all = products.content.size()[0];
        assert!(all % count == 0 && products.content.is_contiguous() && products.position.is_contiguous());
        let (content, _) = placed(&products.content, [all, rows, keys], Kind::Float);
        let (position, _) = placed(&products.position, [all, rows, chunk.columns()], Kind::Float);
        let (numbering, [numbering_step, _]) = placed(&chunk.numbering, [rows, 4], Kind::Int);
        let (statistics, [statistics_step, step, _]) = placed(statistics, [all, rows, 2], Kind::Float);
        assert!(numbering_step == 4 && step == 2);
        let nothing = (ptr::null(), 0);
        let row = |tensor: Tensor, shape| {
            let (place, [step, _]) = placed(&tensor, shape, Kind::Float);
            (place, step)
        };
        let other = lanes.other.as_ref().map(|other| row(other.narrow(1, chunk.start, rows), [all, rows]));
        let segments = lanes.segments.as_ref().filter(|_| other.is_some());
        let of_queries =
            segments.map(|[of_queries, _]| row(of_queries.narrow(1, chunk.start, rows), [count, rows]));
        let of_keys = segments.map(|[_, of_keys]| row(of_keys.narrow(1, 0, keys), [count, keys]));
        assert!(other.is_some() == segments.is_some());
        let mask = chunk.mask.as_ref().map(|mask| {
            let of = mask.size()[0];
            assert!(of == 1 || of == count, "a mask of {of} lanes for {count}");
            let (place, [step, row_step, _]) = placed(mask, [of, rows, keys], Kind::Float);
            (place, [if of == 1 { 0 } else { step }, row_step])
        });
        let ((other, other_step), (of_queries, of_queries_step), (of_keys, of_keys_step)) =
            (other.unwrap_or(nothing), of_queries.unwrap_or(nothing), of_keys.unwrap_or(nothing));
        let (mask, [mask_step, mask_row_step]) = mask.unwrap_or((ptr::null(), [0; 2]));
        let [all, lanes, rows, keys] = [all, count, rows, keys].map(|n| n as i32);
        Self {
            content,
            position,
            other,
            of_queries,
            of_keys,
            mask,
            numbering,
            statistics,
            other_step,
            of_queries_step,
            of_keys_step,
            mask_step,
            mask_row_step,
            statistics_step,
            all,
            lanes,
            rows,
            keys,
        }
    }

    fn blocks(&self) -> [i64; 2] {
        [i64::from(self.all) * i64::from(self.rows), 1]
    }
}

/// As [`super::rows::weights`].
pub fn weights(
    kernels: cards::Kernels,
    chunk: &Chunk,
    lanes: &Lanes,
    products: &Products,
    statistics: &Tensor,
    kind: Kind,
) -> Tensor {
    let weights = Tensor::empty(products.content.size(), (kind, products.content.device()));
    let scores = Scores::new(chunk, lanes, products, statistics);
    let (to, drops) = (weights.data_ptr(), lanes.drops.unwrap_or(Drops::NONE));
    let name = format!("attention_{}", kind_name(kind).unwrap_or_default());
    // SAFETY: shapes and steps were looked at; what is written was made here, or is this chunk's part of the statistics.
    unsafe { kernels.launch(&name, scores.blocks(), THREADS, params![scores, to, drops]) };
    weights
}

/// As [`super::rows::gradients`].
pub fn gradients(
    kernels: cards::Kernels,
    chunk: &Chunk,
    lanes: &Lanes,
    products: &Products,
    of_weights: &Tensor,
    statistics: &Tensor,
    kind: Kind,
) -> Gradients {
    let (all, options) = (products.content.size()[0], (kind, of_weights.device()));
    let empty = |columns: i64| Tensor::empty([all, chunk.rows, columns], options);
    let found = Gradients {
        weights: empty(chunk.keys),
        of_content: empty(chunk.keys),
        of_position: empty(chunk.columns()),
        of_other: lanes.other.as_ref().map(|_| Tensor::empty([all, chunk.rows], (Kind::Float, options.1))),
    };
    let scores = Scores::new(chunk, lanes, products, statistics);
    assert!(of_weights.is_contiguous());
    let (from, _) = placed(of_weights, [all, chunk.rows, chunk.keys], Kind::Float);
    let [to_weights, to_content, to_position] =
        [&found.weights, &found.of_content, &found.of_position].map(Tensor::data_ptr);
    let to_other = found.of_other.as_ref().map_or(ptr::null_mut(), Tensor::data_ptr);
    let drops = lanes.drops.unwrap_or(Drops::NONE);
    let name = format!("attention_back_{}", kind_name(kind).unwrap_or_default());
    let arguments = params![scores, from, to_weights, to_content, to_position, to_other, drops];
    // SAFETY: as in `weights`.
    unsafe { kernels.launch(&name, scores.blocks(), THREADS, arguments) };
    found
}
