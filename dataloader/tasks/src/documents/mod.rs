//! Ranking of documents for queries (Yang 2019, §2.2.3: ClueWeb09-B): from TREC's files to pairs for training and
//! candidates for ranking.

mod pairs;
mod rankings;
mod split;
mod texts;
mod trec;

use std::path::PathBuf;

use segue_data_error::DataError;

use self::split::{Source, read_split};
use self::texts::Texts;
use super::data::{TaskData, TaskSplits};
use super::example::Kind;
use super::request::{Request, first_there, nothing_read};

pub use rankings::{Candidate, Placed, RankedQuery, Rankings, rank_documents};
pub use trec::write_run;

const QUERIES: &[&str] = &["queries.tsv", "queries.jsonl", "queries.parquet", "queries.arrow"];
const DOCUMENTS: &[&str] = &["documents.tsv", "documents.jsonl", "documents.parquet", "documents.arrow"];

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
