//! Examples with three codes and with one number, whose exact values are sums and integrals (rows V1 to V10 and V17).

mod runs;

use std::f64::consts::PI;

use tch::{Kind, Tensor};

use super::*;

const PRIOR: [f64; 3] = [0.5, 0.3, 0.2];
const LIKELIHOOD: [f64; 3] = [0.05, 0.4, 0.2];
const POSTERIOR: [f64; 3] = [0.2, 0.5, 0.3];
const ORDER: f64 = 2.0;
const WEIGHT: f64 = 0.3;

const ALL: [Objective; 4] = [
    Objective::Bound,
    Objective::Kl { weight: WEIGHT },
    Objective::Renyi { weight: WEIGHT, order: ORDER },
    Objective::Power { order: ORDER },
];

/// All tuples of so many codes: `[tuples, samples]`.
fn tuples(samples: usize) -> Vec<Vec<i64>> {
    let count = 3usize.pow(samples as u32);
    let code = |tuple: usize, sample: usize| (tuple / 3usize.pow(sample as u32) % 3) as i64;
    (0..count).map(|tuple| (0..samples).map(|sample| code(tuple, sample)).collect()).collect()
}

fn codes(tuples: &[Vec<i64>]) -> Tensor {
    Tensor::from_slice(&tuples.concat()).view([tuples.len() as i64, -1])
}

fn table(values: [f64; 3]) -> Tensor {
    Tensor::from_slice(&values)
}

/// ln q of `codes` and their scores, where q is the softmax of `logits`: `[examples, samples]` each.
fn scored(codes: &Tensor, logits: &Tensor) -> (Tensor, Scores) {
    let of = |table: &Tensor| table.index_select(0, &codes.view([-1])).view(codes.size().as_slice());
    let density = of(&logits.log_softmax(0, None::<Kind>));
    let ratio = of(&table(PRIOR).log()) - &density;
    (density, Scores { likelihood: of(&table(LIKELIHOOD).log()), ratio })
}

/// The probability of each tuple under q.
fn probabilities(tuples: &[Vec<i64>]) -> Tensor {
    let of = |tuple: &Vec<i64>| tuple.iter().map(|code| POSTERIOR[*code as usize]).product::<f64>();
    Tensor::from_slice(&tuples.iter().map(of).collect::<Vec<_>>())
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    Vec::try_from(tensor.to_kind(Kind::Double).contiguous().view([-1])).unwrap()
}

#[track_caller]
fn close(found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() <= tolerance, "{found}, expected {expected}");
    }
}

/// Rows V1 to V3: means over all tuples.
#[test]
fn estimates_have_the_means_of_the_enumerated_example() {
    for (samples, expected) in [
        (1, [-1.733917392, -3.274040587, -1.540123194, -1.675779133, -1.675779133, -1.637020293]),
        (2, [-1.710626485, -3.040006086, -1.442217085, -1.630103665, -1.596252420, -1.520003043]),
        (4, [-1.698806966, -2.934265286, -1.392770570, -1.606996048, -1.559802372, -1.467132643]),
        (8, [-1.693027152, -2.893149649, -1.369302624, -1.595909794, -1.545155756, -1.446574825]),
    ] {
        let tuples = tuples(samples);
        let (_, scores) = scored(&codes(&tuples), &table(POSTERIOR).log());
        let probabilities = probabilities(&tuples);
        let mean = |values: Tensor| (values * &probabilities).sum(Kind::Double).double_value(&[]);
        let counts = Counts::of(samples as i64);
        let of = |objective: Objective| mean(objective.value(&scores, counts));
        let estimates = [scores.bound(1.0), scores.bound(ORDER), scores.posterior_likelihood()].map(mean);
        let objectives = [ALL[1], ALL[2], ALL[3]].map(of);
        close(&[estimates, objectives].concat(), &expected, 1e-9);
    }
}

