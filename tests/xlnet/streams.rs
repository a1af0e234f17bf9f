//! Rows X4 to X9: who sees whom, and what follows from it.

use segue_random::{Purpose, Stream};
use segue_xlnet::{Sequence, Visibility, Xlnet, XlnetConfig};
use tch::{Kind, Tensor};

use crate::tiny::{
    WORDS, content, difference, model, order, parameters, permuted, predictions, row, some_memory, tiny,
    tokens,
};

/// Positions whose states differ between two runs.
fn changed(a: &Tensor, b: &Tensor) -> Vec<usize> {
    let rows = (a - b).abs().amax([2], false).get(0);
    let rows = Vec::<f64>::try_from(rows).unwrap();
    rows.iter().enumerate().filter(|(_, change)| **change > 1e-12).map(|(i, _)| i).collect()
}

/// `ids` with another token at `place`.
fn with_other(ids: &Tensor, place: usize) -> Tensor {
    let mut values = Vec::<i64>::try_from(ids.get(0)).unwrap();
    values[place] = (values[place] + 5) % WORDS;
    row(&values)
}

/// Row X4.
#[test]
fn the_order_3_2_4_1_gives_the_golden_masks() {
    // Rank of each position when 3 comes first, then 2, 4, 1 (docs/book/src/contributing/expected-values.md). Each state that changes with a token
    // sees it, through any number of layers.
    let ranks = row(&[3, 1, 0, 2]);
    let (model, ids) = (model(&tiny()), tokens(4));
    let memory = model.memory_start(1);
    let base = permuted(&model, &ids, &ranks, &memory);
    let query_blocked = [[1, 0, 0, 0], [1, 1, 0, 1], [1, 1, 1, 1], [1, 0, 0, 1]];
    let content_blocked = [[0, 0, 0, 0], [1, 0, 0, 1], [1, 1, 0, 1], [1, 0, 0, 0]];
    for j in 0..4 {
        let other = permuted(&model, &with_other(&ids, j), &ranks, &memory);
        let seen = |blocked: [[i32; 4]; 4]| (0..4).filter(|i| blocked[*i][j] == 0).collect::<Vec<_>>();
        assert_eq!(changed(&predictions(&base), &predictions(&other)), seen(query_blocked), "token {j}");
        assert_eq!(changed(&content(&base), &content(&other)), seen(content_blocked), "token {j}");
    }
}

/// Row X5.
#[test]
fn a_target_is_seen_by_later_predictions_only_and_by_its_own_content() {
    let (model, ids) = (model(&tiny()), tokens(7));
    let memory = some_memory(&tiny(), 1, 4);
    for seed in 0..5 {
        let ranks = order(7, seed);
        let base = permuted(&model, &ids, &row(&ranks), &memory);
        for place in 0..7 {
            let other = permuted(&model, &with_other(&ids, place), &row(&ranks), &memory);
            let later: Vec<usize> = (0..7).filter(|i| ranks[*i] > ranks[place]).collect();
            assert_eq!(changed(&predictions(&base), &predictions(&other)), later);
            let own: Vec<usize> = (0..7).filter(|i| ranks[*i] >= ranks[place]).collect();
            assert_eq!(changed(&content(&base), &content(&other)), own);
        }
    }
}

/// Row X5.
#[test]
fn no_gradient_reaches_a_prediction_from_its_own_token_or_a_later_one() {
    let config = tiny();
    // Every position a word of its own, so that an embedding's gradient tells of one position.
    let ids = row(&[0, 1, 2, 3, 4, 5, 6]);
    let parameters = parameters(&config);
    let model = Xlnet::new(&config, &parameters);
    let embedding = parameters.get("transformer.word_embedding.weight");
    for seed in 0..4 {
        let ranks = order(7, seed);
        for target in 0..7i64 {
            let (ranks_row, targets) = (row(&ranks), row(&[target]));
            let visibility = Visibility::Ranks { ranks: &ranks_row, halves_at: 0 };
            let sequence =
                Sequence { visibility, targets: Some(&targets), content: false, ..Sequence::new(&ids) };
            let states = model.forward(sequence, &model.memory_start(1), None);
            let sum = (predictions(&states) * Tensor::arange(8, (Kind::Double, tch::Device::Cpu)))
                .sum(None::<Kind>);
            if ranks[target as usize] == 0 {
                // The first of the order sees nothing at all: its prediction does not depend on any embedding.
                sum.backward();
                let grad = embedding.grad();
                assert!(!grad.defined() || grad.to_dense(None, false).abs().max().double_value(&[]) == 0.0);
                continue;
            }
            sum.backward();
            let grad = embedding.grad().to_dense(None, false);
            for (position, rank) in ranks.iter().enumerate() {
                let reach = grad.get(position as i64).abs().max().double_value(&[]);
                let earlier = *rank < ranks[target as usize];
                assert_eq!(
                    reach > 0.0,
                    earlier,
                    "order {ranks:?}, target {target}, position {position}: {reach}"
                );
            }
            let _ = embedding.grad().zero_();
        }
    }
}

