use segue_data_error::DataError;

use super::example::Target;
use super::labels::{is_missing, no_label, unscored};
use super::sieve::{Role, Sieve};

/// Kind of reference that the records of a task have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// The label of a row.
    Labels,
    /// The answer to a question.
    Answers,
}

impl Told {
    fn word(self) -> &'static str {
        match self {
            Told::Labels => "label",
            Told::Answers => "answer",
        }
    }
}

/// What a file tells to be right for the rows of one split, some or all of which may have no label.
#[derive(Debug)]
pub(super) struct Gold {
    told: Told,
    /// Whether no row has a label. Where all of them are marks, -1 is one whatever else it may be elsewhere.
    untold: bool,
    /// What every row has in the place of a label, where that is a mark of the file's own.
    mark: Option<String>,
    /// Rows, and the lines of those without a label.
    rows: usize,
    unlabelled: Vec<u64>,
}

impl Gold {
    /// Of a split with these `cells` in the place of labels.
    pub(super) fn new<'a>(told: Told, mut cells: impl Iterator<Item = &'a str>) -> Gold {
        Gold { told, untold: cells.all(is_missing), mark: None, rows: 0, unlabelled: Vec::new() }
    }

    /// Of a split that is published without labels: `unknown` are its cells, but none for those that are labels. The same in all
    /// rows, they mark that there is none, as `hidden` and `?` do.
    pub(super) fn with_mark<'a>(self, unknown: impl Iterator<Item = Option<&'a str>>) -> Gold {
        let mark = common_mark(unknown).map(str::to_owned);
        Gold { untold: self.untold || mark.is_some(), mark, ..self }
    }

    /// What is right for a row that has `cell` for a label, by `read`; none where the row is left out. A row that is
    /// answered for others to score needs no label, nor do those of a split that has none.
    pub(super) fn of(
        &mut self,
        cell: &str,
        line: u64,
        read: impl Fn(&str) -> Result<Target, String>,
        bad: impl Fn(String) -> DataError,
        sieve: &mut Sieve,
    ) -> Result<Option<Target>, DataError> {
        self.rows += 1;
        let why = match read(cell) {
            Ok(target) if !self.untold && target != Target::Unknown => return Ok(Some(target)),
            Err(why) if !is_missing(cell) && self.mark.as_deref() != Some(cell) => why,
            _ if sieve.role() == Role::Answered || self.untold && sieve.role() == Role::Scored => {
                self.unlabelled.push(line);
                return Ok(Some(Target::Unknown));
            }
            _ => no_label(cell, self.told.word()),
        };
        sieve.refuse(bad(why))?;
        Ok((sieve.role() == Role::Answered).then_some(Target::Unknown))
    }

    /// Says how many rows are not scored for want of a label.
    pub(super) fn note(self, sieve: &mut Sieve) {
        let (what, lacks) = match self.told {
            Told::Labels => ("row", "a label"),
            Told::Answers => ("question", "an answer"),
        };
        if let Some(note) = unscored(what, lacks, &self.unlabelled, self.rows) {
            sieve.note(note);
        }
        if let Some(mark) = self.mark {
            sieve.note(mark_note(what, self.told.word(), &mark));
        }
    }
}

/// What all of some cells are, where it is the same and none of them is known.
pub(super) fn common_mark<'a>(mut unknown: impl Iterator<Item = Option<&'a str>>) -> Option<&'a str> {
    let first = unknown.next()??;
    unknown.all(|cell| cell == Some(first)).then_some(first).filter(|cell| !is_missing(cell))
}

/// That a file marks what has no label in its own way, which may also be a label that is misspelt.
pub(super) fn mark_note(what: &str, lacks: &str, mark: &str) -> String {
    format!(
        "every {what} has the {lacks} `{mark}`, which is unknown: it is taken for a mark that there is none"
    )
}

#[cfg(test)]
mod tests {
    use segue_configs::counted;

    use super::*;

    const CELLS: [&str; 4] = ["0", "-1", "", "x"];

    fn read(cell: &str) -> Result<Target, String> {
        match cell {
            "x" => Err("unknown label `x`".into()),
            "-1" => Ok(Target::Number(-1.0)),
            cell => cell.parse().map(Target::Number).map_err(|_| "it is empty".into()),
        }
    }

    fn of(cells: &[&str], split: &str, skip_bad: bool) -> (Result<Vec<Target>, DataError>, Vec<String>, u64) {
        let (mut gold, mut sieve) =
            (Gold::new(Told::Labels, cells.iter().copied()), Sieve::of_split(skip_bad, split));
        let mut one = |(line, cell): (u64, &&str)| {
            let bad = |why| DataError::line("a.tsv".as_ref(), line, why);
            gold.of(cell, line, read, bad, &mut sieve)
        };
        let told: Result<Vec<_>, _> = (2..).zip(cells).map(&mut one).collect();
        gold.note(&mut sieve);
        let skipped = sieve.done();
        (told.map(|told| told.into_iter().flatten().collect()), skipped.notes, skipped.count)
    }

    #[test]
    fn a_split_of_marks_alone_is_answered_and_not_scored() {
        for cells in [&["-1", "-1"][..], &["-1.0", ""], &["-100"], &["", " "]] {
            let (told, notes, count) = of(cells, "test", false);
            assert!(told.unwrap().iter().all(|target| *target == Target::Unknown), "{cells:?}");
            assert_eq!(
                (notes[0].as_str(), count),
                (
                    format!("without a label, answered and not scored: {}", counted(cells.len(), "row"))
                        .as_str(),
                    0
                )
            );
            let error = of(cells, "train", false).0.unwrap_err();
            assert!(
                error.to_string().contains("label") && error.hint().unwrap().contains("skip_bad"),
                "{error}"
            );
        }
    }

    #[test]
    fn what_is_unknown_is_a_mark_where_every_row_has_it() {
        let mark = |cells: &[Option<&'static str>]| common_mark(cells.iter().copied());
        assert_eq!((mark(&[Some("?"), Some("?")]), mark(&[Some("hidden")])), (Some("?"), Some("hidden")));
        for cells in
            [&[Some("?"), Some("x")][..], &[Some("?"), None], &[None], &[Some("")], &[Some("-1")], &[]]
        {
            assert_eq!(mark(cells), None, "{cells:?}");
        }
    }

    #[test]
    fn a_mark_beside_numbers_is_one_and_rows_without_a_usable_label_are_answered() {
        let number = Target::Number;
        let (told, notes, count) = of(&CELLS, "test", true);
        assert_eq!(told.unwrap(), [number(0.0), number(-1.0), Target::Unknown, Target::Unknown]);
        assert_eq!((notes.len(), count), (1, 1));
        assert_eq!(notes[0], "without a label, answered and not scored: 1 of 4 rows (line 4)");
        assert!(of(&CELLS, "test", false).0.unwrap_err().to_string().contains("line 5: unknown label `x`"));
        for split in ["train", "dev"] {
            let (told, notes, count) = of(&CELLS, split, true);
            assert_eq!(
                (told.unwrap(), notes.len(), count),
                (vec![number(0.0), number(-1.0)], 0, 2),
                "{split}"
            );
            assert!(of(&CELLS, split, false).0.unwrap_err().to_string().contains("line 4: it has no label"));
        }
    }
}
