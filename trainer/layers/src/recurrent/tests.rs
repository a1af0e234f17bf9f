//! Cells and mogrifier against numbers that a program of the standard library alone has printed: matrices of ½ sin(0.7 i + 0.3 j + s),
//! vectors of ½ cos(0.9 i + s), by a number s for each.

use tch::{Device, Kind, Tensor};

mod proofs;
mod variants;

use segue_kernels::{Init, Kernels, ParameterSpec, Parameters};

use super::*;

const M: i64 = 3;
const N: i64 = 2;
const KERNELS: Kernels = Kernels::Plain;
/// Of numbers printed with nine digits.
const PRINTED: f64 = 1e-9;

fn matrix(rows: i64, columns: i64, s: f64) -> Tensor {
    let value = |k: i64| 0.5 * (0.7 * (k / columns) as f64 + 0.3 * (k % columns) as f64 + s).sin();
    Tensor::from_slice(&(0..rows * columns).map(value).collect::<Vec<_>>()).view([rows, columns])
}

fn vector(length: i64, s: f64) -> Tensor {
    Tensor::from_slice(&(0..length).map(|i| 0.5 * (0.9 * i as f64 + s).cos()).collect::<Vec<_>>())
}

fn row(values: &[f64]) -> Tensor {
    Tensor::from_slice(values).unsqueeze(0)
}

fn input() -> Tensor {
    row(&[0.5, -1.0, 0.25])
}

fn hidden() -> Tensor {
    row(&[0.3, -0.6])
}

fn cell_state() -> Tensor {
    row(&[0.9, -0.4])
}

/// Matrices of several gates, one below the other.
fn stacked(gates: &[f64], columns: i64, add: f64) -> Tensor {
    Tensor::cat(&gates.iter().map(|s| matrix(N, columns, s + add)).collect::<Vec<_>>(), 0)
}

fn biases(gates: &[f64]) -> Tensor {
    Tensor::cat(&gates.iter().map(|s| vector(N, *s)).collect::<Vec<_>>(), 0)
}

/// Numbers of f, j, o and i.
const LSTM: [f64; 4] = [10.0, 12.0, 13.0, 11.0];

fn lstm(gate: InputGate) -> Lstm {
    let gates = if gate == InputGate::Tied { &LSTM[..3] } else { &LSTM };
    Lstm {
        gate,
        weight_x: Matrix::Whole(stacked(gates, M, 0.0)),
        weight_h: Matrix::Whole(stacked(gates, N, 0.05)),
        bias_f: biases(&gates[..1]),
        bias: biases(&gates[1..]),
        bias_h: None,
        norm: None,
        kernels: KERNELS,
    }
}

fn rewired() -> Rewired {
    Rewired {
        gate: InputGate::Capped,
        weight_x: stacked(&[11.0, 12.0], M, 0.0),
        weight_h: stacked(&[11.0, 12.0, 14.0], N, 0.05),
        weight_fu: matrix(N, N, 14.0),
        weight_oc: matrix(N, N, 15.0),
        bias: biases(&[11.0, 12.0]),
        bias_f: vector(N, 14.0),
        bias_o: vector(N, 15.0),
        kernels: KERNELS,
    }
}

fn mogrifier(rounds: usize, rank: usize, zigzag: bool) -> Option<Mogrifier> {
    let shape = MogrifierShape { rounds, rank, bias: false, zigzag };
    let specs = shape.specs("", M, N, |_| Init::Zeros);
    let fill = |spec: &ParameterSpec| {
        let mut parts = spec.name.split('.').skip(1);
        let round: f64 = parts.next().unwrap().parse().unwrap();
        let add = match parts.next().unwrap() {
            "left" => 0.1,
            "right" => 0.2,
            _ => 0.0,
        };
        matrix(spec.shape[0], spec.shape[1], round + add)
    };
    let tensors = specs.iter().map(fill).collect();
    shape.build("", &Parameters::from_tensors(specs, tensors, Kind::Double).with_kernels(KERNELS))
}

fn assert_near(found: &Tensor, expected: &[f64], limit: f64) {
    let difference = (found.detach().view([-1]) - Tensor::from_slice(expected)).abs().max().double_value(&[]);
    assert!(difference < limit, "{found} against {expected:?}: off by {difference:e}");
}

/// Inputs read ahead, and one step.
const AHEAD: Uses = Uses { reads: 0, steps: 1 };
/// Inputs read one by one.
const ONE_BY_ONE: Uses = Uses { reads: 1, steps: 1 };

fn step(cell: &dyn Cell, mask: Option<&Tensor>) -> State {
    cell.unroll(AHEAD).step(&cell.read(&input()), &hidden(), &cell_state(), mask)
}

