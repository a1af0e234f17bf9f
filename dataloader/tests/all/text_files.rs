//! Files as they are found: with byte-order marks, without line ends, empty, with a line that cannot be used.

use crate::scratch;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use scratch::{options, tokens_of};
use segue_dataloader::{
    BuildObserver, BuildOptions, InvalidUtf8, Preset, Split, TokenizerChoice, TrainingText, build,
    train_tokenizer,
};
use segue_tokenizer::{Tokenizer, TokenizerKind, TrainOptions};

const MARK: &str = "\u{FEFF}";

fn write(folder: &Path, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, content).unwrap();
    path
}

fn gzip(content: impl AsRef<[u8]>) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content.as_ref()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_byte_order_mark_is_no_text_but_of_presets_where_every_byte_counts() {
    let folder = tempfile::tempdir().unwrap();
    // Pairs are built by a function of their own.
    for preset in Preset::ALL.into_iter().filter(|preset| *preset != Preset::Pairs) {
        let is_bytes = preset.default_split().is_some();
        let text = match preset {
            Preset::Jsonl => "{\"text\": \"the cat\"}\n{\"text\": \"sat\"}\n",
            _ => " = Title = \n\nthe cat sat\n\nit sat\n",
        };
        let kinds = [TokenizerKind::Byte, TokenizerKind::Word, TokenizerKind::Bpe];
        for kind in kinds.into_iter().filter(|kind| !is_bytes || *kind == TokenizerKind::Byte) {
            let [plain, marked] = ["", MARK].map(|mark| {
                let sources = folder.path().join("sources");
                fs::create_dir(&sources).unwrap();
                write(&sources, "1", format!("{mark}{text}"));
                write(&sources, "2.gz", gzip(format!("{mark}{text}")));
                let output = folder.path().join("corpus");
                let mut options = options(preset, kind, &sources, &output);
                (options.no_eod, options.split) = (preset.name().ends_with("xlnet"), Some([1.0, 0.0, 0.0]));
                let info = build(&options, &()).unwrap();
                let built = (tokens_of(&output, Split::Train), info.splits[&Split::Train].clone());
                [sources, output].iter().for_each(|folder| fs::remove_dir_all(folder).unwrap());
                built
            });
            if is_bytes {
                let of_file = [MARK, text].concat().repeat(2).into_bytes();
                assert_eq!(marked.0, of_file.into_iter().map(i64::from).collect::<Vec<_>>());
                continue;
            }
            assert_eq!(marked.0, plain.0, "{preset} with {kind}");
            let counts = |split: &segue_dataloader::SplitInfo| {
                (split.bytes, split.chars, split.documents, split.sentences)
            };
            assert_eq!(counts(&marked.1), counts(&plain.1), "{preset} with {kind}");
        }
    }
}

/// The mark at the start of a file of several chunks, and none that stands elsewhere.
#[test]
fn only_the_first_mark_of_a_file_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{}{MARK}b\n", "a a\n".repeat(400_000));
    let input = write(folder.path(), "text", format!("{MARK}{text}"));
    let output = folder.path().join("corpus");
    let info = build(&options(Preset::Documents, TokenizerKind::Char, &input, &output), &()).unwrap();
    assert_eq!(info.splits[&Split::Train].bytes, text.len() as u64);
    assert_eq!(info.splits[&Split::Train].tokens, text.chars().count() as u64 + 1);
    // The place of what is not text is that in the file.
    let input = write(folder.path(), "latin1", b"\xEF\xBB\xBFcaf\xe9\n");
    let error =
        build(&options(Preset::Documents, TokenizerKind::Char, &input, &folder.path().join("x")), &());
    assert!(error.unwrap_err().to_string().ends_with("latin1 is not UTF-8 at byte 6"));
}