/// Rows V1, V3 and V10: one draw of four.
#[test]
fn one_draw_has_the_values_of_the_example() {
    let (_, scores) = scored(&codes(&[vec![1, 0, 2, 1]]), &table(POSTERIOR).log());
    let found = [scores.bound(1.0), scores.bound(ORDER), scores.posterior_likelihood()];
    close(&numbers(&Tensor::cat(&found, 0)), &[-1.689654246, -2.878319677, -1.393513960], 1e-9);
    let asymmetric = Counts { bound: 4, information: 1 };
    close(&numbers(&ALL[1].value(&scores, asymmetric)), &[-1.536406559], 1e-9);
    // Towards α = 1, a Rényi divergence becomes that of Kullback and Leibler.
    let divergence = |order: f64| {
        let objective = Objective::Renyi { weight: 1.0, order };
        numbers(&(objective.value(&scores, Counts::of(4)) - scores.bound(1.0)))[0]
    };
    let found = [1.1, 1.01, 1.001, 1.0005].map(divergence);
    close(&found, &[0.324654664, 0.299085276, 0.296435726, 0.296140286], 1e-9);
}

/// Row V3: of one sample, objectives are β-VAE's per sample.
#[test]
fn one_sample_gives_the_objective_of_a_beta_vae() {
    let (_, scores) = scored(&codes(&tuples(1)), &table(POSTERIOR).log());
    let beta = 1.0 - WEIGHT;
    let expected = numbers(&(&scores.likelihood + &scores.ratio * beta).squeeze_dim(1));
    for objective in [ALL[1], ALL[2]] {
        close(&numbers(&objective.value(&scores, Counts::of(1))), &expected, 1e-12);
    }
    let power = Objective::Power { order: 1.0 / beta };
    close(&numbers(&power.value(&scores, Counts::of(1))), &expected, 1e-12);
    // λ = (α − 1) / α makes a power of a Rényi objective.
    let (_, scores) = scored(&codes(&tuples(3)), &table(POSTERIOR).log());
    let renyi = Objective::Renyi { weight: (ORDER - 1.0) / ORDER, order: ORDER };
    let [renyi, power] = [renyi, ALL[3]].map(|objective| numbers(&objective.value(&scores, Counts::of(3))));
    close(&renyi, &power, 1e-12);
}

/// Row V1: sums of exponentials far below what a number of single precision holds.
#[test]
fn scores_may_be_as_small_as_those_of_long_sentences() {
    let (_, scores) = scored(&codes(&tuples(3)), &table(POSTERIOR).log());
    let low =
        Scores { likelihood: (&scores.likelihood - 1e4).to_kind(Kind::Float), ratio: scores.ratio.copy() };
    for (own, shifted) in
        [(scores.bound(1.0), low.bound(1.0)), (scores.posterior_likelihood(), low.posterior_likelihood())]
    {
        close(&numbers(&(shifted + 1e4)), &numbers(&own), 2e-3);
    }
}

/// Row V17: p^α ≤ the power's mean ≤ p, and its bound is above ln p once it is divided by α (the printed claim is wrong there).
#[test]
fn powers_lie_between_their_bounds() {
    let of_power = |order: f64| (table(PRIOR) * table(LIKELIHOOD).pow_tensor_scalar(order)).sum(Kind::Double);
    let [p, of_two] = [1.0, 2.0].map(|order| of_power(order).double_value(&[]));
    close(&[p.ln(), of_two.ln(), of_two.ln() / 2.0], &[-1.687399454, -2.860327637, -1.430163818], 1e-9);
    assert!(p * p <= of_two && of_two <= p && of_two.ln() / 2.0 > p.ln());
    // Two observations of one code.
    let pairs: f64 = PRIOR.iter().zip(LIKELIHOOD).map(|(prior, likelihood)| prior * likelihood.powi(2)).sum();
    close(&[of_two], &[pairs], 1e-15);
}

