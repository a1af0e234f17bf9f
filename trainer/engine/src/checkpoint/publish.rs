//! How checkpoint folders appear, are found, and go.

use std::fs;
use std::path::{Path, PathBuf};

use segue_configs::CheckpointConfig;
use segue_kernels::TrainError;
use segue_publish::{FreshFolder, clean_up, read_regular, replace_link};
use serde_json::Value;

use super::contents::STATE;
use super::files::{read_error, write_error};
use super::manifest::{FileRecords, MANIFEST, Manifest};
use super::names::{BEST, CHECKPOINTS, STAGE};

const LATEST: &str = "latest";

/// Fills a fresh folder, adds its manifest and makes it appear.
pub fn publish_with_manifest(
    fresh: FreshFolder,
    fill: impl FnOnce(&Path) -> Result<(), TrainError>,
) -> Result<(), TrainError> {
    fill(fresh.path())?;
    Manifest::write(fresh.path(), FileRecords::new())?;
    Ok(fresh.publish()?)
}

/// Ends what a killed job may not have come to in the run folder `run`: checkpoints that are not to stay go, and so does what is left
/// of a best model. The next checkpoint would see to it, but a run that is done writes none.
pub fn tidy_up(run: &Path, stay: Stay) -> Result<(), TrainError> {
    clean_up(run, |name| name == BEST || name.starts_with(STAGE))?;
    remove_old(&run.join(CHECKPOINTS), stay)?.map_or(Ok(()), Err)
}

/// Whether a hidden file may be what a killed writer has left of a checkpoint or of the link to one.
fn is_of_checkpoints(name: &str) -> bool {
    name.starts_with("step-") || name == LATEST
}

/// Lets `latest` in `folder` point at the checkpoint there that is called as `checkpoint` is.
fn point_latest(folder: &Path, checkpoint: &Path) -> Result<(), TrainError> {
    let link = folder.join(LATEST);
    match checkpoint.file_name().map(Path::new) {
        Some(name) if !fs::read_link(&link).is_ok_and(|target| target == name) => {
            Ok(replace_link(&link, name)?)
        }
        _ => Ok(()),
    }
}

/// Checkpoints that did not verify and are kept aside, for whoever wants to know what happened to them.
const SET_ASIDE: usize = 3;

/// Which checkpoints stay when a new one appears.
#[derive(Debug, Clone, Copy)]
pub struct Stay {
    /// How many of the newest.
    newest: usize,
    /// And those of every so many steps; 0 for no others.
    every: u64,
    /// Steps between the checkpoints that every run of this configuration has: the newest of these stays, for runs that
    /// go back.
    due: u64,
    /// That of the best evaluation, which a run that diverges goes back to, or the newest before it where a full disk had no room for that one.
    best: Option<u64>,
}

impl Stay {
    /// What `[checkpoint]` says; and that of step `best`.
    pub fn of(config: &CheckpointConfig, best: Option<u64>) -> Self {
        Self { newest: config.keep, every: config.keep_every, due: config.every, best }
    }
}

/// A checkpoint that is being written, under a hidden name. Dropped, it goes with all that is in it.
pub struct Draft {
    fresh: FreshFolder,
    folder: PathBuf,
    name: String,
}

impl Draft {
    /// Begins the checkpoint of step `step` among those in `folder`.
    pub fn begin(folder: &Path, step: u64) -> Result<Self, TrainError> {
        // What killed writers of other steps have left: nobody may write those again.
        clean_up(folder, is_of_checkpoints)?;
        let name = name_of(step);
        // There already is one of this step only where it did not verify, or knows less.
        let fresh = FreshFolder::replacing(&folder.join(&name))?;
        Ok(Self { fresh, folder: folder.into(), name })
    }

    /// Where its files go.
    pub fn path(&self) -> &Path {
        self.fresh.path()
    }

    /// Leaves its files behind, where other ranks may still write some.
    pub fn leave(self) {
        self.fresh.leave();
    }

    /// Adds the manifest, lets the checkpoint appear and `latest` point at it, and removes all that are not to stay. Files
    /// that `known` tells of are not read again. Gives the checkpoint's folder.
    pub fn publish(self, known: FileRecords, stay: Stay) -> Result<PathBuf, TrainError> {
        Manifest::write(self.fresh.path(), known)?;
        self.fresh.publish()?;
        point_latest(&self.folder, Path::new(&self.name))?;
        // A reader on a network file system keeps files of an old one there. What is new is whole all the same.
        if let Some(error) = remove_old(&self.folder, stay)? {
            tracing::warn!(%error, "an old checkpoint stays");
        }
        Ok(self.folder.join(self.name))
    }
}

