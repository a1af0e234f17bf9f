//! The kernels of flash.cu, and what they take.

use std::ffi::c_void;
use std::ptr;

use segue_kernels::cards::{self, Needs, Source, kind_name, params};
use segue_kernels::noise::Drops;
use tch::{Kind, Tensor};

use super::{Problem, Sizes};

/// A source for each width and kind, so that a run compiles those alone that it uses.
macro_rules! source {
    ($kind:literal, $width:literal) => {
        Source::needing(
            needs($width),
            concat!("layers/attention/flash/flash-", $width, "-", $kind),
            concat!(include_str!("flash.cu"), "FLASH(", $kind, ", ", $width, ")\n"),
        )
    };
}

pub static SOURCES: [Source; 4] =
    [source!("bf16", 64), source!("f16", 64), source!("bf16", 128), source!("f16", 128)];

/// Threads of a block: four warps of 16 queries each.
pub const THREADS: u32 = 128;
const WARPS: u32 = 4;
/// Keys of a tile.
pub const KEYS: u32 = 64;
/// What tiles begin at multiples of, in bytes.
const ALIGNMENT: u32 = 1024;

/// Those for queries of `width` numbers of a head, where and as `q` is.
pub fn kernels(q: &Tensor, width: i64) -> Option<cards::Kernels> {
    let by_kind = match q.kind() {
        Kind::BFloat16 => 0,
        Kind::Half => 1,
        _ => return None,
    };
    let by_width = match width {
        ..=64 => 0,
        65..=128 => 2,
        _ => return None,
    };
    SOURCES[by_kind + by_width].kernels(q)
}

/// Products of bfloat16 and copies past the registers, which cards have from 8.0 on, and room for the blocks of backward, which take the most.
const fn needs(width: u32) -> Needs {
    Needs { capability: 80, shared: shared_bytes(width, true) + OWN_BYTES }
}

/// Bytes of shared memory that kernels declare themselves: those of sums over a block.
const OWN_BYTES: u32 = 128;

/// Numbers of a head as kernels have room for them.
fn width_of_kernel(width: i64) -> u32 {
    if width <= 64 { 64 } else { 128 }
}

/// `Attention` of flash.cu.
#[repr(C)]
struct Taken {
    q: *const c_void,
    k: *const c_void,
    v: *const c_void,
    r: *const c_void,
    position: *const c_void,
    places: *const c_void,
    u: *const c_void,
    w: *const c_void,
    b: *const c_void,
    s: *const c_void,
    of_queries: *const c_void,
    of_keys: *const c_void,
    seen: *const c_void,
    numbering: *const c_void,
    statistics: *const c_void,
    kept: *const c_void,
    /// Of q, k and v: from one lane to the next, and from one row to the next.
    steps: [[i64; 2]; 3],
    r_row_step: i64,
    of_queries_step: i64,
    of_keys_step: i64,
    seen_lane_step: i64,
    seen_row_step: i64,
    position_step: i64,
    heads: i32,
    lanes: i32,
    queries: i32,
    keys: i32,
    distances: i32,
    width: i32,
    segment: i32,
    first_head: i32,
    scale: f32,
}

/// Where a tensor of this shape and kind lies.
fn placed(tensor: &Tensor, shape: &[i64], kind: Kind) -> *const c_void {
    assert!(tensor.size() == shape && tensor.kind() == kind, "{tensor:?} is not {shape:?}");
    tensor.data_ptr().cast_const()
}

