//! From scores to weights and back, row by row.

use segue_kernels::libtorch::Shared;
use segue_kernels::noise::{Drops, drop_factors};
use segue_kernels::simd::{change_pairs, exp, max, sum, sum_of_pairs, vectorised};

use super::view::{Tile, View};

/// Below it a weight is zero.
const LEAST_EXPONENT: f32 = -87.0;

/// Scores of a tile by content, completed, to weights after dropout; in `kept` all weights.
#[inline(always)]
fn weigh_plain(view: &View, tile: &Tile, scores: &mut [f32], by_position: &[f32], kept: Shared) {
    let Tile { rows, keys, .. } = *tile;
    for row in 0..rows {
        let scores = &mut scores[row * keys..][..keys];
        view.complete(tile, row, scores, &by_position[view.distances_place(tile, row)..][..keys]);
        softmax(scores);
        let place = view.weights_place(tile, row);
        // SAFETY: these weights are this query's of this head, written here alone.
        let kept = unsafe { std::slice::from_raw_parts_mut(kept.at(place), keys) };
        drop_some(scores, kept, view.drops, place);
    }
}

vectorised! {
    pub fn weigh(view: &View, tile: &Tile, scores: &mut [f32], by_position: &[f32], kept: Shared) = weigh_plain;
}

/// Gradients of a tile's weights after dropout, in `grads`, to those of scores, which are also laid out by distance; the
/// weights after dropout; and the gradients of what scores between segments have more.
#[inline(always)]
fn weigh_back_plain(
    view: &View,
    tile: &Tile,
    grads: &mut [f32],
    weights: &[f32],
    dropped: &mut [f32],
    by_position: &mut [f32],
    others: &mut [f32],
) {
    let Tile { rows, keys, columns, .. } = *tile;
    // Distances that no key of a row has must give nothing: the products over all columns read them.
    by_position[..rows * columns].fill(0.0);
    for row in 0..rows {
        let grads = &mut grads[row * keys..][..keys];
        let kept = &weights[view.weights_place(tile, row)..][..keys];
        softmax_back(grads, kept, view.drops, &mut dropped[row * keys..][..keys]);
        by_position[view.distances_place(tile, row)..][..keys].copy_from_slice(grads);
        if let Some((own, of_keys)) = view.segments(tile, row) {
            // One number a query: all keys of other segments had the same added.
            let elsewhere = |grad: f32, segment: f32| if segment == own { 0.0 } else { grad };
            others[row] = sum_of_pairs(grads, of_keys, elsewhere);
        }
    }
}

vectorised! {
    pub fn weigh_back(
        view: &View,
        tile: &Tile,
        grads: &mut [f32],
        weights: &[f32],
        dropped: &mut [f32],
        by_position: &mut [f32],
        others: &mut [f32],
    ) = weigh_back_plain;
}

/// Scores to weights.
#[inline(always)]
fn softmax(scores: &mut [f32]) {
    // A row has at least one finite score: masks leave rows that may see nothing open, and the caller zeroes
    // what they read.
    let top = max(scores);
    for score in scores.iter_mut() {
        // A masked key is at −∞ and ends in the first branch, which also keeps `exp` where its series holds.
        let exponent = *score - top;
        *score = if exponent < LEAST_EXPONENT { 0.0 } else { exp(exponent) };
    }
    let inverse = 1.0 / sum(scores);
    for score in scores.iter_mut() {
        *score *= inverse;
    }
}

/// Weights after dropout, and in `kept` as they were, negated where it took them.
#[inline(always)]
fn drop_some(weights: &mut [f32], kept: &mut [f32], drops: Option<Drops>, place: usize) {
    let Some(drops) = drops else { return kept.copy_from_slice(weights) };
    drop_factors(kept, drops.from(place));
    // Weights are not negative, so the sign is free to remember what dropout took: backward needs no mask and
    // draws nothing.
    change_pairs(weights, kept, |weight, factor| {
        (weight * factor, if factor == 0.0 { -weight } else { weight })
    });
}

/// Gradients of weights after dropout, in `grads`, to those of scores; and the weights after dropout.
#[inline(always)]
fn softmax_back(grads: &mut [f32], kept: &[f32], drops: Option<Drops>, dropped: &mut [f32]) {
    let factor = drops.map_or(1.0, |drops| drops.kept());
    for ((grad, kept), dropped) in grads.iter_mut().zip(kept).zip(&mut *dropped) {
        // A dropped weight passes no gradient on, but it took part in the softmax and gets one through the sum
        // below.
        let factor = if kept.is_sign_negative() { 0.0 } else { factor };
        *grad *= factor;
        *dropped = kept * factor;
    }
    // ∂softmax: wᵢ (gᵢ − Σ wⱼ gⱼ), with the weights as they were before dropout.
    let mean = sum_of_pairs(grads, kept, |grad, kept| grad * kept.abs());
    for (grad, kept) in grads.iter_mut().zip(kept) {
        *grad = kept.abs() * (*grad - mean);
    }
}
