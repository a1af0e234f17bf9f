//! What gates do place by place: one pass there and one back where a kernel of ours can, tensor by tensor elsewhere.

use std::ffi::CStr;

use schemars::JsonSchema;
use segue_kernels::Kernels;
use segue_kernels::libtorch::{Pointwise, pointwise};
use segue_kernels::simd::exp;
use serde::{Deserialize, Serialize};
use tch::Tensor;

use super::State;

/// How much of the candidate a cell takes in, where i is the input gate and f the forget gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InputGate {
    /// i.
    Plain,
    /// min(i, 1 − f), so that no cell leaves [−1, 1] (Melis 2023, §4.6).
    Capped,
    /// 1 − f: the cell has no input gate of its own.
    Tied,
}

impl InputGate {
    /// c = f ⊙ c' + gate ⊙ j; all `[lanes, n]`.
    fn update(self, input: &Tensor, forget: &Tensor, candidate: &Tensor, cell: &Tensor) -> Tensor {
        let gate = match self {
            Self::Plain => input.shallow_clone(),
            Self::Capped => input.minimum(&(1.0 - forget)),
            Self::Tied => 1.0 - forget,
        };
        forget * cell + gate * candidate
    }
}

/// Part `number` of the `n` wide parts of `x`, `[lanes, parts · n]`.
fn part(x: &Tensor, number: i64, n: i64) -> Tensor {
    x.narrow(-1, number * n, n)
}

/// The state after c' = `cell`, `[lanes, n]`, by `scores` of f, j, o and, unless it is tied, i before their squashing, side by side,
/// `[lanes, 4 n]`: c = f ⊙ c' + gate ⊙ j, h = o ⊙ tanh(c).
pub(super) fn lstm(kernels: Kernels, gate: InputGate, scores: &Tensor, cell: &Tensor) -> State {
    let n = cell.size()[1];
    if kernels.fuse(scores) {
        let inputs = [scores, cell];
        let [hidden, cell] = match gate {
            InputGate::Plain => pointwise(&inputs, n, LstmCell(Plain)),
            InputGate::Capped => pointwise(&inputs, n, LstmCell(Capped)),
            InputGate::Tied => pointwise(&inputs, n, TiedCell),
        };
        return State { hidden, cell };
    }
    let (f, j, o) = (part(scores, 0, n).sigmoid(), part(scores, 1, n).tanh(), part(scores, 2, n).sigmoid());
    let i = if gate == InputGate::Tied { 1.0 - &f } else { part(scores, 3, n).sigmoid() };
    let cell = gate.update(&i, &f, &j, cell);
    State { hidden: o * cell.tanh(), cell }
}

/// f, i and o, `[lanes, n]` each, by the scores that [`lstm`] takes.
pub(super) fn opened(gate: InputGate, scores: &Tensor, n: i64) -> [Tensor; 3] {
    let (f, o) = (part(scores, 0, n).sigmoid(), part(scores, 2, n).sigmoid());
    let i = if gate == InputGate::Tied { 1.0 - &f } else { part(scores, 3, n).sigmoid() };
    [f, i, o]
}

/// i ⊙ j, `[lanes, n]`, by the scores of i and j, side by side.
pub(super) fn written(kernels: Kernels, scores: &Tensor) -> Tensor {
    let n = scores.size()[1] / 2;
    if kernels.fuse(scores) {
        let [written] = pointwise(&[scores], n, Written);
        return written;
    }
    part(scores, 0, n).sigmoid() * part(scores, 1, n).tanh()
}

/// c = f ⊙ c' + gate ⊙ j, `[lanes, n]`, by the scores of i and j, side by side, and those of f.
pub(super) fn rewired(
    kernels: Kernels,
    gate: InputGate,
    entering: &Tensor,
    forget: &Tensor,
    cell: &Tensor,
) -> Tensor {
    let n = cell.size()[1];
    if kernels.fuse(entering) {
        let inputs = [entering, forget, cell];
        let [cell] = match gate {
            InputGate::Plain => pointwise(&inputs, n, RewiredCell(Plain)),
            InputGate::Capped => pointwise(&inputs, n, RewiredCell(Capped)),
            InputGate::Tied => pointwise(&inputs, n, RewiredCell(Tied)),
        };
        return cell;
    }
    gate.update(&part(entering, 0, n).sigmoid(), &forget.sigmoid(), &part(entering, 1, n).tanh(), cell)
}

/// h = o ⊙ tanh(c), by the scores of o; all `[lanes, n]`.
pub(super) fn output(kernels: Kernels, scores: &Tensor, cell: &Tensor) -> Tensor {
    if kernels.fuse(scores) {
        let [hidden] = pointwise(&[scores, cell], cell.size()[1], Output);
        return hidden;
    }
    scores.sigmoid() * cell.tanh()
}