impl Taken {
    fn new(problem: &Problem, first_head: i64) -> Self {
        let Sizes { lanes, heads, width, queries, keys, distances, segment } = problem.sizes;
        let kind = problem.kind;
        let rows = |tensor: &Tensor, length: i64| {
            let [lane, row, ..] = tensor.stride()[..] else { unreachable!("four axes") };
            (placed(tensor, &[lanes, length, heads, width], kind), [lane, row])
        };
        let ((q, q_steps), (k, k_steps), (v, v_steps)) =
            (rows(&problem.q, queries), rows(&problem.k, keys), rows(&problem.v, keys));
        let mut vectors = problem.vectors.iter().map(|vector| placed(vector, &[heads, width], Kind::Float));
        let mut vector = || vectors.next().unwrap_or(ptr::null());
        let [u, w, b, s] = [vector(), vector(), vector(), vector()];
        let (of_queries, of_keys) = match &problem.segments {
            Some([of_queries, of_keys]) => (
                placed(of_queries, &[lanes, queries], Kind::Float),
                placed(of_keys, &[lanes, keys], Kind::Float),
            ),
            None => (ptr::null(), ptr::null()),
        };
        assert!(s.is_null() == of_keys.is_null());
        let seen = problem.chunks.seen();
        let words = seen.map_or(0, |seen| seen.size()[2]);
        let of = seen.map_or(1, |seen| seen.size()[0]);
        assert!(of == 1 || of == lanes, "a mask of {of} lanes for {lanes}");
        assert!(seen.is_none() || 32 * words >= keys);
        let position_step = problem.sizes.position_step();
        let (position, places) = match &problem.placed {
            Some(at) => (
                placed(&at.scores, &[heads, lanes * queries, position_step], kind),
                placed(&at.of_queries, &[lanes, queries], Kind::Int),
            ),
            None => (ptr::null(), ptr::null()),
        };
        let [r_row_step, ..] = problem.r.stride()[..] else { unreachable!("three axes") };
        // In order, what comes after a query nobody sees; elsewhere all that a query may meet has a distance.
        let met = if problem.placed.is_some() { segment - 1 + keys } else { keys };
        assert!(distances >= met, "{distances} distances for {keys} keys and a segment of {segment}");
        Self {
            q,
            k,
            v,
            r: placed(&problem.r, &[distances, heads, width], kind),
            position,
            places,
            u,
            w,
            b,
            s,
            of_queries,
            of_keys,
            seen: seen.map_or(ptr::null(), |seen| placed(seen, &[of, queries, words], Kind::Int)),
            numbering: placed(problem.chunks.numbering(), &[queries, 4], Kind::Int),
            statistics: placed(&problem.statistics, &[heads, lanes, queries], Kind::Float),
            kept: problem.kept.as_ref().map_or(ptr::null(), |kept| kept.data_ptr().cast_const()),
            steps: [q_steps, k_steps, v_steps],
            r_row_step,
            of_queries_step: queries,
            of_keys_step: keys,
            seen_lane_step: if of == 1 { 0 } else { queries * words },
            seen_row_step: words,
            position_step,
            heads: heads as i32,
            lanes: lanes as i32,
            queries: queries as i32,
            keys: keys as i32,
            distances: distances as i32,
            width: width as i32,
            segment: segment as i32,
            first_head: first_head as i32,
            scale: problem.scale as f32,
        }
    }
}

/// The kernel's name, and bytes of shared memory of a block.
fn kernel(problem: &Problem, back: bool) -> (String, u32) {
    let width = width_of_kernel(problem.sizes.width);
    let placed = if problem.placed.is_some() { "_placed" } else { "" };
    let kind = kind_name(problem.kind).unwrap_or_default();
    let name = format!("flash{placed}{}_{width}_{kind}", if back { "_back" } else { "" });
    (name, shared_bytes(width, back))
}

/// Bytes of shared memory of a block: `Shared` of flash.cu.
pub const fn shared_bytes(width: u32, back: bool) -> u32 {
    // Tiles of keys, values and distances, of which three; then scores by distance, what is known of queries, sums and segments; and queries.
    let tile = KEYS * width * 2;
    let known = WARPS * (16 * 84 + 2 * 16 + 2 * width) * 4 + 2 * KEYS * 4;
    let own = if back { 3 } else { 2 } * 16 * WARPS * width * 2;
    (2 + 2 + 3) * tile + known.next_multiple_of(ALIGNMENT) + own + ALIGNMENT
}

impl Problem {
    /// Starts the kernel over blocks of queries of `heads` heads.
    ///
    /// # Safety
    ///
    /// As [`cards::Kernels::launch`].
    unsafe fn launch(&self, back: bool, heads: i64, arguments: &mut [*mut c_void]) {
        let (name, shared) = kernel(self, back);
        let grid = [self.sizes.blocks(), heads * self.sizes.lanes];
        // SAFETY: the caller's.
        unsafe { self.kernels.launch_sharing(&name, grid, THREADS, shared, arguments) };
    }
}

