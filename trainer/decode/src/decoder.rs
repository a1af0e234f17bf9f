use tch::{Device, Tensor};

use super::{BeamSettings, Sampling};

/// How texts are decoded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Decoding {
    /// The most probable ones that beam search finds.
    Search(BeamSettings),
    /// Drawn ones.
    Sample {
        /// Number of texts for each source, at least 1.
        texts: usize,
        /// How their tokens are drawn.
        sampling: Sampling,
    },
}

/// What rows attend to in their sources.
pub struct Attention {
    /// `[rows, positions]`
    pub weights: Tensor,
    /// Positions of the source of each row; what lies behind is padding.
    pub lengths: Vec<usize>,
}

/// What a model has made of texts that are written side by side, a row each and all of one length so far: memory, cells, keys and values, an encoder's
/// states. Greedy choice, sampling and the end of a text are the business of whoever asks it.
pub trait Decoder {
    /// Reads the next tokens of each text, `[rows, length]`. A text may be read in several calls, to the same result. A translator
    /// reads its source this way.
    fn read(&mut self, ids: &Tensor);

    /// Reads the last token of each text, `[rows]`. Returns log P of the next token, `[rows, words]`, without a graph.
    fn step(&mut self, last: &Tensor) -> Tensor;

    /// Keeps these rows, `[kept]` int64, in this order. A row may be kept several times, as beams that share a
    /// beginning are.
    fn keep(&mut self, rows: &Tensor);

    /// Attention that the last step has paid to the source of each row, where there is a source.
    fn attention(&self) -> Option<Attention> {
        None
    }

    /// Where ids have to lie.
    fn device(&self) -> Device;
}
