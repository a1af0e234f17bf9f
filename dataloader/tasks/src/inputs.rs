//! Texts that a fine-tuned model is asked about: lines, tables or JSON lines, without labels and without other files beside them.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use segue_data_error::{DataError, without_mark};
use segue_tokenizer::{Encoder, Tokenizer};
use serde_json::json;

use super::columns::{self, Columns, Finding};
use super::data::{Records, TaggedSentence, TaskSplits};
use super::example::{Example, Kind, Sequence, Target};
use super::labels::listed_lines;
use super::packed::{extension, unpacked};
use super::request::Request;
use super::rows::{encode_all, ids, lay_out};
use super::section::TaskConfig;
use super::sieve::Sieve;
use super::squad::{Questions, SquadReader};
use super::table::{Format, Table, TableRow, utf8};
use super::template::Template;
use super::{conll, glue, text};

/// The name of standard input on the command line, and in messages.
const STDIN: (&str, &str) = ("-", "stdin");
/// Options that name columns.
const TEXT: &str = "--text";
const SECOND_TEXT: &str = "--second-text";

/// How a file holds texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputFormat {
    /// A text a line.
    Text,
    /// A line a row, tabs between cells.
    Tsv,
    /// RFC 4180.
    Csv,
    /// A JSON object a line.
    JsonLines,
}

impl InputFormat {
    const NAMES: [(&'static str, InputFormat); 4] =
        [("text", Self::Text), ("tsv", Self::Tsv), ("csv", Self::Csv), ("jsonl", Self::JsonLines)];

    /// By the name of a file: lines of text unless its extension says otherwise.
    fn of(path: &Path) -> InputFormat {
        match Format::of(path) {
            Format::Csv => Self::Csv,
            Format::JsonLines => Self::JsonLines,
            Format::Tsv if extension(path) == Some("tsv") => Self::Tsv,
            Format::Tsv => Self::Text,
        }
    }

    /// As what tables are read; none of lines of text.
    fn of_table(self) -> Option<Format> {
        match self {
            Self::Text => None,
            Self::Tsv => Some(Format::Tsv),
            Self::Csv => Some(Format::Csv),
            Self::JsonLines => Some(Format::JsonLines),
        }
    }
}

impl FromStr for InputFormat {
    type Err = DataError;

    fn from_str(name: &str) -> Result<Self, DataError> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, format)| *format).ok_or_else(|| {
            let known = Self::NAMES.map(|(name, _)| name).join(", ");
            DataError::Usage(format!("unknown format `{name}`\nhint: known are {known}"))
        })
    }
}

/// How texts are read.
#[derive(Debug, Clone, Copy)]
pub struct InputOptions<'a> {
    /// The task that the model was fine-tuned on. Columns are those that its files have, where they are there.
    pub name: &'a str,
    /// How that task was read.
    pub task: &'a TaskConfig,
    /// What the file holds, where its name does not tell.
    pub format: Option<InputFormat>,
    /// Column of the text, by name or by number from 0, where the user names it.
    pub text: Option<&'a str>,
    /// Column of a second text, likewise.
    pub second_text: Option<&'a str>,
}

/// A text to be answered, or two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputText {
    /// The line where it begins, from 1.
    pub line: u64,
    /// The text.
    pub first: String,
    /// The second text, in tables of pairs.
    pub second: Option<String>,
}

impl InputText {
    /// Whether there is nothing to answer: it is blank, or one of a pair is.
    pub fn is_blank(&self) -> bool {
        [Some(&self.first), self.second.as_ref()].into_iter().flatten().any(|text| text.trim().is_empty())
    }
}

/// The texts that are not blank, as a model reads them.
#[derive(Debug, Clone, Default)]
pub struct InputExamples {
    /// One for each, of which nobody tells what is right.
    pub examples: Vec<Example>,
    /// Their words and where each stands, where words are labelled; else empty.
    pub words: Vec<TaggedSentence>,
    /// Lines of those that did not fit and lost their end.
    pub cut: Vec<u64>,
    /// Where they are questions on texts, what their answers are found with; an example is a window over a text.
    pub questions: Option<Questions>,
    /// What is to be known of how they were laid out.
    pub notes: Vec<String>,
}

/// One of them: its sequence, its words where they are labelled, whether it lost its end.
type Encoded = (Sequence, Option<TaggedSentence>, bool);

/// The texts of a file, in its order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inputs {
    /// What messages call the file.
    name: PathBuf,
    /// One for each line of text, blank ones among them, or for each row of a table.
    pub texts: Vec<InputText>,
    /// What is to be known of how they were read: columns, lines that are no rows.
    pub notes: Vec<String>,
}

impl Inputs {
    /// Reads a file, or stdin where `path` is `-`. Files may be compressed.
    ///
    /// # Errors
    ///
    /// A file that is not there or that holds nothing, lines that are not of the format or not UTF-8, and columns that are not there.
    pub fn read(path: &Path, options: &InputOptions<'_>) -> Result<Inputs, DataError> {
        let (path, bytes) = match path == Path::new(STDIN.0) {
            true => (Path::new(STDIN.1), stdin()?),
            false => (path, unpacked(path, std::fs::read(path).map_err(|e| DataError::read(path, e))?)?),
        };
        Inputs::parse(path, &bytes, options)
    }

