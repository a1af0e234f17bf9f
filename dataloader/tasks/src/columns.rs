use std::collections::BTreeSet;
use std::path::Path;

use segue_configs::counted;
use segue_data_error::DataError;

use super::labels::Labels;
use super::section::TaskConfig;
use super::table::Table;

/// Names, in lower case, under which a header has the label and the text; the first that is there counts.
const LABEL_NAMES: &[&str] = &[
    "label",
    "labels",
    "class",
    "category",
    "sentiment",
    "target",
    "score",
    "rating",
    "stars",
    "gold_label",
    "class index",
];
const TEXT_NAMES: &[&str] =
    &["text", "sentence", "sentence1", "review", "content", "description", "body", "question", "premise"];
/// Names, in lower case, of two columns that are a text and its second text.
const PAIR_NAMES: &[(&str, &str)] = &[
    ("sentence1", "sentence2"),
    ("text", "text_pair"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("question", "context"),
    ("query", "document"),
    ("query", "passage"),
];

/// Where a table of texts and labels has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Columns {
    /// Columns of the text, joined by spaces.
    pub(super) text: Vec<usize>,
    pub(super) second: Option<usize>,
    /// None in files that do not tell labels.
    pub(super) label: Option<usize>,
}

/// How columns are found where nothing names them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Finding<'a> {
    pub(super) task: &'a TaskConfig,
    /// Labels that are known beforehand.
    pub(super) labels: Option<&'a Labels>,
    /// Whether labels are numbers.
    pub(super) numbers: bool,
    /// Whether all other columns are the text, as in files with a title and a body.
    pub(super) all_text: bool,
}

/// Whether the first line of a file names its columns: a cell of it is a name that a key of `[task]` asks for, or one
/// that columns of texts and labels usually have.
pub(super) fn is_header(task: &TaskConfig, cells: &[String]) -> bool {
    let asked =
        |cell: &String| [&task.text, &task.second_text, &task.label].into_iter().any(|key| key == cell);
    cells.iter().filter(|cell| !cell.is_empty()).any(|cell| {
        let lower = cell.trim().to_lowercase();
        let usual = LABEL_NAMES.contains(&lower.as_str()) || TEXT_NAMES.contains(&lower.as_str());
        usual || (asked(cell) && cell.parse::<usize>().is_err())
    })
}

impl Columns {
    /// The columns of the table that others are read like.
    pub(super) fn find(table: &Table, finding: &Finding<'_>) -> Result<Columns, DataError> {
        let task = finding.task;
        let keys = [("task.text", task.text.as_str()), ("task.second_text", &task.second_text)];
        let (text, second) = text_and_second(table, keys, finding.all_text)?;
        let taken: Vec<usize> = text.into_iter().chain(second).collect();
        let label = match named(table, ("task.label", &task.label))? {
            Some(place) => place,
            None => usual(table, LABEL_NAMES)
                .or_else(|| label_by_content(table, finding, &taken))
                .ok_or_else(|| {
                    table.bad(table.rows[0].line, "there is no column for the label\nhint: set task.label")
                })?,
        };
        let text = text_columns(table, text, second, Some(label), finding.all_text);
        if text.is_empty() {
            return Err(table.bad(table.rows[0].line, "there is no column for the text\nhint: set task.text"));
        }
        Ok(Columns { text, second, label: Some(label) })
    }

    /// The columns of texts in a table that is read without its labels, whether it has them or not. `keys`: what names the text and the second
    /// one, and the names; those of `finding` do not count.
    pub(super) fn find_texts(
        table: &Table,
        keys: [(&str, &str); 2],
        finding: &Finding<'_>,
    ) -> Result<Columns, DataError> {
        let (text, second) = text_and_second(table, keys, finding.all_text)?;
        let taken: Vec<usize> = text.into_iter().chain(second).collect();
        let is_label = |place: &usize| match finding.labels {
            Some(labels) => table.rows.iter().all(|row| labels.number(row.cells[*place].trim()).is_ok()),
            None => false,
        };
        let by_content = || label_by_content(table, finding, &taken).filter(is_label);
        let label = usual(table, LABEL_NAMES).or_else(by_content);
        let text = text_columns(table, text, second, label, finding.all_text);
        if text.is_empty() {
            let why = format!("there is no column for the text\nhint: name it by {}", keys[0].0);
            return Err(table.bad(table.rows[0].line, why));
        }
        Ok(Columns { text, second, label: None })
    }

