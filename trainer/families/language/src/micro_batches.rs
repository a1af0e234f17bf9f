//! Batches as tensors: what a rank's lanes read in a step, cut into micro-batches.

use segue_dataloader::{Batch as Tokens, Pairs as TokenPairs};
use tch::Tensor;
use tch::kind::Element;

use crate::{Batch, Pairs};

/// Cuts a step of this rank's lanes into micro-batches of `micro_batch` lanes.
pub fn micro_batches(tokens: &Tokens, micro_batch: usize) -> Vec<Batch> {
    let lanes = tokens.cursors_after.len();
    let width = tokens.inputs.len() / lanes;
    let targets = tokens.targets.len() / lanes;
    (0..lanes / micro_batch)
        .map(|number| {
            let cut = Cut { first: number * micro_batch, lanes: micro_batch };
            Batch {
                inputs: cut.rows(&tokens.inputs, width),
                targets: cut.rows(&tokens.targets, targets),
                pairs: tokens.pairs.as_ref().map(|pairs| cut.pairs(pairs, width, targets)),
                documents: tokens.documents.as_ref().map(|documents| cut.rows(documents, width)),
                counts: tokens.counts.as_ref().map(|counts| cut.own(counts, 1).to_vec()),
                overlap: tokens.overlap as i64,
                of_host: None,
            }
        })
        .collect()
}

/// The lanes of one micro-batch.
struct Cut {
    first: usize,
    lanes: usize,
}

impl Cut {
    fn own<'a, T>(&self, values: &'a [T], width: usize) -> &'a [T] {
        &values[self.first * width..(self.first + self.lanes) * width]
    }

    /// `[lanes, width]`.
    fn rows<T: Element>(&self, values: &[T], width: usize) -> Tensor {
        Tensor::from_slice(self.own(values, width)).view([self.lanes as i64, width as i64])
    }

    fn pairs(&self, pairs: &TokenPairs, width: usize, targets: usize) -> Pairs {
        let follows: Vec<i64> =
            self.own(&pairs.follows, 1).iter().map(|follows| i64::from(*follows)).collect();
        Pairs {
            segments: self.rows(&pairs.segments, width),
            ranks: self.rows(&pairs.ranks, width),
            positions: self.rows(&pairs.positions, targets),
            weights: self.rows(&pairs.weights, targets),
            follows: Tensor::from_slice(&follows),
            reversed: self.own(&pairs.reversed, 1).iter().filter(|reversed| **reversed).count() as i64,
        }
    }
}