    /// [`Inputs::read`] of what the file holds, unpacked.
    fn parse(path: &Path, bytes: &[u8], options: &InputOptions<'_>) -> Result<Inputs, DataError> {
        let format = options.format.unwrap_or_else(|| InputFormat::of(path));
        let mut inputs = match format.of_table() {
            Some(format) => rows(format, path, bytes, options)?,
            None => lines(path, bytes, options)?,
        };
        inputs.name = path.into();
        inputs.warn_of_pairs(options);
        Ok(inputs)
    }

    /// Lines of the texts that are not answered as there is nothing to read.
    pub fn blank(&self) -> Vec<u64> {
        self.texts.iter().filter(|text| text.is_blank()).map(|text| text.line).collect()
    }

    /// The texts that are not blank, laid out as those of a task of this kind are.
    ///
    /// # Errors
    ///
    /// The first text that the tokenizer fails on.
    pub fn encode(
        &self,
        kind: Kind,
        tokenizer: &Tokenizer,
        template: Template,
    ) -> Result<InputExamples, DataError> {
        let splits = TaskSplits { train: false, dev: false, test: false };
        let request =
            Request { name: "", task: &TaskConfig::default(), tokenizer, template, splits, seed: 0 };
        let marks_words = conll::marks_words(tokenizer);
        let asked: Vec<&InputText> = self.texts.iter().filter(|text| !text.is_blank()).collect();
        let encoded = encode_all(&request, &asked, |encoder, text| match kind {
            Kind::Tagging => encode_words(&request, encoder, text, marks_words),
            _ => encode_text(&template, encoder, text),
        });
        let mut all = InputExamples::default();
        for (text, encoded) in asked.iter().zip(encoded) {
            let (sequence, words, cut) =
                encoded.map_err(|why| DataError::line(&self.name, text.line, why))?;
            all.examples.push(Example { sequences: vec![sequence], target: Target::Unknown });
            all.words.extend(words);
            all.cut.extend(cut.then_some(text.line));
        }
        Ok(all)
    }

    /// The texts that are not blank as questions, each on the text beside it, in windows as those of SQuAD.
    ///
    /// # Errors
    ///
    /// Texts without another beside them, and the first that the tokenizer fails on.
    pub fn encode_questions(
        &self,
        task: &TaskConfig,
        tokenizer: &Tokenizer,
        template: Template,
    ) -> Result<InputExamples, DataError> {
        let asked = self.texts.iter().filter(|text| !text.is_blank());
        let paragraph = |text: &InputText| match &text.second {
            Some(context) => {
                Ok(json!({ "context": context, "qas": [{ "id": text.line, "question": text.first }] }))
            }
            None => Err(DataError::Usage(format!(
                "{} has single texts, and a question is asked on a text\nhint: give a table or JSON lines with `question` and \
                 `context`, or name the columns by {TEXT} and {SECOND_TEXT}",
                self.name.display()
            ))),
        };
        let paragraphs = asked.map(paragraph).collect::<Result<Vec<_>, _>>()?;
        if paragraphs.is_empty() {
            return Ok(InputExamples { questions: Some(Questions::default()), ..InputExamples::default() });
        }
        // Read as a file of SQuAD that has no answers, the layout is that of the task.
        let file = json!({ "data": [{ "paragraphs": paragraphs }] }).to_string();
        let reader = SquadReader { task, tokenizer, template, has_unanswerable: true };
        let split = reader.read_bytes(&self.name, file.as_bytes(), "test", false)?;
        let questions = match split.records {
            Records::Questions(questions) => Some(questions),
            _ => None,
        };
        let (examples, notes) = (split.examples, split.skipped.notes);
        Ok(InputExamples { examples, questions, notes, ..InputExamples::default() })
    }

    /// Says so where the task's examples are pairs and these are not, or the other way round: the answers mean little then.
    fn warn_of_pairs(&mut self, options: &InputOptions<'_>) {
        let task = options.name;
        let named = (!options.task.second_text.is_empty()).then_some(true);
        let Some(pairs) = named.or_else(|| glue::has_pairs(task)) else { return };
        let found = self.texts.iter().any(|text| text.second.is_some());
        let (was, is) = match (pairs, found) {
            (true, false) => ("pairs of texts", "single texts"),
            (false, true) => ("single texts", "pairs of texts"),
            _ => return,
        };
        self.notes.push(format!("warning: the model was fine-tuned on {was} ({task}), and these are {is}"));
    }
}

fn stdin() -> Result<Vec<u8>, DataError> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().lock().read_to_end(&mut bytes);
    read.map(|_| bytes).map_err(|e| DataError::read(STDIN.1.as_ref(), e))
}