/// What is not differentiated by an estimator, and what is: `[examples, 3]`, the gradient by the logits of each example by itself.
fn gradients(
    estimator: Estimator,
    objective: Objective,
    tuples: &[Vec<i64>],
    counts: Counts,
) -> Vec<Vec<f64>> {
    let of = |tuple: &Vec<i64>| {
        let logits = table(POSTERIOR).log().set_requires_grad(true);
        let (density, scores) = scored(&codes(std::slice::from_ref(tuple)), &logits);
        let surrogate = estimator.surrogate(objective, &scores, &density, counts);
        numbers(&Tensor::run_backward(&[surrogate], &[&logits], false, false)[0])
    };
    tuples.iter().map(of).collect()
}

/// The mean of rows under q, and the sum of the variances of their columns.
fn moments(tuples: &[Vec<i64>], rows: &[Vec<f64>]) -> ([f64; 3], f64) {
    let probabilities = numbers(&probabilities(tuples));
    let mean = |of: &dyn Fn(&Vec<f64>) -> f64| -> f64 {
        rows.iter().zip(&probabilities).map(|(row, probability)| of(row) * probability).sum()
    };
    let means = [0, 1, 2].map(|at| mean(&|row| row[at]));
    let variance = (0..3).map(|at| mean(&|row| row[at].powi(2)) - means[at].powi(2)).sum();
    (means, variance)
}

/// Rows V7 and V8: both estimators by the score function have the exact gradient for their mean, and VIMCO a fraction of the variance.
#[test]
fn score_functions_are_unbiased_with_the_variances_of_the_example() {
    let tuples = tuples(3);
    let expected = [
        ([-0.022543316, 0.052161558, -0.029618242], 0.216789, 7.994284),
        ([-0.039113998, 0.069125379, -0.030011381], 0.109745, 6.809698),
        ([-0.034129958, 0.070437337, -0.036307379], 0.104494, 6.550572),
        ([-0.041854386, 0.082621190, -0.040766804], 0.057426, 5.699997),
    ];
    let of_one = [
        [-0.167927469, 0.234080857, -0.066153388],
        [-0.163348574, 0.208887771, -0.045539196],
        [-0.155747555, 0.217175694, -0.061428139],
        [-0.147627612, 0.205905585, -0.058277972],
    ];
    for ((objective, (mean, of_vimco, of_reinforce)), one) in ALL.into_iter().zip(expected).zip(of_one) {
        // The exact gradient: that of the enumerated mean.
        let logits = table(POSTERIOR).log().set_requires_grad(true);
        let (density, scores) = scored(&codes(&tuples), &logits);
        let probabilities = density.sum_dim_intlist(1, false, Kind::Double).exp();
        let exact = (objective.value(&scores, Counts::of(3)) * probabilities).sum(Kind::Double);
        let exact = numbers(&Tensor::run_backward(&[exact], &[&logits], false, false)[0]);
        close(&exact, &mean, 1e-9);
        for (estimator, variance) in [(Estimator::Vimco, of_vimco), (Estimator::Reinforce, of_reinforce)] {
            let (found, spread) = moments(&tuples, &gradients(estimator, objective, &tuples, Counts::of(3)));
            close(&found, &exact, 1e-12);
            close(&[spread], &[variance], 1e-6);
        }
        close(&gradients(Estimator::Vimco, objective, &[vec![1, 0, 2]], Counts::of(3))[0], &one, 1e-9);
    }
}

