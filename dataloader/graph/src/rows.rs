/// Sparse rows: of each row the columns that are not zero, and their values.
#[derive(Clone, Debug, PartialEq)]
pub struct SparseRows {
    /// Number of columns.
    pub columns: usize,
    offsets: Vec<u64>,
    indices: Vec<u32>,
    values: Vec<f32>,
}

impl SparseRows {
    /// No rows of `columns` columns.
    pub fn new(columns: usize) -> SparseRows {
        SparseRows::zeros(0, columns)
    }

    /// `rows` rows of `columns` columns, all zeros.
    pub fn zeros(rows: usize, columns: usize) -> SparseRows {
        SparseRows { columns, offsets: vec![0; rows + 1], indices: Vec::new(), values: Vec::new() }
    }

    /// Adds a row of columns and their values.
    ///
    /// # Errors
    ///
    /// A column that is not there, columns that do not rise, and values that are not finite.
    pub fn push(&mut self, row: impl IntoIterator<Item = (u32, f32)>) -> Result<(), String> {
        let start = self.indices.len();
        for (column, value) in row {
            let why = if column as usize >= self.columns {
                Some(format!("column {column} of {}", self.columns))
            } else if let Some(last) = self.indices[start..].last().filter(|last| **last >= column) {
                Some(format!("column {column} does not come after {last}"))
            } else if !value.is_finite() {
                Some(format!("column {column} is {value}"))
            } else {
                None
            };
            if let Some(why) = why {
                self.indices.truncate(start);
                self.values.truncate(start);
                return Err(why);
            }
            self.indices.push(column);
            self.values.push(value);
        }
        self.offsets.push(self.indices.len() as u64);
        Ok(())
    }

    /// Adds a row of zeros.
    pub fn push_zero(&mut self) {
        self.offsets.push(self.indices.len() as u64);
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Columns, rising, and values of a row; nothing for one that is not there.
    pub fn row(&self, row: usize) -> (&[u32], &[f32]) {
        match self.offsets.get(row..row.saturating_add(2)) {
            Some(&[start, end]) => {
                let range = start as usize..end as usize;
                (&self.indices[range.clone()], &self.values[range])
            }
            _ => (&[], &[]),
        }
    }

    /// Where rows begin in [`SparseRows::indices`], and the end: one more than there are rows.
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// Columns of all rows, one row after the other.
    pub fn indices(&self) -> &[u32] {
        &self.indices
    }

    /// Values of all rows, one row after the other.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The rows that `rows` names, in its order; zeros for those that are not there.
    pub fn select(&self, rows: &[u32]) -> SparseRows {
        let mut picked = SparseRows::new(self.columns);
        rows.iter().for_each(|row| picked.push_row_of(self, *row as usize));
        picked
    }

    /// Adds a row of another table that is no wider.
    pub(crate) fn push_row_of(&mut self, other: &SparseRows, row: usize) {
        let (indices, values) = other.row(row);
        self.indices.extend_from_slice(indices);
        self.values.extend_from_slice(values);
        self.push_zero();
    }

    /// Adds the content to a hash.
    pub(crate) fn hash_into(&self, hasher: &mut blake3::Hasher) {
        hasher.update(&(self.columns as u64).to_le_bytes());
        hasher.update(bytemuck::cast_slice(&self.offsets));
        hasher.update(bytemuck::cast_slice(&self.indices));
        hasher.update(bytemuck::cast_slice(&self.values));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_back_and_bad_ones_leave_no_trace() {
        let mut rows = SparseRows::new(3);
        rows.push([(0, 1.0), (2, 0.5)]).unwrap();
        for (bad, why) in [
            (vec![(0, 1.0), (3, 1.0)], "column 3 of 3"),
            (vec![(1, 1.0), (1, 1.0)], "column 1 does not come after 1"),
            (vec![(1, f32::INFINITY)], "column 1 is inf"),
        ] {
            assert_eq!(rows.push(bad).unwrap_err(), why);
        }
        rows.push_zero();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows.row(0), (&[0, 2][..], &[1.0, 0.5][..]));
        assert_eq!((rows.row(1), rows.row(2)), ((&[][..], &[][..]), (&[][..], &[][..])));
        assert_eq!(rows.select(&[1, 0]).row(1), rows.row(0));
        let mut zeros = SparseRows::new(3);
        (0..2).for_each(|_| zeros.push_zero());
        assert_eq!(SparseRows::zeros(2, 3), zeros);
    }
}
