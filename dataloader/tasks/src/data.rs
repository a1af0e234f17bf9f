use segue_configs::counted;

use super::documents::Rankings;
use super::example::{Example, Kind, Target};
use super::squad::Questions;

/// Which splits of a task to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskSplits {
    /// The training split.
    pub train: bool,
    /// The splits with labels, to score on.
    pub dev: bool,
    /// The splits without labels, if there are any, to predict.
    pub test: bool,
}

/// A task, read and encoded.
#[derive(Debug, Clone)]
pub struct TaskData {
    /// Its name in the configuration.
    pub name: String,
    /// What its answers are.
    pub kind: Kind,
    /// Names of its labels; empty where answers are numbers, options or spans. Where rows compete
    /// (`task.loss`), the kind is [`Kind::Choice`] and the labels are those that each row gets.
    pub labels: Vec<String>,
    /// Which columns of its files were read as what, in words; of files whose columns are not given by the task.
    pub columns: Option<String>,
    /// What is learnt from.
    pub train: Option<Split>,
    /// What is scored, MNLI's both sets one after the other.
    pub dev: Vec<Split>,
    /// What is answered for others to score, and what nobody can score.
    pub test: Vec<Split>,
}

/// The examples of one file, or folder, and what their answers are written down with.
#[derive(Debug, Clone)]
pub struct Split {
    /// `train`, `dev`, `dev-matched`, `test`.
    pub name: String,
    /// In the order of the file.
    pub examples: Vec<Example>,
    /// What was asked.
    pub records: Records,
    /// What was left out.
    pub skipped: Skipped,
    /// BLAKE3 of the files it was read from.
    pub fingerprint: String,
    /// Name of the file that a leaderboard wants the answers in, where there is one.
    pub submission: Option<String>,
}

impl Split {
    /// How much there is to learn from or to answer, in words. Of questions about paragraphs an example is a window, of which one question may have
    /// several.
    pub fn describe(&self) -> String {
        let examples = self.examples.len();
        match &self.records {
            Records::Questions(all) => {
                format!("{} in {}", counted(all.questions.len(), "question"), counted(examples, "window"))
            }
            _ => counted(examples, "example"),
        }
    }

    /// Examples of whose texts the end, or of options the beginning, did not fit. Questions about paragraphs are asked in windows, and words say by themselves
    /// which have no label.
    pub fn cut(&self) -> usize {
        match &self.records {
            Records::Questions(_) | Records::Sentences(_) => 0,
            Records::Rows(_) | Records::Rankings(_) => self
                .examples
                .iter()
                .filter(|example| example.sequences.iter().any(|sequence| sequence.is_cut))
                .count(),
        }
    }

    /// Whether any record has a label.
    pub fn is_told(&self) -> bool {
        match &self.records {
            Records::Rows(rows) => rows.iter().any(|row| row.gold != Target::Unknown),
            Records::Sentences(sentences) => sentences.iter().any(|sentence| !sentence.gold.is_empty()),
            Records::Questions(all) => all.questions.iter().any(|question| question.impossible.is_some()),
            Records::Rankings(rankings) => rankings.queries.iter().any(|query| !query.judged.is_empty()),
        }
    }
}

impl TaskData {
    /// Moves the splits that nothing can be scored on to those that are answered alone. A file that served for both
    /// stays there once.
    pub(crate) fn set_apart(mut self) -> TaskData {
        let (told, untold): (Vec<Split>, Vec<Split>) = self.dev.into_iter().partition(Split::is_told);
        let mut moved = Vec::new();
        for split in untold {
            match self.test.iter_mut().find(|test| test.fingerprint == split.fingerprint) {
                None => moved.push(split),
                Some(test) => {
                    let note = format!(
                        "what serves as {} is the same: it is answered once, as {}",
                        split.name, test.name
                    );
                    test.skipped.notes.push(note);
                }
            }
        }
        self.test.extend(moved);
        TaskData { dev: told, ..self }
    }
}

/// What was asked, one entry for each answer wanted.
#[derive(Debug, Clone)]
pub enum Records {
    /// Lines of a table, or questions with options.
    Rows(Vec<Row>),
    /// Sentences whose words get labels.
    Sentences(Vec<TaggedSentence>),
    /// Questions about paragraphs; example `i` is window `i` of theirs.
    Questions(Questions),
    /// Documents that are ranked for queries.
    Rankings(Rankings),
}

/// A line, or a question with options.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// What a file of predictions calls it.
    pub index: String,
    /// The example it became; where options compete, several rows are one example.
    pub example: u32,
    /// Its sequence in the example, where rows compete.
    pub sequence: u32,
    /// What is right for the row: a class, a number or an option.
    pub gold: Target,
    /// Part of the split that is scored apart as well: RACE's `high` and `middle`.
    pub group: Option<String>,
}

/// A sentence whose words have labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaggedSentence {
    /// Its words, without those that the file marks -100: they are in the sequence alone.
    pub words: Vec<String>,
    /// Number of each word's label; empty where labels are not told.
    pub gold: Vec<u32>,
    /// Where each word begins in the sequence; none for words that did not fit, or that have no piece.
    pub positions: Vec<Option<u32>>,
}

/// An answer to one record.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// Number of a label.
    Class(u32),
    /// A number.
    Number(f64),
    /// Number of an option.
    Option(u32),
    /// Number of each word's label.
    Tags(Vec<u32>),
}

/// What could not be used and was left out, as `task.skip_bad` allows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Skipped {
    /// How many lines or records are not learnt from, or not scored.
    pub count: u64,
    /// The first few: file, line and what is wrong.
    pub first: Vec<String>,
    /// What else is to be known of the split, in words: rows without a competitor or a label, words that did not fit.
    pub notes: Vec<String>,
}
