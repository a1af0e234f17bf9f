//! Ranking of documents for queries (Yang 2019, §2.2.3: ClueWeb09-B): from TREC's files to pairs for training and
//! candidates for ranking.

mod pairs;
mod split;
mod texts;
mod trec;

use std::path::PathBuf;

use segue_data_error::DataError;

use self::split::{Source, read_split};
use self::texts::Texts;
use super::data::{TaskData, TaskSplits};
use super::example::Kind;
use super::open::{Request, first_there, nothing_read};

pub use trec::write_run;

const QUERIES: &[&str] = &["queries.tsv", "queries.jsonl", "queries.parquet", "queries.arrow"];
const DOCUMENTS: &[&str] = &["documents.tsv", "documents.jsonl", "documents.parquet", "documents.arrow"];

/// The queries of a split, and what is to be ranked for each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rankings {
    /// In the order of the file that names the candidates. Of training none: its examples are pairs.
    pub queries: Vec<RankedQuery>,
    /// The highest grade of the split's judgements.
    pub highest_grade: u32,
}

/// A query with its candidates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankedQuery {
    /// Its name.
    pub id: String,
    /// Documents to bring in order.
    pub candidates: Vec<Candidate>,
    /// Grades of all documents that were judged, candidates or not; empty where nobody judged any.
    pub judged: Vec<u32>,
}

/// A document that may be an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its name.
    pub document: String,
    /// The example it became.
    pub example: u32,
    /// How relevant it is; 0 where nobody judged it.
    pub grade: u32,
}

/// A candidate in its place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Placed {
    /// Number of the candidate.
    pub candidate: usize,
    /// What it was placed by.
    pub score: f32,
}

/// The candidates of each query in falling order of their scores, equal ones in the order of their names. Example `i`
/// has the score `scores[i][0]`.
///
/// # Panics
///
/// If an example has no score.
pub fn rank_documents(queries: &[RankedQuery], scores: &[Vec<f32>]) -> Vec<Vec<Placed>> {
    let ranked = |query: &RankedQuery| {
        let placed = |(number, candidate): (usize, &Candidate)| Placed {
            candidate: number,
            score: scores[candidate.example as usize][0],
        };
        let mut order: Vec<Placed> = query.candidates.iter().enumerate().map(placed).collect();
        let name = |placed: &Placed| &query.candidates[placed.candidate].document;
        order.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| name(a).cmp(name(b))));
        order
    };
    queries.iter().map(ranked).collect()
}

pub(super) fn open(request: &Request<'_>) -> Result<TaskData, DataError> {
    let folder = request.folder();
    let there = |names: &[&str]| first_there(folder, names).ok_or_else(|| request.missing(folder, names));
    let mut sieve = request.sieve();
    let queries = Texts::read(&there(QUERIES)?, &mut sieve)?;
    let documents = Texts::read(&there(DOCUMENTS)?, &mut sieve)?;
    let source = Source { request, queries: &queries, documents: &documents };
    let file = |name: &str| first_there(folder, &[name]);
    let judged = |name: &str| -> Result<PathBuf, DataError> { there(&[name]) };
    let mut data = nothing_read(request, Kind::Ranking, Vec::new());
    let TaskSplits { train, dev, test } = request.splits;
    // What was wrong with the texts is told with the first split.
    let mut next_sieve = || std::mem::replace(&mut sieve, request.sieve());
    if train {
        let qrels = judged("train.qrels")?;
        data.train =
            Some(read_split(&source, "train", Some(&qrels), file("train.run").as_deref(), next_sieve())?);
    }
    if dev {
        let qrels = judged("dev.qrels")?;
        data.dev.push(read_split(&source, "dev", Some(&qrels), file("dev.run").as_deref(), next_sieve())?);
    }
    let (qrels, run) = (file("test.qrels"), file("test.run"));
    if test && (qrels.is_some() || run.is_some()) {
        data.test.push(read_split(&source, "test", qrels.as_deref(), run.as_deref(), next_sieve())?);
    }
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row X29.
    #[test]
    fn equal_scores_are_ordered_by_name() {
        let candidate = |document: &str, example| Candidate { document: document.into(), example, grade: 0 };
        let candidates = vec![candidate("c", 0), candidate("a", 1), candidate("b", 2), candidate("d", 3)];
        let query = RankedQuery { id: "1".into(), candidates, judged: Vec::new() };
        let ranked = rank_documents(&[query], &[vec![0.5], vec![-1.0], vec![0.5], vec![0.75]]);
        let order: Vec<usize> = ranked[0].iter().map(|placed| placed.candidate).collect();
        assert_eq!(order, [3, 2, 0, 1]);
    }
}
