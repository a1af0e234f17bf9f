use std::path::Path;

use ahash::{AHashMap, AHashSet};
use segue_data_error::DataError;

use super::pairs::pairs;
use super::rankings::{Candidate, RankedQuery, Rankings};
use super::texts::Texts;
use super::trec::{Named, NamedDocuments, read_judgements, read_run};
use crate::data::{Records, Split};
use crate::example::{Example, Sequence, Target};
use crate::request::Request;
use crate::sieve::{Sieve, TRAIN};

/// What all splits are read from.
pub(super) struct Source<'a> {
    pub(super) request: &'a Request<'a>,
    pub(super) queries: &'a Texts,
    pub(super) documents: &'a Texts,
}

/// Token ids of the texts of a split, by name.
struct Tokens<'a> {
    queries: AHashMap<&'a str, Vec<u32>>,
    documents: AHashMap<&'a str, Vec<u32>>,
}

/// The grade of what nobody judged, where no document has another.
const NOT_JUDGED: i64 = -1;

/// The grades of each query's documents.
type Grades<'a> = AHashMap<&'a str, AHashMap<&'a str, u32>>;

/// Reads a split: of training all pairs that are learnt from, of others an example for each candidate. Candidates are
/// what the run names, or without one what was judged.
pub(super) fn read_split(
    source: &Source<'_>,
    name: &str,
    qrels: Option<&Path>,
    run: Option<&Path>,
    mut sieve: Sieve,
) -> Result<Split, DataError> {
    let judgements = qrels.map(|path| read_judgements(path, &mut sieve)).transpose()?;
    let retrieved = run.map(|path| read_run(path, &mut sieve)).transpose()?;
    let (Some(path), Some(named)) = (run.or(qrels), retrieved.as_ref().or(judgements.as_ref())) else {
        let message = format!("{name}: neither judgements nor a run are given");
        return Err(DataError::Usage(message));
    };
    let usable = known(source, path, &named.lines, &mut sieve)?;
    let judged = judgements.as_ref().filter(|judged| name == TRAIN || !is_unjudged(judged));
    if judged.is_none() && judgements.is_some() {
        sieve.note(format!(
            "every grade is {NOT_JUDGED}, which marks what nobody judged: documents are ranked and not scored"
        ));
    }
    let grades = grades(judged);
    let tokens = encode(source, &usable, &mut sieve)?;
    let mut queries = candidates(&named.lines, &tokens);
    let (examples, records) = match name {
        TRAIN => {
            queries.retain(|(_, documents)| !documents.is_empty());
            (learnt_from(source, &queries, &grades, &tokens, &mut sieve), Vec::new())
        }
        _ => {
            // A query with nothing to rank is of use for scores alone.
            queries.retain(|(query, documents)| !documents.is_empty() || grades.contains_key(query));
            note_left_out(&grades, &queries, &mut sieve);
            asked(source, &queries, &grades, &tokens)
        }
    };
    if examples.is_empty() {
        let why = match name {
            TRAIN => "it has nothing to learn: no query has candidates of different grades",
            _ => "no query has a candidate with a text",
        };
        return Err(sieve.nothing(path, why));
    }
    let highest_grade = grades.values().flat_map(|judged| judged.values()).copied().max().unwrap_or(0);
    Ok(Split {
        name: name.into(),
        examples,
        records: Records::Rankings(Rankings { queries: records, highest_grade }),
        skipped: sieve.done(),
        fingerprint: fingerprint(source, [judgements.as_ref(), retrieved.as_ref()]),
        submission: None,
    })
}

fn is_unjudged(judgements: &NamedDocuments) -> bool {
    judgements.lines.iter().all(|named| named.grade == NOT_JUDGED)
}

/// The lines whose query and document have a text.
fn known<'a>(
    source: &Source<'_>,
    path: &Path,
    lines: &'a [Named],
    sieve: &mut Sieve,
) -> Result<Vec<&'a Named>, DataError> {
    let mut known = Vec::with_capacity(lines.len());
    for named in lines {
        let unknown =
            [("query", &named.query, source.queries), ("document", &named.document, source.documents)]
                .into_iter()
                .find(|(_, name, texts)| !texts.has(name));
        match unknown {
            None => known.push(named),
            Some((what, name, texts)) => {
                let why = format!("the {what} `{name}` is not in {}", texts.path().display());
                sieve.refuse(DataError::line(path, named.line, why))?;
            }
        }
    }
    match known.is_empty() {
        true => Err(DataError::line(path, 1, "no line of it names a query and a document that have a text")),
        false => Ok(known),
    }
}

fn grades(judgements: Option<&NamedDocuments>) -> Grades<'_> {
    let mut grades = Grades::new();
    for named in judgements.iter().flat_map(|judgements| &judgements.lines) {
        // Below 0, as of spam, counts as 0.
        let grade = named.grade.max(0) as u32;
        grades.entry(&named.query).or_default().insert(&named.document, grade);
    }
    grades
}

