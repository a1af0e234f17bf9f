use segue_kernels::Kernels;
use segue_layers::Adversary;
use segue_layers::adversarial::nll;
use segue_layers::cross_entropy::Words;
use segue_layers::{AdversarialConfig, MarginGradient};
use tch::{Device, Kind, Tensor};

use super::*;

fn filled(words: i64, width: i64) -> Tensor {
    let numbers = Tensor::arange(words * width, (Kind::Double, Device::Cpu));
    ((&numbers * 1.3 + 0.2).sin() * 0.9 + (numbers * 0.37).cos()).view([words, width])
}

fn rows(table: &Tensor) -> Vec<Vec<f64>> {
    Vec::<Vec<f64>>::try_from(table).unwrap()
}

fn distance(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
}

/// Row S5.
#[test]
fn nearest_distances_are_those_of_all_pairs() {
    let table = filled(300, 7);
    let rows = rows(&table);
    let found = nearest_distances(&table);
    assert_eq!(found.len(), 300);
    for (i, found) in found.iter().enumerate() {
        let others = (0..300).filter(|&j| j != i).map(|j| distance(&rows[i], &rows[j]));
        let expected = others.fold(f64::INFINITY, f64::min);
        assert!((found - expected).abs() < 1e-12, "{i}: {found} instead of {expected}");
    }
}

#[test]
fn the_median_of_an_even_number_of_distances_lies_between_the_middle_two() {
    // To the nearest: 1, 1, 2 and 4.
    let table = Tensor::from_slice(&[1.0, 2.0, 4.0, 8.0]).view([4, 1]);
    assert_eq!(Embeddings::of(&table, None).nearest_median, 1.5);
}

/// More rows than a block has, among them one that comes again far from the first time.
/// Row S5.
#[test]
fn nearest_distances_look_beyond_their_own_block() {
    let words = BLOCK_COLUMNS + BLOCK_ROWS + 7;
    let table = Tensor::arange(words, (Kind::Double, Device::Cpu)).view([words, 1]) * 3.0;
    let _ = table.get(words - 1).fill_(0.5);
    let found = nearest_distances(&table);
    assert_eq!((found[0], found[1], found[words as usize - 1]), (0.5, 2.5, 0.5));
    assert!(found[2..words as usize - 1].iter().all(|distance| *distance == 3.0));
}

/// Row S5.
#[test]
fn densities_integrate_to_one() {
    let integral = |density: &Density| -> f64 {
        let pairs = density.points.windows(2);
        pairs.map(|pair| (pair[1].0 - pair[0].0) * (pair[0].1 + pair[1].1) / 2.0).sum()
    };
    let mut spread = nearest_distances(&filled(300, 7));
    spread.sort_by(f64::total_cmp);
    let far = [&spread[..], &[40.0]].concat();
    for numbers in [&spread[..], &far, &[2.0, 2.0, 2.0], &[0.0, 0.0], &[1.5], &[1.0, 3.0]] {
        let found = density(numbers);
        assert!((integral(&found) - 1.0).abs() < 1e-3, "{}: {numbers:?}", integral(&found));
        assert!(found.points.iter().all(|(_, height)| *height >= 0.0));
    }
    // One number has one kernel, whose height is known.
    let one = density(&[1.5]);
    let top = one.points.iter().map(|point| point.1).fold(0.0, f64::max);
    let expected = 1.0 / (one.bandwidth * std::f64::consts::TAU.sqrt());
    assert!((top / expected - 1.0).abs() < 1e-3, "{top} instead of {expected}");
}

