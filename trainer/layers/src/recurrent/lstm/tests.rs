//! LSTM cells with weights dropped, and as libtorch's own.

use tch::{Device, Kind, Tensor};

use super::super::{Layer, Recurrent, State};
use super::*;

/// sin(1.3 k + phase) · scale, row by row.
fn filled(shape: &[i64], phase: f64, scale: f64) -> Tensor {
    let count = shape.iter().product::<i64>();
    ((Tensor::arange(count, (Kind::Double, Device::Cpu)) * 1.3 + phase).sin() * scale).view(shape)
}

/// Rows of i, f, g and o, as PyTorch has them, in the order of f, j, o and i.
fn turned(gates: &Tensor) -> Tensor {
    let parts = gates.chunk(4, 0);
    Tensor::cat(&[1, 2, 3, 0].map(|gate: usize| &parts[gate]), 0)
}

/// The cell of PyTorch's weights and biases.
fn of_pytorch([weight_x, weight_h, bias_x, bias_h]: [&Tensor; 4], kernels: Kernels) -> Lstm {
    let n = weight_h.size()[1];
    let parted = |bias: &Tensor| {
        let bias = turned(bias);
        [bias.narrow(0, 0, n), bias.narrow(0, n, 3 * n)]
    };
    let [bias_f, bias] = parted(bias_x);
    Lstm {
        gate: InputGate::Plain,
        weight_x: Matrix::Whole(turned(weight_x)),
        weight_h: Matrix::Whole(turned(weight_h)),
        bias_f,
        bias,
        bias_h: Some(parted(bias_h)),
        norm: None,
        kernels,
    }
}

/// Reference numbers of two steps, with weights whole and with entry (r, c) dropped where 3 r + c is 1 or 3 modulo 5.
/// Row S9.
#[test]
fn dropped_weights_give_the_reference_numbers() {
    let (weight_x, weight_h) = (filled(&[12, 2], 0.1, 0.5), filled(&[12, 3], 0.4, 0.5));
    let (bias_x, bias_h) = (filled(&[12], 0.7, 0.2), filled(&[12], 0.9, 0.2));
    let kept = |k: i64| if [1, 3].contains(&(k % 5)) { 0.0 } else { 2.0 };
    let mask = Tensor::from_slice(&(0..36).map(kept).collect::<Vec<f64>>()).view([12, 3]);
    let cases = [
        (
            weight_h.shallow_clone(),
            [
                ([0.054478861, -0.006070093, -0.133069983], [0.114309749, -0.009656908, -0.272483594]),
                ([0.041173326, -0.057970570, -0.130559350], [0.100201210, -0.085278056, -0.279162794]),
            ],
        ),
        (
            weight_h * mask,
            [
                ([0.107201938, 0.054746400, -0.172940632], [0.235461832, 0.089814208, -0.339359614]),
                ([0.043022200, -0.073621660, -0.130547010], [0.111850653, -0.102810518, -0.286897360]),
            ],
        ),
    ];
    for (weight_h, steps) in cases {
        let layer = || of_pytorch([&weight_x, &weight_h, &bias_x, &bias_h], Kernels::Plain);
        let inputs: Vec<Tensor> = (0..2).map(|t| filled(&[1, 2], 0.3 + f64::from(t), 0.5)).collect();
        for (count, (hidden, cell)) in (1..).zip(steps) {
            let row = |values: [f64; 3]| Tensor::from_slice(&values).unsqueeze(0);
            let start = State { hidden: row([0.1, -0.2, 0.3]), cell: row([0.05, 0.1, -0.15]) };
            let (_, state) = Recurrent::new(Box::new(layer()), None).forward(
                &Tensor::stack(&inputs[..count], 0),
                start,
                None,
            );
            for (found, expected) in [(state.hidden, hidden), (state.cell, cell)] {
                let off = (&found - row(expected)).abs().max().double_value(&[]);
                assert!(off < 1e-9, "step {count}: {found} instead of {expected:?}");
            }
        }
    }
}

/// Three layers, forward and backward, by our kernels and by libtorch's `lstm`.
/// Row S9.
#[test]
fn layers_are_the_lstm_of_libtorch() {
    let (positions, lanes, m, n) = (9, 3, 7, 21);
    let leaf =
        |shape: &[i64], phase: f64| filled(shape, phase, 0.3).to_kind(Kind::Float).set_requires_grad(true);
    let weights: Vec<Tensor> = (0..3)
        .flat_map(|layer| {
            let (phase, m) = (f64::from(layer), if layer == 0 { m } else { n });
            [
                leaf(&[4 * n, m], phase + 0.1),
                leaf(&[4 * n, n], phase + 0.2),
                leaf(&[4 * n], phase + 0.3),
                leaf(&[4 * n], phase + 0.4),
            ]
        })
        .collect();
    let inputs = leaf(&[positions, lanes, m], 0.5);
    let starts = [leaf(&[3, lanes, n], 0.6), leaf(&[3, lanes, n], 0.8)];
    let leaves: Vec<&Tensor> = weights.iter().chain(&starts).chain([&inputs]).collect();
    let given = |outputs: Tensor, hidden: Tensor, cell: Tensor| {
        let weighed =
            |x: &Tensor, phase| (x * filled(&x.size(), phase, 1.0).to_kind(Kind::Float)).sum(None::<Kind>);
        let total = weighed(&outputs, 0.1) + weighed(&hidden, 0.2) + weighed(&cell, 0.3);
        let grads = Tensor::run_backward(&[total], &leaves, false, false);
        ([outputs, hidden, cell].map(|x| x.detach()), grads)
    };
    let (outputs, hidden, cell) = inputs.lstm(&starts, &weights, true, 3, 0.0, false, false, false);
    let (expected, of_expected) = given(outputs, hidden, cell);
    let mut outputs = inputs.shallow_clone();
    let mut states = [Vec::new(), Vec::new()];
    for (layer, weights) in weights.chunks(4).enumerate() {
        let cell = of_pytorch(std::array::from_fn(|i| &weights[i]), Kernels::Fused);
        let [hidden, c] = [0, 1].map(|which: usize| starts[which].get(layer as i64));
        let (next, state) =
            Recurrent::new(Box::new(cell), None).forward(&outputs, State { hidden, cell: c }, None);
        outputs = next;
        states[0].push(state.hidden);
        states[1].push(state.cell);
    }
    let [hidden, cell] = states.map(|states| Tensor::stack(&states, 0));
    let (found, of_found) = given(outputs, hidden, cell);
    let off = |one: &Tensor, other: &Tensor| (one - other).abs().max().double_value(&[]);
    for (found, expected) in found.iter().zip(&expected) {
        assert!(off(found, expected) < 1e-5, "{}", off(found, expected));
    }
    for (number, (found, expected)) in of_found.iter().zip(&of_expected).enumerate() {
        let limit = 1e-4 * expected.abs().max().double_value(&[]).max(1.0);
        assert!(off(found, expected) < limit, "{number}: {}", off(found, expected));
    }
}
