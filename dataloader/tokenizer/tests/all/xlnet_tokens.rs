//! XLNet's ids: those of its reference, with goldens made by the SentencePiece library and fresh ones where the public
//! Python packages are installed.

use crate::scratch;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use scratch::peer_python;
use segue_skip::shared_data;
use segue_tokenizer::{Tokenizer, XlnetNormalization, detokenize};
use serde::Deserialize;
use serde_json::{Value, json};

/// A line of `fixtures/xlnet_ids.json`, which `tests/peers/xlnet_tokens.py --golden` fills in.
#[derive(Deserialize)]
struct Golden {
    text: String,
    cased: Vec<u32>,
    uncased: Vec<u32>,
}

fn goldens() -> Vec<Golden> {
    serde_json::from_str(include_str!("../fixtures/xlnet_ids.json")).unwrap()
}

fn xlnet(model: &Path, lower_case: bool) -> Tokenizer {
    Tokenizer::import_xlnet(model, XlnetNormalization { lower_case, ..XlnetNormalization::default() })
        .unwrap()
}

fn encoded(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    let mut ids = Vec::new();
    tokenizer.encode(text, &mut ids);
    ids
}

/// Row X1.
#[test]
fn special_ids_are_fixed_and_ids_are_those_of_the_reference() {
    let Some(model) = shared_data("xlnet_spiece/spiece.model") else { return };
    let (cased, uncased) = (xlnet(&model, false), xlnet(&model, true));
    let names = ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"];
    for (id, name) in names.into_iter().enumerate() {
        assert_eq!(cased.token_id(name), Some(id as u32), "{name}");
    }
    for golden in goldens() {
        assert_eq!(encoded(&cased, &golden.text), golden.cased, "{:?}", golden.text);
        assert_eq!(encoded(&uncased, &golden.text), golden.uncased, "{:?}", golden.text);
    }
}

/// Row X1.
#[test]
fn text_comes_back_with_single_spaces() {
    let Some(model) = shared_data("xlnet_spiece/spiece.model") else { return };
    let Some(text) = shared_data("wikitext-2/wiki.test.tokens") else { return };
    let tokenizer = xlnet(&model, false);
    let text = fs::read_to_string(text).unwrap();
    let mut checked = 0;
    for line in text.lines().filter(|line| line.is_ascii() && !line.contains("''") && !line.contains("``")) {
        let line = detokenize(line);
        let ids = encoded(&tokenizer, &line);
        if !ids.contains(&0) {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            assert_eq!(tokenizer.decode(&ids), words.join(" "));
            checked += 1;
        }
    }
    assert!(checked > 1000, "{checked}");
}

#[test]
fn the_steps_around_the_model_are_saved_and_part_of_the_fingerprint() {
    let Some(model) = shared_data("xlnet_spiece/spiece.model") else { return };
    let plain = Tokenizer::import(&model).unwrap();
    let mut fingerprints = vec![plain.fingerprint()];
    for lower_case in [false, true] {
        for keep_accents in [false, true] {
            let normalization = XlnetNormalization { lower_case, keep_accents, keep_spaces: keep_accents };
            let tokenizer = Tokenizer::import_xlnet(&model, normalization).unwrap();
            let folder = tempfile::tempdir().unwrap();
            tokenizer.save(folder.path()).unwrap();
            let loaded = Tokenizer::load(folder.path()).unwrap();
            assert_eq!(loaded.fingerprint(), tokenizer.fingerprint());
            assert_eq!(encoded(&loaded, "Café  2,000,"), encoded(&tokenizer, "Café  2,000,"));
            for info in tokenizer.file_infos() {
                let content = fs::read(folder.path().join(&info.name)).unwrap();
                assert_eq!(blake3::hash(&content).to_hex().as_str(), info.blake3, "{}", info.name);
            }
            fingerprints.push(tokenizer.fingerprint());
        }
    }
    fingerprints.sort();
    fingerprints.dedup();
    assert_eq!(fingerprints.len(), 5);
}

#[test]
fn a_folder_that_says_xlnet_is_read_as_one() {
    let Some(model) = shared_data("xlnet_spiece/spiece.model") else { return };
    let loaded = |files: &[(&str, Value)]| {
        let folder = tempfile::tempdir().unwrap();
        fs::copy(&model, folder.path().join("spiece.model")).unwrap();
        for (name, content) in files {
            fs::write(folder.path().join(name), content.to_string()).unwrap();
        }
        Tokenizer::load(folder.path())
    };
    let class = |class: &str, lower: Value| {
        loaded(&[("tokenizer_config.json", json!({ "tokenizer_class": class, "do_lower_case": lower }))])
    };
    let (plain, cased, uncased) =
        (Tokenizer::import(&model).unwrap(), xlnet(&model, false), xlnet(&model, true));
    for (found, expected) in [
        (loaded(&[]), &plain),
        (class("AlbertTokenizer", json!(true)), &plain),
        (class("XLNetTokenizer", json!(false)), &cased),
        (class("XLNetTokenizerFast", json!(true)), &uncased),
        (class("XLNetTokenizer", Value::Null), &cased),
        (loaded(&[("config.json", json!({ "model_type": "xlnet" }))]), &cased),
    ] {
        assert_eq!(found.unwrap().fingerprint(), expected.fingerprint());
    }
    let error = class("XLNetTokenizer", json!("yes")).unwrap_err();
    assert!(error.exit_code() == 65 && error.to_string().contains("do_lower_case"), "{error}");
}

