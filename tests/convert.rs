//! `segue convert` and `segue inspect` as users call them.

use std::fs;

use segue_tests::{ROOT, alone, fail, succeed};

fn fixture(name: &str) -> String {
    format!("{ROOT}/tests/fixtures/foreign/{name}")
}

#[test]
fn a_pickled_model_is_converted_checked_and_evaluated() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name).display().to_string();
    let (model, cases) = (at("model"), fixture("kimiyoung/cases.safetensors"));
    let result = succeed(alone(&["convert", &fixture("kimiyoung"), &model, "--check", &cases, "--json"]));
    assert_eq!(
        (&result["check"]["holds"], &result["report"]["counts"]["reversed"]),
        (&true.into(), &2.into())
    );
    assert_eq!(result["report"]["vocabulary"]["entries"], 40);
    let again = at("again");
    let text = ["--check-text", "w0é w7é w14é"];
    let result = succeed(alone(&[&["convert", &model, &again, "--json"][..], &text].concat()));
    assert_eq!(result["check_text"]["loss"], result["check_text"]["before"]);
    let output = succeed(alone(&["convert", "--to", "tf", &again, &at("tf"), "--json"]));
    assert!(output["report"]["notes"][0].as_str().unwrap().contains("--n_layer=2"));
    let listing = succeed(alone(&["inspect", "checkpoint", &at("tf"), "--json"]));
    assert_eq!(
        (&listing["kind"], listing["variables"].as_array().unwrap().len()),
        (&"tensorflow".into(), 36)
    );
}

#[test]
fn numbers_that_differ_end_with_1() {
    let place = tempfile::tempdir().unwrap();
    let model = place.path().join("model").display().to_string();
    let cases = fixture("nvidia/cases.safetensors");
    fail(alone(&["convert", &fixture("kimiyoung"), &model, "--check", &cases]), 1, &["FAILS"]);
}

#[test]
fn bad_sources_have_their_exit_codes_and_leave_nothing() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name).display().to_string();
    fail(alone(&["convert", &at("nowhere"), &at("out")]), 66, &["nowhere"]);
    let hostile = place.path().join("model.pt");
    let victim = at("owned");
    fs::write(&hostile, format!("cposix\nsystem\n(S'touch {victim}'\ntR.")).unwrap();
    fail(alone(&["convert", &at("model.pt"), &at("out")]), 65, &["model.pt"]);
    let whole = fs::read(fixture("kimiyoung/model.pt")).unwrap();
    fs::write(&hostile, &whole[..whole.len() / 2]).unwrap();
    fail(alone(&["convert", &at("model.pt"), &at("out")]), 65, &["model.pt"]);
    fs::create_dir(at("out")).unwrap();
    fs::write(at("out/mine"), "").unwrap();
    fail(alone(&["convert", &fixture("nvidia"), &at("out")]), 73, &["out", "empty"]);
    let left: Vec<_> = fs::read_dir(place.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}
