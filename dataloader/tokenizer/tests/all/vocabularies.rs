//! Vocabularies that other programs have pickled.

use std::path::{Path, PathBuf};

use segue_tokenizer::{Tokenizer, TokenizerKind};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/foreign").join(name)
}

/// The words of the fixtures, by their rule: see tests/peers/make_foreign_checkpoints.py.
fn words() -> Vec<String> {
    let invented = (0..38).map(|i| format!("w{}é", 7 * i % 40));
    ["<eos>", "<unk>"].map(String::from).into_iter().chain(invented).collect()
}

#[test]
fn vocabularies_keep_their_ids_in_every_format() {
    let files = [
        "vocabularies/protocol0.pkl",
        "vocabularies/protocol2.pkl",
        "vocabularies/protocol4.pkl",
        "kimiyoung/cache.pt",
        "hugging_face/vocab.bin",
        "nvidia/checkpoint_last.pt",
    ];
    for name in files {
        let tokenizer = Tokenizer::import(&fixture(name)).unwrap();
        assert_eq!(tokenizer.kind(), TokenizerKind::Word, "{name}");
        let found: Vec<String> = (0..40).filter_map(|id| tokenizer.token(id)).collect();
        assert_eq!(found, words(), "{name}");
        assert_eq!((tokenizer.vocab_size(), tokenizer.eos_id(), tokenizer.unk_id()), (40, Some(0), Some(1)));
    }
}

#[test]
fn byte_values_in_decimal_become_a_byte_tokenizer() {
    let tokenizer = Tokenizer::import(&fixture("vocabularies/enwik8.pkl")).unwrap();
    let mut ids = Vec::new();
    tokenizer.encode_bytes(b"te \n\xff", &mut ids).unwrap();
    assert_eq!((tokenizer.kind(), ids), (TokenizerKind::Byte, vec![2, 1, 0, 3, 4]));
}

#[test]
fn specials_of_other_names_survive_saving() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vocab.pkl");
    std::fs::write(&path, "(dS'idx2sym'\n(lS'<S>'\naS'the'\naS'<UNK>'\nas.").unwrap();
    let tokenizer = Tokenizer::import(&path).unwrap();
    let folder = dir.path().join("tokenizer");
    tokenizer.save(&folder).unwrap();
    let loaded = Tokenizer::load(&folder).unwrap();
    assert_eq!(loaded.fingerprint(), tokenizer.fingerprint());
    let mut ids = Vec::new();
    loaded.encode("the cat", &mut ids);
    assert_eq!((ids, loaded.eos_id(), loaded.vocab_size()), (vec![1, 2], Some(0), 3));
}

/// `1b_word_vocab.txt`, which the reference reads as a list: unknown words are `<UNK>`, and lines stand between two `<S>`.
#[test]
fn a_list_has_the_ids_of_a_pickle_of_its_words() {
    let dir = tempfile::tempdir().unwrap();
    let (list, pickle) = (dir.path().join("1b_word_vocab.txt"), dir.path().join("vocab.pkl"));
    std::fs::write(&list, "<S> 60613836\n<UNK> 0\nthe 36286288\ncat 3\n").unwrap();
    std::fs::write(&pickle, "(dS'idx2sym'\n(lS'<S>'\naS'<UNK>'\naS'the'\naS'cat'\nas.").unwrap();
    for path in [&list, &pickle] {
        let tokenizer = Tokenizer::import(path).unwrap();
        let mut ids = Vec::new();
        tokenizer.encode("the dog", &mut ids);
        assert_eq!((ids, tokenizer.vocab_size()), (vec![2, 1], 4), "{path:?}");
        assert_eq!((tokenizer.eos_id(), tokenizer.unk_id()), (Some(0), Some(1)), "{path:?}");
    }
    // Where both names stand in a list, the usual one counts.
    std::fs::write(&list, "<S>\n<UNK>\n<unk>\nthe\n<eos>\n").unwrap();
    let both = Tokenizer::import(&list).unwrap();
    assert_eq!((both.vocab_size(), both.eos_id(), both.unk_id()), (5, Some(4), Some(2)));
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_vocabulary() {
    let dir = tempfile::tempdir().unwrap();
    let imported = |name: &str, content: &str| {
        let [plain, marked] = ["", "\u{FEFF}"].map(|mark| {
            let path = dir.path().join(name);
            std::fs::write(&path, format!("{mark}{content}")).unwrap();
            Tokenizer::import(&path).unwrap()
        });
        assert_eq!(marked.fingerprint(), plain.fingerprint(), "{name}");
        marked
    };
    let words = imported("words.txt", "<eos>\n<unk>\nthe\ncity\n");
    assert_eq!((words.vocab_size(), words.eos_id(), words.token_id("the")), (4, Some(0), Some(2)));
    let json = r#"{"version": "1.0", "added_tokens": [], "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}"#;
    imported("tokenizer.json", json);
    // What stands beside a model, too.
    std::fs::write(dir.path().join("tokenizer_config.json"), "\u{FEFF}{\"model_max_length\": 7}").unwrap();
    assert_eq!(segue_tokenizer::longest_sequence(dir.path()), Some(7));
}

/// A corpus of the programs with recurrent models, as a dict: words by first appearance, or ids alone.
#[test]
fn a_dictionary_of_a_corpus_gives_its_ids() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("corpus.pkl");
    let listed = "S'idx2word'\n(lS'the'\naS'<eos>'\naS'<unk>'\nas";
    let ids = "S'word2idx'\n(dS'<unk>'\nI2\nsS'<eos>'\nI1\nsS'the'\nI0\nss";
    for words in [listed, ids] {
        for corpus in [format!("(dS'dictionary'\n(d{words}s."), format!("(d{words}.")] {
            std::fs::write(&path, &corpus).unwrap();
            let tokenizer = Tokenizer::import(&path).unwrap_or_else(|e| panic!("{corpus}: {e}"));
            let mut ids = Vec::new();
            tokenizer.encode("the cat", &mut ids);
            assert_eq!((ids, tokenizer.eos_id(), tokenizer.vocab_size()), (vec![0, 2], Some(1), 3));
        }
    }
    // The programs' names say nothing.
    let named = dir.path().join("corpus.4a1d.data");
    std::fs::copy(fixture("vocabularies/protocol2.pkl"), &named).unwrap();
    assert_eq!(Tokenizer::import(&named).unwrap().vocab_size(), 40);
}

