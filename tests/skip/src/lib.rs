//! How a test finds the shared data sets, and says that it did not run, so that nobody takes it for one that passed.
//!
//! `SEGUE_SKIPS` names a file that gets a line for each test that is passed over. `SEGUE_REQUIRE` lists what must be there,
//! separated by commas: a test that lacks it fails.

use std::fmt::{self, Display};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a test may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Reference files and data sets beside the project.
    Fixtures,
    /// An `mpirun`.
    Mpi,
    /// Python with the public packages that results are compared with.
    Peers,
    /// Slurm's daemons and the rights to start them.
    Slurm,
    /// A Chromium and its driver.
    Browser,
    /// The rights of root, to mount a small disk or to make a host of its own.
    Root,
    /// Something else of this machine: its processor, its file system.
    Machine,
}

impl Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Need::Fixtures => "fixtures",
            Need::Mpi => "mpi",
            Need::Peers => "peers",
            Need::Slurm => "slurm",
            Need::Browser => "browser",
            Need::Root => "root",
            Need::Machine => "machine",
        })
    }
}

/// Says that the test that calls it does not run, or not whole, for lack of `need`.
///
/// # Panics
/// Where `SEGUE_REQUIRE` asks for it.
pub fn skip(need: Need, why: impl Display) {
    let test = std::thread::current().name().unwrap_or("a test").to_string();
    let line = format!("skipped ({need}): {test}: {why}");
    println!("{line}");
    let required = std::env::var("SEGUE_REQUIRE").unwrap_or_default();
    assert!(!requires(&required, need), "SEGUE_REQUIRE asks for {need}: {why}");
    if let Some(path) = std::env::var_os("SEGUE_SKIPS") {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
        // One write a line: tests run side by side.
        let written = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
        written.unwrap_or_else(|error| panic!("SEGUE_SKIPS={}: {error}", path.to_string_lossy()));
    }
}

/// A file of the shared data sets, or `None`, said in a line, where they are not on this machine.
pub fn shared_data(relative: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data").join(relative);
    if !path.exists() {
        skip(Need::Fixtures, format!("the shared data set {relative}"));
        return None;
    }
    Some(path)
}

/// The interpreter of an environment of public packages, `base` or `transfoxl`; `None`, said in a line, where it is not installed.
pub fn peer_python(environment: &str) -> Option<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/peers.sh");
    let output = Command::new("bash").arg(script).args(["python", environment]).output().ok()?;
    let python = String::from_utf8_lossy(&output.stdout).trim().to_string();
    if python.is_empty() {
        skip(Need::Peers, format!("no Python environment `{environment}` (scripts/peers.sh installs it)"));
        return None;
    }
    Some(python)
}

fn requires(list: &str, need: Need) -> bool {
    list.split(',').any(|name| name.trim() == need.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_listed_is_required() {
        assert!(requires("fixtures, mpi", Need::Mpi) && !requires("fixtures,mpi", Need::Peers));
        assert!(!requires("", Need::Fixtures));
    }
}
