//! GLUE's tasks (Yang 2019, §2.2.3) in the TSV files of its first release.

use std::path::PathBuf;

use segue_configs::counted;
use segue_data_error::DataError;

use super::data::{Split, TaskData};
use super::example::{Kind, Target};
use super::gold::{Gold, Told};
use super::labels::{Labels, is_missing};
use super::ranking;
use super::request::{Request, first_there, nothing_read};
use super::rows::{Asked, encode_rows, split_of};
use super::section::TaskLoss;
use super::sieve::Sieve;
use super::table::Table;

/// A column: its names in headers, the first that is there counts, and its place where there is no header.
struct Column(&'static [&'static str], usize);

/// The place of the last column.
const LAST: usize = usize::MAX;

/// A split beside the training one: what it is called, its file, and what GLUE calls the file of answers.
struct Part {
    name: &'static str,
    files: &'static [&'static str],
    submission: &'static str,
}

/// What is right for a row.
enum Answers {
    /// A label; in this order they are numbered.
    Labels(&'static [&'static str]),
    /// A number from 0 to 5.
    Score,
}

struct Glue {
    name: &'static str,
    /// What GLUE's folder calls the task's.
    folders: &'static [&'static str],
    train: &'static [&'static str],
    dev: &'static [Part],
    test: &'static [Part],
    first: Column,
    second: Option<Column>,
    label: Column,
    answers: Answers,
    /// Columns of the release's files: those without a header are told from other tasks' by it.
    widths: &'static [usize],
}

const TRAIN: &[&str] = &["train.tsv"];
const DEV: &[Part] = &[Part { name: "dev", files: &["dev.tsv"], submission: "" }];
const SENTENCES: (Column, Option<Column>) = (Column(&["sentence1"], 1), Some(Column(&["sentence2"], 2)));
const ZERO_ONE: Answers = Answers::Labels(&["0", "1"]);
const ENTAILMENT_OR_NOT: Answers = Answers::Labels(&["entailment", "not_entailment"]);
const THREE_WAYS: Answers = Answers::Labels(&["contradiction", "entailment", "neutral"]);

macro_rules! test {
    ($submission:literal) => {
        &[Part { name: "test", files: &["test.tsv"], submission: $submission }]
    };
}

