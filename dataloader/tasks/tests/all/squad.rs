//! SQuAD's published files: every answer is found and found back, every token counts in one window alone.

use crate::scratch::text;

use std::fs;
use std::path::Path;

use segue_skip::shared_data;
use segue_tasks::squad::{Questions, SquadReader};
use segue_tasks::{Example, Records, Split, Target, TaskConfig, TaskSplits, Template};
use segue_tokenizer::{Tokenizer, TokenizerKind, TrainOptions, XlnetNormalization};

const FILES: [&str; 4] =
    ["dev-v1.1.json", "dev-v2.0.half.json", "train-v1.1.slice.json", "expmrc-squad-dev.json"];

fn xlnet(model: &Path) -> Tokenizer {
    Tokenizer::import_xlnet(model, XlnetNormalization::default()).unwrap()
}

/// Characters as they occur in a file.
fn characters(file: &Path) -> Tokenizer {
    text::train(&fs::read_to_string(file).unwrap(), &TrainOptions::new(TokenizerKind::Char))
}

fn read(file: &Path, tokenizer: &Tokenizer, segment: usize, task: &TaskConfig) -> Split {
    let template = Template::new(tokenizer, segment).unwrap();
    SquadReader { tokenizer, template, task, has_unanswerable: true }.read(file, "dev", true).unwrap()
}

fn questions(split: &Split) -> &Questions {
    match &split.records {
        Records::Questions(questions) => questions,
        _ => panic!("SQuAD asks questions"),
    }
}

/// How many answers there are, and how many of them begin or end inside a token.
fn answers_found_back(all: &Questions) -> (usize, usize) {
    let (mut count, mut inside) = (0, 0);
    for question in &all.questions {
        let paragraph = &all.paragraphs[question.paragraph as usize];
        for answer in &question.answers {
            let bytes = answer.bytes.clone().unwrap_or_else(|| panic!("{}: {:?}", question.id, answer.text));
            let exactly = &paragraph.context[bytes.start as usize..bytes.end as usize];
            assert_eq!(exactly, answer.text.trim());
            let (first, last) = paragraph.tokens(&bytes).unwrap();
            let text = paragraph.text(first, last);
            count += 1;
            if text != exactly {
                // Then a token sticks out, and no tokens could give the answer alone.
                let (first, last) = (&paragraph.spans[first as usize], &paragraph.spans[last as usize]);
                assert!(text.contains(exactly), "{}: {text:?} for {exactly:?}", question.id);
                assert!(first.start < bytes.start || last.end > bytes.end);
                assert!(first.end > bytes.start && last.start < bytes.end);
                inside += 1;
            }
        }
    }
    (count, inside)
}

/// Row X26.
#[test]
fn every_answer_maps_back_to_identical_text() {
    let Some(model) = shared_data("xlnet_spiece/spiece.model") else { return };
    for name in FILES {
        let Some(file) = shared_data(&format!("squad/{name}")) else { return };
        let task = TaskConfig::default();
        let (pieces, characters) = (xlnet(&model), characters(&file));
        let split = read(&file, &pieces, 384, &task);
        let all = questions(&split);
        assert_eq!((split.skipped.count, all.moved), (0, 0));
        let (count, inside) = answers_found_back(all);
        assert!(count >= 501 && inside * 50 < count, "{inside} of {count}");
        println!(
            "{name}: {count} answers, {inside} of them begin or end inside a piece, {} windows",
            all.windows.len()
        );
        assert_eq!(answers_found_back(questions(&read(&file, &characters, 2000, &task))), (count, 0));
    }
}

