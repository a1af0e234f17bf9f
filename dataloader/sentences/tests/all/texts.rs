use std::fs;

use segue_dataloader::{BuildOptions, Corpus, Preset, Split, TokenizerChoice, build};
use segue_sentences::SentenceTexts;
use segue_tokenizer::{TokenizerKind, TrainOptions};

use crate::scratch::{built, pair};

/// Words of sentence `n` of many: one to nine, which name it.
fn words(n: usize) -> String {
    pair(n).0
}

/// A corpus of these lines, in many shards.
fn corpus(preset: Preset, text: &str) -> (tempfile::TempDir, Corpus) {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("text"), folder.path().join("corpus"));
    fs::write(&input, text).unwrap();
    let tokenizer = TokenizerChoice::Train(TrainOptions::new(TokenizerKind::Word));
    let options = BuildOptions::new(preset, vec![input], output.clone());
    build(&BuildOptions { tokenizer, shard_tokens: 100, ..options }, &()).unwrap();
    (folder, Corpus::open(&output).unwrap())
}

/// Row V12. Across the borders of shards, and of documents.
#[test]
fn sentences_come_back_in_order_and_cut_at_their_most() {
    let all: Vec<String> = (0..400).map(words).collect();
    let with_documents: Vec<String> = all
        .iter()
        .enumerate()
        .map(|(n, line)| format!("{line}\n{}", ["", "\n"][usize::from(n % 50 == 49)]))
        .collect();
    for (preset, text) in [(Preset::Sentences, with_documents.concat()), (Preset::Ptb, all.join("\n") + "\n")]
    {
        let (_folder, corpus) = corpus(preset, &text);
        let tokenizer = corpus.tokenizer().unwrap();
        let end = i64::from(tokenizer.eos_id().unwrap());
        for most in [0, 4] {
            let texts = SentenceTexts::open(&corpus, Split::Train, most).unwrap();
            assert_eq!(texts.len(), all.len());
            let mut cut = 0;
            for (n, line) in all.iter().enumerate() {
                let ids = texts.get(n as u32).unwrap();
                assert_eq!(texts.lengths()[n] as usize, ids.len());
                let whole = line.split(' ').count() + 1;
                if most > 0 && whole > most {
                    cut += 1;
                    let first: Vec<&str> = line.split(' ').take(most).collect();
                    assert_eq!(tokenizer.decode_signed(&ids), first.join(" "));
                } else {
                    let (last, words) = ids.split_last().unwrap();
                    assert_eq!((*last, &tokenizer.decode_signed(words)), (end, line));
                }
            }
            assert_eq!(texts.cut(), cut);
        }
        let texts = SentenceTexts::open(&corpus, Split::Train, 0).unwrap();
        assert_eq!(texts.get(400).unwrap_err().exit_code(), 70, "beyond the last");
        let mut grouped = texts.by_length(64, 0).concat();
        grouped.sort_unstable();
        assert_eq!(grouped, (0..400).collect::<Vec<u32>>());
    }
}

#[test]
fn a_corpus_without_lines_is_refused_with_the_command_that_makes_one() {
    let (_folder, corpus) = built(&[pair(1)], |build| build);
    let error = SentenceTexts::open(&corpus, Split::Train, 0).unwrap_err();
    assert!(error.to_string().contains("its preset is `pairs`"), "{error}");
    assert!(error.hint().unwrap().contains("segue data build --preset sentences"));
    assert_eq!(error.exit_code(), 65);
}
