//! Files of one record a line.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::str::FromStr;

use segue_data_error::{DataError, without_mark};
use segue_publish::open_regular;

/// [`each_line`] without the empty ones.
pub(crate) fn each_record(
    path: &Path,
    mut take: impl FnMut(u64, &str) -> Result<(), String>,
) -> Result<(), DataError> {
    each_line(path, |number, line| if line.is_empty() { Ok(()) } else { take(number, line) })
}

/// Hands each line to `take`, with its number from 1 and without its end. A reason that `take` gives becomes an error with that number.
pub(crate) fn each_line(
    path: &Path,
    mut take: impl FnMut(u64, &str) -> Result<(), String>,
) -> Result<(), DataError> {
    let file = open_regular(path).map_err(|e| DataError::read(path, e))?;
    let mut reader = BufReader::with_capacity(1 << 16, file);
    let (mut line, mut number) = (Vec::new(), 0);
    loop {
        line.clear();
        let taken = reader.read_until(b'\n', &mut line).map_err(|e| DataError::read(path, e))?;
        if taken == 0 {
            return Ok(());
        }
        number += 1;
        let text = if number == 1 { without_mark(&line) } else { &line };
        let text = std::str::from_utf8(text).map_err(|e| {
            let at = e.valid_up_to() + 1;
            DataError::line(path, number, format!("byte {at} of the line is not UTF-8"))
        })?;
        take(number, text.trim_end()).map_err(|why| DataError::line(path, number, why))?;
    }
}

/// The number of the line of record `place`, from 0, of a file that [`each_record`] has read.
pub(crate) fn line_of(path: &Path, place: usize) -> u64 {
    let (mut records, mut found) = (0, place as u64 + 1);
    // The file has been read once: what it refuses now leaves the number as if there were no empty lines.
    let _ = each_record(path, |line, _| {
        if records == place {
            found = line;
        }
        records += 1;
        Ok(())
    });
    found
}

/// A word of a line as a number.
pub(crate) fn number<T: FromStr>(word: Option<&str>, what: &str) -> Result<T, String> {
    let word = word.ok_or_else(|| format!("a {what} is missing"))?;
    word.parse().map_err(|_| format!("`{word}` is not a {what}"))
}

/// Words of a line.
pub(crate) fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split([' ', '\t']).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        std::fs::write(&path, "\u{FEFF}1 2\r\n\u{FEFF}3\n").unwrap();
        let mut found = Vec::new();
        each_line(&path, |number, line| {
            found.push((number, line.to_owned()));
            Ok(())
        })
        .unwrap();
        assert_eq!(found, [(1, "1 2".into()), (2, "\u{FEFF}3".into())]);
    }
}