/// 2σ(`scores`) ⊙ x; all `[lanes, width]`.
pub(super) fn scaled(kernels: Kernels, scores: &Tensor, x: &Tensor) -> Tensor {
    if kernels.fuse(scores) {
        let [scaled] = pointwise(&[scores, x], x.size()[1], Scaled);
        return scaled;
    }
    scores.sigmoid() * 2.0 * x
}

#[inline(always)]
pub(super) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

#[inline(always)]
pub(super) fn tanh(x: f32) -> f32 {
    2.0f32.mul_add(sigmoid(2.0 * x), -1.0)
}

/// The slope of σ where it is `value`.
#[inline(always)]
pub(super) fn sigmoid_slope(value: f32) -> f32 {
    value * (1.0 - value)
}

/// The slope of tanh where it is `value`.
#[inline(always)]
pub(super) fn tanh_slope(value: f32) -> f32 {
    (-value).mul_add(value, 1.0)
}

/// An [`InputGate`] as a type: a loop that chose between them at each place would not be compiled for several at a time.
trait Gate: Copy + Send + Sync + 'static {
    /// How much of the candidate is taken in.
    fn gate(self, i: f32, f: f32) -> f32;

    /// How much of its gradient the gate hands to i; the rest, negated, is f's.
    fn to_input(self, i: f32, f: f32) -> f32;
}

#[derive(Clone, Copy)]
struct Plain;

impl Gate for Plain {
    #[inline(always)]
    fn gate(self, i: f32, _: f32) -> f32 {
        i
    }

    #[inline(always)]
    fn to_input(self, _: f32, _: f32) -> f32 {
        1.0
    }
}

#[derive(Clone, Copy)]
struct Tied;

impl Gate for Tied {
    #[inline(always)]
    fn gate(self, _: f32, f: f32) -> f32 {
        1.0 - f
    }

    #[inline(always)]
    fn to_input(self, _: f32, _: f32) -> f32 {
        0.0
    }
}

#[derive(Clone, Copy)]
struct Capped;

impl Gate for Capped {
    #[inline(always)]
    fn gate(self, i: f32, f: f32) -> f32 {
        if i > 1.0 - f { 1.0 - f } else { i }
    }

    /// At a tie both get half, as in libtorch.
    #[inline(always)]
    fn to_input(self, i: f32, f: f32) -> f32 {
        let room = 1.0 - f;
        if i < room {
            1.0
        } else if i > room {
            0.0
        } else {
            0.5
        }
    }
}

/// Scores of f, j, o and i, and c', to h and c.
#[derive(Clone, Copy)]
struct LstmCell<G>(G);

impl<G: Gate> Pointwise<5, 2> for LstmCell<G> {
    const NAME: &'static CStr = c"an LSTM cell";

    #[inline(always)]
    fn values(self, [f, j, o, i, cell]: [f32; 5]) -> [f32; 2] {
        let (f, j, o, i) = (sigmoid(f), tanh(j), sigmoid(o), sigmoid(i));
        let cell = f.mul_add(cell, self.0.gate(i, f) * j);
        [o * tanh(cell), cell]
    }

    #[inline(always)]
    fn slopes(self, [f, j, o, i, before]: [f32; 5], [of_h, of_c]: [f32; 2]) -> [f32; 5] {
        let (f, j, o, i) = (sigmoid(f), tanh(j), sigmoid(o), sigmoid(i));
        let gate = self.0.gate(i, f);
        let shown = tanh(f.mul_add(before, gate * j));
        let of_c = (of_h * o).mul_add(tanh_slope(shown), of_c);
        let (of_gate, to_i) = (of_c * j, self.0.to_input(i, f));
        let of_f = of_c * before - (1.0 - to_i) * of_gate;
        [
            of_f * sigmoid_slope(f),
            of_c * gate * tanh_slope(j),
            of_h * shown * sigmoid_slope(o),
            to_i * of_gate * sigmoid_slope(i),
            of_c * f,
        ]
    }
}

/// Scores of f, j and o, and c', to h and c of a cell whose input gate is 1 − f.
#[derive(Clone, Copy)]
struct TiedCell;

impl Pointwise<4, 2> for TiedCell {
    const NAME: &'static CStr = c"a tied LSTM cell";

    #[inline(always)]
    fn values(self, [f, j, o, cell]: [f32; 4]) -> [f32; 2] {
        LstmCell(Tied).values([f, j, o, 0.0, cell])
    }

    #[inline(always)]
    fn slopes(self, [f, j, o, cell]: [f32; 4], of_y: [f32; 2]) -> [f32; 4] {
        let [f, j, o, _, cell] = LstmCell(Tied).slopes([f, j, o, 0.0, cell], of_y);
        [f, j, o, cell]
    }
}

