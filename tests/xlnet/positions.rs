//! Rows X12 to X14: relative positions to both sides, text read backwards, relative segments.

use segue_kernels::Parameters;
use segue_layers::Memory;
use segue_xlnet::{AttentionDirection, Sequence, States, Visibility, Xlnet, XlnetConfig};
use tch::{Kind, Tensor};

use crate::naive::{Scene, forward};
use crate::tiny::{
    content, difference, model, order, parameters, permuted, predictions, row, some_memory, tiny, tokens,
};

/// Row X12.
#[test]
fn every_pair_is_scored_as_written_out_one_by_one() {
    let ids: Vec<i64> = Vec::try_from(tokens(7).get(0)).unwrap();
    let segments = [0, 0, 0, 1, 1, 1, 2];
    let ranks = [3, 0, 0, 5, 1, 0, 4];
    let cases = [
        (tiny(), 4, true, false),
        (tiny(), 0, false, false),
        (XlnetConfig { clamp_len: 2, ..tiny() }, 5, true, false),
        (XlnetConfig { clamp_len: 3, n_head: 4, ..tiny() }, 3, false, true),
        (XlnetConfig { d_head: 3, ..tiny() }, 2, true, true),
    ];
    for (config, mem, with_segments, backwards) in cases {
        let parameters = parameters(&config);
        let model = Xlnet::new(&config, &parameters);
        let memory = some_memory(&config, 1, mem);
        let before: Vec<Tensor> = memory.layers.iter().map(|layer| layer.get(0)).collect();
        let scene = Scene {
            ids: &ids,
            segments: with_segments.then_some(&segments),
            memory: &before,
            content_sees: &|i, j| ranks[j] <= ranks[i],
            prediction_sees: &|i, j| ranks[j] < ranks[i],
            backwards,
        };
        let (h, g) = forward(&config, &parameters, &scene);
        let (ids, ranks, all, segments) =
            (row(&ids), row(&ranks), row(&[0, 1, 2, 3, 4, 5, 6]), row(&segments));
        let sequence = Sequence {
            segments: with_segments.then_some(&segments),
            visibility: Visibility::Ranks { ranks: &ranks, halves_at: 0 },
            targets: Some(&all),
            reversed: i64::from(backwards),
            ..Sequence::new(&ids)
        };
        let states = tch::no_grad(|| model.forward(sequence, &memory, None));
        // Sums of eleven terms in another order: some roundings of 1e-16, amplified by three norms.
        assert!(difference(&content(&states).get(0), &h) < 1e-11, "{config:?}");
        assert!(difference(&predictions(&states).get(0), &g) < 1e-11, "{config:?}");
    }
}

/// Row X12.
#[test]
fn long_segments_go_through_attention_in_blocks_and_give_the_same() {
    // Longer than a block of rows, and not a multiple of it.
    let config = XlnetConfig { n_layer: 1, d_model: 4, n_head: 1, d_inner: 4, ..tiny() };
    let parameters = parameters(&config);
    let model = Xlnet::new(&config, &parameters);
    let ids: Vec<i64> = Vec::try_from(tokens(150).get(0)).unwrap();
    let ranks: Vec<i64> = (0..150).map(|i| i * 7 % 11).collect();
    let memory = some_memory(&config, 1, 3);
    let before: Vec<Tensor> = memory.layers.iter().map(|layer| layer.get(0)).collect();
    let scene = Scene {
        ids: &ids,
        segments: None,
        memory: &before,
        content_sees: &|i, j| ranks[j] <= ranks[i],
        prediction_sees: &|i, j| ranks[j] < ranks[i],
        backwards: false,
    };
    let (h, _) = forward(&config, &parameters, &scene);
    let states = permuted(&model, &row(&ids), &row(&ranks), &memory);
    assert!(difference(&content(&states).get(0), &h) < 1e-11);
}

/// Row X12.
#[test]
fn a_left_to_right_model_sees_nothing_later() {
    let config = XlnetConfig { attn_type: AttentionDirection::Uni, ..tiny() };
    let parameters = parameters(&config);
    let model = Xlnet::new(&config, &parameters);
    let memory = some_memory(&config, 1, 4);
    let before: Vec<Tensor> = memory.layers.iter().map(|layer| layer.get(0)).collect();
    let ids: Vec<i64> = Vec::try_from(tokens(6).get(0)).unwrap();
    let scene = Scene {
        ids: &ids,
        segments: None,
        memory: &before,
        content_sees: &|i, j| j <= i,
        prediction_sees: &|i, j| j <= i,
        backwards: false,
    };
    let (h, _) = forward(&config, &parameters, &scene);
    let ids = row(&ids);
    let states = tch::no_grad(|| model.forward(Sequence::new(&ids), &memory, None));
    assert!(difference(&content(&states).get(0), &h) < 1e-11);
}

/// Both streams over `ids` whose lanes from `forward` on read backwards.
fn read(model: &Xlnet, ids: &Tensor, ranks: &Tensor, reversed: i64, memory: &Memory) -> States {
    let all = Tensor::arange(ids.size()[1], (Kind::Int64, tch::Device::Cpu));
    let targets = all.unsqueeze(0).expand([ids.size()[0], -1], false);
    let visibility = Visibility::Ranks { ranks, halves_at: 0 };
    let sequence = Sequence { visibility, targets: Some(&targets), reversed, ..Sequence::new(ids) };
    tch::no_grad(|| model.forward(sequence, memory, None))
}

