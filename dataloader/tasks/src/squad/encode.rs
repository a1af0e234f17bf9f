use std::path::Path;

use rayon::prelude::*;
use segue_data_error::DataError;
use segue_publish::read_regular;
use segue_tokenizer::{Located, Tokenizer};

use super::file::{FileReader, ReadParagraph, ReadQuestion};
use super::records::{Paragraph, Question, Questions};
use super::windows::{Window, windows_over};
use crate::sieve::Sieve;
use crate::{Example, Kind, Records, Split, Target, TaskConfig, TaskData, TaskSplits, Template};

/// Tokens of a sequence besides paragraph and question: two `<sep>` and `<cls>`.
const SPECIALS: usize = 3;
/// Segment of the paragraph and the `<sep>` behind it.
const PARAGRAPH: u8 = 0;

/// The name of the task, its training file, the one that is scored, and the one that is answered for others to score.
const VERSIONS: [(&str, [&str; 3]); 2] = [
    ("squad1", ["train-v1.1.json", "dev-v1.1.json", "test-v1.1.json"]),
    ("squad2", ["train-v2.0.json", "dev-v2.0.json", "test-v2.0.json"]),
];

/// Reads and encodes files of SQuAD (Yang 2019, §2.2.3).
///
/// An example is a window: tokens of the paragraph, `<sep>`, the question, `<sep>`, `<cls>`. Its target is where the
/// first answer stands; of a window that does not hold all of it, and of a question without answer, `<cls>`.
#[derive(Clone, Copy, Debug)]
pub struct SquadReader<'a> {
    /// What the text is cut with.
    pub tokenizer: &'a Tokenizer,
    /// What sequences are laid out with.
    pub template: Template,
    /// `max_question`, `stride` and `skip_bad`.
    pub task: &'a TaskConfig,
    /// Whether questions may have no answer, as from version 2 on.
    pub has_unanswerable: bool,
}

