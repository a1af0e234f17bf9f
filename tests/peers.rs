//! Checkpoints and reference numbers of public packages.

use std::path::Path;
use std::process::Command;

use segue_tests::{ROOT, SHARED, Workplace, alone, finish, ids_file, stderr, succeed};

#[test]
fn parity_holds_on_the_reference_files_and_fails_on_other_weights() {
    let folder = Path::new(SHARED).join("fixtures/transfoxl_tiny");
    if !folder.exists() {
        println!("skipped: no reference files at {}", folder.display());
        return;
    }
    let (model, cases) =
        (folder.display().to_string(), folder.join("cases.safetensors").display().to_string());
    let result = succeed(alone(&["parity", "--json", "--model", &model, "--cases", &cases]));
    assert_eq!(result["holds"], true);
    // One wrong weight has to show.
    let place = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::write(place.path().join(name), std::fs::read(folder.join(name)).unwrap()).unwrap();
    }
    let weights = place.path().join("model.safetensors");
    let mut bytes = std::fs::read(&weights).unwrap();
    // The exponent of a number in the middle of the layers, where nothing is tied.
    let data = 8 + u64::from_le_bytes(std::array::from_fn(|i| bytes[i])) as usize;
    let at = data + (bytes.len() - data) / 8 * 4 + 3;
    bytes[at] ^= 0x40;
    std::fs::write(&weights, bytes).unwrap();
    let model = place.path().display().to_string();
    let output = finish(alone(&["parity", "--model", &model, "--cases", &cases]));
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
}

/// The interpreter of an environment that `scripts/peers.sh` has installed.
fn python_of(name: &str) -> Option<String> {
    let script = format!("{ROOT}/scripts/peers.sh");
    let output = Command::new("bash").args([&script, "python", name]).output().ok()?;
    let python = String::from_utf8_lossy(&output.stdout).trim().to_string();
    (!python.is_empty()).then_some(python)
}

fn peer_python() -> Option<String> {
    let python = python_of("transfoxl");
    if python.is_none() {
        println!("skipped: no Python with transformers 4.33.3 (scripts/peers.sh installs one)");
    }
    python
}

/// Fresh reference numbers for every option of the model.
#[test]
fn parity_holds_for_other_configurations() {
    let Some(python) = peer_python() else { return };
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().display().to_string();
    for config in [
        r#"{"div_val": 1}"#,
        r#"{"div_val": 1, "d_embed": 16}"#,
        r#"{"div_val": 1, "d_embed": 16, "proj_share_all_but_first": false}"#,
        r#"{"cutoffs": [], "div_val": 1}"#,
        r#"{"cutoffs": [], "div_val": 2}"#,
        r#"{"cutoffs": [10, 30, 70], "div_val": 4, "d_embed": 64}"#,
        r#"{"same_length": true, "mem_len": 4}"#,
        r#"{"clamp_len": 6}"#,
        r#"{"pre_lnorm": true, "untie_r": false}"#,
        r#"{"mem_len": 0}"#,
        r#"{"tie_word_embeddings": false, "n_head": 2, "d_head": 10}"#,
    ] {
        let mut make = Command::new(&python);
        make.args([&format!("{ROOT}/tests/peers/make_parity_cases.py"), &folder, config]);
        let output = finish(make);
        assert!(output.status.success(), "{config}: {}", stderr(&output));
        let cases = format!("{folder}/cases.safetensors");
        let result = succeed(alone(&["parity", "--json", "--model", &folder, "--cases", &cases]));
        let groups = result["groups"].as_array().unwrap();
        let worst = groups.iter().map(|g| g["error"].as_f64().unwrap()).fold(0.0, f64::max);
        println!("{config}: {worst:.1e}");
        assert_eq!(result["holds"], true, "{config}");
    }
}

/// Opens a checkpoint with Hugging Face transformers 4.33.3 and compares log-probabilities.
#[test]
fn hugging_face_opens_a_checkpoint_and_agrees() {
    let Some(python) = peer_python() else { return };
    let place = Workplace::new();
    let variants: [(&str, &[&str]); 4] = [
        ("plain", &[]),
        ("adaptive", &["model.cutoffs=[50,120]", "model.div_val=2"]),
        ("shared", &["model.untie_r=false", "model.pre_lnorm=true", "model.cutoffs=[60]"]),
        ("clamped", &["model.clamp_len=10", "model.same_length=true", "model.d_embed=16"]),
    ];
    for (name, overrides) in variants {
        succeed(alone(&place.pretrain(name, &[overrides, &["train.steps=10"]].concat())));
        let (run, ids, scores) =
            (place.text(name), place.text("ids.safetensors"), place.text("scores.safetensors"));
        std::fs::write(&ids, ids_file(256)).unwrap();
        succeed(alone(&["score", "--model", &run, "--ids", &ids, "--output", &scores]));
        let checkpoint = place.text(&format!("{name}/checkpoints/latest"));
        let mut command = Command::new(&python);
        command.args([&format!("{ROOT}/tests/peers/from_pretrained.py"), &checkpoint, &scores]);
        let output = finish(command);
        println!("{name}: {}", String::from_utf8_lossy(&output.stdout).trim());
        assert!(output.status.success(), "{name}: {}", stderr(&output));
    }
}

/// Scores from left to right against those of the package, asked with its own masks.
#[test]
fn xlnet_scores_are_those_of_hugging_face() {
    let folder = Path::new(SHARED).join("fixtures/xlnet_tiny");
    let Some(python) = python_of("base").filter(|_| folder.exists()) else {
        println!(
            "skipped: no reference files, or no Python with transformers (scripts/peers.sh installs one)"
        );
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let [ids, scores] = ["ids", "scores"].map(|name| place.path().join(name).display().to_string());
    std::fs::write(&ids, ids_file(97)).unwrap();
    let model = folder.display().to_string();
    succeed(alone(&["score", "--model", &model, "--ids", &ids, "--output", &scores]));
    let mut command = Command::new(&python);
    command.args([&format!("{ROOT}/tests/peers/xlnet_scores.py"), &model, &scores]);
    let output = finish(command);
    println!("{}", String::from_utf8_lossy(&output.stdout).trim());
    assert!(output.status.success(), "{}", stderr(&output));
}
