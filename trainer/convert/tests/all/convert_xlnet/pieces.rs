//! Weights in several files, and in PyTorch's.

use super::*;

/// A pickle of protocol 2: a dict of tensors over the storages `0`, `1`, .., each of single precision.
fn state_dict(tensors: &[(String, Tensor)]) -> Vec<u8> {
    let text = |text: &str| [&b"X"[..], &(text.len() as u32).to_le_bytes(), text.as_bytes()].concat();
    let number = |value: usize| [&b"J"[..], &(value as i32).to_le_bytes()].concat();
    let tuple = |sizes: &[usize]| {
        let members = sizes.iter().flat_map(|size| number(*size));
        [b"(".to_vec(), members.collect(), b"t".to_vec()].concat()
    };
    let mut out = b"\x80\x02}(".to_vec();
    for (key, (name, tensor)) in tensors.iter().enumerate() {
        let shape: Vec<usize> = tensor.size().iter().map(|&size| size as usize).collect();
        let strides: Vec<usize> = (0..shape.len()).map(|axis| shape[axis + 1..].iter().product()).collect();
        out.extend(text(name));
        out.extend(b"ctorch._utils\n_rebuild_tensor_v2\n((");
        out.extend(text("storage"));
        out.extend(b"ctorch\nFloatStorage\n");
        out.extend([text(&key.to_string()), text("cpu"), number(tensor.numel()), b"NtQ".to_vec()].concat());
        out.extend([number(0), tuple(&shape), tuple(&strides)].concat());
        out.extend(b"\x89}tR");
    }
    out.extend(b"u.");
    out
}

/// A file of `torch.save` in the layout before version 1.6.
fn torch_file(tensors: &[(String, Tensor)]) -> Vec<u8> {
    let mut out = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.".to_vec();
    out.extend(b"\x80\x02}X\x0d\x00\x00\x00little_endian\x88s.");
    out.extend(state_dict(tensors));
    out.extend(b"\x80\x02](");
    for key in 0..tensors.len() {
        let key = key.to_string();
        out.extend([&b"X"[..], &(key.len() as u32).to_le_bytes(), key.as_bytes()].concat());
    }
    out.extend(b"e.");
    for (_, tensor) in tensors {
        out.extend((tensor.numel() as u64).to_le_bytes());
        let values = Vec::<f32>::try_from(tensor.reshape([-1])).unwrap();
        out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    }
    out
}

/// The same model with its weights written by `write`, which is given the folder and the tensors.
fn rewritten(source: &Path, write: impl Fn(&Path, &[(String, Tensor)])) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::copy(source.join("config.json"), dir.path().join("config.json")).unwrap();
    let tensors = read_tensors(&source.join("model.safetensors")).unwrap().tensors;
    write(dir.path(), &tensors.into_iter().collect::<Vec<_>>());
    dir
}

/// Writes two pieces `STEM-0000N-of-00002.ENDING` and their list.
fn in_two(
    folder: &Path,
    name: &str,
    tensors: &[(String, Tensor)],
    save: impl Fn(&Path, &[(String, Tensor)]),
) {
    let (stem, ending) = name.split_once('.').unwrap();
    let (first, second) = tensors.split_at(tensors.len() / 3);
    let mut map = serde_json::Map::new();
    for (number, part) in [first, second].into_iter().enumerate() {
        let file = format!("{stem}-{:05}-of-00002.{ending}", number + 1);
        save(&folder.join(&file), part);
        map.extend(part.iter().map(|(name, _)| (name.clone(), json!(file))));
    }
    let list = json!({ "metadata": { "total_size": 0 }, "weight_map": map });
    fs::write(folder.join(format!("{name}.index.json")), list.to_string()).unwrap();
}

fn safetensors_in_two(folder: &Path, tensors: &[(String, Tensor)]) {
    in_two(folder, "model.safetensors", tensors, |path, part| write_tensors(path, part).unwrap());
}

fn source() -> TempDir {
    hugging_face(&small(true), json!({"architectures": ["XLNetLMHeadModel"]}), |name| Some(name.into()))
}

#[test]
fn weights_in_pieces_and_in_pickles_equal_the_single_file() {
    let single = source();
    let (_dir, expected, _) = to(Target::HuggingFace, single.path()).unwrap();
    let save = |path: &Path, tensors: &[(String, Tensor)]| fs::write(path, torch_file(tensors)).unwrap();
    let pickled =
        rewritten(single.path(), |folder, tensors| save(&folder.join("pytorch_model.bin"), tensors));
    let pickled_in_two =
        rewritten(single.path(), |folder, tensors| in_two(folder, "pytorch_model.bin", tensors, save));
    let in_two = rewritten(single.path(), safetensors_in_two);
    for other in [pickled, pickled_in_two, in_two] {
        let (_dir, found, made) = to(Target::HuggingFace, other.path()).unwrap();
        assert_eq!(made.report.counts["copied"], made.report.variables.len());
        for name in ["model.safetensors", "config.json"] {
            assert!(fs::read(found.join(name)).unwrap() == fs::read(expected.join(name)).unwrap(), "{name}");
        }
    }
}

