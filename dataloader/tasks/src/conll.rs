//! Labels of words in the layout of the CoNLL tasks: one word per line with its label in the last column, a blank
//! line between sentences.

use std::path::Path;

use segue_configs::counted;
use segue_data_error::{DataError, without_mark};
use segue_publish::read_regular;
use segue_tokenizer::{Encoder, Tokenizer, TokenizerKind};

use super::data::{Records, Split, TaggedSentence, TaskData};
use super::example::{Example, Kind, Sequence, Target};
use super::gold::{common_mark, mark_note};
use super::labels::{Labels, is_ignored, is_mark, listed_lines, no_label, unscored};
use super::request::{Request, first_there, nothing_read};
use super::rows::encode_all;
use super::sieve::{Role, Sieve};

const TRAIN: &[&str] = &["train.txt", "train.conll", "train.tsv", "eng.train"];
const DEV: &[&str] =
    &["dev.txt", "dev.conll", "dev.tsv", "valid.txt", "valid.conll", "valid.tsv", "testa.txt", "eng.testa"];
const TEST: &[&str] = &["test.txt", "test.conll", "test.tsv", "testb.txt", "eng.testb"];
/// The word of lines between documents.
const DOCUMENT: &str = "-DOCSTART-";
/// Words without pieces that a message lists.
const LISTED: usize = 5;
/// A word without any mark of its own.
const PROBE: &str = "a";
/// What pieces have in the place of a blank: SentencePiece's mark and that of byte-level tokenizers, or itself.
const WORD_MARKS: [char; 3] = ['▁', 'Ġ', ' '];
/// The label of words that are nothing; it comes first.
const OUTSIDE: &str = "O";

/// A sentence of a file: the line where it begins, its words, and its labels where the file tells them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sentence {
    line: u64,
    words: Vec<String>,
    labels: Vec<String>,
}

impl Sentence {
    /// Its labels with the line where it begins.
    fn told(&self) -> impl Iterator<Item = (u64, &str)> + Clone {
        self.labels.iter().map(|label| (self.line, label.as_str()))
    }
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
    let bytes = read_regular(path).map_err(|e| DataError::read(path, e))?;
    let sentences = sentences(path, &bytes, true, &mut request.sieve())?;
    let told = sentences.iter().flat_map(Sentence::told);
    let labels = match told.clone().any(|(_, label)| !is_ignored(label)) {
        true => Labels::of_training(told.filter(|(_, label)| !is_ignored(label))),
        false => Labels::of_training(told),
    };
    let mut names = labels.map_err(|(line, why)| DataError::line(path, line, why))?.names;
    names.sort_by_key(|name| name != OUTSIDE);
    Ok(Labels::new(names))
}

fn read(request: &Request<'_>, name: &str, path: &Path, labels: &Labels) -> Result<Split, DataError> {
    let bytes = read_regular(path).map_err(|e| DataError::read(path, e))?;
    let mut sieve = request.sieve_of(name);
    let mut sentences = sentences(path, &bytes, name != "test", &mut sieve)?;
    if sieve.role() != Role::Learnt {
        sentences = without_marks(sentences, labels, &mut sieve);
    }
    let bad = |sentence: &Sentence, why| DataError::line(path, sentence.line, why);
    let marks = marks_words(request.tokenizer);
    let encoded = encode_all(request, &sentences, |encoder, sentence| {
        encode(request, encoder, sentence, marks).map_err(|why| bad(sentence, why))
    });
    let (mut examples, mut records, mut all_lost) = (Vec::new(), Vec::new(), Vec::new());
    let (mut ignored, mut unlearnt) = (Vec::new(), Vec::new());
    for (sentence, result) in sentences.iter().zip(encoded) {
        let Some((sequence, positions, mut lost)) = sieve.keep(result)? else { continue };
        let gold: Result<Vec<Option<u32>>, String> =
            sentence.labels.iter().map(|label| number(labels, label)).collect();
        let gold = sieve.keep(gold.map_err(|why| bad(sentence, why)))?;
        // For others to score it is answered all the same.
        let unscored = || (sieve.role() == Role::Answered).then(Vec::new);
        let Some(gold) = gold.or_else(unscored) else { continue };
        if sieve.role() == Role::Learnt && gold.iter().all(Option::is_none) {
            unlearnt.push(sentence.line);
            continue;
        }
        lost.leave_ignored(&gold);
        ignored.push(gold.iter().filter(|label| label.is_none()).count());
        let record = asked(sentence, gold, &positions);
        let target = target(&record.gold, &record.positions, sequence.ids.len());
        examples.push(Example { sequences: vec![sequence], target });
        records.push(record);
        all_lost.push(lost);
    }
    if examples.is_empty() {
        return Err(sieve.nothing(path, "no sentence of the file can be used"));
    }
    note_ignored(&ignored, &unlearnt, &mut sieve);
    note_lost(&all_lost, &mut sieve);
    let fingerprint = blake3::hash(&bytes).to_hex().to_string();
    let (records, skipped) = (Records::Sentences(records), sieve.done());
    Ok(Split { name: name.into(), examples, records, skipped, fingerprint, submission: None })
}