/// Row X26.
#[test]
fn targets_are_where_the_first_answer_stands() {
    let Some(model) = shared_data("xlnet_spiece/spiece.model") else { return };
    let Some(file) = shared_data("squad/dev-v2.0.half.json") else { return };
    let tokenizer = xlnet(&model);
    let split = read(&file, &tokenizer, 160, &TaskConfig { stride: 40, ..TaskConfig::default() });
    let all = questions(&split);
    let (sep, cls) = (tokenizer.token_id("<sep>").unwrap(), tokenizer.token_id("<cls>").unwrap());
    let mut held = vec![false; all.questions.len()];
    for (number, Example { sequences, target }) in split.examples.iter().enumerate() {
        let (sequence, window) = (&sequences[0], all.windows[number]);
        let question = &all.questions[window.question as usize];
        let paragraph = window.length as usize;
        let last = sequence.ids.len() - 1;
        assert!(sequence.ids.len() <= 160 && question.windows.contains(&(number as u32)));
        assert_eq!((sequence.ids[paragraph], sequence.ids[last - 1], sequence.ids[last]), (sep, sep, cls));
        let kind = |place: usize| match place {
            place if place <= paragraph => 0,
            place if place < last => 1,
            _ => 2,
        };
        assert!((0..=last).all(|place| sequence.segments[place] == kind(place)));
        assert!((0..=last).all(|place| sequence.outside[place] == (place >= paragraph && place != last)));
        let Target::Span { start, end, impossible } = *target else { panic!("every question is told") };
        match impossible {
            true => assert_eq!((start as usize, end as usize), (last, last)),
            false => {
                let text = all.text(number, start, end).unwrap();
                assert!(text.contains(question.answers[0].text.trim()));
                held[window.question as usize] = true;
            }
        }
        assert_eq!(all.text(number, 0, window.length), None);
    }
    let answerable = all.questions.iter().map(|question| question.impossible == Some(false));
    let missed = held.iter().zip(answerable).filter(|(held, answerable)| *held != answerable).count();
    assert_eq!(missed, 0, "every answer is whole in a window");
}

/// Row X26.
#[test]
fn every_token_counts_in_one_window_alone() {
    let Some(model) = shared_data("xlnet_spiece/spiece.model") else { return };
    let Some(file) = shared_data("squad/expmrc-squad-dev.json") else { return };
    let split = read(&file, &xlnet(&model), 128, &TaskConfig { stride: 32, ..TaskConfig::default() });
    let all = questions(&split);
    let mut several = 0;
    for question in &all.questions {
        let mut counts = vec![0; all.paragraphs[question.paragraph as usize].spans.len()];
        for window in question.windows.clone() {
            let of = all.windows[window as usize];
            for position in (0..of.length).filter(|position| all.has_most_context(window as usize, *position))
            {
                counts[(of.first + position) as usize] += 1;
            }
        }
        assert!(counts.iter().all(|count| *count == 1), "{}: {counts:?}", question.id);
        several += usize::from(question.windows.len() > 1);
    }
    assert!(several > 100);
}

#[test]
fn unanswered_files_are_read_for_others_to_score() {
    let Some(model) = shared_data("xlnet_spiece/spiece.model") else { return };
    let Some(file) = shared_data("squad/test-v2.0.half.unanswered.json") else { return };
    let Some(dev) = shared_data("squad/dev-v2.0.half.json") else { return };
    let (tokenizer, task) = (xlnet(&model), TaskConfig::default());
    let folder = tempfile::tempdir().unwrap();
    fs::copy(&file, folder.path().join("test-v2.0.json")).unwrap();
    fs::copy(&dev, folder.path().join("dev-v2.0.json")).unwrap();
    let template = Template::new(&tokenizer, 384).unwrap();
    let reader = SquadReader { tokenizer: &tokenizer, template, task: &task, has_unanswerable: true };
    let splits = TaskSplits { train: false, dev: true, test: true };
    let data = reader.open("squad2", folder.path(), splits).unwrap();
    assert_eq!(questions(&data.dev[0]).questions.len(), 6078);
    assert_eq!(questions(&data.test[0]).questions.len(), 5915);
    assert!(data.test[0].examples.iter().all(|example| example.target == Target::Unknown));
    assert_eq!(reader.read(&file, "train", true).unwrap_err().exit_code(), 65);
    assert_eq!(
        reader.open("squad2", folder.path(), TaskSplits { train: true, ..splits }).unwrap_err().exit_code(),
        66
    );
    assert_eq!(reader.open("squad3", folder.path(), splits).unwrap_err().exit_code(), 64);
}

