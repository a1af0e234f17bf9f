//! Labels of words in the layout of the CoNLL tasks: one word per line with its label in the last column, a blank
//! line between sentences.

use std::fs;
use std::path::Path;

use segue_data_error::DataError;
use segue_tokenizer::{Encoder, TokenizerKind};

use super::data::{Records, Split, TaggedSentence, TaskData};
use super::example::{Example, Kind, Target};
use super::labels::Labels;
use super::open::{Request, first_there, nothing_read};
use super::rows::encode_all;
use super::sieve::Sieve;
use super::table::without_bom;

const TRAIN: &[&str] = &["train.txt", "train.conll", "train.tsv", "eng.train"];
const DEV: &[&str] =
    &["dev.txt", "dev.conll", "dev.tsv", "valid.txt", "valid.conll", "valid.tsv", "testa.txt", "eng.testa"];
const TEST: &[&str] = &["test.txt", "test.conll", "test.tsv", "testb.txt", "eng.testb"];
/// The word of lines between documents.
const DOCUMENT: &str = "-DOCSTART-";
/// The label of words that are nothing; it comes first.
const OUTSIDE: &str = "O";

/// A sentence of a file: the line where it begins, its words, and its labels where the file tells them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sentence {
    line: u64,
    words: Vec<String>,
    labels: Vec<String>,
}

pub(super) fn open(request: &Request<'_>) -> Result<TaskData, DataError> {
    let folder = request.folder();
    let find = |names: &[&str]| first_there(folder, names).ok_or_else(|| request.missing(folder, names));
    let labels = match &request.task.labels {
        labels if labels.is_empty() => match find(TRAIN) {
            Ok(path) => collected(request, &path)?,
            Err(missing) if request.splits.train => return Err(missing),
            Err(_) => {
                let folder = folder.display();
                return Err(DataError::Usage(format!(
                    "the labels of `conll` come from its training file, which is not in {folder}\nhint: \
                     list them in task.labels"
                )));
            }
        },
        labels => Labels::new(labels.clone()),
    };
    let mut data = nothing_read(request, Kind::Tagging, labels.names.clone());
    if request.splits.train {
        data.train = Some(read(request, "train", &find(TRAIN)?, &labels)?);
    }
    if request.splits.dev {
        data.dev.push(read(request, "dev", &find(DEV)?, &labels)?);
    }
    if let (true, Ok(path)) = (request.splits.test, find(TEST)) {
        data.test.push(read(request, "test", &path, &labels)?);
    }
    Ok(data)
}

/// The labels of the training file, sorted, `O` first.
fn collected(request: &Request<'_>, path: &Path) -> Result<Labels, DataError> {
    let bytes = fs::read(path).map_err(|e| DataError::read(path, e))?;
    let sentences = sentences(path, &bytes, true, &mut request.sieve())?;
    let all = sentences.iter().flat_map(|sentence| sentence.labels.iter().map(String::as_str));
    let mut names = Labels::collected(all).names;
    names.sort_by_key(|name| name != OUTSIDE);
    Ok(Labels::new(names))
}

fn read(request: &Request<'_>, name: &str, path: &Path, labels: &Labels) -> Result<Split, DataError> {
    let bytes = fs::read(path).map_err(|e| DataError::read(path, e))?;
    let mut sieve = request.sieve();
    let sentences = sentences(path, &bytes, name != "test", &mut sieve)?;
    let encoded = encode_all(request, &sentences, |encoder, sentence| {
        encode(request, encoder, sentence, labels).map_err(|(line, why)| DataError::line(path, line, why))
    });
    let (mut examples, mut records) = (Vec::new(), Vec::new());
    for result in encoded {
        if let Some((example, record)) = sieve.keep(result)? {
            examples.push(example);
            records.push(record);
        }
    }
    if examples.is_empty() {
        return Err(DataError::line(path, 1, "no sentence of the file can be used"));
    }
    note_lost(&records, &mut sieve);
    let fingerprint = blake3::hash(&bytes).to_hex().to_string();
    let (records, skipped) = (Records::Sentences(records), sieve.done());
    Ok(Split { name: name.into(), examples, records, skipped, fingerprint, submission: None })
}

fn note_lost(sentences: &[TaggedSentence], sieve: &mut Sieve) {
    let lost = |sentence: &TaggedSentence| sentence.positions.iter().filter(|place| place.is_none()).count();
    let words: usize = sentences.iter().map(lost).sum();
    if words > 0 {
        let cut = sentences.iter().filter(|sentence| lost(sentence) > 0).count();
        sieve.note(format!(
            "{words} words of {cut} sentences did not fit and are answered {OUTSIDE}; raise train.segment \
             to read them"
        ));
    }
}

/// The sentences of a file. A sentence with a line that cannot be used is refused as a whole.
fn sentences(
    path: &Path,
    bytes: &[u8],
    labelled: bool,
    sieve: &mut Sieve,
) -> Result<Vec<Sentence>, DataError> {
    let text = without_bom(bytes);
    if text.trim_ascii().is_empty() {
        return Err(DataError::line(path, 1, "the file is empty"));
    }
    let mut sentences = Vec::new();
    let mut block: Vec<(u64, &[u8])> = Vec::new();
    let ends = std::iter::once((0, &b""[..]));
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')).chain(ends) {
        if !line.trim_ascii().is_empty() {
            block.push((number, line));
            continue;
        }
        let lines = std::mem::take(&mut block);
        let read = sentence(&lines, labelled).map_err(|(line, why)| DataError::line(path, line, why));
        sentences.extend(sieve.keep(read)?.flatten());
    }
    Ok(sentences)
}

