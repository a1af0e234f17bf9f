//! Update rules side by side, and their published numbers.

use segue_configs::{OptimConfig, OptimKind};
use segue_kernels::{Init, ParameterSpec, Parameters};
use tch::{Device, Kind, Tensor};

use super::*;

/// The rules that may be given parts of parameters.
const EVERY_PIECEWISE: [OptimKind; 5] =
    [OptimKind::Adam, OptimKind::Adamw, OptimKind::Sgd, OptimKind::Rmsprop, OptimKind::Radam];

fn one_value(value: f64, kind: Kind) -> Parameters {
    let spec = ParameterSpec { name: "w".into(), shape: vec![1], init: Init::Zeros };
    Parameters::from_tensors(vec![spec], vec![Tensor::from_slice(&[value]).to_kind(kind)], kind)
}

/// The weight after each of `steps` updates from 1 with gradients w + 0.1 sin t and rate 0.01.
fn descent(config: &OptimConfig, steps: u32, kind: Kind) -> Vec<f64> {
    let parameters = one_value(1.0, kind);
    let mut rule = build(config, &parameters, Piece::all(&parameters));
    let weight = || parameters.tensors()[0].double_value(&[0]);
    let step = |t: u32| {
        // Sums over four targets.
        let grads = [Tensor::from_slice(&[4.0 * (weight() + 0.1 * f64::from(t).sin())]).to_kind(kind)];
        rule.update(&parameters, &Update { grads: &grads, divisor: 4.0, lr: 0.01, reached: None }).unwrap();
        weight()
    };
    (1..=steps).map(step).collect()
}

fn rule(kind: OptimKind, rectify_above: f64) -> OptimConfig {
    OptimConfig { kind, beta1: 0.0, rectify_above, ..Default::default() }
}

/// Weights after steps 4, 5, 6 and 10, computed with Python's floats from the equations; PyTorch's own RAdam gives the second row.
/// Row M10.
#[test]
fn rules_of_recurrent_models_give_their_published_numbers() {
    let cases = [
        (rule(OptimKind::Radam, 4.0), [0.959505423, 0.959353914, 0.959107937, 0.957462778]),
        (rule(OptimKind::Radam, 5.0), [0.959505423, 0.950869293, 0.950625221, 0.948988401]),
        (rule(OptimKind::Rmsprop, 5.0), [0.961777080, 0.953013729, 0.943553275, 0.904248009]),
    ];
    for (config, expected) in cases {
        // f64 to the digits that are given, f32 to some roundings of each of ten steps.
        for (kind, limit) in [(Kind::Double, 1e-9), (Kind::Float, 1e-6)] {
            let found = descent(&config, 10, kind);
            for (t, expected) in [4, 5, 6, 10].into_iter().zip(expected) {
                let off = (found[t - 1] - expected).abs();
                assert!(off < limit, "{:?}, step {t}: {}, expected {expected}", config.kind, found[t - 1]);
            }
        }
    }
}

/// Rows in sparse gradients, of tables of odd sizes, with divisors and rates that round.
#[test]
fn a_sparse_gradient_updates_its_rows_to_the_bits_of_a_dense_one() {
    let config = OptimConfig { kind: OptimKind::Sgd, weight_decay: 0.0, clip: 0.0, ..Default::default() };
    assert!(updates_rows(&config));
    for width in [1, 3, 7, 50] {
        let table = || {
            let spec = ParameterSpec {
                name: "table".into(),
                shape: vec![61, width],
                init: Init::Normal { mean: 0.0, std: 1.0 },
            };
            Parameters::initialise(vec![spec], 4, Kind::Float)
        };
        for rows in [&[0i64, 5, 6, 33, 60][..], &[17], &[]] {
            let [whole, by_rows] = [table(), table()];
            let numbers = Tensor::from_slice(rows).view([1, -1]);
            let count = rows.len() as i64 * width;
            let values = (Tensor::arange(count, (Kind::Float, Device::Cpu)) * 0.37).cos();
            let values = values.view([rows.len() as i64, width]);
            let sparse = Tensor::sparse_coo_tensor_indices_size(
                &numbers,
                &values,
                [61, width],
                (Kind::Float, Device::Cpu),
                true,
            );
            let dense = sparse.to_dense(None, false);
            for (parameters, grad) in [(&whole, dense), (&by_rows, sparse)] {
                let mut rule = build(&config, parameters, Piece::all(parameters));
                let update = Update { grads: &[grad], divisor: 3.0, lr: 0.1, reached: None };
                rule.update(parameters, &update).unwrap();
            }
            let bits = |p: &Parameters| p.tensors()[0].detach().view_dtype(Kind::Int);
            assert_eq!(bits(&whole), bits(&by_rows), "width {width}, rows {rows:?}");
            assert_eq!(bits(&whole) == bits(&table()), rows.is_empty());
        }
    }
}

