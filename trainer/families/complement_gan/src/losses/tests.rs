use segue_kernels::noise::Noise;
use tch::Device;

use super::*;

/// Rows of `f(row, column)`, `[rows, columns]` in double precision.
fn table(rows: usize, columns: usize, f: impl Fn(f64, f64) -> f64) -> Tensor {
    let at = |place: usize| f((place / columns) as f64, (place % columns) as f64);
    let values: Vec<f64> = (0..rows * columns).map(at).collect();
    Tensor::from_slice(&values).view([rows as i64, columns as i64])
}

/// Logits of the golden numbers: of labelled, unlabelled and generated images.
fn logits() -> [Tensor; 3] {
    [
        table(2, 3, |i, k| (1.0 + 3.0 * i + 2.0 * k).sin()),
        table(3, 3, |i, k| 2.0 * (1.0 + i + 2.0 * k).cos()),
        table(3, 3, |i, k| -1.0 + (2.0 + 2.0 * i + k).sin()),
    ]
}

fn value(x: &Tensor) -> f64 {
    x.double_value(&[])
}

#[track_caller]
fn assert_near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
}

/// Row B1.
#[test]
fn losses_of_the_discriminator_have_the_golden_numbers() {
    let [labelled_logits, unlabelled, generated] = logits();
    let labels = Tensor::from_slice(&[0i64, 2]);
    let found = [
        value(&labelled(&labelled_logits, &labels)) / 2.0,
        value(&real(&unlabelled)) / 3.0,
        value(&fake(&generated)) / 3.0,
    ];
    let expected = [0.441_619_400, 0.152_345_576, 0.825_319_642];
    found.iter().zip(expected).for_each(|(found, expected)| assert_near(*found, expected));
    assert_near(-found.iter().sum::<f64>(), -1.419_284_618);
    let entropy = value(&conditional_entropy(&unlabelled, EntropyOver::Classes)) / 3.0;
    assert_near(found[0] + 0.5 * (found[1] + found[2]) + 0.1 * entropy, 0.991_455_614);
}

/// Row B1: a softmax over K + 1 logits, of which the last is 0, gives the same.
#[test]
fn the_class_of_generated_images_has_the_logit_zero() {
    let [_, unlabelled, generated] = logits();
    let log_probs = |logits: &Tensor| {
        let zero = Tensor::zeros([logits.size()[0], 1], (Kind::Double, Device::Cpu));
        Tensor::cat(&[logits, &zero], 1).log_softmax(1, None::<Kind>)
    };
    let of_fake = log_probs(&generated).select(1, 3);
    assert_near(value(&fake(&generated)), -value(&of_fake.sum(None::<Kind>)));
    let of_real = log_probs(&unlabelled).narrow(1, 0, 3).logsumexp([1], false);
    assert_near(value(&real(&unlabelled)), -value(&of_real.sum(None::<Kind>)));
}

/// Row B1.
#[test]
fn losses_are_finite_where_logits_are_large() {
    for size in [1e4, -1e4] {
        let logits = Tensor::from_slice(&[size as f32, -size as f32, 0.0, size as f32])
            .view([2, 2])
            .set_requires_grad(true);
        let entropies = [EntropyOver::Classes, EntropyOver::ClassesAndFake];
        let all = labelled(&logits, &Tensor::from_slice(&[1i64, 0]))
            + real(&logits)
            + fake(&logits)
            + entropies.map(|over| conditional_entropy(&logits, over)).into_iter().sum::<Tensor>();
        all.backward();
        assert!(value(&all).is_finite() && value(&logits.grad().abs().max()).is_finite(), "{size}");
    }
}

/// Row B2.
#[test]
fn both_entropies_have_the_golden_numbers() {
    let [_, unlabelled, _] = logits();
    let entropy = |over| value(&conditional_entropy(&unlabelled, over)) / 3.0;
    assert_near(entropy(EntropyOver::Classes), 0.610_036_046);
    assert_near(entropy(EntropyOver::ClassesAndFake), 0.650_951_722);
    let flat = Tensor::full([2, 5], 3.0, (Kind::Double, Device::Cpu));
    assert_near(value(&conditional_entropy(&flat, EntropyOver::Classes)), 2.0 * 5f64.ln());
    let sure = Tensor::from_slice(&[900.0, 0.0, 0.0]).view([1, 3]);
    assert_near(value(&conditional_entropy(&sure, EntropyOver::Classes)), 0.0);
}

/// Features of the golden numbers, of generated and of real images: `[1, 3, 4]`.
fn features() -> [Tensor; 2] {
    let generated = table(3, 4, |i, j| 1.0 + (1.0 + i * j).cos());
    [generated, table(3, 4, |i, j| 1.0 + (i + 2.0 * j).sin())].map(|features| features.unsqueeze(0))
}

/// Row B3: of a group, times its size.
#[test]
fn feature_matching_has_the_golden_numbers() {
    let [generated, real] = features();
    for (distance, expected) in [
        (FeatureDistance::SumSquare, 0.581_606_991),
        (FeatureDistance::MeanSquare, 0.145_401_748),
        (FeatureDistance::MeanAbsolute, 0.320_399_678),
    ] {
        assert_near(value(&feature_matching(&generated, &real, distance)) / 3.0, expected);
        // Two groups are two losses.
        let twice = |x: &Tensor| Tensor::cat(&[x, x], 0);
        assert_near(value(&feature_matching(&twice(&generated), &twice(&real), distance)) / 6.0, expected);
    }
}