/// Scores of i and j to i j.
#[derive(Clone, Copy)]
struct Written;

impl Pointwise<2, 1> for Written {
    const NAME: &'static CStr = c"what a cell writes";

    #[inline(always)]
    fn values(self, [i, j]: [f32; 2]) -> [f32; 1] {
        [sigmoid(i) * tanh(j)]
    }

    #[inline(always)]
    fn slopes(self, [i, j]: [f32; 2], [of_y]: [f32; 1]) -> [f32; 2] {
        let (i, j) = (sigmoid(i), tanh(j));
        [of_y * j * sigmoid_slope(i), of_y * i * tanh_slope(j)]
    }
}

/// Scores of i, j and f, and c', to c.
#[derive(Clone, Copy)]
struct RewiredCell<G>(G);

impl<G: Gate> Pointwise<4, 1> for RewiredCell<G> {
    const NAME: &'static CStr = c"a rewired cell";

    #[inline(always)]
    fn values(self, [i, j, f, cell]: [f32; 4]) -> [f32; 1] {
        let (i, j, f) = (sigmoid(i), tanh(j), sigmoid(f));
        [f.mul_add(cell, self.0.gate(i, f) * j)]
    }

    #[inline(always)]
    fn slopes(self, [i, j, f, before]: [f32; 4], [of_c]: [f32; 1]) -> [f32; 4] {
        let (i, j, f) = (sigmoid(i), tanh(j), sigmoid(f));
        let (of_gate, to_i) = (of_c * j, self.0.to_input(i, f));
        let of_f = of_c * before - (1.0 - to_i) * of_gate;
        [
            to_i * of_gate * sigmoid_slope(i),
            of_c * self.0.gate(i, f) * tanh_slope(j),
            of_f * sigmoid_slope(f),
            of_c * f,
        ]
    }
}

/// The score of o, and c, to h.
#[derive(Clone, Copy)]
struct Output;

impl Pointwise<2, 1> for Output {
    const NAME: &'static CStr = c"a cell's output";

    #[inline(always)]
    fn values(self, [o, cell]: [f32; 2]) -> [f32; 1] {
        [sigmoid(o) * tanh(cell)]
    }

    #[inline(always)]
    fn slopes(self, [o, cell]: [f32; 2], [of_y]: [f32; 1]) -> [f32; 2] {
        let (o, shown) = (sigmoid(o), tanh(cell));
        [of_y * shown * sigmoid_slope(o), of_y * o * tanh_slope(shown)]
    }
}

/// A score, and x, to 2σ(score) x.
#[derive(Clone, Copy)]
struct Scaled;

impl Pointwise<2, 1> for Scaled {
    const NAME: &'static CStr = c"a mogrifier's gate";

    #[inline(always)]
    fn values(self, [score, x]: [f32; 2]) -> [f32; 1] {
        [2.0 * sigmoid(score) * x]
    }

