//! SQuAD from its file to scores and back, with a model that knows the answers.

use std::path::{Path, PathBuf};

use segue_dataloader::{Preset, TrainingText, train_tokenizer};
use segue_measure::squad::{Report, Rules};
use segue_task::squad::{SpanBeam, decode, report, write_answers};
use segue_tasks::squad::{Questions, SquadReader};
use segue_tasks::{Example, Records, Split, Target, TaskConfig, Template};
use segue_tokenizer::{Tokenizer, TokenizerKind, TrainOptions, XlnetNormalization};

const SHARED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared");

fn shared(relative: &str) -> Option<PathBuf> {
    let path = Path::new(SHARED).join("data").join(relative);
    if !path.exists() {
        segue_skip::skip(segue_skip::Need::Fixtures, format!("{relative} of the shared data sets"));
        return None;
    }
    Some(path)
}

fn read(file: &Path, tokenizer: &Tokenizer, segment: usize) -> Split {
    let (task, template) = (TaskConfig::default(), Template::new(tokenizer, segment).unwrap());
    SquadReader { tokenizer, template, task: &task, has_unanswerable: true }.read(file, "dev", true).unwrap()
}

/// Beams of a model that is certain of a gold answer, of the one with the most exact text where there are several, and
/// sees none in windows that do not hold it.
fn oracle(questions: &Questions, examples: &[Example]) -> Vec<SpanBeam> {
    let beam = |(number, example): (usize, &Example)| {
        let window = questions.windows[number];
        let question = &questions.questions[window.question as usize];
        let paragraph = &questions.paragraphs[question.paragraph as usize];
        let places = question.answers.iter().filter_map(|answer| {
            let (first, last) = paragraph.tokens(answer.bytes.as_ref()?)?;
            let (start, end) = (first.checked_sub(window.first)?, last.checked_sub(window.first)?);
            let usable = end < window.length && questions.has_most_context(number, start);
            usable.then_some((
                paragraph.text(first, last).len().abs_diff(answer.text.trim().len()),
                start,
                end,
            ))
        });
        let cls = example.sequences[0].ids.len() as u32 - 1;
        let (_, start, end) = places.min().unwrap_or((0, cls, cls));
        SpanBeam {
            start_probabilities: vec![1.0],
            starts: vec![start],
            end_probabilities: vec![1.0],
            ends: vec![end],
            unanswerable: if start == cls { 4.0 } else { -4.0 },
        }
    };
    examples.iter().enumerate().map(beam).collect()
}

fn score_of_oracle(
    file: &Path,
    tokenizer: &Tokenizer,
    segment: usize,
    rules: Rules,
    threshold: f64,
) -> Report {
    let split = read(file, tokenizer, segment);
    let Records::Questions(questions) = &split.records else { panic!("SQuAD asks questions") };
    let limits = (&TaskConfig { max_answer: 500, ..TaskConfig::default() }).into();
    let decoded = decode(questions, &oracle(questions, &split.examples), limits);
    let folder = tempfile::tempdir().unwrap();
    write_answers(folder.path(), &decoded, threshold).unwrap();
    report(questions, &decoded, rules, threshold).unwrap()
}

/// Row X25.
#[test]
fn certain_answers_score_a_hundred_in_characters() {
    let Some(file) = shared("squad/dev-v1.1.json") else { return };
    let options = TrainOptions::new(TokenizerKind::Char);
    let text = TrainingText::new(Preset::Documents, vec![file.clone()]);
    let tokenizer = train_tokenizer(&text, &options, 2, &()).unwrap();
    let report = score_of_oracle(&file, &tokenizer, 5000, Rules::V1, f64::INFINITY);
    assert_eq!((report.exact, report.f1, report.total, report.missing), (100.0, 100.0, 10_570, 0));
}

/// Row X25.
#[test]
fn certain_answers_score_what_pieces_can_say() {
    let Some(model) = shared("xlnet_spiece/spiece.model") else { return };
    let Some(first) = shared("squad/dev-v1.1.json") else { return };
    let Some(second) = shared("squad/dev-v2.0.half.json") else { return };
    let tokenizer = Tokenizer::import_xlnet(&model, XlnetNormalization::default()).unwrap();
    let dev = score_of_oracle(&first, &tokenizer, 384, Rules::V1, f64::INFINITY);
    // One answer of all, `four`, is marked inside of `fourth`, which is one piece.
    assert!((dev.exact - 100.0 * 10_569.0 / 10_570.0).abs() < 1e-9 && dev.f1 == dev.exact);
    let dev = score_of_oracle(&second, &tokenizer, 384, Rules::V2, 0.0);
    assert_eq!((dev.exact, dev.f1, dev.has_answer_total, dev.no_answer_total), (100.0, 100.0, 2910, 3168));
    assert_eq!((dev.best_exact, dev.best_exact_thresh), (100.0, -4.0));
}

/// A test file has nothing to score.
#[test]
fn what_is_not_told_has_no_score() {
    let Some(file) = shared("squad/dev-v2.0.half.json") else { return };
    let mut questions = match read(&file, &characters(), 3000).records {
        Records::Questions(questions) => questions,
        _ => panic!("SQuAD asks questions"),
    };
    questions.questions.iter_mut().for_each(|question| question.impossible = None);
    assert_eq!(report(&questions, &[], Rules::V2, 0.0), None);
    let Target::Span { .. } = read(&file, &characters(), 3000).examples[0].target else {
        panic!("it is told")
    };
}

fn characters() -> Tokenizer {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("text");
    std::fs::write(&input, "abcdefghijklmnopqrstuvwxyz ").unwrap();
    let options = TrainOptions::new(TokenizerKind::Char);
    train_tokenizer(&TrainingText::new(Preset::Documents, vec![input]), &options, 2, &()).unwrap()
}
