use tch::Device;

use super::*;

/// What the fused loops compute, in tensors and double precision. Returns what is read and the gradients of the inputs.
pub struct Case {
    pub inputs: Vec<Tensor>,
    pub of_queries: Tensor,
    pub of_keys: Tensor,
    pub blocks: Vec<Block>,
    pub segments: bool,
    /// Positions of queries, `[lanes, query]`, among so many, where they are not all.
    pub places: Option<(Tensor, i64)>,
}

pub const LANES: i64 = 2;
pub const HEADS: i64 = 3;
/// One that is multiplied as it lies, and one that tiles are for.
const WIDTHS: [i64; 2] = [12, 40];
/// In single precision, of the largest value.
pub const LIMIT: f64 = 1e-5;

fn wave(shape: &[i64], speed: f64) -> Tensor {
    let count = shape.iter().product::<i64>();
    (Tensor::arange(count, (Kind::Double, Device::Cpu)) * speed).sin().view(shape)
}

/// `halves`: the first half sees the first half of the keys alone.
pub fn case(queries: i64, keys: i64, extra: i64, segments: bool, halves: bool, masked: i64) -> Case {
    case_of(WIDTHS[0], [queries, keys, extra], segments, halves, masked)
}

pub fn case_of(
    width: i64,
    [queries, keys, extra]: [i64; 3],
    segments: bool,
    halves: bool,
    masked: i64,
) -> Case {
    let own = |length| [LANES, length, HEADS, width];
    let mut inputs = vec![
        wave(&own(queries), 1.1),
        wave(&own(keys), 0.7),
        wave(&own(keys), 1.7),
        wave(&[queries + keys - 1 + extra, HEADS, width], 0.9),
        wave(&[HEADS, width], 0.3),
        wave(&[HEADS, width], 0.5),
    ];
    if segments {
        inputs.extend([wave(&[HEADS, width], 1.9), wave(&[HEADS, width], 2.3)]);
    }
    let ids = |length: i64| (wave(&[LANES, length], 0.37).sign() + 1.0).to_kind(Kind::Float);
    let mask = |rows: i64, keys: i64| {
        let hidden = wave(&[masked, rows, keys], 1.3).gt(0.6);
        // Every query sees the first key.
        let _ = hidden.narrow(2, 0, 1).fill_(0);
        Tensor::zeros([masked, rows, keys], (Kind::Float, Device::Cpu))
            .masked_fill(&hidden, f64::NEG_INFINITY)
    };
    let block = |start, rows, keys| Block { start, rows, keys, mask: (masked > 0).then(|| mask(rows, keys)) };
    let half = queries / 2;
    let blocks = match halves {
        true => vec![block(0, half, keys - half), block(half, queries - half, keys)],
        false => vec![block(0, queries, keys)],
    };
    Case { inputs, of_queries: ids(queries), of_keys: ids(keys), blocks, segments, places: None }
}

/// Queries that stand at some of `segment` positions, in no order and some of them twice, others in each lane.
pub fn placed(width: i64, [queries, segment, keys]: [i64; 3], segments: bool, masked: i64) -> Case {
    let mut case = case_of(width, [queries, keys, 0], segments, false, masked);
    case.inputs[3] = wave(&[segment + keys - 1, HEADS, width], 0.9);
    let at = ((wave(&[LANES, queries], 2.9) + 1.0) * (segment as f64 / 2.0)).clamp(0.0, (segment - 1) as f64);
    case.places = Some((at.to_kind(Kind::Int64), segment));
    case
}

impl Case {
    pub fn leaves(&self, kind: Kind) -> Vec<Tensor> {
        self.inputs.iter().map(|input| input.to_kind(kind).copy().set_requires_grad(true)).collect()
    }

    fn gradients(read: Tensor, leaves: &[Tensor]) -> Vec<Tensor> {
        let weights = wave(&read.size(), 0.77).to_kind(read.kind());
        (&read * weights).sum(None::<Kind>).backward();
        std::iter::once(read.detach()).chain(leaves.iter().map(Tensor::grad)).collect()
    }

