//! Row B17: what Yang 2019, §3.1.3 proves of discriminators and complement generators, as tests in double precision.

use segue_random::{Draws, Purpose};
use tch::{Kind, Tensor};

use crate::losses::{fake, labelled, real};

const LN_2: f64 = std::f64::consts::LN_2;

fn table(rows: usize, columns: usize, mut value: impl FnMut(usize, usize) -> f64) -> Tensor {
    let values: Vec<f64> = (0..rows * columns).map(|at| value(at / columns, at % columns)).collect();
    Tensor::from_slice(&values).view([rows as i64, columns as i64])
}

fn draws(trial: u64) -> Draws {
    Draws::new(17, Purpose::Synthetic, &[trial])
}

/// Uniform in (−`size`, `size`), `[rows, columns]`.
fn uniform(draws: &mut Draws, rows: usize, columns: usize, size: f64) -> Tensor {
    table(rows, columns, |_, _| size * (2.0 * draws.uniform() - 1.0))
}

fn value(x: &Tensor) -> f64 {
    x.double_value(&[])
}

fn largest(x: &Tensor) -> f64 {
    value(&x.max())
}

/// Largest logit of each row, `[rows]`.
fn tops(features: &Tensor, weights: &Tensor) -> Tensor {
    features.matmul(&weights.transpose(0, 1)).amax([1], false)
}

/// Assumption A2: all logits of generated features are negative.
fn a2(generated: &Tensor, weights: &Tensor) -> bool {
    largest(&tops(generated, weights)) < 0.0
}

/// Assumption A3: the largest logit of every real feature is positive.
fn a3(real_features: &Tensor, weights: &Tensor) -> bool {
    value(&tops(real_features, weights).min()) > 0.0
}

/// Whether the largest logit of every row is that of its class, the one for real features of Prop. 2 and for labelled ones of A1. `classes`: `[rows]` int64.
fn is_classified(features: &Tensor, weights: &Tensor, classes: &Tensor) -> bool {
    let logits = features.matmul(&weights.transpose(0, 1));
    let others = logits.scatter_value(1, &classes.unsqueeze(1), f64::NEG_INFINITY).amax([1], false);
    let own = logits.gather(1, &classes.unsqueeze(1), false).squeeze_dim(1);
    value(&(own - others).min()) > 0.0
}

/// Second and third term of eq. 3.1 where p_G = p, so that both are of the same examples; the mean over examples.
fn unsupervised(logits: &Tensor) -> f64 {
    -value(&(real(logits) + fake(logits))) / logits.size()[0] as f64
}

/// Row B17, Prop. 1: with p_G = p, taking LSE from the logits makes the unsupervised terms optimal and leaves the classes alone.
#[test]
fn a_perfect_generator_leaves_the_supervised_solution_an_optimum() {
    let logits = table(3, 3, |i, k| 2.0 * (1.0 + i as f64 + 2.0 * k as f64).cos());
    let moved = &logits - logits.logsumexp([1], true);
    assert!((unsupervised(&logits) + 2.123_524_470).abs() < 1e-9);
    assert!((unsupervised(&moved) + 2.0 * LN_2).abs() < 1e-15);
    assert!((value(&fake(&moved)) - 3.0 * LN_2).abs() < 1e-15);
    let apart = logits.softmax(1, Kind::Double) - moved.softmax(1, Kind::Double);
    assert!(largest(&apart.abs()) < 1e-15);
    for class in 0..3 {
        let classes = Tensor::full([3], class, (Kind::Int64, logits.device()));
        assert!((value(&labelled(&logits, &classes)) - value(&labelled(&moved, &classes))).abs() < 1e-14);
    }
    let mut draws = draws(0);
    let best = (0..200).map(|_| unsupervised(&uniform(&mut draws, 3, 3, 4.0))).fold(f64::MIN, f64::max);
    assert!(best < -2.0 * LN_2, "{best}");
}

/// Rows B16 and B17: what is real by LSE > 0 violates A3 by less than ln K.
#[test]
fn violations_of_a3_among_what_is_seen_as_real_are_smaller_than_ln_k() {
    let logits = table(1, 3, |_, k| [-0.5, -0.4, -0.6][k]);
    let sum = value(&logits.logsumexp([1], false));
    assert!((sum - 0.601_942_848).abs() < 1e-9 && largest(&logits) < 0.0);
    let random = uniform(&mut draws(1), 5000, 4, 3.0);
    let is_real = random.logsumexp([1], false).greater(0.0);
    let tops = random.amax([1], false).masked_select(&is_real);
    let least = value(&tops.min());
    assert!((-(4f64.ln())..-0.5).contains(&least), "{least}");
}

/// Fakes that `weights` sees as such, `[100, d]`: A2 holds for them.
fn fakes_of(weights: &Tensor, draws: &mut Draws) -> Option<Tensor> {
    let features = uniform(draws, 2000, weights.size()[1] as usize, 1.0);
    let places = tops(&features, weights).less(0.0).nonzero().squeeze_dim(1);
    (places.size()[0] >= 100).then(|| features.index_select(0, &places.narrow(0, 0, 100)))
}

