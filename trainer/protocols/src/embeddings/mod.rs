//! How the vectors that score words lie: distances of each to the nearest other one, and how many directions they fill (Wang, Gong and Liu
//! 2019, figure 1). Everything is in double precision.

mod density;
mod energy;
mod hull;

use segue_layers::mean_cosine;
use segue_report::median;
use serde::Serialize;
use tch::{Kind, Tensor};

pub use density::{Density, density};
pub use energy::{Energy, States, energies};
pub use hull::{hull_distance, hull_distances, recognisable};

/// Rows and columns of a block of products: 16 MiB.
const BLOCK_ROWS: i64 = 512;
const BLOCK_COLUMNS: i64 = 4096;

/// What is told of a table of vectors.
#[derive(Debug, Clone, Serialize)]
pub struct Embeddings {
    /// Vectors.
    pub words: i64,
    /// Their width.
    pub width: i64,
    /// Mean distance to the nearest other vector.
    pub nearest_mean: f64,
    /// The median of these distances.
    pub nearest_median: f64,
    /// The density of these distances.
    pub density: Density,
    /// Singular values of the table from the largest down, each divided by the largest; as many as the shorter side.
    pub singular_values: Vec<f64>,
    /// Their mean: 1 where vectors fill all directions alike.
    pub singular_mean: f64,
    /// Mean cosine of two vectors, as [`mean_cosine`] has it.
    pub mean_cosine: f64,
    /// How far words can stand out of all others, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy: Option<Energy>,
}

impl Embeddings {
    /// Of the rows of `table`, `[words, width]`, two at least; with the energy for `states`.
    pub fn of(table: &Tensor, states: Option<States>) -> Self {
        let table = table.detach().to_kind(Kind::Double);
        let (mut nearest, energies) = match states {
            Some(states) => energy::with_nearest(&table, states),
            None => (nearest_distances(&table), Vec::new()),
        };
        nearest.sort_by(f64::total_cmp);
        let singular_values = normalised_singular_values(&table);
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        Self {
            words: table.size()[0],
            width: table.size()[1],
            nearest_mean: mean(&nearest),
            nearest_median: median(&nearest),
            density: density(&nearest),
            singular_mean: mean(&singular_values),
            singular_values,
            mean_cosine: mean_cosine(&table).double_value(&[]),
            energy: states.map(|states| Energy::of(states, energies)),
        }
    }
}

/// The distance of each row of `table`, `[words, width]`, to the nearest other row.
pub fn nearest_distances(table: &Tensor) -> Vec<f64> {
    let [nearest] = folded(table, [f64::INFINITY], |[least], squares| [nearer(&least, squares)]);
    nearest.into_iter().map(f64::sqrt).collect()
}

/// The least of squared distances, `[rows]`, with those of another block, `[rows, columns]`.
fn nearer(least: &Tensor, squares: &Tensor) -> Tensor {
    least.minimum(&squares.amin([1i64].as_slice(), false))
}

/// What `fold` makes, from `start` on, of the squared distances of each row of `table`, `[words, width]`, to all rows: of `[rows, columns]`, block
/// by block, so that nothing as large as words by words is made. A row is infinitely far from itself.
fn folded<const N: usize>(
    table: &Tensor,
    start: [f64; N],
    fold: impl Fn([Tensor; N], &Tensor) -> [Tensor; N],
) -> [Vec<f64>; N] {
    let _no_graph = tch::no_grad_guard();
    let table = table.to_kind(Kind::Double);
    let words = table.size()[0];
    let squares = table.square().sum_dim_intlist(1, false, Kind::Double); // [words]
    let mut folds = start.map(|_| Vec::with_capacity(words as usize));
    for first in (0..words).step_by(BLOCK_ROWS as usize) {
        let rows = BLOCK_ROWS.min(words - first);
        let own = table.narrow(0, first, rows);
        let mut of_rows = start.map(|value| own.select(1, 0).full_like(value));
        for start in (0..words).step_by(BLOCK_COLUMNS as usize) {
            let columns = BLOCK_COLUMNS.min(words - start);
            // ‖a‖² + ‖b‖² − 2 a·b
            let mut off = own.matmul(&table.narrow(0, start, columns).tr()) * -2.0;
            off += squares.narrow(0, start, columns);
            off += squares.narrow(0, first, rows).unsqueeze(1);
            hide_itself(&off, first, start);
            of_rows = fold(of_rows, &off.clamp_min_(0.0));
        }
        for (fold, values) in folds.iter_mut().zip(of_rows) {
            fold.extend(Vec::<f64>::try_from(values.to_device(tch::Device::Cpu)).unwrap_or_default());
        }
    }
    folds
}

/// No word is its own neighbour: `off` is of rows from `first` and columns from `start` on.
fn hide_itself(off: &Tensor, first: i64, start: i64) {
    let diagonal = off.diagonal(first - start, 0, 1);
    if diagonal.numel() > 0 {
        let _ = diagonal.shallow_clone().fill_(f64::INFINITY);
    }
}

/// Singular values of `table`, `[words, width]`, from the largest down, each divided by the largest: roots of the eigenvalues of the products
/// of its shorter side's vectors. Those below 1e-8 drown in rounding.
pub fn normalised_singular_values(table: &Tensor) -> Vec<f64> {
    let _no_graph = tch::no_grad_guard();
    let table = table.to_kind(Kind::Double);
    let (words, width) = (table.size()[0], table.size()[1]);
    let products = if words >= width { table.tr().matmul(&table) } else { table.matmul(&table.tr()) };
    let eigenvalues = products.linalg_eigvalsh("L").flip([0]).clamp_min(0.0);
    let values = Vec::<f64>::try_from(eigenvalues.sqrt()).unwrap_or_default();
    let largest = values.first().copied().unwrap_or(0.0).max(f64::MIN_POSITIVE);
    values.iter().map(|value| value / largest).collect()
}

#[cfg(test)]
mod tests;
