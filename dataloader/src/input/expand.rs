use std::fs;
use std::path::{Path, PathBuf};

use glob::{GlobError, MatchOptions, Pattern, glob_with};
use segue_data_error::{DataError, without_mark};

/// How names match patterns: as in a shell, except that hidden entries are left out wherever they stand.
const MATCHING: MatchOptions =
    MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };

/// The files and folders that inputs name. Of a name that nothing has, `@FILE` stands for the inputs that the lines of
/// a file name, and one with `*`, `?` or `[..]` for all that match it, sorted.
pub(super) fn expand(inputs: &[PathBuf]) -> Result<Vec<PathBuf>, DataError> {
    let mut names = Vec::new();
    for input in inputs {
        match listed(input) {
            Some(list) => names.extend(in_list(Path::new(list))?),
            None => names.extend(matching(input)?),
        }
    }
    Ok(names)
}

/// The name of a list that an input means, if it means one.
fn listed(input: &Path) -> Option<&str> {
    input.to_str()?.strip_prefix('@').filter(|_| fs::symlink_metadata(input).is_err())
}

/// The inputs that a file lists, one a line; blank lines are left out.
fn in_list(list: &Path) -> Result<Vec<PathBuf>, DataError> {
    let text = fs::read(list).map_err(|e| DataError::read(list, e))?;
    let text = std::str::from_utf8(without_mark(&text))
        .map_err(|e| DataError::NotUtf8 { path: list.into(), offset: e.valid_up_to() as u64 })?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let names: Vec<Vec<PathBuf>> = lines.map(|line| matching(Path::new(line))).collect::<Result<_, _>>()?;
    match names.is_empty() {
        true => Err(DataError::EmptyInput { why: format!("the list {} names no file", list.display()) }),
        false => Ok(names.concat()),
    }
}

/// What matches a pattern, or the name itself where it is none.
fn matching(input: &Path) -> Result<Vec<PathBuf>, DataError> {
    let pattern = input.to_str().filter(|name| name.contains(['*', '?', '[']));
    let Some(pattern) = pattern.filter(|_| fs::symlink_metadata(input).is_err()) else {
        return Ok(vec![input.into()]);
    };
    let found = glob_with(pattern, MATCHING).map_err(|e| {
        let escaped = Pattern::escape(pattern);
        DataError::Usage(format!("`{pattern}` is not a pattern: {}\nhint: write {escaped} for a name", e.msg))
    })?;
    let found: Result<Vec<PathBuf>, _> = found.collect();
    let unreadable = |e: GlobError| {
        let path = e.path().to_owned();
        DataError::read(&path, e.into())
    };
    let mut found = found.map_err(unreadable)?;
    found.sort();
    match found.is_empty() {
        true => Err(DataError::Missing { path: input.into(), why: "nothing matches the pattern".into() }),
        false => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_and_lists_stand_for_files_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("b")).unwrap();
        for name in ["2.txt", "10.txt", ".3.txt", "b/1.txt", "[x].txt", "@y"] {
            fs::write(path(name), name).unwrap();
        }
        let list = format!("\u{FEFF}{}\r\n\n{}\n", path("b/1.txt").display(), path("?.txt").display());
        fs::write(path("list"), list).unwrap();
        let at = format!("@{}", path("list").display());
        let names = |input: &Path| -> Vec<String> {
            let found = expand(&[input.to_owned()]).unwrap();
            let name = |found: &PathBuf| found.strip_prefix(folder.path()).unwrap().display().to_string();
            found.iter().map(name).collect()
        };
        assert_eq!(names(&path("*.txt")), ["10.txt", "2.txt", "[x].txt"]);
        assert_eq!(names(&path("**/*.txt")), ["10.txt", "2.txt", "[x].txt", "b/1.txt"]);
        // A file of that very name comes before a pattern.
        assert_eq!(names(&path("[x].txt")), ["[x].txt"]);
        assert_eq!(names(&path("2.txt")), ["2.txt"]);
        assert_eq!(names(Path::new(&at)), ["b/1.txt", "2.txt"]);
    }

    #[test]
    fn what_names_nothing_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("empty"), "\n \n").unwrap();
        fs::write(path("latin1"), b"caf\xe9\n").unwrap();
        let fails = |input: PathBuf| {
            let error = expand(&[input]).unwrap_err();
            (error.exit_code(), error.to_string())
        };
        let list = |name: &str| PathBuf::from(format!("@{}", path(name).display()));
        let (code, message) = fails(path("*.parquet"));
        assert_eq!(code, 66, "{message}");
        assert!(message.ends_with("*.parquet is missing: nothing matches the pattern"), "{message}");
        assert_eq!(fails(path("[x")).0, 64);
        assert_eq!(fails(list("none")).0, 66);
        assert_eq!(fails(list("empty")).0, 65);
        assert_eq!(fails(list("latin1")).0, 65);
    }
}