/// Removes what is not to stay. Gives the first that cannot be removed: others go all the same.
fn remove_old(folder: &Path, stay: Stay) -> Result<Option<TrainError>, TrainError> {
    let all = list(folder)?;
    let is_of = |step: u64, every: u64| every > 0 && step.is_multiple_of(every);
    let newest =
        |holds: &dyn Fn(u64) -> bool| all.iter().rev().map(|(step, _)| *step).find(|step| holds(*step));
    let due = newest(&|step| is_of(step, stay.due));
    // A run that goes back to the one that is due has the best of that time to go back to.
    let best_then = due.filter(|_| stay.best.is_some()).and_then(|due| best_at(folder, due));
    let best = [stay.best, best_then].map(|best| best.and_then(|best| newest(&|step| step <= best)));
    let mut kept = None;
    for (step, old) in all.into_iter().rev().skip(stay.newest) {
        if Some(step) != due && !best.contains(&Some(step)) && !is_of(step, stay.every) {
            let error = remove_folder(&old).err();
            kept = kept.or(error);
        }
    }
    Ok(kept)
}

/// The step of the best evaluation as the checkpoint of step `step` knows it; `None` where it knows none, or cannot be read.
fn best_at(folder: &Path, step: u64) -> Option<u64> {
    let state = read_regular(folder.join(name_of(step)).join(STATE)).ok()?;
    serde_json::from_slice::<Value>(&state).ok()?["guard"]["step"].as_u64()
}

/// What the checkpoint of step `step` is called.
pub(super) fn name_of(step: u64) -> String {
    format!("step-{step:08}")
}

/// Fills a fresh folder and puts it in the place of the one at `path`, if there is one. It appears whole or not at all.
pub fn replace(path: &Path, fill: impl FnOnce(&Path) -> Result<(), TrainError>) -> Result<(), TrainError> {
    publish_with_manifest(FreshFolder::replacing(path)?, fill)
}

