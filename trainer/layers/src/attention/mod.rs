//! Attention; of relative positions the sinusoid table, the shift that aligns scores by distance, and the mask.
//! Yang 2019, §2.1.3, "Efficient Computation of the Attention with Relative Positional Embedding".

pub mod chunked;
pub mod flash;
pub mod fused;
pub mod multi_head;
pub mod projections;

use std::cell::RefCell;

use segue_kernels::Options;
use segue_kernels::libtorch::precise;
use segue_kernels::noise::Drops;
use tch::{Kind, Tensor};

use super::memory::NO_DOCUMENT;

/// Base of the geometric progression of wavelengths (Vaswani et al. 2017, section 3.5).
pub(crate) const WAVELENGTH_BASE: f64 = 10_000.0;

/// Tables and windows of distances are this many columns wide, or a multiple of it: matrix products are a quarter
/// slower at odd widths.
pub const COLUMNS: usize = 16;

/// `columns` rounded up.
pub fn even_columns(columns: i64) -> i64 {
    (columns as usize).next_multiple_of(COLUMNS) as i64
}

/// How far queries look. Part of the model while training, chosen anew while evaluating.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    /// Positions of memory kept.
    pub mem_len: i64,
    /// Distances above this count as this; none where not positive.
    pub clamp_len: i64,
    /// Each query sees this many keys, its own included; `None` for all before it.
    pub same_length: Option<i64>,
}

/// Inverse wavelengths `10000^(-2m/d)`, `[d / 2]`.
pub fn inverse_frequencies(d_model: i64, options: Options) -> Tensor {
    let exponents = Tensor::arange_start_step(0.0, d_model as f64, 2.0, options) / d_model as f64;
    Tensor::pow_scalar(WAVELENGTH_BASE, &exponents).reciprocal()
}

/// Sinusoids of the distances `klen - 1, .., 1, 0`, in this order: `[klen, d_model]`, sines then
/// cosines.
pub fn sinusoids(klen: i64, clamp_len: i64, d_model: i64, options: Options) -> Tensor {
    sinusoids_between(klen - 1, 0, clamp_len, d_model, options)
}

/// Sinusoids of the distances `first, first - 1, .., last`, in this order: `[first - last + 1, d_model]`.
/// Distances farther than a positive `clamp_len`, to either side, count as that.
pub fn sinusoids_between(first: i64, last: i64, clamp_len: i64, d_model: i64, options: Options) -> Tensor {
    let wanted = (first, last, clamp_len, d_model, options);
    TABLES.with_borrow_mut(|tables| {
        if let Some((_, table)) = tables.iter().find(|(of, _)| *of == wanted) {
            return table.shallow_clone();
        }
        let table = tch::no_grad(|| table_of_sinusoids(first, last, clamp_len, d_model, options));
        tables.truncate(KEPT_TABLES - 1);
        tables.insert(0, (wanted, table.shallow_clone()));
        table
    })
}

/// What a table of sinusoids is made of: first and last distance, `clamp_len`, `d_model` and options.
type TableOf = (i64, i64, i64, i64, Options);

/// Tables that are kept: training and evaluation with an order of reading each.
const KEPT_TABLES: usize = 4;

thread_local! {
    /// Sines and cosines of a segment are those of the one before, and take a hundredth of a step to compute.
    static TABLES: RefCell<Vec<(TableOf, Tensor)>> = const { RefCell::new(Vec::new()) };
}

fn table_of_sinusoids(first: i64, last: i64, clamp_len: i64, d_model: i64, options: Options) -> Tensor {
    let mut distances = Tensor::arange_start_step(first as f64, last as f64 - 1.0, -1.0, options);
    if clamp_len > 0 {
        distances = distances.clamp(-clamp_len as f64, clamp_len as f64);
    }
    let angles = distances.outer(&inverse_frequencies(d_model, options));
    Tensor::cat(&[angles.sin(), angles.cos()], 1)
}

/// Aligns scores by distance without a copy.
///
/// `scores`: `[n, query, key + 1]`, contiguous. Column 0 is padding; column `1 + k` holds the score at
/// distance `key - 1 - k`. The result, `[n, query, key]`, has at `(i, j)` the score of query `i` at
/// distance `mem + i - j` wherever that is not negative; the entries right of it are leftovers of
/// other rows and must be masked. Reading the buffer as `[key + 1, query]` moves row `i` left by
/// `query - 1 - i`; docs/book/src/contributing/expected-values.md has vectors.
pub fn relative_shift(scores: &Tensor) -> Tensor {
    let (n, query, padded) = match scores.size()[..] {
        [n, query, padded] => (n, query, padded),
        _ => panic!("relative_shift wants [n, query, key + 1], got {:?}", scores.size()),
    };
    let key = padded - 1;
    scores.view([n, padded, query]).narrow(1, 1, key).view([n, query, key])
}

/// Added to scores: 0 where query `i` may see key `j`, else −∞. `[query, key]`.
///
/// Distance is `mem + i − j`. Hidden are negative distances and, under same-length attention,
/// distances of `same_length` and more (counts in docs/book/src/contributing/expected-values.md).
pub fn attention_mask(query: i64, mem: i64, same_length: Option<i64>, options: Options) -> Tensor {
    let key = mem + query;
    let all = Tensor::ones([query, key], (Kind::Bool, options.1));
    let mut hidden = all.triu(mem + 1);
    if let Some(keys) = same_length {
        hidden = hidden.logical_or(&all.tril(mem - keys));
    }
    Tensor::zeros([query, key], options).masked_fill(&hidden, f64::NEG_INFINITY)
}