fn mogrify(mogrifier: &Mogrifier) -> (Tensor, Tensor) {
    mogrifier.unroll(1).mogrify(hidden(), input())
}

fn mogrified(cell: &dyn Cell) -> State {
    let (h, x) = mogrify(&mogrifier(5, 0, true).unwrap());
    cell.unroll(ONE_BY_ONE).step(&x, &h, &cell_state(), None)
}

/// Row M1.
#[test]
fn lstm_cells_give_the_reference_numbers() {
    let plain = step(&lstm(InputGate::Plain), None);
    assert_near(&plain.cell, &[0.640662466, -0.063600188], PRINTED);
    assert_near(&plain.hidden, &[0.309360393, -0.028781536], PRINTED);
    let capped = step(&lstm(InputGate::Capped), None);
    assert_near(&capped.cell, &[0.628758781, -0.110236306], PRINTED);
    assert_near(&capped.hidden, &[0.304898788, -0.049752055], PRINTED);
}

/// i is 1 − f: the next c lies between c' and j.
/// Row M1.
#[test]
fn a_tied_input_gate_is_the_complement_of_the_forget_gate() {
    let cell = lstm(InputGate::Tied);
    let gates = cell.read(&input()) + hidden().matmul(&cell.weight_h.whole().transpose(0, 1));
    let (f, j) = (gates.narrow(1, 0, N).sigmoid(), gates.narrow(1, N, N).tanh());
    let expected: Tensor = &f * cell_state() + (1.0 - &f) * j;
    let difference = (step(&cell, None).cell - expected).abs().max().double_value(&[]);
    assert!(difference < 1e-15, "{difference:e}");
}

/// Row M1.
#[test]
fn a_capped_cell_stays_within_one_and_a_plain_one_leaves_it() {
    let wild = |gate| {
        let calm = lstm(gate);
        let wild = |matrix: &Matrix| Matrix::Whole(matrix.whole() * 20.0);
        Lstm { weight_x: wild(&calm.weight_x), weight_h: wild(&calm.weight_h), ..calm }
    };
    let largest = |gate| {
        let cell = wild(gate);
        let mut state = State { hidden: hidden(), cell: cell_state() };
        let mut largest = 0f64;
        for t in 0..10_000 {
            let input = input() * (0.37 * t as f64).sin();
            state = cell.unroll(AHEAD).step(&cell.read(&input), &state.hidden, &state.cell, None);
            largest = largest.max(state.cell.abs().max().double_value(&[]));
        }
        largest
    };
    assert!(largest(InputGate::Capped) <= 1.0);
    assert!(largest(InputGate::Plain) > 1.0);
}

/// Row M2.
#[test]
fn mogrifiers_give_the_reference_numbers() {
    let cases = [
        (1, 0, true, [0.3, -0.6], [0.45937803, -0.938059643, 0.246638392]),
        (2, 0, true, [0.288406106, -0.603756521], [0.45937803, -0.938059643, 0.246638392]),
        (5, 0, true, [0.30999276, -0.644555225], [0.503352159, -1.011611625, 0.25190988]),
        (6, 0, true, [0.303857783, -0.604868692], [0.503352159, -1.011611625, 0.25190988]),
        (5, 1, true, [0.288526755, -0.577493259], [0.474206329, -0.938679851, 0.23928336]),
        (5, 0, false, [0.308628103, -0.642866327], [0.500223095, -1.007762135, 0.252173508]),
    ];
    for (rounds, rank, zigzag, h, x) in cases {
        let found = mogrify(&mogrifier(rounds, rank, zigzag).unwrap());
        assert_near(&found.0, &h, PRINTED);
        assert_near(&found.1, &x, PRINTED);
    }
    let both = mogrified(&lstm(InputGate::Capped));
    assert_near(&both.cell, &[0.632309926, -0.11806214], PRINTED);
    assert_near(&both.hidden, &[0.30404853, -0.052645727], PRINTED);
    assert!(mogrifier(0, 0, true).is_none());
}

/// Row M2.
#[test]
fn gates_of_zero_change_nothing_and_none_changes_a_sign() {
    let shape = MogrifierShape { rounds: 6, rank: 0, bias: true, zigzag: true };
    let closed = Parameters::initialise(shape.specs("", M, N, |_| Init::Zeros), 1, Kind::Double);
    let (h, x) = mogrify(&shape.build("", &closed).unwrap());
    assert!(h.equal(&hidden()) && x.equal(&input()));
    let wide = Parameters::initialise(
        shape.specs("", M, N, |_| Init::Normal { mean: 0.0, std: 30.0 }),
        1,
        Kind::Double,
    );
    let (h, x) = mogrify(&shape.build("", &wide).unwrap());
    for (after, before, most) in [(h, hidden(), 8.0), (x, input(), 8.0)] {
        assert!((&after * &before).min().double_value(&[]) >= 0.0, "{after}");
        assert!((after / before).max().double_value(&[]) <= most);
    }
}

