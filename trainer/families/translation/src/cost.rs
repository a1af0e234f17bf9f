//! What a run costs: every matrix meets every token of its side once, and attention every pair of tokens.

use segue_cost::{MicroStep, PER_MULTIPLY_ADD, Role, Work};

use super::keys::TranslationConfig;
use super::model::specs;
use super::side::Side;

/// Tokens of a sentence that attention is counted for: about the mean of news.
const LENGTH: f64 = 30.0;
/// Values that backward needs of a position, in widths: of an attention queries, keys, values, what is read and the norm after it; of a block the norm and its input.
const KEPT_OF_ATTENTION: usize = 6;
const KEPT_OF_A_BLOCK: usize = 3;

/// Of batches of `tokens` tokens on either side, padding among them.
pub fn work(model: &TranslationConfig, tokens: usize) -> Work {
    let specs = specs(model);
    let (width, words) = (model.d_model, model.vocab_size);
    let matrices = specs.iter().filter(|spec| spec.shape.len() == 2 && spec.name.contains(".layers."));
    let in_layers: u128 = matrices.map(|spec| spec.numel() as u128).sum();
    let products = in_layers + (width * words) as u128;
    let attention = (model.encoder_layers + 2 * model.decoder_layers) as f64 * 2.0 * LENGTH * width as f64;
    let forward = tokens as f64 * PER_MULTIPLY_ADD as f64 * (products as f64 + attention);
    let of_side = |side: Side, attentions: usize| {
        let [layers, heads, inner] = side.sizes(model);
        let weights = heads as f64 * LENGTH * attentions as f64;
        let kept = attentions * KEPT_OF_ATTENTION * width + KEPT_OF_A_BLOCK * width + 2 * inner;
        layers as f64 * (kept as f64 + 2.0 * weights)
    };
    let activations =
        tokens as f64 * (of_side(Side::Encoder, 1) + of_side(Side::Decoder, 2) + (2 * width + words) as f64);
    let micro_step = MicroStep::of_products(tokens as u64, tokens as u64, forward, activations);
    Work::new(specs, micro_step, |_| Role::Other)
}