impl SquadReader<'_> {
    /// Reads the task `squad1` or `squad2` from the folder with its published files.
    pub fn open(&self, name: &str, folder: &Path, splits: TaskSplits) -> Result<TaskData, DataError> {
        let Some((name, [train, dev, test])) = VERSIONS.iter().find(|(version, _)| *version == name) else {
            return Err(DataError::Usage(format!(
                "unknown version `{name}` of SQuAD\nhint: use squad1 or squad2"
            )));
        };
        let split = |split: &str, file: &str, labelled| self.read(&folder.join(file), split, labelled);
        let has_test = splits.test && folder.join(test).exists();
        Ok(TaskData {
            columns: None,
            name: (*name).into(),
            kind: Kind::Span,
            labels: Vec::new(),
            train: splits.train.then(|| split("train", train, true)).transpose()?,
            dev: splits.dev.then(|| split("dev", dev, true)).transpose()?.into_iter().collect(),
            test: has_test.then(|| split("test", test, false)).transpose()?.into_iter().collect(),
        })
    }

    /// Reads one file as the split `name`. Where `labelled`, what is right must be told of every question.
    ///
    /// # Errors
    /// A file that is not there or not SQuAD's, and, unless `task.skip_bad` is set, the first record that cannot be
    /// used, by article, paragraph and question.
    pub fn read(&self, path: &Path, name: &str, labelled: bool) -> Result<Split, DataError> {
        let bytes = read_regular(path).map_err(|source| DataError::read(path, source))?;
        self.read_bytes(path, &bytes, name, labelled)
    }

    /// [`SquadReader::read`] of what `path` holds.
    pub fn read_bytes(
        &self,
        path: &Path,
        bytes: &[u8],
        name: &str,
        labelled: bool,
    ) -> Result<Split, DataError> {
        let sieve = Sieve::of_split(self.task.skip_bad, name);
        let mut file =
            FileReader { path, labelled, has_unanswerable: self.has_unanswerable, sieve, moved: 0 };
        let paragraphs = file.read(bytes)?;
        let encoded: Vec<Encoded> =
            paragraphs.par_iter().map(|paragraph| self.encode(path, paragraph)).collect::<Result<_, _>>()?;
        let (mut examples, mut all) = (Vec::new(), Questions::default());
        for (paragraph, encoded) in paragraphs.into_iter().zip(encoded) {
            self.add(paragraph, encoded, &mut file, &mut examples, &mut all)?;
        }
        if examples.is_empty() {
            return Err(file.sieve.nothing(path, "no question can be used"));
        }
        all.moved = file.moved;
        for (count, what) in [
            (all.shortened, "questions truncated to task.max_question tokens"),
            (all.moved, "answers found near the place that the file states, and taken from there"),
        ] {
            if count > 0 {
                file.sieve.note(format!("{}: {what}: {count}", path.display()));
            }
        }
        Ok(Split {
            name: name.into(),
            examples,
            records: Records::Questions(all),
            skipped: file.sieve.done(),
            fingerprint: blake3::hash(bytes).to_hex().to_string(),
            submission: (!labelled).then(|| "predictions.json".into()),
        })
    }

    fn encode(&self, path: &Path, paragraph: &ReadParagraph) -> Result<Encoded, DataError> {
        let failed = |why: String| {
            DataError::record(path, paragraph.place(paragraph.line), format!("it cannot be encoded: {why}"))
        };
        let context = self.tokenizer.encode_with_offsets(&paragraph.context).map_err(failed)?;
        let mut encoder = self.tokenizer.encoder();
        let questions = paragraph.questions.iter().map(|question| {
            let mut ids = Vec::new();
            encoder.encode(&question.text, &mut ids).map(|()| ids)
        });
        let questions = questions.collect::<Result<_, _>>().map_err(failed)?;
        Ok(Encoded { context, questions })
    }

    /// Adds a paragraph with its questions and their windows.
    fn add(
        &self,
        mut read: ReadParagraph,
        encoded: Encoded,
        file: &mut FileReader,
        examples: &mut Vec<Example>,
        all: &mut Questions,
    ) -> Result<(), DataError> {
        let spans = encoded.context.spans.iter().map(|span| span.start as u32..span.end as u32).collect();
        let blank = read.context.trim().is_empty();
        let why = "nothing of its context is left in tokens";
        if encoded.context.ids.is_empty() && !blank && !file.spare(&read.place(read.line), why)? {
            return Ok(());
        }
        let paragraph = Paragraph { context: std::mem::take(&mut read.context), spans };
        let number = all.paragraphs.len() as u32;
        for (question, mut ids) in std::mem::take(&mut read.questions).into_iter().zip(encoded.questions) {
            let place = format!("{}, question `{}`", read.place(question.line), question.id);
            let why = "nothing of its answer is left in tokens";
            let answer = match target(&paragraph, &question) {
                Some(answer) => answer,
                // What is wrong with its answer is told.
                None if !question.found || file.spare(&place, why)? => Answer::Unknown,
                None => continue,
            };
            all.shortened += u64::from(ids.len() > self.task.max_question);
            ids.truncate(self.task.max_question);
            let mut windows = self.windows(encoded.context.ids.len(), &ids)?;
            if windows.is_empty() {
                // Without any text there is still a question, and the answer that there is none.
                windows.push((0, 0));
            }
            let first_window = all.windows.len() as u32;
            for (first, length) in windows {
                let window = Window { question: all.questions.len() as u32, first, length };
                examples.push(self.example(&encoded.context.ids, &ids, window, answer));
                all.windows.push(window);
            }
            let ReadQuestion { id, answers, impossible, .. } = question;
            let windows = first_window..all.windows.len() as u32;
            all.questions.push(Question { id, paragraph: number, answers, impossible, windows });
        }
        all.paragraphs.push(paragraph);
        Ok(())
    }

    fn windows(&self, tokens: usize, question: &[u32]) -> Result<Vec<(u32, u32)>, DataError> {
        match self.template.longest().checked_sub(question.len() + SPECIALS) {
            None | Some(0) => Err(DataError::Usage(format!(
                "sequences of {} tokens have no room for a paragraph beside a question of {}\nhint: raise \
                 train.segment or lower task.max_question",
                self.template.longest(),
                question.len()
            ))),
            Some(room) => Ok(windows_over(tokens, room, self.task.stride)),
        }
    }

    fn example(&self, paragraph: &[u32], question: &[u32], window: Window, answer: Answer) -> Example {
        let (first, end) = (window.first, window.first + window.length);
        let mut sequence = self.template.pair(&paragraph[first as usize..end as usize], question);
        let cls = sequence.ids.len() as u32 - 1;
        sequence.outside = (0..=cls).map(|position| position >= window.length && position != cls).collect();
        debug_assert!(sequence.segments[window.length as usize] == PARAGRAPH);
        let target = match answer {
            Answer::Unknown => Target::Unknown,
            Answer::Tokens(start, last) if start >= first && last < end => {
                Target::Span { start: start - first, end: last - first, impossible: false }
            }
            Answer::Tokens(..) | Answer::None => Target::Span { start: cls, end: cls, impossible: true },
        };
        Example { sequences: vec![sequence], target }
    }
}

/// A paragraph and its questions in tokens.
struct Encoded {
    context: Located,
    questions: Vec<Vec<u32>>,
}

/// What is right about a question, in tokens of its paragraph.
#[derive(Clone, Copy)]
enum Answer {
    Unknown,
    None,
    Tokens(u32, u32),
}

/// None where an answer is there that no token stands for.
fn target(paragraph: &Paragraph, question: &ReadQuestion) -> Option<Answer> {
    match question.impossible {
        None => Some(Answer::Unknown),
        Some(true) => Some(Answer::None),
        Some(false) => {
            let mut places = question.answers.iter().filter_map(|answer| answer.bytes.as_ref());
            let (first, last) = places.find_map(|bytes| paragraph.tokens(bytes))?;
            Some(Answer::Tokens(first, last))
        }
    }
}