/// Rules that move what has no gradient, or take a norm of the whole.
#[test]
fn rows_are_updated_alone_by_plain_descent_only() {
    let plain = OptimConfig { kind: OptimKind::Sgd, weight_decay: 0.0, clip: 0.0, ..Default::default() };
    for config in [
        OptimConfig { weight_decay: 0.1, ..plain.clone() },
        OptimConfig { l2: 0.1, ..plain.clone() },
        OptimConfig { clip: 1.0, ..plain.clone() },
    ] {
        assert!(!updates_rows(&config), "{config:?}");
    }
    for kind in EVERY_PIECEWISE.into_iter().chain([OptimKind::Lamb]) {
        assert_eq!(updates_rows(&OptimConfig { kind, ..plain.clone() }), kind == OptimKind::Sgd, "{kind:?}");
    }
}

/// RMSProp's first mean is the gradient, whatever the configuration says of Adam's.
/// Row M10.
#[test]
fn rmsprop_has_no_mean_of_gradients() {
    let config = rule(OptimKind::Rmsprop, 5.0);
    let set = OptimConfig { beta1: 0.9, ..config.clone() };
    assert_eq!(descent(&config, 10, Kind::Double), descent(&set, 10, Kind::Double));
    // Uncorrected it is the usual one: v = 0.001 g², and the step 0.01 g / (√v + ε).
    let usual = OptimConfig { bias_correction: false, ..config };
    let g: f64 = 1.0 + 0.1 * 1f64.sin();
    let by_hand = 1.0 - 0.01 * g / ((0.001 * g * g).sqrt() + 1e-8);
    assert!((descent(&usual, 1, Kind::Double)[0] - by_hand).abs() < 1e-12);
}

/// With a mean of gradients, a rectified step is along that mean, corrected.
/// Row A15.
#[test]
fn rectified_steps_are_those_of_the_paper() {
    let (beta1, beta2): (f64, f64) = (0.9, 0.999);
    let config = OptimConfig { beta1, ..rule(OptimKind::Radam, 4.0) };
    let long = 2.0 / (1.0 - beta2) - 1.0;
    let (mut w, mut m, mut v): (f64, f64, f64) = (1.0, 0.0, 0.0);
    let found = descent(&config, 30, Kind::Double);
    for (t, found) in (1..=30).zip(found) {
        let g = w + 0.1 * f64::from(t).sin();
        m = beta1 * m + (1.0 - beta1) * g;
        v = beta2 * v + (1.0 - beta2) * g * g;
        let m_hat = m / (1.0 - beta1.powi(t));
        let rho = long - 2.0 * f64::from(t) * beta2.powi(t) / (1.0 - beta2.powi(t));
        // The fifth step is the first adaptive one.
        assert_eq!(rho > 4.0, t >= 5);
        w -= match rho > 4.0 {
            true => {
                let r = ((rho - 4.0) * (rho - 2.0) * long / ((long - 4.0) * (long - 2.0) * rho)).sqrt();
                if t == 10 {
                    assert!((r - 0.048998013).abs() < 1e-9, "{r}");
                }
                0.01 * r * m_hat / ((v / (1.0 - beta2.powi(t))).sqrt() + 1e-8)
            }
            false => 0.01 * m_hat,
        };
        assert!((found - w).abs() < 1e-12, "{t}: {found}, expected {w}");
    }
}

