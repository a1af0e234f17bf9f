use std::fmt::Write;
use std::path::Path;

use segue_data_error::DataError;

use super::data::{Answer, Records, Row, Split, TaggedSentence};

/// What the leaderboard's file of STS-B is called; its numbers lie from 0 to 5.
const SCORES: &str = "STS-B.tsv";
/// The label of words that a model has not seen.
const OUTSIDE: &str = "O";

/// Writes the answers to a split's records, in their order, whole or not at all.
///
/// Of rows: a header `index<TAB>prediction`, then a line a row, with the name of a label, a number, or the letter of an
/// option. Of sentences: `word label prediction`, without the middle where labels are not told, and a blank line after
/// each. Words that did not fit in a sequence, or have no piece in the vocabulary, are `O`.
///
/// # Errors
///
/// [`DataError::Write`], and [`DataError::Usage`] where there are not as many answers as records.
pub fn write_predictions(
    split: &Split,
    labels: &[String],
    answers: &[Answer],
    path: &Path,
) -> Result<(), DataError> {
    let asked = match &split.records {
        Records::Rows(rows) => rows.len(),
        Records::Sentences(sentences) => sentences.len(),
        Records::Questions(_) | Records::Rankings(_) => return Err(no_table(split)),
    };
    if asked != answers.len() {
        let name = &split.name;
        return Err(DataError::Usage(format!("{} answers for the {asked} records of {name}", answers.len())));
    }
    let text = match &split.records {
        Records::Rows(rows) => {
            let scores = split.submission.as_deref() == Some(SCORES);
            rows_text(rows, labels, answers, scores)
        }
        Records::Sentences(sentences) => sentences_text(sentences, labels, answers),
        Records::Questions(_) | Records::Rankings(_) => return Err(no_table(split)),
    };
    Ok(segue_publish::write_file(path, text.as_bytes())?)
}

/// Answers to questions on paragraphs are texts, and ranked documents are a run: they go to files of their own.
fn no_table(split: &Split) -> DataError {
    DataError::Usage(format!(
        "{}: answers to questions on paragraphs, and ranked documents, are not written as a table",
        split.name
    ))
}

fn rows_text(rows: &[Row], labels: &[String], answers: &[Answer], scores: bool) -> String {
    let mut text = String::from("index\tprediction\n");
    for (row, answer) in rows.iter().zip(answers) {
        let _ = match answer {
            Answer::Number(number) if scores => {
                writeln!(text, "{}\t{:.3}", row.index, number.clamp(0.0, 5.0))
            }
            answer => writeln!(text, "{}\t{}", row.index, words_of(answer, labels)),
        };
    }
    text
}

fn words_of(answer: &Answer, labels: &[String]) -> String {
    match answer {
        Answer::Class(class) => label(labels, *class),
        Answer::Number(number) => number.to_string(),
        Answer::Option(option) => match u8::try_from(*option).ok().filter(|option| *option < 26) {
            Some(option) => char::from(b'A' + option).to_string(),
            None => option.to_string(),
        },
        Answer::Tags(tags) => tags.iter().map(|tag| label(labels, *tag)).collect::<Vec<_>>().join(" "),
    }
}

fn label(labels: &[String], number: u32) -> String {
    labels.get(number as usize).cloned().unwrap_or_else(|| number.to_string())
}

fn sentences_text(sentences: &[TaggedSentence], labels: &[String], answers: &[Answer]) -> String {
    let mut text = String::new();
    for (sentence, answer) in sentences.iter().zip(answers) {
        let tags = if let Answer::Tags(tags) = answer { tags.as_slice() } else { &[] };
        for (place, word) in sentence.words.iter().enumerate() {
            let seen = sentence.positions.get(place).is_some_and(Option::is_some);
            let told =
                tags.get(place).filter(|_| seen).map_or_else(|| OUTSIDE.into(), |tag| label(labels, *tag));
            let _ = match sentence.gold.get(place) {
                Some(gold) => writeln!(text, "{word} {} {told}", label(labels, *gold)),
                None => writeln!(text, "{word} {told}"),
            };
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::{Skipped, Target};
    use super::*;

    fn written(records: Records, submission: Option<&str>, labels: &[&str], answers: &[Answer]) -> String {
        let split = Split {
            name: "test".into(),
            examples: Vec::new(),
            records,
            skipped: Skipped::default(),
            fingerprint: String::new(),
            submission: submission.map(str::to_owned),
        };
        let labels: Vec<String> = labels.iter().map(|label| label.to_string()).collect();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("answers.tsv");
        write_predictions(&split, &labels, answers, &path).unwrap();
        std::fs::read_to_string(path).unwrap()
    }

    fn rows(indices: &[&str]) -> Records {
        let row = |index: &&str| Row {
            index: index.to_string(),
            example: 0,
            sequence: 0,
            gold: Target::Unknown,
            group: None,
        };
        Records::Rows(indices.iter().map(row).collect())
    }

    #[test]
    fn rows_are_written_as_glue_wants_them() {
        let classes = [Answer::Class(1), Answer::Class(0)];
        let text = written(rows(&["0", "1"]), Some("RTE.tsv"), &["entailment", "not_entailment"], &classes);
        assert_eq!(text, "index\tprediction\n0\tnot_entailment\n1\tentailment\n");
        let numbers = [Answer::Number(5.2), Answer::Number(2.71849)];
        let text = written(rows(&["0", "1"]), Some("STS-B.tsv"), &[], &numbers);
        assert_eq!(text, "index\tprediction\n0\t5.000\n1\t2.718\n");
        assert_eq!(written(rows(&["7"]), None, &[], &numbers[..1]), "index\tprediction\n7\t5.2\n");
        let options = [Answer::Option(3), Answer::Option(26)];
        assert_eq!(
            written(rows(&["high/1-0", "b"]), None, &[], &options),
            "index\tprediction\nhigh/1-0\tD\nb\t26\n"
        );
    }

    #[test]
    fn sentences_are_written_as_conll_scripts_read_them() {
        let sentence = |gold: &[u32]| TaggedSentence {
            words: vec!["Ada".into(), "ran".into(), "home".into()],
            gold: gold.to_vec(),
            positions: vec![Some(0), Some(2), None],
        };
        let records = Records::Sentences(vec![sentence(&[1, 0, 1]), sentence(&[])]);
        let answers = [Answer::Tags(vec![1, 1, 1]), Answer::Tags(vec![0, 0, 0])];
        assert_eq!(
            written(records, None, &["O", "B-PER"], &answers),
            "Ada B-PER B-PER\nran O B-PER\nhome B-PER O\n\nAda O\nran O\nhome O\n\n"
        );
    }

    #[test]
    fn answers_have_to_be_as_many_as_records() {
        let split = Split {
            name: "test".into(),
            examples: Vec::new(),
            records: rows(&["0"]),
            skipped: Skipped::default(),
            fingerprint: String::new(),
            submission: None,
        };
        let error = write_predictions(&split, &[], &[], "/nowhere/a".as_ref()).unwrap_err();
        assert!(matches!(error, DataError::Usage(_)), "{error}");
        let error = write_predictions(&split, &[], &[Answer::Class(0)], "/nowhere/a".as_ref()).unwrap_err();
        assert_eq!(error.exit_code(), 73);
    }
}
