//! The file of merges that `learn_bpe` writes and `apply_bpe` reads.

use ahash::AHashMap;
use compact_str::CompactString;

/// Marks the end of a word.
pub(crate) const END: &str = "</w>";
/// Begins the line that tells the version; files of version 0.1 have none.
pub(crate) const HEADER: &str = "#version:";
/// Merges that are read of a file; published ones have up to 90,000.
const MOST_MERGES: usize = 1 << 24;
/// Characters of a faulty line that a message shows.
const SHOWN: usize = 60;

/// Two neighbouring symbols that become one.
pub(crate) type Merge = (CompactString, CompactString);

/// How the end of a word stands in merges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// 0.1: as a symbol of its own behind the last character.
    EndAlone,
    /// 0.2: glued to the last character.
    EndGlued,
}

/// Merges in the order of their ranks.
#[derive(Debug)]
pub(crate) struct Codes {
    pub(crate) version: Version,
    pub(crate) merges: Vec<Merge>,
    /// The file, unchanged.
    pub(crate) file: Vec<u8>,
}

impl Codes {
    /// Reads a file of merges. The error names the line.
    pub(crate) fn read(file: Vec<u8>) -> Result<Codes, String> {
        let text = text_of(&file)?;
        // A file may end in empty lines.
        let mut lines = (1..).zip(text.trim_end_matches(['\n', '\r']).split_terminator('\n')).peekable();
        let header = lines.next_if(|(_, line)| line.starts_with(HEADER));
        let version = header.map_or(Ok(Version::EndAlone), |(_, line)| version_of(line))?;
        let (mut merges, mut seen) = (Vec::new(), AHashMap::new());
        for (number, line) in lines {
            let merge = merge_of(line).map_err(|why| format!("line {number}: {why}"))?;
            if let Some(first) = seen.insert(merge.clone(), number) {
                return Err(format!(
                    "line {number}: the merge `{}` is in line {first} already\nhint: remove the later line, which has no effect",
                    shown(line)
                ));
            }
            if merges.len() == MOST_MERGES {
                return Err(format!("line {number}: it has more than {MOST_MERGES} merges"));
            }
            merges.push(merge);
        }
        Ok(Codes { version, merges, file })
    }

    /// The file of merges that were learned.
    pub(crate) fn of_merges(version: Version, merges: &[Merge]) -> Result<Codes, String> {
        let mut file = match version {
            Version::EndAlone => String::new(),
            Version::EndGlued => format!("{HEADER} 0.2\n"),
        };
        for (left, right) in merges {
            for part in [left, " ", right, "\n"] {
                file.push_str(part);
            }
        }
        Codes::read(file.into_bytes())
    }
}

/// The text of a file; the error names the line that is not UTF-8.
pub(super) fn text_of(file: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(file).map_err(|error| {
        let before = file[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
        format!("line {}: it is not UTF-8", before + 1)
    })
}

/// As `apply_bpe` reads it: the last word of the line, and zeros at the end of that do not count.
fn version_of(line: &str) -> Result<Version, String> {
    let found = line.split_whitespace().next_back().unwrap_or_default();
    let found = found.strip_prefix(HEADER).unwrap_or(found);
    let mut version = found;
    while let Some((rest, last)) = version.rsplit_once('.')
        && !last.is_empty()
        && last.bytes().all(|digit| digit == b'0')
    {
        version = rest;
    }
    match version {
        "0.1" => Ok(Version::EndAlone),
        "0.2" => Ok(Version::EndGlued),
        _ => Err(format!("line 1: unsupported version `{}`, expected 0.1 or 0.2", shown(found))),
    }
}

fn merge_of(line: &str) -> Result<Merge, String> {
    let line = line.trim_matches([' ', '\r']);
    match line.split_once(' ') {
        Some((left, right)) if !right.contains(' ') => Ok((left.into(), right.into())),
        _ => {
            let found = line.split(' ').filter(|symbol| !symbol.is_empty()).count();
            Err(format!("`{}` is not a merge: {found} symbols, expected 2 with a blank between", shown(line)))
        }
    }
}

/// The beginning of a foreign text, short enough for a message.
pub(super) fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(file: &str) -> Result<Codes, String> {
        Codes::read(file.as_bytes().to_vec())
    }

    #[test]
    fn the_first_line_tells_where_the_end_of_a_word_stands() {
        for (file, version) in [
            ("#version: 0.2\na b</w>\n", Version::EndGlued),
            ("#version: 0.2.0\r\na b</w>\r\n\n", Version::EndGlued),
            ("#version:0.1\na b</w>", Version::EndAlone),
            ("a b</w>\n", Version::EndAlone),
        ] {
            let codes = read(file).unwrap();
            assert_eq!(codes.version, version, "{file:?}");
            assert_eq!(codes.merges, [("a".into(), "b</w>".into())], "{file:?}");
            assert_eq!(codes.file, file.as_bytes());
        }
        assert!(read("#version: 0.2\n").unwrap().merges.is_empty());
        assert!(read("").unwrap().merges.is_empty());
    }

    #[test]
    fn a_fault_is_named_with_its_line() {
        for (file, message) in [
            ("#version: 0.2\na b\nabc\n", "line 3: `abc` is not a merge: 1 symbols"),
            ("a b\n\nc d\n", "line 2: `` is not a merge: 0 symbols"),
            ("\na b\n", "line 1: `` is not a merge: 0 symbols"),
            ("a b c\n", "line 1: `a b c` is not a merge: 3 symbols"),
            ("a  b\n", "line 1: `a  b` is not a merge: 2 symbols"),
            ("#version: 0.3\na b\n", "line 1: unsupported version `0.3`"),
            ("#version: 0.2\na b\nb c\na b\n", "line 4: the merge `a b` is in line 2 already"),
            ("#version:\na b\n", "line 1: unsupported version ``"),
        ] {
            let found = read(file).unwrap_err();
            assert!(found.starts_with(message), "{file:?}: {found}");
        }
        let message = Codes::read(b"a b\n\xffa b\n".to_vec()).unwrap_err();
        assert_eq!(message, "line 2: it is not UTF-8");
    }
}