#[test]
fn an_input_that_cannot_be_cut_for_a_split_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let word = "word ".repeat(2_000);
    let many =
        (0..4).map(|number| write(folder.path(), &format!("many-{number}"), &word)).collect::<Vec<_>>();
    let one = write(folder.path(), "one.txt", &word);
    let ended = write(folder.path(), "ended.txt", word.clone() + "\n");
    let lines = write(folder.path(), "lines.txt", "a\n".repeat(50) + &word);
    let tiny = write(folder.path(), "tiny.txt", "a");
    let record = write(folder.path(), "record.jsonl", "{\"text\": \"a\"}\n");
    let fails = |preset, inputs: &[PathBuf], split: [f64; 3]| {
        let output = folder.path().join("corpus");
        let options = BuildOptions {
            split: Some(split),
            train: inputs.to_vec(),
            ..options(preset, TokenizerKind::Char, &inputs[0], &output)
        };
        let error = build(&options, &()).unwrap_err();
        let _ = fs::remove_dir_all(&output);
        assert_eq!(error.exit_code(), 65, "{error}");
        (error.to_string(), error.hint().unwrap())
    };
    let all = [0.8, 0.1, 0.1];
    let (none, some) = ("no line ends", "no line end from byte 8001 to byte 9001");
    for (input, split, name, ends) in
        [(&one, all, "valid", none), (&ended, all, "valid", some), (&one, [0.9, 0.0, 0.1], "test", none)]
    {
        let (why, hint) = fails(Preset::Documents, std::slice::from_ref(input), split);
        let expected = format!("{} cannot be cut for the {name} split: it has {ends}", input.display());
        assert!(why.ends_with(&expected), "{why}");
        assert!(hint.contains("break it into lines") && hint.contains("--valid"), "{hint}");
    }
    // A last line end is none to cut at, whichever split comes last.
    let (why, _) = fails(Preset::WikiText, &[ended], [0.9, 0.0, 0.1]);
    assert!(
        why.contains("ended.txt cannot be cut for the test split: it has no line end from byte"),
        "{why}"
    );
    let (why, _) = fails(Preset::Sentences, &[lines], all);
    assert!(
        why.contains("lines.txt cannot be cut for the valid split: it has no line end from byte"),
        "{why}"
    );
    let (why, _) = fails(Preset::Sentences, &many, [0.9, 0.05, 0.05]);
    assert!(why.contains("many-3 cannot be cut for the valid split: it has no line ends"), "{why}");
    let (why, hint) = fails(Preset::Documents, &[tiny], all);
    assert!(why.contains("the valid split gets no byte") && hint.contains("larger fraction"), "{why}");
    let (why, hint) = fails(Preset::Jsonl, &[record], all);
    assert!(
        why.contains("the valid split holds no text: no record") && hint.contains("larger fraction"),
        "{why}"
    );
}

/// Remembers what it was told.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl BuildObserver for Notes {
    fn note(&self, message: &str) {
        self.0.lock().unwrap().push(message.into());
    }
}

#[test]
fn empty_files_among_the_inputs_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let text = write(folder.path(), "text", "a b\n");
    let empty = [
        write(folder.path(), "1-nothing", ""),
        write(folder.path(), "2-packed.gz", gzip("")),
        write(folder.path(), "3-marked", MARK),
        write(folder.path(), "4-packed.zst", zstd::encode_all(&b""[..], 1).unwrap()),
    ];
    let told = |inputs: &[&PathBuf], split| {
        let (notes, output) = (Notes::default(), folder.path().join("corpus"));
        let train = inputs.iter().map(|path| path.to_path_buf()).collect();
        let options =
            BuildOptions { train, split, ..options(Preset::Documents, TokenizerKind::Char, &text, &output) };
        let info = build(&options, &notes).unwrap();
        assert_eq!(info.splits[&Split::Train].documents, 1);
        fs::remove_dir_all(output).unwrap();
        notes.0.into_inner().unwrap()
    };
    assert!(told(&[&text], None).is_empty());
    for file in &empty {
        let note = format!("{} is empty: nothing is taken from it", file.display());
        assert_eq!(told(&[file, &text], None), [&*note]);
        assert_eq!(told(&[&text, file], Some([1.0, 0.0, 0.0])), [&*note]);
    }
    let all = told(&[&text, &empty[1], &empty[0], &empty[3]], None);
    let note = format!("{} and 2 other files are empty: nothing is taken from them", empty[0].display());
    assert_eq!(all, [note]);

    let notes = Notes::default();
    let training = TrainingText::new(Preset::Documents, vec![text, empty[2].clone()]);
    train_tokenizer(&training, &TrainOptions::new(TokenizerKind::Char), 1, &notes).unwrap();
    assert!(notes.0.into_inner().unwrap()[0].contains("3-marked is empty"));
}

