//! Files of other programs: what they hold is read, nothing in them is run, and damage is an error.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use segue_foreign::{Bundle, Kind, Pickle, SharedBytes, TorchFile, write_bundle};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/foreign").join(name)
}

fn torch(bytes: &[u8]) -> Result<TorchFile, String> {
    TorchFile::from_bytes(&bytes.to_vec().into())
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
    }
    assert!(!victim.exists());
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
    // Half a million tuples inside each other, as Python writes them: each is noted in the memo.
    let mut deep = b"\x80\x02)".to_vec();
    (0..500_000).for_each(|_| deep.extend(b"\x85\x94"));
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
    assert!(file.tensors(file.root()).is_err());
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

/// A pickle of `count` classes of one name, which it spells out once.
fn classes_of_one_name(name: &str, count: usize) -> Vec<u8> {
    let mut bytes = b"\x80\x04X".to_vec();
    bytes.extend((name.len() as u32).to_le_bytes());
    bytes.extend(name.as_bytes());
    bytes.extend(b"\x940]("); // MEMOIZE, POP, EMPTY_LIST, MARK
    (0..count).for_each(|_| bytes.extend(b"h\x00h\x00\x93")); // module and name from the memo, STACK_GLOBAL
    bytes.extend(b"e.");
    bytes
}

#[test]
fn a_name_that_is_used_again_is_held_once() {
    // As copies these names would take 2 GB, of a file of 115 KB.
    let bytes = classes_of_one_name(&"n".repeat(1 << 16), 1 << 14);
    let pickle = Pickle::parse(&bytes.into()).unwrap();
    let mut places = std::collections::HashSet::new();
    for class in pickle.root().elements().unwrap() {
        let Kind::Global { module, name } = class.kind() else { panic!("{:?}", class.kind()) };
        assert_eq!((module.len(), name.len()), (1 << 16, 1 << 16));
        places.extend([module.as_ptr(), name.as_ptr()]);
    }
    assert_eq!(places.len(), 1);
}

#[test]
fn memory_that_is_out_of_proportion_is_refused_with_its_place() {
    // DUP, REDUCE: an object, 152 bytes, for two bytes of the file. No program writes calls without arguments.
    let mut bytes = b"\x80\x04N".to_vec();
    (0..100_000).for_each(|_| bytes.extend(b"2R"));
    bytes.push(b'.');
    let why = Pickle::parse(&bytes.into()).err().unwrap();
    assert!(why.contains("more than 64 bytes of memory for each of its own (opcode 0x52 at byte"), "{why}");
}

#[test]
fn a_text_is_told_from_a_damaged_pickle() {
    let why = |bytes: &[u8]| Pickle::parse(&bytes.to_vec().into()).err().unwrap();
    for text in ["he said\n", "Nobody\n", "{\"json\": 1}\n", "0 1 2\n"] {
        let found = why(text.as_bytes());
        assert!(found.contains(": is it a pickle? (opcode"), "{text}: {found}");
    }
    // Of protocol 0, with a number too long.
    assert!(why(b"L99999999999999999999L\n.").starts_with("a number of more than 64 bits"));
    assert_eq!(why(b"\x80\x04]h\x07."), "memo 7 is empty (opcode 0x68 at byte 3)");
}

#[test]
fn a_walk_copies_no_key_it_has_no_use_for() {
    // A dict whose keys are all one text of 8 MiB, with numbers for values: copying each, 24 TiB, takes an hour.
    let mut bytes = b"\x80\x04X\x00\x00\x80\x00".to_vec();
    bytes.extend(vec![b'k'; 8 << 20]);
    bytes.extend(b"\x940}(");
    (0..3_000_000).for_each(|_| bytes.extend(b"h\x00K\x01"));
    bytes.extend(b"u.");
    let file = torch(&bytes).unwrap();
    assert!(file.tensors(file.root()).unwrap().is_empty());
}

/// How long a small file may take at most: without a bound those of the tests below take minutes.
const SOON: Duration = Duration::from_secs(10);

#[test]
fn a_state_that_refers_to_one_dict_again_and_again_is_refused_soon() {
    // A dict of a thousand pairs, in a tuple of ten thousand times that dict, the state of an object, in a list of ten thousand times that object.
    let mut bytes = b"\x80\x02}q\x00(".to_vec();
    (0..1000).for_each(|_| bytes.extend(b"K\x01N"));
    bytes.extend(b"u0(");
    (0..10_000).for_each(|_| bytes.extend(b"h\x00"));
    bytes.extend(b"tq\x010cm\nn\n)Rh\x01bq\x020](");
    (0..10_000).for_each(|_| bytes.extend(b"h\x02"));
    bytes.extend(b"e.");
    let file = torch(&bytes).unwrap();
    let begun = Instant::now();
    let why = file.tensors(file.root()).err().unwrap();
    assert!(why.contains("refer to the same values again and again"), "{why}");
    assert!(begun.elapsed() < SOON);
}

