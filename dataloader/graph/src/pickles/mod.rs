//! Data sets as the pickles in which they are published (kimiyoung/planetoid): `PREFIX.x`, `.y`, `.tx`, `.ty`, `.graph`, and
//! inductively `.allx`, `.ally` and `.test.index`, where PREFIX ends in `ind.NAME` or `trans.NAME`.

mod emit;
mod read;
mod write;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub(crate) use read::{read, refusal};

use crate::Setting;

/// A file of a data set.
fn part(prefix: &Path, name: &str) -> PathBuf {
    let mut path = OsString::from(prefix);
    path.push(".");
    path.push(name);
    path.into()
}

/// The prefix that a path stands for: itself, or the name behind the setting's.
pub(crate) fn find(path: &Path, setting: Setting) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let named = path.with_file_name(format!("{}.{name}", setting.prefix()));
    [path.to_path_buf(), named].into_iter().find(|prefix| part(prefix, "graph").is_file())
}