/// A diagonal, turned by reflections on both sides.
/// Row S5.
#[test]
fn singular_values_of_a_known_diagonal() {
    let reflection = |size: i64| {
        let v = (Tensor::arange(size, (Kind::Double, Device::Cpu)) * 0.7 + 0.3).sin();
        let v = &v / v.norm();
        Tensor::eye(size, (Kind::Double, Device::Cpu)) - v.outer(&v) * 2.0
    };
    let expected = [1.0, 0.8, 0.5, 0.25, 1e-3];
    let mut diagonal = Tensor::zeros([9, 5], (Kind::Double, Device::Cpu));
    diagonal.diagonal(0, 0, 1).copy_(&(Tensor::from_slice(&expected) * 3.0));
    diagonal = reflection(9).matmul(&diagonal).matmul(&reflection(5));
    for table in [diagonal.shallow_clone(), diagonal.tr()] {
        let found = normalised_singular_values(&table);
        assert_eq!(found.len(), 5);
        for (found, expected) in found.iter().zip(expected) {
            // A value is the root of one that is known to 1e-16.
            assert!((found - expected).abs() < 1e-12, "{found} instead of {expected}");
        }
    }
}

/// Φ of every word, pair by pair, over more rows and columns than a block has.
/// Row S4.
#[test]
fn energies_are_those_of_all_pairs() {
    let states = States { length: 1.7, scale: 0.2 };
    for table in [filled(300, 7), filled(BLOCK_ROWS + 3, 2)] {
        let rows = rows(&table);
        let found = energies(&table, states);
        for (i, found) in found.iter().enumerate() {
            let epsilon = states.scale * distance(&rows[i], &vec![0.0; rows[i].len()]);
            let terms = (0..rows.len()).filter(|&j| j != i);
            let terms = terms.map(|j| (-states.length * (distance(&rows[i], &rows[j]) - epsilon)).exp());
            let expected = -terms.sum::<f64>().ln();
            assert!((found - expected).abs() < 1e-9, "{i}: {found} instead of {expected}");
        }
        let told = Embeddings::of(&table, Some(states));
        assert_eq!(told.nearest_mean, Embeddings::of(&table, None).nearest_mean);
        let energy = told.energy.unwrap();
        let mean = found.iter().sum::<f64>() / found.len() as f64;
        assert!((energy.mean - mean).abs() < 1e-12 && energy.states == states);
        let least = found.iter().copied().fold(f64::INFINITY, f64::min);
        assert_eq!(energy.bound_least, 1.0 / (1.0 + (-least).exp()));
    }
}

/// The ordering of theorem 3.4 in reference numbers: a moved word's probability, σ(Φ), and what the nearest word alone would let it have; it holds
/// for 10,000 drawn states of every word, and two words with a state along their difference come to it.
/// Row S4.
#[test]
fn no_state_gives_a_moved_word_more_than_its_energy_says() {
    let sine = |shape: &[i64], phase: f64, scale: f64| {
        let count = shape.iter().product::<i64>();
        ((Tensor::arange(count, (Kind::Double, Device::Cpu)) * 1.3 + phase).sin() * scale).view(shape)
    };
    let (table, h) = (sine(&[5, 3], 0.2, 0.9), sine(&[3], 1.0, 1.1));
    let bound = |energy: f64| 1.0 / (1.0 + (-energy).exp());
    let length = |x: &Tensor| x.norm().double_value(&[]);
    // ε = 0.3 for word 2.
    let states = States { length: length(&h), scale: 0.3 / length(&table.get(2)) };
    let energy = energies(&table, states)[2];
    let of_nearest = states.length * (nearest_distances(&table)[2] - 0.3);
    assert!((energy - 0.578132363).abs() < 1e-9 && (bound(energy) - 0.640637550).abs() < 1e-9);
    assert!((of_nearest - 1.543512615).abs() < 1e-9);
    let probability = |table: &Tensor, word: i64, states: &Tensor, margin: f64| {
        let scores = states.matmul(&table.tr());
        let _ = scores.select(1, word).g_sub_scalar_(margin);
        scores.softmax(1, None::<Kind>).select(1, word)
    };
    let moved = probability(&table, 2, &h.unsqueeze(0), 0.3 * states.length).double_value(&[0]);
    assert!((moved - 0.416332714).abs() < 1e-9);
    assert!(moved <= bound(energy) && bound(energy) <= bound(of_nearest));

    let drawn = segue_kernels::noise::Noise::new(4).normal(&[10_000, 3]).to_kind(Kind::Double);
    let drawn = &drawn / drawn.norm_scalaropt_dim(2.0, [1], true) * 6.0;
    let states = States { length: 6.0, scale: 0.1 };
    for (word, energy) in energies(&table, states).into_iter().enumerate() {
        let margin = states.length * states.scale * length(&table.get(word as i64));
        let most = probability(&table, word as i64, &drawn, margin).max().double_value(&[]);
        assert!(most <= bound(energy), "{word}: {most} above {}", bound(energy));
    }
    let two = table.narrow(0, 0, 2);
    let along = two.get(0) - two.get(1);
    let states = States { length: 2.5, scale: 0.2 };
    let h = &along / along.norm() * states.length;
    let margin = states.length * states.scale * length(&two.get(0));
    let most = probability(&two, 0, &h.unsqueeze(0), margin).double_value(&[0]);
    assert!((most - bound(energies(&two, states)[0])).abs() < 1e-12);
}

