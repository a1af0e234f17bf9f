//! Damaged checkpoints and failing disks: the right exit code and message, and the checkpoint before
//! still loads.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use segue_tests::{Workplace, alone, fail, finish, may_mount, mpirun, stderr, succeed};

/// A run of 30 steps with checkpoints of steps 10, 20 and 30.
fn trained() -> Workplace {
    let place = Workplace::new();
    succeed(alone(&place.pretrain("run", &["train.steps=30"])));
    place
}

fn newest(place: &Workplace) -> PathBuf {
    place.path("run/checkpoints/step-00000030")
}

/// After `damage` to the newest checkpoint: loading it alone fails with 65 and names the file, and the run
/// goes on from step 20 to the bytes of a run that was never damaged.
fn survives(damage: impl FnOnce(&Path), file: &str, code: i32) {
    let place = trained();
    let checkpoint = newest(&place);
    damage(&checkpoint);
    let generate = |model: &Path| {
        let model = model.display().to_string();
        alone(&["generate", "--model", &model, "--prompt", "the", "--tokens", "3"])
    };
    fail(generate(&checkpoint), code, &[file]);
    succeed(generate(&place.path("run")));
    let output = finish(mpirun(2, &place.pretrain("run", &["train.steps=50"])));
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains(file) && said.contains("step-00000020"), "{said}");
    succeed(alone(&place.pretrain("undamaged", &[])));
    place.assert_same("undamaged", "run");
}

#[test]
fn flipped_byte_is_found_and_the_checkpoint_before_is_used() {
    let flip = |checkpoint: &Path| {
        edit(&checkpoint.join("optimizer.safetensors"), |bytes| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        });
    };
    survives(flip, "optimizer.safetensors", 65);
}

#[test]
fn truncated_file_is_found_and_the_checkpoint_before_is_used() {
    let truncate = |checkpoint: &Path| {
        edit(&checkpoint.join("model.safetensors"), |bytes| bytes.truncate(bytes.len() - 7));
    };
    survives(truncate, "model.safetensors", 65);
}

#[test]
fn missing_file_is_found_and_the_checkpoint_before_is_used() {
    survives(
        |checkpoint| fs::remove_file(checkpoint.join("carry-00000.safetensors")).unwrap(),
        "carry-00000.safetensors",
        66,
    );
}

/// Of two ranks the second alone reads the last lanes: the first hears of it.
#[test]
fn damaged_lanes_of_another_rank_are_found_and_the_checkpoint_before_is_used() {
    let flip = |checkpoint: &Path| {
        edit(&checkpoint.join("carry-00006.safetensors"), |bytes| *bytes.last_mut().unwrap() ^= 1);
    };
    survives(flip, "carry-00006.safetensors", 65);
}

/// What may happen to a file of the newest checkpoint; the same file of an older one is given too.
type Damage = fn(&Path, &Path);

/// Six kinds of damage to four files: none of these checkpoints is gone on from, and the newest good one is.
#[test]
fn of_24_damaged_checkpoints_none_is_loaded_and_the_newest_good_one_is_found() {
    let damages: [(&str, Damage); 6] = [
        ("a bit flips", |path, _| edit(path, |bytes| *bytes.last_mut().unwrap() ^= 1)),
        ("cut in half", |path, _| edit(path, |bytes| bytes.truncate(bytes.len() / 2))),
        ("empty", |path, _| edit(path, Vec::clear)),
        ("longer", |path, _| edit(path, |bytes| bytes.push(0))),
        ("gone", |path, _| fs::remove_file(path).unwrap()),
        ("an older one's", |path, older| _ = fs::copy(older, path).unwrap()),
    ];
    let files =
        ["model.safetensors", "optimizer.safetensors", "carry-00002.safetensors", "trainer_state.json"];
    let place = trained();
    for (number, (file, (what, damage))) in
        files.iter().flat_map(|file| damages.iter().map(move |damage| (file, damage))).enumerate()
    {
        let run = format!("damaged-{number}");
        copy_folder(&place.path("run"), &place.path(&run));
        let checkpoints = place.path(&run).join("checkpoints");
        let [newest, older] =
            ["step-00000030", "step-00000020"].map(|step| checkpoints.join(step).join(file));
        damage(&newest, &older);
        let output = finish(alone(&place.pretrain(&run, &["train.steps=30"])));
        let said = stderr(&output);
        assert!(output.status.success(), "{file}, {what}: {said}");
        assert!(said.contains(file) && said.contains("step-00000020"), "{file}, {what}: {said}");
        assert!(checkpoints.join("damaged-step-00000030").is_dir(), "{file}, {what}: {said}");
        place.assert_same("run", &run);
        fs::remove_dir_all(place.path(&run)).unwrap();
    }
}

fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

fn copy_folder(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(status.expect("cp starts").success());
}

#[test]
fn a_run_whose_checkpoints_are_all_damaged_is_not_started_anew() {
    let place = trained();
    for step in [10, 20, 30] {
        fs::write(place.path(&format!("run/checkpoints/step-{step:08}/config.json")), "{}").unwrap();
    }
    fail(alone(&place.pretrain("run", &[])), 65, &["no checkpoint verifies", "step-00000010"]);
}

/// Older checkpoints go when a run goes on, and not for a command that is another run's.
#[test]
fn a_refused_command_removes_no_checkpoint() {
    let place = trained();
    let count = || fs::read_dir(place.path("run/checkpoints")).unwrap().count();
    let before = count();
    let refused = finish(alone(&place.pretrain("run", &["checkpoint.keep=2", "optim.lr=0.5"])));
    assert_eq!((refused.status.code(), count()), (Some(78), before), "{}", stderr(&refused));
    succeed(alone(&place.pretrain("run", &["checkpoint.keep=2", "train.steps=30"])));
    assert_eq!(count(), before - 1);
}

/// A tmpfs of `size`, unmounted when dropped.
struct Disk {
    path: PathBuf,
}

impl Disk {
    fn mount(path: PathBuf, size: &str) -> Self {
        fs::create_dir(&path).unwrap();
        let options = format!("size={size}");
        let status = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&path).status();
        assert!(status.expect("mount starts").success(), "cannot mount a tmpfs");
        Self { path }
    }

    fn make_read_only(&self) {
        let status = Command::new("mount").args(["-o", "remount,ro"]).arg(&self.path).status();
        assert!(status.expect("mount starts").success(), "cannot remount");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.path).status();
    }
}

#[test]
fn full_disk_ends_the_job_with_74_and_keeps_the_checkpoint_before() {
    if !may_mount() {
        segue_skip::skip(segue_skip::Need::Root, "only root can mount a small disk");
        return;
    }
    let place = Workplace::new();
    // A checkpoint of the tiny recipe takes about 400 KiB: one fits, two do not.
    let disk = Disk::mount(place.path("disk"), "640k");
    // The second ends nothing, as a third is to come; the last one has to be written.
    fail(
        mpirun(2, &place.pretrain("disk/run", &["train.steps=30"])),
        74,
        &["cannot write", "step-00000030", "free some space", "training goes on"],
    );
    assert!(!disk.path.join("run/checkpoints/.step-00000030.part").exists());
    let run = place.text("disk/run");
    succeed(alone(&["generate", "--model", &run, "--prompt", "the", "--tokens", "3"]));
}

/// Under `segue launch` a disk that is full for one checkpoint ends no attempt: training goes on, says so, and the next checkpoint is written.
#[test]
fn a_disk_that_has_room_again_gets_the_next_checkpoint() {
    let place = Workplace::new();
    let job = place.pretrain("run", &["train.steps=30"]);
    let words = ["launch", "--json", "-n", "2", "--silence", "30"].into_iter();
    let words: Vec<&str> =
        words.chain(job.iter().map(String::as_str).filter(|word| *word != "--json")).collect();
    let mut command = alone(&words);
    command.env("SEGUE_FAULTS", "no-space@tensors.write:rank=0:step=20:hit=1..");
    let output = finish(command);
    let said = stderr(&output);
    assert!(
        output.status.success() && said.contains("training goes on, the checkpoint before stays the newest"),
        "{said}"
    );
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&result["attempts"], &result["step"]), (&1.into(), &30.into()), "{result}");
    assert!(!place.path("run/checkpoints/step-00000020").exists() && newest(&place).is_dir());
    succeed(alone(&place.pretrain("undisturbed", &["train.steps=30"])));
    place.assert_same("undisturbed", "run");
}

#[test]
fn read_only_folder_ends_the_job_with_73_and_its_checkpoint_still_loads() {
    if !may_mount() {
        segue_skip::skip(segue_skip::Need::Root, "only root can mount a read-only disk");
        return;
    }
    let place = Workplace::new();
    let disk = Disk::mount(place.path("disk"), "8m");
    succeed(alone(&place.pretrain("disk/run", &["train.steps=10"])));
    disk.make_read_only();
    fail(mpirun(2, &place.pretrain("disk/run", &[])), 73, &["cannot write", "run.dir"]);
    let run = place.text("disk/run");
    succeed(alone(&["generate", "--model", &run, "--prompt", "the", "--tokens", "3"]));
}
