use segue_testing::emulated::{self, Order};
use tch::{Device, Kind, Tensor};

use super::super::fused;
use super::super::fused::tests::{Case, LANES, LIMIT, assert_close, case};
use super::*;

/// In double precision, of the largest value.
const DOUBLE_LIMIT: f64 = 1e-12;

/// The blocks of a case with their masks as one.
pub fn chunks(case: &Case) -> Chunks {
    let keys = case.blocks.last().expect("a block").keys;
    let mask = case.blocks[0].mask.is_some().then(|| {
        let masks = case.blocks.iter().map(|block| {
            let mask = block.mask.as_ref().expect("as the first has one");
            mask.constant_pad_nd([0, keys - block.keys])
        });
        Tensor::cat(&masks.collect::<Vec<_>>(), 1)
    });
    Chunks::new(&case.blocks, mask, Device::Cpu)
}

/// Cases, and their names, with all that scores are made of.
fn cases() -> impl Iterator<Item = (String, Case)> {
    let sizes = [(1, 1), (1, 5), (7, 7), (32, 40), (37, 37), (70, 97)].into_iter();
    sizes.flat_map(|(queries, keys)| {
        let choices =
            [(false, false, 0), (true, false, 1), (false, queries > 1, LANES), (true, queries > 1, LANES)];
        choices.into_iter().map(move |(segments, halves, masked)| {
            let extra = (queries + masked) % 3 * 8;
            let name = format!("{queries} {keys} {segments} {halves} {masked}");
            (name, case(queries, keys, extra, segments, halves, masked))
        })
    })
}

/// Those that take a processor no long time thread by thread; more than one small chunk, and chunks that are not full, are among them.
fn small_cases() -> impl Iterator<Item = (String, Case)> {
    cases().filter(|(_, case)| case.inputs[0].size()[1] < 50)
}

#[test]
fn reads_and_gradients_are_those_of_tensors_in_double_precision() {
    for (name, case) in cases() {
        let expected = case.plain(|_| None);
        for chunks in [chunks(&case), chunks(&case).in_small_chunks()] {
            for (kind, limit) in [(Kind::Double, DOUBLE_LIMIT), (Kind::Float, LIMIT)] {
                let found = case.by(kind, |attention| attend(attention, &chunks, 0.3, None));
                assert_close(&found, &expected, &name, limit);
            }
        }
    }
}

/// As the CPU's tiles number them, whatever the chunks are.
#[test]
fn dropout_takes_the_weights_that_the_tiles_take() {
    for (name, case) in cases() {
        let noise = || Noise::new(5);
        let tiles =
            case.by(Kind::Float, |attention| fused::attend(attention, &case.blocks, 0.3, Some(&noise())));
        let undropped = case.plain(|_| None);
        for chunks in [chunks(&case), chunks(&case).in_small_chunks()] {
            let found = case.by(Kind::Float, |attention| attend(attention, &chunks, 0.3, Some(&noise())));
            // Either is off by as much.
            assert_close(&found, &tiles, &name, 2.0 * LIMIT);
        }
        assert!((&tiles[0] - &undropped[0]).abs().max().double_value(&[]) > 1e-3, "{name}");
    }
}

#[test]
fn causal_chunks_are_those_of_the_tiles() {
    let case = case(70, 97, 0, false, false, 0);
    for same_length in [None, Some(20)] {
        let mask = super::super::attention_mask(70, 27, same_length, (Kind::Float, Device::Cpu)).unsqueeze(0);
        let noise = || Noise::new(5);
        let blocks = fused::Block::causal(&mask);
        let tiles = case.by(Kind::Float, |attention| fused::attend(attention, &blocks, 0.3, Some(&noise())));
        for chunks in [Chunks::causal(&mask), Chunks::causal(&mask).in_small_chunks()] {
            let found = case.by(Kind::Float, |attention| attend(attention, &chunks, 0.3, Some(&noise())));
            assert_close(&found, &tiles, "causal", 2.0 * LIMIT);
        }
    }
}

