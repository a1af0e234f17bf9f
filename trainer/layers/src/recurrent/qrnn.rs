//! Quasi-recurrent layers: what would be a recurrent product is one over neighbouring inputs, all positions at once (Bradbury et al. 2017).

use segue_kernels::Kernels;
use tch::Tensor;

use super::map::product;
use super::pool::pool;
use super::{Layer, State};

/// f, z, o = σ, tanh, σ(W \[x_{t−k+1} .. x_t\] + b); c = f ⊙ c' + (1 − f) ⊙ z; h = o ⊙ c (Bradbury et al. 2017, §2 and eq. 4).
///
/// f is what is kept, as in their paper. Their published kernel scales z by it instead: that is the layer of −W and −b in the rows of f.
pub struct Qrnn {
    /// `[3 n, window · m]`, the rows of f, then those of z and o; of its columns, those of x_t come last.
    pub weight_x: Tensor,
    /// Of f: `[n]`.
    pub bias_f: Tensor,
    /// Of z and o: `[2 n]`.
    pub bias: Tensor,
    /// Neighbouring inputs that a position reads, itself the last.
    pub window: usize,
    /// What its products are computed with.
    pub kernels: Kernels,
}

impl Layer for Qrnn {
    /// Its state is c, and of the inputs the last `window` − 1, side by side: `[lanes, (window − 1) · m]`. No gate sees h', so that a mask
    /// has no place.
    fn forward(&self, inputs: &Tensor, start: State, _: Option<&Tensor>) -> (Tensor, State) {
        let (size, before) = (inputs.size(), self.window as i64 - 1);
        let [positions, lanes, m] = [size[0], size[1], size[2]];
        let carried = start.hidden.view([lanes, before, m]).transpose(0, 1);
        let all = Tensor::cat(&[&carried.to_kind(inputs.kind()), inputs], 0);
        let shifted: Vec<Tensor> = (0..=before).map(|first| all.narrow(0, first, positions)).collect();
        let biases = Tensor::cat(&[&self.bias_f, &self.bias], 0);
        let scores = product(self.kernels, &Tensor::cat(&shifted, -1), &self.weight_x, Some(&biases));
        let (outputs, cell) = pool(self.kernels, &scores, &start.cell);
        let last = all.narrow(0, positions, before).transpose(0, 1).reshape([lanes, before * m]);
        (outputs, State { hidden: last, cell })
    }
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind};

    use super::*;

    /// sin(1.3 k + phase) · scale, row by row.
    fn filled(shape: &[i64], phase: f64, scale: f64) -> Tensor {
        let count = shape.iter().product::<i64>();
        ((Tensor::arange(count, (Kind::Double, Device::Cpu)) * 1.3 + phase).sin() * scale).view(shape)
    }

    /// The layer of the reference numbers, whose rows are those of z, f and o.
    fn reference() -> Qrnn {
        let (weight, bias) = (filled(&[6, 4], 0.3, 0.8), filled(&[6], 0.5, 0.2));
        let rows = |x: &Tensor, gate: i64| x.narrow(0, 2 * gate, 2);
        Qrnn {
            weight_x: Tensor::cat(&[rows(&weight, 1), rows(&weight, 0), rows(&weight, 2)], 0),
            bias_f: rows(&bias, 1),
            bias: Tensor::cat(&[rows(&bias, 0), rows(&bias, 2)], 0),
            window: 2,
            kernels: Kernels::Plain,
        }
    }

    fn zeros(width: i64) -> Tensor {
        Tensor::zeros([1, width], (Kind::Double, Device::Cpu))
    }

    /// Row S16.
    #[test]
    fn a_window_of_two_gives_the_reference_numbers() {
        let inputs: Vec<Tensor> = (0..3).map(|t| filled(&[1, 2], 0.3 + f64::from(t), 0.5)).collect();
        let cells = [[-0.086154013, 0.147153639], [0.149515707, 0.434835398], [0.401789861, 0.344347482]];
        let outputs = [[-0.037082392, 0.062164244], [0.053453042, 0.225098500], [0.184423441, 0.222794798]];
        for (steps, (cell, output)) in (1..).zip(cells.iter().zip(outputs)) {
            let inputs = Tensor::stack(&inputs[..steps], 0);
            let start = State { hidden: zeros(2), cell: zeros(2) };
            let (found, state) = reference().forward(&inputs, start, None);
            let near = |found: &Tensor, expected: &[f64]| {
                let off = (found.view([-1]) - Tensor::from_slice(expected)).abs().max().double_value(&[]);
                assert!(off < 1e-9, "{found} instead of {expected:?}");
            };
            near(&state.cell, cell);
            near(&found.get(steps as i64 - 1), &output);
        }
    }

    /// Row S16.
    #[test]
    fn two_half_windows_with_what_is_carried_are_one() {
        for window in [1, 2, 4] {
            let layer = Qrnn {
                weight_x: filled(&[9, 2 * window], 0.4, 0.8),
                bias_f: filled(&[3], 0.2, 0.5),
                bias: filled(&[6], 0.9, 0.5),
                window: window as usize,
                kernels: Kernels::Plain,
            };
            let zeros = |width| Tensor::zeros([5, width], (Kind::Double, Device::Cpu));
            let start = || State { hidden: zeros(2 * (window - 1)), cell: zeros(3) };
            let inputs = filled(&[8, 5, 2], 0.1, 1.0);
            let (whole, end) = layer.forward(&inputs, start(), None);
            // The second piece is shorter than a window of four.
            let (first, between) = layer.forward(&inputs.narrow(0, 0, 6), start(), None);
            let (second, state) = layer.forward(&inputs.narrow(0, 6, 2), between, None);
            assert!(Tensor::cat(&[first, second], 0).allclose(&whole, 0.0, 1e-14, false));
            assert!(state.cell.allclose(&end.cell, 0.0, 1e-14, false) && state.hidden.equal(&end.hidden));
        }
    }

    /// The published kernel's c = f ⊙ z + (1 − f) ⊙ c' is ours with the rows of f turned.
    /// Row S16.
    #[test]
    fn the_other_orientation_of_f_is_a_sign() {
        let inputs = filled(&[3, 1, 2], 0.3, 0.5);
        let layer = reference();
        let start = || State { hidden: zeros(2), cell: zeros(2) };
        let turned = |x: &Tensor| Tensor::cat(&[-x.narrow(0, 0, 2), x.narrow(0, 2, 4)], 0);
        let other = Qrnn { weight_x: turned(&layer.weight_x), bias_f: -&layer.bias_f, ..reference() };
        let (found, _) = other.forward(&inputs, start(), None);
        let shifted = Tensor::cat(&[zeros(2).unsqueeze(0), inputs.narrow(0, 0, 2)], 0);
        let bias = Tensor::cat(&[&layer.bias_f, &layer.bias], 0);
        let scores = Tensor::cat(&[shifted, inputs], -1).linear(&layer.weight_x, Some(&bias));
        let mut cell = zeros(2);
        for t in 0..3 {
            let gates = scores.get(t);
            let (f, z) = (gates.narrow(1, 0, 2).sigmoid(), gates.narrow(1, 2, 2).tanh());
            cell = &f * z + (1.0 - &f) * cell;
            let expected = gates.narrow(1, 4, 2).sigmoid() * &cell;
            assert!(found.get(t).allclose(&expected, 0.0, 1e-14, false));
        }
    }
}
