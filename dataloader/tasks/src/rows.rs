use std::path::Path;

use rayon::prelude::*;
use segue_data_error::DataError;
use segue_tokenizer::Encoder;

use super::data::{Records, Row, Split};
use super::example::{Example, Sequence, Target};
use super::request::Request;
use super::sieve::Sieve;
use super::template::Template;

/// A row of a table as a task asks it: one text or two, and what is right.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Asked {
    pub(super) line: u64,
    pub(super) index: String,
    pub(super) first: String,
    pub(super) second: Option<String>,
    pub(super) gold: Target,
}

/// A row and its sequence.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) asked: Asked,
    pub(super) sequence: Sequence,
}

/// Applies a function to all items on all cores, in order. Each thread has an encoder of its own; results do not
/// depend on the number of threads.
pub(super) fn encode_all<T: Sync, R: Send>(
    request: &Request<'_>,
    items: &[T],
    encode: impl Fn(&mut Encoder<'_>, &T) -> R + Sync,
) -> Vec<R> {
    items.par_iter().map_init(|| request.tokenizer.encoder(), |encoder, item| encode(encoder, item)).collect()
}

/// The sequences of rows of a file. Rows whose text is empty, or that a tokenizer fails on, are refused where they are
/// learnt from.
pub(super) fn encode_rows(
    request: &Request<'_>,
    path: &Path,
    asked: Vec<Asked>,
    sieve: &mut Sieve,
) -> Result<Vec<Encoded>, DataError> {
    encode_each(request, asked, sieve, |asked, why| DataError::line(path, asked.line, why), path)
}

/// [`encode_rows`] of rows from anywhere in `from`; `bad` says which of them is bad.
pub(super) fn encode_each(
    request: &Request<'_>,
    asked: Vec<Asked>,
    sieve: &mut Sieve,
    bad: impl Fn(&Asked, String) -> DataError,
    from: &Path,
) -> Result<Vec<Encoded>, DataError> {
    let sequences = encode_all(request, &asked, |encoder, asked| sequence(request, encoder, asked));
    let mut encoded = Vec::with_capacity(asked.len());
    for (asked, (sequence, wrong)) in asked.into_iter().zip(sequences) {
        let stays = wrong.map_or(Ok(true), |why| sieve.spare(bad(&asked, why)))?;
        if stays {
            encoded.push(Encoded { asked, sequence });
        }
    }
    match encoded.is_empty() {
        true => Err(sieve.nothing(from, "no row of the file can be used")),
        false => Ok(encoded),
    }
}

/// The sequence of a row, with nothing in the place of a text that cannot be read, and what is wrong with it.
fn sequence(request: &Request<'_>, encoder: &mut Encoder<'_>, asked: &Asked) -> (Sequence, Option<String>) {
    let mut wrong = None;
    let first = ids_or_none(encoder, &asked.first, &mut wrong);
    let second = asked.second.as_ref().map(|second| ids_or_none(encoder, second, &mut wrong));
    (lay_out(&request.template, &first, second.as_deref()), wrong)
}

/// The sequence of a text, or of two.
pub(super) fn lay_out(template: &Template, first: &[u32], second: Option<&[u32]>) -> Sequence {
    match second {
        None => template.single(first),
        Some(second) => template.pair(first, second),
    }
}

/// Ids of a text, or none and the first thing that is wrong.
pub(super) fn ids_or_none(encoder: &mut Encoder<'_>, text: &str, wrong: &mut Option<String>) -> Vec<u32> {
    ids(encoder, text).unwrap_or_else(|why| {
        wrong.get_or_insert(why);
        Vec::new()
    })
}

/// Ids of a text that must not be empty.
pub(super) fn ids(encoder: &mut Encoder<'_>, text: &str) -> Result<Vec<u32>, String> {
    if text.trim().is_empty() {
        return Err("its text is empty".into());
    }
    let mut ids = Vec::new();
    encoder.encode(text, &mut ids).map_err(|why| format!("the tokenizer fails on the text: {why}"))?;
    Ok(ids)
}

/// A split whose rows are an example each.
pub(super) fn split_of(name: &str, encoded: Vec<Encoded>, fingerprint: String, sieve: Sieve) -> Split {
    let mut split = Split {
        name: name.into(),
        examples: Vec::with_capacity(encoded.len()),
        records: Records::Rows(Vec::new()),
        skipped: sieve.done(),
        fingerprint,
        submission: None,
    };
    let mut rows = Vec::with_capacity(encoded.len());
    for (example, Encoded { asked, sequence }) in (0..).zip(encoded) {
        rows.push(Row { index: asked.index, example, sequence: 0, gold: asked.gold.clone(), group: None });
        split.examples.push(Example { sequences: vec![sequence], target: asked.gold });
    }
    split.records = Records::Rows(rows);
    split
}
