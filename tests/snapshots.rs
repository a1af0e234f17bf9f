//! What `--print-config` prints of every recipe, held against `tests/snapshots/print-config/`. Help texts are compared
//! where the command line is, in `launcher/src/reference`; messages of errors by `segue_tests::fail`.

use std::fs;
use std::path::Path;
use std::process::Command;

use segue_tests::{ROOT, alone, finish, snapshot, stderr};

/// The recipes of a task, which are read over the defaults of fine-tuning and a model.
const OF_A_TASK: &str = "finetune-";

/// stdout of a command that must succeed, started in the checkout, so that its files have relative names.
fn printed(mut command: Command) -> String {
    command.current_dir(ROOT);
    let text = format!("{command:?}");
    let output = finish(command);
    assert!(output.status.success(), "{text}\n{}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn recipes() -> Vec<String> {
    let files = fs::read_dir(Path::new(ROOT).join("configs/recipes")).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut all: Vec<String> =
        names.filter_map(|name| name.strip_suffix(".toml").map(str::to_string)).collect();
    all.sort();
    all
}

#[test]
fn every_recipe_is_read_as_it_was() {
    let recipes = recipes();
    assert!(recipes.len() > 30);
    let place = tempfile::tempdir().unwrap();
    let model = place.path().display().to_string();
    let config = r#"{"model_type": "xlnet", "vocab_size": 32000, "d_model": 768, "n_layer": 12, "n_head": 12, "d_inner": 3072}"#;
    fs::write(place.path().join("config.json"), config).unwrap();
    for recipe in &recipes {
        let path = format!("configs/recipes/{recipe}.toml");
        let text = match recipe.starts_with(OF_A_TASK) {
            false => printed(alone(&["pretrain", "--print-config", "--config", &path])),
            true => {
                let task = ["--task", "mnli", "--data", "glue/MNLI", "--config", &path, "run.dir=runs/mnli"];
                let args = [&["finetune", "--print-config", "--model", &model], &task[..]].concat();
                printed(alone(&args)).replace(&model, "MODEL")
            }
        };
        snapshot::check(&format!("print-config/{recipe}.txt"), &text);
    }
    let names: Vec<String> = recipes.iter().map(|recipe| format!("{recipe}.txt")).collect();
    snapshot::check_names("print-config", &names);
}