/// A sentence of some lines; none where no word is left. Test files may lack labels.
fn sentence(lines: &[(u64, &[u8])], labelled: bool) -> Result<Option<Sentence>, (u64, String)> {
    let (mut words, mut labels) = (Vec::new(), Vec::new());
    for &(line, bytes) in lines {
        let text = std::str::from_utf8(bytes).map_err(|e| {
            (
                line,
                format!(
                    "it is not UTF-8 at byte {} of the line\nhint: convert the file to UTF-8",
                    e.valid_up_to() + 1
                ),
            )
        })?;
        let mut cells: Vec<&str> = match text.contains('\t') {
            true => text.trim_end_matches(['\r', '\t']).split('\t').map(str::trim).collect(),
            false => text.split_whitespace().collect(),
        };
        let label = (cells.len() > 1).then(|| cells.pop()).flatten();
        match (cells.first().copied(), label) {
            (Some(DOCUMENT), _) => continue,
            (None | Some(""), _) | (_, Some("")) => {
                return Err((line, "a word or its label is empty".into()));
            }
            (Some(word), label) => {
                words.push(word.to_owned());
                labels.extend(label.map(str::to_owned));
            }
        }
        if labels.len() != words.len() && (labelled || !labels.is_empty()) {
            return Err((line, "it has one column, and needs a word and a label".into()));
        }
    }
    let line = lines.first().map_or(0, |(line, _)| *line);
    Ok((!words.is_empty()).then_some(Sentence { line, words, labels }))
}

/// A sentence as a sequence; the label of a word stands at its first piece.
fn encode(
    request: &Request<'_>,
    encoder: &mut Encoder<'_>,
    sentence: &Sentence,
    labels: &Labels,
) -> Result<(Example, TaggedSentence), (u64, String)> {
    let at_line = |why| (sentence.line, why);
    let spaces = matches!(request.tokenizer.kind(), TokenizerKind::Byte | TokenizerKind::Char);
    let (mut ids, mut starts) = (Vec::new(), Vec::with_capacity(sentence.words.len()));
    for (place, word) in sentence.words.iter().enumerate() {
        let (before, text) = (ids.len(), if place == 0 { word.clone() } else { format!(" {word}") });
        let failed = |why| at_line(format!("the tokenizer fails on `{word}`: {why}"));
        encoder.encode(&text, &mut ids).map_err(failed)?;
        // Where the space is a token of its own, the word begins after it.
        let start = before + usize::from(spaces && place > 0);
        starts.push(Some(start).filter(|start| *start < ids.len()));
    }
    let gold: Result<Vec<u32>, String> = sentence.labels.iter().map(|label| labels.number(label)).collect();
    let gold = gold.map_err(at_line)?;
    let sequence = request.template.single(&ids);
    let room = sequence.ids.len() - 2;
    let fits = |start: &Option<usize>| start.filter(|start| *start < room).map(|start| start as u32);
    let positions: Vec<Option<u32>> = starts.iter().map(fits).collect();
    let target = match gold.is_empty() {
        true => Target::Unknown,
        false => {
            let mut tags = vec![None; sequence.ids.len()];
            for (position, label) in positions.iter().zip(&gold) {
                if let Some(position) = position {
                    tags[*position as usize] = Some(*label);
                }
            }
            Target::Tags(tags)
        }
    };
    let example = Example { sequences: vec![sequence], target };
    Ok((example, TaggedSentence { words: sentence.words.clone(), gold, positions }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8], labelled: bool, skip: bool) -> Result<(Vec<Sentence>, u64), DataError> {
        let mut sieve = Sieve::new(skip);
        let sentences = sentences("train.txt".as_ref(), text, labelled, &mut sieve)?;
        Ok((sentences, sieve.done().count))
    }

    fn sentence(line: u64, words: &[&str], labels: &[&str]) -> Sentence {
        let owned = |cells: &[&str]| cells.iter().map(|cell| cell.to_string()).collect();
        Sentence { line, words: owned(words), labels: owned(labels) }
    }

    #[test]
    fn words_and_the_last_column_are_read_between_blank_lines() {
        let text =
            b"-DOCSTART- -X- O O\r\n\r\nAda NNP I-NP B-PER\r\nran VBD I-VP O\r\n\r\n\r\nNew York\tB-LOC";
        let expected =
            [sentence(3, &["Ada", "ran"], &["B-PER", "O"]), sentence(7, &["New York"], &["B-LOC"])];
        assert_eq!(read(text, true, false).unwrap(), (expected.to_vec(), 0));
    }

    #[test]
    fn a_line_without_a_label_is_told_except_in_test_files_without_any() {
        let error = read(b"Ada O\n\nran O\nhome\n", true, false).unwrap_err().to_string();
        assert_eq!(error, "train.txt, line 4: it has one column, and needs a word and a label");
        let (sentences, left_out) = read(b"Ada O\n\nran O\nhome\n\n\xFF O\n", true, true).unwrap();
        assert_eq!((sentences, left_out), (vec![sentence(1, &["Ada"], &["O"])], 2));
        assert_eq!(read(b"ran\nhome\n", false, false).unwrap().0, [sentence(1, &["ran", "home"], &[])]);
        assert!(read(b"ran O\nhome\n", false, false).is_err());
        assert!(read(b" \n\n", true, true).is_err());
    }
}
