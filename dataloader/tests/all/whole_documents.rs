//! A document has the ids that its tokenizer gives the whole of it, however long it is and whatever the tokenizer does to
//! line breaks, spaces and the ends of a text.

use crate::scratch;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use proptest::prelude::*;
use proptest::sample::select;
use scratch::text::pieces::{CONTROL, Model, NORMAL, UNKNOWN, UNUSED, USER_DEFINED};
use scratch::text::{in_workspace, peer_python};
use scratch::tokens_of;
use segue_dataloader::{BuildOptions, Corpus, Preset, Split, TokenizerChoice, build};
use segue_tokenizer::{Tokenizer, XlnetNormalization};
use serde_json::{Value, json};

/// The ids of a corpus of some documents, of which each ends in the tokenizer's end of sentence; and its sentences.
fn corpus_ids(tokenizer: &Tokenizer, preset: Preset, documents: &[&str]) -> (Vec<u32>, Vec<u64>) {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("input");
    write(&input, preset, documents);
    built_ids(tokenizer, preset, input)
}

fn built_ids(tokenizer: &Tokenizer, preset: Preset, input: PathBuf) -> (Vec<u32>, Vec<u64>) {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("corpus");
    let options = BuildOptions {
        tokenizer: TokenizerChoice::Given(tokenizer.clone()),
        workers: 1,
        ..BuildOptions::new(preset, vec![input], output.clone())
    };
    build(&options, &()).unwrap();
    let sentences = Corpus::open(&output).unwrap().sentences(Split::Train).unwrap();
    let sentences = (0..sentences.len()).map(|i| sentences.get(i).unwrap().unwrap()).collect();
    (tokens_of(&output, Split::Train).into_iter().map(|id| id as u32).collect(), sentences)
}

fn write(input: &Path, preset: Preset, documents: &[&str]) {
    let record = |text: &&str| json!({ "text": text }).to_string();
    match preset {
        Preset::Jsonl => {
            return fs::write(input, documents.iter().map(record).collect::<Vec<_>>().join("\n")).unwrap();
        }
        Preset::Sentences => return fs::write(input, documents.join("\n")).unwrap(),
        _ => {}
    }
    fs::create_dir(input).unwrap();
    for (number, text) in documents.iter().enumerate() {
        fs::write(input.join(format!("{number:03}")), text).unwrap();
    }
}

/// A `tokenizer.json` of bytes as blanks, letters and pieces with `▁`, with some of its parts.
fn description(parts: Value) -> Value {
    let printable = ('!'..='~').chain(['Ġ', 'Ċ', '▁', '\n', ' ']);
    let pieces = printable.map(String::from).chain(["▁a", "▁w", "Ġa", "Ġw", "▁▁", "ĊĠ"].map(String::from));
    let listed: Vec<String> = ["<eos>", "<unk>"].map(String::from).into_iter().chain(pieces).collect();
    let vocabulary: serde_json::Map<_, _> = listed.into_iter().zip((0..).map(Value::from)).collect();
    let mut whole = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null,
        "added_tokens": [{
            "id": 0, "content": "<eos>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            "special": true,
        }],
        "post_processor": null, "decoder": null,
        "model": { "type": "BPE", "vocab": vocabulary, "unk_token": "<unk>",
                   "merges": ["▁ a", "▁ w", "Ġ a", "Ġ w", "▁ ▁", "Ċ Ġ"] },
    });
    whole.as_object_mut().unwrap().extend(parts.as_object().unwrap().clone());
    whole
}

fn import(description: &Value) -> (Tokenizer, tokenizers::Tokenizer) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    fs::write(&path, description.to_string()).unwrap();
    (Tokenizer::import(&path).unwrap(), description.to_string().parse().unwrap())
}

/// Ids of the documents by the `tokenizers` crate.
fn whole_ids(theirs: &tokenizers::Tokenizer, eos: u32, documents: &[&str]) -> Vec<u32> {
    let ids = |text: &&str| [theirs.encode_fast(*text, false).unwrap().get_ids(), &[eos]].concat();
    documents.iter().filter(|text| !text.is_empty()).flat_map(ids).collect()
}