#[test]
fn pieces_are_listed_with_their_bytes() {
    let in_two = rewritten(source().path(), safetensors_in_two);
    let listing = inspect(in_two.path()).unwrap();
    assert_eq!((listing.kind, listing.files.len()), ("hugging_face", 2));
    let table = listing.variables.iter().find(|v| v.name.ends_with("word_embedding.weight")).unwrap();
    assert_eq!((table.bytes, table.dtype.as_str(), table.optimizer), (11 * 6 * 4, "f32", false));
    assert_eq!(listing.bytes, listing.variables.iter().map(|v| v.bytes).sum::<usize>());
    // Without a configuration nobody knows what model it is.
    fs::remove_file(in_two.path().join("config.json")).unwrap();
    let unknown = inspect(in_two.path()).unwrap();
    assert_eq!((unknown.kind, unknown.variables.len()), ("unknown", listing.variables.len()));
}

#[test]
fn pieces_that_are_not_what_their_list_says_are_refused() {
    let refused = |change: &dyn Fn(&Path)| {
        let pieces = rewritten(source().path(), safetensors_in_two);
        change(pieces.path());
        to(Target::HuggingFace, pieces.path()).err().expect("it is refused")
    };
    let second = "model-00002-of-00002.safetensors";
    let error = refused(&|folder| fs::remove_file(folder.join(second)).unwrap());
    assert!(error.exit_code() == 66 && error.to_string().contains(second), "{error}");
    let error = refused(&|folder| {
        fs::copy(folder.join("model-00001-of-00002.safetensors"), folder.join(second)).unwrap();
    });
    assert!(error.exit_code() == 65 && error.to_string().contains("no such tensor"), "{error}");
    let error = refused(&|folder| {
        let path = folder.join("model.safetensors.index.json");
        let text = fs::read_to_string(&path).unwrap().replace(second, "../model.safetensors");
        fs::write(&path, text).unwrap();
    });
    assert!(error.exit_code() == 65 && error.to_string().contains("not a file beside it"), "{error}");
}

#[test]
fn a_model_is_found_in_any_container_and_wrapper() {
    let single = source();
    let (_dir, expected, _) = to(Target::HuggingFace, single.path()).unwrap();
    let with = |before: &'static str| {
        move |tensors: &[(String, Tensor)]| -> Vec<(String, Tensor)> {
            tensors.iter().map(|(name, tensor)| (format!("{before}{name}"), tensor.shallow_clone())).collect()
        }
    };
    let bare = |tensors: &[(String, Tensor)]| -> Vec<(String, Tensor)> {
        let inner = tensors.iter().map(|(name, tensor)| {
            let name = name.strip_prefix("transformer.").unwrap_or(name);
            (format!("module.{name}"), tensor.shallow_clone())
        });
        inner.collect()
    };
    for before in ["module.", "_orig_mod.", "model.", "module._orig_mod.", "state_dict.model.module.", "net."]
    {
        let named = with(before);
        let folders = [
            rewritten(single.path(), |folder, tensors| {
                write_tensors(&folder.join("model.safetensors"), &named(tensors)).unwrap();
            }),
            rewritten(single.path(), |folder, tensors| safetensors_in_two(folder, &named(tensors))),
            rewritten(single.path(), |folder, tensors| {
                fs::write(folder.join("any.bin"), torch_file(&named(tensors))).unwrap();
            }),
        ];
        for folder in folders {
            let (_dir, found, made) = to(Target::HuggingFace, folder.path()).unwrap();
            for name in ["model.safetensors", "config.json"] {
                assert!(
                    fs::read(found.join(name)).unwrap() == fs::read(expected.join(name)).unwrap(),
                    "{before} {name}"
                );
            }
            let place = format!("`{}`", before.trim_end_matches('.').replace("._orig_mod", ""));
            let said = made.report.notes.iter().any(|note| note.contains(&place));
            assert!(said || before == "_orig_mod.", "{before}: {:?}", made.report.notes);
        }
    }
    let base = rewritten(single.path(), |folder, tensors| {
        write_tensors(&folder.join("model.safetensors"), &bare(tensors)).unwrap();
    });
    let (_dir, found, _) = to(Target::HuggingFace, base.path()).unwrap();
    assert!(
        fs::read(found.join("model.safetensors")).unwrap()
            == fs::read(expected.join("model.safetensors")).unwrap()
    );
}

/// Whoever follows a hint is not given it again.
#[test]
fn strangers_alone_are_not_to_be_skipped() {
    let single = source();
    let strange = rewritten(single.path(), |folder, tensors| {
        let all: Vec<_> = tensors.iter().map(|(name, t)| (format!("{name}_"), t.shallow_clone())).collect();
        write_tensors(&folder.join("model.safetensors"), &all).unwrap();
    });
    for allow_skipped in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let options = ConvertOptions { allow_skipped, ..options(Target::HuggingFace) };
        let error = convert(strange.path(), &dir.path().join("made"), &options, |_, _| {}).err().unwrap();
        assert!(!error.hint().unwrap_or_default().contains("--allow-skipped"), "{error}");
        assert!(error.exit_code() == 78 && error.to_string().contains("lm_loss.bias_"), "{error}");
    }
}
