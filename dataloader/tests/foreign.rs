//! Files of other programs: what they hold is read, nothing in them is run, and damage is an error.

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use segue_dataloader::foreign::{Bundle, Kind, Pickle, SharedBytes, TorchFile, write_bundle};
use segue_dataloader::{Tokenizer, TokenizerKind};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/foreign").join(name)
}

fn torch(bytes: &[u8]) -> Result<TorchFile, String> {
    TorchFile::from_bytes(&bytes.to_vec().into())
}

/// The words of the fixtures, by their rule: see tests/peers/make_foreign_checkpoints.py.
fn words() -> Vec<String> {
    let invented = (0..38).map(|i| format!("w{}é", 7 * i % 40));
    ["<eos>", "<unk>"].map(String::from).into_iter().chain(invented).collect()
}

#[test]
fn a_hostile_pickle_runs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let victim = dir.path().join("owned");
    let command = format!("touch {}", victim.display());
    let old = format!("cposix\nsystem\n(S'{command}'\ntR.");
    let mut new = b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c".to_vec();
    new.push(command.len() as u8);
    new.extend(command.as_bytes());
    new.extend(b"\x85R.");
    for bytes in [old.into_bytes(), new] {
        let file = torch(&bytes).unwrap();
        // The call is data.
        assert_eq!(file.root().class(), Some(("posix", "system")));
        let argument = file.root().args().and_then(|args| args.elements()?.next()?.text());
        assert_eq!(argument, Some(command.as_str()));
        assert!(file.tensors(file.root()).unwrap().is_empty());
        let path = dir.path().join("vocab.pkl");
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(Tokenizer::import(&path).unwrap_err().exit_code(), 65);
    }
    assert!(!victim.exists());
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

#[test]
fn corpus_info_leads_to_the_cache_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("corpus-info.json"), "{}").unwrap();
    std::fs::copy(fixture("vocabularies/protocol2.pkl"), dir.path().join("cache.pkl")).unwrap();
    assert_eq!(Tokenizer::import(&dir.path().join("corpus-info.json")).unwrap().vocab_size(), 40);
}

#[test]
fn values_of_a_pickle_are_what_python_pickled() {
    // pickle.dumps([None, True, -1, 2**70, 1.5, b"x", "é", (1,), {2}, {"k": 3}], protocol=4)
    let bytes = b"\x80\x04\x95<\x00\x00\x00\x00\x00\x00\x00]\x94(N\x88J\xff\xff\xff\xff\x8a\t\x00\x00\x00\x00\x00\
                  \x00\x00\x00@G?\xf8\x00\x00\x00\x00\x00\x00C\x01x\x94\x8c\x02\xc3\xa9\x94K\x01\x85\x94\x8f\x94(\
                  K\x02\x90}\x94\x8c\x01k\x94K\x03se.";
    let pickle = Pickle::parse(&bytes.to_vec().into()).unwrap();
    let kinds: Vec<Kind> = pickle.root().elements().unwrap().map(|value| value.kind()).collect();
    let big = [0, 0, 0, 0, 0, 0, 0, 0, 64];
    let expected = [
        Kind::None,
        Kind::Bool(true),
        Kind::Int(-1),
        Kind::Big(&big),
        Kind::Float(1.5),
        Kind::Bytes(b"x"),
        Kind::Str("é"),
        Kind::Tuple,
        Kind::Set,
        Kind::Dict,
    ];
    assert_eq!(kinds, expected);
    assert_eq!(pickle.root().elements().unwrap().last().unwrap().get("k").unwrap().int(), Some(3));
}

#[test]
fn depth_cycles_and_repetition_cost_nothing() {
    // A million tuples inside each other.
    let mut deep = b"\x80\x02)".to_vec();
    deep.extend(std::iter::repeat_n(0x85, 1_000_000));
    deep.push(b'.');
    let file = torch(&deep).unwrap();
    assert!(file.tensors(file.root()).err().unwrap().contains("deeper"));
    // A list that holds itself.
    let file = torch(b"\x80\x02]q\x00h\x00a.").unwrap();
    assert!(file.tensors(file.root()).unwrap().is_empty());
    // Lists of ten times the list before: 10^30 values, written out.
    let mut laughs = b"\x80\x02]q\x00".to_vec();
    for level in 1..=30u8 {
        laughs.extend(b"](");
        for _ in 0..10 {
            laughs.extend([b'h', level - 1]);
        }
        laughs.extend([b'e', b'q', level]);
    }
    laughs.push(b'.');
    let file = torch(&laughs).unwrap();
    assert!(file.tensors(file.root()).err().unwrap().contains("more than"));
}

#[test]
fn announced_sizes_are_not_believed() {
    for bytes in [
        &b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f."[..],
        b"X\xff\xff\xff\xff",
        b"T\xff\xff\xff\xff",
        b"\x8b\xff\xff\xff\x7f",
    ] {
        assert!(torch(bytes).is_err());
    }
}

#[test]
fn truncated_files_are_refused() {
    for name in ["kimiyoung/model.pt", "kimiyoung/characters.pt", "hugging_face/vocab.bin"] {
        let bytes = std::fs::read(fixture(name)).unwrap();
        for keep in (0..bytes.len()).step_by(97).chain([bytes.len() - 1]) {
            assert!(torch(&bytes[..keep]).is_err(), "{name} cut to {keep}");
        }
    }
}

#[test]
fn missing_shards_and_folders_are_named() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(Bundle::open(dir.path()).err().unwrap().exit_code(), 66);
    write_bundle(dir.path(), "m", Vec::new()).unwrap();
    assert!(Bundle::open(dir.path()).unwrap().entries().is_empty());
    std::fs::write(dir.path().join("m.index"), b"no table").unwrap();
    assert_eq!(Bundle::open(dir.path()).err().unwrap().exit_code(), 65);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(file) = torch(&bytes) {
            let _ = file.tensors(file.root());
        }
        let _ = Bundle::from_bytes(&bytes, vec![SharedBytes::from(Vec::new())]);
    }

    #[test]
    fn any_damage_is_read_or_refused(at in any::<proptest::sample::Index>(), byte in any::<u8>(), which in 0usize..3) {
        let name = ["kimiyoung/model.pt", "nvidia/checkpoint_last.pt", "vocabularies/protocol0.pkl"][which];
        let mut bytes = std::fs::read(fixture(name)).unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(file) = torch(&bytes)
            && let Ok(tensors) = file.tensors(file.root())
        {
            tensors.iter().for_each(|named| drop(named.tensor.to_bytes()));
        }
    }
}