/// Removes a folder, its manifest first: half removed, it does not count as a checkpoint. Of a link to one, which may lie in an archive, the link
/// alone goes.
fn remove_folder(path: &Path) -> Result<(), TrainError> {
    let remove = || -> std::io::Result<()> {
        segue_faults::io("checkpoint.prune")?;
        if path.is_symlink() {
            return fs::remove_file(path);
        }
        match fs::remove_file(path.join(MANIFEST)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        segue_faults::io("checkpoint.pruned-half")?;
        match fs::remove_dir_all(path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    };
    remove().map_err(write_error(path))
}

/// Checkpoints in `folder` by rising step, whole or not.
pub fn list(folder: &Path) -> Result<Vec<(u64, PathBuf)>, TrainError> {
    numbered(folder, "step-")
}

fn numbered(folder: &Path, prefix: &str) -> Result<Vec<(u64, PathBuf)>, TrainError> {
    let mut found = Vec::new();
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(found),
        Err(e) => return Err(read_error(folder)(e)),
    };
    for entry in entries {
        let entry = entry.map_err(read_error(folder))?;
        let name = entry.file_name();
        if let Some(step) = name.to_str().and_then(|n| n.strip_prefix(prefix)).and_then(|n| n.parse().ok()) {
            found.push((step, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

/// Says what is wrong with the checkpoint at a path; `None` where it is whole. An error where it cannot be read for now:
/// bytes that cannot be read are not wrong, and another try may find them whole.
pub type Check<'a> = &'a mut dyn FnMut(&Path) -> Result<Option<String>, TrainError>;

/// What a [`Check`] says of a checkpoint that `verified` is found of.
pub fn refusal(verified: Result<(), TrainError>) -> Result<Option<String>, TrainError> {
    match verified {
        Ok(()) => Ok(None),
        Err(error @ TrainError::Read { .. }) if error.is_of_storage() => Err(error),
        Err(error) => Ok(Some(error.to_string())),
    }
}

/// The [`Check`] of a process that reads all of it by itself.
pub fn check_alone(path: &Path) -> Result<Option<String>, TrainError> {
    refusal(Manifest::read(path).and_then(|manifest| manifest.check_sound(path, |_, _| true)))
}

/// The newest checkpoint in `folder` that verifies, and what was wrong with newer ones. `None` where
/// there is no checkpoint at all; an error where none verifies.
pub fn find(folder: &Path) -> Result<Found, TrainError> {
    let found = search(folder, list(folder)?, &mut check_alone)?;
    Ok(found.map(|(path, refused)| (path, refused.into_iter().map(|(_, why)| why).collect())))
}

/// A whole checkpoint and what is wrong with newer ones, if there is any checkpoint.
pub type Found = Option<(PathBuf, Vec<String>)>;

/// For the job that owns the folder: the newest whole one among the checkpoints of every `every` steps, which are there however often a run was
/// stopped, and what was wrong with newer ones of these. Where there is none, those are in `refused`. Checkpoints of later steps are set aside: the
/// run that made them is not the one that goes on.
pub fn find_due(
    folder: &Path,
    every: u64,
    refused: &mut Vec<String>,
    check: Check,
) -> Result<Found, TrainError> {
    let is_due = |step: u64| every > 0 && step > 0 && step.is_multiple_of(every);
    let Some(path) = find_among(folder, &is_due, refused, check)? else { return Ok(None) };
    let later = list(folder)?.into_iter().rev().map(|(_, other)| other).take_while(|other| *other != path);
    for other in later.collect::<Vec<_>>() {
        set_aside(folder, &other, "abandoned")?;
    }
    point_latest(folder, &path)?;
    Ok(Some((path, Vec::new())))
}

/// The same of the checkpoint of step `step` or, where that is not there or not whole, of the newest before it that is. None is set aside but
/// those that do not verify.
pub fn find_up_to(
    folder: &Path,
    step: u64,
    refused: &mut Vec<String>,
    check: Check,
) -> Result<Found, TrainError> {
    let found = find_among(folder, &|other| other <= step, refused, check)?;
    Ok(found.map(|path| (path, Vec::new())))
}

/// The newest checkpoint of a step that is `wanted` that passes `check`. Newer ones of these are set aside, and what is wrong with them is told in
/// `refused`: who can do without any does not end for a damaged one.
fn find_among(
    folder: &Path,
    wanted: &dyn Fn(u64) -> bool,
    refused: &mut Vec<String>,
    check: Check,
) -> Result<Option<PathBuf>, TrainError> {
    let wanted = list(folder)?.into_iter().filter(|(step, _)| wanted(*step)).collect();
    let (found, damaged) = newest_whole(wanted, check)?;
    for (path, why) in &damaged {
        set_aside(folder, path, "damaged")?;
        refused.push(why.clone());
    }
    match list(folder)?.pop() {
        Some((_, newest)) if !damaged.is_empty() => point_latest(folder, &newest)?,
        _ => {}
    }
    Ok(found)
}

/// Like [`find`], for the job that owns the folder: removes what killed writers have left, lets `latest` point at
/// what is found, and renames those that do not verify to `damaged-step-..`, so that they do not count among the checkpoints to
/// keep. A few of these stay.
pub fn find_and_set_aside(folder: &Path, check: Check) -> Result<Found, TrainError> {
    // One that was being replaced may be the newest.
    clean_up(folder, is_of_checkpoints)?;
    let Some((path, refused)) = search(folder, list(folder)?, check)? else { return Ok(None) };
    point_latest(folder, &path)?;
    for (damaged, _) in &refused {
        set_aside(folder, damaged, "damaged")?;
    }
    Ok(Some((path, refused.into_iter().map(|(_, why)| why).collect())))
}

/// Renames a checkpoint to `WHY-step-..`; the newest few of these stay.
fn set_aside(folder: &Path, checkpoint: &Path, why: &str) -> Result<(), TrainError> {
    if let Some(name) = checkpoint.file_name().and_then(|n| n.to_str()) {
        let aside = folder.join(format!("{why}-{name}"));
        remove_folder(&aside)?;
        fs::rename(checkpoint, &aside).map_err(write_error(&aside))?;
    }
    for (_, old) in numbered(folder, &format!("{why}-step-"))?.into_iter().rev().skip(SET_ASIDE) {
        remove_folder(&old)?;
    }
    Ok(())
}

/// Checkpoints, each with what is wrong with it.
type Refused = Vec<(PathBuf, String)>;
/// A whole checkpoint, and newer ones with what is wrong with them.
type Search = (PathBuf, Refused);

/// The newest of `all` that passes `check`, if any does, and newer ones with what is wrong with them.
fn newest_whole(all: Vec<(u64, PathBuf)>, check: Check) -> Result<(Option<PathBuf>, Refused), TrainError> {
    let mut refused = Vec::new();
    for (step, path) in all.into_iter().rev() {
        match check(&path)?.or_else(|| misnamed(&path, step)) {
            None => return Ok((Some(path), refused)),
            Some(why) => refused.push((path, why)),
        }
    }
    Ok((None, refused))
}

/// What is wrong with a whole checkpoint that is called after step `step`: it may be that of another one, copied under this name.
fn misnamed(path: &Path, step: u64) -> Option<String> {
    let state: Value = serde_json::from_slice(&read_regular(path.join(STATE)).ok()?).ok()?;
    let own = state["step"].as_u64().filter(|own| *own != step)?;
    let what = format!("it is the checkpoint of step {own}, under another name");
    Some(TrainError::Damaged { path: path.into(), what }.to_string())
}

/// The newest of `all` in `folder` that passes `check`; an error where there are some and none does.
fn search(folder: &Path, all: Vec<(u64, PathBuf)>, check: Check) -> Result<Option<Search>, TrainError> {
    let (found, refused) = newest_whole(all, check)?;
    match found {
        Some(path) => return Ok(Some((path, refused))),
        None if refused.is_empty() => return Ok(None),
        None => {}
    }
    let reasons: Vec<String> = refused.into_iter().map(|(_, why)| why).collect();
    let what = format!("no checkpoint verifies:\n  {}", reasons.join("\n  "));
    Err(TrainError::Damaged { path: folder.into(), what })
}

#[cfg(test)]
mod tests {
    use super::super::files::write_bytes;
    use super::*;

    const KEEP: Stay = Stay { newest: 2, every: 0, due: 0, best: None };

    /// Fills the checkpoint called `name` and publishes it.
    fn publish(
        folder: &Path,
        name: &str,
        stay: Stay,
        fill: impl FnOnce(&Path) -> Result<(), TrainError>,
    ) -> Result<PathBuf, TrainError> {
        let draft = Draft::begin(folder, name.strip_prefix("step-").unwrap().parse().unwrap())?;
        fill(draft.path())?;
        draft.publish(FileRecords::new(), stay)
    }

    #[test]
    fn some_are_kept_for_good_and_few_of_those_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        for step in 1..=9 {
            publish(
                dir.path(),
                &format!("step-{step:08}"),
                Stay { newest: 2, every: 4, due: 0, best: Some(3) },
                touch,
            )
            .unwrap();
        }
        let steps = || list(dir.path()).unwrap().into_iter().map(|(step, _)| step).collect::<Vec<u64>>();
        assert_eq!(steps(), [3, 4, 8, 9]);
        for step in 10..=15 {
            fs::create_dir(dir.path().join(format!("step-{step:08}"))).unwrap();
        }
        let (found, refused) = find_and_set_aside(dir.path(), &mut check_alone).unwrap().unwrap();
        assert!(found.ends_with("step-00000009") && refused.len() == 6);
        let aside: Vec<u64> =
            numbered(dir.path(), "damaged-step-").unwrap().into_iter().map(|(step, _)| step).collect();
        assert_eq!((steps(), aside), (vec![3, 4, 8, 9], vec![13, 14, 15]));
    }

    #[test]
    fn a_run_can_go_back_to_its_newest_due_checkpoint_however_often_it_was_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let stay = Stay { newest: 2, every: 0, due: 10, best: None };
        for step in [3, 10, 20, 21, 22, 23] {
            publish(dir.path(), &format!("step-{step:08}"), stay, touch).unwrap();
        }
        let steps = || list(dir.path()).unwrap().into_iter().map(|(step, _)| step).collect::<Vec<u64>>();
        assert_eq!(steps(), [20, 22, 23]);
        let due = |every| find_due(dir.path(), every, &mut Vec::new(), &mut check_alone).unwrap();
        let (found, _) = due(10).unwrap();
        assert!(found.ends_with("step-00000020") && dir.path().join("abandoned-step-00000023").is_dir());
        assert_eq!(steps(), [20]);
        assert_eq!(fs::read_link(dir.path().join(LATEST)).unwrap(), Path::new("step-00000020"));
        assert!(due(7).is_none() && due(0).is_none());
    }

    #[test]
    fn the_best_of_a_checkpoint_that_a_run_may_go_back_to_stays_with_it() {
        let dir = tempfile::tempdir().unwrap();
        for (step, best) in [(3, 3), (10, 3), (12, 12), (13, 12), (14, 14), (15, 14)] {
            let stay = Stay { newest: 2, every: 0, due: 10, best: Some(best) };
            let state = |path: &Path| {
                write_bytes(&path.join(STATE), format!(r#"{{"guard": {{"step": {best}}}}}"#).as_bytes())
            };
            publish(dir.path(), &format!("step-{step:08}"), stay, state).unwrap();
        }
        let steps = || list(dir.path()).unwrap().into_iter().map(|(step, _)| step).collect::<Vec<u64>>();
        assert_eq!(steps(), [3, 10, 14, 15]);
        // Until the next one is due.
        let state = |path: &Path| write_bytes(&path.join(STATE), br#"{"guard": {"step": 14}}"#);
        publish(dir.path(), "step-00000020", Stay { newest: 2, every: 0, due: 10, best: Some(14) }, state)
            .unwrap();
        assert_eq!(steps(), [14, 15, 20]);
    }

    #[test]
    fn who_can_do_without_a_checkpoint_passes_over_damaged_ones() {
        type Find<'a> = &'a dyn Fn(&Path, &mut Vec<String>, Check) -> Result<Found, TrainError>;
        let up_to: Find = &|folder, refused, check| find_up_to(folder, 20, refused, check);
        let due: Find = &|folder, refused, check| find_due(folder, 10, refused, check);
        for (damaged, found, left) in [
            (&[20][..], Some("step-00000010"), &[10, 25][..]),
            (&[10, 20], None, &[25]),
            (&[25], Some("step-00000020"), &[10, 20, 25]),
        ] {
            for (find, is_due) in [(up_to, false), (due, true)] {
                let dir = tempfile::tempdir().unwrap();
                for step in [10, 20, 25] {
                    publish(dir.path(), &name_of(step), Stay { newest: 9, ..KEEP }, touch).unwrap();
                }
                damaged
                    .iter()
                    .for_each(|step| fs::write(dir.path().join(name_of(*step)).join("f"), "y").unwrap());
                let mut refused = Vec::new();
                let path = find(dir.path(), &mut refused, &mut check_alone).unwrap().map(|(path, _)| path);
                assert_eq!(path, found.map(|name| dir.path().join(name)), "{damaged:?}");
                let tried: Vec<u64> = damaged.iter().copied().filter(|step| *step <= 20).rev().collect();
                assert_eq!(refused.len(), tried.len(), "{refused:?}");
                for (step, why) in tried.iter().zip(&refused) {
                    assert!(why.contains(&name_of(*step)) && why.contains("BLAKE3"), "{refused:?}");
                    assert!(dir.path().join(format!("damaged-{}", name_of(*step))).is_dir());
                }
                let steps = list(dir.path()).unwrap().into_iter().map(|(step, _)| step);
                // Whoever goes back to one that is due leaves later ones behind.
                let left = left.iter().copied().filter(|step| !is_due || found.is_none() || *step != 25);
                assert!(steps.eq(left), "{damaged:?}, {is_due}");
                assert!(dir.path().join(LATEST).is_dir());
            }
        }
    }

    #[test]
    fn a_checkpoint_under_the_name_of_another_step_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let state = |path: &Path| write_bytes(&path.join(STATE), br#"{"step": 7}"#);
        publish(dir.path(), &name_of(7), KEEP, state).unwrap();
        publish(dir.path(), &name_of(u64::MAX), KEEP, state).unwrap();
        let (found, refused) = find_and_set_aside(dir.path(), &mut check_alone).unwrap().unwrap();
        assert!(found.ends_with("step-00000007"), "{found:?}");
        assert!(refused.len() == 1 && refused[0].contains("of step 7, under another name"), "{refused:?}");
        let aside: Vec<u64> = list(dir.path()).unwrap().into_iter().map(|(step, _)| step).collect();
        assert_eq!(aside, [7]);
    }

    #[test]
    fn what_cannot_be_read_is_not_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        publish(dir.path(), "step-00000001", KEEP, touch).unwrap();
        publish(dir.path(), "step-00000002", KEEP, touch).unwrap();
        // A folder where a file should be can be named, and not read.
        let file = dir.path().join("step-00000002/f");
        let bytes = fs::metadata(&file).unwrap().len();
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        let manifest = dir.path().join("step-00000002").join(MANIFEST);
        let text = fs::read_to_string(&manifest).unwrap();
        let length = fs::metadata(&file).unwrap().len();
        fs::write(&manifest, text.replace(&format!("\"bytes\": {bytes}"), &format!("\"bytes\": {length}")))
            .unwrap();
        let error = find_and_set_aside(dir.path(), &mut check_alone).unwrap_err();
        assert!(matches!(error, TrainError::Read { .. }), "{error}");
        assert!(dir.path().join("step-00000002").is_dir());
    }

    fn touch(dir: &Path) -> Result<(), TrainError> {
        write_bytes(&dir.join("f"), b"x")
    }

    #[test]
    fn only_the_newest_are_kept_and_latest_points_at_the_last() {
        let dir = tempfile::tempdir().unwrap();
        for step in 1..=4 {
            publish(dir.path(), &format!("step-{step:08}"), KEEP, touch).unwrap();
        }
        let steps: Vec<u64> = list(dir.path()).unwrap().into_iter().map(|(s, _)| s).collect();
        assert_eq!(steps, [3, 4]);
        assert_eq!(fs::read_link(dir.path().join(LATEST)).unwrap(), Path::new("step-00000004"));
    }

    #[test]
    fn of_links_to_checkpoints_the_links_alone_go() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, archive) = (dir.path().join("checkpoints"), dir.path().join("archive"));
        fs::create_dir(&archive).unwrap();
        let name = |step: u64| format!("step-{step:08}");
        let stow = |step: u64| {
            fs::rename(folder.join(name(step)), archive.join(name(step))).unwrap();
            std::os::unix::fs::symlink(archive.join(name(step)), folder.join(name(step))).unwrap();
        };
        let publish = |step: u64| publish(&folder, &name(step), KEEP, touch).unwrap();
        // One that is pruned, one of the same step that is replaced, and a damaged one that is set aside and goes at last.
        publish(1);
        stow(1);
        publish(2);
        stow(2);
        publish(2);
        assert!(!folder.join(name(2)).is_symlink());
        publish(3);
        assert!(folder.join(name(1)).symlink_metadata().is_err());
        for step in 4..=8 {
            publish(step);
            stow(step);
            fs::write(archive.join(name(step)).join("f"), "damaged").unwrap();
            let (found, _) = find_and_set_aside(&folder, &mut check_alone).unwrap().unwrap();
            assert_eq!(found, folder.join(name(3)));
        }
        assert_eq!(numbered(&folder, "damaged-step-").unwrap().len(), SET_ASIDE);
        for step in [1, 2] {
            Manifest::verify(&archive.join(name(step))).unwrap();
        }
        for step in 4..=8 {
            assert!(archive.join(name(step)).join(MANIFEST).is_file());
        }
    }

    #[test]
    fn failed_write_leaves_the_previous_checkpoint_and_no_part() {
        let dir = tempfile::tempdir().unwrap();
        publish(dir.path(), "step-00000001", KEEP, touch).unwrap();
        let fails = |_: &Path| Err(TrainError::Layout("no".into()));
        assert!(publish(dir.path(), "step-00000002", KEEP, fails).is_err());
        let (found, refused) = find(dir.path()).unwrap().unwrap();
        assert!(found.ends_with("step-00000001") && refused.is_empty());
        assert!(!dir.path().join(".step-00000002.part").exists());
    }

    #[test]
    fn a_damaged_checkpoint_of_the_same_step_is_replaced_and_parts_of_other_steps_go() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("step-00000002")).unwrap();
        fs::create_dir_all(dir.path().join(".step-00000001.part")).unwrap();
        publish(dir.path(), "step-00000002", KEEP, touch).unwrap();
        let (found, refused) = find(dir.path()).unwrap().unwrap();
        assert!(found.ends_with("step-00000002") && refused.is_empty());
        let names = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        assert_eq!(names, [LATEST, "step-00000002"]);
    }

    #[test]
    fn damaged_checkpoint_gives_way_to_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        for step in [1, 2] {
            publish(dir.path(), &format!("step-{step:08}"), KEEP, touch).unwrap();
        }
        let newest = dir.path().join("step-00000002");
        fs::write(newest.join("f"), "y").unwrap();
        let (found, refused) = find(dir.path()).unwrap().unwrap();
        assert!(found.ends_with("step-00000001"));
        assert!(refused[0].contains("BLAKE3"), "{refused:?}");
        fs::remove_file(newest.join("f")).unwrap();
        assert!(find(dir.path()).unwrap().unwrap().1[0].contains("step-00000002"));
    }
}
