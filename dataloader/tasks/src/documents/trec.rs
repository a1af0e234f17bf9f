//! The text formats of TREC: relevance judgements (qrels) and runs, fields between white space.

use std::fmt::Write;
use std::path::Path;

use ahash::AHashSet;
use segue_data_error::{DataError, without_mark};
use segue_publish::read_regular;

use super::rankings::{Placed, RankedQuery};
use crate::sieve::Sieve;
use crate::table::lines;

/// Last field of the lines that are written: which system ranked.
const TAG: &str = "segue";
/// Highest grade that gains of 2^grade make sense for.
const MOST_RELEVANT: i64 = 30;

/// One line about a document of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) line: u64,
    pub(super) query: String,
    pub(super) document: String,
    /// Of judgements, how relevant it is; 0 in runs.
    pub(super) grade: i64,
}

/// A file in one of the two formats.
#[derive(Debug)]
pub(super) struct NamedDocuments {
    pub(super) lines: Vec<Named>,
    /// BLAKE3 of the file.
    pub(super) fingerprint: String,
}

/// Reads judgements, `query 0 document grade` a line.
pub(super) fn read_judgements(path: &Path, sieve: &mut Sieve) -> Result<NamedDocuments, DataError> {
    read(path, sieve, |fields| {
        let [query, _, document, grade] = fields[..] else {
            return Err(format!("it has {} fields, expected `query 0 document grade`", fields.len()));
        };
        // As tables with gaps have whole numbers.
        let known = grade
            .strip_suffix(".0")
            .unwrap_or(grade)
            .parse::<i64>()
            .ok()
            .filter(|grade| *grade <= MOST_RELEVANT);
        let grade =
            known.ok_or_else(|| format!("the grade `{grade}` is not an integer up to {MOST_RELEVANT}"))?;
        Ok((query, document, grade))
    })
}

/// Reads a run, `query Q0 document rank score tag` a line. Its order is that of the lines.
pub(super) fn read_run(path: &Path, sieve: &mut Sieve) -> Result<NamedDocuments, DataError> {
    read(path, sieve, |fields| {
        let [query, _, document, rank, score, _] = fields[..] else {
            return Err(format!(
                "it has {} fields, expected `query Q0 document rank score tag`",
                fields.len()
            ));
        };
        for (what, field) in [("rank", rank), ("score", score)] {
            if !field.parse::<f64>().is_ok_and(f64::is_finite) {
                return Err(format!("the {what} `{field}` is not a number"));
            }
        }
        Ok((query, document, 0))
    })
}

fn read(
    path: &Path,
    sieve: &mut Sieve,
    parse: impl for<'a> Fn(&[&'a str]) -> Result<(&'a str, &'a str, i64), String>,
) -> Result<NamedDocuments, DataError> {
    let bytes = read_regular(path).map_err(|e| DataError::read(path, e))?;
    let mut seen = AHashSet::new();
    let mut named = Vec::new();
    for (line, text) in lines(path, without_mark(&bytes), sieve)? {
        let fields: Vec<&str> = text.split_whitespace().collect();
        let parsed =
            parse(&fields).and_then(|(query, document, grade)| match seen.insert((query, document)) {
                true => Ok(Named { line, query: query.into(), document: document.into(), grade }),
                false => Err(format!("the document `{document}` occurs twice for the query `{query}`")),
            });
        named.extend(sieve.keep(parsed.map_err(|why| DataError::line(path, line, why)))?);
    }
    if named.is_empty() {
        return Err(DataError::line(path, 1, "no line of the file can be used"));
    }
    Ok(NamedDocuments { lines: named, fingerprint: blake3::hash(&bytes).to_hex().to_string() })
}

/// Writes ranked documents as a TREC run, whole or not at all. `ranked` belongs to `queries` one by one.
///
/// # Errors
///
/// [`DataError::Write`].
pub fn write_run(queries: &[RankedQuery], ranked: &[Vec<Placed>], path: &Path) -> Result<(), DataError> {
    let mut text = String::new();
    for (query, documents) in queries.iter().zip(ranked) {
        for (rank, placed) in (1..).zip(documents) {
            let document = &query.candidates[placed.candidate].document;
            let _ = writeln!(text, "{} Q0 {document} {rank} {} {TAG}", query.id, placed.score);
        }
    }
    Ok(segue_publish::write_file(path, text.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::super::rankings::Candidate;
    use std::fs;

    use super::*;

    /// Row X29.
    #[test]
    fn runs_survive_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dev.run");
        let candidate = |document: &str, example| Candidate { document: document.into(), example, grade: 0 };
        let query = |id: &str, documents: &[&str]| RankedQuery {
            id: id.into(),
            candidates: documents.iter().zip(0..).map(|(document, i)| candidate(document, i)).collect(),
            judged: Vec::new(),
        };
        let queries = [query("7", &["clueweb09-en0000-00", "b"]), query("x-1", &["b"])];
        let placed = |candidate, score| Placed { candidate, score };
        let ranked = [vec![placed(1, 0.25), placed(0, -1e-7)], vec![placed(0, 1.0)]];
        write_run(&queries, &ranked, &path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let expected =
            "7 Q0 b 1 0.25 segue\n7 Q0 clueweb09-en0000-00 2 -0.0000001 segue\nx-1 Q0 b 1 1 segue\n";
        assert_eq!(text, expected);
        let read = read_run(&path, &mut Sieve::new(false)).unwrap().lines;
        let told: Vec<_> = read.iter().map(|n| (n.line, n.query.as_str(), n.document.as_str())).collect();
        assert_eq!(told, [(1, "7", "b"), (2, "7", "clueweb09-en0000-00"), (3, "x-1", "b")]);
    }

    /// Row X29.
    #[test]
    fn judgements_are_read_as_trec_writes_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dev.qrels");
        let of = |text: &str, skip_bad: bool| {
            fs::write(&path, text).unwrap();
            let mut sieve = Sieve::new(skip_bad);
            let read = read_judgements(&path, &mut sieve);
            (read.map(|read| read.lines.iter().map(|n| n.grade).collect::<Vec<_>>()), sieve.done())
        };
        assert_eq!(of("1 0 a 3\r\n1\t0\tb\t-2\n\n2 0 a 0\n", false).0.unwrap(), [3, -2, 0]);
        assert_eq!(of("1 0 a 3.0\n1 0 b -2.0\n", false).0.unwrap(), [3, -2]);
        for (text, line, why) in [
            ("1 0 a 1.5\n", 1, "`1.5`"),
            ("1 0 a 1\n1 0 a\n", 2, "3 fields"),
            ("1 0 a much\n", 1, "`much`"),
            ("1 0 a 99\n", 1, "`99`"),
            ("1 0 a 1\n1 0 b 0\n1 0 a 1\n", 3, "twice"),
        ] {
            let error = of(text, false).0.unwrap_err();
            let message = error.to_string();
            assert!(
                message.contains(&format!("dev.qrels, line {line}:")) && message.contains(why),
                "{message}"
            );
            assert_eq!(error.exit_code(), 65);
        }
        let (read, skipped) = of("1 0 a 1\n1 0 a\n1 0 a 2\n", true);
        assert_eq!((read.unwrap(), skipped.count), (vec![1], 2));
    }
}