/// Weights, scores and their gradients are not rounded to short numbers but as factors of products: errors are those of some roundings.
#[test]
fn short_numbers_are_added_up_in_long_ones() {
    for (kind, epsilon) in [(Kind::BFloat16, 1.0 / 256.0), (Kind::Half, 1.0 / 2048.0)] {
        let case = case(37, 45, 8, true, false, 1);
        let rounded = Case {
            inputs: case.inputs.iter().map(|input| input.to_kind(kind).to_kind(Kind::Double)).collect(),
            ..case
        };
        let chunks = chunks(&rounded);
        let found = rounded.by(kind, |attention| attend(attention, &chunks, 0.0, None));
        assert!(found.iter().all(|tensor| tensor.kind() == kind));
        let found: Vec<Tensor> = found.iter().map(|tensor| tensor.to_kind(Kind::Double)).collect();
        // Queries with their bias, weights or their gradients, and the result are rounded, each by up to half of epsilon: of scores
        // below 10 that is up to a few epsilon of a weight.
        assert_close(&found, &rounded.plain(|_| None), &format!("{kind:?}"), 6.0 * epsilon);
    }
}

/// Kernels of cards, thread by thread on the processor, in both orders of threads.
#[test]
fn kernels_of_cards_give_what_tensors_give_in_double_precision() {
    for (name, case) in small_cases() {
        let expected = case.plain(|_| None);
        for chunks in [chunks(&case), chunks(&case).in_small_chunks()] {
            let found = |order| {
                emulated::during(order, || {
                    case.by(Kind::Float, |attention| attend(attention, &chunks, 0.3, None))
                })
            };
            let forwards = found(Order::Forwards);
            assert_close(&forwards, &expected, &name, LIMIT);
            assert_eq!(forwards, found(Order::Backwards), "{name}: the order of threads shows");
        }
    }
}

#[test]
fn kernels_of_cards_drop_the_weights_that_the_tiles_drop() {
    for (name, case) in small_cases() {
        let noise = || Noise::new(5);
        let tiles =
            case.by(Kind::Float, |attention| fused::attend(attention, &case.blocks, 0.3, Some(&noise())));
        for chunks in [chunks(&case), chunks(&case).in_small_chunks()] {
            let found = emulated::during(Order::Forwards, || {
                case.by(Kind::Float, |attention| attend(attention, &chunks, 0.3, Some(&noise())))
            });
            // Either is off by as much.
            assert_close(&found, &tiles, &name, 2.0 * LIMIT);
        }
    }
}

/// From the same products and in the same kinds: what is rounded to short numbers may fall to the other side.
#[test]
fn kernels_of_cards_round_to_short_numbers_as_tensors_do() {
    for (kind, epsilon) in [(Kind::BFloat16, 1.0 / 256.0), (Kind::Half, 1.0 / 2048.0)] {
        let case = case(37, 45, 8, true, false, 1);
        let chunks = chunks(&case);
        let found = || {
            let found = case.by(kind, |attention| in_chunks(attention, &chunks, 0.3, Some(&Noise::new(5))));
            found.iter().map(|tensor| tensor.to_kind(Kind::Double)).collect::<Vec<_>>()
        };
        let by_kernels = emulated::during(Order::Forwards, found);
        assert_close(&by_kernels, &found(), &format!("{kind:?}"), epsilon);
    }
}

#[test]
fn a_gradient_of_a_gradient_is_refused() {
    let case = case(5, 7, 0, true, false, 1);
    let chunks = chunks(&case);
    segue_kernels::libtorch::assert_differentiable_once("attention", || {
        let leaves = case.leaves(Kind::Float);
        let read = attend(&case.attention(&leaves), &chunks, 0.0, None);
        (read, leaves)
    });
}
