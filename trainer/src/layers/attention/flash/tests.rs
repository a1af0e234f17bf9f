use super::super::chunked::tests::chunks;
use super::super::fused;
use super::super::fused::tests::{Case, assert_close, case_of, placed};
use super::*;
use crate::cards::emulated::{self, Order};

/// Kinds, and how far apart their numbers are.
const KINDS: [(Kind, f64); 2] = [(Kind::BFloat16, 1.0 / 256.0), (Kind::Half, 1.0 / 2048.0)];

/// More than one tile of keys and more than one block of queries are among them, and such as are not full.
fn cases() -> Vec<(String, Case)> {
    let mut cases = Vec::new();
    for (width, queries, keys) in [(40, 1, 5), (64, 37, 45), (40, 70, 133), (72, 20, 90)] {
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
    Case { inputs: case.inputs.iter().map(|input| input.to_kind(kind).to_kind(Kind::Double)).collect(), ..case }
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
            assert_close(&found, &case.plain(|_| None), &format!("{kind:?}, {name}"), 6.0 * epsilon);
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
            assert_close(&found, &tiles, &format!("{kind:?}, {name}"), 6.0 * epsilon);
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
