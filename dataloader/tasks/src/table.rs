use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use segue_configs::counted;
use segue_data_error::{DataError, without_mark};
use serde_json::Value;
use serde_json::value::RawValue;

use super::csv::CsvRecords;
use super::json::is_whole;
use super::packed::{extension, read_unpacked};
use super::sieve::Sieve;

/// Keys of a JSON object that are looked at.
const MOST_KEYS: usize = 256;

/// How a file holds its table, told by its extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// A line a row, tabs between cells, no quoting: a quote is text.
    Tsv,
    /// RFC 4180.
    Csv,
    /// A JSON object a line.
    JsonLines,
}

impl Format {
    pub(super) fn of(path: &Path) -> Format {
        match extension(path) {
            Some("csv") => Format::Csv,
            Some("json" | "jsonl" | "ndjson") => Format::JsonLines,
            // Of columns, each row comes as a JSON object.
            _ if segue_columnar::Format::of(path).is_some() => Format::JsonLines,
            _ => Format::Tsv,
        }
    }
}

/// A file of rows. Windows' line ends and a byte-order mark are accepted, blank lines left out.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) path: PathBuf,
    /// Names of the columns, where the file tells them.
    pub(super) header: Option<Vec<String>>,
    /// The rows, all of `width` cells.
    pub(super) rows: Vec<TableRow>,
    pub(super) width: usize,
    /// BLAKE3 of what the file holds, unpacked; of columns, of their JSON lines.
    pub(super) fingerprint: String,
}

/// A row and the line where it begins, from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TableRow {
    pub(super) line: u64,
    pub(super) cells: Vec<String>,
}

impl Table {
    /// Reads a file. `is_header` looks at the cells of the first line.
    pub(super) fn read(
        path: &Path,
        is_header: impl Fn(&[String]) -> bool,
        sieve: &mut Sieve,
    ) -> Result<Table, DataError> {
        Table::parse(path, &read_unpacked(path)?, is_header, sieve)
    }

    /// [`Table::read`] of what the file holds, unpacked.
    pub(super) fn parse(
        path: &Path,
        bytes: &[u8],
        is_header: impl Fn(&[String]) -> bool,
        sieve: &mut Sieve,
    ) -> Result<Table, DataError> {
        Table::parse_as(Format::of(path), path, bytes, is_header, sieve)
    }

    /// [`Table::parse`] of a format that the name does not tell.
    pub(super) fn parse_as(
        format: Format,
        path: &Path,
        bytes: &[u8],
        is_header: impl Fn(&[String]) -> bool,
        sieve: &mut Sieve,
    ) -> Result<Table, DataError> {
        let fingerprint = blake3::hash(bytes).to_hex().to_string();
        let text = without_mark(bytes);
        if text.trim_ascii().is_empty() {
            return Err(DataError::line(path, 1, "the file is empty"));
        }
        let (header, rows) = match format {
            Format::JsonLines => {
                let (header, rows) = objects(path, text, sieve)?;
                (Some(header), rows)
            }
            _ => {
                let mut rows = cells(path, text, format, sieve)?;
                let header = rows.first().is_some_and(|first| is_header(&first.cells));
                let header = header.then(|| rows.remove(0).cells);
                (header, rows)
            }
        };
        let width = header.as_ref().map_or_else(|| commonest_width(&rows), Vec::len);
        let measure = if header.is_some() { "the header has" } else { "most lines have" };
        let rows = keep_wide(path, rows, width, measure, sieve)?;
        if rows.is_empty() {
            let why = match header {
                Some(_) => "no line after the header can be used",
                None => "no line of the file can be used",
            };
            return Err(sieve.nothing(path, why));
        }
        Ok(Table { path: path.into(), header, rows, width, fingerprint })
    }

    /// The place of the column of the header that has one of these names.
    pub(super) fn column(&self, names: &[&str]) -> Option<usize> {
        let header = self.header.as_ref()?;
        names.iter().find_map(|name| header.iter().position(|cell| cell == name))
    }

    /// An error about a line.
    pub(super) fn bad(&self, line: u64, why: impl Into<String>) -> DataError {
        DataError::line(&self.path, line, why)
    }
}

/// The lines that are not blank, with their numbers, as UTF-8. Without their ends.
pub(super) fn lines<'a>(
    path: &Path,
    text: &'a [u8],
    sieve: &mut Sieve,
) -> Result<Vec<(u64, &'a str)>, DataError> {
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.trim_ascii().is_empty() {
            continue;
        }
        if let Some(line) = sieve.keep(utf8(path, number, line))? {
            lines.push((number, line));
        }
    }
    Ok(lines)
}

pub(super) fn utf8<'a>(path: &Path, line: u64, bytes: &'a [u8]) -> Result<&'a str, DataError> {
    std::str::from_utf8(bytes).map_err(|e| {
        let why = format!(
            "it is not UTF-8 at byte {} of the text\nhint: convert the file to UTF-8",
            e.valid_up_to() + 1
        );
        DataError::line(path, line, why)
    })
}