/// The sentences without the labels of those that have marks alone, where all do, others score them or all of their words are
/// to be ignored. A file of marks alone has no labels, whatever else -1 may be.
fn without_marks(mut sentences: Vec<Sentence>, labels: &Labels, sieve: &mut Sieve) -> Vec<Sentence> {
    let all = sentences.iter().flat_map(|sentence| &sentence.labels);
    let unknown = all.map(|label| Some(label.as_str()).filter(|label| labels.number(label).is_err()));
    let own_mark = match sieve.role() {
        Role::Answered => common_mark(unknown).map(str::to_owned),
        Role::Learnt | Role::Scored => None,
    };
    let untold = sentences.iter().flat_map(|sentence| &sentence.labels).all(|label| is_mark(label));
    let unscored_ones = sieve.role() == Role::Answered;
    let is_no_label = |label: &String| (unscored_ones || is_ignored(label)) && labels.number(label).is_err();
    let marks =
        |label: &String| own_mark.as_ref() == Some(label) || is_mark(label) && (untold || is_no_label(label));
    let mut unlabelled = Vec::new();
    for sentence in sentences.iter_mut().filter(|sentence| !sentence.labels.is_empty()) {
        if sentence.labels.iter().all(marks) {
            sentence.labels.clear();
            unlabelled.push(sentence.line);
        }
    }
    if let Some(note) = unscored("sentence", "a label", &unlabelled, sentences.len()) {
        sieve.note(note);
    }
    if let Some(mark) = own_mark {
        sieve.note(mark_note("word", "label", &mark));
    }
    sentences
}

/// The number of a word's label; none where the word is to be ignored.
fn number(labels: &Labels, label: &str) -> Result<Option<u32>, String> {
    match labels.number(label) {
        Ok(number) => Ok(Some(number)),
        Err(_) if is_ignored(label) => Ok(None),
        Err(_) if is_mark(label) => Err(no_label(label, "label")),
        Err(why) => Err(why),
    }
}

/// The words of a sentence that are predicted and scored: all of them in an unlabelled file, else those with a label. Words marked -100 stay in the
/// model's input, and no scorer sees them.
fn asked(sentence: &Sentence, gold: Vec<Option<u32>>, positions: &[Option<u32>]) -> TaggedSentence {
    let is_asked = |place: &usize| gold.get(*place).is_none_or(Option::is_some);
    let places: Vec<usize> = (0..sentence.words.len()).filter(is_asked).collect();
    TaggedSentence {
        words: places.iter().map(|place| sentence.words[*place].clone()).collect(),
        positions: places.iter().map(|place| positions[*place]).collect(),
        gold: gold.into_iter().flatten().collect(),
    }
}

/// Says how many words of each sentence are ignored, and on which lines those sentences begin that are left out for it.
fn note_ignored(words: &[usize], unlearnt: &[u64], sieve: &mut Sieve) {
    let (all, of): (usize, usize) = (words.iter().sum(), words.iter().filter(|count| **count > 0).count());
    if all > 0 {
        let what = match sieve.role() {
            Role::Learnt => "not learnt",
            Role::Scored | Role::Answered => "neither scored nor written with the answers",
        };
        let (all, of) = (counted(all, "word"), counted(of, "sentence"));
        sieve.note(format!("marked -100, read and {what}: {all} of {of}"));
    }
    if !unlearnt.is_empty() {
        let count = counted(unlearnt.len(), "sentence");
        sieve.note(format!("every word marked -100, not learnt from: {count} ({})", listed_lines(unlearnt)));
    }
}

/// Words of a sentence that have no place in its sequence.
#[derive(Debug, Default)]
struct Lost {
    /// Places of those that lie behind its end.
    cut: Vec<usize>,
    /// Those that the vocabulary makes nothing of, with their places.
    without_pieces: Vec<(usize, String)>,
}

impl Lost {
    /// Leaves out words that are ignored: nobody answers them.
    fn leave_ignored(&mut self, gold: &[Option<u32>]) {
        let is_ignored = |place: usize| gold.get(place).is_some_and(Option::is_none);
        self.cut.retain(|place| !is_ignored(*place));
        self.without_pieces.retain(|(place, _)| !is_ignored(*place));
    }
}

