//! Where models lie: in folders, under whatever names, and in files, in whatever was put around them.

use segue_foreign::{NamedTensor, Pickle, Saved, SavedTensor, SharedBytes, TorchFile, write_torch};

use super::*;

fn weights(folder: &Path) -> Vec<u8> {
    fs::read(folder.join("model.safetensors")).unwrap()
}

/// A folder with copies of fixtures under these names.
fn folder_of(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (from, to) in files {
        fs::copy(fixture(from), dir.path().join(to)).unwrap();
    }
    dir
}

/// Each kind of source under a name of nobody's choice.
const ALONE: [(&[(&str, &str)], &str); 6] = [
    (&[("kimiyoung/shaw.pt", "run7.pth")], "run7.pth"),
    (&[("nvidia/checkpoint_last.pt", "checkpoint_40.pt")], "checkpoint_40.pt"),
    (&[("recurrent/awd_lstm_lm/lstm.pt", "PTB")], "PTB"),
    (&[("recurrent/mos/state.pt", "best.ckpt")], "best.ckpt"),
    (
        &[("hugging_face/config.json", "config.json"), ("hugging_face/pytorch_model.bin", "weights.bin")],
        "weights.bin",
    ),
    (
        &[
            ("tensorflow/enwik8/model.ckpt-7.index", "a.ckpt.index"),
            ("tensorflow/enwik8/model.ckpt-7.data-00000-of-00001", "a.ckpt.data-00000-of-00001"),
        ],
        "a.ckpt",
    ),
];

#[test]
fn a_folder_leads_to_what_its_only_model_does() {
    for (files, name) in ALONE {
        let dir = folder_of(files);
        // What lies beside models: vocabularies, text that begins as a pickle does, numbers to compare with.
        for (from, to) in [("vocabularies/protocol2.pkl", "words.pkl"), ("kimiyoung/cache.pt", "old.bin")] {
            fs::copy(fixture(from), dir.path().join(to)).unwrap();
        }
        fs::write(dir.path().join("notes.txt"), "corpus of words").unwrap();
        fs::write(dir.path().join("(more)"), "(words").unwrap();
        fs::copy(fixture("nvidia/cases.safetensors"), dir.path().join("cases.safetensors")).unwrap();
        let (_file, of_file, named) = converted(&dir.path().join(name));
        let (_folder, of_folder, found) = converted(dir.path());
        assert!(weights(&of_file) == weights(&of_folder), "{name}");
        assert_eq!(
            (named.report.source_kind, named.report.source),
            (found.report.source_kind, found.report.source)
        );
        assert_eq!(inspect(dir.path()).unwrap().kind, named.report.source_kind);
    }
    // Values under another name, and a prefix without its step.
    let dir = folder_of(&[
        ("tensorflow/enwik8/model.ckpt-7.index", "model.ckpt-7.index"),
        ("tensorflow/enwik8/model.ckpt-7.data-00000-of-00001", "values"),
    ]);
    let (_first, by_folder, _) = converted(dir.path());
    for name in ["values", "model.ckpt", "model.ckpt-7", "model.ckpt-7.index"] {
        assert!(weights(&converted(&dir.path().join(name)).1) == weights(&by_folder), "{name}");
    }
    let error = refused(&dir.path().join("model.ckpt-"), &[]);
    assert!(error.exit_code() == 66 && error.hint().is_some(), "{error}");
    // The name that programs give to the one that counts is enough.
    let dir = folder_of(&[("kimiyoung/shaw.pt", "model.pt"), ("kimiyoung/learned.pt", "older.pt")]);
    assert!(converted(dir.path()).2.report.source.ends_with("model.pt"));
}

#[test]
fn a_folder_with_several_models_says_what_lies_there() {
    let first = "recurrent/awd_lstm_lm/gru.pt";
    let several = [
        folder_of(&[(first, "a.pt"), ("kimiyoung/shaw.pt", "b")]),
        folder_of(&[(first, "a.pt"), ("tensorflow/enwik8/model.ckpt-7.index", "b.index")]),
        folder_of(&[
            ("tensorflow/enwik8/model.ckpt-7.index", "a.pt.index"),
            ("tensorflow/enwik8/model.ckpt-7.index", "b.index"),
        ]),
    ];
    for dir in several {
        let error = refused(dir.path(), &[]);
        let text = error.to_string();
        assert!(error.exit_code() == 64 && text.contains("a.pt, b"), "{text}");
        assert!(error.hint().is_some(), "{text}");
        assert!(inspect(dir.path()).is_err());
    }
    // One that is damaged is not taken for another, and said.
    let dir = folder_of(&[(first, "a.pt"), ("kimiyoung/shaw.pt", "b.pt")]);
    let whole = fs::read(dir.path().join("b.pt")).unwrap();
    fs::write(dir.path().join("b.pt"), &whole[..whole.len() / 2]).unwrap();
    let (_made, _, made) = converted(dir.path());
    assert!(made.report.notes.iter().any(|note| note.contains("skipped") && note.contains("b.pt")));
    fs::remove_file(dir.path().join("a.pt")).unwrap();
    let error = refused(dir.path(), &[]);
    assert!(error.exit_code() == 65 && error.to_string().contains("b.pt"), "{error}");
}