/// The tokens of every text that is named. A query has at most half of a sequence, and documents fill it.
fn encode<'a>(source: &Source<'_>, named: &[&'a Named], sieve: &mut Sieve) -> Result<Tokens<'a>, DataError> {
    let longest = source.request.template.longest();
    let longest_query = source.request.task.max_question.min(longest / 2);
    let queries = different(named.iter().map(|named| named.query.as_str()));
    let documents = different(named.iter().map(|named| named.document.as_str()));
    Ok(Tokens {
        queries: source.queries.encode(source.request, &queries, longest_query, sieve)?,
        documents: source.documents.encode(source.request, &documents, longest, sieve)?,
    })
}

fn different<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = AHashSet::new();
    names.filter(|name| seen.insert(*name)).collect()
}

/// The candidates of each query, both in the order of the file; those whose text has no tokens stay out.
fn candidates<'a>(named: &'a [Named], tokens: &Tokens<'_>) -> Vec<(&'a str, Vec<&'a str>)> {
    let mut queries: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut places: AHashMap<&str, usize> = AHashMap::new();
    for Named { query, document, .. } in named {
        let place = *places.entry(query).or_insert(queries.len());
        if place == queries.len() {
            queries.push((query, Vec::new()));
        }
        if tokens.queries.contains_key(query.as_str()) && tokens.documents.contains_key(document.as_str()) {
            queries[place].1.push(document);
        }
    }
    queries
}

fn sequence(source: &Source<'_>, tokens: &Tokens<'_>, query: &str, document: &str) -> Sequence {
    source.request.template.query(&tokens.queries[query], &tokens.documents[document])
}

fn grade(grades: &Grades<'_>, query: &str, document: &str) -> u32 {
    grades.get(query).and_then(|judged| judged.get(document)).copied().unwrap_or(0)
}

/// Pairs of documents, the more relevant one first.
fn learnt_from(
    source: &Source<'_>,
    queries: &[(&str, Vec<&str>)],
    grades: &Grades<'_>,
    tokens: &Tokens<'_>,
    sieve: &mut Sieve,
) -> Vec<Example> {
    let (most, seed) = (source.request.task.negatives, source.request.seed);
    let mut examples = Vec::new();
    let mut useless = 0;
    for (number, (query, documents)) in (0..).zip(queries) {
        let of: Vec<u32> = documents.iter().map(|document| grade(grades, query, document)).collect();
        let pairs = pairs(&of, most, seed, number);
        useless += u64::from(pairs.is_empty());
        examples.extend(pairs.into_iter().map(|pair| Example {
            sequences: pair.iter().map(|&place| sequence(source, tokens, query, documents[place])).collect(),
            target: Target::Option(0),
        }));
    }
    if useless > 0 {
        sieve.note(format!(
            "{useless} queries have no candidates of different grades, so nothing is learnt from them"
        ));
    }
    examples
}

/// An example for each candidate.
fn asked(
    source: &Source<'_>,
    queries: &[(&str, Vec<&str>)],
    grades: &Grades<'_>,
    tokens: &Tokens<'_>,
) -> (Vec<Example>, Vec<RankedQuery>) {
    let mut examples = Vec::new();
    let mut records = Vec::with_capacity(queries.len());
    for (query, documents) in queries {
        let mut candidates = Vec::with_capacity(documents.len());
        for document in documents {
            candidates.push(Candidate {
                document: document.to_string(),
                example: examples.len() as u32,
                grade: grade(grades, query, document),
            });
            let sequences = vec![sequence(source, tokens, query, document)];
            examples.push(Example { sequences, target: Target::Unknown });
        }
        let judged = grades.get(query).map(|judged| judged.values().copied().collect()).unwrap_or_default();
        records.push(RankedQuery { id: query.to_string(), candidates, judged: sorted(judged) });
    }
    (examples, records)
}

/// The best first.
fn sorted(mut grades: Vec<u32>) -> Vec<u32> {
    grades.sort_unstable_by(|a, b| b.cmp(a));
    grades
}

/// Queries that were judged and that the file does not name are not scored. Those of which nothing can be read are, as
/// queries for which nothing was found.
fn note_left_out(grades: &Grades<'_>, queries: &[(&str, Vec<&str>)], sieve: &mut Sieve) {
    let empty = queries.iter().filter(|(_, documents)| documents.is_empty()).count();
    if empty > 0 {
        sieve.note(format!("{empty} judged queries have no candidate with a text and are scored with 0"));
    }
    let asked: AHashSet<&str> = queries.iter().map(|(query, _)| *query).collect();
    let left_out = grades.keys().filter(|query| !asked.contains(*query)).count();
    if left_out > 0 {
        sieve.note(format!("{left_out} judged queries have no candidates and are not scored"));
    }
}

fn fingerprint(source: &Source<'_>, named: [Option<&NamedDocuments>; 2]) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(source.queries.fingerprint().as_bytes());
    hasher.update(source.documents.fingerprint().as_bytes());
    for named in named {
        // A file that is not there is not one that is empty.
        hasher.update(named.map_or("-", |named| &named.fingerprint).as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}