/// w ← w − 0.1 (0.5 + 0.2 w), where w is 2, then 1.91.
/// Row M10.
#[test]
fn plain_descent_follows_the_gradient_and_keeps_nothing() {
    let config = OptimConfig { kind: OptimKind::Sgd, weight_decay: 0.2, ..Default::default() };
    let parameters = one_value(2.0, Kind::Double);
    let mut rule = build(&config, &parameters, Piece::all(&parameters));
    for expected in [1.91, 1.8218] {
        let grads = [Tensor::from_slice(&[1.5f64])];
        rule.update(&parameters, &Update { grads: &grads, divisor: 3.0, lr: 0.1, reached: None }).unwrap();
        assert!((parameters.tensors()[0].double_value(&[0]) - expected).abs() < 1e-12);
    }
    assert!(rule.tables().is_empty() && rule.counts().updates() == 2);
}

/// Each parameter has a number of its own: one that is reached for the first time is corrected as all are at first.
/// Row M10.
#[test]
fn rectification_counts_the_updates_of_each_parameter() {
    let config = rule(OptimKind::Radam, 5.0);
    let spec = |name: &str| ParameterSpec { name: name.into(), shape: vec![1], init: Init::Zeros };
    let ones = [1.0, 1.0].map(|value| Tensor::from_slice(&[value])).into();
    let parameters = Parameters::from_tensors(vec![spec("early"), spec("late")], ones, Kind::Double);
    let mut rule = build(&config, &parameters, Piece::all(&parameters));
    let weight = |i: usize| parameters.tensors()[i].double_value(&[0]);
    for t in 1..=14 {
        let gradient = |i: usize, t: i32| Tensor::from_slice(&[weight(i) + 0.1 * f64::from(t).sin()]);
        let grads = [gradient(0, t), gradient(1, t - 4)];
        let reached = [t <= 10, t > 4];
        rule.update(&parameters, &Update { grads: &grads, divisor: 1.0, lr: 0.01, reached: Some(&reached) })
            .unwrap();
    }
    assert_eq!(weight(0), weight(1));
    assert!((weight(0) - 0.948988401).abs() < 1e-9);
}

/// Cut where a vector of any instruction set may begin, and nowhere else: the last values of a parameter, which fill no vector, are computed
/// one by one, and may round otherwise.
#[test]
fn pieces_of_parameters_get_the_bits_of_the_whole() {
    const VALUES: [i64; 2] = [16 * 7 + 5, 3];
    let spec = |(i, &n): (usize, &i64)| ParameterSpec {
        name: format!("layer.{i}.w"),
        shape: vec![n],
        init: Init::Normal { mean: 0.0, std: 1.0 },
    };
    let parameters = || Parameters::initialise(VALUES.iter().enumerate().map(spec).collect(), 1, Kind::Float);
    let gradient = |parameter: usize, step: i64| {
        let i = Tensor::arange(VALUES[parameter], (Kind::Float, Device::Cpu));
        (i * 0.37 + step).sin() * 1e-3
    };
    let piece = |parameter, values| Piece { parameter, values };
    for kind in EVERY_PIECEWISE {
        let config = OptimConfig { kind, weight_decay: 0.1, layer_decay: 0.7, ..Default::default() };
        let train = |parts: Option<Vec<Vec<Piece>>>| {
            let parameters = parameters();
            let parts = parts.unwrap_or_else(|| vec![Piece::all(&parameters)]);
            let mut optimizers: Vec<_> =
                parts.into_iter().map(|pieces| build(&config, &parameters, pieces)).collect();
            for step in 1..=4 {
                for optimizer in &mut optimizers {
                    let of = |piece: &Piece| piece.of(&gradient(piece.parameter, step)).copy();
                    let grads: Vec<Tensor> = optimizer.pieces().iter().map(of).collect();
                    let reached = [true, step != 2];
                    let update = Update { grads: &grads, divisor: 3.0, lr: 0.01, reached: Some(&reached) };
                    optimizer.update(&parameters, &update).unwrap();
                }
            }
            let bits = |t: &Tensor| Vec::<f32>::try_from(t.detach()).unwrap().into_iter().map(f32::to_bits);
            parameters.tensors().iter().flat_map(bits).collect::<Vec<u32>>()
        };
        let whole = train(None);
        let parts = vec![
            vec![piece(0, 0..16)],
            vec![piece(0, 16..96)],
            Vec::new(),
            vec![piece(0, 96..VALUES[0] as usize), piece(1, 0..3)],
        ];
        assert!(train(Some(parts)) == whole, "{kind:?}");
    }
}