    #[inline(always)]
    fn slopes(self, [score, x]: [f32; 2], [of_y]: [f32; 1]) -> [f32; 2] {
        let gate = sigmoid(score);
        [of_y * 2.0 * x * sigmoid_slope(gate), of_y * 2.0 * gate]
    }
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind};

    use super::*;

    const ROWS: i64 = 3;
    /// Neither a multiple of what is computed side by side nor less.
    const N: i64 = 37;

    fn wave(columns: i64, speed: f64) -> Tensor {
        let values = (Tensor::arange(ROWS * columns * N, (Kind::Double, Device::Cpu)) * speed).sin() * 3.0;
        values.view([ROWS, columns * N])
    }

    /// Values of `f` and gradients of its inputs, of `widths` columns each, by our kernels in f32 and by libtorch in f64.
    fn compare(widths: &[i64], f: impl Fn(Kernels, &[Tensor]) -> Vec<Tensor>) {
        let of = |kernels, kind| {
            let inputs: Vec<Tensor> = (widths.iter().zip(1..))
                .map(|(&columns, i)| wave(columns, 0.7 * f64::from(i)).to_kind(kind).set_requires_grad(true))
                .collect();
            let ys = f(kernels, &inputs);
            let loss =
                |(y, k): (&Tensor, i32)| (y * wave(1, 0.1 * f64::from(k)).to_kind(kind)).sum(None::<Kind>);
            let total = ys.iter().zip(1..).map(loss).reduce(|a, b| a + b).unwrap();
            let grads = Tensor::run_backward(&[total], &inputs, false, false);
            ys.iter().map(Tensor::detach).chain(grads).collect::<Vec<_>>()
        };
        let (ours, exact) = (of(Kernels::Fused, Kind::Float), of(Kernels::Plain, Kind::Double));
        for (number, (ours, exact)) in ours.iter().zip(&exact).enumerate() {
            assert_eq!(ours.size(), exact.size());
            let error = (ours - exact).abs().max().double_value(&[]);
            assert!(error < 3e-6, "{number}: {error}");
        }
    }

    /// Row M1.
    #[test]
    fn fused_cells_are_those_of_double_precision() {
        for gate in [InputGate::Plain, InputGate::Capped, InputGate::Tied] {
            let gates = if gate == InputGate::Tied { 3 } else { 4 };
            compare(&[gates, 1], |kernels, x| {
                let state = lstm(kernels, gate, &x[0], &x[1]);
                vec![state.hidden, state.cell]
            });
        }
    }

    /// Rows M2, M4.
    #[test]
    fn fused_gates_are_those_of_double_precision() {
        compare(&[1, 1], |kernels, x| vec![scaled(kernels, &x[0], &x[1])]);
        compare(&[1, 1], |kernels, x| vec![output(kernels, &x[0], &x[1])]);
        compare(&[2], |kernels, x| vec![written(kernels, &x[0])]);
        for gate in [InputGate::Plain, InputGate::Capped, InputGate::Tied] {
            compare(&[2, 1, 1], |kernels, x| vec![rewired(kernels, gate, &x[0], &x[1], &x[2])]);
        }
    }

    /// Where i is 1 − f, as of scores that are all 0, both have half of the gradient.
    /// Row M1.
    #[test]
    fn ties_are_those_of_libtorch() {
        let gradients = |kernels| {
            let scores = Tensor::zeros([1, 4 * N], (Kind::Float, Device::Cpu));
            let scores =
                scores.slice_scatter(&(Tensor::ones([1, N], (Kind::Float, Device::Cpu))), 1, N, 2 * N, 1);
            let scores = scores.set_requires_grad(true);
            let cell = Tensor::ones([1, N], (Kind::Float, Device::Cpu));
            lstm(kernels, InputGate::Capped, &scores, &cell).cell.sum(None::<Kind>).backward();
            scores.grad()
        };
        let difference = (gradients(Kernels::Fused) - gradients(Kernels::Plain)).abs().max();
        assert!(difference.double_value(&[]) < 1e-6);
    }

    /// Only one of two values has a part in the loss.
    #[test]
    fn a_value_without_a_gradient_adds_none() {
        compare(&[4, 1], |kernels, x| vec![lstm(kernels, InputGate::Capped, &x[0], &x[1]).hidden]);
        compare(&[4, 1], |kernels, x| vec![lstm(kernels, InputGate::Capped, &x[0], &x[1]).cell]);
    }

    #[test]
    fn numbers_beyond_all_bounds_stay_numbers() {
        let scores = Tensor::from_slice(&[1e30f32, -1e30, 1e30, -1e30]).repeat([N]).view([1, 4 * N]);
        let state = lstm(
            Kernels::Fused,
            InputGate::Capped,
            &scores,
            &Tensor::ones([1, N], (Kind::Float, Device::Cpu)),
        );
        assert_eq!(state.hidden.isfinite().all().int64_value(&[]), 1);
        assert_eq!(state.cell.isfinite().all().int64_value(&[]), 1);
    }

    /// What one step hands back is bounded however far scores lie out: a gradient that is beyond all bounds is a product over many steps.
    /// Rows M1, M2.
    #[test]
    fn slopes_stay_within_their_bounds_whatever_the_scores() {
        const SCORES: [f32; 9] = [-1e30, -100.0, -20.0, -3.0, 0.0, 3.0, 20.0, 100.0, 1e30];
        for score in SCORES {
            let [of_score, of_x] = Scaled.slopes([score, -0.8], [1.0]);
            assert!(
                of_score.abs() <= 0.8 / 2.0 && (0.0..=2.0).contains(&of_x),
                "{score}: {of_score}, {of_x}"
            );
        }
        let within = |found: &[f32], most: &[f32]| found.iter().zip(most).all(|(x, most)| x.abs() <= *most);
        for f in SCORES {
            for j in SCORES {
                for o in SCORES {
                    for i in SCORES {
                        let found = LstmCell(Capped).slopes([f, j, o, i, -1.0], [1.0, 1.0]);
                        // c has at most 1 of itself and 1 of h; its parts have that times what they meet, c' and j of at most 1.
                        assert!(
                            within(&found, &[2.0 * 2.0 / 4.0, 2.0, 1.0 / 4.0, 2.0 / 4.0, 2.0]),
                            "{found:?}"
                        );
                    }
                }
            }
        }
    }
}