/// Row X4.
#[test]
fn three_thousand_random_draws_do_not_leak() {
    // The model itself, one layer less than the words it could leak through: functional tokens, targets and plain
    // ones at random places, in two halves, as the data gives them.
    let config = XlnetConfig { n_layer: 2, d_model: 4, n_head: 1, d_inner: 4, ..tiny() };
    let model = model(&config);
    let (lanes, length, half) = (50i64, 12usize, 6usize);
    let memory = some_memory(&config, lanes, 2);
    for draw in 0..60 {
        let stream = Stream::new(draw, Purpose::Evaluation, &[7]);
        let mut ranks = Vec::new();
        let mut targets = Vec::new();
        for lane in 0..lanes as u64 {
            let number = |i: usize| stream.bits(lane * 64 + i as u64);
            let place = number(40) as usize % length;
            targets.push(place as i64);
            for i in 0..length {
                let begin = if i < half { 0 } else { half as i64 + 1 };
                let idx = order(half, number(41) ^ u64::from(i >= half))[i % half];
                let chosen = i == place || number(i) % 3 == 0;
                ranks.push(if chosen { begin + 1 + idx } else { begin });
            }
        }
        let ids: Vec<i64> =
            (0..lanes as u64 * length as u64).map(|i| (stream.bits(5000 + i) % 17) as i64).collect();
        let shape = [lanes, length as i64];
        let (ids, ranks) = (Tensor::from_slice(&ids).view(shape), Tensor::from_slice(&ranks).view(shape));
        let targets = Tensor::from_slice(&targets).view([lanes, 1]);
        let run = |ids: &Tensor| {
            let visibility = Visibility::Ranks { ranks: &ranks, halves_at: half as i64 };
            let sequence =
                Sequence { visibility, targets: Some(&targets), content: false, ..Sequence::new(ids) };
            predictions(&tch::no_grad(|| model.forward(sequence, &memory, None)))
        };
        // Other tokens at the target and wherever the order comes later.
        let hidden = ranks.ge_tensor(&ranks.gather(1, &targets, false));
        let others = (&ids + 3).remainder(17);
        let changed = ids.where_self(&hidden.logical_not(), &others);
        assert_eq!(difference(&run(&ids), &run(&changed)), 0.0, "draw {draw}");
        assert!(difference(&run(&ids), &run(&others)) > 1e-6);
    }
}

/// Row X6.
#[test]
fn joint_probabilities_of_all_strings_sum_to_one_in_every_order() {
    let config = XlnetConfig { vocab_size: 3, ..tiny() };
    let model = model(&config);
    let strings: Vec<i64> = (0..27i64).flat_map(|n| [n / 9, n / 3 % 3, n % 3]).collect();
    let ids = Tensor::from_slice(&strings).view([27, 3]);
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let ranks = row(&order).expand([27, 3], false);
        let states = permuted(&model, &ids, &ranks, &model.memory_start(27));
        let log_joint = -model.nll(&predictions(&states), &ids).sum_dim_intlist(1, false, None::<Kind>);
        let sum = log_joint.exp().sum(None::<Kind>).double_value(&[]);
        assert!((sum - 1.0).abs() < 1e-12, "order {order:?}: {sum}");
    }
}

