use std::cell::Cell;

use segue_testing::emulated::{self, Order};
use tch::Device;

use super::super::chunked::tests::chunks;
use super::super::fused::tests::{Case, assert_close, case_of, placed};
use super::super::{attention_mask, chunked, fused};
use super::*;

thread_local! {
    /// Problems of this thread that are no longer held.
    pub static GIVEN_BACK: Cell<usize> = const { Cell::new(0) };
}

/// Kinds, and how far apart their numbers are.
const KINDS: [(Kind, f64); 2] = [(Kind::BFloat16, 1.0 / 256.0), (Kind::Half, 1.0 / 2048.0)];

/// More than one tile of keys and more than one block of queries are among them, and such as are not full.
fn cases() -> Vec<(String, Case)> {
    let mut cases = Vec::new();
    for (width, queries, keys) in [(40, 1, 5), (64, 37, 45), (40, 70, 133), (72, 20, 90), (8, 5, 66)] {
        for (segments, halves, masked) in [(false, false, 0), (true, queries > 1, 2), (true, false, 1)] {
            let name = format!("{width} {queries} {keys} {segments} {halves} {masked}");
            cases.push((name, case_of(width, [queries, keys, 3], segments, halves, masked)));
        }
        let name = format!("placed: {width} {queries} {keys}");
        cases.push((name, placed(width, [queries, queries + 9, keys], true, 2)));
    }
    cases
}

/// With inputs that the kind has.
fn rounded(case: Case, kind: Kind) -> Case {
    Case {
        inputs: case.inputs.iter().map(|input| input.to_kind(kind).to_kind(Kind::Double)).collect(),
        ..case
    }
}

/// What is read, and the gradient of values, are off by roundings of weights and of themselves. All else comes of gradients of scores, w (g - m),
/// whose mean m is what was read, as it was rounded, times its gradient: where nearly all weight is on one key, little else is left. Half
/// precision has an eighth of bfloat16's error, and the same code.
#[track_caller]
fn assert_near(found: &[Tensor], expected: &[Tensor], name: &str, epsilon: f64) {
    const OF_VALUES: usize = 3;
    for i in 0..found.len() {
        let limit = if i == 0 || i == OF_VALUES { 8.0 } else { 64.0 } * epsilon;
        assert_close(&found[i..=i], &expected[i..=i], &format!("{name}, {i}"), limit);
    }
    assert_eq!(found.len(), expected.len());
}

fn by_kernels(case: &Case, kind: Kind, most_bytes: i64, order: Order, noise: Option<&Noise>) -> Vec<Tensor> {
    let chunks = chunks(case);
    let found = emulated::during(order, || {
        case.by(kind, |attention| {
            let kernels = kernels(attention).expect("kernels for this width and kind");
            attend_within(most_bytes, kernels, attention, &chunks, 0.3, noise)
        })
    });
    found.iter().map(|tensor| tensor.to_kind(Kind::Double)).collect()
}

/// Queries with their bias, weights, their gradients and the result are rounded.
#[test]
fn reads_and_gradients_are_those_of_tensors_but_for_roundings() {
    for (kind, epsilon) in KINDS {
        for (name, case) in cases() {
            let case = rounded(case, kind);
            let found = by_kernels(&case, kind, MOST_BYTES, Order::Forwards, None);
            assert_near(&found, &case.plain(|_| None), &format!("{kind:?}, {name}"), epsilon);
        }
    }
}

#[test]
fn neither_the_order_of_threads_nor_that_of_heads_shows() {
    for (name, case) in cases() {
        let found = |bytes, order| by_kernels(&case, Kind::BFloat16, bytes, order, Some(&Noise::new(5)));
        let forwards = found(MOST_BYTES, Order::Forwards);
        assert_eq!(forwards, found(MOST_BYTES, Order::Backwards), "{name}: the order of threads shows");
        assert_eq!(forwards, found(1, Order::Forwards), "{name}: that heads are taken by themselves shows");
    }
}

#[test]
fn dropout_takes_the_weights_that_the_tiles_take() {
    for (kind, epsilon) in KINDS {
        for (name, case) in cases() {
            let case = rounded(case, kind);
            let noise = || Noise::new(5);
            let tiles =
                case.by(Kind::Float, |attention| fused::attend(attention, &case.blocks, 0.3, Some(&noise())));
            let found = by_kernels(&case, kind, MOST_BYTES, Order::Forwards, Some(&noise()));
            assert_near(&found, &tiles, &format!("{kind:?}, {name}"), epsilon);
        }
    }
}

