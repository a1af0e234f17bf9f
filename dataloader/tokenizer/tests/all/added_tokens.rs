//! Tokens that files beside a vocabulary add to it.

use std::fs;
use std::path::{Path, PathBuf};

use segue_skip::shared_data;
use segue_tokenizer::{CutPlaces, Tokenizer, XlnetNormalization};
use serde_json::{Value, json};
use tempfile::TempDir;

/// One field of a protocol buffer message.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, content.len() as u8], content].concat()
}

fn piece(text: &str, score: f32, kind: u8) -> Vec<u8> {
    let message =
        [field(1, text.as_bytes()), [&[0x15], score.to_le_bytes().as_slice()].concat(), vec![0x18, kind]];
    field(1, &message.concat())
}

const PIECES: [(&str, f32, u8); 13] = [
    ("<unk>", 0.0, 2),
    ("<s>", 0.0, 3),
    ("</s>", 0.0, 3),
    ("<cls>", 0.0, 3),
    ("<sep>", 0.0, 3),
    ("<pad>", 0.0, 3),
    ("<mask>", 0.0, 3),
    ("▁", -3.0, 1),
    ("a", -2.0, 1),
    ("b", -2.0, 1),
    ("▁a", -1.0, 1),
    ("<eop>", 0.0, 4),
    ("<eod>", 0.0, 3),
];
const SIZE: u32 = PIECES.len() as u32;

/// A folder of an XLNet with these files beside its pieces.
fn xlnet(files: &[(&str, Value)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let pieces: Vec<u8> = PIECES.iter().flat_map(|(text, score, kind)| piece(text, *score, *kind)).collect();
    fs::write(folder.path().join("spiece.model"), pieces).unwrap();
    write(folder.path(), &[("config.json", json!({ "model_type": "xlnet" }))]);
    write(folder.path(), files);
    folder
}

fn write(folder: &Path, files: &[(&str, Value)]) {
    for (name, value) in files {
        fs::write(folder.join(name), value.to_string()).unwrap();
    }
}

fn encode(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    let mut ids = Vec::new();
    tokenizer.encode(text, &mut ids);
    ids
}

/// A `tokenizer.json` as the package's converter makes it, with these tokens.
fn serialized(added: Value) -> Value {
    let vocabulary: Vec<Value> = PIECES.iter().map(|(text, score, _)| json!([text, score])).collect();
    let metaspace = json!({ "type": "Metaspace", "replacement": "▁", "add_prefix_space": true });
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": metaspace, "post_processor": null, "decoder": metaspace,
        "model": { "type": "Unigram", "unk_id": 0, "vocab": vocabulary },
    })
}

fn added(id: u32, content: &str) -> Value {
    json!({
        "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
        "special": false,
    })
}

/// Every layout in which transformers says that `<cur>` comes after the pieces.
fn layouts() -> Vec<Vec<(&'static str, Value)>> {
    let (config, map) = ("tokenizer_config.json", "special_tokens_map.json");
    let flags = json!({ "content": "<cur>", "lstrip": false, "rstrip": false, "normalized": false, "single_word": false });
    vec![
        vec![("added_tokens.json", json!({ "<cur>": SIZE }))],
        vec![(config, json!({ "added_tokens_decoder": { SIZE.to_string(): flags } }))],
        vec![("tokenizer.json", serialized(json!([added(SIZE, "<cur>")])))],
        vec![(map, json!({ "additional_special_tokens": ["<cur>"] }))],
        vec![(map, json!({ "additional_special_tokens": [flags] }))],
        vec![(config, json!({ "additional_special_tokens": ["<cur>"] }))],
        vec![(config, json!({ "extra_special_tokens": ["<cur>"] }))],
        vec![(config, json!({ "extra_special_tokens": { "currency_token": "<cur>" } }))],
        vec![(config, json!({ "pad_token": "<cur>", "eos_token": null }))],
        vec![(map, json!({ "pad_token": flags }))],
        // All of it said twice.
        vec![
            ("added_tokens.json", json!({ "<cur>": SIZE })),
            ("tokenizer.json", serialized(json!([added(SIZE, "<cur>")]))),
            (map, json!({ "additional_special_tokens": ["<cur>"] })),
            (config, json!({ "added_tokens_decoder": { SIZE.to_string(): flags } })),
        ],
    ]
}

