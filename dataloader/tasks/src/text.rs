//! Classification and regression of any texts, and the releases of text classification in Yang 2019, table 2.16.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use segue_configs::counted;
use segue_data_error::DataError;

use super::columns::{Columns, Finding, is_header};
use super::data::{Split, TaskData};
use super::example::{Kind, Target};
use super::gold::{Gold, Told};
use super::labels::{Labels, is_mark, is_missing, listed_lines};
use super::request::{Request, first_there, named, nothing_read};
use super::reviews;
use super::rows::{Asked, encode_rows, split_of};
use super::sieve::{Role, Sieve};
use super::table::{Table, TableRow};

/// Names of files without their extensions, and the extensions, in the order in which they are looked for.
const TRAIN: &[&str] = &["train"];
const DEV: &[&str] = &["dev", "valid", "validation", "val"];
const TEST: &[&str] = &["test"];
const EXTENSIONS: &[&str] =
    &["tsv", "csv", "jsonl", "json", "txt", "jsonl.gz", "jsonl.zst", "parquet", "arrow"];

/// A published data set.
struct Release {
    name: &'static str,
    /// Spellings of its labels; they are called by the first.
    labels: &'static [&'static [&'static str]],
    /// Whether a title stands beside the text.
    titles: bool,
    /// What its texts have in place of line ends and quotes, and what is read there.
    replaced: &'static [(&'static str, &'static str)],
}

/// Line ends and quotes as the releases with classes 1, 2, .. escape them.
const ESCAPES: &[(&str, &str)] = &[("\\n", " "), ("\\\"", "\"")];

const RELEASES: &[Release] = &[
    Release {
        name: "agnews",
        labels: &[&["World", "1"], &["Sports", "2"], &["Business", "3"], &["Sci/Tech", "4"]],
        titles: true,
        replaced: &[("\\", " ")],
    },
    Release {
        name: "imdb",
        labels: &[&["neg", "negative", "0"], &["pos", "positive", "1"]],
        titles: false,
        replaced: &[(reviews::LINE_BREAK, " ")],
    },
    Release { name: "yelp2", labels: &[&["1"], &["2"]], titles: true, replaced: ESCAPES },
    Release {
        name: "yelp5",
        labels: &[&["1"], &["2"], &["3"], &["4"], &["5"]],
        titles: true,
        replaced: ESCAPES,
    },
    Release {
        name: "dbpedia",
        labels: &[
            &["Company", "1"],
            &["EducationalInstitution", "2"],
            &["Artist", "3"],
            &["Athlete", "4"],
            &["OfficeHolder", "5"],
            &["MeanOfTransportation", "6"],
            &["Building", "7"],
            &["NaturalPlace", "8"],
            &["Village", "9"],
            &["Animal", "10"],
            &["Plant", "11"],
            &["Album", "12"],
            &["Film", "13"],
            &["WrittenWork", "14"],
        ],
        titles: true,
        replaced: ESCAPES,
    },
    Release { name: "amazon2", labels: &[&["1"], &["2"]], titles: true, replaced: ESCAPES },
    Release {
        name: "amazon5",
        labels: &[&["1"], &["2"], &["3"], &["4"], &["5"]],
        titles: true,
        replaced: ESCAPES,
    },
];

/// The files of a folder, by what they serve for.
struct Files {
    train: Option<PathBuf>,
    dev: Option<PathBuf>,
    test: Option<PathBuf>,
    /// What is to be known of their choice.
    train_note: Option<String>,
    dev_note: Option<String>,
}

/// Everything that reading a file needs.
struct Reading<'a> {
    request: &'a Request<'a>,
    release: Option<&'static Release>,
    /// The table that says where columns are.
    like: Table,
    columns: Columns,
    labels: Option<Labels>,
    /// The test file, which may serve for scores too, where it has labels.
    test: Option<PathBuf>,
}

impl Release {
    fn named(name: &str) -> Option<&'static Release> {
        RELEASES.iter().find(|release| release.name == name)
    }

    fn clean(&self, text: &str) -> String {
        self.replaced.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    }
}

/// A text as a task reads it: of a release without its escapes, of any other task as it is.
pub(super) fn clean(task: &str, text: &str) -> String {
    Release::named(task).map_or_else(|| text.to_owned(), |release| release.clean(text))
}

/// The labels of a release whose texts have a title in a column of its own.
pub(super) fn labels_beside_titles(task: &str) -> Option<Labels> {
    Release::named(task).filter(|release| release.titles).map(|release| Labels::spelt(release.labels))
}