    fn fused(&self, rate: f64, noise: Option<&Noise>) -> Vec<Tensor> {
        self.by(Kind::Float, |attention| attend(attention, &self.blocks, rate, noise))
    }

    /// What `attend` gives in a kind.
    pub fn by(&self, kind: Kind, attend: impl Fn(&Attention) -> Tensor) -> Vec<Tensor> {
        let leaves = self.leaves(kind);
        Self::gradients(attend(&self.attention(&leaves)), &leaves)
    }

    /// Of these `leaves`.
    pub fn attention<'a>(&'a self, leaves: &'a [Tensor]) -> Attention<'a> {
        let segments = self.segments.then(|| Segments {
            vectors: [&leaves[6], &leaves[7]],
            of_queries: &self.of_queries,
            of_keys: &self.of_keys,
        });
        Attention {
            q: &leaves[0],
            k: &leaves[1],
            v: &leaves[2],
            r: &leaves[3],
            places: self
                .places
                .as_ref()
                .map(|(of_queries, segment)| Places { of_queries, segment: *segment }),
            biases: [&leaves[4], &leaves[5]],
            segments,
            scale: 0.4,
        }
    }

    /// `factors`: of all weights of all blocks, as dropout multiplies them.
    pub fn plain(&self, factors: impl Fn(&[i64]) -> Option<Tensor>) -> Vec<Tensor> {
        let leaves = self.leaves(Kind::Double);
        let [q, k, v, r, u, bias] = &leaves[..6] else { unreachable!() };
        let (queries, keys) = (q.size()[1], k.size()[1]);
        let by_head = |x: &Tensor| x.permute([0, 2, 1, 3]); // [lanes, heads, length, width]
        let in_order = Tensor::arange(queries, (Kind::Int64, Device::Cpu)).expand([LANES, queries], false);
        let (at, segment) = self.places.as_ref().map_or((&in_order, queries), |(at, segment)| (at, *segment));
        let distances = Tensor::arange(keys, (Kind::Int64, Device::Cpu)) + (segment - 1) - at.unsqueeze(2);
        let (heads, width) = (HEADS, q.size()[3]);
        let r = r.index_select(0, &distances.flatten(0, 2)).view([LANES, queries, keys, heads, width]);
        let content = by_head(&(q + u)).matmul(&by_head(k).transpose(2, 3));
        let position = Tensor::einsum("bihd,bijhd->bhij", &[q + bias, r], None::<i64>);
        let mut scores = content + position;
        if self.segments {
            let differ = self.of_queries.unsqueeze(2).not_equal_tensor(&self.of_keys.unsqueeze(1));
            let other = ((q + &leaves[6]) * &leaves[7]).sum_dim_intlist(3, false, None::<Kind>);
            scores += other.permute([0, 2, 1]).unsqueeze(3) * differ.unsqueeze(1);
        }
        let scores = scores * 0.4;
        let read = self.blocks.iter().map(|block| {
            let mut scores = scores.narrow(2, block.start, block.rows).narrow(3, 0, block.keys);
            if let Some(mask) = &block.mask {
                scores += mask.unsqueeze(1);
            }
            let weights = scores.softmax(-1, None::<Kind>);
            let weights = match factors(&weights.size()) {
                Some(factors) => weights * factors,
                None => weights,
            };
            weights.matmul(&by_head(v).narrow(2, 0, block.keys)).permute([0, 2, 1, 3])
        });
        let read = Tensor::cat(&read.collect::<Vec<_>>(), 1).reshape([LANES, queries, HEADS * width]);
        Self::gradients(read, &leaves)
    }
}

