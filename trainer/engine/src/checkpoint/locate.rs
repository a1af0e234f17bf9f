//! Where a model lies.

use std::path::{Path, PathBuf};

use segue_kernels::TrainError;
use segue_publish::read_regular;
use serde_json::Value;

use super::contents::STATE;
use super::manifest::{MANIFEST, Manifest};
use super::names::{BEST, CHECKPOINTS};
use super::publish::{check_alone, find, name_of};

/// The folder with the weights of `path`: the best model of a run, where it keeps one that is whole, else its newest checkpoint that
/// verifies, or that of the best evaluation if it is still there; a checkpoint; or a folder with `config.json`. With it, what was wrong with the best model and with newer checkpoints.
pub fn locate(path: &Path) -> Result<(PathBuf, Vec<String>), TrainError> {
    let best = path.join(BEST);
    let damage = match best.join("config.json").is_file().then(|| verify_model(&best)) {
        None => None,
        Some(Ok(())) => return Ok((best, Vec::new())),
        Some(Err(error)) if error.is_of_storage() => return Err(error),
        Some(Err(damage)) => Some(damage),
    };
    for folder in [path.join(CHECKPOINTS), path.to_path_buf()] {
        if folder.is_dir()
            && let Some((found, newer)) = find(&folder)?
        {
            let refused = damage.iter().map(|damage| format!("the best model: {damage}"));
            let of_best = best_of(&found).map(|step| folder.join(name_of(step)));
            let of_best = of_best.filter(|path| matches!(check_alone(path), Ok(None)));
            return Ok((of_best.unwrap_or(found), refused.chain(newer).collect()));
        }
    }
    if let Some(damage) = damage {
        return Err(damage);
    }
    if is_run(path) {
        let what = "the run has no checkpoint yet\nhint: a run that goes on writes one every checkpoint.every steps or checkpoint.minutes, where it stops, and at its end";
        return Err(TrainError::NoCheckpoint { path: path.into(), what: what.into() });
    }
    if path.join(MANIFEST).exists() || path.join("config.json").is_file() && !path.join(CHECKPOINTS).is_dir()
    {
        verify_model(path)?;
        return Ok((path.into(), Vec::new()));
    }
    let what = "it is neither a run with checkpoints, nor a checkpoint, nor a folder with config.json";
    let hint = match holds_foreign_weights(path) {
        true => format!(
            "\nhint: make a model folder of it, where there is an importer: segue convert {} NEW",
            path.display()
        ),
        false => String::new(),
    };
    Err(TrainError::NoCheckpoint { path: path.into(), what: format!("{what}{hint}") })
}

/// Whether the configuration in a folder is that of a run, not of a model.
fn is_run(path: &Path) -> bool {
    let text = segue_publish::read_regular_text(path.join("config.json")).unwrap_or_default();
    let config: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    config["train"].is_object()
}

/// Endings of files that other programs keep weights in.
const FOREIGN: [&str; 5] = ["pt", "pth", "bin", "ckpt", "index"];

/// Whether a path leads to weights of another program by its name, or to a folder with such files.
fn holds_foreign_weights(path: &Path) -> bool {
    let is_foreign =
        |path: &Path| path.extension().is_some_and(|ending| FOREIGN.iter().any(|known| ending == *known));
    let mut inside = path.read_dir().into_iter().flatten().flatten();
    path.is_file() && is_foreign(path) || inside.any(|entry| is_foreign(&entry.path()))
}

/// The step of the evaluation that a run keeps the model of, as its checkpoint knows it; `None` where it keeps none.
fn best_of(checkpoint: &Path) -> Option<u64> {
    let state = read_regular(checkpoint.join(STATE)).ok()?;
    let task = serde_json::from_slice::<Value>(&state).ok()?["task"].take();
    let counted = task["best"].is_number().then(|| task["best_step"].as_u64()).flatten();
    task["aside"]["step"].as_u64().or(counted).filter(|_| task["lost"] != true)
}

/// What is to be said of a folder without a manifest.
pub fn unverified(folder: &Path) -> Option<String> {
    (!folder.join(MANIFEST).exists()).then(|| format!("not verified: {} has no {MANIFEST}", folder.display()))
}

/// Checks a model folder against its manifest; one from elsewhere has none.
pub fn verify_model(folder: &Path) -> Result<(), TrainError> {
    if !folder.join(MANIFEST).exists() {
        return Ok(());
    }
    // Nobody has a reason to change a checkpoint.
    let may_be_meant = !folder.join(STATE).exists();
    Manifest::verify(folder).map_err(|error| match error {
        TrainError::Damaged { path, what } if may_be_meant => {
            let advice =
                "make or copy the folder again; where it was changed on purpose, remove its MANIFEST.json";
            TrainError::Damaged { path, what: format!("{what}\nhint: {advice}") }
        }
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use segue_configs::CheckpointConfig;

    use super::super::manifest::FileRecords;
    use super::super::publish::{Draft, Stay, replace};
    use super::*;

    /// A table of no tensors.
    const EMPTY: &[u8; 16] = b"\x08\0\0\0\0\0\0\0{}      ";

    fn model(dir: &Path) -> Result<(), TrainError> {
        std::fs::write(dir.join("config.json"), "{}").unwrap();
        std::fs::write(dir.join("model.safetensors"), EMPTY).unwrap();
        Ok(())
    }

    #[test]
    fn a_damaged_best_model_gives_way_to_the_newest_checkpoint_and_is_told_of() {
        let run = tempfile::tempdir().unwrap();
        let best = run.path().join(BEST);
        replace(&best, model).unwrap();
        assert_eq!(locate(run.path()).unwrap(), (best.clone(), Vec::new()));
        std::fs::write(best.join("model.safetensors"), b"\x08\0\0\0\0\0\0\0{     }").unwrap();
        // Without another model there is nothing to give way to.
        assert_eq!(locate(run.path()).unwrap_err().exit_code(), 65);
        let draft = Draft::begin(&run.path().join(CHECKPOINTS), 7).unwrap();
        model(draft.path()).unwrap();
        let stay = Stay::of(&CheckpointConfig::default(), None);
        let checkpoint = draft.publish(FileRecords::new(), stay).unwrap();
        let (found, refused) = locate(run.path()).unwrap();
        assert_eq!(found, checkpoint);
        assert!(
            refused.len() == 1 && refused[0].contains("best/model.safetensors is damaged"),
            "{refused:?}"
        );
        let state = |draft: &Draft, state: &str| std::fs::write(draft.path().join(STATE), state).unwrap();
        let draft = Draft::begin(&run.path().join(CHECKPOINTS), 9).unwrap();
        model(draft.path()).unwrap();
        state(&draft, r#"{"step": 9, "task": {"best": 2.5, "best_step": 7}}"#);
        draft.publish(FileRecords::new(), stay).unwrap();
        // That of the best evaluation is still there.
        assert_eq!(locate(run.path()).unwrap().0, checkpoint);
        // Who names it gets no other.
        assert_eq!(locate(&best).unwrap_err().exit_code(), 65);
    }

    #[test]
    fn a_run_without_a_checkpoint_is_told_as_such() {
        let run = tempfile::tempdir().unwrap();
        std::fs::write(run.path().join("config.json"), r#"{"train": {"steps": 9}, "model": {}}"#).unwrap();
        for _ in 0..2 {
            let error = locate(run.path()).unwrap_err().to_string();
            assert!(error.contains("the run has no checkpoint yet"), "{error}");
            std::fs::create_dir_all(run.path().join(CHECKPOINTS)).unwrap();
        }
    }
}