#[test]
fn a_document_of_more_than_a_mebibyte_has_the_ids_of_the_whole() {
    let byte_level = |prefix: bool| json!({ "type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": true, "use_regex": true });
    let metaspace = |scheme: &str| json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": true });
    let llama = json!({ "type": "Sequence", "normalizers": [
        { "type": "Prepend", "prepend": "▁" },
        { "type": "Replace", "pattern": { "String": " " }, "content": "▁" },
    ]});
    let lines = "a line of words that is not long\n\n  and another.\n".repeat(23_000);
    let unbroken = "x".repeat(1_100_000) + " word\nline";
    let within_line = "a w ".repeat(270_000) + &"x".repeat(100_000);
    assert!([&lines, &unbroken, &within_line].iter().all(|text| text.len() > 1 << 20));
    let check = |name, preset, text: &String, parts: &Value| {
        let (ours, theirs) = import(&description(parts.clone()));
        let documents = ["short", text, "a short"];
        let (found, _) = corpus_ids(&ours, preset, &documents);
        assert!(found == whole_ids(&theirs, 0, &documents), "{name} with {preset}");
    };
    let (plain, prefixed) =
        (json!({ "pre_tokenizer": byte_level(false) }), json!({ "pre_tokenizer": byte_level(true) }));
    check("prefix space", Preset::Documents, &lines, &prefixed);
    check("prefix space", Preset::Jsonl, &lines, &prefixed);
    check("metaspace", Preset::Documents, &lines, &json!({ "pre_tokenizer": metaspace("always") }));
    check("prepended", Preset::Documents, &lines, &json!({ "normalizer": llama }));
    check("plain", Preset::Documents, &unbroken, &plain);
    // A line is what is encoded as a whole there.
    check("prefix space", Preset::Sentences, &within_line, &prefixed);
}

/// A token of a line's beginning may begin with the line break before.
#[test]
fn a_line_begins_with_the_token_that_holds_its_first_character() {
    let metaspace =
        json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true });
    let one_line = json!({ "type": "Replace", "pattern": { "String": "\n" }, "content": " " });
    let (tokenizer, _) = import(&description(json!({ "normalizer": one_line, "pre_tokenizer": metaspace })));
    let (ids, sentences) = corpus_ids(&tokenizer, Preset::Jsonl, &["as\nat\n\na", "a"]);
    assert_eq!((ids.len(), sentences), (9, vec![0, 2, 5, 7]));

    let spaced = [
        ("<unk>", 0.0, UNKNOWN),
        ("</s>", 0.0, CONTROL),
        ("▁a", -1.0, NORMAL),
        ("s", -1.0, NORMAL),
        ("▁", -2.0, NORMAL),
        ("b", -9.0, NORMAL),
    ];
    let with = |change: &dyn Fn(&mut Model), text: &str| {
        let mut model = Model::of(&spaced);
        change(&mut model);
        let (ids, sentences) = corpus_ids(&model.import(), Preset::Jsonl, &[text, "s"]);
        (ids, sentences)
    };
    // A space symbol that is a token of its own belongs to the word behind it.
    assert_eq!(with(&|_| {}, "as b"), (vec![2, 3, 4, 5, 1, 4, 3, 1], vec![0, 5]));
    let keeps = |model: &mut Model| model.add_dummy_prefix = false;
    assert_eq!(with(&keeps, "s\n b\nb"), (vec![3, 0, 4, 5, 0, 5, 1, 3, 1], vec![0, 2, 5, 7]));
    let suffix = |model: &mut Model| model.treat_whitespace_as_suffix = true;
    assert_eq!(with(&suffix, "s\nb"), (vec![3, 0, 5, 4, 1, 3, 4, 1], vec![0, 2, 5]));
}

