//! Source and result on the same text.

use super::*;

/// A vocabulary for 11 tokens, and a text that is longer than several segments.
fn vocabulary(folder: &Path) -> (PathBuf, String) {
    let path = folder.join("vocab.txt");
    fs::write(&path, "a\nb\nc\nd\n<unk>\n<eos>\n").unwrap();
    let words = ["a", "b", "d", "c"];
    let text: Vec<&str> = (0..400).map(|i| words[(i * i / 7 + i / 11) % 4]).collect();
    (path, text.join(" "))
}

const HEAD: [(&str, &[usize]); 4] = [
    ("model/sequnece_summary/summary/kernel", &[6, 6]),
    ("model/sequnece_summary/summary/bias", &[6]),
    ("model/regression_sts-b/logit/kernel", &[6, 1]),
    ("model/regression_sts-b/logit/bias", &[1]),
];

#[test]
fn every_layer_of_a_long_text_is_the_same_before_and_after_and_back() {
    segue_kernels::libtorch::set_threads(1);
    let source = tensorflow(true, &[&HEAD[..], &OUTPUTS].concat());
    let place = tempfile::tempdir().unwrap();
    let (vocabulary, text) = vocabulary(place.path());
    let (here, back) = (place.path().join("here"), place.path().join("back"));
    let wanted = ConvertOptions {
        vocabulary: Some(vocabulary),
        overrides: vec!["model.mem_len=64".into()],
        ..options(Target::HuggingFace)
    };
    convert(source.path(), &here, &wanted, |_, _| {}).unwrap();
    let checked = check_text(source.path(), &here, &wanted, &text, |_, _| {}).unwrap();
    assert!(checked.holds() && checked.targets == 399 && checked.loss.is_finite(), "{checked:?}");
    let names: Vec<_> = checked.layers.iter().map(|part| part.name.as_str()).collect();
    assert_eq!(names, ["embedding", "layer 1", "layer 2", "layer 3"]);
    assert!(checked.layers.iter().all(|part| part.max_value > 0.0) && checked.heads.len() == 4);
    let wanted = options(Target::TensorFlow);
    convert(&here, &back, &wanted, |_, _| {}).unwrap();
    assert!(check_text(&here, &back, &wanted, &text, |_, _| {}).unwrap().holds());
}

#[test]
fn a_changed_weight_shows_from_its_layer_on() {
    segue_kernels::libtorch::set_threads(1);
    let source = tensorflow(true, &[&HEAD[..], &OUTPUTS].concat());
    let place = tempfile::tempdir().unwrap();
    let (vocabulary, text) = vocabulary(place.path());
    let wanted = ConvertOptions { vocabulary: Some(vocabulary), ..options(Target::HuggingFace) };
    let changed = |name: &str| {
        let folder = place.path().join(name);
        convert(source.path(), &folder, &wanted, |_, _| {}).unwrap();
        let path = folder.join("model.safetensors");
        let mut tensors: Vec<_> = read_tensors(&path).unwrap().tensors.into_iter().collect();
        let (_, tensor) = tensors.iter_mut().find(|(own, _)| own == name).unwrap();
        *tensor = tensor.shallow_clone() + 0.25;
        write_tensors(&path, &tensors).unwrap();
        // Changed on purpose.
        std::fs::remove_file(folder.join(segue_engine::checkpoint::MANIFEST)).unwrap();
        check_text(source.path(), &folder, &wanted, &text, |_, _| {}).unwrap()
    };
    let checked = changed("transformer.layer.1.ff.layer_1.bias");
    let differs: Vec<_> = checked.layers.iter().map(|part| part.max_difference != 0.0).collect();
    assert!(!checked.holds() && differs == [false, false, true, true], "{checked:?}");
    let checked = changed("logits_proj.bias");
    assert!(checked.layers.iter().all(|part| part.max_difference == 0.0) && !checked.holds());
    let head = checked.heads.iter().find(|part| part.name == "logits_proj.bias").unwrap();
    assert!((head.max_difference - 0.25).abs() < 1e-6);
}

#[test]
fn a_text_that_cannot_be_read_is_told_before_anything_is_made() {
    segue_kernels::libtorch::set_threads(1);
    let source = tensorflow(true, &[&HEAD[..], &OUTPUTS].concat());
    let place = tempfile::tempdir().unwrap();
    let (vocabulary, _) = vocabulary(place.path());
    let target = place.path().join("made");
    for (vocabulary, text, what) in [(None, "a b c", "vocabulary"), (Some(vocabulary), "", "two tokens")] {
        let wanted = ConvertOptions { vocabulary, texts: vec![text.into()], ..options(Target::HuggingFace) };
        let Err(error) = convert(source.path(), &target, &wanted, |_, _| {}) else { panic!("{what}") };
        assert!(error.to_string().contains(what) && error.exit_code() == 78, "{error}");
        assert!(!target.exists());
    }
}