pub(super) fn open(request: &Request<'_>) -> Result<TaskData, DataError> {
    let release = Release::named(request.name());
    let labels = match release {
        _ if !request.task.labels.is_empty() => Some(Labels::new(request.task.labels.clone())),
        Some(release) => Some(Labels::spelt(release.labels)),
        None => None,
    };
    if let ("imdb", Some(labels)) = (request.name(), &labels)
        && reviews::are_in(request.folder())
    {
        return reviews::open(request, labels);
    }
    let files = Files::find(request.folder());
    let missing = |stems: &[&str]| {
        let names = named(stems, EXTENSIONS);
        request.missing(request.folder(), &names.iter().map(String::as_str).collect::<Vec<_>>())
    };
    if request.splits.train && files.train.is_none() {
        return Err(missing(TRAIN));
    }
    let reading = Reading::new(request, release, labels, &files)?;
    let (kind, names) = match &reading.labels {
        Some(labels) => (Kind::Classification, labels.names.clone()),
        None => (Kind::Regression, Vec::new()),
    };
    let mut data = nothing_read(request, kind, names);
    data.columns = Some(reading.columns.describe(&reading.like));
    if let (true, Some(path)) = (request.splits.train, &files.train) {
        data.train = Some(reading.read("train", path, files.train_note.clone())?);
    }
    if request.splits.dev {
        let path = files.dev.as_ref().ok_or_else(|| missing(&[DEV, TEST].concat()))?;
        data.dev.push(reading.read("dev", path, files.dev_note.clone())?);
    }
    if let (true, Some(path)) = (request.splits.test, &files.test) {
        data.test.push(reading.read("test", path, None)?);
    }
    Ok(data)
}

