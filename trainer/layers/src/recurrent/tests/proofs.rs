//! What cells and gates are by their equations, without a reference number.

use super::variants::multiplicative;
use super::*;

/// The mogrifier of the reference numbers, each of whose matrices is written as a product of the smaller of its sides: itself, and the identity.
/// Row M2.
#[test]
fn factors_of_the_full_rank_are_the_whole_matrix() {
    let shape = MogrifierShape { rounds: 5, rank: M.min(N) as usize, bias: false, zigzag: true };
    let specs = shape.specs("", M, N, |_| Init::Zeros);
    let fill = |spec: &ParameterSpec| {
        let parts: Vec<&str> = spec.name.split('.').collect();
        let round: i64 = parts[1].parse().unwrap();
        let writes_input = round % 2 == 1;
        // Q is [m, n] with n the smaller side, R [n, m].
        match parts[2] == if writes_input { "left" } else { "right" } {
            true => matrix(spec.shape[0], spec.shape[1], round as f64),
            false => Tensor::eye(N, (Kind::Double, Device::Cpu)),
        }
    };
    let tensors = specs.iter().map(fill).collect();
    let parameters = Parameters::from_tensors(specs, tensors, Kind::Double).with_kernels(KERNELS);
    let (factors, whole) = (shape.build("", &parameters).unwrap(), mogrifier(5, 0, true).unwrap());
    let (found, expected) = (mogrify(&factors), mogrify(&whole));
    assert!(found.0.equal(&expected.0) && found.1.equal(&expected.1));
}

/// A layer with a mogrifier of no rounds, whatever else it is made of, against its cell stepped by hand.
/// Rows M2, M24.
#[test]
fn no_rounds_are_the_plain_cell() {
    let cells: [fn() -> Box<dyn Cell>; 5] = [
        || Box::new(lstm(InputGate::Capped)),
        || Box::new(multiplicative()),
        || Box::new(rewired()),
        || Box::new(gru()),
        || Box::new(elman()),
    ];
    let inputs = Tensor::stack(&(0..6).map(|t| input() * f64::from(t).cos()).collect::<Vec<_>>(), 0);
    let start = || State { hidden: hidden(), cell: cell_state() };
    for cell in cells {
        for rank in [0, 1] {
            let layer = Recurrent::new(cell(), mogrifier(0, rank, rank == 0));
            let (outputs, end) = layer.forward(&inputs, start(), None);
            let (cell, mut state) = (cell(), start());
            let unrolled = cell.unroll(Uses { reads: 0, steps: 6 });
            for (t, read) in (0..).zip(cell.read(&inputs).unbind(0)) {
                state = unrolled.step(&read, &state.hidden, &state.cell, None);
                assert!(outputs.get(t).equal(&state.hidden));
            }
            assert!(end.cell.equal(&state.cell) && end.hidden.equal(&state.hidden));
        }
    }
}

/// The rewired cell with i, j and f of weights twenty times as large.
/// Row M4.
#[test]
fn a_rewired_cell_stays_within_one() {
    let calm = rewired();
    let cell = Rewired {
        weight_x: calm.weight_x * 20.0,
        weight_h: calm.weight_h * 20.0,
        weight_fu: calm.weight_fu * 20.0,
        ..rewired()
    };
    let largest = |cell: &Rewired| {
        let mut state = State { hidden: hidden(), cell: cell_state() };
        (0..10_000).fold(0f64, |largest, t| {
            let input = input() * (0.37 * f64::from(t)).sin();
            state = cell.unroll(AHEAD).step(&cell.read(&input), &state.hidden, &state.cell, None);
            largest.max(state.cell.abs().max().double_value(&[]))
        })
    };
    assert!(largest(&cell) <= 1.0);
    assert!(largest(&Rewired { gate: InputGate::Plain, ..cell }) > 1.0);
}

/// The output gate of a step, and the c it sees, with a mask.
fn shown(cell: &Rewired, input: &Tensor, mask: &Tensor) -> (Tensor, State) {
    let (unrolled, read) = (cell.unroll(AHEAD), cell.read(input));
    let [_, _, output] = unrolled.gates(&read, &hidden(), &cell_state(), Some(mask)).unwrap();
    (output, unrolled.step(&read, &hidden(), &cell_state(), Some(mask)))
}

/// A forget gate that is 1 lets nothing in under a cap: c is c', whatever x is. Then x changes neither the output gate nor the output, and no
/// weight of i, j and f has a gradient.
/// Row M4.
#[test]
fn an_input_that_does_not_change_the_cell_does_not_change_the_output() {
    let (leaf, mask) = (|x: Tensor| x.set_requires_grad(true), row(&[2.0, 0.5]));
    let calm = rewired();
    let cell = Rewired {
        weight_x: leaf(calm.weight_x),
        weight_h: leaf(calm.weight_h),
        weight_fu: leaf(calm.weight_fu),
        weight_oc: leaf(calm.weight_oc),
        bias_f: leaf(calm.bias_f + 1000.0),
        ..rewired()
    };
    let (output, state) = shown(&cell, &input(), &mask);
    let (other_output, other) = shown(&cell, &(input() * -3.0 + 1.0), &mask);
    assert!(state.cell.equal(&cell_state()) && other.cell.equal(&cell_state()));
    assert!(output.equal(&other_output) && state.hidden.equal(&other.hidden));
    output.sum(None::<Kind>).backward();
    for weight in [&cell.weight_x, &cell.weight_h, &cell.weight_fu, &cell.bias_f] {
        assert!(!weight.grad().defined() || weight.grad().abs().max().double_value(&[]) == 0.0);
    }
    assert!(cell.weight_oc.grad().abs().max().double_value(&[]) > 0.0);
}

/// Where x does change c, the output gate has the gradients of c, times its own slope there, and no others.
/// Row M4.
#[test]
fn the_output_gate_sees_the_input_through_the_cell_alone() {
    let (leaf, mask) = (|x: Tensor| x.set_requires_grad(true), row(&[2.0, 0.5]));
    let calm = rewired();
    let cell = Rewired {
        weight_x: leaf(calm.weight_x),
        weight_h: leaf(calm.weight_h),
        weight_fu: leaf(calm.weight_fu),
        ..rewired()
    };
    let leaves = [&cell.weight_x, &cell.weight_h, &cell.weight_fu];
    let (output, state) = shown(&cell, &input(), &mask);
    let weights = row(&[0.7, -1.3]);
    let found = Tensor::run_backward(&[(&output * &weights).sum(None::<Kind>)], &leaves, true, false);
    // o = σ(W (c ⊙ mask) + b): what c gets of it.
    let o = output.detach();
    let scores: Tensor = &weights * &o * (1.0 - &o);
    let of_cell = scores.matmul(&cell.weight_oc) * &mask;
    let expected = Tensor::run_backward(&[(&state.cell * of_cell).sum(None::<Kind>)], &leaves, false, false);
    for (found, expected) in found.iter().zip(&expected) {
        assert!(expected.abs().max().double_value(&[]) > 1e-4);
        assert!(found.allclose(expected, 0.0, 1e-15, false), "{found} instead of {expected}");
    }
}
