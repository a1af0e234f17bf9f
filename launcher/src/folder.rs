//! Output files of a command.

use std::fs;
use std::path::{Path, PathBuf};

use segue_publish::write_file;
use segue_trainer::report::csv_line;
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
        let lines = rows.iter().map(csv_line);
        self.write(name, &(csv_line(header) + &lines.collect::<String>()))
    }
}
