//! Recurrent layers: a cell, stepped over the positions of a segment, and the gates that input and state may open for each other.
//!
//! Widths: `m` of the input, `n` of the state. Notation of Melis (2023), chapters 2 and 4: h' and c' are the state before a step.

mod gates;
mod lstm;
mod map;
mod mogrifier;
mod other;
mod penalties;
mod pool;
mod qrnn;

use tch::Tensor;

pub use gates::InputGate;
pub use lstm::{Lstm, Multiplicative, Rewired};
pub use map::Uses;
use map::{Map, product, read};
pub use mogrifier::{Mogrifier, MogrifierShape};
pub use other::{Elman, Gru};
pub use penalties::{activation_penalty, slowness_penalty};
pub use qrnn::Qrnn;

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
}

/// A layer over the positions of a segment.
pub trait Layer {
    /// Its outputs, `[positions, lanes, n]`, and the state after them. `inputs`: `[positions, lanes, m]`; `mask`: what h' is multiplied by
    /// wherever it feeds a gate, the same at all positions, `[lanes, n]`.
    fn forward(&self, inputs: &Tensor, start: State, mask: Option<&Tensor>) -> (Tensor, State);
}

/// A cell over the positions of a segment.
pub struct Recurrent {
    cell: Box<dyn Cell>,
    mogrifier: Option<Mogrifier>,
}

impl Recurrent {
    /// A layer of `cell`, whose input and state meet in `mogrifier` before each step.
    pub fn new(cell: Box<dyn Cell>, mogrifier: Option<Mogrifier>) -> Self {
        Self { cell, mogrifier }
    }
}

impl Layer for Recurrent {
    fn forward(&self, inputs: &Tensor, start: State, mask: Option<&Tensor>) -> (Tensor, State) {
        let steps = inputs.size()[0] as usize;
        // A mogrifier changes each input on its way to the cell: none can be read ahead.
        let (each, reads) = match self.mogrifier {
            Some(_) => (inputs.unbind(0), steps),
            None => (self.cell.read(inputs).unbind(0), 0),
        };
        let cell = self.cell.unroll(Uses { reads, steps });
        let mogrifier = self.mogrifier.as_ref().map(|mogrifier| mogrifier.unroll(steps));
        let mut state = start;
        let mut outputs = Vec::with_capacity(steps);
        for input in each {
            let hidden = mask.map_or_else(|| state.hidden.shallow_clone(), |mask| &state.hidden * mask);
            let (hidden, input) = match &mogrifier {
                None => (hidden, input),
                Some(mogrifier) => mogrifier.mogrify(hidden, input),
            };
            state = cell.step(&input, &hidden, &state.cell, mask);
            outputs.push(state.hidden.shallow_clone());
        }
        (Tensor::stack(&outputs, 0), state)
    }
}

#[cfg(test)]
mod tests;