/// `pay <cur> now` is `▁pay ▁ <cur> ▁now` to XLNetTokenizerFast.
#[test]
fn a_token_that_a_file_adds_to_the_pieces_is_found_in_every_layout() {
    for files in layouts() {
        let folder = xlnet(&files);
        let tokenizer = Tokenizer::load(folder.path()).unwrap();
        assert_eq!(encode(&tokenizer, "a <cur> b<sep>"), [10, 7, SIZE, 7, 9, 4], "{files:?}");
        assert_eq!(tokenizer.vocab_size(), SIZE as usize + 1);
        assert!(tokenizer.notes()[0].contains("`<cur>` 13"), "{:?}", tokenizer.notes());
        // The file alone, with what lies beside it.
        let alone =
            Tokenizer::import_xlnet(&folder.path().join("spiece.model"), XlnetNormalization::default());
        assert_eq!(encode(&alone.unwrap(), "a <cur> b"), [10, 7, SIZE, 7, 9], "{files:?}");
        // And as it is kept.
        let kept = folder.path().join("kept");
        tokenizer.save(&kept).unwrap();
        assert_eq!(encode(&Tokenizer::load(&kept).unwrap(), "a <cur> b"), [10, 7, SIZE, 7, 9]);
    }
}

#[test]
fn files_that_add_no_token_change_nothing() {
    let plain = Tokenizer::load(xlnet(&[]).path()).unwrap();
    let files = [
        ("added_tokens.json", json!({})),
        ("tokenizer.json", serialized(json!([added(3, "<cls>")]))),
        (
            "special_tokens_map.json",
            json!({ "cls_token": "<cls>", "mask_token": { "content": "<mask>", "lstrip": true } }),
        ),
        (
            "tokenizer_config.json",
            json!({ "added_tokens_decoder": { "3": { "content": "<cls>" } }, "pad_token": "<pad>" }),
        ),
    ];
    let named = Tokenizer::load(xlnet(&files).path()).unwrap();
    assert_eq!(named.fingerprint(), plain.fingerprint());
    assert!(named.notes().is_empty());
    assert_eq!(encode(&named, "a<cls>"), [10, 0]);
}

/// Files, and what is said of them.
type Refused = (&'static [&'static str], Vec<(&'static str, Value)>);

#[test]
fn files_that_disagree_on_a_token_are_refused_with_their_names() {
    let config = |id: u32, content: &str| {
        (
            "tokenizer_config.json",
            json!({ "added_tokens_decoder": { id.to_string(): { "content": content } } }),
        )
    };
    let ids = |content: &str, id: u32| ("added_tokens.json", json!({ content: id }));
    let json = |id: u32, content: &str| ("tokenizer.json", serialized(json!([added(id, content)])));
    let mut other = serialized(json!([]));
    other["model"]["vocab"][8][0] = json!("c");
    let refused: [Refused; 9] = [
        (&["added_tokens.json", "`<cur>`", "13", "14"], vec![config(14, "<cur>"), ids("<cur>", 13)]),
        (&["tokenizer.json", "`<cur>`", "13", "14"], vec![json(14, "<cur>"), ids("<cur>", 13)]),
        (&["tokenizer.json", "`<b>`", "`<cur>`", "13"], vec![json(13, "<b>"), ids("<cur>", 13)]),
        (&["added_tokens.json", "`<cur>`", "`<pad>`", "spiece.model"], vec![ids("<cur>", 5)]),
        (&["added_tokens.json", "`a`", "13", "8"], vec![ids("a", 13)]),
        (&["added_tokens.json", "`<cur>`", "80"], vec![ids("<cur>", 80)]),
        (&["tokenizer.json", "`c`", "`a`", "8"], vec![("tokenizer.json", other)]),
        (&["added_tokens.json", "`<cur>`", "\"x\""], vec![("added_tokens.json", json!({ "<cur>": "x" }))]),
        (
            &["tokenizer_config.json", "lstrip"],
            vec![("tokenizer_config.json", json!({ "mask_token": { "content": "<mask>", "lstrip": 1 } }))],
        ),
    ];
    for (parts, files) in refused {
        let error = Tokenizer::load(xlnet(&files).path()).unwrap_err();
        assert_eq!(error.exit_code(), 65);
        let message = error.to_string();
        assert!(parts.iter().all(|part| message.contains(part)), "{parts:?}: {message}");
    }
    // Pieces whose program is not known.
    let folder = xlnet(&[ids("<cur>", 13)]);
    let message = Tokenizer::import(&folder.path().join("spiece.model")).unwrap_err().to_string();
    assert!(message.contains("added_tokens.json") && message.contains("`<cur>` with the id 13"), "{message}");
}

#[test]
fn a_token_without_an_id_is_numbered_where_the_model_has_a_row_for_it() {
    let map = |rows: u32| {
        let special = json!({ "additional_special_tokens": ["<x>", "<cur>"], "sep_token": "[SEP]" });
        let config = json!({ "model_type": "xlnet", "vocab_size": rows });
        vec![
            ("special_tokens_map.json", special),
            ("config.json", config),
            ("added_tokens.json", json!({ "<cur>": 13 })),
        ]
    };
    let tokenizer = Tokenizer::load(xlnet(&map(16)).path()).unwrap();
    assert_eq!(
        ["<cur>", "[SEP]", "<x>"].map(|name| tokenizer.token_id(name)),
        [Some(13), Some(14), Some(15)]
    );
    let tokenizer = Tokenizer::load(xlnet(&map(15)).path()).unwrap();
    assert_eq!((tokenizer.token_id("[SEP]"), tokenizer.token_id("<x>")), (Some(14), None));
    let said = tokenizer.notes().last().unwrap();
    assert!(said.contains("`<x>`") && said.contains("special_tokens_map.json"), "{said}");
}

/// A folder that transformers 4.33.3 has saved, and its ids.
#[test]
fn a_folder_of_an_xlnet_with_added_tokens_has_the_ids_of_its_package() {
    let Some(folder) = shared_data("../cases/bug_reports_3/h-added-tokens/xlnet") else { return };
    let tokenizer = Tokenizer::load(&folder).unwrap();
    assert_eq!(encode(&tokenizer, "pay <cur> now"), [40, 71, 73, 72]);
    // Without the rendering of its fast class, too.
    let slow = tempfile::tempdir().unwrap();
    for name in [
        "config.json",
        "spiece.model",
        "added_tokens.json",
        "special_tokens_map.json",
        "tokenizer_config.json",
    ] {
        fs::copy(folder.join(name), slow.path().join(name)).unwrap();
    }
    assert_eq!(encode(&Tokenizer::load(slow.path()).unwrap(), "pay <cur> now"), [40, 71, 73, 72]);
}

/// A `tokenizer.json` of words with tokens of its own.
fn whole_words(added: Value) -> Value {
    let ids = json!({ "<unk>": 0, "a": 1, "b": 2 });
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": { "type": "WhitespaceSplit" }, "post_processor": null, "decoder": null,
        "model": { "type": "WordLevel", "vocab": ids, "unk_token": "<unk>" },
    })
}