impl Files {
    /// Where there is no training file but both others, the development file is learnt from and the test file scored;
    /// where only the development file is missing, the test file is scored.
    fn find(folder: &Path) -> Files {
        let find = |stems: &[&str]| {
            let names = named(stems, EXTENSIONS);
            first_there(folder, &names.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let (train, dev, test) = (find(TRAIN), find(DEV), find(TEST));
        let name = |path: &Option<PathBuf>| {
            let name = path.as_ref().and_then(|path| path.file_name());
            name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
        };
        let scored =
            || Some(format!("scores are measured on {}: there is no other file for them", name(&test)));
        match (train, dev, &test) {
            (None, Some(dev), Some(_)) => {
                let dev = Some(dev);
                let train_note = Some(format!("there is no training file: training on {}", name(&dev)));
                Files { train: dev, dev: test.clone(), dev_note: scored(), test, train_note }
            }
            (train, Some(dev), _) => Files { train, dev: Some(dev), test, train_note: None, dev_note: None },
            (train, None, _) => {
                Files { train, dev: test.clone(), dev_note: scored(), test, train_note: None }
            }
        }
    }
}

impl<'a> Reading<'a> {
    fn new(
        request: &'a Request<'a>,
        release: Option<&'static Release>,
        labels: Option<Labels>,
        files: &Files,
    ) -> Result<Reading<'a>, DataError> {
        let any = files.train.as_ref().or(files.dev.as_ref());
        let path =
            any.ok_or_else(|| request.missing(request.folder(), &["train.tsv", "train.csv", "train.jsonl"]))?;
        let mut like = Table::read(path, |cells| is_header(request.task, cells), &mut request.sieve())?;
        let numbers = request.name() == "text-regression";
        let all_text = release.is_some_and(|release| release.titles);
        let finding = Finding { task: request.task, labels: labels.as_ref(), numbers, all_text };
        let columns = Columns::find(&like, &finding)?;
        let labels = match labels {
            _ if numbers => None,
            Some(labels) => Some(labels),
            None if files.train.is_none() => {
                return Err(DataError::Usage(format!(
                    "the labels of `{}` come from its training file, which is not in {}\nhint: list them \
                     in task.labels",
                    request.name(),
                    request.folder().display()
                )));
            }
            None => {
                let place = columns.label.unwrap_or(0);
                refuse_header(&like, place)?;
                let labels =
                    Labels::of_training(cells(&like, place)).map_err(|(line, why)| like.bad(line, why))?;
                if labels.names.len() < 2 {
                    let only = match labels.names.first() {
                        Some(only) => format!("every label is `{only}`"),
                        None => "no row has a label".into(),
                    };
                    let why = format!(
                        "{only}, so that there is nothing to learn ({})\nhint: name the right column in \
                         task.label, or all labels in task.labels",
                        columns.describe(&like)
                    );
                    return Err(like.bad(like.rows[0].line, why));
                }
                Some(labels)
            }
        };
        // Its rows are read again when they are wanted; files may be large.
        like.rows = Vec::new();
        Ok(Reading { request, release, like, columns, labels, test: files.test.clone() })
    }

    fn read(&self, name: &str, path: &Path, note: Option<String>) -> Result<Split, DataError> {
        let mut sieve = self.request.sieve_of(name);
        let mut table = Table::read(path, |cells| is_header(self.request.task, cells), &mut sieve)?;
        let columns = self.columns.in_table(&self.like, &table)?;
        if columns.label.is_none() && name != "test" {
            let like = self.like.path.display();
            return Err(table.bad(1, format!("it has no column of labels as {like} has")));
        }
        let may_be_marked = sieve.role() == Role::Answered || self.test.as_deref() == Some(path);
        let asked = self.asked(&table, &columns, may_be_marked, &mut sieve)?;
        table.rows = Vec::new();
        if let Some(note) = note.filter(|_| asked.iter().any(|asked| asked.gold != Target::Unknown)) {
            sieve.note(note);
        }
        let encoded = encode_rows(self.request, path, asked, &mut sieve)?;
        Ok(split_of(name, encoded, table.fingerprint, sieve))
    }

    fn asked(
        &self,
        table: &Table,
        columns: &Columns,
        may_be_marked: bool,
        sieve: &mut Sieve,
    ) -> Result<Vec<Asked>, DataError> {
        let index = table.column(&["index", "id", "idx"]);
        let mut asked = Vec::with_capacity(table.rows.len());
        let labels = || columns.label.into_iter().flat_map(|place| cells(table, place));
        let mut told = Gold::new(Told::Labels, labels().map(|(_, label)| label));
        if may_be_marked {
            told = told
                .with_mark(labels().map(|(_, label)| Some(label).filter(|label| self.gold(label).is_err())));
        }
        for (number, row) in table.rows.iter().enumerate() {
            let gold = match columns.label.map(|place| row.cells[place].trim()) {
                None => Some(Target::Unknown),
                Some(label) => {
                    let bad = |why| table.bad(row.line, why);
                    told.of(label, row.line, |label| self.gold(label), bad, sieve)?
                }
            };
            let Some(gold) = gold else { continue };
            let text: Vec<&str> = columns.text.iter().map(|place| row.cells[*place].as_str()).collect();
            asked.push(Asked {
                line: row.line,
                index: index.map_or_else(|| number.to_string(), |place| row.cells[place].clone()),
                first: self.clean(&text.join(" ")),
                second: columns.second.map(|place| self.clean(&row.cells[place])),
                gold,
            });
        }
        told.note(sieve);
        self.note_replaced(table, columns, sieve);
        if self.labels.is_none() && labels().any(|(_, label)| !is_missing(label)) {
            note_marks(labels(), sieve);
        }
        Ok(asked)
    }

    fn gold(&self, label: &str) -> Result<Target, String> {
        match &self.labels {
            Some(labels) => Ok(Target::Class(labels.number(label)?)),
            None => match label.parse::<f64>() {
                Ok(number) if number.is_finite() => Ok(Target::Number(number)),
                _ => Err(format!("the label `{label}` is not a number")),
            },
        }
    }

    /// Says so where texts of a release are not read as they stand in its file.
    fn note_replaced(&self, table: &Table, columns: &Columns, sieve: &mut Sieve) {
        let of_texts =
            |row: &TableRow, what: &str| columns.text.iter().any(|place| row.cells[*place].contains(what));
        for (from, to) in self.release.map_or(&[][..], |release| release.replaced) {
            let count = table.rows.iter().filter(|row| of_texts(row, from)).count();
            if count > 0 {
                sieve.note(format!("`{from}` is read as `{to}` in {}", counted(count, "text")));
            }
        }
    }

    fn clean(&self, text: &str) -> String {
        self.release.map_or_else(|| text.to_owned(), |release| release.clean(text))
    }
}

/// Refuses a first line that names columns by names that are not known: its label would be a class of its own, and its text an example. It is taken
/// for one where its label is on no other line, while every other label is on several.
fn refuse_header(table: &Table, label: usize) -> Result<(), DataError> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, cell) in cells(table, label) {
        *counts.entry(cell).or_default() += 1;
    }
    let first = table.rows[0].cells[label].trim();
    let others = || counts.iter().filter(|(cell, _)| **cell != first).map(|(_, count)| *count);
    let is_name = !first.is_empty() && first.parse::<f64>().is_err();
    if table.header.is_some()
        || !is_name
        || counts[first] > 1
        || others().count() < 2
        || others().any(|count| count < 2)
    {
        return Ok(());
    }
    let why = format!(
        "the label `{first}` is on no other line, and every other label on several: this line seems to name the columns\nhint: say so \
         with task.label={first}; if it is an example, list all labels in task.labels"
    );
    Err(table.bad(table.rows[0].line, why))
}

/// The lines of a table and their cells in one column.
fn cells(table: &Table, place: usize) -> impl Iterator<Item = (u64, &str)> + Clone {
    table.rows.iter().map(move |row| (row.line, row.cells[place].trim()))
}

/// Says so where the numbers that are learnt or scored may be marks for no number: they alone are below 0.
fn note_marks<'a>(labels: impl Iterator<Item = (u64, &'a str)> + Clone, sieve: &mut Sieve) {
    let below = labels.clone().filter(|(_, label)| label.parse::<f64>().is_ok_and(|number| number < 0.0));
    let (marks, others): (Vec<_>, Vec<_>) = below.partition(|(_, label)| is_mark(label));
    if let (Some((_, mark)), true) = (marks.first(), others.is_empty()) {
        let used = if sieve.role() == Role::Learnt { "learnt" } else { "scored" };
        let lines: Vec<u64> = marks.iter().map(|(line, _)| *line).collect();
        sieve.note(format!(
            "{mark} is the only number below 0 ({}) and is {used}: leave these rows out of the file where it marks \
             what has no number",
            listed_lines(&lines)
        ));
    }
}
