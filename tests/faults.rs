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
        let path = checkpoint.join("optimizer.safetensors");
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, bytes).unwrap();
    };
    survives(flip, "optimizer.safetensors", 65);
}

#[test]
fn truncated_file_is_found_and_the_checkpoint_before_is_used() {
    let truncate = |checkpoint: &Path| {
        let path = checkpoint.join("model.safetensors");
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 7]).unwrap();
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
        let path = checkpoint.join("carry-00006.safetensors");
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&path, bytes).unwrap();
    };
    survives(flip, "carry-00006.safetensors", 65);
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
