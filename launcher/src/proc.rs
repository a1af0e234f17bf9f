//! What the kernel says in its files.

/// The value of a line `NAME : VALUE` of a file of the kernel's.
pub fn line_of(path: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))?;
    Some(line.split_once(':')?.1.trim().to_string())
}
