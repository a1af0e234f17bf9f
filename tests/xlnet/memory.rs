//! Rows X10 and X11: what the memory holds, and who sees which half.

use segue_configs::MemoryStart;
use segue_layers::Memory;
use segue_xlnet::{Sequence, Visibility, Xlnet, XlnetConfig};
use tch::Tensor;

use crate::naive::{Scene, forward};
use crate::tiny::{
    content, difference, model, order, parameters, permuted, predictions, row, some_memory, tiny, tokens,
};

/// Row X10.
#[test]
fn a_cached_segment_is_that_segment_recomputed() {
    let config = XlnetConfig { mem_len: 8, ..tiny() };
    let model = model(&config);
    let ids = tokens(11);
    let (first, second) = (ids.narrow(1, 0, 5), ids.narrow(1, 5, 6));
    for seed in 0..4 {
        let (early, late) = (order(5, seed), order(6, seed + 9));
        // At once: all of the second segment comes after the first in the order.
        let both: Vec<i64> = early.iter().copied().chain(late.iter().map(|rank| rank + 5)).collect();
        let whole = permuted(&model, &ids, &row(&both), &model.memory_start(1));
        let cached = permuted(&model, &first, &row(&early), &model.memory_start(1)).memory;
        let then = permuted(&model, &second, &row(&late), &cached);
        assert!(difference(&content(&then), &content(&whole).narrow(1, 5, 6)) < 1e-12);
        assert!(difference(&predictions(&then), &predictions(&whole).narrow(1, 5, 6)) < 1e-12);
    }
}

/// What a segment reads of the past is states: memories of one text made in several orders differ, and with the states of one in the place of all,
/// each gives what a second way makes of these states, which knows of no order.
/// Row X10.
#[test]
fn with_the_memory_fixed_the_order_it_was_made_in_does_not_matter() {
    let (config, ids) = (tiny(), tokens(12));
    let parameters = parameters(&config);
    let model = Xlnet::new(&config, &parameters);
    let (first, second) = (ids.narrow(1, 0, 6), ids.narrow(1, 6, 6));
    let ranks = order(6, 9);
    let remembered = |seed| permuted(&model, &first, &row(&order(6, seed)), &model.memory_start(1)).memory;
    let memories = [2, 3, 4].map(remembered);
    let after = |memory: &Memory| permuted(&model, &second, &row(&ranks), memory);
    let states: Vec<Tensor> = memories[0].layers.iter().map(|layer| layer.get(0)).collect();
    let words: Vec<i64> = Vec::try_from(second.get(0)).unwrap();
    let scene = Scene {
        ids: &words,
        segments: None,
        memory: &states,
        content_sees: &|i, j| ranks[j] <= ranks[i],
        prediction_sees: &|i, j| ranks[j] < ranks[i],
        backwards: false,
    };
    let (h, g) = forward(&config, &parameters, &scene);
    for memory in &memories {
        let layers = memories[0].layers.iter().map(Tensor::shallow_clone).collect();
        let fixed = Memory { layers, documents: memory.documents.as_ref().map(Tensor::shallow_clone) };
        let found = after(&fixed);
        assert!(difference(&content(&found).get(0), &h) < 1e-11);
        assert!(difference(&predictions(&found).get(0), &g) < 1e-11);
    }
    // The states themselves do depend on the order, but for those of the first layer, which are the words.
    let of = |layer: usize| memories.each_ref().map(|memory| memory.layers[layer].shallow_clone());
    assert_eq!(of(0)[0], of(0)[1]);
    for other in &memories[1..] {
        assert!(difference(&other.layers[2], &memories[0].layers[2]) > 1e-6);
        assert!(difference(&content(&after(other)), &content(&after(&memories[0]))) > 1e-6);
    }
}

/// Row X10.
#[test]
fn only_the_reused_part_of_a_segment_is_remembered_and_without_gradient() {
    let config = XlnetConfig { reuse_len: 4, mem_len: 6, memory_start: MemoryStart::Zeros, ..tiny() };
    let model = model(&config);
    let mut memory = model.memory_start(2);
    assert_eq!(memory.len(), 6);
    let mut texts = Vec::new();
    for step in 0..3 {
        let ids = (Tensor::cat(&[tokens(9), tokens(9)], 0) + step).remainder(17);
        let states = model.forward(Sequence::new(&ids), &memory, None);
        memory = states.memory;
        texts.push(ids.narrow(1, 0, 4));
        assert!(memory.layers.iter().all(|layer| !layer.requires_grad() && layer.size() == [2, 6, 8]));
    }
    // The first layer's memory is the embeddings of the last six reused tokens.
    let parameters = parameters(&config);
    let last = Tensor::cat(&texts, 1).narrow(1, 6, 6);
    let table = parameters.get("transformer.word_embedding.weight").detach();
    let embedded = Tensor::embedding(&table, &last, -1, false, false);
    assert_eq!(difference(&memory.layers[0], &embedded), 0.0);
}

/// Row X11.
#[test]
fn the_first_half_does_not_change_when_the_second_does() {
    let model = model(&tiny());
    let (ids, memory) = (tokens(10), some_memory(&tiny(), 1, 4));
    // First half plain 0 and chosen 1 .., second half plain 6 and chosen 7 ..
    let ranks = row(&[0, 3, 0, 1, 0, 6, 8, 6, 7, 9]);
    let targets = row(&[1, 3, 6, 8, 9]);
    let run = |ids: &Tensor, halves_at| {
        let visibility = Visibility::Ranks { ranks: &ranks, halves_at };
        let sequence = Sequence { visibility, targets: Some(&targets), ..Sequence::new(ids) };
        tch::no_grad(|| model.forward(sequence, &memory, None))
    };
    let other = Tensor::cat(&[ids.narrow(1, 0, 5), (ids.narrow(1, 5, 5) + 4).remainder(17)], 1);
    let (a, b) = (run(&ids, 5), run(&other, 5));
    assert_eq!(difference(&content(&a).narrow(1, 0, 5), &content(&b).narrow(1, 0, 5)), 0.0);
    assert_eq!(difference(&predictions(&a).narrow(1, 0, 2), &predictions(&b).narrow(1, 0, 2)), 0.0);
    assert!(difference(&content(&a).narrow(1, 5, 5), &content(&b).narrow(1, 5, 5)) > 1e-3);
    // Where halves meet only saves work: the ranks alone say the same.
    let plain = run(&ids, 0);
    assert!(difference(&content(&a), &content(&plain)) < 1e-12);
    assert!(difference(&predictions(&a), &predictions(&plain)) < 1e-12);
}

#[test]
fn places_of_the_memory_that_nothing_was_written_to_are_not_seen() {
    let masked = model(&XlnetConfig { memory_start: MemoryStart::Masked, ..tiny() });
    let empty = model(&tiny());
    let (ids, ranks) = (tokens(5), row(&order(5, 4)));
    let (mut a, mut b) = (masked.memory_start(1), empty.memory_start(1));
    for _ in 0..3 {
        let (left, right) = (permuted(&masked, &ids, &ranks, &a), permuted(&empty, &ids, &ranks, &b));
        assert!(difference(&content(&left), &content(&right)) < 1e-12);
        assert!(difference(&predictions(&left), &predictions(&right)) < 1e-12);
        (a, b) = (left.memory, right.memory);
    }
}
