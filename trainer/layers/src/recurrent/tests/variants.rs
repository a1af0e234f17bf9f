//! The multiplicative LSTM and the variants of Melis 2023, §2.3: factors, norms and scales, by numbers of the same program.

use super::*;

/// The multiplicative LSTM of the reference numbers.
pub(super) fn multiplicative() -> Multiplicative {
    of_inner(lstm(InputGate::Capped))
}

fn of_inner(inner: Lstm) -> Multiplicative {
    Multiplicative { inner, weight_mx: matrix(N, M, 16.0), weight_mh: matrix(N, N, 16.05) }
}

/// Left or right factors of all gates, one below the other.
fn factors(rows: i64, columns: i64, add: f64) -> Tensor {
    Tensor::cat(&LSTM.map(|s| matrix(rows, columns, s + add)), 0)
}

/// The capped LSTM whose gates are products of this rank: by number s, s + 0.1 and s + 0.2 for the input, s + 0.15 and s + 0.25 for the state.
fn factorised(rank: i64) -> Lstm {
    Lstm {
        weight_x: Matrix::Factors { left: factors(N, rank, 0.1), right: factors(rank, M, 0.2) },
        weight_h: Matrix::Factors { left: factors(N, rank, 0.15), right: factors(rank, N, 0.25) },
        ..lstm(InputGate::Capped)
    }
}

/// The capped LSTM with gains of 1 + ½ cos(0.9 i + s + 0.3).
fn normed() -> Lstm {
    let gains = 1.0 + Tensor::cat(&LSTM.map(|s| vector(N, s + 0.3)), 0);
    Lstm { norm: Some(GateNorm { gains }), ..lstm(InputGate::Capped) }
}

/// Row M3.
#[test]
fn the_multiplicative_lstm_gives_the_reference_numbers() {
    let found = step(&multiplicative(), None);
    assert_near(&found.cell, &[0.59093528, -0.030378603], PRINTED);
    assert_near(&found.hidden, &[0.310350027, -0.015112082], PRINTED);
    // The same from h^m = W^mx x ⊙ W^mh h', whose numbers are known too, in the place of h'.
    let mapped = input().matmul(&matrix(N, M, 16.0).tr()) * hidden().matmul(&matrix(N, N, 16.05).tr());
    assert_near(&mapped, &[0.014195591, 0.023821566], PRINTED);
    let inner = lstm(InputGate::Capped);
    let expected = inner.unroll(AHEAD).step(&inner.read(&input()), &mapped, &cell_state(), None);
    assert!(found.cell.allclose(&expected.cell, 0.0, 1e-15, false));
}

/// Where W^mx x is 1 everywhere, h^m is W^mh h'.
/// Row M3.
#[test]
fn a_factor_of_one_is_an_lstm_on_the_mapped_state() {
    // 2 · 0.5 = 1.
    let weight_mx = Tensor::cat(&[row(&[2.0, 0.0, 0.0]), row(&[2.0, 0.0, 0.0])], 0);
    let found = step(&Multiplicative { weight_mx, ..multiplicative() }, None);
    let mapped = hidden().matmul(&matrix(N, N, 16.05).transpose(0, 1));
    let inner = lstm(InputGate::Capped);
    let expected = inner.unroll(AHEAD).step(&inner.read(&input()), &mapped, &cell_state(), None);
    assert!(found.cell.allclose(&expected.cell, 0.0, 1e-15, false));
    assert!(found.hidden.allclose(&expected.hidden, 0.0, 1e-15, false));
}

/// Row M3.
#[test]
fn gates_of_low_rank_give_the_reference_numbers() {
    for (rank, cell, hidden) in [
        (1, [0.53077463, 0.057293304], [0.288189652, 0.028315082]),
        (2, [0.512652337, 0.051408143], [0.267288425, 0.023556511]),
        (3, [0.498862972, -0.003105385], [0.253237101, -0.001368061]),
        (4, [0.495071501, -0.064537192], [0.254784036, -0.028765323]),
    ] {
        let found = step(&factorised(rank), None);
        assert_near(&found.cell, &cell, PRINTED);
        assert_near(&found.hidden, &hidden, PRINTED);
    }
    let both = step(&of_inner(factorised(1)), None);
    assert_near(&both.cell, &[0.546368349, 0.041579438], PRINTED);
    assert_near(&both.hidden, &[0.300782009, 0.021403485], PRINTED);
}