/// Corners of a square and its middle: the middle is √2 from its nearest neighbours and never the most probable, the corners stand √2 out.
/// Row S4.
#[test]
fn the_middle_of_a_square_does_not_stand_out_of_its_corners() {
    let table = Tensor::from_slice(&[1.0, 1.0, 1.0, -1.0, -1.0, 1.0, -1.0, -1.0, 0.0, 0.0]).view([5, 2]);
    let root = 2f64.sqrt();
    assert!(nearest_distances(&table).iter().all(|nearest| (nearest - root).abs() < 1e-15));
    assert!(hull_distance(&table, 4, 1e-9) < 1e-9);
    for corner in 0..4 {
        assert!((hull_distance(&table, corner, 1e-9) - root).abs() < 1e-8);
    }
    // Half of their length is less than they stand out by, a tenth more than it is more; the middle stands out by nothing.
    let distances = hull_distances(&table, 5, 1e-9);
    assert_eq!([0.0, 0.5, 1.1].map(|scale| recognisable(&table, &distances, scale)), [4, 4, 0]);
    // Of four points on a line the ends stand out, by the distance to the next.
    let line = Tensor::from_slice(&[0.0, 1.0, 4.0, 9.0]).view([4, 1]);
    for (word, expected) in (0..).zip([1.0, 0.0, 0.0, 5.0]) {
        assert!((hull_distance(&line, word, 1e-9) - expected).abs() < 1e-9);
    }
}

/// The margin by which a word can lead is this distance: no drawn state of length 1 gives more, the best one as much.
/// Row S4.
#[test]
fn the_distance_from_the_hull_is_the_largest_margin() {
    let table = filled(30, 3);
    let places = Tensor::arange(20_000, (Kind::Double, Device::Cpu));
    let (around, up): (Tensor, Tensor) = (&places * 2.399_963, (&places + 0.5) * 1e-4 - 1.0);
    let flat: Tensor = 1.0 - up.square();
    let flat = flat.sqrt();
    let states = Tensor::stack(&[&flat * around.cos(), &flat * around.sin(), up], 1); // [20_000, 3]
    let scores = table.matmul(&states.tr()); // [30, 20_000]
    let mut outside = 0;
    for word in 0..30 {
        let others = Tensor::cat(&[scores.narrow(0, 0, word), scores.narrow(0, word + 1, 29 - word)], 0);
        let margins = scores.get(word) - others.amax([0i64].as_slice(), false);
        let (best, distance) = (margins.max().double_value(&[]), hull_distance(&table, word, 1e-9));
        assert!(best <= distance + 1e-8, "{word}: {best} above {distance}");
        if distance > 0.15 {
            outside += 1;
            // A state is within 0.025 of any, and a margin grows by the distance between two words, below 6.
            assert!(best > distance - 0.15, "{word}: {best} far below {distance}");
        }
    }
    assert!(outside > 3, "{outside}");
}

/// The generator of the toy below.
fn congruential(count: usize, mut x: u64) -> Vec<f64> {
    let next = |_| {
        x = (1_103_515_245 * x + 12_345) % (1 << 31);
        (x >> 8) as f64 / f64::from(1 << 23)
    };
    (0..count).map(next).collect()
}

const WORDS: usize = 60;
const WIDTH: i64 = 4;
const BIGRAMS: usize = 1200;