#[track_caller]
pub fn assert_close(ours: &[Tensor], exact: &[Tensor], case: &str, limit: f64) {
    assert_eq!(ours.len(), exact.len());
    for (i, (ours, exact)) in ours.iter().zip(exact).enumerate() {
        assert_eq!(ours.size(), exact.size(), "{case}: {i}");
        // What is zero has no relative error.
        let error = ((ours - exact).abs().max() / (exact.abs().max() + 0.01)).double_value(&[]);
        assert!(error < limit, "{case}: output or gradient {i} is off by {error}");
    }
}

#[test]
fn reads_and_gradients_are_those_of_tensors_in_double_precision() {
    for (queries, keys) in [(1, 1), (1, 5), (7, 7), (32, 40), (37, 37), (70, 97)] {
        for segments in [false, true] {
            for (halves, masked) in [(false, 0), (false, 1), (false, LANES), (queries > 1, LANES)] {
                let extra = (queries + masked) % 3 * 8;
                for width in WIDTHS {
                    let case = case_of(width, [queries, keys, extra], segments, halves, masked);
                    let name = format!("{queries} {keys} {segments} {halves} {masked} {width}");
                    assert_close(&case.fused(0.3, None), &case.plain(|_| None), &name, LIMIT);
                }
            }
        }
    }
}

#[test]
fn queries_may_stand_anywhere() {
    for sizes in [[1, 9, 9], [5, 40, 61], [40, 37, 37], [70, 200, 230]] {
        for (segments, masked) in [(false, 0), (true, LANES)] {
            for width in WIDTHS {
                let case = placed(width, sizes, segments, masked);
                let name = format!("{sizes:?} {segments} {width}");
                assert_close(&case.fused(0.3, None), &case.plain(|_| None), &name, LIMIT);
            }
        }
    }
}

#[test]
#[should_panic(expected = "a query outside of 9")]
fn a_place_behind_the_segment_is_refused() {
    let mut case = placed(WIDTHS[0], [5, 9, 9], false, 0);
    let (at, _) = case.places.as_mut().unwrap();
    let _ = at.fill_(9);
    case.fused(0.0, None);
}

#[test]
fn dropout_is_that_of_a_mask_over_all_weights() {
    let case = case(37, 45, 0, true, false, 1);
    let ones = Tensor::ones([HEADS, LANES, 37, 45], (Kind::Float, Device::Cpu));
    let factors = segue_kernels::noise::dropout(ones, 0.3, Some(&Noise::new(5))).transpose(0, 1);
    assert_close(
        &case.fused(0.3, Some(&Noise::new(5))),
        &case.plain(|_| Some(factors.shallow_clone())),
        "dropout",
        LIMIT,
    );
}

#[test]
fn a_gradient_of_a_gradient_is_refused() {
    let case = case(5, 7, 0, true, false, 1);
    segue_kernels::libtorch::assert_differentiable_once("attention", || {
        let leaves = case.leaves(Kind::Float);
        let read = attend(&case.attention(&leaves), &case.blocks, 0.0, None);
        (read, leaves)
    });
}

#[test]
fn several_threads_do_the_same() {
    threads::set_count(3);
    let case = case(70, 97, 0, true, true, LANES);
    assert_close(&case.fused(0.3, None), &case.plain(|_| None), "three threads", LIMIT);
}

#[test]
fn hidden_keys_have_no_part_in_anything() {
    let mut case = case(5, 6, 0, false, false, 0);
    let hidden = Tensor::zeros([1, 5, 6], (Kind::Float, Device::Cpu));
    let _ = hidden.narrow(2, 4, 1).fill_(f64::NEG_INFINITY);
    case.blocks[0].mask = Some(hidden);
    let before = case.fused(0.0, None);
    let _ = case.inputs[1].narrow(1, 4, 1).fill_(1e6);
    let _ = case.inputs[2].narrow(1, 4, 1).fill_(-1e6);
    let after = case.fused(0.0, None);
    assert_eq!(before[0], after[0]);
    for grad in [&after[2], &after[3]] {
        assert_eq!(grad.narrow(1, 4, 1).abs().max().double_value(&[]), 0.0);
    }
}