/// A text a line. Blank ones stay, so that the answers are as many as the lines.
fn lines(path: &Path, bytes: &[u8], options: &InputOptions<'_>) -> Result<Inputs, DataError> {
    if let Some((_, option)) =
        [(options.text, TEXT), (options.second_text, SECOND_TEXT)].iter().find(|(given, _)| given.is_some())
    {
        let why = format!("{option} names a column, and {} has lines of text", path.display());
        return Err(DataError::Usage(format!(
            "{why}\nhint: say what it holds by --format tsv, csv or jsonl"
        )));
    }
    let text = without_mark(bytes);
    if text.is_empty() {
        return Err(DataError::line(path, 1, "the file is empty"));
    }
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let line = |(line, bytes): (u64, &[u8])| {
        let first = utf8(path, line, bytes.strip_suffix(b"\r").unwrap_or(bytes))?;
        let first = text::clean(options.name, first);
        Ok(InputText { line, first, second: None })
    };
    let texts = (1..).zip(text.split(|byte| *byte == b'\n')).map(line).collect::<Result<_, DataError>>()?;
    Ok(Inputs { texts, ..Inputs::default() })
}

/// A text, or a pair, a row. Blank lines of a table are no rows.
fn rows(format: Format, path: &Path, bytes: &[u8], options: &InputOptions<'_>) -> Result<Inputs, DataError> {
    let (name, task) = (options.name, options.task);
    let asked = TaskConfig {
        text: options.text.unwrap_or(&task.text).into(),
        second_text: options.second_text.unwrap_or(&task.second_text).into(),
        ..TaskConfig::default()
    };
    let is_header = |cells: &[String]| columns::is_header(&asked, cells) || glue::is_header(name, cells);
    let table = Table::parse_as(format, path, bytes, is_header, &mut Sieve::of_inputs())?;
    let columns = columns_of(&table, options)?;
    let clean = |text: &str| text::clean(name, text);
    let texts = table.rows.iter().map(|row| {
        let first: Vec<&str> = columns.text.iter().map(|place| row.cells[*place].as_str()).collect();
        let second = columns.second.map(|place| clean(&row.cells[place]));
        InputText { line: row.line, first: clean(&first.join(" ")), second }
    });
    let notes = [Some(columns.describe(&table)), blank_lines(&table.rows, format)];
    Ok(Inputs { texts: texts.collect(), notes: notes.into_iter().flatten().collect(), ..Inputs::default() })
}

/// That lines between the rows are blank: they have no row in the answers either.
fn blank_lines(rows: &[TableRow], format: Format) -> Option<String> {
    // Records of a CSV may go over several lines.
    let breaks = |row: &TableRow| match format {
        Format::Csv => row.cells.iter().map(|cell| cell.matches('\n').count() as u64).sum(),
        _ => 0,
    };
    let after = |pair: &[TableRow]| pair[0].line + 1 + breaks(&pair[0])..pair[1].line;
    let blank: Vec<u64> = rows.windows(2).flat_map(after).collect();
    (!blank.is_empty()).then(|| format!("warning: blank lines, which are no rows: {}", listed_lines(&blank)))
}

/// The columns that the user names; else those that the model was fine-tuned on, where they are there; else those that are found.
fn columns_of(table: &Table, options: &InputOptions<'_>) -> Result<Columns, DataError> {
    let (name, task) = (options.name, options.task);
    let labels = text::labels_beside_titles(name);
    let finding = Finding { task, labels: labels.as_ref(), numbers: false, all_text: labels.is_some() };
    let find = |text: &str, second: &str| {
        Columns::find_texts(table, [(TEXT, text), (SECOND_TEXT, second)], &finding)
    };
    if options.text.is_some() || options.second_text.is_some() {
        let or_trained = |given: Option<&'_ str>, trained: &str| match given {
            Some(given) => given.to_string(),
            None if Columns::are_in(table, &[trained]) => trained.to_string(),
            None => String::new(),
        };
        return find(
            &or_trained(options.text, &task.text),
            &or_trained(options.second_text, &task.second_text),
        );
    }
    let named: Vec<&str> =
        [task.text.as_str(), &task.second_text].into_iter().filter(|name| !name.is_empty()).collect();
    if !named.is_empty() && Columns::are_in(table, &named) {
        return find(&task.text, &task.second_text);
    }
    if let Some((text, second)) = glue::text_columns(name, table) {
        return Ok(Columns { text: vec![text], second, label: None });
    }
    find("", "")
}

fn encode_text(template: &Template, encoder: &mut Encoder<'_>, text: &InputText) -> Result<Encoded, String> {
    let first = ids(encoder, &text.first)?;
    let second = text.second.as_ref().map(|second| ids(encoder, second)).transpose()?;
    let sequence = lay_out(template, &first, second.as_deref());
    let cut = sequence.is_cut;
    Ok((sequence, None, cut))
}

/// Words are what stands between white space.
fn encode_words(
    request: &Request<'_>,
    encoder: &mut Encoder<'_>,
    text: &InputText,
    marks_words: bool,
) -> Result<Encoded, String> {
    let words = text.first.split_whitespace().map(str::to_owned).collect();
    let (sequence, words, cut) = conll::encode_words(request, encoder, words, marks_words)?;
    Ok((sequence, Some(words), cut))
}

#[cfg(test)]
mod tests;
