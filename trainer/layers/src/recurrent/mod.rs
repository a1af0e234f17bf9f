//! Recurrent layers: a cell, stepped over the positions of a segment, and the gates that input and state may open for each other.
//!
//! Widths: `m` of the input, `n` of the state. Notation of Melis (2023), chapters 2 and 4: h' and c' are the state before a step.

mod gates;
mod lstm;
mod map;
mod matrix;
mod mogrifier;
mod other;
mod penalties;
mod pool;
mod qrnn;
mod scales;

use tch::Tensor;

pub use gates::InputGate;
pub use lstm::{GateNorm, Lstm, Multiplicative, Rewired};
pub use map::Uses;
use map::{Map, product, read};
pub use matrix::{Matrix, factor_law};
pub use mogrifier::{Mogrifier, MogrifierShape};
pub use other::{Elman, Gru};
pub use penalties::{activation_penalty, slowness_penalty};
pub use qrnn::Qrnn;
pub use scales::Scales;

/// What a layer carries from step to step: `[lanes, n]` each.
pub struct State {
    /// h, which is also the layer's output; of a [`Qrnn`], the inputs that its next window begins with.
    pub hidden: Tensor,
    /// c; of cells that have none, h again.
    pub cell: Tensor,
}

impl State {
    /// The same values, cut off from the graph that made them.
    pub fn detach(&self) -> Self {
        Self { hidden: self.hidden.detach(), cell: self.cell.detach() }
    }
}

/// A recurrent network's cell: its parameters.
pub trait Cell {
    /// What inputs give to the gates, all positions of a segment in one product: `[.., m]` to `[.., gates · n]`.
    fn read(&self, input: &Tensor) -> Tensor;

    /// The cell with its weights laid out for a segment.
    fn unroll(&self, uses: Uses) -> Box<dyn Unrolled>;
}

/// A cell over a segment.
pub trait Unrolled {
    /// The next state. `input`: of this position, `[lanes, m]`, or what [`Cell::read`] made of it, `[lanes, gates · n]`; `hidden`: h' as
    /// the gates see it, which dropout and a mogrifier may have changed, `[lanes, n]`; `cell`: c', `[lanes, n]`; `mask`: what dropout
    /// multiplied h' by, `[lanes, n]`.
    fn step(&self, input: &Tensor, hidden: &Tensor, cell: &Tensor, mask: Option<&Tensor>) -> State;

    /// Gates f, i and o of a step with these arguments, `[lanes, n]` each, i before a cap; `None` of cells without.
    fn gates(
        &self,
        input: &Tensor,
        hidden: &Tensor,
        cell: &Tensor,
        mask: Option<&Tensor>,
    ) -> Option<[Tensor; 3]> {
        let _ = (input, hidden, cell, mask);
        None
    }
}

/// A layer over the positions of a segment.
pub trait Layer {
    /// Its outputs, `[positions, lanes, n]`, and the state after them. `inputs`: `[positions, lanes, m]`; `mask`: what h' is multiplied by
    /// wherever it feeds a gate, the same at all positions, `[lanes, n]`.
    fn forward(&self, inputs: &Tensor, start: State, mask: Option<&Tensor>) -> (Tensor, State);

    /// Gates f, i and o of all positions, `[positions, lanes, n]` each, i before a cap; `None` of layers without.
    fn gates(&self, inputs: &Tensor, start: State) -> Option<[Tensor; 3]> {
        let _ = (inputs, start);
        None
    }
}

/// A cell over the positions of a segment.
pub struct Recurrent {
    cell: Box<dyn Cell>,
    mogrifier: Option<Mogrifier>,
    scales: Option<Scales>,
}

impl Recurrent {
    /// A layer of `cell`, whose input and state meet in `mogrifier` before each step.
    pub fn new(cell: Box<dyn Cell>, mogrifier: Option<Mogrifier>) -> Self {
        Self { cell, mogrifier, scales: None }
    }

    /// The same whose input and state are scaled before that.
    pub fn with_scales(self, scales: Option<Scales>) -> Self {
        Self { scales, ..self }
    }

    /// What multiplies h' on its way to gates: its mask, its scale or both; `[lanes, n]` or `[n]`.
    fn seen_through(&self, mask: Option<&Tensor>) -> Option<Tensor> {
        match (&self.scales, mask) {
            (Some(scales), Some(mask)) => Some(mask * &scales.state),
            (Some(scales), None) => Some(scales.state.shallow_clone()),
            (None, mask) => mask.map(Tensor::shallow_clone),
        }
    }
}

impl Layer for Recurrent {
    fn forward(&self, inputs: &Tensor, start: State, mask: Option<&Tensor>) -> (Tensor, State) {
        self.forward_seen(inputs, start, mask, None)
    }

    fn gates(&self, inputs: &Tensor, start: State) -> Option<[Tensor; 3]> {
        let mut seen = Vec::new();
        let _ = self.forward_seen(inputs, start, None, Some(&mut seen));
        let gate = |i: usize| Tensor::stack(&seen.iter().map(|gates| &gates[i]).collect::<Vec<_>>(), 0);
        (!seen.is_empty()).then(|| std::array::from_fn(gate))
    }
}

impl Recurrent {
    /// The same as [`Layer::forward`], with the gates of each position in `seen`.
    fn forward_seen(
        &self,
        inputs: &Tensor,
        start: State,
        mask: Option<&Tensor>,
        mut seen: Option<&mut Vec<[Tensor; 3]>>,
    ) -> (Tensor, State) {
        let steps = inputs.size()[0] as usize;
        let scaled = self.scales.as_ref().map(|scales| inputs * &scales.input);
        let inputs = scaled.as_ref().unwrap_or(inputs);
        // A mogrifier changes each input on its way to the cell: none can be read ahead.
        let (each, reads) = match self.mogrifier {
            Some(_) => (inputs.unbind(0), steps),
            None => (self.cell.read(inputs).unbind(0), 0),
        };
        let cell = self.cell.unroll(Uses { reads, steps });
        let mogrifier = self.mogrifier.as_ref().map(|mogrifier| mogrifier.unroll(steps));
        let factor = self.seen_through(mask);
        let mut state = start;
        let mut outputs = Vec::with_capacity(steps);
        for input in each {
            let hidden =
                factor.as_ref().map_or_else(|| state.hidden.shallow_clone(), |factor| &state.hidden * factor);
            let (hidden, input) = match &mogrifier {
                None => (hidden, input),
                Some(mogrifier) => mogrifier.mogrify(hidden, input),
            };
            if let Some(seen) = &mut seen {
                seen.extend(cell.gates(&input, &hidden, &state.cell, mask));
            }
            state = cell.step(&input, &hidden, &state.cell, mask);
            outputs.push(state.hidden.shallow_clone());
        }
        (Tensor::stack(&outputs, 0), state)
    }
}

#[cfg(test)]
mod tests;