#[test]
fn there_are_kernels_for_widths_that_rows_of_16_bytes_hold() {
    let there = |width: i64, kind: Kind| {
        let case = case_of(width, [3, 5, 0], false, false, 0);
        let leaves = case.leaves(kind);
        emulated::during(Order::Forwards, || kernels(&case.attention(&leaves)).is_some())
    };
    assert!(there(8, Kind::BFloat16) && there(128, Kind::Half));
    assert!(!there(12, Kind::BFloat16) && !there(136, Kind::BFloat16) && !there(64, Kind::Float));
    // On the processor itself there are none.
    let case = case_of(64, [3, 5, 0], false, false, 0);
    assert!(kernels(&case.attention(&case.leaves(Kind::BFloat16))).is_none());
}

/// What is read is a function of a graph that holds the problem: the problem must not hold it too.
#[test]
fn a_pass_without_backward_leaves_nothing_behind() {
    let case = case_of(40, [5, 9, 0], true, false, 1);
    let (chunks, leaves) = (chunks(&case), case.leaves(Kind::BFloat16));
    emulated::during(Order::Forwards, || {
        let attention = case.attention(&leaves);
        let kernels = kernels(&attention).expect("kernels");
        let before = GIVEN_BACK.get();
        let read = attend(kernels, &attention, &chunks, 0.0, None);
        assert!(read.requires_grad() && GIVEN_BACK.get() == before);
        drop(read);
        assert_eq!(GIVEN_BACK.get(), before + 1);
    });
}

/// As a Transformer-XL has it: no row for keys that come after all queries.
#[test]
fn distances_that_nobody_meets_may_be_left_out() {
    let (queries, keys) = (70, 97);
    let mask = attention_mask(queries, keys - queries, None, (Kind::Float, Device::Cpu)).unsqueeze(0);
    let causal = Chunks::causal(&mask);
    for (kind, epsilon) in KINDS {
        let whole = rounded(case_of(40, [queries, keys, 0], false, false, 0), kind);
        let mut expected = whole.by(Kind::Double, |attention| chunked::attend(attention, &causal, 0.0, None));
        expected[4] = expected[4].narrow(0, 0, keys);
        let mut short = whole;
        short.inputs[3] = short.inputs[3].narrow(0, 0, keys);
        let found = emulated::during(Order::Forwards, || {
            short.by(kind, |attention| {
                attend(kernels(attention).expect("kernels"), attention, &causal, 0.0, None)
            })
        });
        let found: Vec<Tensor> = found.iter().map(|tensor| tensor.to_kind(Kind::Double)).collect();
        assert_near(&found, &expected, "causal", epsilon);
    }
}

#[test]
fn a_query_that_sees_nothing_reads_zeros_and_has_no_gradient() {
    let case = case_of(40, [5, 9, 0], true, false, 0);
    let mask = Tensor::zeros([1, 5, 9], (Kind::Float, Device::Cpu));
    let _ = mask.narrow(1, 2, 1).fill_(f64::NEG_INFINITY);
    let blind = Chunks::new(&case.blocks, Some(mask), Device::Cpu);
    let found = emulated::during(Order::Forwards, || {
        case.by(Kind::BFloat16, |attention| {
            attend(kernels(attention).expect("kernels"), attention, &blind, 0.0, None)
        })
    });
    assert!(found.iter().all(|tensor| tensor.isfinite().all().int64_value(&[]) != 0));
    for (tensor, axis) in [(&found[0], 1), (&found[1], 1)] {
        assert_eq!(tensor.narrow(axis, 2, 1).abs().max().double_value(&[]), 0.0);
        assert!(tensor.narrow(axis, 1, 1).abs().max().double_value(&[]) > 0.0);
    }
}

/// What a block takes, and what cards have: 228 KiB less a little on capability 9.0, 164 on 8.0, 100 on 8.6 and 8.9.
#[test]
fn blocks_fit_the_cards_that_they_are_for() {
    let of = |width| card::shared_bytes(width, true);
    assert!(of(64) < 166_912 && of(128) < 232_448 && of(64) > card::shared_bytes(64, false));
    // These take attention in chunks.
    assert!(of(64) > 101_376 && of(128) > 166_912);
}