/// Row X6.
#[test]
fn a_row_with_nothing_to_see_reads_zero() {
    // The first of the order sees no key: whatever the keys hold, its prediction is the same, as it would be
    // without any key, and not the mean over all of them, which would leak its own token.
    let (model, ranks) = (model(&tiny()), row(&[1, 0, 2]));
    let first = |ids: &Tensor| {
        let states = permuted(&model, ids, &ranks, &model.memory_start(1));
        predictions(&states).narrow(1, 1, 1)
    };
    assert_eq!(difference(&first(&row(&[1, 2, 3])), &first(&row(&[9, 8, 7]))), 0.0);
    let parameters = parameters(&tiny());
    let nothing: Vec<Tensor> =
        (0..3).map(|_| Tensor::zeros([0, 8], (Kind::Double, tch::Device::Cpu))).collect();
    let scene = crate::naive::Scene {
        ids: &[1, 2, 3],
        segments: None,
        memory: &nothing,
        content_sees: &|i, j| [1, 0, 2][j] <= [1, 0, 2][i],
        prediction_sees: &|i, j| [1, 0, 2][j] < [1, 0, 2][i],
        backwards: false,
    };
    let (_, g) = crate::naive::forward(&tiny(), &parameters, &scene);
    assert!(difference(&first(&row(&[1, 2, 3])).squeeze_dim(0), &g.narrow(0, 1, 1)) < 1e-12);
}

/// Row X7.
#[test]
fn predictions_know_their_place_and_content_does_not() {
    // Two orders with the same beginning {0, 1} and another next position (Yang 2019, §2.2.2, below equation 2.3).
    let (model, ids) = (model(&tiny()), tokens(4));
    let memory = model.memory_start(1);
    let next_is_2 = permuted(&model, &ids, &row(&[0, 1, 2, 3]), &memory);
    let next_is_3 = permuted(&model, &ids, &row(&[0, 1, 3, 2]), &memory);
    // A softmax over the content at the last known position says the same of both next positions.
    let naive = |states| content(states).narrow(1, 1, 1);
    assert_eq!(difference(&naive(&next_is_2), &naive(&next_is_3)), 0.0);
    let ours = difference(
        &model.logits(&predictions(&next_is_2).narrow(1, 2, 1)),
        &model.logits(&predictions(&next_is_3).narrow(1, 3, 1)),
    );
    assert!(ours > 1e-3, "{ours}");
}

/// Row X8.
#[test]
fn predictions_of_some_positions_are_those_rows_of_predicting_all() {
    let (model, ids, ranks) = (model(&tiny()), tokens(9), row(&order(9, 3)));
    let memory = some_memory(&tiny(), 1, 5);
    let segments = row(&[0, 0, 0, 0, 1, 1, 1, 1, 2]);
    let run = |targets: &Tensor, content: bool| {
        let visibility = Visibility::Ranks { ranks: &ranks, halves_at: 0 };
        let sequence = Sequence {
            visibility,
            targets: Some(targets),
            segments: Some(&segments),
            content,
            ..Sequence::new(&ids)
        };
        tch::no_grad(|| model.forward(sequence, &memory, None))
    };
    let all = predictions(&run(&row(&[0, 1, 2, 3, 4, 5, 6, 7, 8]), true));
    for targets in [vec![2, 5, 8], vec![7], vec![4, 0]] {
        let some = run(&row(&targets), false);
        assert!(some.content.is_none());
        let rows = all.index_select(1, &Tensor::from_slice(&targets));
        assert!(difference(&predictions(&some), &rows) < 1e-12);
        // The loss of selected rows is the full loss restricted to them.
        let labels = ids.index_select(1, &Tensor::from_slice(&targets));
        let restricted = model.nll(&all, &ids).index_select(1, &Tensor::from_slice(&targets));
        assert!(difference(&model.nll(&predictions(&some), &labels), &restricted) < 1e-12);
    }
}

/// Row X9.
#[test]
fn content_has_the_same_bits_with_and_without_predictions() {
    let config = tiny();
    let single = Xlnet::specs(&config);
    let parameters = segue_kernels::Parameters::initialise(single, 5, Kind::Float);
    let model = Xlnet::new(&config, &parameters);
    let (ids, ranks, targets) = (tokens(9), row(&order(9, 1)), row(&[1, 4]));
    let visibility = Visibility::Ranks { ranks: &ranks, halves_at: 4 };
    let memory = model.memory_start(1);
    let alone = Sequence { visibility, ..Sequence::new(&ids) };
    let both = Sequence { targets: Some(&targets), ..alone };
    let run = |sequence| tch::no_grad(|| model.forward(sequence, &memory, None));
    let (alone, both) = (run(alone), run(both));
    assert_eq!(content(&alone), content(&both));
    for (a, b) in alone.memory.layers.iter().zip(&both.memory.layers) {
        assert_eq!(a, b);
    }
}
