//! How much the reader of a file may be made to hold.

use std::path::Path;

/// Nodes, classes or columns that a file may speak of besides one for each of its bytes: tables are made for all up to the highest.
const BESIDES: u64 = 1 << 16;
/// Columns besides: features may be hashed to more of them than a short file has bytes.
const COLUMNS_BESIDES: u64 = 1 << 20;

/// How many nodes, classes or columns a file may speak of, in proportion to its length.
pub(crate) struct Limit {
    /// Length of the file.
    pub bytes: u64,
    besides: u64,
}

impl Limit {
    /// For nodes or classes of the file at `path`.
    pub fn of(path: &Path) -> Limit {
        Limit { bytes: std::fs::metadata(path).map_or(0, |found| found.len()), besides: BESIDES }
    }

    /// For columns of its features.
    pub fn of_columns(path: &Path) -> Limit {
        Limit { besides: COLUMNS_BESIDES, ..Limit::of(path) }
    }

    /// The most there may be.
    pub fn most(&self) -> u64 {
        self.bytes.saturating_add(self.besides)
    }

    /// The number of things that the one called `highest` asks for.
    pub fn count(&self, what: &str, highest: u32) -> Result<usize, String> {
        match u64::from(highest) < self.most() {
            true => Ok(highest as usize + 1),
            false => Err(format!("{what} {highest} in a file of {} bytes", self.bytes)),
        }
    }
}
