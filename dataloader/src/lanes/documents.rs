use segue_data_error::DataError;

use crate::corpus::Boundaries;

/// Which document a token belongs to.
#[derive(Debug)]
pub struct Documents {
    starts: Boundaries,
}

impl Documents {
    /// Documents that begin at `starts`.
    pub fn new(starts: Boundaries) -> Self {
        Self { starts }
    }

    /// Number of the document that holds the token at `position`, from 1; 0 before the first.
    pub fn at(&self, position: u64) -> Result<i64, DataError> {
        Ok(self.starts.count_through(position)? as i64)
    }

    /// The same for consecutive positions from `start` on.
    pub fn fill(&self, start: u64, out: &mut [i64]) -> Result<(), DataError> {
        let mut document = self.at(start)?;
        let mut next = self.starts.get(document as u64)?;
        for (place, position) in out.iter_mut().zip(start..) {
            while next.is_some_and(|next| next <= position) {
                document += 1;
                next = self.starts.get(document as u64)?;
            }
            *place = document;
        }
        Ok(())
    }
}
