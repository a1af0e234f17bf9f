//! What a micro-step does, by kind of kernel.

use std::ops::Range;

/// Rank up to which a word's frequency falls with its rank, and from which on with its square: natural text has the two
/// regimes, and the border near ten thousand (Ferrer i Cancho and Solé 2001).
const CORE_WORDS: f64 = 10_000.0;
/// Times that a value of attention's matrices is read or written by kernels that keep them in memory. Forward: the position's
/// product writes it, the shift reads and writes, so do the content's product, mask and softmax, and reading reads: 10. Backward: the
/// gradient of the weights is written, the weights are read, the softmax reads both and writes, both of the content's products read, the
/// shift reads and writes, both of the position's products read: 11.
pub const SCORE_PASSES: f64 = 21.0;
/// The same for its dropout: read and written, forward and backward.
pub const DROPPED_SCORE_PASSES: f64 = 4.0;
/// The same where attention goes in one pass over the keys (Dao et al. 2022), as Segue's does on cards in 16 bits: forward keeps none; backward writes weights and
/// gradients of scores, by content and by distance, once each, for products over queries that read each once: 6 of 2 bytes, where values count as 3.
pub const ONE_PASS_SCORE_PASSES: f64 = 4.0;
/// Times that another value is: written and read forward, read again by backward, its gradient written and read.
pub const STATE_PASSES: f64 = 5.0;
/// Times that a score of a word is: written by its product, read and written by the softmax, read by the loss; backward read and written by the
/// softmax, and read by both products.
pub const LOGIT_PASSES: f64 = 8.0;
/// Times that a value of a table is whose gradient is made whole and added to another one: cleared, and two read and one written.
pub const TABLE_PASSES: f64 = 4.0;
/// Times that a row which a linear layer reads or writes is: once forward, and backward its gradient or itself by both products.
pub const LINEAR_PASSES: f64 = 3.0;
/// Operations that a layer of attention and feed-forward starts: some 25 forward, and twice as many backward.
pub const LAYER_OPERATIONS: f64 = 75.0;

/// Euler's and Mascheroni's constant.
const EULER: f64 = 0.577_215_664_9;

/// What one micro-step does by kind of kernel, for words as frequent as in text. Operations are those of the forward pass; values
/// moved are read or written by element-wise kernels, forward and backward.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Parts {
    /// Operations of the linear layers' products.
    pub products: f64,
    /// Values that these move: all they read and write but weights.
    pub products_moved: f64,
    /// Operations of attention's: scores and reading.
    pub attention: f64,
    /// Operations of the output layer's.
    pub softmax: f64,
    /// Values of attention's matrices, `[lanes, heads, query, key]` of each layer.
    pub scores: f64,
    /// Times that each is moved by kernels that keep them in memory.
    pub score_passes: f64,
    /// Values moved by norms, dropout, residuals, activation functions.
    pub states_moved: f64,
    /// Values moved by the softmax over the vocabulary.
    pub logits_moved: f64,
    /// Layers, whose activations can be computed again one by one.
    pub layers: f64,
    /// Values that the inputs of all layers hold.
    pub layer_inputs: f64,
    /// Values that backward needs of all layers.
    pub layer_activations: f64,
    /// Values that backward needs of the output layer.
    pub logits: f64,
    /// Operations that are started one after the other, forward and backward.
    pub operations: f64,
}

impl Parts {
    /// A model of nothing but products: `forward` operations, and `activations` values that are written and read.
    pub fn of_products(forward: f64, activations: f64) -> Self {
        Self {
            products: forward,
            states_moved: 2.0 * activations,
            layers: 1.0,
            layer_activations: activations,
            ..Self::default()
        }
    }

    /// Operations of the forward pass.
    pub fn forward(&self) -> f64 {
        self.products + self.attention + self.softmax
    }

    /// Values that backward needs; with `recompute` the inputs of layers, and the activations of one.
    pub fn activations(&self, recompute: bool) -> f64 {
        match recompute {
            false => self.layer_activations + self.logits,
            true => self.layer_inputs + self.layer_activations / self.layers.max(1.0) + self.logits,
        }
    }
}

/// Expected fraction of a text's tokens whose words have these `ranks`, from 0 for the most frequent, in a vocabulary of `words`
/// words in the order of their frequency.
pub fn share_of_words(ranks: Range<u64>, words: u64) -> f64 {
    // Sum of 1/r up to the core's border c, and of c/r² beyond it.
    let sum = |n: u64| {
        let harmonic = |n: f64| if n < 1.0 { 0.0 } else { n.ln() + EULER + 0.5 / n };
        let n = n as f64;
        harmonic(n.min(CORE_WORDS)) + if n > CORE_WORDS { 1.0 - CORE_WORDS / n } else { 0.0 }
    };
    (sum(ranks.end) - sum(ranks.start)) / sum(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counted in the training split of WikiText-2: 33,278 words with `<eos>`.
    #[test]
    fn words_are_as_frequent_as_in_wikitext() {
        for (first, counted) in [(1000, 0.7029), (5000, 0.8678), (10_000, 0.9294), (20_000, 0.9755)] {
            let share = share_of_words(0..first, 33_278);
            assert!((share - counted).abs() < 0.015, "{first}: {share} against {counted}");
        }
        let clusters = [0..19_997, 19_997..39_997, 39_997..199_997, 199_997..267_735];
        let all: f64 = clusters.into_iter().map(|cluster| share_of_words(cluster, 267_735)).sum();
        assert!((all - 1.0).abs() < 1e-12, "{all}");
    }

    #[test]
    fn recomputation_keeps_the_inputs_and_one_layer() {
        let parts = Parts {
            layers: 4.0,
            layer_inputs: 10.0,
            layer_activations: 400.0,
            logits: 7.0,
            ..Parts::default()
        };
        assert_eq!((parts.activations(false), parts.activations(true)), (407.0, 117.0));
        assert_eq!(Parts::of_products(5.0, 3.0).activations(false), 3.0);
    }
}