/// Writes what is read, `[lanes, query, heads * width]`, and the statistics.
pub fn forward(problem: &Problem, read: &Tensor) {
    let Sizes { lanes, heads, width, queries, .. } = problem.sizes;
    let taken = Taken::new(problem, 0);
    let (to, drops): (_, Drops) =
        (placed(read, &[lanes, queries, heads * width], problem.kind), problem.drops);
    // SAFETY: shapes and steps were looked at; what is written is nobody else's yet.
    unsafe { problem.launch(false, heads, params![taken, to, drops]) };
}

/// What backward makes of some heads for products.
pub struct Made {
    /// (q + u) · scale and (q + v) · scale, `[heads * lanes, query, width]`.
    pub contents: Tensor,
    pub positions: Tensor,
    /// Gradients of what was read, as large.
    pub grads: Tensor,
    /// Weights after dropout, and gradients of scores by content, `[heads * lanes, query, keys_step]`; 0 behind the keys.
    pub weights: Tensor,
    pub of_contents: Tensor,
    /// Of scores by distance, `[heads * lanes, query, position_step]`; 0 where a query meets no key.
    pub of_positions: Tensor,
    /// Of u, v, and s as if it came with q + u, by blocks of queries, `[heads * lanes, blocks, 3, width]`.
    pub of_vectors: Tensor,
    /// Of what scores between different segments have more, `[heads * lanes, query]`.
    pub of_other: Option<Tensor>,
}

/// `Gradients` of flash.cu.
#[repr(C)]
struct Given {
    read: *const c_void,
    of_read: *const c_void,
    contents: *mut c_void,
    positions: *mut c_void,
    of_read_by_head: *mut c_void,
    weights: *mut c_void,
    of_contents: *mut c_void,
    of_positions: *mut c_void,
    of_q: *const c_void,
    of_vectors: *mut c_void,
    of_other: *mut c_void,
    keys_step: i64,
}

/// Of `heads` heads from `first` on; `grad` and `of_q`, which is written, are `[lanes, query, heads, width]` of all heads.
pub fn backward(problem: &Problem, first: i64, heads: i64, grad: &Tensor, of_q: &Tensor) -> Made {
    let sizes = problem.sizes;
    let Sizes { lanes, width, queries, .. } = sizes;
    let (all, options) = (heads * lanes, (problem.kind, grad.device()));
    let rows = |columns: i64| Tensor::empty([all, queries, columns], options);
    let long = |shape: &[i64]| Tensor::empty(shape, (Kind::Float, options.1));
    let positions = if problem.placed.is_some() { Tensor::empty([0], options) } else { rows(width) };
    let made = Made {
        contents: rows(width),
        positions,
        grads: rows(width),
        weights: rows(sizes.keys_step()),
        of_contents: rows(sizes.keys_step()),
        of_positions: rows(sizes.position_step()),
        of_vectors: long(&[all, sizes.blocks(), 3, width]),
        of_other: problem.segments.is_some().then(|| long(&[all, queries])),
    };
    let shape = [lanes, queries, sizes.heads, width];
    assert!(grad.is_contiguous() && of_q.is_contiguous() && problem.read.is_contiguous());
    let given = Given {
        read: placed(&problem.read, &[lanes, queries, sizes.heads * width], problem.kind),
        of_read: placed(grad, &shape, problem.kind),
        contents: made.contents.data_ptr(),
        positions: made.positions.data_ptr(),
        of_read_by_head: made.grads.data_ptr(),
        weights: made.weights.data_ptr(),
        of_contents: made.of_contents.data_ptr(),
        of_positions: made.of_positions.data_ptr(),
        of_q: placed(of_q, &shape, problem.kind),
        of_vectors: made.of_vectors.data_ptr(),
        of_other: made.of_other.as_ref().map_or(ptr::null_mut(), Tensor::data_ptr),
        keys_step: sizes.keys_step(),
    };
    let (taken, drops): (_, Drops) = (Taken::new(problem, first), problem.drops);
    // SAFETY: as in `forward`; of `of_q` these heads are written, by nobody else.
    unsafe { problem.launch(true, heads, params![taken, given, drops]) };
    made
}