/// K = 2 to 4 weights of d = 2 to 6 features with such fakes, by trial; at least half of the trials have some.
fn trials() -> Vec<(Tensor, Tensor, Draws)> {
    let trial = |trial: u64| {
        let mut draws = draws(100 + trial);
        let (classes, size) = (2 + draws.below(3) as usize, 2 + draws.below(5) as usize);
        let weights = uniform(&mut draws, classes, size, 1.0);
        let fakes = fakes_of(&weights, &mut draws)?;
        Some((weights, fakes, draws))
    };
    let trials: Vec<_> = (0..100).filter_map(trial).collect();
    assert!(trials.len() > 50, "{}", trials.len());
    trials
}

/// Row B17, Lemma 1: with ‖w‖ ≤ C, logits within ε of a fake that satisfies A2 are below C ε; the bound is reached as the fake nears its boundary.
#[test]
fn logits_near_a_fake_are_below_the_bound_of_lemma_1() {
    for (weights, fakes, mut draws) in trials() {
        let norms = weights.norm_scalaropt_dim(2.0, [1], true); // [K, 1]
        let bound = largest(&norms);
        for radius in [1e-3, 0.1, 3.0] {
            let steps = uniform(&mut draws, 100, weights.size()[1] as usize, 1.0);
            let steps = &steps / steps.norm_scalaropt_dim(2.0, [1], true) * radius;
            let near = &fakes + steps;
            assert!(largest(&tops(&near, &weights)) < bound * radius);
            // Towards each class from each fake, the largest rise there is: still below.
            for class in 0..weights.size()[0] {
                let direction = weights.narrow(0, class, 1) / norms.narrow(0, class, 1);
                assert!(largest(&tops(&(&fakes + &direction * radius), &weights)) < bound * radius);
            }
        }
    }
    // One class in one dimension, w = C = 2: a fake 1e-9 below 0.
    let (weights, fakes) = (table(1, 1, |_, _| 2.0), table(1, 1, |_, _| -1e-9));
    let top = largest(&tops(&(fakes + 0.1), &weights));
    assert!(top < 0.2 && top > 0.2 - 1e-8);
}

/// Row B17, Lemma 2: what all classes see as generated is a convex cone.
#[test]
fn convex_combinations_of_fakes_are_fakes() {
    for (weights, fakes, mut draws) in trials() {
        // Exponential draws over their sum are uniform over all combinations; powers make them sparse, so that they reach faces too.
        for power in [1, 8] {
            let parts = table(200, 100, |_, _| (-draws.uniform().ln()).powi(power));
            let parts = &parts / parts.sum_dim_intlist(1, true, None::<Kind>);
            assert!(a2(&parts.matmul(&fakes), &weights));
        }
        for scale in [1e-6, 1e6] {
            assert!(a2(&(&fakes * scale), &weights));
        }
    }
}

/// Corners of the square [−1, 1]², one a class.
const CORNERS: [[f64; 2]; 4] = [[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]];

/// Features of points: coordinates and the constant 1, which makes logits affine.
fn features(points: &[[f64; 2]]) -> Tensor {
    table(points.len(), 3, |point, k| if k < 2 { points[point][k] } else { 1.0 })
}

/// Points of each corner's cap, x·corner > 1.6, and their classes.
fn caps() -> (Tensor, Tensor) {
    let grid =
        (0..=20).flat_map(|i| (0..=20 - i).map(move |j| [i, j].map(|part| 1.0 - 0.4 * part as f64 / 20.5)));
    let grid: Vec<[f64; 2]> = grid.collect();
    let of_corner = |corner: &[f64; 2]| -> Vec<[f64; 2]> {
        grid.iter().map(|point| [point[0] * corner[0], point[1] * corner[1]]).collect()
    };
    let points = CORNERS.iter().flat_map(of_corner).collect::<Vec<_>>();
    let classes: Vec<i64> = (0..points.len()).map(|point| (point / grid.len()) as i64).collect();
    (features(&points), Tensor::from_slice(&classes))
}

/// Corners of the octagon that is left of the square at x·corner ≤ 1.4: by Lemma 2, what holds for them holds within.
fn octagon() -> Vec<[f64; 2]> {
    CORNERS.iter().flat_map(|[x, y]| [[*x, 0.4 * y], [0.4 * x, *y]]).collect()
}

/// Affine logits corner·x − 1.5, each weight moved by up to `noise`, `[4, 3]`.
fn corner_weights(draws: &mut Draws, noise: f64) -> Tensor {
    table(4, 3, |class, k| if k < 2 { CORNERS[class][k] } else { -1.5 }) + uniform(draws, 4, 3, noise)
}