#[test]
fn a_text_that_is_asked_for_again_and_again_is_given_up_soon() {
    // Copied as often as it is named, a text of 64 KiB becomes 3 GiB.
    let mut bytes = b"\x80\x04X\x00\x00\x01\x00".to_vec();
    bytes.extend(vec![b'k'; 1 << 16]);
    bytes.extend(b"\x940](");
    (0..50_000).for_each(|_| bytes.extend(b"h\x00"));
    bytes.extend(b"e.");
    let pickle = Pickle::parse(&bytes.into()).unwrap();
    let copies: usize =
        pickle.root().elements().unwrap().filter_map(|text| Some(text.text()?.to_owned().len())).sum();
    assert!(copies < 100 << 20, "{copies} bytes");
    assert!(pickle.root().check_work().is_err());
}

/// A zip container whose directory lists `entries`: a name and which of `contents` it stands for.
fn zip_of(contents: &[&[u8]], entries: &[(&str, usize)]) -> Vec<u8> {
    let mut file = Vec::new();
    let sizes = |bytes: &[u8]| {
        let size = (bytes.len() as u32).to_le_bytes();
        [&crc32fast::hash(bytes).to_le_bytes()[..], &size, &size].concat()
    };
    // Each local header has a name as long as that of any entry.
    let length = (entries[0].0.len() as u16).to_le_bytes();
    let mut places = Vec::new();
    for bytes in contents {
        places.push((file.len() as u32).to_le_bytes());
        file.extend(b"PK\x03\x04\x14\0\0\0\0\0\0\0\0\0");
        file.extend(sizes(bytes));
        file.extend([&length[..], b"\0\0", entries[0].0.as_bytes(), bytes].concat());
    }
    let start = file.len() as u32;
    for (name, which) in entries {
        file.extend(b"PK\x01\x02\x14\0\x14\0\0\0\0\0\0\0\0\0");
        file.extend(sizes(contents[*which]));
        file.extend((name.len() as u16).to_le_bytes());
        file.extend([0; 12]);
        file.extend([&places[*which], name.as_bytes()].concat());
    }
    let (size, count) = (file.len() as u32 - start, (entries.len() as u16).to_le_bytes());
    file.extend(
        [b"PK\x05\x06\0\0\0\0", &count[..], &count, &size.to_le_bytes(), &start.to_le_bytes(), b"\0\0"]
            .concat(),
    );
    file
}

#[test]
fn entries_that_share_bytes_or_stand_twice_are_refused() {
    let why = |contents: &[&[u8]], entries: &[(&str, usize)]| torch(&zip_of(contents, entries)).err();
    let (pickle, zeros) = (&b"\x80\x02N."[..], &[0; 4096][..]);
    assert_eq!(why(&[pickle, zeros], &[("a/data.pkl", 0), ("a/data/0", 1)]), None);
    let shared =
        why(&[pickle, zeros], &[("a/data.pkl", 0), ("a/data/0", 1), ("a/data/1", 1), ("a/data/2", 1)]);
    assert_eq!(shared.as_deref(), Some("its entries overlap"));
    let pickles = why(&[pickle, pickle], &[("a/data.pkl", 0), ("b/data.pkl", 1)]);
    assert_eq!(pickles.as_deref(), Some("it has more than one data.pkl"));
    let storages = why(&[pickle, zeros, zeros], &[("a/data.pkl", 0), ("a/data/0", 1), ("b/data/0", 2)]);
    assert_eq!(storages.as_deref(), Some("it has more than one data/0"));
}

#[test]
fn one_tensor_under_many_long_names_is_refused() {
    // A tensor, so many times, for two bytes each, in a list under a name of so many bytes, which each copies.
    let tensors = |name: usize, times: usize| {
        let mut bytes = b"\x80\x02}X".to_vec();
        bytes.extend((name as u32).to_le_bytes());
        bytes.extend(vec![b'k'; name]);
        bytes.extend(b"](ctorch._utils\n_rebuild_tensor\n((X\x07\0\0\0storagectorch\nByteStorage\n");
        bytes.extend(b"X\x01\0\0\x000NNtQK\0))tRq\0");
        (1..times).for_each(|_| bytes.extend(b"h\0"));
        bytes.extend(b"es.");
        let file = torch(&zip_of(&[&bytes, &[7]], &[("a/data.pkl", 0), ("a/data/0", 1)])).unwrap();
        file.tensors(file.root()).map(|found| found.len())
    };
    assert_eq!((tensors(10, 600), tensors(1000, 100)), (Ok(600), Ok(100)));
    let why = tensors(1000, 600).unwrap_err();
    assert!(why.contains("refer to the same values again and again"), "{why}");
}

#[test]
fn an_entry_without_a_checksum_is_refused() {
    let mut file = zip_of(&[b"\x80\x02N."], &[("a/data.pkl", 0)]);
    let sum = crc32fast::hash(b"\x80\x02N.").to_le_bytes();
    while let Some(at) = file.windows(4).position(|bytes| bytes == sum) {
        file[at..at + 4].fill(0);
    }
    let why = torch(&file).err().unwrap();
    assert!(why.contains("data.pkl has no checksum\nhint: save it again"), "{why}");
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
