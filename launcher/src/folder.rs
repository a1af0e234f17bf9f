//! Output files of a command.

use std::fs;
use std::path::{Path, PathBuf};

use segue_publish::write_file;
use serde_json::Value;

use crate::failure::Failure;

/// A folder that results go to.
pub struct ResultFolder {
    path: PathBuf,
}

impl ResultFolder {
    /// Makes the folder where it is not there.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        fs::create_dir_all(path).map_err(|e| Failure::cannot_write(path, &e, "--output"))?;
        Ok(Self { path: path.into() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file; it appears whole or not at all.
    pub fn write(&self, name: &str, text: &str) -> Result<(), Failure> {
        let path = self.path.join(name);
        write_file(&path, text.as_bytes()).map_err(|e| Failure::cannot_write(&path, &e.source, "--output"))
    }

    /// Writes a JSON file for reading.
    pub fn write_json(&self, name: &str, value: &Value) -> Result<(), Failure> {
        self.write(name, &format!("{value:#}\n"))
    }

    /// Writes a CSV file (RFC 4180).
    pub fn write_csv(&self, name: &str, header: &[&str], rows: &[Vec<String>]) -> Result<(), Failure> {
        let mut text = csv_line(header.iter().copied());
        for row in rows {
            text.push_str(&csv_line(row.iter().map(String::as_str)));
        }
        self.write(name, &text)
    }
}

fn csv_line<'a>(cells: impl Iterator<Item = &'a str>) -> String {
    let quoted = |cell: &str| {
        if cell.contains(['"', ',', '\n', '\r']) {
            format!("\"{}\"", cell.replace('"', "\"\""))
        } else {
            cell.to_string()
        }
    };
    cells.map(quoted).collect::<Vec<_>>().join(",") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_with_commas_and_quotes_are_quoted() {
        let line = csv_line(["a", "b,c", "d\"e"].into_iter());
        assert_eq!(line, "a,\"b,c\",\"d\"\"e\"\n");
    }
}