#[test]
fn a_tokenizer_json_takes_tokens_from_the_files_beside_it_and_is_compared_with_them() {
    let folder = |json: Value, files: &[(&str, Value)]| {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &[("tokenizer.json", json)]);
        write(folder.path(), files);
        Tokenizer::load(folder.path())
    };
    let decoder = |id: u32| {
        let token = json!({ "content": "<cur>", "lstrip": true, "special": true });
        ("tokenizer_config.json", json!({ "added_tokens_decoder": { id.to_string(): token } }))
    };
    for json in [whole_words(json!([])), whole_words(json!([added(3, "<cur>")]))] {
        let tokenizer = folder(json, &[decoder(3)]).unwrap();
        assert_eq!(encode(&tokenizer, "a <cur>b"), [1, 3, 2]);
    }
    let untouched =
        folder(whole_words(json!([added(3, "<cur>")])), &[("added_tokens.json", json!({ "<cur>": 3 }))]);
    let alone = folder(whole_words(json!([added(3, "<cur>")])), &[]);
    assert_eq!(untouched.unwrap().fingerprint(), alone.unwrap().fingerprint());
    for (json, files) in [
        (whole_words(json!([])), vec![decoder(4)]),
        (whole_words(json!([added(4, "<cur>")])), vec![]),
        (whole_words(json!([added(2, "a")])), vec![]),
        (whole_words(json!([])), vec![("added_tokens.json", json!({ "<cur>": 1 }))]),
        (whole_words(json!([])), vec![("vocab.json", json!({ "a": 2, "b": 1 }))]),
    ] {
        let message = folder(json, &files).unwrap_err().to_string();
        assert!(message.contains("`<cur>`") || message.contains("`a`"), "{message}");
    }
}

/// A list of words under a name that tells the format.
fn words(name: &str, files: &[(&str, Value)]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    let content = match name.ends_with("txt") {
        true => "<eos>\n<unk>\nthe\ncat\n",
        false => "(dS'idx2sym'\n(lS'<eos>'\naS'<unk>'\naS'the'\naS'cat'\nas.",
    };
    fs::write(&path, content).unwrap();
    write(folder.path(), files);
    (folder, path)
}