    /// Whether the table has columns of these names, or numbers.
    pub(super) fn are_in(table: &Table, names: &[&str]) -> bool {
        names.iter().all(|name| place(table, "", name).is_ok())
    }

    /// Which columns of the table are read as what, and which are not read: in words.
    pub(super) fn describe(&self, table: &Table) -> String {
        let name = |place: usize| match &table.header {
            Some(header) => format!("`{}`", header[place]),
            None => format!("column {place}"),
        };
        let of = |what: &str, places: &[usize]| {
            let names: Vec<String> = places.iter().map(|place| name(*place)).collect();
            (!names.is_empty()).then(|| format!("{what} {}", names.join(" and ")))
        };
        let (second, label): (Vec<usize>, Vec<usize>) =
            (self.second.into_iter().collect(), self.label.into_iter().collect());
        let read = [&self.text[..], &second, &label].concat();
        let left: Vec<usize> = (0..table.width).filter(|place| !read.contains(place)).collect();
        let parts = [
            of("text from", &self.text),
            of("second text from", &second),
            of("label from", &label),
            of("not read:", &left),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }

    /// The same columns in another table of the task; in one that lacks the label's only, without it.
    pub(super) fn in_table(&self, like: &Table, table: &Table) -> Result<Columns, DataError> {
        if let (Some(names), Some(header)) = (&like.header, &table.header) {
            let find = |place: usize| {
                header.iter().position(|name| *name == names[place]).ok_or_else(|| {
                    let why =
                        format!("the header has no `{}`, which {} has", names[place], like.path.display());
                    table.bad(1, why)
                })
            };
            let label = self.label.and_then(|place| find(place).ok());
            if let (Some(own), None) = (self.label, label) {
                refuse_other_label((like, names), &names[own], table)?;
            }
            return Ok(Columns {
                text: self.text.iter().map(|place| find(*place)).collect::<Result<_, _>>()?,
                second: self.second.map(find).transpose()?,
                label,
            });
        }
        if table.width == like.width {
            return Ok(self.clone());
        }
        let Some(label) = self.label.filter(|_| table.width + 1 == like.width) else {
            let why = format!(
                "the file has {}, but {} has {}",
                counted(table.width, "column"),
                like.path.display(),
                like.width
            );
            return Err(table.bad(table.rows[0].line, why));
        };
        let shifted = |place: &usize| place - usize::from(*place > label);
        Ok(Columns {
            text: self.text.iter().map(shifted).collect(),
            second: self.second.as_ref().map(shifted),
            label: None,
        })
    }
}

/// Refuses a table that has its label under another name than the one it is read like, which calls it `label`: it would be taken for one without.
fn refuse_other_label(
    (like, names): (&Table, &[String]),
    label: &str,
    table: &Table,
) -> Result<(), DataError> {
    let header = table.header.as_deref().unwrap_or_default();
    match usual(table, LABEL_NAMES).filter(|place| !names.contains(&header[*place])) {
        None => Ok(()),
        Some(_) => {
            let file = |path: &Path| path.file_name().unwrap_or(path.as_os_str()).display().to_string();
            let why = format!(
                "{} has the label in `{label}`, and {} has {}\nhint: rename one of the two columns",
                file(&like.path),
                file(&table.path),
                header.join(", ")
            );
            Err(table.bad(1, why))
        }
    }
}

/// The columns of the text and the second text, as far as `keys` name them or, where they name none, the header has two names that go together.
fn text_and_second(
    table: &Table,
    keys: [(&str, &str); 2],
    all_text: bool,
) -> Result<(Option<usize>, Option<usize>), DataError> {
    let [text, second] = keys;
    match (text.1, second.1) {
        ("", "") if all_text => Ok((None, None)),
        ("", "") => Ok(usual_pair(table).unzip()),
        _ => Ok((named(table, text)?, named(table, second)?)),
    }
}

/// The columns of the text beside those of the second text and the label: the one that is named, all where `all_text`, else that with a usual name or
/// the most text.
fn text_columns(
    table: &Table,
    named: Option<usize>,
    second: Option<usize>,
    label: Option<usize>,
    all_text: bool,
) -> Vec<usize> {
    let is_free = |place: &usize| Some(*place) != label && Some(*place) != second;
    let free: Vec<usize> = (0..table.width).filter(is_free).collect();
    match named {
        Some(place) => vec![place],
        None if all_text => free,
        None => usual(table, TEXT_NAMES)
            .filter(|place| free.contains(place))
            .or_else(|| longest(table, &free))
            .into_iter()
            .collect(),
    }
}

/// The column that a key names; none where it names none.
fn named(table: &Table, (key, value): (&str, &str)) -> Result<Option<usize>, DataError> {
    match value {
        "" => Ok(None),
        value => place(table, key, value).map(Some),
    }
}

/// The column that a key names, by name or by number from 0.
fn place(table: &Table, key: &str, value: &str) -> Result<usize, DataError> {
    let number = || value.parse::<usize>().ok().filter(|number| *number < table.width);
    table.column(&[value]).or_else(number).ok_or_else(|| {
        let columns = match &table.header {
            Some(header) => header.join(", "),
            None => format!("0 to {}, without names", table.width.saturating_sub(1)),
        };
        table.bad(1, format!("{key}: there is no column `{value}`; there are {columns}"))
    })
}

/// The column of the header with one of some usual names.
fn usual(table: &Table, names: &[&str]) -> Option<usize> {
    let header = table.header.as_ref()?;
    names.iter().find_map(|name| header.iter().position(|cell| cell.trim().to_lowercase() == *name))
}

/// The columns of a text and its second text, where the header has two names that go together.
fn usual_pair(table: &Table) -> Option<(usize, usize)> {
    PAIR_NAMES.iter().find_map(|(first, second)| Some((usual(table, &[*first])?, usual(table, &[*second])?)))
}

/// The last or the first column: the one with more known labels, or more numbers, else that with fewer different cells;
/// of equals the last, or with known labels the first, as the releases have it.
fn label_by_content(table: &Table, finding: &Finding<'_>, taken: &[usize]) -> Option<usize> {
    let last = table.width.checked_sub(1)?;
    if last == 0 {
        return None;
    }
    let ends = if finding.labels.is_some() { [0, last] } else { [last, 0] };
    let cells = |place: usize| table.rows.iter().map(move |row| row.cells[place].trim());
    let penalty = |place: usize| match finding.labels {
        Some(labels) => cells(place).filter(|cell| labels.number(cell).is_err()).count(),
        None if finding.numbers => cells(place).filter(|cell| cell.parse::<f64>().is_err()).count(),
        None => cells(place).collect::<BTreeSet<_>>().len(),
    };
    ends.into_iter().filter(|place| !taken.contains(place)).min_by_key(|place| penalty(*place))
}

/// The column with the most text.
fn longest(table: &Table, places: &[usize]) -> Option<usize> {
    let length = |place: usize| table.rows.iter().map(|row| row.cells[place].len()).sum::<usize>();
    places.iter().copied().rev().max_by_key(|place| length(*place))
}

#[cfg(test)]
mod tests {
    use super::super::sieve::Sieve;
    use super::*;