/// A folder that a conversion has made is verified by whichever name it is given.
#[test]
fn a_file_is_opened_as_its_folder_is() {
    let (_dir, folder, _) = converted(&fixture("hugging_face"));
    let file = folder.join("model.safetensors");
    let (_other, _, made) = converted(&file);
    assert_eq!(made.report.source_kind, "segue");
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&file, bytes).unwrap();
    assert_eq!((refused(&file, &[]).exit_code(), refused(&folder, &[]).exit_code()), (65, 65));
}

/// The tensors of a fixture under other names, as a state dict.
fn renamed(path: &str, rename: impl Fn(&str) -> String) -> Vec<(String, Saved)> {
    let file = TorchFile::open(&fixture(path)).unwrap();
    let saved = |NamedTensor { name, tensor }: NamedTensor| {
        let (dtype, shape, bytes) = (tensor.dtype(), tensor.shape().to_vec(), tensor.to_bytes().into());
        (rename(&name), Saved::Tensor(SavedTensor { dtype, shape, bytes }))
    };
    file.tensors(file.root()).unwrap().into_iter().map(saved).collect()
}

#[test]
fn a_transformer_xl_is_found_in_any_container_and_wrapper() {
    let (_plain, expected, _) = converted(&fixture("hugging_face"));
    for (container, wrapper) in [
        ("", "module."),
        ("state_dict", "module._orig_mod."),
        ("model", "_orig_mod.model."),
        ("model_state_dict", ""),
        ("state_dict", "model.module."),
    ] {
        let dir = folder_of(&[("hugging_face/config.json", "config.json")]);
        // A compiled part of the model has a name in the middle.
        let compiled = |name: &str| name.replace("layers.1.", "layers.1._orig_mod.");
        let state = Saved::Dict(renamed("hugging_face/pytorch_model.bin", |name| {
            format!("{wrapper}{}", compiled(name))
        }));
        let value = match container {
            "" => state,
            name => Saved::Dict(vec![(name.into(), state), ("epoch".into(), Saved::Numbers(vec![3]))]),
        };
        write_torch(&dir.path().join("pytorch_model.bin"), &value).unwrap();
        let (_made, folder, _) = converted(dir.path());
        assert!(weights(&folder) == weights(&expected), "{container} {wrapper}");
    }
}

/// A file of the layout before PyTorch 1.6 with what `before` and `after` make of its object.
fn wrapped(path: &str, before: &[u8], after: &[u8]) -> Vec<u8> {
    let bytes: SharedBytes = fs::read(fixture(path)).unwrap().into();
    // Magic number, version and system come first.
    let mut at = 0;
    for _ in 0..3 {
        at += Pickle::parse(&bytes.cut(at..bytes.len()).unwrap()).unwrap().length();
    }
    let length = Pickle::parse(&bytes.cut(at..bytes.len()).unwrap()).unwrap().length();
    let (protocol, body) = bytes[at..at + length - 1].split_at(2);
    [&bytes[..at], protocol, before, body, after, b".", &bytes[at + length..]].concat()
}

#[test]
fn a_pickled_module_is_found_in_any_container_and_wrapper() {
    let (_plain, expected, plain) = converted(&fixture("kimiyoung"));
    let text = |text: &str| [&b"X"[..], &(text.len() as u32).to_le_bytes(), text.as_bytes()].concat();
    let in_dict = |name: &str| ([b"}".to_vec(), text(name)].concat(), b"s".to_vec());
    // An object whose state has one module.
    let in_module = |name: &str| {
        let start = [b"ctorch.nn\nModule\n)\x81}".to_vec(), text("_modules"), b"}".to_vec(), text(name)];
        (start.concat(), b"ssb".to_vec())
    };
    for layers in [
        vec![in_module("module")],
        vec![in_module("_orig_mod")],
        vec![in_dict("model")],
        vec![in_dict("state_dict"), in_module("module"), in_module("_orig_mod")],
        vec![in_dict("checkpoint"), in_dict("model"), in_module("model")],
    ] {
        let before: Vec<u8> = layers.iter().flat_map(|(before, _)| before.clone()).collect();
        let after: Vec<u8> = layers.iter().rev().flat_map(|(_, after)| after.clone()).collect();
        let dir = folder_of(&[("kimiyoung/cache.pt", "cache.pt")]);
        fs::write(dir.path().join("model.pt"), wrapped("kimiyoung/model.pt", &before, &after)).unwrap();
        let (_made, folder, made) = converted(dir.path());
        assert!(weights(&folder) == weights(&expected));
        assert_eq!((made.config, made.report.counts), (plain.config.clone(), plain.report.counts.clone()));
    }
}
