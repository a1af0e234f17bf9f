//! Recurrent layers: a cell, stepped over the positions of a segment, and the gates that input and state may open for each other.
//!
//! Widths: `m` of the input, `n` of the state. Notation of Melis (2023), chapters 2 and 4: h' and c' are the state before a step.

mod lstm;
mod mogrifier;
mod other;

use tch::Tensor;

use crate::Kernels;
use crate::libtorch::widened;

pub use lstm::{InputGate, Lstm, Multiplicative, Rewired};
pub use mogrifier::{Mogrifier, MogrifierShape};
pub use other::{Elman, Gru};

/// `x`, `[.., in]`, times `weight`, `[out, in]`, transposed, plus `bias`, `[out]`: gates and states stay in single precision where products
/// are of 16 bits.
fn product(kernels: Kernels, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
    widened(&kernels.linear(x, weight, bias))
}

/// What a layer carries from step to step: `[lanes, n]` each.
pub struct State {
    /// h, which is also the layer's output.
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

/// One step of a recurrent network, in two parts: what the input alone decides, which is one product for all positions of a segment where
/// nothing changes inputs on their way, and the rest.
pub trait Cell {
    /// What an input gives to the gates, of `[.., m]`: `[.., gates · n]`.
    fn read(&self, input: &Tensor) -> Tensor;

    /// The next state. `read`: of this position, `[lanes, gates · n]`; `hidden`: h' as the gates see it, which dropout and a mogrifier may
    /// have changed, `[lanes, n]`; `cell`: c', `[lanes, n]`; `mask`: what dropout multiplied h' by, `[lanes, n]`.
    fn step(&self, read: &Tensor, hidden: &Tensor, cell: &Tensor, mask: Option<&Tensor>) -> State;
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

    /// The layer's outputs, `[positions, lanes, n]`, and the state after them. `inputs`: `[positions, lanes, m]`; `mask`: what h' is
    /// multiplied by wherever it feeds a gate, the same at all positions, `[lanes, n]`.
    pub fn forward(&self, inputs: &Tensor, start: State, mask: Option<&Tensor>) -> (Tensor, State) {
        let each = match self.mogrifier {
            Some(_) => inputs.unbind(0),
            None => self.cell.read(inputs).unbind(0),
        };
        let mut state = start;
        let mut outputs = Vec::with_capacity(each.len());
        for input in each {
            let hidden = mask.map_or_else(|| state.hidden.shallow_clone(), |mask| &state.hidden * mask);
            let (hidden, read) = match &self.mogrifier {
                None => (hidden, input),
                Some(mogrifier) => {
                    let (hidden, input) = mogrifier.mogrify(hidden, input);
                    (hidden, self.cell.read(&input))
                }
            };
            state = self.cell.step(&read, &hidden, &state.cell, mask);
            outputs.push(state.hidden.shallow_clone());
        }
        (Tensor::stack(&outputs, 0), state)
    }
}

#[cfg(test)]
mod tests;
