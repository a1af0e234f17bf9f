/// The lower triangle L of L Lᵀ, a row after the other: row i has i + 1 entries.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cholesky {
    rows: Vec<Vec<f64>>,
}

impl Cholesky {
    /// Of a symmetric matrix of `size` rows, whose entry at (i, j), j ≤ i, is `entry(i, j)`. `None` where it is not positive
    /// definite.
    pub fn new(size: usize, entry: impl Fn(usize, usize) -> f64) -> Option<Self> {
        let mut made = Self { rows: Vec::with_capacity(size) };
        for i in 0..size {
            let row: Vec<f64> = (0..=i).map(|j| entry(i, j)).collect();
            made.push(&row)?;
        }
        Some(made)
    }

    /// Adds a row and column to the matrix: `row[j]` is its entry with row j, the last one its own. `None`, and no change, where
    /// the matrix would not be positive definite any more.
    pub fn push(&mut self, row: &[f64]) -> Option<()> {
        let (own, others) = row.split_last()?;
        let mut made = self.solve_lower(others);
        let rest = own - dot(&made, &made);
        if rest.is_nan() || rest <= 0.0 {
            return None;
        }
        made.push(rest.sqrt());
        self.rows.push(made);
        Some(())
    }

    /// x of L x = b.
    pub fn solve_lower(&self, b: &[f64]) -> Vec<f64> {
        let mut x: Vec<f64> = Vec::with_capacity(b.len() + 1);
        for (row, b) in self.rows.iter().zip(b) {
            let i = x.len();
            x.push((b - dot(&row[..i], &x)) / row[i]);
        }
        x
    }

    /// x of L Lᵀ x = b.
    pub fn solve(&self, b: &[f64]) -> Vec<f64> {
        let mut x = self.solve_lower(b);
        for i in (0..x.len()).rev() {
            x[i] /= self.rows[i][i];
            let known = x[i];
            for (j, entry) in self.rows[i][..i].iter().enumerate() {
                x[j] -= entry * known;
            }
        }
        x
    }

    /// ln |L Lᵀ|.
    pub fn log_determinant(&self) -> f64 {
        2.0 * self.rows.iter().enumerate().map(|(i, row)| row[i].ln()).sum::<f64>()
    }
}

pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A = (4 2; 2 5) = L Lᵀ with L = (2 0; 1 2): |A| = 16, and A (1, 2)ᵀ = (8, 12)ᵀ.
    #[test]
    fn a_small_matrix_is_taken_apart() {
        let matrix = [[4.0, 2.0], [2.0, 5.0]];
        let found = Cholesky::new(2, |i, j| matrix[i][j]).unwrap();
        assert_eq!(found.rows, [vec![2.0], vec![1.0, 2.0]]);
        assert!((found.log_determinant() - 16f64.ln()).abs() < 1e-14);
        assert_eq!(found.solve(&[8.0, 12.0]), [1.0, 2.0]);
        assert_eq!(Cholesky::new(2, |i, j| [[1.0, 2.0], [2.0, 1.0]][i][j]), None);
        assert_eq!(Cholesky::new(1, |_, _| f64::NAN), None);
    }
}
