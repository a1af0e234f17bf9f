//! LSTM cells: plain, capped or tied; with an input that state and input multiply; rewired.

use segue_kernels::Kernels;
use tch::Tensor;

use super::gates::{self, InputGate};
use super::{Cell, Map, Matrix, State, Unrolled, Uses, product, read};

/// Against a variance of 0, as PyTorch's layers of that name have it.
const EPSILON: f64 = 1e-5;

/// f, i, j, o = σ, σ, tanh, σ(W^x x + W^h h' + b); c = f ⊙ c' + i ⊙ j; h = o ⊙ tanh(c) (Hochreiter and Schmidhuber 1997; Melis 2023, eq. 2.1).
///
/// Variants of §2.3.4 there: each gate's W^x and W^h a product L R of low rank ([`Matrix::Factors`]); or the sums of each gate normalised over
/// its n places before its bias, g ⊙ (s − mean s) / √(var s + ε) + b with s = W^x x + W^h h' (Ba et al. 2016; [`GateNorm`]).
pub struct Lstm {
    /// What it takes in.
    pub gate: InputGate,
    /// Of the input: `[4 n, m]`, the rows of f, then those of j, o and, unless it is tied, i.
    pub weight_x: Matrix,
    /// Of the state: `[4 n, n]`.
    pub weight_h: Matrix,
    /// Of f, which starts by a law of its own: `[n]`.
    pub bias_f: Tensor,
    /// Of j, o and i: `[3 n]`.
    pub bias: Tensor,
    /// The same two again, where the state has biases of its own beside those of the input, as PyTorch keeps them; they are added up.
    pub bias_h: Option<[Tensor; 2]>,
    /// Of the layer norm of each gate's sums, where there is one.
    pub norm: Option<GateNorm>,
    /// What its products are computed with.
    pub kernels: Kernels,
}

/// The layer norm of gates.
pub struct GateNorm {
    /// g of each gate, in the order of the rows: `[4 n]`.
    pub gains: Tensor,
}

impl Cell for Lstm {
    fn read(&self, input: &Tensor) -> Tensor {
        product(self.kernels, input, &self.weight_x.whole(), self.biases_of_input().as_ref())
    }

    fn unroll(&self, uses: Uses) -> Box<dyn Unrolled> {
        Box::new(self.unrolled(uses))
    }
}

impl Lstm {
    fn biases(&self) -> Tensor {
        let biases = Tensor::cat(&[&self.bias_f, &self.bias], 0);
        match &self.bias_h {
            Some(of_state) => biases + Tensor::cat(of_state, 0),
            None => biases,
        }
    }

    /// What the product of an input takes along: a norm comes before biases.
    fn biases_of_input(&self) -> Option<Tensor> {
        self.norm.is_none().then(|| self.biases())
    }

    /// The map of the input, where inputs are read one by one.
    fn map_of_input(&self, uses: Uses) -> Option<Map> {
        let map = || self.weight_x.map(self.kernels, self.biases_of_input().as_ref(), uses.reads);
        (uses.reads > 0).then(map)
    }

    fn unrolled(&self, uses: Uses) -> UnrolledLstm {
        let norm = |norm: &GateNorm| Normed { gains: norm.gains.shallow_clone(), biases: self.biases() };
        UnrolledLstm {
            gate: self.gate,
            kernels: self.kernels,
            from_input: self.map_of_input(uses),
            from_state: self.weight_h.map(self.kernels, None, uses.steps),
            norm: self.norm.as_ref().map(norm),
        }
    }
}

struct UnrolledLstm {
    gate: InputGate,
    kernels: Kernels,
    from_input: Option<Map>,
    from_state: Map,
    norm: Option<Normed>,
}

/// What sums of gates go through: gains and biases, `[gates · n]` each.
struct Normed {
    gains: Tensor,
    biases: Tensor,
}

impl Normed {
    /// `sums` and what becomes of them: `[lanes, gates · n]`.
    fn scores(&self, sums: &Tensor, n: i64) -> Tensor {
        let gates = sums.view([-1, sums.size()[1] / n, n]);
        let normed = gates.layer_norm([n], None::<&Tensor>, None::<&Tensor>, EPSILON, true);
        normed.view_as(sums) * &self.gains + &self.biases
    }
}

impl UnrolledLstm {
    /// Of f, j, o and i, `[lanes, gates · n]`, before their squashing.
    fn scores(&self, input: &Tensor, hidden: &Tensor, n: i64) -> Tensor {
        let sums = self.from_state.apply(hidden, Some(&read(&self.from_input, input)));
        match &self.norm {
            Some(norm) => norm.scores(&sums, n),
            None => sums,
        }
    }
}

impl Unrolled for UnrolledLstm {
    fn step(&self, input: &Tensor, hidden: &Tensor, cell: &Tensor, _: Option<&Tensor>) -> State {
        gates::lstm(self.kernels, self.gate, &self.scores(input, hidden, cell.size()[1]), cell)
    }

