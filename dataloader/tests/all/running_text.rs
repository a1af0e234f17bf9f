//! Corpora of running text for XLNet: sentences, `<eod>`, boundaries.

use crate::scratch;

use std::fs;
use std::path::{Path, PathBuf};

use scratch::{tokens_of, tree};
use segue_data_error::DataError;
use segue_dataloader::{BuildObserver, BuildOptions, Corpus, Preset, Split, TokenizerChoice, build};
use segue_skip::shared_data;
use segue_tokenizer::{Tokenizer, TokenizerKind, TrainOptions, XlnetNormalization};

/// Words, with `<eod>` and `<eop>` among them.
fn words() -> TokenizerChoice {
    let special_tokens = vec!["<eod>".into(), "<eop>".into()];
    TokenizerChoice::Train(TrainOptions { special_tokens, ..TrainOptions::new(TokenizerKind::Word) })
}

fn built(folder: &Path, preset: Preset, text: &str, change: impl Fn(&mut BuildOptions)) -> PathBuf {
    let (input, output) = (folder.join("text"), folder.join("corpus"));
    fs::write(&input, text).unwrap();
    let mut options =
        BuildOptions { tokenizer: words(), ..BuildOptions::new(preset, vec![input], output.clone()) };
    change(&mut options);
    build(&options, &()).unwrap();
    output
}

/// The sentences of a split, `|` where a document begins; what comes before the first one begins with `?`.
fn described(output: &Path) -> Vec<String> {
    let corpus = Corpus::open(output).unwrap();
    let (tokenizer, ids) = (corpus.tokenizer().unwrap(), tokens_of(output, Split::Train));
    let (sentences, documents) =
        (corpus.sentences(Split::Train).unwrap(), corpus.documents(Split::Train).unwrap());
    let sentences: Vec<u64> = (0..sentences.len()).map(|i| sentences.get(i).unwrap().unwrap()).collect();
    let documents: Vec<u64> = (0..documents.len()).map(|i| documents.get(i).unwrap().unwrap()).collect();
    assert!(sentences.is_sorted_by(|a, b| a < b), "{sentences:?}");
    let mut lines = vec!["?".to_string()];
    for (place, id) in ids.iter().enumerate() {
        if sentences.contains(&(place as u64)) {
            lines.push(String::new());
        }
        let line = lines.last_mut().unwrap();
        if documents.contains(&(place as u64)) {
            line.push('|');
        }
        let space = if line.is_empty() || line.ends_with('|') { "" } else { " " };
        line.push_str(&format!("{space}{}", tokenizer.token(*id as u32).unwrap()));
    }
    assert_eq!(lines.remove(0), "?");
    lines
}

#[test]
fn blank_lines_end_documents_and_files_do() {
    let folder = tempfile::tempdir().unwrap();
    let text = "\n\na b\r\nc <eop>\n\n \u{A0}\nd\n\ne";
    let output = built(folder.path(), Preset::Xlnet, text, |_| {});
    assert_eq!(described(&output), ["|a b", "c <eop>", "<eod>", "|d", "<eod>", "|e", "<eod>"]);
    let plain = tempfile::tempdir().unwrap();
    let output = built(plain.path(), Preset::Xlnet, text, |options| options.no_eod = true);
    assert_eq!(described(&output), ["|a b", "c <eop>", "|d", "|e"]);
}

/// The examples of Unicode's annex 29, section 5.2, but for those with numbers.
#[test]
fn paragraphs_are_cut_where_unicode_says() {
    let folder = tempfile::tempdir().unwrap();
    let text =
        "He said, “Are you going?” John shook his head. Yes!\nc.d and the resp. leaders are\n\nA one. B";
    let output = built(folder.path(), Preset::Xlnet, text, |options| options.split_sentences = true);
    let expected = [
        "|He said, “Are you going?”",
        "John shook his head.",
        "Yes!",
        "c.d and the resp. leaders are",
        "<eod>",
        "|A one.",
        "B",
        "<eod>",
    ];
    assert_eq!(described(&output), expected);
}

#[test]
fn wikitext_becomes_running_text() {
    let folder = tempfile::tempdir().unwrap();
    let text = " \n = Du Fu 's poems = \n \n It is 1 @,@ 500 ( <unk> ) . He said \" yes \" . \n \n = = Life = = \n \n A @-@ b \
                \n \n = Two = \n \n End . \n";
    let output = built(folder.path(), Preset::WikiTextXlnet, text, |_| {});
    let expected = [
        "|Du Fu's poems",
        "It is 1,500 (<unk>).",
        "He said \"yes\".",
        "Life",
        "A-b",
        "<eod>",
        "|Two",
        "End.",
        "<eod>",
    ];
    // The word tokenizer takes `(<unk>).` for one word, which it was not trained on as such.
    let found = described(&output);
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (found, expected) in found.iter().zip(expected).filter(|(_, expected)| !expected.contains("<unk>")) {
        assert_eq!(found, expected);
    }
}