/// Row V10: each term of unequal counts uses its own samples, and stays unbiased.
#[test]
fn terms_of_other_counts_are_unbiased() {
    let tuples = tuples(3);
    for (bound, information) in [(3, 1), (1, 3), (3, 2)] {
        let counts = Counts { bound, information };
        for objective in [ALL[1], ALL[2]] {
            let logits = table(POSTERIOR).log().set_requires_grad(true);
            let (density, scores) = scored(&codes(&tuples), &logits);
            let probabilities = density.sum_dim_intlist(1, false, Kind::Double).exp();
            let exact = (objective.value(&scores, counts) * probabilities).sum(Kind::Double);
            let exact = numbers(&Tensor::run_backward(&[exact], &[&logits], false, false)[0]);
            for estimator in [Estimator::Vimco, Estimator::Reinforce] {
                let (found, _) = moments(&tuples, &gradients(estimator, objective, &tuples, counts));
                close(&found, &exact, 1e-12);
            }
        }
    }
}

/// μ, ln σ² of the example of one number: a standard normal prior, p(x | z) = sigmoid(2 z − 1).
const NORMAL: [f64; 2] = [0.5, -1.0];

/// The gradient by μ and ln σ² of the sum of surrogates over draws, `noise`: `[examples, samples]`, each weighed by an entry of `weights`.
fn by_paths(estimator: Estimator, objective: Objective, noise: &Tensor, weights: &Tensor) -> Vec<f64> {
    let [mean, log_variance] =
        NORMAL.map(|value| Tensor::from_slice(&[value]).view([1, 1]).set_requires_grad(true));
    let q = Gaussian { mean: mean.shallow_clone(), log_variance: log_variance.shallow_clone() };
    let z = q.sample(&noise.unsqueeze(2));
    let of_ratio = if estimator == Estimator::DoublyReparametrized { q.detached() } else { q };
    let density = of_ratio.log_density(&z);
    let likelihood = (z.squeeze_dim(2) * 2.0 - 1.0).log_sigmoid();
    let scores = Scores { likelihood, ratio: Gaussian::log_prior(&z) - &density };
    let counts = Counts::of(noise.size()[1]);
    let surrogate = estimator.surrogate(objective, &scores, &density, counts);
    let sum = (surrogate * weights).sum(Kind::Double);
    let found = Tensor::run_backward(&[sum], &[&mean, &log_variance], false, false);
    found.iter().flat_map(numbers).collect()
}

/// S_α and U of themselves, as an objective is never one of them alone.
fn parts() -> [Objective; 3] {
    let far = Objective::Power { order: ORDER };
    [Objective::Bound, far, Objective::Kl { weight: 1.0 }]
}

/// Rows V5 and V6: gradients of one draw, plain and doubly reparametrized.
#[test]
fn gradients_through_samples_are_those_of_the_example() {
    let noise = Tensor::from_slice(&[-0.7, 0.2, 1.1]).view([1, 3]);
    let one = Tensor::from_slice(&[1.0]);
    let [bound, power, likelihood] = parts();
    for (objective, factor, plain, doubly) in [
        (bound, 1.0, [0.048609276, 0.321238340], [0.289061510, 0.076860509]),
        (power, ORDER, [0.436385545, 0.382651984], [0.676059944, 0.182963411]),
        (likelihood, 1.0, [0.471058144, 0.012625023], [0.387151016, 0.070840308]),
    ] {
        for (estimator, expected) in
            [(Estimator::Reparametrized, plain), (Estimator::DoublyReparametrized, doubly)]
        {
            let found = by_paths(estimator, objective, &noise, &one);
            close(&found.iter().map(|value| value * factor).collect::<Vec<_>>(), &expected, 1e-9);
        }
    }
}