/// Which keys a lane's queries must not see for their documents, `[batch, query, key]`: places of
/// the memory that nothing was written to and, with `compare`, other documents than the query's own.
/// `before`: marks of the memory, `[batch, mem]`; `own`: of the segment, `[batch, query]`.
pub fn unseen_documents(before: &Tensor, own: &Tensor, compare: bool) -> Tensor {
    let keys = Tensor::cat(&[before, own], 1).unsqueeze(1);
    if compare {
        keys.not_equal_tensor(&own.unsqueeze(2))
    } else {
        keys.eq(NO_DOCUMENT).expand([-1, own.size()[1], -1], false)
    }
}

/// An additive mask with more places hidden.
pub fn hide(mask: &Tensor, hidden: &Tensor) -> Tensor {
    mask.expand(hidden.size(), false).masked_fill(hidden, f64::NEG_INFINITY)
}

/// Weights of `scores`, `[.., key]`; of single precision at least.
pub fn weights_of(scores: &Tensor) -> Tensor {
    scores.softmax(-1, precise(scores.kind()))
}

/// `weights`, `[heads * lanes, rows, key]`, of consecutive rows of queries, with dropout; `first` values of the place were weights of the rows
/// before, and counts on by these.
pub fn drop_weights(weights: Tensor, drops: Option<Drops>, first: &mut usize) -> Tensor {
    let Some(drops) = drops else { return weights };
    let mask = drops.from(*first).mask(&weights.size(), &weights);
    *first += weights.numel();
    weights * mask
}

/// The same for weights of all `[heads * lanes, query, key]` where each query sees no key after its own, which is the last key for the last one:
/// as [`fused::Block::causal`] cuts them, so that attention in tiles drops the same.
pub fn drop_causal_weights(weights: Tensor, drops: Option<Drops>) -> Tensor {
    let Some(drops) = drops else { return weights };
    let size = weights.size();
    let (queries, keys) = (size[1], size[2]);
    let mut first = 0;
    let mask = fused::causal_rows(queries, keys).map(|(_, rows, seen)| {
        let shape = [size[0], rows, seen];
        let mask = drops.from(first).mask(&shape, &weights);
        first += mask.numel();
        mask.constant_pad_nd([0, keys - seen])
    });
    let mask = Tensor::cat(&mask.collect::<Vec<_>>(), 1);
    weights * mask
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;

    const DOUBLE: Options = (Kind::Double, Device::Cpu);

    /// Score of row x at distance p as the number 10 x + p.
    fn scores(query: i64, key: i64) -> Tensor {
        let rows: Vec<f64> = (0..query)
            .flat_map(|x| {
                std::iter::once(-1.0).chain((0..key).map(move |k| (10 * (x + 1) + key - 1 - k) as f64))
            })
            .collect();
        Tensor::from_slice(&rows).view([1, query, key + 1])
    }

    fn rows(t: &Tensor) -> Vec<Vec<f64>> {
        Vec::<Vec<f64>>::try_from(t.get(0)).unwrap()
    }

    #[test]
    fn shift_gives_the_vectors_of_7_1() {
        let (a, b, c, pad) = (10.0, 20.0, 30.0, -1.0);
        assert_eq!(
            rows(&relative_shift(&scores(2, 4))),
            [[a + 2.0, a + 1.0, a, pad], [b + 3.0, b + 2.0, b + 1.0, b]]
        );
        assert_eq!(
            rows(&relative_shift(&scores(3, 4))),
            [[a + 1.0, a, pad, b + 3.0], [b + 2.0, b + 1.0, b, pad], [c + 3.0, c + 2.0, c + 1.0, c]]
        );
    }

    #[test]
    fn same_length_shows_the_key_counts_of_7_2() {
        for (mem, query, narrow, wide) in [(5, 3, 5, 6), (4, 4, 4, 5), (6, 2, 6, 7)] {
            for (keys, expected) in [(mem, narrow), (mem + 1, wide)] {
                let visible = attention_mask(query, mem, Some(keys), DOUBLE).isfinite().sum_dim_intlist(
                    1,
                    false,
                    Kind::Int64,
                );
                assert_eq!(Vec::<i64>::try_from(visible).unwrap(), vec![expected; query as usize]);
            }
        }
    }

    #[test]
    fn plain_mask_shows_all_keys_up_to_the_query() {
        let visible = attention_mask(3, 2, None, DOUBLE).isfinite().sum_dim_intlist(1, false, Kind::Int64);
        assert_eq!(Vec::<i64>::try_from(visible).unwrap(), [3, 4, 5]);
    }

    #[test]
    fn distances_above_the_clamp_are_those_at_the_clamp() {
        let table = sinusoids(6, 2, 4, DOUBLE);
        for row in 0..3 {
            assert_eq!(table.get(row), table.get(3), "distance {} against 2", 5 - row);
        }
        assert_ne!(table.get(4), table.get(3));
    }
}
