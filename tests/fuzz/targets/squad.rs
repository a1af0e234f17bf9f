//! A SQuAD file, from the JSON to windows and back to text: the input as it is, and as the texts of a file whose layout
//! is right (others would end most runs at once). Bad records fail it, or are left out.
#![no_main]

use std::sync::LazyLock;

use segue_dataloader::{Preset, TrainingText, train_tokenizer};
use segue_tasks::squad::SquadReader;
use segue_tasks::{Records, Target, TaskConfig, Template};
use segue_tokenizer::{Tokenizer, TokenizerKind, TrainOptions};
use serde_json::json;

static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("text");
    std::fs::write(&input, "the quick brown fox jumps over the lazy dog, né 1066.").unwrap();
    let options = TrainOptions::new(TokenizerKind::Char);
    train_tokenizer(&TrainingText::new(Preset::Documents, vec![input]), &options, 1, &()).unwrap()
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for file in [bytes.to_vec(), framed(bytes)] {
        for (skip_bad, labelled) in [(false, true), (true, true), (true, false)] {
            read(&file, skip_bad, labelled);
        }
    }
});

fn read(file: &[u8], skip_bad: bool, labelled: bool) {
    let template = Template::new(&TOKENIZER, 16).unwrap();
    let task = TaskConfig { skip_bad, max_question: 5, stride: 3, ..TaskConfig::default() };
    let reader = SquadReader { tokenizer: &TOKENIZER, template, task: &task, has_unanswerable: true };
    let Ok(split) = reader.read_bytes("input".as_ref(), file, "fuzz", labelled) else { return };
    let Records::Questions(questions) = &split.records else { panic!("SQuAD asks questions") };
    assert_eq!(split.examples.len(), questions.windows.len());
    for (number, example) in split.examples.iter().enumerate() {
        assert!(example.sequences[0].ids.len() <= 16);
        if let Target::Span { start, end, impossible: false } = example.target {
            assert!(questions.text(number, start, end).is_some());
        }
        questions.has_most_context(number, 0);
    }
}

/// Lines of the input as context, and then as question and answer in turn; the place of an answer is its first byte.
fn framed(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.lines();
    let context = lines.next().unwrap_or_default();
    let mut questions = Vec::new();
    while let (Some(question), Some(answer)) = (lines.next(), lines.next()) {
        let start = answer.bytes().next().map_or(0, i64::from) - i64::from(b'0');
        let answers = json!([{ "text": answer.get(1..).unwrap_or(answer), "answer_start": start }]);
        questions.push(json!({ "id": question, "question": question, "answers": answers }));
    }
    let paragraph = json!({ "context": context, "qas": questions });
    json!({ "data": [{ "title": "", "paragraphs": [paragraph] }] }).to_string().into_bytes()
}