/// Row V6: the mean over the draws of two samples, an integral, is the same by both, and smaller in variance for S and S_α by the mean.
#[test]
fn doubly_reparametrized_gradients_are_unbiased() {
    // The sum at equal steps integrates what falls like a normal density to all digits.
    let (from, step, count) = (-9.0, 0.09, 201i64);
    let points: Vec<f64> = (0..count).map(|at| from + step * at as f64).collect();
    let density = |at: f64| step * (-at * at / 2.0).exp() / (2.0 * PI).sqrt();
    let pairs = || points.iter().flat_map(|first| points.iter().map(move |second| (*first, *second)));
    let noise: Vec<f64> = pairs().flat_map(|(first, second)| [first, second]).collect();
    let noise = Tensor::from_slice(&noise).view([-1, 2]);
    let weights: Vec<f64> = pairs().map(|(first, second)| density(first) * density(second)).collect();
    let weights = Tensor::from_slice(&weights);
    let [bound, power, likelihood] = parts();
    for (objective, factor, expected) in [
        (bound, 1.0, [0.35263335, 0.15107368]),
        (power, ORDER, [0.96472873, 0.18419312]),
        (likelihood, 1.0, [0.64599136, -0.02792531]),
    ] {
        for estimator in [Estimator::Reparametrized, Estimator::DoublyReparametrized] {
            let found = by_paths(estimator, objective, &noise, &weights);
            close(&found.iter().map(|value| value * factor).collect::<Vec<_>>(), &expected, 1e-7);
        }
    }
}

/// The derivatives of each objective by its scores are those that it is differentiated to.
#[test]
fn derivatives_by_scores_are_those_of_the_value() {
    let (_, scores) = scored(&codes(&tuples(3)), &table(POSTERIOR).log());
    let [likelihood, ratio] =
        [&scores.likelihood, &scores.ratio].map(|of| of.detach().set_requires_grad(true));
    let leaves = Scores { likelihood: likelihood.shallow_clone(), ratio: ratio.shallow_clone() };
    for objective in ALL {
        for term in objective.terms(Counts { bound: 3, information: 3 }) {
            let sum = term.value(&leaves).sum(Kind::Double);
            let found = Tensor::run_backward(&[sum], &[&likelihood, &ratio], false, false);
            let expected = term.derivatives(&scores);
            for (found, expected) in found.iter().zip([expected.likelihood, expected.ratio]) {
                close(&numbers(found), &numbers(&expected), 1e-12);
            }
        }
    }
}

/// Row V5: where q is the posterior, gradients through samples alone have no variance, those through q as well do.
#[test]
fn at_the_posterior_gradients_through_samples_vanish() {
    // p(z) = N(0, 1), p(x | z) = N(z, 1): the posterior of x is N(x / 2, 1 / 2).
    let x = 1.3;
    let [mean, log_variance] =
        [x / 2.0, 0.5f64.ln()].map(|value| Tensor::from_slice(&[value]).view([1, 1]).set_requires_grad(true));
    let noise = Tensor::from_slice(&[-1.2, 0.4, 0.9]).view([1, 3, 1]);
    let of = |estimator: Estimator| {
        let q = Gaussian { mean: mean.shallow_clone(), log_variance: log_variance.shallow_clone() };
        let z = q.sample(&noise);
        let of_ratio = if estimator == Estimator::DoublyReparametrized { q.detached() } else { q };
        let density = of_ratio.log_density(&z);
        let likelihood = ((z.squeeze_dim(2) - x).square() + (2.0 * PI).ln()) * -0.5;
        let scores = Scores { likelihood, ratio: Gaussian::log_prior(&z) - &density };
        let surrogate = estimator.surrogate(Objective::Bound, &scores, &density, Counts::of(3));
        let found = Tensor::run_backward(&[surrogate], &[&mean, &log_variance], true, false);
        found.iter().flat_map(numbers).collect::<Vec<_>>()
    };
    close(&of(Estimator::DoublyReparametrized), &[0.0, 0.0], 1e-12);
    assert!(of(Estimator::Reparametrized).iter().any(|value| value.abs() > 0.05));
}