    fn gates(
        &self,
        input: &Tensor,
        hidden: &Tensor,
        cell: &Tensor,
        _: Option<&Tensor>,
    ) -> Option<[Tensor; 3]> {
        let n = cell.size()[1];
        Some(gates::opened(self.gate, &self.scores(input, hidden, n), n))
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

    fn unroll(&self, uses: Uses) -> Box<dyn Unrolled> {
        let kernels = self.inner.kernels;
        Box::new(UnrolledMultiplicative {
            // Of each position, its input comes in two parts: the LSTM's, and the factor.
            inner: self.inner.unrolled(Uses { reads: 0, ..uses }),
            from_input: self.inner.map_of_input(uses),
            factor_of_input: uses.reads(kernels, &self.weight_mx, None),
            factor_of_state: Map::new(kernels, &self.weight_mh, None, uses.steps),
        })
    }
}

struct UnrolledMultiplicative {
    inner: UnrolledLstm,
    from_input: Option<Map>,
    factor_of_input: Option<Map>,
    factor_of_state: Map,
}

impl UnrolledMultiplicative {
    /// What the LSTM inside reads: its input, and h^m.
    fn inner(&self, input: &Tensor, hidden: &Tensor, cell: &Tensor) -> (Tensor, Tensor) {
        let (gates, factor) = match (&self.from_input, &self.factor_of_input) {
            (Some(gates), Some(factor)) => (gates.apply(input, None), factor.apply(input, None)),
            _ => {
                let (all, n) = (input.size()[1], cell.size()[1]);
                (input.narrow(-1, 0, all - n), input.narrow(-1, all - n, n))
            }
        };
        (gates, factor * self.factor_of_state.apply(hidden, None))
    }
}

impl Unrolled for UnrolledMultiplicative {
    fn step(&self, input: &Tensor, hidden: &Tensor, cell: &Tensor, mask: Option<&Tensor>) -> State {
        let (gates, hidden) = self.inner(input, hidden, cell);
        self.inner.step(&gates, &hidden, cell, mask)
    }

    fn gates(
        &self,
        input: &Tensor,
        hidden: &Tensor,
        cell: &Tensor,
        mask: Option<&Tensor>,
    ) -> Option<[Tensor; 3]> {
        let (gates, hidden) = self.inner(input, hidden, cell);
        self.inner.gates(&gates, &hidden, cell, mask)
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

    fn unroll(&self, uses: Uses) -> Box<dyn Unrolled> {
        let (kernels, n) = (self.kernels, self.weight_fu.size()[0]);
        let map = |weight: &Tensor, bias| Map::new(kernels, weight, bias, uses.steps);
        Box::new(UnrolledRewired {
            gate: self.gate,
            kernels,
            from_input: uses.reads(kernels, &self.weight_x, Some(&self.bias)),
            from_state: map(&self.weight_h.narrow(0, 0, 2 * n), None),
            kept: map(&self.weight_h.narrow(0, 2 * n, n), Some(&self.bias_f)),
            written: map(&self.weight_fu, None),
            shown: map(&self.weight_oc, Some(&self.bias_o)),
        })
    }
}

struct UnrolledRewired {
    gate: InputGate,
    kernels: Kernels,
    from_input: Option<Map>,
    /// h' to i and j.
    from_state: Map,
    /// h' to f.
    kept: Map,
    /// i ⊙ j to f.
    written: Map,
    /// c to o.
    shown: Map,
}

/// A step of a rewired cell up to its output: all `[lanes, ..]`.
struct Updated {
    /// Scores of i and j, side by side.
    entering: Tensor,
    /// Scores of f.
    forget: Tensor,
    /// c.
    cell: Tensor,
    /// Scores of o.
    output: Tensor,
}

impl UnrolledRewired {
    fn update(&self, input: &Tensor, hidden: &Tensor, cell: &Tensor, mask: Option<&Tensor>) -> Updated {
        let entering = self.from_state.apply(hidden, Some(&read(&self.from_input, input)));
        let written = gates::written(self.kernels, &entering);
        let forget = self.written.apply(&written, Some(&self.kept.apply(hidden, None)));
        let cell = gates::rewired(self.kernels, self.gate, &entering, &forget, cell);
        let seen = mask.map_or_else(|| cell.shallow_clone(), |mask| &cell * mask);
        Updated { output: self.shown.apply(&seen, None), entering, forget, cell }
    }
}

impl Unrolled for UnrolledRewired {
    fn step(&self, input: &Tensor, hidden: &Tensor, cell: &Tensor, mask: Option<&Tensor>) -> State {
        let Updated { cell, output, .. } = self.update(input, hidden, cell, mask);
        State { hidden: gates::output(self.kernels, &output, &cell), cell }
    }

    fn gates(
        &self,
        input: &Tensor,
        hidden: &Tensor,
        cell: &Tensor,
        mask: Option<&Tensor>,
    ) -> Option<[Tensor; 3]> {
        let Updated { entering, forget, output, .. } = self.update(input, hidden, cell, mask);
        let input = entering.narrow(-1, 0, cell.size()[1]);
        Some([forget.sigmoid(), input.sigmoid(), output.sigmoid()])
    }
}

#[cfg(test)]
mod tests;