const GLUE: &[Glue] = &[
    Glue {
        name: "cola",
        folders: &["CoLA"],
        train: TRAIN,
        dev: DEV,
        test: test!("CoLA.tsv"),
        first: Column(&["sentence"], 3),
        second: None,
        label: Column(&["label"], 1),
        answers: ZERO_ONE,
        widths: &[4],
    },
    Glue {
        name: "sst2",
        folders: &["SST-2"],
        train: TRAIN,
        dev: DEV,
        test: test!("SST-2.tsv"),
        first: Column(&["sentence"], 0),
        second: None,
        label: Column(&["label"], 1),
        answers: ZERO_ONE,
        widths: &[2],
    },
    Glue {
        name: "mrpc",
        folders: &["MRPC"],
        train: &["train.tsv", "msr_paraphrase_train.txt"],
        dev: &[Part { name: "dev", files: &["dev.tsv", "msr_paraphrase_test.txt"], submission: "" }],
        test: &[Part {
            name: "test",
            files: &["test.tsv", "msr_paraphrase_test.txt"],
            submission: "MRPC.tsv",
        }],
        first: Column(&["#1 String"], 3),
        second: Some(Column(&["#2 String"], 4)),
        label: Column(&["Quality"], 0),
        answers: ZERO_ONE,
        widths: &[5],
    },
    Glue {
        name: "qqp",
        folders: &["QQP"],
        train: TRAIN,
        dev: DEV,
        test: test!("QQP.tsv"),
        first: Column(&["question1"], 3),
        second: Some(Column(&["question2"], 4)),
        label: Column(&["is_duplicate"], 5),
        answers: ZERO_ONE,
        widths: &[6],
    },
    Glue {
        name: "stsb",
        folders: &["STS-B"],
        train: TRAIN,
        dev: DEV,
        test: test!("STS-B.tsv"),
        first: Column(&["sentence1"], 7),
        second: Some(Column(&["sentence2"], 8)),
        label: Column(&["score"], 9),
        answers: Answers::Score,
        widths: &[10],
    },
    Glue {
        name: "mnli",
        folders: &["MNLI"],
        train: TRAIN,
        dev: &[
            Part { name: "dev-matched", files: &["dev_matched.tsv"], submission: "" },
            Part { name: "dev-mismatched", files: &["dev_mismatched.tsv"], submission: "" },
        ],
        test: &[
            Part { name: "test-matched", files: &["test_matched.tsv"], submission: "MNLI-m.tsv" },
            Part { name: "test-mismatched", files: &["test_mismatched.tsv"], submission: "MNLI-mm.tsv" },
        ],
        first: Column(&["sentence1"], 8),
        second: Some(Column(&["sentence2"], 9)),
        label: Column(&["gold_label"], LAST),
        answers: THREE_WAYS,
        widths: &[12, 16],
    },
    Glue {
        name: "qnli",
        folders: &["QNLI"],
        train: TRAIN,
        dev: DEV,
        test: test!("QNLI.tsv"),
        first: Column(&["question"], 1),
        second: Some(Column(&["sentence"], 2)),
        label: Column(&["label"], 3),
        answers: ENTAILMENT_OR_NOT,
        widths: &[4],
    },
    Glue {
        name: "rte",
        folders: &["RTE"],
        train: TRAIN,
        dev: DEV,
        test: test!("RTE.tsv"),
        first: SENTENCES.0,
        second: SENTENCES.1,
        label: Column(&["label"], 3),
        answers: ENTAILMENT_OR_NOT,
        widths: &[4],
    },
    Glue {
        name: "wnli",
        folders: &["WNLI"],
        train: TRAIN,
        dev: DEV,
        test: test!("WNLI.tsv"),
        first: SENTENCES.0,
        second: SENTENCES.1,
        label: Column(&["label"], 3),
        answers: ZERO_ONE,
        widths: &[4],
    },
    // Answered by a model of MNLI. The labels of the rows were published later, in a file of its own.
    Glue {
        name: "ax",
        folders: &["AX", "diagnostic", "MNLI"],
        train: &[],
        dev: &[Part { name: "diagnostic", files: &["diagnostic-full.tsv"], submission: "" }],
        test: &[Part { name: "test", files: &["diagnostic.tsv"], submission: "AX.tsv" }],
        first: Column(&["sentence1", "Premise"], 1),
        second: Some(Column(&["sentence2", "Hypothesis"], 2)),
        label: Column(&["Label"], LAST),
        answers: THREE_WAYS,
        widths: &[],
    },
];

/// Whether labels have to be there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Labelled {
    Always,
    WhereTold,
}

pub(super) fn open(request: &Request<'_>) -> Result<TaskData, DataError> {
    named(request.name())
        .ok_or_else(|| DataError::Usage(format!("`{}` is not a task of GLUE", request.name())))?
        .open(request)
}

/// Whether the rows of a task of GLUE are pairs of texts; none where it is no task of GLUE.
pub(super) fn has_pairs(name: &str) -> Option<bool> {
    named(name).map(|glue| glue.second.is_some())
}

/// Whether a line names a column of texts as the task's files do.
pub(super) fn is_header(name: &str, cells: &[String]) -> bool {
    named(name).is_some_and(|glue| glue.is_header(cells))
}

/// The columns of the text and the second text in a table like the task's files: with their header, or without one as wide as they are.
pub(super) fn text_columns(name: &str, table: &Table) -> Option<(usize, Option<usize>)> {
    let glue = named(name).filter(|glue| table.header.is_some() || glue.widths.contains(&table.width))?;
    let second = glue.second.as_ref().map(|column| column.place(table).ok());
    // A task of pairs is not asked about a text alone for want of a name.
    let second = second.map_or(Some(None), |place| place.map(Some))?;
    Some((glue.first.place(table).ok()?, second))
}

fn named(name: &str) -> Option<&'static Glue> {
    GLUE.iter().find(|glue| glue.name == name)
}

impl Glue {
    fn is_header(&self, cells: &[String]) -> bool {
        self.first.0.iter().any(|name| cells.iter().any(|cell| cell == name))
    }