/// Row V4: closed forms next to the mean over many draws.
#[test]
fn divergences_from_the_prior_have_closed_forms() {
    tch::manual_seed(5);
    let options = (Kind::Double, tch::Device::Cpu);
    let q = Gaussian {
        mean: Tensor::from_slice(&[0.3, -1.0, 0.0, 0.8]).view([2, 2]),
        log_variance: Tensor::from_slice(&[-1.0, 0.5, 0.0, -2.0]).view([2, 2]),
    };
    let z = q.sample(&Tensor::randn([2, 100_000, 2], options));
    let drawn = (q.log_density(&z) - Gaussian::log_prior(&z)).mean_dim(1, false, Kind::Double);
    close(&numbers(&drawn), &numbers(&q.kl().sum_dim_intlist(1, false, Kind::Double)), 0.02);
    let logits = Tensor::from_slice(&[0.1, 1.0, -0.5, 2.0, 0.0, 0.3]).view([1, 2, 3]);
    let q = Categorical { logits };
    let z = q.sample(&Tensor::rand([1, 100_000, 2], options));
    assert!(numbers(&z.amax([0, 1], false)).iter().all(|value| *value == 2.0));
    let drawn = (q.log_density(&z) - q.log_prior()).mean_dim(1, false, Kind::Double);
    close(&numbers(&drawn), &numbers(&q.kl().sum_dim_intlist(1, false, Kind::Double)), 0.02);
    assert!((q.log_prior() + 2.0 * 3f64.ln()).abs() < 1e-12);
}

/// Row V9: two latents of three values, all of which are summed over.
#[test]
fn densities_of_all_values_sum_to_one() {
    let q = Categorical { logits: Tensor::from_slice(&[0.4, -1.0, 0.2, 3.0, 0.0, -0.2]).view([1, 2, 3]) };
    let all: Vec<i64> = (0..9).flat_map(|at| [at / 3, at % 3]).collect();
    let z = Tensor::from_slice(&all).view([1, 9, 2]);
    let sum = q.log_density(&z).exp().sum(Kind::Double).double_value(&[]);
    assert!((sum - 1.0).abs() < 1e-12);
    // A draw at the very end of an interval has its value.
    let last = q.sample(&Tensor::from_slice(&[1.0 - 1e-17, 0.0]).view([1, 1, 2]));
    assert_eq!(numbers(&last), [2.0, 0.0]);
}

/// Row V15: parts of the samples come to what all of them do, whatever their order, and examples do not meet.
#[test]
fn parts_of_the_samples_come_to_the_estimate_of_all() {
    let tuples = tuples(4);
    let (_, scores) = scored(&codes(&tuples), &table(POSTERIOR).log());
    let part = |from: i64, count: i64| {
        let of = |scores: &Tensor| scores.narrow(1, from, count);
        Running::of(&Scores { likelihood: of(&scores.likelihood), ratio: of(&scores.ratio) })
    };
    let whole = Running::of(&scores);
    let information = scores.posterior_likelihood() - scores.bound(1.0);
    close(&numbers(&whole.bound()), &numbers(&scores.bound(1.0)), 1e-12);
    close(&numbers(&whole.information()), &numbers(&information), 1e-12);
    for merged in [part(0, 1).merged(part(1, 3)), part(3, 1).merged(part(0, 2)).merged(part(2, 1))] {
        close(&numbers(&merged.bound()), &numbers(&whole.bound()), 1e-12);
        close(&numbers(&merged.information()), &numbers(&whole.information()), 1e-12);
    }
    let order = Tensor::from_slice(&(0..81).rev().collect::<Vec<i64>>());
    let of = |scores: &Tensor| scores.index_select(0, &order);
    let turned = Scores { likelihood: of(&scores.likelihood), ratio: of(&scores.ratio) };
    for objective in ALL {
        let [found, expected] =
            [&turned, &scores].map(|scores| objective.value(scores, Counts { bound: 4, information: 2 }));
        assert!(found.equal(&of(&expected)), "{objective:?}");
    }
}