/// Without the zigzag one round is the same, and the second already differs.
/// Row M2.
#[test]
fn the_zigzag_counts_from_the_second_gate_on() {
    let pair = |rounds| [true, false].map(|zigzag| mogrify(&mogrifier(rounds, 0, zigzag).unwrap()));
    let [with, without] = pair(1);
    assert!(with.1.equal(&without.1));
    let [with, without] = pair(2);
    assert!(!with.0.equal(&without.0));
}

/// Row M4.
#[test]
fn the_rewired_lstm_gives_the_reference_numbers() {
    let cell = rewired();
    let [f, i, _] = cell.unroll(AHEAD).gates(&cell.read(&input()), &hidden(), &cell_state(), None).unwrap();
    assert_near(&i, &[0.564131611, 0.616977815], PRINTED);
    assert_near(&f, &[0.528348857, 0.435266906], PRINTED);
    let found = step(&cell, None);
    assert_near(&found.cell, &[0.660316727, -0.026679438], PRINTED);
    assert_near(&found.hidden, &[0.264693771, -0.010168537], PRINTED);
    let masked = step(&cell, Some(&row(&[2.0, 0.0])));
    assert_near(&masked.cell, &[0.660316727, -0.026679438], PRINTED);
    assert_near(&masked.hidden, &[0.296452985, -0.010160916], PRINTED);
    let both = mogrified(&cell);
    assert_near(&both.cell, &[0.659227212, -0.030890006], PRINTED);
    assert_near(&both.hidden, &[0.264191383, -0.011776776], PRINTED);
}

/// Row M4.
#[test]
fn fifty_steps_of_a_layer_give_the_reference_numbers() {
    let layer = Recurrent::new(Box::new(rewired()), mogrifier(5, 0, true));
    let inputs: Vec<Tensor> = (0..50).map(|t| input() * f64::from(t).cos()).collect();
    let zeros = || Tensor::zeros([1, N], (Kind::Double, Device::Cpu));
    let (outputs, state) =
        layer.forward(&Tensor::stack(&inputs, 0), State { hidden: zeros(), cell: zeros() }, None);
    assert_eq!(outputs.size(), [50, 1, N]);
    assert_near(&state.cell, &[0.350688257, 0.489604536], PRINTED);
    assert_near(&state.hidden, &[0.154314395, 0.165026459], PRINTED);
}

fn elman() -> Elman {
    Elman {
        weight_x: matrix(N, M, 17.0),
        weight_h: matrix(N, N, 17.05),
        bias: vector(N, 17.0),
        bias_h: None,
        kernels: KERNELS,
    }
}

fn gru() -> Gru {
    let gates = [18.0, 19.0, 20.0];
    Gru {
        weight_x: stacked(&gates, M, 0.0),
        weight_h: stacked(&gates, N, 0.05),
        bias: biases(&gates),
        bias_h: None,
        kernels: KERNELS,
    }
}

/// Row M24.
#[test]
fn other_cells_give_the_reference_numbers() {
    let (elman, gru) = (elman(), gru());
    assert_near(&step(&elman, None).hidden, &[0.155232168, 0.42562756], PRINTED);
    assert_near(&mogrified(&elman).hidden, &[0.175309497, 0.4369046], PRINTED);
    assert_near(&step(&gru, None).hidden, &[0.155423788, -0.481695344], PRINTED);
    assert_near(&mogrified(&gru).hidden, &[0.154038346, -0.506571802], PRINTED);
}

