//! The files of the tokenizer.

use segue_tokenizer::Tokenizer;

use super::*;

const FILES: [&str; 3] = ["spiece.model", "tokenizer.json", "tokenizer_config.json"];
const TEXT: &str = "The café's \"1,000\" doors, 12, opened.";

fn ids(folder: &Path) -> Vec<u32> {
    let mut ids = Vec::new();
    Tokenizer::load(folder).unwrap().encode(TEXT, &mut ids);
    ids
}

#[test]
fn the_files_of_the_tokenizer_come_along_from_every_source() {
    let pieces = Path::new(SHARED).join("data/xlnet_spiece/spiece.model");
    if !pieces.exists() {
        segue_skip::skip(segue_skip::Need::Fixtures, format!("no reference files at {}", pieces.display()));
        return;
    }
    let tensorflow = bundle(true, 3, numbered(shapes(true, 32_000, 3)));
    fs::copy(&pieces, tensorflow.path().join("spiece.model")).unwrap();
    let (_first, folder, _) = to(Target::HuggingFace, tensorflow.path()).unwrap();
    let expected = ids(&folder);
    for name in FILES {
        assert!(folder.join(name).is_file(), "{name}");
    }
    // An accent is lost and quotation marks are not, which is XLNet's way and not that of SentencePiece alone.
    let mut plain = Vec::new();
    Tokenizer::import(&pieces).unwrap().encode(TEXT, &mut plain);
    assert_ne!(plain, expected);
    // A folder of Hugging Face's with the model alone, one with its own rendering alone, and one of this program's.
    let mut keep = vec!["spiece.model", "tokenizer_config.json"];
    for _ in 0..2 {
        let theirs = tempfile::tempdir().unwrap();
        for name in ["config.json", "model.safetensors"].iter().chain(&keep) {
            fs::copy(folder.join(name), theirs.path().join(name)).unwrap();
        }
        let (_second, again, _) = to(Target::HuggingFace, theirs.path()).unwrap();
        for name in &keep {
            assert!(fs::read(again.join(name)).unwrap() == fs::read(folder.join(name)).unwrap(), "{name}");
        }
        keep = vec!["tokenizer.json", "tokenizer_config.json"];
    }
    let (_third, again, _) = to(Target::HuggingFace, &folder).unwrap();
    assert_eq!(ids(&again), expected);
    // Configurations of 2019 do not say which model it is.
    let old = tempfile::tempdir().unwrap();
    for name in ["model.safetensors", "spiece.model"] {
        fs::copy(folder.join(name), old.path().join(name)).unwrap();
    }
    let mut config = json_of(&folder.join("config.json"));
    config.as_object_mut().unwrap().remove("model_type");
    fs::write(old.path().join("config.json"), config.to_string()).unwrap();
    let (_old, again, _) = to(Target::HuggingFace, old.path()).unwrap();
    assert_eq!(ids(&again), expected);
    // The checkpoint that goes back has the model, too.
    let (_fourth, back, _) = to(Target::TensorFlow, &folder).unwrap();
    assert!(fs::read(back.join("spiece.model")).unwrap() == fs::read(&pieces).unwrap());
    // As does a vocabulary that is named.
    fs::remove_file(tensorflow.path().join("spiece.model")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let named = ConvertOptions { vocabulary: Some(pieces), ..options(Target::HuggingFace) };
    convert(tensorflow.path(), &dir.path().join("m"), &named, |_, _| {}).unwrap();
    assert_eq!(ids(&dir.path().join("m")), expected);
}

/// A folder that transformers 4.33.3 has saved with two tokens more than its `spiece.model` has.
#[test]
fn added_tokens_come_along_and_rows_that_lose_theirs_are_told_of() {
    let source = Path::new(SHARED).join("cases/bug_reports_3/h-added-tokens/xlnet");
    if !source.exists() {
        segue_skip::skip(segue_skip::Need::Fixtures, format!("no reference files at {}", source.display()));
        return;
    }
    let (_first, folder, made) = to(Target::HuggingFace, &source).unwrap();
    let tokenizer = Tokenizer::load(&folder).unwrap();
    let mut ids = Vec::new();
    tokenizer.encode("pay <cur> now", &mut ids);
    assert_eq!((ids, tokenizer.vocab_size()), (vec![40, 71, 73, 72], 75));
    assert!(
        made.report.notes.iter().any(|note| note.contains("`<cur>` 73, `<unit>` 74")),
        "{:?}",
        made.report.notes
    );
    for name in ["added_tokens.json", "special_tokens_map.json", "spiece.model"] {
        assert!(fs::read(folder.join(name)).unwrap() == fs::read(source.join(name)).unwrap(), "{name}");
    }
    let bare = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors", "spiece.model"] {
        fs::copy(source.join(name), bare.path().join(name)).unwrap();
    }
    let (_second, _, made) = to(Target::HuggingFace, bare.path()).unwrap();
    assert!(made.report.notes.iter().any(|note| note.contains("ids 73 to 74")), "{:?}", made.report.notes);
    // More tokens than rows have no use.
    fs::write(bare.path().join("added_tokens.json"), r#"{"<cur>": 73, "<unit>": 74, "<x>": 75}"#).unwrap();
    let (_third, _, made) = to(Target::HuggingFace, bare.path()).unwrap();
    let problem = made.report.vocabulary["problem"].as_str().unwrap_or_default().to_string();
    assert!(problem.contains("76") && problem.contains("`<x>` 75"), "{problem}");
}