#[test]
fn an_unknown_word_of_wikitext_is_one_unknown_piece() {
    let Some(model) = shared_data("xlnet_spiece/spiece.model") else { return };
    let tokenizer = Tokenizer::import_xlnet(&model, XlnetNormalization::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let output =
        built(folder.path(), Preset::WikiTextXlnet, "The <unk> ( <unk> ) , <unk> . <unk> is \n", |options| {
            options.tokenizer = TokenizerChoice::Given(tokenizer.clone());
        });
    assert_eq!(described(&output), ["|▁The ▁ <unk> ▁ ( <unk> ) , ▁ <unk> .", "▁ <unk> ▁is", "<eod>"]);
}

#[test]
fn eop_is_a_piece_of_its_own() {
    let Some(model) = shared_data("xlnet_spiece/spiece.model") else { return };
    let tokenizer = Tokenizer::import_xlnet(&model, XlnetNormalization::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let output = built(folder.path(), Preset::Xlnet, "It ends here. <eop>\nNext\n", |options| {
        options.tokenizer = TokenizerChoice::Given(tokenizer.clone());
    });
    assert_eq!(described(&output), ["|▁It ▁ends ▁here . ▁ <eop>", "▁Next", "<eod>"]);
}

/// Text of several chunks: documents of one to five sentences, one word each.
fn long_text() -> (String, Vec<String>) {
    let (mut text, mut expected) = (String::new(), Vec::new());
    for document in 0..60_000usize {
        for sentence in 0..document % 5 + 1 {
            let word = format!("w{}-{sentence}{}", document % 700, "x".repeat(document % 40));
            expected.push(format!("{}{word}", if sentence == 0 { "|" } else { "" }));
            text.push_str(&word);
            text.push('\n');
        }
        expected.push("<eod>".into());
        text.push_str(&"\n".repeat(document % 3 + 1));
    }
    (text, expected)
}

/// Stops after every shard.
struct Stopping;

impl BuildObserver for Stopping {
    fn stops_after(&self, _: u64) -> bool {
        true
    }
}

#[test]
fn cuts_between_chunks_threads_and_stops_do_not_show() {
    let folder = tempfile::tempdir().unwrap();
    let (text, expected) = long_text();
    assert!(text.len() > 3 << 20);
    let corpora = [1, 3].map(|workers| {
        let place = folder.path().join(workers.to_string());
        fs::create_dir(&place).unwrap();
        built(&place, Preset::Xlnet, &text, |options| {
            (options.workers, options.shard_tokens) = (workers, 60_000);
        })
    });
    let ids = tokens_of(&corpora[0], Split::Train);
    assert_eq!(ids.len(), expected.len());
    let corpus = Corpus::open(&corpora[0]).unwrap();
    let tokenizer = corpus.tokenizer().unwrap();
    let info = &corpus.info().splits[&Split::Train];
    assert_eq!((info.documents, info.sentences), (60_000, expected.len() as u64));
    for (id, expected) in ids.iter().zip(&expected) {
        assert_eq!(tokenizer.token(*id as u32).unwrap(), expected.trim_start_matches('|'));
    }
    let input = folder.path().join("1/text");
    let output = folder.path().join("stopped");
    let mut options =
        BuildOptions { tokenizer: words(), ..BuildOptions::new(Preset::Xlnet, vec![input], output.clone()) };
    options.shard_tokens = 60_000;
    let mut stops = 0;
    while let Err(error) = build(&options, &Stopping) {
        assert!(matches!(error, DataError::Stopped { .. }), "{error}");
        stops += 1;
    }
    assert!(stops >= 3, "{stops}");
    assert!(tree(&corpora[0]) == tree(&corpora[1]) && tree(&corpora[0]) == tree(&output));
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("text");
    fs::write(&input, "a\n").unwrap();
    let refused = |preset, change: &dyn Fn(&mut BuildOptions)| {
        let mut options = BuildOptions::new(preset, vec![input.clone()], folder.path().join("corpus"));
        change(&mut options);
        let error = build(&options, &()).unwrap_err();
        assert_eq!(error.exit_code(), 64, "{error}");
        format!("{error}\n{}", error.hint().unwrap_or_default())
    };
    let bytes = TokenizerChoice::Given(Tokenizer::bytes());
    assert!(refused(Preset::Xlnet, &|_| {}).contains("needs a tokenizer"));
    assert!(refused(Preset::Xlnet, &|options| options.tokenizer = bytes.clone()).contains("--no-eod"));
    assert!(refused(Preset::WikiText, &|options| options.no_eod = true).contains("--no-eod"));
    assert!(refused(Preset::WikiTextXlnet, &|options| options.split_sentences = true).contains("always"));
}