    fn open(&self, request: &Request<'_>) -> Result<TaskData, DataError> {
        let competing = self.competing(request)?;
        let labels = self.labels(request);
        let kind = match self.answers {
            _ if competing => Kind::Choice,
            Answers::Labels(_) => Kind::Classification,
            Answers::Score => Kind::Regression,
        };
        let mut data = nothing_read(request, kind, labels.names.clone());
        let ranked = competing.then(|| data.ranked_label()).flatten();
        if competing && ranked.is_none() {
            return Err(DataError::Usage(format!(
                "task.labels lacks the label of the best row of `{}`\nhint: leave task.labels empty",
                self.name
            )));
        }
        if request.splits.train {
            data.train = Some(self.train(request, &labels, ranked)?);
        }
        if request.splits.dev {
            for part in self.dev {
                match self.find(request, part.files) {
                    Ok(path) => {
                        data.dev.push(self.read(request, part, path, &labels, ranked, Labelled::Always)?);
                    }
                    Err(_) if self.train.is_empty() => {}
                    Err(missing) => return Err(missing),
                }
            }
        }
        if request.splits.test {
            for part in self.test {
                if let Ok(path) = self.find(request, part.files) {
                    data.test.push(self.read(request, part, path, &labels, ranked, Labelled::WhereTold)?);
                }
            }
        }
        Ok(data)
    }

    /// Whether rows compete, as `task.loss` says.
    fn competing(&self, request: &Request<'_>) -> Result<bool, DataError> {
        match (request.task.loss, self.name) {
            (TaskLoss::Standard, _) => Ok(false),
            (TaskLoss::Ranking, "qnli") | (TaskLoss::Margin, "wnli") => Ok(true),
            _ => Err(DataError::Usage(format!(
                "task.loss: the rows of `{}` are not ranked against each other\nhint: use \"ranking\" \
                 with qnli, \"margin\" with wnli",
                self.name
            ))),
        }
    }

    fn labels(&self, request: &Request<'_>) -> Labels {
        match self.answers {
            Answers::Score => Labels::new(Vec::new()),
            Answers::Labels(_) if !request.task.labels.is_empty() => Labels::new(request.task.labels.clone()),
            Answers::Labels(names) => Labels::new(names.iter().map(|name| name.to_string()).collect()),
        }
    }

    /// A file in the task's folder, or in the task's folder of GLUE's.
    fn find(&self, request: &Request<'_>, names: &[&str]) -> Result<PathBuf, DataError> {
        let root = request.folder();
        let folders: Vec<PathBuf> =
            self.folders.iter().map(|name| root.join(name)).filter(|path| path.is_dir()).collect();
        let found = folders.iter().find_map(|folder| first_there(folder, names));
        found
            .or_else(|| first_there(root, names))
            .ok_or_else(|| request.missing(folders.first().map_or(root, PathBuf::as_path), names))
    }

    fn train(&self, request: &Request<'_>, labels: &Labels, ranked: Option<u32>) -> Result<Split, DataError> {
        if self.train.is_empty() {
            return Err(DataError::Usage(format!(
                "`{}` has no training data\nhint: train on `mnli`, and evaluate that model",
                self.name
            )));
        }
        let path = self.find(request, self.train)?;
        let part = Part { name: "train", files: self.train, submission: "" };
        self.read(request, &part, path, labels, ranked, Labelled::Always)
    }

    fn read(
        &self,
        request: &Request<'_>,
        part: &Part,
        path: PathBuf,
        labels: &Labels,
        ranked: Option<u32>,
        labelled: Labelled,
    ) -> Result<Split, DataError> {
        let mut sieve = request.sieve_of(part.name);
        let mut table = Table::read(&path, |cells| self.is_header(cells), &mut sieve)?;
        self.check_width(&table, labelled)?;
        let asked = self.asked(&table, labels, labelled, &mut sieve)?;
        table.rows = Vec::new();
        let encoded = encode_rows(request, &path, asked, &mut sieve)?;
        let fingerprint = table.fingerprint;
        let mut split = match ranked {
            None => split_of(part.name, encoded, fingerprint, sieve),
            Some(best) => {
                let training = part.name == "train";
                ranking::split_of(part.name, &path, encoded, best, training, fingerprint, sieve)?
            }
        };
        split.submission = (!part.submission.is_empty()).then(|| part.submission.to_string());
        Ok(split)
    }

