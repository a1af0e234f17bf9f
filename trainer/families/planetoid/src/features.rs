//! Sparse rows as inputs of a layer.

use segue_graph::SparseRows;
use tch::Tensor;

/// Sum of the rows of a table, in libtorch's words.
const SUM: i64 = 0;

/// Sparse rows, made ready for products with tables: of each row the columns that are not zero, and their values.
pub struct Bags {
    /// Columns, one row after the other: `[entries]`, i64.
    columns: Tensor,
    /// Where each row begins: `[rows]`, i64.
    begins: Tensor,
    /// Values of the columns: `[entries]`, f32.
    values: Tensor,
}

impl Bags {
    /// The rows of these numbers, in their order; a row that is not there is zero.
    pub fn of(rows: &SparseRows, numbers: &[u32]) -> Self {
        Self::new(numbers.iter().map(|number| rows.row(*number as usize)))
    }

    /// Rows of columns and values.
    pub fn new<'a>(rows: impl Iterator<Item = (&'a [u32], &'a [f32])>) -> Self {
        let (mut columns, mut begins, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for (row, of_row) in rows {
            begins.push(columns.len() as i64);
            columns.extend(row.iter().map(|column| i64::from(*column)));
            values.extend_from_slice(of_row);
        }
        Self {
            columns: Tensor::from_slice(&columns),
            begins: Tensor::from_slice(&begins),
            values: Tensor::from_slice(&values),
        }
    }

    /// X W for `table` W, `[columns, width]`: `[rows, width]`. Only W gets a gradient.
    pub fn times(&self, table: &Tensor) -> Tensor {
        let kind = table.kind();
        let values = self.values.to_kind(kind);
        if self.begins.numel() == 0 || values.numel() == 0 {
            // libtorch has no sums of nothing at all. Zero times a row of the table, where it has one, keeps it in the graph.
            let (columns, width) = (table.size()[0], table.size()[1]);
            let nothing = table.narrow(0, 0, columns.min(1)).sum_dim_intlist(0, true, kind) * 0.0; // [1, width]
            return nothing.expand([self.begins.size()[0], width], false);
        }
        let (sums, ..) =
            Tensor::embedding_bag(table, &self.columns, &self.begins, false, SUM, false, Some(values), false);
        sums
    }
}

#[cfg(test)]
mod tests {
    use segue_random::{Purpose, Stream};
    use tch::{Device, Kind};

    use super::*;

    fn rows() -> SparseRows {
        let mut rows = SparseRows::new(7);
        let stream = Stream::new(5, Purpose::Synthetic, &[]);
        for i in 0..9u64 {
            let columns =
                (0..7u32).filter(|j| stream.bits(100 + 7 * i + u64::from(*j)).is_multiple_of(3) && i != 4);
            rows.push(columns.map(|j| (j, stream.normal(7 * i + u64::from(j)) as f32))).unwrap();
        }
        rows
    }

    fn dense(rows: &SparseRows, numbers: &[u32]) -> Tensor {
        let mut values = vec![0.0; numbers.len() * rows.columns];
        for (place, number) in numbers.iter().enumerate() {
            let (columns, of_row) = rows.row(*number as usize);
            for (column, value) in columns.iter().zip(of_row) {
                values[place * rows.columns + *column as usize] = f64::from(*value);
            }
        }
        Tensor::from_slice(&values).view([numbers.len() as i64, rows.columns as i64])
    }

    /// Row P6.
    #[test]
    fn products_equal_dense_ones_and_so_do_gradients() {
        let (rows, numbers) = (rows(), [3, 4, 0, 0, 8]);
        let table = Tensor::from_slice(&(0..21).map(|i| f64::from(i).sin()).collect::<Vec<_>>()).view([7, 3]);
        let weight =
            Tensor::from_slice(&(0..15).map(|i| f64::from(i).cos()).collect::<Vec<_>>()).view([5, 3]);
        let both = [0, 1].map(|way| {
            let leaf = table.copy().set_requires_grad(true);
            let product = if way == 0 {
                Bags::of(&rows, &numbers).times(&leaf)
            } else {
                dense(&rows, &numbers).matmul(&leaf)
            };
            let loss = (product.tanh() * &weight).sum(None::<Kind>);
            let gradient = Tensor::run_backward(&[&loss], &[&leaf], false, false).remove(0);
            (product.detach(), gradient)
        });
        for (sparse, dense) in [(&both[0].0, &both[1].0), (&both[0].1, &both[1].1)] {
            assert!((sparse - dense).abs().max().double_value(&[]) < 1e-14);
        }
    }

    /// As of a graph whose nodes have no features: the layer of features has a bias alone.
    /// Row P6.
    #[test]
    fn a_table_of_no_columns_gives_zeros() {
        let leaf = Tensor::ones([0, 3], (Kind::Float, Device::Cpu)).set_requires_grad(true);
        let mut rows = SparseRows::new(0);
        (0..2).for_each(|_| rows.push_zero());
        let product = Bags::of(&rows, &[0, 1]).times(&leaf);
        assert_eq!((product.size(), product.abs().sum(None::<Kind>).double_value(&[])), (vec![2, 3], 0.0));
        Tensor::run_backward(&[product.sum(None::<Kind>)], &[&leaf], false, false);
    }

    /// Row P6.
    #[test]
    fn rows_of_zeros_give_zeros_and_a_gradient_of_zeros() {
        let leaf = Tensor::ones([7, 3], (Kind::Float, Device::Cpu)).set_requires_grad(true);
        for numbers in [vec![4, 4], vec![]] {
            let product = Bags::of(&rows(), &numbers).times(&leaf);
            assert_eq!(product.size(), [numbers.len() as i64, 3]);
            assert_eq!(product.abs().sum(None::<Kind>).double_value(&[]), 0.0);
            let gradient =
                Tensor::run_backward(&[product.sum(None::<Kind>)], &[&leaf], false, false).remove(0);
            assert_eq!(gradient.abs().sum(None::<Kind>).double_value(&[]), 0.0);
        }
    }
}