/// Models of few letters, so that many segmentations are equally good.
fn models() -> impl Strategy<Value = Model> {
    let letters = prop::collection::vec(select(vec!["a", "b", "▁", "\n", "c"]), 1..4);
    let score = select(vec![-1.0f32, -1.5, -2.0, -3.25, -4.1]);
    let kind = select(vec![NORMAL, NORMAL, NORMAL, USER_DEFINED, UNUSED]);
    let pieces = prop::collection::vec((letters.prop_map(|letters| letters.concat()), score, kind), 1..14);
    (pieces, any::<[bool; 4]>()).prop_map(|(mut pieces, [prefix, remove, escape, suffix])| {
        pieces.sort_by(|left, right| left.0.cmp(&right.0));
        pieces.dedup_by(|left, right| left.0 == right.0);
        // Sums are rounded where there are symbols of several blanks; the package alone tells how.
        let of_blanks = pieces.iter_mut().filter(|piece| piece.2 == USER_DEFINED && piece.0.contains("▁▁"));
        of_blanks.for_each(|piece| piece.2 = NORMAL);
        let special = [("<unk>", 0.0, UNKNOWN), ("</s>", 0.0, CONTROL)];
        let mut model = Model::of(&special);
        model.pieces.extend(pieces);
        Model {
            add_dummy_prefix: prefix,
            remove_extra_whitespaces: remove,
            escape_whitespaces: escape,
            treat_whitespace_as_suffix: suffix,
            ..model
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn documents_have_the_ids_of_the_best_segmentation_of_the_whole(
        model in models(), documents in prop::collection::vec("([abc \n]|  |\n\n|▁|\r\n|x){0,40}", 1..12),
        long in "([abc \n]|▁){3000}",
    ) {
        let documents: Vec<&str> = documents.iter().map(String::as_str).chain(["a", &long]).collect();
        let ids = |text: &&str| [model.ids(text), vec![1]].concat();
        let expected: Vec<u32> = documents.iter().filter(|text| !text.is_empty()).flat_map(ids).collect();
        let (found, sentences) = corpus_ids(&model.import(), Preset::Jsonl, &documents);
        prop_assert_eq!(found, expected, "{:?}", documents);
        prop_assert!(sentences.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", sentences);
    }

    #[test]
    fn documents_have_the_ids_that_the_tokenizers_crate_gives_the_whole(
        step in 0..6, scheme in select(vec!["always", "first", "never"]),
        documents in prop::collection::vec("([aw \n]|  |<eos>|▁|x){0,40}", 1..12),
    ) {
        let metaspace = json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": step % 2 == 0 });
        let normalizer = match step {
            0 | 1 => Value::Null,
            2 => json!({ "type": "Strip", "strip_left": true, "strip_right": true }),
            3 => json!({ "type": "Prepend", "prepend": "▁" }),
            4 => json!({ "type": "Replace", "pattern": { "Regex": "\\s+" }, "content": " " }),
            _ => json!({ "type": "Replace", "pattern": { "String": "\n" }, "content": "" }),
        };
        let (ours, theirs) = import(&description(json!({ "normalizer": normalizer, "pre_tokenizer": metaspace })));
        let documents: Vec<&str> = documents.iter().map(String::as_str).chain(["a"]).collect();
        let (found, _) = corpus_ids(&ours, Preset::Jsonl, &documents);
        prop_assert_eq!(found, whole_ids(&theirs, 0, &documents), "{:?}", documents);
    }
}

/// Models that the library has trained with options of all kinds, on documents full of line breaks and blanks.
#[test]
fn documents_have_the_ids_that_the_sentencepiece_library_gives_the_whole() {
    let Some(python) = peer_python("base") else { return };
    let folder = tempfile::tempdir().unwrap();
    let script = in_workspace("tests/peers/make_piece_cases.py");
    let made = Command::new(&python).arg(script).arg(folder.path()).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let cases: Vec<PathBuf> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(cases.len(), 24);
    for case in cases {
        let tokenizer = Tokenizer::import(&case.join("spiece.model")).unwrap();
        let ids: Vec<Vec<u32>> = serde_json::from_slice(&fs::read(case.join("ids.json")).unwrap()).unwrap();
        let ends = [tokenizer.eos_id().unwrap()];
        let expected = ids.iter().map(|ids| [ids, &ends[..]].concat()).collect::<Vec<_>>();
        let (found, _) = built_ids(&tokenizer, Preset::Jsonl, case.join("text.jsonl"));
        let mut rest = &found[..];
        for (number, expected) in expected.iter().enumerate() {
            let (document, later) = rest.split_at(expected.len().min(rest.len()));
            assert!(document == expected, "document {number} of {}", case.display());
            rest = later;
        }
        assert!(rest.is_empty());
    }
}

/// What XLNet does to text around its model it does to the document, too.
#[test]
fn a_document_for_xlnet_has_the_ids_of_the_whole() {
    let mut model = Model::of(&[("<unk>", 0.0, UNKNOWN), ("</s>", 0.0, CONTROL)]);
    for (number, piece) in ["▁", "a", "▁a", "b", "20", "0", "▁20,", "0,", ",", "\"", "▁\""].iter().enumerate()
    {
        model.pieces.push((piece.to_string(), -1.0 - number as f32 / 8.0, NORMAL));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spiece.model");
    fs::write(&path, model.file()).unwrap();
    for keep_spaces in [false, true] {
        let normalization = XlnetNormalization { keep_spaces, ..XlnetNormalization::default() };
        let tokenizer = Tokenizer::import_xlnet(&path, normalization).unwrap();
        for document in ["a\n\n''b\u{301}\n\u{301}\n ``a 20,\n0, 200,\n", "\n\na", "\u{1c}\na\n\u{301}"] {
            let mut expected = Vec::new();
            tokenizer.encode(document, &mut expected);
            expected.push(1);
            let (found, _) = corpus_ids(&tokenizer, Preset::Jsonl, &[document]);
            assert_eq!(found, expected, "{document:?}");
        }
    }
}

#[test]
fn what_cannot_be_encoded_in_parts_and_is_too_long_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("input"), folder.path().join("corpus"));
    let file = fs::File::create(&input).unwrap();
    // Zeros, which take no room on the disk.
    file.set_len(33 << 20).unwrap();
    let (tokenizer, _) = import(&description(json!({ "normalizer": { "type": "Prepend", "prepend": "▁" } })));
    for (preset, what) in [(Preset::Documents, "document"), (Preset::Sentences, "line")] {
        let options = BuildOptions {
            tokenizer: TokenizerChoice::Given(tokenizer.clone()),
            ..BuildOptions::new(preset, vec![input.clone()], output.clone())
        };
        let error = build(&options, &()).unwrap_err();
        let expected = format!(
            "line 1: this {what} cannot be encoded in parts to the same tokens, and has more than 32 MiB"
        );
        assert!(error.exit_code() == 65 && error.to_string().ends_with(&expected), "{error}");
        assert!(error.hint().unwrap().contains("--preset jsonl"));
    }
}
