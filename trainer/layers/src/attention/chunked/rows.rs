//! What lies between the products: scores to weights, and gradients of weights to those of scores.

use tch::{Kind, Tensor};

use super::card;
use super::chunk::{Chunk, Gradients, Lanes, Products};

/// Weights after dropout, `[all, rows, keys]` in `kind`; `statistics`, `[all, rows, 2]`, are written.
pub fn weights(chunk: &Chunk, lanes: &Lanes, products: Products, statistics: &Tensor, kind: Kind) -> Tensor {
    if let Some(kernels) = card::kernels(&products, kind) {
        return card::weights(kernels, chunk, lanes, &products, statistics, kind);
    }
    let scores = scores(chunk, lanes, products);
    let top = scores.amax([-1i64].as_slice(), true);
    let exponentials = (scores - &top).exp();
    let inverse = exponentials.sum_dim_intlist(-1, true, None::<Kind>).reciprocal();
    let weights = exponentials * &inverse;
    statistics.shallow_clone().copy_(&Tensor::cat(&[top, inverse], 2));
    match factors(chunk, lanes, &weights) {
        Some(factors) => (weights * factors).to_kind(kind),
        None => weights.to_kind(kind),
    }
}

/// Gradients from those of the weights after dropout, `[all, rows, keys]`.
pub fn gradients(
    chunk: &Chunk,
    lanes: &Lanes,
    products: Products,
    of_weights: Tensor,
    statistics: &Tensor,
    kind: Kind,
) -> Gradients {
    if let Some(kernels) = card::kernels(&products, kind) {
        return card::gradients(kernels, chunk, lanes, &products, &of_weights, statistics, kind);
    }
    let weights =
        (scores(chunk, lanes, products) - statistics.narrow(2, 0, 1)).exp() * statistics.narrow(2, 1, 1);
    let (dropped, grads) = match factors(chunk, lanes, &weights) {
        Some(factors) => (&weights * &factors, of_weights * factors),
        None => (weights.shallow_clone(), of_weights),
    };
    // ∂softmax: wᵢ (gᵢ − Σ wⱼ gⱼ), with the weights as they were before dropout.
    let mean = (&grads * &weights).sum_dim_intlist(-1, true, None::<Kind>);
    let of_scores = weights * (grads - mean);
    let of_other = differ(chunk, lanes).map(|differ| {
        let elsewhere = by_lane(&of_scores, lanes) * differ;
        elsewhere.sum_dim_intlist(-1, false, None::<Kind>).view([-1, chunk.rows])
    });
    let all = of_scores.size()[0];
    let of_position = Tensor::zeros([all, chunk.rows, chunk.columns()], (kind, of_scores.device()));
    shifted(&of_position, chunk).copy_(&of_scores);
    Gradients { weights: dropped.to_kind(kind), of_content: of_scores.to_kind(kind), of_position, of_other }
}

/// `[all, rows, keys]`.
fn scores(chunk: &Chunk, lanes: &Lanes, products: Products) -> Tensor {
    let Products { content, position } = products;
    let scores = content + shifted(&position, chunk);
    if let (Some(differ), Some(other)) = (differ(chunk, lanes), &lanes.other) {
        let other = other.narrow(1, chunk.start, chunk.rows).unsqueeze(2);
        let added = by_lane(&other, lanes) * differ;
        let _ = by_lane(&scores, lanes).g_add_(&added);
    }
    if let Some(mask) = &chunk.mask {
        let _ = by_lane(&scores, lanes).g_add_(mask);
    }
    let keys = Tensor::arange(chunk.keys, (Kind::Int, scores.device()));
    scores.masked_fill(&keys.ge_tensor(&chunk.numbering.narrow(1, 3, 1)), f64::NEG_INFINITY)
}

/// `[heads, lanes, ..]` of `[all, ..]`.
fn by_lane(x: &Tensor, lanes: &Lanes) -> Tensor {
    let size = x.size();
    x.view([-1, lanes.count, size[1], size[2]])
}

/// Where segments of queries and keys differ, `[lanes, rows, keys]`.
fn differ(chunk: &Chunk, lanes: &Lanes) -> Option<Tensor> {
    let [of_queries, of_keys] = lanes.segments.as_ref()?;
    let of_queries = of_queries.narrow(1, chunk.start, chunk.rows).unsqueeze(2);
    Some(of_queries.not_equal_tensor(&of_keys.narrow(1, 0, chunk.keys).unsqueeze(1)))
}

/// `[all, rows, keys]` of `[all, rows, columns]`, without a copy.
fn shifted(by_position: &Tensor, chunk: &Chunk) -> Tensor {
    let (all, columns) = (by_position.size()[0], chunk.columns());
    by_position.as_strided(
        [all, chunk.rows, chunk.keys],
        [chunk.rows * columns, columns - 1, 1],
        chunk.rows - 1,
    )
}

/// What dropout multiplies weights by.
fn factors(chunk: &Chunk, lanes: &Lanes, weights: &Tensor) -> Option<Tensor> {
    let (drops, all) = (lanes.drops?, weights.size()[0]);
    let options = (Kind::Int64, weights.device());
    let numbering = chunk.numbering.to_kind(Kind::Int64);
    let column = |i: i64| numbering.narrow(1, i, 1);
    let n = Tensor::arange(all, options).view([all, 1, 1]);
    let of_row = column(0) * all + column(2) + n * column(1);
    Some(drops.factors(&(of_row + Tensor::arange(chunk.keys, options))).to_kind(weights.kind()))
}
