//! Texts that are asked about outside any task become the sequences that the task makes of them.

use crate::scratch::{ALL, config, folder, words};
use segue_dataloader::sections::SegmentConfig;
use segue_tasks::{
    Example, InputExamples, InputFormat, InputOptions, Inputs, Kind, Records, Sequence, TaggedSentence,
    TaskData, Template,
};

const TOKENS: &str = "a b c d e f g";
const LONGEST: usize = 8;

/// What the split `dev` of a task holds, and the same of its file read without the task.
fn both(
    task: &str,
    files: &[(&str, &[u8])],
    dev: &str,
    format: Option<InputFormat>,
) -> (TaskData, InputExamples) {
    let folder = folder(files);
    let tokenizer = words(TOKENS);
    let mut config = config(task, folder.path());
    config.change(|segments: &mut SegmentConfig| segments.segment = LONGEST);
    let data = crate::scratch::open(&config, &tokenizer, ALL).unwrap();
    let path = folder.path().join(dev);
    let options = InputOptions { name: task, task: &config.own.get(), format, text: None, second_text: None };
    let inputs = Inputs::read(&path, &options).unwrap();
    let template = Template::new(&tokenizer, LONGEST).unwrap();
    let encoded = inputs.encode(data.kind, &tokenizer, template).unwrap();
    (data, encoded)
}

fn sequences(examples: &[Example]) -> Vec<&Sequence> {
    examples.iter().flat_map(|example| &example.sequences).collect()
}

#[test]
fn files_of_tasks_are_laid_out_as_the_tasks_lay_them_out() {
    let single: &[u8] = b"sentence\tlabel\na b \t1\nc d e f g a b\t0\n";
    let pairs: &[u8] =
        b"index\tsentence1\tsentence2\tlabel\n0\ta b\tc\tentailment\n1\ta b c d\te f g\tentailment\n";
    let paraphrases: &[u8] =
        b"Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\ta\tb c d e f g\n0\t7\t8\td\te\n";
    let bare: &[u8] = b"x\t1\t\ta b\nx\t0\t*\tc d e f g a b\n";
    let titles: &[u8] = b"\"3\",\"a b\",\"c\\nd\"\n\"4\",\"e\",\"f g a b c d\"\n";
    for (task, name, file, cut) in [
        ("sst2", "tsv", single, 3),
        ("text", "tsv", single, 3),
        ("rte", "tsv", pairs, 3),
        ("mrpc", "tsv", paraphrases, 2),
        ("cola", "tsv", bare, 2),
        ("agnews", "csv", titles, 2),
        ("dbpedia", "csv", titles, 2),
    ] {
        let (train, dev) = (format!("train.{name}"), format!("dev.{name}"));
        let (data, found) = both(task, &[(&train, file), (&dev, file)], &dev, None);
        assert_eq!(sequences(&found.examples), sequences(&data.dev[0].examples), "{task}");
        assert_eq!((found.cut, found.words.len()), (vec![cut], 0), "{task}");
    }
}

#[test]
fn lines_of_text_are_laid_out_as_rows_are() {
    let table: &[u8] = b"text\tlabel\na b\t1\nc d e f g a b\t0\n";
    let files: &[(&str, &[u8])] =
        &[("train.tsv", table), ("dev.tsv", table), ("lines", b"a b\nc d e f g a b\n")];
    let (data, found) = both("text", files, "lines", None);
    assert_eq!(sequences(&found.examples), sequences(&data.dev[0].examples));
}

#[test]
fn words_of_a_line_stand_where_those_of_a_sentence_do() {
    let sentences: &[u8] = b"a B-PER\nb O\n\nc O\nd O\ne O\nf O\ng O\na O\nb O\n";
    let files: &[(&str, &[u8])] =
        &[("train.txt", sentences), ("dev.txt", sentences), ("lines", b"a b\n  c d\te f g a b \n")];
    let (data, found) = both("conll", files, "lines", Some(InputFormat::Text));
    assert_eq!(data.kind, Kind::Tagging);
    assert_eq!(sequences(&found.examples), sequences(&data.dev[0].examples));
    let Records::Sentences(asked) = &data.dev[0].records else { panic!("no sentences") };
    let unlabelled = |sentence: &TaggedSentence| TaggedSentence { gold: Vec::new(), ..sentence.clone() };
    assert_eq!(found.words, asked.iter().map(unlabelled).collect::<Vec<_>>());
    assert_eq!(found.cut, [2]);
}