#[test]
fn a_token_beside_a_list_of_words_is_cut_out_of_the_text_first() {
    let special = json!({ "additional_special_tokens": ["<Cur>"] });
    for name in ["vocab.txt", "vocab.pkl", "vocab.bin"] {
        let files = [
            ("added_tokens.json", json!({ "<Cur>": 4, "of it": 5 })),
            ("special_tokens_map.json", special.clone()),
        ];
        let (folder, path) = words(name, &files);
        let tokenizer = Tokenizer::import(&path).unwrap();
        let text = "the<Cur>cat of it\n<eos>of  it";
        let expected = [2, 4, 3, 5, 0, 1, 1];
        assert_eq!(encode(&tokenizer, text), expected, "{name}");
        let located = tokenizer.encode_with_offsets(text).unwrap();
        assert_eq!(
            (&located.ids[..], located.spans[1].clone(), located.spans[3].clone()),
            (&expected[..], 3..8, 12..17)
        );
        assert_eq!(tokenizer.decode(&[2, 4, 5]), "the <Cur> of it");
        let kept = folder.path().join("kept");
        tokenizer.for_sequences(None).unwrap().save(&kept).unwrap();
        let loaded = Tokenizer::load(&kept).unwrap();
        assert_eq!(loaded.fingerprint(), tokenizer.fingerprint());
        assert_eq!((encode(&loaded, text), loaded.vocab_size()), (expected.to_vec(), 6));
        // What other programs read.
        let for_others = Tokenizer::import(&kept.join("tokenizer.json")).unwrap();
        assert_eq!(encode(&for_others, text), expected);
    }
    let plain = words("vocab.txt", &[]);
    let named = words("vocab.txt", &[("special_tokens_map.json", json!({ "unk_token": "<unk>" }))]);
    let [plain, named] =
        [plain, named].map(|(_folder, path)| Tokenizer::import(&path).unwrap().fingerprint());
    assert_eq!(plain, named);
}

#[test]
fn a_text_is_not_cut_within_an_added_word() {
    for (word, places) in [("<cur>", CutPlaces::BeforeSpace), ("New York", CutPlaces::Nowhere)] {
        let (_folder, path) = words("vocab.txt", &[("added_tokens.json", json!({ word: 4 }))]);
        let tokenizer = Tokenizer::import(&path).unwrap();
        assert_eq!((encode(&tokenizer, word), tokenizer.text_cut().places), (vec![4], places));
    }
}

/// transformers does not read back what its tokenizer was saved with: files beside it count.
#[test]
fn tokens_that_a_vocabulary_was_saved_with_are_told_of_where_no_file_names_them() {
    let pickle = |added: &str| {
        let (folder, path) = words("vocab.pkl", &[]);
        let list = "S'idx2sym'\n(lS'<eos>'\naS'<unk>'\naS'the'\nas";
        fs::write(&path, format!("(d{list}S'added_tokens_encoder'\n(d{added}s.")).unwrap();
        (folder, path)
    };
    let (folder, path) = pickle("S'<cur>'\nI3\nsS'<unk>'\nI1\ns");
    let tokenizer = Tokenizer::import(&path).unwrap();
    assert_eq!((encode(&tokenizer, "<cur>"), tokenizer.vocab_size()), (vec![1], 3));
    assert!(tokenizer.notes()[0].contains("`<cur>`, 3 when"), "{:?}", tokenizer.notes());
    write(folder.path(), &[("added_tokens.json", json!({ "<cur>": 3 }))]);
    let tokenizer = Tokenizer::import(&path).unwrap();
    assert_eq!((encode(&tokenizer, "<cur>"), tokenizer.notes().len()), (vec![3], 1));
    write(folder.path(), &[("added_tokens.json", json!({ "<unit>": 3, "<cur>": 4 }))]);
    assert!(Tokenizer::import(&path).unwrap_err().to_string().contains("files beside it say 4"));
    for added in ["S'the'\nI3\ns", "S'<cur>'\nI2\ns"] {
        let message = Tokenizer::import(&pickle(added).1).unwrap_err().to_string();
        assert!(message.contains("its added tokens give"), "{message}");
    }
}

#[test]
fn a_token_that_words_or_bytes_cannot_have_is_refused() {
    let ids = |content: &str, id: u32| vec![("added_tokens.json", json!({ content: id }))];
    let single = json!({ "4": { "content": "<cur>", "single_word": true } });
    for (files, part) in [
        (ids("<cur>", 2), "`the`"),
        (ids("cat", 4), "gives it 3"),
        (ids("a\nb", 4), "a line break"),
        (vec![("tokenizer_config.json", json!({ "added_tokens_decoder": single }))], "a word of its own"),
    ] {
        let (_folder, path) = words("vocab.pkl", &files);
        let message = Tokenizer::import(&path).unwrap_err().to_string();
        assert!(message.contains(part) && message.contains(files[0].0), "{part}: {message}");
    }
    let (folder, path) = words("vocab.pkl", &ids("<cur>", 2));
    fs::write(&path, "(dS'idx2sym'\n(lS'97'\naS'98'\nas.").unwrap();
    let message = Tokenizer::import(&path).unwrap_err().to_string();
    assert!(message.contains("`<cur>` with the id 2") && message.contains("byte"), "{message}");
    drop(folder);
}