    fn table(name: &str, text: &str, task: &TaskConfig) -> Table {
        let header = |cells: &[String]| is_header(task, cells);
        Table::parse(name.as_ref(), text.as_bytes(), header, &mut Sieve::new(false)).unwrap()
    }

    fn found(text: &str, task: &TaskConfig) -> Result<Columns, DataError> {
        let finding = Finding { task, labels: None, numbers: false, all_text: false };
        Columns::find(&table("train.tsv", text, task), &finding)
    }

    fn columns(text: usize, second: Option<usize>, label: usize) -> Columns {
        Columns { text: vec![text], second, label: Some(label) }
    }

    #[test]
    fn columns_are_found_by_usual_names_then_by_content() {
        let task = TaskConfig::default();
        assert_eq!(found("id\tSentiment\tReview\n1\tpos\tgood\n", &task).unwrap(), columns(2, None, 1));
        assert_eq!(found("good food\tpos\nbad food\tneg\ngood\tpos\n", &task).unwrap(), columns(0, None, 1));
        assert_eq!(found("1\tx\tgood one\n1\ty\tbad one\n", &task).unwrap(), columns(2, None, 0));
    }

    #[test]
    fn two_columns_that_go_together_are_a_pair() {
        let task = TaskConfig::default();
        let header = "idx\tsentence1\tsentence2\tlabel\n1\ta\tb\t0\n";
        assert_eq!(found(header, &task).unwrap(), columns(1, Some(2), 3));
        let said = found(header, &task).unwrap().describe(&table("train.tsv", header, &task));
        assert_eq!(
            said,
            "text from `sentence1`; second text from `sentence2`; label from `label`; not read: `idx`"
        );
        assert_eq!(found("label\tPremise\tHypothesis\n1\ta\tb\n", &task).unwrap(), columns(1, Some(2), 0));
        // A key that names the text says that there is no second one.
        let alone = TaskConfig { text: "sentence1".into(), ..TaskConfig::default() };
        assert_eq!(found(header, &alone).unwrap(), columns(1, None, 3));
        let bare = "a b\t1\nc d\t0\n";
        let said = found(bare, &task).unwrap().describe(&table("train.tsv", bare, &task));
        assert_eq!(said, "text from column 0; label from column 1");
    }

