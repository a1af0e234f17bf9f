//! Translations and references in files, line by line.

use std::io::stdin;
use std::path::{Path, PathBuf};

use segue_configs::counted;
use segue_data_error::DataError;
use segue_sentences::{Sentence, Sentences};

use super::scores::Translated;
use crate::failure::{BAD_DATA, Failure, USAGE};

/// Lines that are named where several are at fault.
const NAMED: usize = 5;

/// Translations and their references.
pub struct Texts {
    translations: Vec<String>,
    /// By file, then by line.
    references: Vec<Vec<String>>,
}

impl Texts {
    /// Reads them. `-` stands for stdin.
    ///
    /// # Errors
    ///
    /// A file that is not there, a line that is not UTF-8, files of unequal numbers of lines, a line without any reference.
    pub fn read(input: &Path, references: &[PathBuf]) -> Result<Self, Failure> {
        let paths = || references.iter().map(PathBuf::as_path).chain([input]);
        if paths().filter(|path| is_stdin(path)).count() > 1 {
            let message = "stdin is read once, and `-` stands for it more than once";
            return Err(Failure::new(USAGE, format!("{message}\nhint: name files for the others")));
        }
        let translations = read_lines(input)?;
        let texts = Self {
            translations,
            references: references.iter().map(|path| read_lines(path)).collect::<Result<_, _>>()?,
        };
        for (path, lines) in references.iter().zip(&texts.references) {
            texts.check_length(input, path, lines.len())?;
        }
        texts.check_references(references)?;
        Ok(texts)
    }

    fn check_length(&self, input: &Path, reference: &Path, lines: usize) -> Result<(), Failure> {
        let translated = self.translations.len();
        if translated == lines {
            return Ok(());
        }
        let message = format!(
            "{} has {}, and {} {}\nhint: line n of one is the translation of line n of the other",
            name_of(input),
            counted(translated, "line"),
            name_of(reference),
            counted(lines, "line")
        );
        Err(Failure::new(BAD_DATA, message))
    }

    /// Refuses a sentence all of whose references are empty.
    fn check_references(&self, paths: &[PathBuf]) -> Result<(), Failure> {
        let is_empty = |place: &usize| self.references.iter().all(|lines| lines[*place].trim().is_empty());
        let Some(place) = (0..self.translations.len()).find(is_empty) else { return Ok(()) };
        let names: Vec<String> = paths.iter().map(|path| name_of(path)).collect();
        let why = "it is empty\nhint: leave this line out of all files";
        Err(DataError::line(Path::new(&names.join(" and ")), place as u64 + 1, why.to_string()).into())
    }

    /// What is scored.
    pub fn translated(&self) -> Vec<Translated<'_>> {
        let references = |place: usize| self.references.iter().map(|lines| lines[place].as_str()).collect();
        let texts = self.translations.iter().enumerate();
        texts.map(|(place, text)| Translated { text, references: references(place) }).collect()
    }
}

/// Numbers of the lines that are not translated.
pub fn empty_lines(texts: &[Translated]) -> Vec<usize> {
    (1..).zip(texts).filter(|(_, text)| text.text.trim().is_empty()).map(|(line, _)| line).collect()
}

/// Says which lines are empty translations, which count as such.
pub fn describe_empty(lines: &[usize]) -> Option<String> {
    let named: Vec<String> = lines.iter().take(NAMED).map(usize::to_string).collect();
    let more = if lines.len() > NAMED { ", .." } else { "" };
    let verb = if lines.len() == 1 { "is" } else { "are" };
    (!lines.is_empty()).then(|| {
        format!(
            "warning: {} {verb} empty: line {}{more}",
            counted(lines.len(), "translation"),
            named.join(", ")
        )
    })
}

fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

fn name_of(path: &Path) -> String {
    if is_stdin(path) { "stdin".into() } else { path.display().to_string() }
}

fn read_lines(path: &Path) -> Result<Vec<String>, Failure> {
    let text = |sentence: Result<Sentence, DataError>| Ok(sentence?.text);
    let lines: Vec<String> = match is_stdin(path) {
        true => {
            Sentences::new(stdin().lock(), Path::new("stdin")).map(text).collect::<Result<_, DataError>>()?
        }
        false => Sentences::open(path)?.map(text).collect::<Result<_, DataError>>()?,
    };
    match lines.is_empty() {
        true => Err(Failure::new(BAD_DATA, format!("{} is empty", name_of(path)))),
        false => Ok(lines),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::failure::NO_INPUT;

    /// Reads `text` against references, and gives what was refused.
    fn refused(text: &[u8], references: &[&str]) -> Failure {
        let dir = tempfile::tempdir().unwrap();
        let input = dir.path().join("out");
        fs::write(&input, text).unwrap();
        let write = |(number, text): (usize, &&str)| {
            let path = dir.path().join(format!("ref{number}"));
            fs::write(&path, text).unwrap();
            path
        };
        let references: Vec<PathBuf> = references.iter().enumerate().map(write).collect();
        Texts::read(&input, &references).err().unwrap()
    }

    #[test]
    fn lines_that_cannot_be_scored_are_named() {
        for (text, references, said) in [
            (&b"a\nb\n"[..], &["a\n"][..], "has 2 lines, and"),
            (b"a\n\xff\n", &["a\nb\n"], "out, line 2: it is not UTF-8 at byte 1"),
            (b"a\nb\n", &["a\n\n"], "ref0, line 2: it is empty"),
            (b"a\nb\n", &["\nb\n", " \nb\n"], "ref1, line 1: it is empty"),
            (b"", &[""], "out is empty"),
        ] {
            let refused = refused(text, references);
            assert!(refused.code == BAD_DATA && refused.message.contains(said), "{refused:?}");
        }
        let missing = Texts::read(Path::new("/nowhere/out"), &["/nowhere/ref".into()]).err().unwrap();
        assert_eq!(missing.code, NO_INPUT);
        let twice = Texts::read(Path::new("-"), &["-".into()]).err().unwrap();
        assert_eq!(twice.code, USAGE);
    }

    #[test]
    fn a_second_reference_may_stand_for_an_empty_one() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            fs::write(dir.path().join(name), text).unwrap();
            dir.path().join(name)
        };
        let (input, one, two) = (write("out", "a\n\n"), write("one", "a\n\n"), write("two", "a\nb\n"));
        let texts = Texts::read(&input, &[one, two]).unwrap();
        assert_eq!(empty_lines(&texts.translated()), [2]);
        assert_eq!(texts.translated()[1].references, ["", "b"]);
        let said = describe_empty(&[1, 2, 3, 4, 5, 6]).unwrap();
        assert_eq!(said, "warning: 6 translations are empty: line 1, 2, 3, 4, 5, ..");
        assert_eq!(describe_empty(&[]), None);
    }
}