#[test]
fn a_bad_line_is_named_by_its_number_in_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let good = "{\"text\": \"a b\"}\n";
    let first = write(folder.path(), "1.jsonl", good.repeat(3));
    // Beyond the first chunk, behind blank lines.
    let long = good.repeat(80_000) + "\n\r\n";
    assert!(long.len() > 1 << 20);
    let fails = |name: &str, content: &[u8]| {
        let second = write(folder.path(), name, content);
        let output = folder.path().join("corpus");
        let mut options = options(Preset::Jsonl, TokenizerKind::Char, &first, &output);
        options.train.push(second);
        let error = build(&options, &()).unwrap_err();
        let _ = fs::remove_dir_all(&output);
        assert_eq!(error.exit_code(), 65, "{error}");
        error
            .to_string()
            .split_once(&format!("{name}, "))
            .map(|(_, why)| why.to_owned())
            .unwrap_or_else(|| panic!("{error}"))
    };
    let why = fails("2.jsonl", &[long.as_bytes(), b"{\"txt\": 1}\n"].concat());
    assert!(why.starts_with("line 80003: it is not a JSON object with a string under \"text\""), "{why}");
    let why = fails("2.jsonl.gz", &gzip([long.as_bytes(), b"{\"text\": \"\xff\"}"].concat()));
    assert_eq!(why, "line 80003: it is not UTF-8 at byte 11 of the line");
    let why = fails("3.jsonl", format!("{MARK}{good}{{\"text\": \"\\ud800\"}}").as_bytes());
    assert_eq!(why, "line 2: an escape in it is half a surrogate pair");
    let why = fails("4.jsonl", &[good.as_bytes(), b"{\"text\": \"", &vec![b'a'; 17 << 20]].concat());
    assert_eq!(why, "line 2: this line has more than 16 MiB");
}

/// A text that a foreign tokenizer has no tokens for.
#[test]
fn a_text_that_cannot_be_encoded_is_named_by_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let json = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": {"a": 0, "</s>": 1}, "unk_token": "<unk>"}}"#;
    let tokenizer = Tokenizer::import(&write(folder.path(), "tokenizer.json", json)).unwrap();
    for (preset, text) in [
        (Preset::Sentences, "a\n\na a\na b\na\n"),
        (Preset::Jsonl, "{\"text\": \"a\"}\n\n\n{\"text\": \"a\\nb\"}\n"),
        (Preset::Xlnet, "a\n\na a\na b\na\n"),
    ] {
        let first = write(
            folder.path(),
            "first",
            if preset == Preset::Jsonl { "{\"text\": \"a\"}\n" } else { "a\na\n" },
        );
        let options = BuildOptions {
            tokenizer: TokenizerChoice::Given(tokenizer.clone()),
            no_eod: preset == Preset::Xlnet,
            invalid_utf8: InvalidUtf8::Fail,
            ..BuildOptions::new(
                preset,
                vec![first, write(folder.path(), "text", text)],
                folder.path().join("corpus"),
            )
        };
        let error = build(&options, &()).unwrap_err().to_string();
        assert!(
            error.contains("text, line 4: the tokenizer cannot encode the text that begins here"),
            "{error}"
        );
    }
}