/// Row V15: p(z) = N(0, 1), p(x | z) = N(z, 1), whose likelihood and information are known, by samples of a q that is not the posterior. `K` = 100, 25 at a time.
#[test]
fn many_samples_find_likelihood_and_information_of_a_linear_model() {
    tch::manual_seed(11);
    let options = (Kind::Double, tch::Device::Cpu);
    let examples = 2000;
    // x is normal with variance 2, as the model has it.
    let x = Tensor::randn([examples, 1], options) * 2f64.sqrt();
    let q = Gaussian { mean: &x * 0.4, log_variance: x.zeros_like() };
    let part = || {
        let z = q.sample(&Tensor::randn([examples, 25, 1], options));
        let likelihood = ((z.squeeze_dim(2) - &x).square() + (2.0 * PI).ln()) * -0.5;
        Running::of(&Scores { likelihood, ratio: Gaussian::log_prior(&z) - q.log_density(&z) })
    };
    let estimate = (0..3).map(|_| part()).fold(part(), Running::merged);
    let exact = (x.square() / 2.0 + (4.0 * PI).ln()).squeeze_dim(1) * -0.5;
    // KL(N(x / 2, 1 / 2) || N(0, 1)).
    let information = (x.square() / 4.0 + (0.5 - 1.0 - 0.5f64.ln())).squeeze_dim(1) * 0.5;
    for (found, exact) in [(estimate.bound(), exact), (estimate.information(), information)] {
        let error = found - exact;
        let mean = error.mean(Kind::Double).double_value(&[]);
        let deviation = error.std(true).double_value(&[]) / (examples as f64).sqrt();
        // What 100 samples are off in the mean, of the order of their variance / 200, comes on top of chance.
        assert!(mean.abs() < 3.0 * deviation + 2e-3, "{mean} ± {deviation}");
    }
}

/// Rows V15 and V20: a model of three codes and four symbols, all of whose numbers are known: the divergence of q is not the information.
#[test]
fn many_samples_find_the_information_of_a_table_and_not_the_divergence_of_q() {
    tch::manual_seed(12);
    let table = |values: &[f64], rows: i64| Tensor::from_slice(values).view([rows, -1]);
    // [codes, symbols]
    let written = table(&[0.7, 0.1, 0.1, 0.1, 0.1, 0.6, 0.2, 0.1, 0.05, 0.05, 0.3, 0.6], 3);
    // [symbols, codes]
    let q = table(&[0.8, 0.1, 0.1, 0.2, 0.7, 0.1, 0.2, 0.4, 0.4, 0.1, 0.2, 0.7], 4);
    let prior = Tensor::from_slice(&[0.5, 0.3, 0.2]);
    let often = 500;
    let x = Tensor::arange(4, (Kind::Int64, tch::Device::Cpu)).repeat([often]);
    let posterior = q.index_select(0, &x);
    let codes = posterior.multinomial(100, true);
    let of_codes = |table: &Tensor| table.gather(1, &codes, false).log();
    let likelihood = of_codes(&written.transpose(0, 1).index_select(0, &x));
    let priors = prior.unsqueeze(0).expand_as(&posterior).contiguous();
    let estimate = Running::of(&Scores { likelihood, ratio: of_codes(&priors) - of_codes(&posterior) });
    let divergence = ((&posterior / &prior).log() * &posterior).sum_dim_intlist(1, false, Kind::Double);
    let all = [
        (-estimate.bound(), 1.437529912, 2e-3),
        (-estimate.evidence(), 1.487102015, 1e-12),
        (estimate.information(), 0.322678935, 2e-3),
        (divergence, 0.345333354, 1e-9),
    ];
    for (found, expected, bias) in all {
        let mean = found.mean(Kind::Double).double_value(&[]);
        // Symbols are all as frequent: what is left to chance are the draws.
        let by_symbol = found.view([often, 4]).std_dim(0, true, false).square().mean(Kind::Double);
        let error = (by_symbol.double_value(&[]) / (4 * often) as f64).sqrt();
        assert!((mean - expected).abs() < 3.0 * error + bias, "{mean} ± {error}, and not {expected}");
    }
}
