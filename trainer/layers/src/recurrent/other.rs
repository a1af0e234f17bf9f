//! Cells without a cell state: Elman's network and the gated recurrent unit.

use segue_kernels::Kernels;
use tch::Tensor;

use super::{Cell, Map, State, Unrolled, Uses, product, read};

/// h = tanh(W^x x + W^h h' + b) (Elman 1990).
pub struct Elman {
    /// `[n, m]`.
    pub weight_x: Tensor,
    /// `[n, n]`.
    pub weight_h: Tensor,
    /// `[n]`.
    pub bias: Tensor,
    /// Of the state, where it has a bias of its own beside that of the input: `[n]`.
    pub bias_h: Option<Tensor>,
    /// What its products are computed with.
    pub kernels: Kernels,
}

impl Cell for Elman {
    fn read(&self, input: &Tensor) -> Tensor {
        product(self.kernels, input, &self.weight_x, Some(&self.bias))
    }

    fn unroll(&self, uses: Uses) -> Box<dyn Unrolled> {
        Box::new(UnrolledElman {
            from_input: uses.reads(self.kernels, &self.weight_x, Some(&self.bias)),
            from_state: Map::new(self.kernels, &self.weight_h, self.bias_h.as_ref(), uses.steps),
        })
    }
}

struct UnrolledElman {
    from_input: Option<Map>,
    from_state: Map,
}

impl Unrolled for UnrolledElman {
    fn step(&self, input: &Tensor, hidden: &Tensor, _: &Tensor, _: Option<&Tensor>) -> State {
        let hidden = self.from_state.apply(hidden, Some(&read(&self.from_input, input))).tanh();
        State { cell: hidden.shallow_clone(), hidden }
    }
}

/// The gated recurrent unit (Cho et al. 2014): r, z = σ(W^x x + W^h h' + b); g = tanh(W^gx x + b^g + r ⊙ W^gh h');
/// h = (1 − z) ⊙ g + z ⊙ h'.
pub struct Gru {
    /// `[3 n, m]`, the rows of r, z and g, as in PyTorch.
    pub weight_x: Tensor,
    /// `[3 n, n]`.
    pub weight_h: Tensor,
    /// `[3 n]`.
    pub bias: Tensor,
    /// Of the state, where it has a bias of its own beside that of the input, as in PyTorch, where r scales that of g with W^gh h': `[3 n]`.
    pub bias_h: Option<Tensor>,
    /// What its products are computed with.
    pub kernels: Kernels,
}

impl Cell for Gru {
    fn read(&self, input: &Tensor) -> Tensor {
        product(self.kernels, input, &self.weight_x, Some(&self.bias))
    }

    fn unroll(&self, uses: Uses) -> Box<dyn Unrolled> {
        Box::new(UnrolledGru {
            from_input: uses.reads(self.kernels, &self.weight_x, Some(&self.bias)),
            from_state: Map::new(self.kernels, &self.weight_h, self.bias_h.as_ref(), uses.steps),
        })
    }
}

struct UnrolledGru {
    from_input: Option<Map>,
    from_state: Map,
}

impl Unrolled for UnrolledGru {
    fn step(&self, input: &Tensor, hidden: &Tensor, cell: &Tensor, _: Option<&Tensor>) -> State {
        let n = cell.size()[1];
        let (read, from_state) = (read(&self.from_input, input), self.from_state.apply(hidden, None));
        let gates = (read.narrow(-1, 0, 2 * n) + from_state.narrow(-1, 0, 2 * n)).sigmoid();
        let (r, z) = (gates.narrow(-1, 0, n), gates.narrow(-1, n, n));
        let g: Tensor = (read.narrow(-1, 2 * n, n) + r * from_state.narrow(-1, 2 * n, n)).tanh();
        let hidden: Tensor = (1.0 - &z) * g + z * hidden;
        State { cell: hidden.shallow_clone(), hidden }
    }
}