#[test]
fn corpus_info_leads_to_the_cache_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("corpus-info.json"), "{}").unwrap();
    std::fs::copy(fixture("vocabularies/protocol2.pkl"), dir.path().join("cache.pkl")).unwrap();
    let info = dir.path().join("corpus-info.json");
    assert_eq!(Tokenizer::import(&info).unwrap().vocab_size(), 40);
    std::fs::write(&info, r#"{"vocab_size": 40, "dataset": "wt103"}"#).unwrap();
    assert_eq!(Tokenizer::import(&info).unwrap().vocab_size(), 40);
    std::fs::write(&info, r#"{"vocab_size": 41}"#).unwrap();
    let message = Tokenizer::import(&info).unwrap_err().to_string();
    assert!(message.contains("41 words") && message.contains("has 40"), "{message}");
}

#[test]
fn a_pickle_that_calls_is_no_vocabulary_and_calls_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (victim, path) = (dir.path().join("owned"), dir.path().join("vocab.pkl"));
    std::fs::write(&path, format!("cposix\nsystem\n(S'touch {}'\ntR.", victim.display())).unwrap();
    assert_eq!(Tokenizer::import(&path).unwrap_err().exit_code(), 65);
    assert!(!victim.exists());
}

/// transformers 4.34 leaves the list of symbols of a Transformer-XL empty, and the ids by symbol whole.
#[test]
fn two_lists_of_a_vocabulary_are_one_where_one_is_empty_and_have_to_agree_where_none_is() {
    let dir = tempfile::tempdir().unwrap();
    let import = |list: &str, ids: &str| {
        let path = dir.path().join("vocab.pkl");
        std::fs::write(&path, format!("(dS'idx2sym'\n(l{list}sS'sym2idx'\n(d{ids}s.")).unwrap();
        Tokenizer::import(&path)
    };
    let list = "S'<eos>'\naS'<unk>'\naS'the'\na";
    let ids = "S'the'\nI2\nsS'<eos>'\nI0\nsS'<unk>'\nI1\ns";
    for (list, ids) in [(list, ids), ("", ids), (list, "")] {
        let tokenizer = import(list, ids).unwrap();
        assert_eq!((tokenizer.vocab_size(), tokenizer.token_id("the")), (3, Some(2)));
    }
    for (list, ids, part) in [
        (list, "S'a'\nI2\nsS'<eos>'\nI0\nsS'<unk>'\nI1\ns", "the id 2 is `the` in one and `a` in the other"),
        (list, "S'the'\nI2\nsS'<eos>'\nI0\nsS'<unk>'\nI1\nsS'a'\nI3\ns", "one has 3 symbols, the other 4"),
        (list, "S'<eos>'\nI0\nsS'<unk>'\nI1\ns", "one has 3 symbols, the other 2"),
        ("", "", "the vocabulary is empty"),
    ] {
        let message = import(list, ids).unwrap_err().to_string();
        assert!(message.contains(part), "{part}: {message}");
    }
}