/// Rows of a TSV or CSV file, of any number of cells.
fn cells(path: &Path, text: &[u8], format: Format, sieve: &mut Sieve) -> Result<Vec<TableRow>, DataError> {
    if format == Format::Tsv {
        let row = |(line, text): (u64, &str)| TableRow {
            line,
            cells: text.split('\t').map(str::to_owned).collect(),
        };
        return Ok(lines(path, text, sieve)?.into_iter().map(row).collect());
    }
    let mut rows = Vec::new();
    for (line, record) in CsvRecords::new(text) {
        let fields = record.map_err(|why| {
            DataError::line(path, line, format!("{why}\nhint: double the quotes inside quotes"))
        });
        let strings = fields.and_then(|fields| {
            fields.iter().map(|field| utf8(path, line, field).map(str::to_owned)).collect()
        });
        if let Some(cells) = sieve.keep(strings)? {
            rows.push(TableRow { line, cells });
        }
    }
    Ok(rows)
}

/// Rows of a file of JSON objects, a line each. The columns are the keys of all of them, in the order in which they come first; what an object
/// lacks is empty.
fn objects(path: &Path, text: &[u8], sieve: &mut Sieve) -> Result<(Vec<String>, Vec<TableRow>), DataError> {
    let (mut header, mut rows): (Vec<String>, Vec<TableRow>) = (Vec::new(), Vec::new());
    for (line, text) in lines(path, text, sieve)? {
        let Some(mut object) = sieve.keep(object(path, line, text))? else { continue };
        let mut cells: Vec<String> =
            header.iter().map(|key| object.remove(key).unwrap_or_default()).collect();
        for (key, value) in object.into_iter().take(MOST_KEYS - header.len()) {
            header.push(key);
            cells.push(value);
        }
        rows.push(TableRow { line, cells });
    }
    rows.iter_mut().for_each(|row| row.cells.resize(header.len(), String::new()));
    Ok((header, rows))
}

/// The keys of a JSON object with their cells.
fn object(path: &Path, line: u64, text: &str) -> Result<BTreeMap<String, String>, DataError> {
    let bad = |column: usize| {
        let why = format!("it is not a JSON object (column {column})\nhint: write one object per line");
        DataError::line(path, line, why)
    };
    let object: BTreeMap<String, &RawValue> = serde_json::from_str(text).map_err(|e| bad(e.column()))?;
    let cell = |(key, raw): (String, &RawValue)| {
        let before = raw.get().as_ptr().addr().saturating_sub(text.as_ptr().addr());
        raw_cell(raw.get()).map(|cell| (key, cell)).map_err(|e| bad(before + e.column()))
    };
    object.into_iter().map(cell).collect()
}

/// A value as a cell. A whole number keeps its digits, of which a float has no room for more than some.
fn raw_cell(raw: &str) -> serde_json::Result<String> {
    if is_whole(raw) { Ok(raw.into()) } else { serde_json::from_str(raw).map(|value| cell_of(Some(value))) }
}

/// A value as a cell: what is not there, and null, are empty.
pub(super) fn cell_of(value: Option<Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text,
        Some(value) => value.to_string(),
    }
}