/// One field of a protocol buffer message.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, content.len() as u8], content].concat()
}

/// A model whose best piece for a number keeps its comma.
fn model_with_numbers(folder: &Path) -> PathBuf {
    let pieces = [
        ("<unk>", 0.0, 2u8),
        (",", -4.0, 1),
        ("▁", -3.0, 1),
        ("▁20,", -1.0, 1),
        ("7,", -1.0, 1),
        ("▁20", -5.0, 1),
        ("▁7", -2.0, 1),
        ("7", -6.0, 1),
        ("20", -6.0, 1),
        ("x", -2.0, 1),
    ];
    let listed = pieces.map(|(text, score, kind)| {
        let score = [&[0x15], f32::to_le_bytes(score).as_slice()].concat();
        field(1, &[field(1, text.as_bytes()), score, vec![0x18, kind]].concat())
    });
    let path = folder.join("numbers.model");
    fs::write(&path, listed.concat()).unwrap();
    path
}

#[test]
fn a_number_keeps_its_leading_space_and_its_comma_stands_alone() {
    let folder = tempfile::tempdir().unwrap();
    let model = model_with_numbers(folder.path());
    let pieces = |tokenizer: &Tokenizer, text: &str| -> Vec<String> {
        encoded(tokenizer, text).iter().map(|id| tokenizer.token(*id).unwrap()).collect()
    };
    let (plain, xlnet) = (Tokenizer::import(&model).unwrap(), xlnet(&model, false));
    assert_eq!(pieces(&plain, "20, x7,"), ["▁20,", "▁", "x", "7,"]);
    // "▁20" begins a word and stays; of "▁7", which the model makes of a lone 7, only the 7 is kept.
    assert_eq!(pieces(&xlnet, "20, x7,"), ["▁20", ",", "▁", "x", "7", ","]);
}

#[test]
fn ids_equal_those_of_the_reference_and_of_auto_tokenizer() {
    ids_are_equal("base");
}

/// transformers 4.33.3 reads the same folder.
#[test]
fn ids_equal_those_of_an_earlier_auto_tokenizer() {
    ids_are_equal("transfoxl");
}

/// The lines of WikiText-2's test split with names for unknown words, every other one as people write it, and what the goldens have.
fn ids_are_equal(peers: &str) {
    let Some(python) = peer_python(peers) else { return };
    let Some(model) = shared_data("xlnet_spiece/spiece.model") else { return };
    let Some(text) = shared_data("wikitext-2/wiki.test.tokens") else { return };
    let text = fs::read_to_string(text).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for lower_case in [false, true] {
        let tokenizer = xlnet(&model, lower_case);
        tokenizer.save(folder.path()).unwrap();
        let goldens = goldens();
        let nasty = goldens.iter().map(|golden| golden.text.clone());
        let written = text.lines().filter(|line| !line.trim().is_empty());
        let lines = written.map(|line| line.replace("<unk>", "Name")).enumerate();
        let lines = lines.map(|(number, line)| if number % 2 == 0 { line } else { detokenize(&line) });
        let lines: Vec<Value> = lines
            .chain(nasty)
            .map(|line| {
                // Special tokens and characters that Python's JSON or tokenizers reads otherwise are not ordinary.
                let ordinary = !line.contains('<') && !line.contains('\0');
                json!({ "text": line, "ids": encoded(&tokenizer, &line), "ordinary": ordinary })
            })
            .collect();
        fs::write(folder.path().join("config.json"), r#"{"model_type": "xlnet"}"#).unwrap();
        let cases = folder.path().join("cases.json");
        let description = json!({ "folder": folder.path(), "lower_case": lower_case, "lines": lines });
        fs::write(&cases, description.to_string()).unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/peers/xlnet_tokens.py");
        let output = Command::new(&python).arg(script).arg(&cases).output().unwrap();
        println!("{}", String::from_utf8_lossy(&output.stdout).trim());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(found["pair_segments"], json!([0, 0, 1, 1, 1, 2]));
        assert_eq!(found["special"], json!([4, 3, 5, 6, "left"]));
    }
}
