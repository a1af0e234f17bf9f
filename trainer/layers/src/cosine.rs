//! How much the vectors of words point the same way.

use tch::{Kind, Tensor};

/// Shortest vector that has a direction.
const SHORTEST: f64 = 1e-12;

/// The mean cosine between two rows of `table`, `[words, width]`, as a regulariser has it: Σ cos(w_i, w_j) / words² over all i ≠ j (Gao et
/// al. 2019). The sum over pairs is ‖Σ u_i‖² − Σ ‖u_i‖² for rows u_i of length 1: work of the size of the table, not of its square.
pub fn mean_cosine(table: &Tensor) -> Tensor {
    let words = table.size()[0] as f64;
    let lengths = table.norm_scalaropt_dim(2.0, [-1], true).clamp_min(SHORTEST);
    let units = table / lengths;
    let whole = units.sum_dim_intlist(0, false, None::<Kind>).square().sum(None::<Kind>);
    (whole - units.square().sum(None::<Kind>)) / (words * words)
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;

    fn table(words: i64, width: i64) -> Tensor {
        let numbers = Tensor::arange(words * width, (Kind::Double, Device::Cpu));
        ((numbers * 1.3 + 0.2).sin() * 0.9).view([words, width])
    }

    /// Row S7.
    #[test]
    fn the_short_form_is_the_sum_over_pairs() {
        // Reference number of five words of width 3.
        assert!((mean_cosine(&table(5, 3)).double_value(&[]) * 25.0 + 4.783351217).abs() < 1e-9);
        let table = table(40, 7);
        let mut sum = 0.0;
        for i in 0..40 {
            for j in (0..40).filter(|&j| j != i) {
                sum += Tensor::cosine_similarity(&table.get(i), &table.get(j), 0, 1e-12).double_value(&[]);
            }
        }
        assert!((mean_cosine(&table).double_value(&[]) - sum / 1600.0).abs() < 1e-12);
    }

    /// Row S7.
    #[test]
    fn its_gradient_is_that_of_finite_differences() {
        let table = table(5, 3).set_requires_grad(true);
        mean_cosine(&table).backward();
        let step = 1e-6;
        for place in 0..15 {
            let moved = |by: f64| {
                let table = table.detach().copy();
                let _ = table.view([-1]).get(place).g_add_scalar_(by);
                mean_cosine(&table).double_value(&[])
            };
            let expected = (moved(step) - moved(-step)) / (2.0 * step);
            assert!((table.grad().view([-1]).double_value(&[place]) - expected).abs() < 1e-9);
        }
    }

    /// Row S7.
    #[test]
    fn a_row_of_zeros_points_nowhere() {
        let table = Tensor::cat(&[table(4, 3), Tensor::zeros([1, 3], (Kind::Double, Device::Cpu))], 0);
        let leaf = table.set_requires_grad(true);
        mean_cosine(&leaf).backward();
        assert!(bool::try_from(leaf.grad().isfinite().all()).unwrap());
    }
}