/// The number of cells that most rows have.
fn commonest_width(rows: &[TableRow]) -> usize {
    let mut counts = BTreeMap::new();
    for row in rows {
        *counts.entry(row.cells.len()).or_insert(0u64) += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map_or(0, |(width, _)| width)
}

/// The rows of `width` cells; the others are refused.
fn keep_wide(
    path: &Path,
    rows: Vec<TableRow>,
    width: usize,
    measure: &str,
    sieve: &mut Sieve,
) -> Result<Vec<TableRow>, DataError> {
    let mut kept = Vec::with_capacity(rows.len());
    for row in rows {
        if row.cells.len() == width {
            kept.push(row);
            continue;
        }
        let why = format!("it has {} where {measure} {width}", counted(row.cells.len(), "column"));
        sieve.refuse(DataError::line(path, row.line, why))?;
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(name: &str, bytes: &[u8], skip: bool) -> (Result<Table, DataError>, super::super::Skipped) {
        let mut sieve = Sieve::new(skip);
        let header = |cells: &[String]| cells.iter().any(|cell| cell == "text");
        (Table::parse(Path::new(name), bytes, header, &mut sieve), sieve.done())
    }

    fn rows(table: &Table) -> Vec<(u64, Vec<&str>)> {
        table.rows.iter().map(|row| (row.line, row.cells.iter().map(String::as_str).collect())).collect()
    }

    #[test]
    fn a_quote_in_a_tsv_is_text_and_windows_files_read_like_others() {
        let (table, _) = parse("a.tsv", b"\xEF\xBB\xBFtext\tlabel\r\n\"a\t1\r\n\r\nb\t0\r\n", false);
        let table = table.unwrap();
        assert_eq!(table.header.as_deref(), Some(&["text".to_string(), "label".into()][..]));
        assert_eq!(rows(&table), [(2, vec!["\"a", "1"]), (4, vec!["b", "0"])]);
        assert_eq!((table.column(&["score", "label"]), table.column(&["x"])), (Some(1), None));
    }

    #[test]
    fn quotes_that_do_not_match_cost_their_own_record_of_a_csv_alone() {
        let text =
            b"\xEF\xBB\xBFtext,label\r\n\"two\r\nlines, one \"\"cell\"\"\",1\r\n\"b\"x,0\r\n\"c,0\r\nd,0\r\n";
        let message = parse("a.csv", text, false).0.unwrap_err().to_string();
        assert_eq!(message, "a.csv, line 4: column 1 goes on after its closing quote");
        let (table, skipped) = parse("a.csv", text, true);
        let table = table.unwrap();
        assert_eq!(table.header.as_deref(), Some(&["text".to_string(), "label".into()][..]));
        assert_eq!(rows(&table), [(2, vec!["two\r\nlines, one \"cell\"", "1"]), (6, vec!["d", "0"])]);
        assert_eq!(skipped.count, 2);
        assert!(
            skipped.first[1].starts_with("a.csv, line 5: the quote that begins column 1 is never closed")
        );
    }

    #[test]
    fn json_objects_become_rows_of_the_keys_of_all() {
        let text = b"{\"b\": 1.5, \"a\": \"x\"}\n{\"a\": \"y\", \"label\": \"no\"}\n{\"label\": null}\n";
        let table = parse("a.jsonl", text, false).0.unwrap();
        assert_eq!(table.header.clone().unwrap(), ["a", "b", "label"]);
        assert_eq!(
            rows(&table),
            [(1, vec!["x", "1.5", ""]), (2, vec!["y", "", "no"]), (3, vec!["", "", ""])]
        );
        let keys = |from: usize| {
            let object: serde_json::Map<String, Value> =
                (from..from + 200).map(|n| (format!("k{n}"), Value::Null)).collect();
            format!("{}\n", Value::Object(object))
        };
        let many = parse("a.jsonl", format!("{}{}", keys(0), keys(100)).as_bytes(), false).0.unwrap();
        assert_eq!(many.width, MOST_KEYS);
    }

    #[test]
    fn bad_lines_are_named_and_counted() {
        let text = b"a\t1\nb\t0\nno label\n\xFFx\t1\nc\t1\n";
        assert_eq!(
            parse("a.tsv", text, false).0.unwrap_err().to_string(),
            "a.tsv, line 4: it is not UTF-8 at byte 1 of the text"
        );
        let (table, skipped) = parse("a.tsv", text, true);
        assert_eq!(rows(&table.unwrap()), [(1, vec!["a", "1"]), (2, vec!["b", "0"]), (5, vec!["c", "1"])]);
        assert_eq!(skipped.count, 2);
        assert!(skipped.first[1].starts_with("a.tsv, line 3: it has 1 column where most lines have 2"));
        let json = parse("a.jsonl", b"{}\n[1]\n", false).0.unwrap_err().to_string();
        assert!(json.starts_with("a.jsonl, line 2: it is not a JSON object"), "{json}");
    }

    #[test]
    fn whole_numbers_in_json_keep_their_digits() {
        let lines = b"{\"id\": 9007199254740993, \"text\": \"a\"}\n{\"id\": 123456789012345678901234, \"text\": \"b\"}\n\
                      {\"id\": -1.0, \"text\": null, \"more\": [1, {\"a\": 2}]}\n";
        let table = parse("a.jsonl", lines, false).0.unwrap();
        let ids: Vec<&str> = table.rows.iter().map(|row| row.cells[0].as_str()).collect();
        assert_eq!(ids, ["9007199254740993", "123456789012345678901234", "-1.0"]);
        assert_eq!(table.rows[2].cells[1..], ["".to_string(), r#"[1,{"a":2}]"#.into()]);
    }

    #[test]
    fn files_without_rows_are_refused() {
        for (bytes, why) in [
            (&b""[..], "the file is empty"),
            (b"\xEF\xBB\xBF\r\n \n", "the file is empty"),
            (b"text\tlabel\n", "no line after the header can be used"),
        ] {
            let error = parse("a.tsv", bytes, false).0.unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
            assert_eq!(error.exit_code(), 65);
        }
    }

    proptest! {
        #[test]
        fn cells_come_back_as_they_were_written(
            rows in proptest::collection::vec(proptest::collection::vec("[a\", é]{1,6}x", 3), 1..8),
            windows: bool,
            bom: bool,
        ) {
            let end = if windows { "\r\n" } else { "\n" };
            let mark = if bom { "\u{FEFF}" } else { "" };
            let body: String = rows.iter().map(|row| row.join("\t") + end).collect();
            let table = parse("a.tsv", format!("{mark}{body}").as_bytes(), false).0.unwrap();
            let read: Vec<Vec<String>> = table.rows.into_iter().map(|row| row.cells).collect();
            prop_assert_eq!(read, rows);
        }

        #[test]
        fn any_bytes_give_rows_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..120), skip: bool) {
            for name in ["a.tsv", "a.csv", "a.jsonl"] {
                if let (Ok(table), _) = parse(name, &bytes, skip) {
                    prop_assert!(table.rows.iter().all(|row| row.cells.len() == table.width));
                }
            }
        }
    }
}
