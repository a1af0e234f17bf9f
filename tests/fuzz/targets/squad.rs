//! A SQuAD file, from the JSON to windows and back to text; bad records fail it, or are left out.
#![no_main]

use std::sync::LazyLock;

use segue_configs::TaskConfig;
use segue_dataloader::tasks::squad::SquadReader;
use segue_dataloader::tasks::{Records, Target, Template};
use segue_dataloader::{Preset, Tokenizer, TokenizerKind, TrainOptions, train_tokenizer};

static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("text");
    std::fs::write(&input, "the quick brown fox jumps over the lazy dog, né 1066.").unwrap();
    let options = TrainOptions::new(TokenizerKind::Char);
    train_tokenizer(&[input], &[], Preset::Documents, Default::default(), &options, 1, &()).unwrap()
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let template = Template::new(&TOKENIZER, 16).unwrap();
    for (skip_bad, labelled) in [(false, true), (true, true), (true, false)] {
        let task = TaskConfig { skip_bad, max_question: 5, stride: 3, ..TaskConfig::default() };
        let reader = SquadReader { tokenizer: &TOKENIZER, template, task: &task };
        let Ok(split) = reader.read_bytes("input".as_ref(), bytes, "fuzz", labelled) else { continue };
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
});