/// Each gate's matrix times the identity is that matrix.
/// Row M3.
#[test]
fn factors_of_the_full_rank_are_the_whole_matrix() {
    let identity = |width: i64| Tensor::eye(width, (Kind::Double, Device::Cpu)).repeat([4, 1]);
    let whole = lstm(InputGate::Capped);
    let factors = |matrix: &Matrix, width| Matrix::Factors { left: matrix.whole(), right: identity(width) };
    let cell = Lstm {
        weight_x: factors(&whole.weight_x, M),
        weight_h: factors(&whole.weight_h, N),
        ..lstm(InputGate::Capped)
    };
    assert!(cell.weight_x.whole().equal(&whole.weight_x.whole()));
    assert!(step(&cell, None).hidden.equal(&step(&whole, None).hidden));
}

/// Row M3.
#[test]
fn normed_gates_give_the_reference_numbers() {
    let found = step(&normed(), None);
    assert_near(&found.cell, &[0.941474353, -0.471692302], PRINTED);
    assert_near(&found.hidden, &[0.632325741, -0.132558362], PRINTED);
    let one_by_one = normed().unroll(ONE_BY_ONE).step(&input(), &hidden(), &cell_state(), None);
    assert_near(&one_by_one.hidden, &[0.632325741, -0.132558362], PRINTED);
    let both = step(&of_inner(normed()), None);
    assert_near(&both.cell, &[0.938574958, -0.439073174], PRINTED);
    assert_near(&both.hidden, &[0.624245912, -0.129225215], PRINTED);
    let layer = Recurrent::new(Box::new(normed()), None);
    let (cell, hidden) = ([-0.43251438, 0.953932476], [-0.117334425, 0.553182412]);
    assert_fifty_steps(&layer, &cell, &hidden);
}

/// Row M3.
#[test]
fn scaled_inputs_give_the_reference_numbers() {
    let layer = || {
        let scales = Scales { input: 1.0 + vector(M, 21.0), state: 1.0 + vector(N, 22.0) };
        Recurrent::new(Box::new(lstm(InputGate::Capped)), None).with_scales(Some(scales))
    };
    let start = State { hidden: hidden(), cell: cell_state() };
    let (_, state) = layer().forward(&input().unsqueeze(0), start, None);
    assert_near(&state.cell, &[0.588725842, -0.042194115], PRINTED);
    assert_near(&state.hidden, &[0.306506157, -0.020836459], PRINTED);
    let (cell, hidden) = ([0.27360945, 0.480672349], [0.168065616, 0.250642209]);
    assert_fifty_steps(&layer(), &cell, &hidden);
}

/// Vectors of ones are no vectors, and those of a state multiply what a mask leaves of it.
/// Row M3.
#[test]
fn scales_of_one_change_no_bit_and_others_join_a_mask() {
    let inputs = Tensor::stack(&[input(), input() * -0.5, input() * 2.0], 0);
    let of = |scales, mask: &Tensor| {
        let start = State { hidden: hidden(), cell: cell_state() };
        let layer = Recurrent::new(Box::new(rewired()), None).with_scales(scales);
        layer.forward(&inputs, start, Some(mask)).0
    };
    let (ones, mask) = (|width| Tensor::ones([width], (Kind::Double, Device::Cpu)), row(&[2.0, 0.5]));
    let plain = of(None, &mask);
    assert!(of(Some(Scales { input: ones(M), state: ones(N) }), &mask).equal(&plain));
    // The output gate sees c through the mask alone: a scale of the state is not the same as a mask.
    let scaled =
        of(Some(Scales { input: ones(M), state: Tensor::from_slice(&[2.0, 0.5]) }), &row(&[1.0, 1.0]));
    assert!(!scaled.equal(&plain));
    let first = |outputs: &Tensor| outputs.get(0);
    let masked = rewired();
    let expected = masked.unroll(AHEAD).step(
        &masked.read(&input()),
        &(hidden() * row(&[2.0, 0.5])),
        &cell_state(),
        Some(&row(&[1.0, 1.0])),
    );
    assert!(first(&scaled).equal(&expected.hidden));
}

/// Fifty steps from a state of zeros over inputs x cos t.
fn assert_fifty_steps(layer: &Recurrent, cell: &[f64], hidden: &[f64]) {
    let inputs: Vec<Tensor> = (0..50).map(|t| input() * f64::from(t).cos()).collect();
    let zeros = || Tensor::zeros([1, N], (Kind::Double, Device::Cpu));
    let (_, state) =
        layer.forward(&Tensor::stack(&inputs, 0), State { hidden: zeros(), cell: zeros() }, None);
    assert_near(&state.cell, cell, PRINTED);
    assert_near(&state.hidden, hidden, PRINTED);
}