    /// Refuses a file without a header that has other columns than the task's, which may be another task's.
    fn check_width(&self, table: &Table, labelled: Labelled) -> Result<(), DataError> {
        let fits = |width: usize| self.widths.contains(&width);
        let unlabelled = labelled == Labelled::WhereTold && fits(table.width + 1);
        if table.header.is_some() || fits(table.width) || unlabelled {
            return Ok(());
        }
        let widths: Vec<String> = self.widths.iter().map(usize::to_string).collect();
        let why = format!(
            "it has no header and {}, where files of `{}` have {}\nhint: is it the task's file? A table of \
             another form is read by --task text",
            counted(table.width, "column"),
            self.name,
            widths.join(" or ")
        );
        Err(table.bad(table.rows[0].line, why))
    }

    /// The rows of a table.
    fn asked(
        &self,
        table: &Table,
        labels: &Labels,
        labelled: Labelled,
        sieve: &mut Sieve,
    ) -> Result<Vec<Asked>, DataError> {
        let first = self.first.place(table)?;
        let second = self.second.as_ref().map(|column| column.place(table)).transpose()?;
        let label = match labelled {
            Labelled::Always => Some(self.label.place(table)?),
            Labelled::WhereTold => {
                self.label.place(table).ok().filter(|place| self.tells(table, *place, labels))
            }
        };
        let index = table.column(&["index", "id"]);
        let mut asked = Vec::with_capacity(table.rows.len());
        let cells = table.rows.iter().filter_map(|row| Some(row.cells[label?].as_str()));
        let mut told = Gold::new(Told::Labels, cells);
        for (number, row) in table.rows.iter().enumerate() {
            let gold = match label.map(|place| &row.cells[place]) {
                None => Some(Target::Unknown),
                Some(cell) => {
                    let bad = |why| table.bad(row.line, why);
                    told.of(cell, row.line, |cell| self.gold(cell, labels), bad, sieve)?
                }
            };
            let Some(gold) = gold else { continue };
            asked.push(Asked {
                line: row.line,
                index: index.map_or_else(|| number.to_string(), |place| row.cells[place].clone()),
                first: row.cells[first].clone(),
                second: second.map(|place| row.cells[place].clone()),
                gold,
            });
        }
        told.note(sieve);
        Ok(asked)
    }

    /// Whether a column where labels may stand has any, or marks for none: of a file without a header it may be another.
    fn tells(&self, table: &Table, place: usize, labels: &Labels) -> bool {
        let mut cells = table.rows.iter().map(|row| row.cells[place].as_str());
        cells.clone().any(|cell| self.gold(cell, labels).is_ok()) || cells.all(is_missing)
    }

    fn gold(&self, text: &str, labels: &Labels) -> Result<Target, String> {
        match self.answers {
            Answers::Labels(_) => Ok(Target::Class(labels.number(text)?)),
            Answers::Score => match text.parse::<f64>() {
                Ok(score) if (0.0..=5.0).contains(&score) => Ok(Target::Number(score)),
                _ => Err(format!("the score `{text}` is not a number from 0 to 5")),
            },
        }
    }
}

impl Column {
    fn place(&self, table: &Table) -> Result<usize, DataError> {
        let Some(header) = &table.header else {
            let place = if self.1 == LAST { table.width.saturating_sub(1) } else { self.1 };
            if place < table.width {
                return Ok(place);
            }
            let why = format!(
                "it has {} and no header, but `{}` is expected in column {}: is it the task's \
                 file?",
                counted(table.width, "column"),
                self.0[0],
                place + 1
            );
            return Err(table.bad(table.rows[0].line, why));
        };
        table.column(self.0).ok_or_else(|| {
            let why = format!(
                "the header has no `{}`, only {}: is it the task's file?",
                self.0[0],
                header.join(", ")
            );
            table.bad(1, why)
        })
    }
}