#[test]
fn what_is_scored_keeps_the_questions_that_the_official_scorer_counts() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dev.json");
    let question = |id: &str, answer: &str, start: u64| {
        format!(
            r#"{{"id": "{id}", "question": "what", "answers": [{{"text": "{answer}", "answer_start": {start}}}]}}"#
        )
    };
    let far = question("far", "four", 0);
    let two = question("two", "two", 4);
    // Of `~` no token is left.
    let odd = question("odd", "~", 14);
    let blank = two.replace("\"what\"", "\" \"").replace("\"two\", \"q", "\"blank\", \"q");
    let paragraph = |context: &str, questions: &[&String]| {
        let questions: Vec<&str> = questions.iter().map(|question| question.as_str()).collect();
        format!(r#"{{"context": "{context}", "qas": [{}]}}"#, questions.join(", "))
    };
    let paragraphs = [
        paragraph("one two three ~", &[&far, &two, &odd, &blank]),
        paragraph(" ", &[&question("empty", "two", 0)]),
        paragraph("~", &[&question("nothing", "~", 0)]),
    ];
    fs::write(&file, format!(r#"{{"data": [{{"paragraphs": [{}]}}]}}"#, paragraphs.join(", "))).unwrap();
    let tokenizer = text::train(
        "one two three what",
        &TrainOptions {
            special_tokens: ["<cls>", "<sep>", "<pad>"].map(String::from).to_vec(),
            ..TrainOptions::new(TokenizerKind::Bpe)
        },
    );
    let task = TaskConfig { skip_bad: true, ..TaskConfig::default() };
    let template = Template::new(&tokenizer, 50).unwrap();
    let reader = SquadReader { tokenizer: &tokenizer, template, task: &task, has_unanswerable: true };
    let dev = reader.read(&file, "dev", true).unwrap();
    let ids: Vec<&str> = questions(&dev).questions.iter().map(|question| question.id.as_str()).collect();
    assert_eq!(ids, ["far", "two", "odd", "blank", "empty", "nothing"]);
    assert!(questions(&dev).questions.iter().all(|question| question.impossible == Some(false)));
    assert!(questions(&dev).questions.iter().all(|question| !question.windows.is_empty()));
    assert_eq!((dev.skipped.count, dev.examples.len()), (0, questions(&dev).windows.len()));
    assert!(dev.skipped.notes[0].contains("answered and scored"), "{:?}", dev.skipped);
    let train = reader.read(&file, "train", true).unwrap();
    assert!(questions(&train).questions.len() < 4 && train.skipped.count > 2, "{:?}", train.skipped);
    let strict = TaskConfig::default();
    let error = SquadReader { task: &strict, ..reader }.read(&file, "dev", true).unwrap_err();
    assert!(
        error.to_string().contains("`far`") && error.hint().unwrap().contains("scored as it stands"),
        "{error}"
    );
}

/// A file of one paragraph.
fn tiny(question: &str) -> String {
    format!(
        r#"{{"version": "1.1", "data": [{{"title": "T", "paragraphs": [{{"context": "one two three",
            "qas": [{{"id": "q", "question": "{question}", "answers": [{{"text": "two", "answer_start": 4}}]}}]}}]}}]}}"#
    )
}

#[test]
fn long_questions_are_cut_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dev.json");
    fs::write(&file, tiny("what is two")).unwrap();
    let tokenizer = characters(&file);
    let task = TaskConfig { max_question: 4, ..TaskConfig::default() };
    let split = read(&file, &tokenizer, 50, &task);
    assert_eq!(questions(&split).shortened, 1);
    assert!(split.skipped.notes[0].ends_with("tokens: 1"), "{:?}", split.skipped);
    assert_eq!(tokenizer.decode(&split.examples[0].sequences[0].ids), "one two three\nwhat\n\n");
    // Four tokens of question and three besides leave room for none of the paragraph.
    let template = Template::new(&tokenizer, 7).unwrap();
    let reader = SquadReader { tokenizer: &tokenizer, template, task: &task, has_unanswerable: true };
    let error = reader.read(&file, "dev", true).unwrap_err();
    assert!(error.exit_code() == 64 && error.hint().unwrap().contains("train.segment"), "{error}");
    // With all of it left out, nothing is left to read.
    fs::write(&file, tiny(" ")).unwrap();
    let task = TaskConfig { skip_bad: true, ..task.clone() };
    let error = SquadReader { task: &task, ..reader }.read(&file, "train", true).unwrap_err();
    assert!(error.exit_code() == 65 && error.to_string().contains("no question"), "{error}");
}