fn note_lost(sentences: &[Lost], sieve: &mut Sieve) {
    let count = |lost: fn(&Lost) -> usize| -> (usize, usize) {
        let counts = || sentences.iter().map(lost).filter(|count| *count > 0);
        (counts().sum(), counts().count())
    };
    let (words, cut) = count(|lost| lost.cut.len());
    if words > 0 {
        sieve.note(format!(
            "{words} words of {cut} sentences did not fit and are answered {OUTSIDE}; raise train.segment \
             to read them"
        ));
    }
    let (words, of) = count(|lost| lost.without_pieces.len());
    if words > 0 {
        let all = sentences.iter().flat_map(|lost| &lost.without_pieces);
        let mut different: Vec<&String> = all.map(|(_, word)| word).collect();
        different.sort_unstable();
        different.dedup();
        let more = if different.len() > LISTED { ", .." } else { "" };
        let first: Vec<String> = different.into_iter().take(LISTED).map(|word| visible(word)).collect();
        sieve.note(format!(
            "without a piece in the vocabulary, answered {OUTSIDE}: {} of {} ({}{more})",
            counted(words, "word"),
            counted(of, "sentence"),
            first.join(", ")
        ));
    }
}

/// A word by its characters, or by their numbers where one of them may not be seen.
fn visible(word: &str) -> String {
    match word.chars().all(|c| c.is_alphanumeric() || c.is_ascii_graphic()) {
        true => format!("`{word}`"),
        false => word.chars().map(|c| format!("U+{:04X}", c as u32)).collect::<Vec<_>>().join(" "),
    }
}

/// The sentences of a file. A sentence with a line that cannot be used is refused as a whole.
fn sentences(
    path: &Path,
    bytes: &[u8],
    labelled: bool,
    sieve: &mut Sieve,
) -> Result<Vec<Sentence>, DataError> {
    let text = without_mark(bytes);
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

/// A sentence as a sequence, where in it each word begins, and which words have no place. `marks_words`: of the tokenizer.
fn encode(
    request: &Request<'_>,
    encoder: &mut Encoder<'_>,
    sentence: &Sentence,
    marks_words: bool,
) -> Result<(Sequence, Vec<Option<u32>>, Lost), String> {
    let spaces = matches!(request.tokenizer.kind(), TokenizerKind::Byte | TokenizerKind::Char);
    let (mut ids, mut starts) = (Vec::new(), Vec::with_capacity(sentence.words.len()));
    let mut lost = Lost::default();
    for (place, word) in sentence.words.iter().enumerate() {
        let bare = place == 0 || marks_words;
        let (before, text) = (ids.len(), if bare { word.clone() } else { format!(" {word}") });
        let failed = |why| format!("the tokenizer fails on `{word}`: {why}");
        encoder.encode(&text, &mut ids).map_err(failed)?;
        // Where the space is a token of its own, the word begins after it.
        let start = before + usize::from(spaces && place > 0);
        starts.push(Some(start).filter(|start| *start < ids.len()));
        if start >= ids.len() {
            lost.without_pieces.push((place, word.clone()));
        }
    }
    let sequence = request.template.single(&ids);
    let room = sequence.ids.len() - 2;
    let fits = |start: &Option<usize>| start.filter(|start| *start < room).map(|start| start as u32);
    let positions: Vec<Option<u32>> = starts.iter().map(fits).collect();
    let is_cut = |start: &Option<usize>| start.is_some_and(|start| start >= room);
    lost.cut = (0..starts.len()).filter(|place| is_cut(&starts[*place])).collect();
    Ok((sequence, positions, lost))
}

/// Words without labels as a sequence, where in it each begins, and whether some lie behind its end. `marks_words`: of the tokenizer.
pub(super) fn encode_words(
    request: &Request<'_>,
    encoder: &mut Encoder<'_>,
    words: Vec<String>,
    marks_words: bool,
) -> Result<(Sequence, TaggedSentence, bool), String> {
    let sentence = Sentence { line: 0, words, labels: Vec::new() };
    let (sequence, positions, lost) = encode(request, encoder, &sentence, marks_words)?;
    let Sentence { words, .. } = sentence;
    Ok((sequence, TaggedSentence { words, gold: Vec::new(), positions }, !lost.cut.is_empty()))
}

/// Whether a tokenizer marks the beginning (or end) of every text as that of a word, as SentencePiece does with its dummy prefix:
/// a blank before a word is one mark too many then, and a piece of its own. The others, as GPT-2's, take the blank for the mark.
pub(super) fn marks_words(tokenizer: &Tokenizer) -> bool {
    let mut ids = Vec::new();
    let encoded = tokenizer.encoder().encode(PROBE, &mut ids).is_ok();
    let mut pieces = ids.iter().filter_map(|id| tokenizer.token(*id));
    encoded && pieces.any(|piece| piece.starts_with(WORD_MARKS) || piece.ends_with(WORD_MARKS))
}

/// The label of a word stands at its first piece.
fn target(gold: &[u32], positions: &[Option<u32>], length: usize) -> Target {
    if gold.is_empty() {
        return Target::Unknown;
    }
    let mut tags = vec![None; length];
    for (position, label) in positions.iter().zip(gold) {
        if let Some(position) = position {
            tags[*position as usize] = Some(*label);
        }
    }
    Target::Tags(tags)
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