/// Bigrams of a known table.
fn bigrams(seed: u64) -> (Tensor, Tensor) {
    let table: Vec<f64> = congruential(WORDS * WORDS, 7).iter().map(|x| (6.0 * x).exp()).collect();
    let draws = congruential(2 * BIGRAMS, seed);
    let pair = |draw: &[f64]| {
        let first = (draw[0] * WORDS as f64) as usize;
        let row = &table[first * WORDS..(first + 1) * WORDS];
        let mut left = draw[1] * row.iter().sum::<f64>();
        let second = row.iter().position(|weight| {
            left -= weight;
            left <= 0.0
        });
        (first as i64, second.unwrap_or(WORDS - 1) as i64)
    };
    let (first, second): (Vec<i64>, Vec<i64>) = draws.chunks_exact(2).map(pair).unzip();
    (Tensor::from_slice(&first), Tensor::from_slice(&second))
}

/// Losses of training and validation, mean distance to the nearest word and mean singular value, after 800 steps.
fn trained(scale: f64, [train, valid, weights]: [u64; 3]) -> [f64; 4] {
    let (x, y) = bigrams(train);
    let (of_valid, valid_targets) = bigrams(valid);
    let drawn = |seed: u64, factor: f64| {
        let values: Vec<f64> =
            congruential(WORDS * WIDTH as usize, seed).iter().map(|v| (v - 0.5) * factor).collect();
        Tensor::from_slice(&values).view([WORDS as i64, WIDTH]).set_requires_grad(true)
    };
    let (words, contexts) = (drawn(weights, 0.6), drawn(weights + 6, 2.0));
    let config = AdversarialConfig { scale, gradient: MarginGradient::Delta, ..Default::default() };
    let adversary = Adversary::of(&config);
    let loss = |x: &Tensor, y: &Tensor, adversary: Option<&Adversary>| {
        let states = Tensor::embedding(&contexts, x, -1, false, false).tanh();
        let table = [Words { weight: words.shallow_clone(), bias: None }];
        nll(Kernels::Plain, &states, &table, y, adversary).trained.mean(Kind::Double)
    };
    for _ in 0..800 {
        let trained = loss(&x, &y, adversary.as_ref());
        let gradients = Tensor::run_backward(&[trained], &[&words, &contexts], false, false);
        // Contexts, of which each comes in few bigrams, learn at four times the rate.
        for (weight, (gradient, factor)) in
            [&words, &contexts].into_iter().zip(gradients.iter().zip([1.0, 4.0]))
        {
            let step = (gradient * factor + weight.detach() * 1e-4) * 15.0;
            tch::no_grad(|| _ = weight.shallow_clone().g_sub_(&step));
        }
    }
    let value = |x: &Tensor, y: &Tensor| tch::no_grad(|| loss(x, y, None).double_value(&[]));
    let table = Embeddings::of(&words, None);
    [value(&x, &y), value(&of_valid, &valid_targets), table.nearest_mean, table.singular_mean]
}

/// What an adversary does to a model of bigrams: it fits its text less and other text better, and its words lie farther apart and in all
/// directions more alike (Wang, Gong and Liu 2019, figure 1).
/// Row S6.
#[test]
fn an_adversary_sets_words_apart_and_lowers_the_validation_loss() {
    segue_kernels::libtorch::set_threads(1);
    for seeds in [[99, 4242, 5], [101, 5151, 5], [77, 999, 21]] {
        let [none, some, more] = [0.0, 0.05, 0.2].map(|scale| trained(scale, seeds));
        println!("{seeds:?}: {none:.4?} {some:.4?} {more:.4?}");
        let [train, valid, nearest, singular] = [0, 1, 2, 3].map(|i| [none[i], some[i], more[i]]);
        assert!(valid[0] > valid[1] && valid[1] > valid[2], "{seeds:?}: validation {valid:?}");
        assert!(train[0] < train[1] && train[1] < train[2], "{seeds:?}: training {train:?}");
        for of in [nearest, singular] {
            assert!(of[1] > of[0] && of[2] > of[0], "{seeds:?}: {of:?}");
        }
    }
}