/// Row B17, Prop. 2: caps at the corners of a square are realisable; whatever logits satisfy A1 at one point a cap, A2 and A3 classify all of every cap. Without A2 some do not.
#[test]
fn logits_that_satisfy_the_assumptions_on_corner_caps_classify_them() {
    let (in_caps, classes) = caps();
    let generated = features(&octagon());
    let (given, labels) = (features(&CORNERS), Tensor::from_slice(&[0i64, 1, 2, 3]));
    let mut draws = draws(2);
    let plain = corner_weights(&mut draws, 0.0);
    assert!(a2(&generated, &plain) && a3(&in_caps, &plain) && is_classified(&in_caps, &plain, &classes));
    let (mut satisfy, mut fail_without) = (0, 0);
    for trial in 0..6000 {
        let weights = corner_weights(&mut draws, [0.1, 0.3, 0.6, 1.5][trial % 4]);
        if !(a3(&in_caps, &weights) && is_classified(&given, &weights, &labels)) {
            continue;
        }
        match a2(&generated, &weights) {
            true => {
                assert!(is_classified(&in_caps, &weights, &classes));
                satisfy += 1;
            }
            false => fail_without += usize::from(!is_classified(&in_caps, &weights, &classes)),
        }
    }
    assert!(satisfy > 100 && fail_without > 10, "{satisfy} {fail_without}");
}

/// Row B17: a cluster between fakes cannot be real by affine logits. It is a convex combination of fakes, so its logits are the same combination of theirs, which are negative.
#[test]
fn logits_that_satisfy_a2_around_a_cluster_violate_a3_on_it() {
    let cluster = [0.1, -0.2];
    // Bilinear parts of the corners, in the order of `CORNERS`.
    let part = |corner: &[f64; 2]| (1.0 + cluster[0] * corner[0]) * (1.0 + cluster[1] * corner[1]) / 4.0;
    let parts = table(1, 4, |_, k| part(&CORNERS[k]));
    assert!(value(&parts.min()) >= 0.0);
    let (generated, in_cluster) = (features(&CORNERS), features(&[cluster]));
    assert!(largest(&(parts.matmul(&generated) - &in_cluster).abs()) < 1e-15);
    let mut draws = draws(3);
    let mut satisfy = 0;
    for _ in 0..4000 {
        let weights = uniform(&mut draws, 4, 3, 1.0) - table(4, 3, |_, k| f64::from(u8::from(k == 2)));
        let of_fakes = generated.matmul(&weights.transpose(0, 1));
        let of_cluster = in_cluster.matmul(&weights.transpose(0, 1));
        assert!(largest(&(parts.matmul(&of_fakes) - of_cluster).abs()) < 1e-14);
        if a2(&generated, &weights) {
            assert!(!a3(&in_cluster, &weights));
            satisfy += 1;
        }
    }
    assert!(satisfy > 100, "{satisfy}");
}

/// Whether some w has r·w > 0 for all rows r, exactly: variables are eliminated one by one (Fourier and Motzkin).
/// Sums of rows with positive factors follow from them; a row of zeros says 0 > 0.
fn is_feasible(rows: Vec<[i64; 3]>) -> bool {
    let eliminate = |rows: Vec<[i64; 3]>, variable: usize| -> Vec<[i64; 3]> {
        let with = |sign: i64| rows.iter().filter(move |row| row[variable].signum() == sign);
        let sum = |up: &[i64; 3], down: &[i64; 3]| -> [i64; 3] {
            std::array::from_fn(|k| up[k] * -down[variable] + down[k] * up[variable])
        };
        let sums = with(1).flat_map(|up| with(-1).map(move |down| sum(up, down)));
        with(0).copied().chain(sums).collect()
    };
    // What is left after the last variable is rows of zeros.
    (0..3).fold(rows, eliminate).is_empty()
}

/// Row B17: affine logits with A2 on fakes and A3 at a point exist exactly where the point lies outside the hull of the fakes. As each class has weights of its own, one
/// class with a negative logit on all fakes and a positive one at the point decides it.
#[test]
fn a2_and_a3_are_feasible_outside_the_hull_of_the_fakes_alone() {
    // The octagon, five times as large.
    let fakes: Vec<[i64; 2]> =
        octagon().iter().map(|point| point.map(|x| (5.0 * x).round() as i64)).collect();
    let mut counts = [0, 0];
    for (x, y) in (-7..=7i64).flat_map(|x| (-7..=7i64).map(move |y| (x, y))) {
        let is_inside = x.abs().max(y.abs()) <= 5 && x.abs() + y.abs() <= 7;
        let rows = fakes.iter().map(|[x, y]| [-x, -y, -1]).chain([[x, y, 1]]).collect();
        assert_eq!(is_feasible(rows), !is_inside, "{x} {y}");
        counts[usize::from(is_inside)] += 1;
    }
    // Of 15 × 15 points, 97 lie in the octagon: 11 × 11 less six at each corner, whose sum is 8, 9 or 10.
    assert_eq!(counts, [225 - 97, 97]);
}