/// Cells and mogrifiers over a segment with our kernels and with libtorch's operations: outputs, states and gradients.
/// Rows M1, M2, M3, M4, M24.
#[test]
fn fused_layers_are_those_of_double_precision() {
    const WIDE: (i64, i64, i64, i64) = (7, 3, 37, 41);
    type Build = fn(&Parameters) -> Box<dyn Cell>;
    let (steps, lanes, m, n) = WIDE;
    let spec = |name: &str, shape: &[i64]| {
        let init = Init::Normal { mean: 0.0, std: 0.2 };
        ParameterSpec { name: name.into(), shape: shape.to_vec(), init }
    };
    fn of_lstm(parameters: &Parameters, gate: InputGate) -> Lstm {
        let n = parameters.get("bias_f").size()[0];
        let gates = if gate == InputGate::Tied { 3 } else { 4 };
        let rows = |name: &str, parts: i64| parameters.get(name).narrow(0, 0, parts * n);
        Lstm {
            gate,
            weight_x: Matrix::Whole(rows("weight_x", gates)),
            weight_h: Matrix::Whole(rows("weight_h", gates)),
            bias_f: parameters.get("bias_f"),
            bias: rows("bias", gates - 1),
            bias_h: None,
            norm: None,
            kernels: parameters.kernels(),
        }
    }
    let cells: [(&str, Build); 7] = [
        ("plain", |p| Box::new(of_lstm(p, InputGate::Plain))),
        ("capped", |p| Box::new(of_lstm(p, InputGate::Capped))),
        ("tied", |p| Box::new(of_lstm(p, InputGate::Tied))),
        ("multiplicative", |p| {
            let (weight_mx, weight_mh) = (p.get("weight_mx"), p.get("weight_mh"));
            Box::new(Multiplicative { inner: of_lstm(p, InputGate::Capped), weight_mx, weight_mh })
        }),
        ("rewired", |p| {
            let n = p.get("bias_f").size()[0];
            Box::new(Rewired {
                gate: InputGate::Capped,
                weight_x: p.get("weight_x").narrow(0, 0, 2 * n),
                weight_h: p.get("weight_h").narrow(0, 0, 3 * n),
                weight_fu: p.get("weight_mh"),
                weight_oc: p.get("weight_oc"),
                bias: p.get("bias").narrow(0, 0, 2 * n),
                bias_f: p.get("bias_f"),
                bias_o: p.get("bias_o"),
                kernels: p.kernels(),
            })
        }),
        ("gru", |p| {
            let rows = |name: &str| p.get(name).narrow(0, 0, 3 * p.get("bias_f").size()[0]);
            let (weight_x, weight_h, bias) = (rows("weight_x"), rows("weight_h"), rows("bias"));
            Box::new(Gru { weight_x, weight_h, bias, bias_h: None, kernels: p.kernels() })
        }),
        ("elman", |p| {
            let rows = |name: &str| p.get(name).narrow(0, 0, p.get("bias_f").size()[0]);
            let (weight_x, weight_h, bias) = (rows("weight_x"), rows("weight_h"), rows("bias"));
            Box::new(Elman { weight_x, weight_h, bias, bias_h: None, kernels: p.kernels() })
        }),
    ];
    for (rounds, rank) in [(0, 0), (5, 0), (4, 3)] {
        let shape = MogrifierShape { rounds, rank, bias: true, zigzag: true };
        let mut specs = vec![
            spec("weight_x", &[4 * n, m]),
            spec("weight_h", &[4 * n, n]),
            spec("weight_mx", &[n, m]),
            spec("weight_mh", &[n, n]),
            spec("weight_oc", &[n, n]),
            spec("bias", &[3 * n]),
            spec("bias_f", &[n]),
            spec("bias_o", &[n]),
        ];
        specs.extend(shape.specs("", m, n, |_| Init::Normal { mean: 0.0, std: 0.2 }));
        for (name, build) in &cells {
            let of = |kernels, kind| {
                let parameters = Parameters::initialise(specs.clone(), 1, kind).with_kernels(kernels);
                let layer = Recurrent::new(build(&parameters), shape.build("", &parameters));
                let wave = |shape: &[i64], speed: f64| {
                    let values = Tensor::arange(shape.iter().product::<i64>(), (Kind::Double, Device::Cpu));
                    ((values * speed).sin() * 0.7).view(shape).to_kind(kind)
                };
                let inputs = wave(&[steps, lanes, m], 0.7).set_requires_grad(true);
                let mask = wave(&[lanes, n], 0.9).ge(0.0).to_kind(kind) * 1.5;
                let start = State { hidden: wave(&[lanes, n], 1.1), cell: wave(&[lanes, n], 1.3) };
                let (outputs, state) = layer.forward(&inputs, start, Some(&mask));
                let weights = wave(&[steps, lanes, n], 0.37);
                ((&outputs * weights).sum(None::<Kind>) + state.cell.square().sum(None::<Kind>)).backward();
                let grads = parameters.tensors().iter().map(|tensor| tensor.grad()).filter(Tensor::defined);
                let found = [outputs.detach(), state.cell.detach(), inputs.grad()];
                found.into_iter().chain(grads).collect::<Vec<_>>()
            };
            let (ours, exact) = (of(Kernels::Fused, Kind::Float), of(Kernels::Plain, Kind::Double));
            assert_eq!(ours.len(), exact.len(), "{name}");
            for (number, (ours, exact)) in ours.iter().zip(&exact).enumerate() {
                let error = (ours - exact).abs().max() / exact.abs().max().clamp_min(1.0);
                let error = error.double_value(&[]);
                assert!(error < 5e-6, "{name} with {rounds} rounds, {number}: {error:e}");
            }
        }
    }
}