/// Row B4.
#[test]
fn the_pull_away_term_has_the_golden_number_and_its_bounds() {
    let [generated, _] = features();
    assert_near(value(&pull_away(&generated)) / 3.0, 0.577_192_703);
    let alike = generated.narrow(1, 0, 1).repeat([1, 5, 1]);
    assert_near(value(&pull_away(&alike)) / 5.0, 1.0);
    let orthogonal = Tensor::eye(4, (Kind::Double, Device::Cpu)).unsqueeze(0);
    assert_near(value(&pull_away(&orthogonal)), 0.0);
    let zeros = Tensor::zeros([1, 3, 2], (Kind::Float, Device::Cpu)).set_requires_grad(true);
    let of_zeros = pull_away(&zeros);
    of_zeros.backward();
    assert_near(value(&of_zeros), 0.0);
    assert!(value(&zeros.grad().abs().max()).is_finite());
}

/// Row B4: descent from features that are nearly alike drives them apart.
#[test]
fn descent_lowers_the_pull_away_term() {
    let mut features = table(6, 4, |i, j| 1.0 + 0.01 * (3.0 * i + 5.0 * j).sin()).unsqueeze(0);
    let first = value(&pull_away(&features)) / 6.0;
    for _ in 0..200 {
        let leaf = features.detach().set_requires_grad(true);
        pull_away(&leaf).backward();
        features = leaf.detach() - leaf.grad() * 0.2;
    }
    let last = value(&pull_away(&features)) / 6.0;
    assert!(first > 0.99 && last < 0.5, "from {first} to {last}");
}

/// Row B5.
#[test]
fn the_entropy_by_inputs_has_the_golden_number() {
    let row = |values: [f64; 2]| Tensor::from_slice(&values).view([1, 2]);
    let found = input_entropy(&row([0.2, 0.7]), &row([0.1, 0.9]), &row([-1.0, -0.5]));
    assert_near(value(&found), -1.408_689_083);
}

/// Row B5: of x = a z + noise, z and noise normal, H(x) is known: −E ln q(z | x) is H(z | x) = H(z) + H(x | z) − H(x) at the true posterior, and above it elsewhere.
#[test]
fn the_bound_is_tight_at_the_true_posterior() {
    let (a, noise) = (2.0f64, 0.5f64);
    let entropy = |variance: f64| 0.5 * (2.0 * std::f64::consts::PI * std::f64::consts::E * variance).ln();
    let of_x = a.powi(2) + noise.powi(2);
    let exact = entropy(1.0) + entropy(noise.powi(2)) - entropy(of_x);
    let draws = Noise::new(3);
    let normal = || draws.normal(&[20_000, 1]).to_kind(Kind::Double);
    let z = normal();
    let x = &z * a + normal() * noise;
    let (mean, std) = (&x * (a / of_x), noise / of_x.sqrt());
    let half_log = 0.5 * (2.0 * std::f64::consts::PI).ln();
    let bound = |std: f64| {
        let log_std = Tensor::full_like(&z, std.ln());
        value(&input_entropy(&z, &mean, &log_std)) / 20_000.0 + half_log
    };
    // Half the mean of squares of 20,000 normal values: its deviation is 0.005.
    assert!((bound(std) - exact).abs() < 0.02, "{} and {exact}", bound(std));
    assert!([0.5, 2.0].iter().all(|factor| bound(std * factor) > exact + 0.1));
}

/// Row B11.
#[test]
fn the_density_term_has_the_golden_numbers() {
    let mut density: Vec<f64> =
        (0..20).map(|i| -10.0 * (1.0 + f64::from(i)) + 3.0 * f64::from(i).sin()).collect();
    density.sort_by(f64::total_cmp);
    let threshold = density[2];
    assert_near(threshold, -182.884_192_476);
    let generated = Tensor::from_slice(&[-195.0, -150.0, -183.2, -60.0, -300.0f64]).set_requires_grad(true);
    let (excess, above) = excess_density(&generated, threshold);
    assert_near(1e-4 * value(&excess) / value(&above), 0.007_788_419);
    excess.backward();
    assert_eq!(Vec::<f64>::try_from(generated.grad()).unwrap(), [0.0, 1.0, 0.0, 1.0, 0.0]);
    // As eq. 3.4 is printed: the mean of ln p of all, 0 where it is below the threshold.
    let printed = (&generated * generated.greater(threshold)).mean(None::<Kind>);
    assert_near(value(&printed), -42.0);
    let (none, above) = excess_density(&Tensor::from_slice(&[-200.0f64, -190.0]), threshold);
    assert_eq!((value(&none), value(&above)), (0.0, 0.0));
}

/// Proposition 1 of Yang 2019, §3.1.2: where what is generated is distributed as the data, taking ln Σ exp l from all logits keeps the classes and gives the unsupervised part its
/// largest value, −2 ln 2 for each image.
#[test]
fn logits_less_their_log_sum_are_best_against_the_data_itself() {
    let [_, unlabelled, _] = logits();
    let unsupervised = |logits: &Tensor| -value(&(real(logits) + fake(logits))) / 3.0;
    assert_near(unsupervised(&unlabelled), -2.123_524_470);
    let shifted = &unlabelled - log_sum(&unlabelled).unsqueeze(1);
    assert_near(unsupervised(&shifted), -2.0 * std::f64::consts::LN_2);
    let classes = |logits: &Tensor| logits.softmax(1, None::<Kind>);
    assert!(value(&(classes(&unlabelled) - classes(&shifted)).abs().max()) < 1e-12);
    // No logit is above 0, and still the image is more probably real.
    assert_near(value(&log_sum(&Tensor::from_slice(&[-0.5, -0.4, -0.6]).view([1, 3]))), 0.601_942_848);
}