/// Row X13.
#[test]
fn text_read_backwards_gives_the_mirrored_states() {
    let model = model(&tiny());
    let none = model.memory_start(1);
    for (ids, seed) in [(tokens(9), 1), (row(&[4, 7, 1, 9, 1, 7, 4]), 2), (tokens(5), 3)] {
        let ranks = row(&order(ids.size()[1] as usize, seed));
        let forward = read(&model, &ids, &ranks, 0, &none);
        let backward = read(&model, &ids.flip([1]), &ranks.flip([1]), 1, &none);
        assert!(difference(&content(&forward), &content(&backward).flip([1])) < 1e-12);
        assert!(difference(&predictions(&forward), &predictions(&backward).flip([1])) < 1e-12);
        // Without negated distances it does not.
        let wrong = read(&model, &ids.flip([1]), &ranks.flip([1]), 0, &none);
        assert!(difference(&content(&forward), &content(&wrong).flip([1])) > 1e-3);
    }
}

/// Two segments of a text read backwards, the later one first, are the text read backwards at once: what is remembered is later text.
/// Row X13.
#[test]
fn the_memory_of_text_read_backwards_holds_later_text() {
    let config = XlnetConfig { mem_len: 8, ..tiny() };
    let parameters = parameters(&config);
    let model = Xlnet::new(&config, &parameters);
    let ids = tokens(11);
    let [sooner, later] = [(0, 6), (6, 5)].map(|(from, length)| ids.narrow(1, from, length).flip([1]));
    let none = model.memory_start(1);
    for seed in 0..3 {
        let (of_later, of_sooner) = (order(5, seed), order(6, seed + 9));
        let both: Vec<i64> = of_later.iter().copied().chain(of_sooner.iter().map(|rank| rank + 5)).collect();
        let whole = read(&model, &ids.flip([1]), &row(&both), 1, &none);
        let memory = read(&model, &later, &row(&of_later), 1, &none).memory;
        let then = read(&model, &sooner, &row(&of_sooner), 1, &memory);
        assert!(difference(&content(&then), &content(&whole).narrow(1, 5, 6)) < 1e-12);
        assert!(difference(&predictions(&then), &predictions(&whole).narrow(1, 5, 6)) < 1e-12);
        let table = parameters.get("transformer.word_embedding.weight").detach();
        let words = Tensor::embedding(&table, &later, -1, false, false);
        assert_eq!(difference(&memory.layers[0], &words), 0.0);
    }
}

/// Row X13.
#[test]
fn lanes_of_both_directions_share_a_batch() {
    let (config, ids) =
        (tiny(), Tensor::cat(&[tokens(6), tokens(6) + 1, tokens(6), (tokens(6) + 5).remainder(17)], 0));
    let ids = ids.remainder(17);
    let model = model(&config);
    let memory = some_memory(&config, 4, 3);
    let ranks: Vec<Tensor> = (0..4).map(|seed| row(&order(6, seed))).collect();
    let ranks = Tensor::cat(&ranks, 0);
    let all = read(&model, &ids, &ranks, 2, &memory);
    for lane in 0..4 {
        let own = |t: &Tensor| t.narrow(0, lane, 1);
        let layers = memory.layers.iter().map(own).collect();
        let alone = Memory { layers, documents: None };
        let one = read(&model, &own(&ids), &own(&ranks), i64::from(lane >= 2), &alone);
        assert!(difference(&own(&content(&all)), &content(&one)) < 1e-12);
        assert!(difference(&own(&predictions(&all)), &predictions(&one)) < 1e-12);
    }
}

/// Row X14.
#[test]
fn only_same_or_other_segment_counts() {
    let (model, ids, ranks) = (model(&tiny()), tokens(6), row(&order(6, 5)));
    let run = |model: &Xlnet, segments: Option<&Tensor>| {
        let visibility = Visibility::Ranks { ranks: &ranks, halves_at: 0 };
        let sequence = Sequence { visibility, segments, ..Sequence::new(&ids) };
        content(&tch::no_grad(|| model.forward(sequence, &model.memory_start(1), None)))
    };
    let (ab, ba) = (row(&[0, 0, 1, 1, 1, 0]), row(&[1, 1, 0, 0, 0, 1]));
    assert!(difference(&run(&model, Some(&ab)), &run(&model, Some(&ba))) < 1e-12);
    let three = run(&model, Some(&row(&[0, 0, 1, 1, 2, 2])));
    assert!(difference(&three, &run(&model, Some(&ab))) > 1e-3);
    assert!(difference(&three, &run(&model, Some(&row(&[4, 4, 3, 3, 0, 0])))) < 1e-12);
    // One segment is like none; so are segments that say nothing.
    assert!(difference(&run(&model, Some(&row(&[0; 6]))), &run(&model, None)) < 1e-12);
    let own = parameters(&tiny());
    let silent = own.specs().iter().zip(own.tensors()).map(|(spec, tensor)| {
        if spec.name.ends_with("seg_embed") { tensor.detach().zeros_like() } else { tensor.detach().copy() }
    });
    let silent = Parameters::from_tensors(own.specs().to_vec(), silent.collect(), Kind::Double);
    let silent = Xlnet::new(&tiny(), &silent);
    assert!(difference(&run(&silent, Some(&ab)), &run(&silent, None)) < 1e-12);
}
