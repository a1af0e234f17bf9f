use std::borrow::Cow;

use memchr::{memchr, memchr2};

/// Longest record that is looked for, in bytes: a quote that is never closed is found before that.
const LONGEST: usize = 16 << 20;

/// Records of a CSV file (RFC 4180): fields with commas between them; a field in quotes may hold commas, line ends
/// and, doubled, quotes. Blank lines are left out.
pub(super) struct CsvRecords<'a> {
    bytes: &'a [u8],
    at: usize,
    line: u64,
}

/// The fields of a record.
type Fields<'a> = Vec<Cow<'a, [u8]>>;

/// The line on which a record begins, and its fields or what is wrong with it.
pub(super) type CsvRecord<'a> = (u64, Result<Fields<'a>, String>);

impl<'a> CsvRecords<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        CsvRecords { bytes, at: 0, line: 1 }
    }

    /// One field from `at` on, and the place after it.
    fn field(&self, at: usize, column: usize) -> Result<(Cow<'a, [u8]>, usize), String> {
        if self.bytes.get(at) == Some(&b'"') {
            return self.quoted(at + 1, column);
        }
        let rest = &self.bytes[at..];
        let end = memchr2(b',', b'\n', rest).unwrap_or(rest.len());
        let field = &rest[..end];
        let at_line_end = rest.get(end) != Some(&b',');
        let field = if at_line_end { field.strip_suffix(b"\r").unwrap_or(field) } else { field };
        Ok((Cow::Borrowed(field), at + end))
    }

    fn quoted(&self, begin: usize, column: usize) -> Result<(Cow<'a, [u8]>, usize), String> {
        let mut text: Option<Vec<u8>> = None;
        let mut from = begin;
        let limit = self.bytes.len().min(begin + LONGEST);
        loop {
            // A doubled quote may end beyond the limit.
            let rest = &self.bytes[from.min(limit)..limit];
            let quote = from
                + memchr(b'"', rest)
                    .ok_or_else(|| format!("the quote that begins column {column} is never closed"))?;
            if self.bytes.get(quote + 1) == Some(&b'"') {
                text.get_or_insert_default().extend_from_slice(&self.bytes[from..=quote]);
                from = quote + 2;
                continue;
            }
            let mut after = quote + 1;
            if self.bytes[after..].starts_with(b"\r\n") || &self.bytes[after..] == b"\r" {
                after += 1;
            }
            if !matches!(self.bytes.get(after), None | Some(b',' | b'\n')) {
                return Err(format!("column {column} goes on after its closing quote"));
            }
            let last = &self.bytes[from..quote];
            let whole = match text {
                None => Cow::Borrowed(last),
                Some(text) => Cow::Owned([&text, last].concat()),
            };
            return Ok((whole, after));
        }
    }

    /// The fields of the record at `at`, and the place of the line end after it.
    fn record(&self) -> Result<(Fields<'a>, usize), String> {
        let (mut fields, mut at) = (Vec::new(), self.at);
        loop {
            let (field, end) = self.field(at, fields.len() + 1)?;
            fields.push(field);
            if self.bytes.get(end) != Some(&b',') {
                return Ok((fields, end));
            }
            at = end + 1;
        }
    }
}

impl<'a> Iterator for CsvRecords<'a> {
    type Item = CsvRecord<'a>;

