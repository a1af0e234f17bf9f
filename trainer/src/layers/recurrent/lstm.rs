//! LSTM cells: plain, capped or tied; with an input that state and input multiply; rewired.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tch::Tensor;

use super::{Cell, State, product};
use crate::Kernels;

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

/// f, i, j, o = σ, σ, tanh, σ(W^x x + W^h h' + b); c = f ⊙ c' + i ⊙ j; h = o ⊙ tanh(c) (Hochreiter and Schmidhuber 1997; Melis 2023, eq. 2.1).
pub struct Lstm {
    /// What it takes in.
    pub gate: InputGate,
    /// Of the input: `[4 n, m]`, the rows of f, then those of j, o and, unless it is tied, i.
    pub weight_x: Tensor,
    /// Of the state: `[4 n, n]`.
    pub weight_h: Tensor,
    /// Of f, which starts by a law of its own: `[n]`.
    pub bias_f: Tensor,
    /// Of j, o and i: `[3 n]`.
    pub bias: Tensor,
    /// What its products are computed with.
    pub kernels: Kernels,
}

impl Cell for Lstm {
    fn read(&self, input: &Tensor) -> Tensor {
        let bias = Tensor::cat(&[&self.bias_f, &self.bias], 0);
        product(self.kernels, input, &self.weight_x, Some(&bias))
    }

    fn step(&self, read: &Tensor, hidden: &Tensor, cell: &Tensor, _: Option<&Tensor>) -> State {
        let gates = read + product(self.kernels, hidden, &self.weight_h, None);
        let n = cell.size()[1];
        let gate = |number: i64| gates.narrow(-1, number * n, n);
        let (f, j, o) = (gate(0).sigmoid(), gate(1).tanh(), gate(2).sigmoid());
        let i = if self.gate == InputGate::Tied { 1.0 - &f } else { gate(3).sigmoid() };
        let cell = self.gate.update(&i, &f, &j, cell);
        State { hidden: o * cell.tanh(), cell }
    }
}

/// The multiplicative LSTM: an LSTM whose h' is h^m = (W^mx x) ⊙ (W^mh h') (Krause et al. 2017; Melis 2023, §2.3.2).
pub struct Multiplicative {
    /// The LSTM.
    pub inner: Lstm,
    /// `[n, m]`.
    pub weight_mx: Tensor,
    /// `[n, n]`.
    pub weight_mh: Tensor,
}

impl Cell for Multiplicative {
    fn read(&self, input: &Tensor) -> Tensor {
        let factor = product(self.inner.kernels, input, &self.weight_mx, None);
        Tensor::cat(&[self.inner.read(input), factor], -1)
    }

    fn step(&self, read: &Tensor, hidden: &Tensor, cell: &Tensor, mask: Option<&Tensor>) -> State {
        let (all, n) = (read.size()[1], cell.size()[1]);
        let (gates, factor) = (read.narrow(-1, 0, all - n), read.narrow(-1, all - n, n));
        let hidden = factor * product(self.inner.kernels, hidden, &self.weight_mh, None);
        self.inner.step(&gates, &hidden, cell, mask)
    }
}

/// The rewired LSTM (Melis 2023, §4.1): the forget gate sees what is about to be written, the output gate what was written.
///
/// i, j = σ, tanh(W^x x + W^h h' + b); f = σ(W^fu (i ⊙ j) + W^fh h' + b^f) with i as it is; c = f ⊙ c' + min(i, 1 − f) ⊙ j;
/// o = σ(W^oc (c ⊙ mask) + b^o); h = o ⊙ tanh(c), of c without its mask.
pub struct Rewired {
    /// What it takes in.
    pub gate: InputGate,
    /// Of the input: `[2 n, m]`, the rows of i, then those of j.
    pub weight_x: Tensor,
    /// Of the state: `[3 n, n]`, the rows of i, j and f.
    pub weight_h: Tensor,
    /// Of i ⊙ j to f: `[n, n]`.
    pub weight_fu: Tensor,
    /// Of c to o: `[n, n]`.
    pub weight_oc: Tensor,
    /// Of i and j: `[2 n]`.
    pub bias: Tensor,
    /// Of f: `[n]`.
    pub bias_f: Tensor,
    /// Of o: `[n]`.
    pub bias_o: Tensor,
    /// What its products are computed with.
    pub kernels: Kernels,
}

impl Cell for Rewired {
    fn read(&self, input: &Tensor) -> Tensor {
        product(self.kernels, input, &self.weight_x, Some(&self.bias))
    }

    fn step(&self, read: &Tensor, hidden: &Tensor, cell: &Tensor, mask: Option<&Tensor>) -> State {
        let n = cell.size()[1];
        let from_state = product(self.kernels, hidden, &self.weight_h, None);
        let entering = read + from_state.narrow(-1, 0, 2 * n);
        let (i, j) = (entering.narrow(-1, 0, n).sigmoid(), entering.narrow(-1, n, n).tanh());
        let written = product(self.kernels, &(&i * &j), &self.weight_fu, Some(&self.bias_f));
        let f = (written + from_state.narrow(-1, 2 * n, n)).sigmoid();
        let cell = self.gate.update(&i, &f, &j, cell);
        let seen = mask.map_or_else(|| cell.shallow_clone(), |mask| &cell * mask);
        let o = product(self.kernels, &seen, &self.weight_oc, Some(&self.bias_o)).sigmoid();
        State { hidden: o * cell.tanh(), cell }
    }
}