    #[test]
    fn keys_name_columns_by_name_or_number() {
        let keys = |text: &str, second: &str, label: &str| TaskConfig {
            text: text.into(),
            second_text: second.into(),
            label: label.into(),
            ..TaskConfig::default()
        };
        let named = keys("a", "b", "c");
        assert_eq!(found("c\tb\ta\n1\tx\ty\n", &named).unwrap(), columns(2, Some(1), 0));
        assert_eq!(found("1\tx\ty\n", &keys("1", "2", "0")).unwrap(), columns(1, Some(2), 0));
        let error = found("1\tx\ty\n", &keys("1", "2", "3")).unwrap_err().to_string();
        assert!(error.contains("task.label: there is no column `3`; there are 0 to 2"), "{error}");
    }

    #[test]
    fn a_file_with_its_label_under_another_name_is_refused() {
        let task = TaskConfig::default();
        let like = table("train.csv", "text,labels\na,1\n", &task);
        let finding = Finding { task: &task, labels: None, numbers: false, all_text: false };
        let columns = Columns::find(&like, &finding).unwrap();
        let in_table = |text: &str| columns.in_table(&like, &table("dev.csv", text, &task));
        let error = in_table("text,label\nb,1\n").unwrap_err();
        let message = "train.csv has the label in `labels`, and dev.csv has text, label";
        assert!(error.to_string().contains(message), "{error}");
        assert_eq!(error.hint().as_deref(), Some("rename one of the two columns"));
        // A file without labels may have other columns.
        assert_eq!(in_table("text,idx\nb,1\n").unwrap().label, None);
    }

    #[test]
    fn a_file_without_labels_is_read_like_the_one_with_them() {
        let task = TaskConfig::default();
        for (with, without, text) in [
            ("label\ttext\n1\ta\n", "text\nb\n", 0),
            ("1\ta a\n1\tb b\n", "c\n", 0),
            ("a a\t1\nb b\t1\n", "c\n", 0),
        ] {
            let (with, without) = (table("train.tsv", with, &task), table("test.tsv", without, &task));
            let finding = Finding { task: &task, labels: None, numbers: false, all_text: false };
            let columns = Columns::find(&with, &finding).unwrap().in_table(&with, &without).unwrap();
            assert_eq!(columns, Columns { text: vec![text], second: None, label: None });
        }
    }
}