    fn next(&mut self) -> Option<CsvRecord<'a>> {
        while self.at < self.bytes.len() {
            let (begin, line) = (self.at, self.line);
            let (result, end) = match self.record() {
                Ok((fields, end)) => (Ok(fields), end),
                // What follows a bad record is read from its second line on.
                Err(why) => {
                    let rest = &self.bytes[begin..];
                    (Err(why), begin + memchr(b'\n', rest).unwrap_or(rest.len()))
                }
            };
            self.at = end + 1;
            self.line += 1 + memchr::memchr_iter(b'\n', &self.bytes[begin..end]).count() as u64;
            // An empty field in quotes is one.
            let is_blank = matches!(&self.bytes[begin..end], b"" | b"\r");
            if !is_blank {
                return Some((line, result));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn records(text: &str) -> Vec<(u64, Result<Vec<String>, String>)> {
        let strings = |fields: Fields| -> Vec<String> {
            fields.iter().map(|field| String::from_utf8(field.to_vec()).unwrap()).collect()
        };
        CsvRecords::new(text.as_bytes()).map(|(line, record)| (line, record.map(strings))).collect()
    }

    fn fields(record: &[&str]) -> Vec<String> {
        record.iter().map(|field| field.to_string()).collect()
    }

    #[test]
    fn quotes_commas_and_line_ends_are_read_as_the_standard_says() {
        let text = "1,\"a, b\",\"say \"\"so\"\"\"\r\n\r\n2,\"two\nlines\",\n3,x,\"\"";
        assert_eq!(
            records(text),
            [
                (1, Ok(fields(&["1", "a, b", "say \"so\""]))),
                (3, Ok(fields(&["2", "two\nlines", ""]))),
                (5, Ok(fields(&["3", "x", ""]))),
            ]
        );
    }

    #[test]
    fn quotes_that_do_not_match_are_told_with_their_line() {
        let read = records("1,ok\n\"2\"x,bad\n3,\"open\n4,ok\n");
        assert_eq!(read[0], (1, Ok(fields(&["1", "ok"]))));
        assert_eq!(read[1], (2, Err("column 1 goes on after its closing quote".into())));
        assert_eq!(read[2], (3, Err("the quote that begins column 2 is never closed".into())));
        assert_eq!(read[3], (4, Ok(fields(&["4", "ok"]))));
    }

    #[test]
    fn a_quote_doubled_at_the_longest_length_counts_as_never_closed() {
        for length in LONGEST - 2..LONGEST + 2 {
            let text = format!("\"{}\"\"", "a".repeat(length));
            let message = "the quote that begins column 1 is never closed".to_string();
            assert_eq!(records(&text), [(1, Err(message))], "{length}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_quoted_is_read_back(
            rows in proptest::collection::vec(proptest::collection::vec("[a,\"\r\n é]{0,6}", 2..5), 0..8)
        ) {
            let quoted = |field: &String| format!("\"{}\"", field.replace('"', "\"\""));
            let text: String =
                rows.iter().map(|row| row.iter().map(quoted).collect::<Vec<_>>().join(",") + "\n").collect();
            let read: Vec<_> = records(&text).into_iter().map(|(_, record)| record.unwrap()).collect();
            prop_assert_eq!(read, rows);
        }

        #[test]
        fn files_of_the_csv_crate_are_read_as_it_reads_them(
            rows in proptest::collection::vec(proptest::collection::vec("[a,\"\r\n é]{0,6}", 2..5), 0..8),
            always: bool,
            windows: bool,
        ) {
            let style = if always { csv::QuoteStyle::Always } else { csv::QuoteStyle::Necessary };
            let end = if windows { csv::Terminator::CRLF } else { csv::Terminator::Any(b'\n') };
            let mut writer =
                csv::WriterBuilder::new().flexible(true).quote_style(style).terminator(end).from_writer(vec![]);
            rows.iter().for_each(|row| writer.write_record(row).unwrap());
            let text = String::from_utf8(writer.into_inner().unwrap()).unwrap();
            let mut reader =
                csv::ReaderBuilder::new().flexible(true).has_headers(false).from_reader(text.as_bytes());
            let (ours, theirs) = (records(&text), reader.records().map(|record| record.unwrap()));
            for ((line, our), their) in ours.iter().zip(theirs) {
                prop_assert_eq!(our.as_ref().unwrap(), &their.iter().collect::<Vec<_>>());
                // Where lines end as in Windows, the crate counts a record before its own line begins.
                prop_assert!(windows || *line == their.position().unwrap().line());
            }
            prop_assert_eq!(ours.len(), rows.len());
        }

        #[test]
        fn any_bytes_end_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let lines: Vec<u64> = CsvRecords::new(&bytes).map(|(line, _)| line).collect();
            prop_assert!(lines.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }
}
