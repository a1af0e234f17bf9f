//! Folders of runs as they are while a run lives, after it was started again, and after its end.

use std::fs::File;
use std::io::Write;

use serde_json::json;

use super::*;

fn append(path: &Path, rows: &[Value]) {
    let mut file = File::options().create(true).append(true).open(path).unwrap();
    rows.iter().for_each(|row| writeln!(file, "{row}").unwrap());
}

fn train(step: u64, attempt: u64, loss: f64) -> Value {
    json!({ "kind": "train", "step": step, "attempt": attempt, "loss": loss, "tokens_per_s": 100.0 })
}

fn folder(dir: &Path, name: &str) -> PathBuf {
    let folder = dir.join(name);
    fs::create_dir_all(folder.join("checkpoints/step-00000002")).unwrap();
    fs::create_dir_all(folder.join("checkpoints/.step-00000004.part")).unwrap();
    let config =
        json!({ "train": { "steps": 6 }, "model": { "model_type": "xlnet" }, "task": { "name": "" } });
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
    folder
}

/// The run in a folder.
fn open(folder: &Path) -> Run {
    Runs::open(&[folder.into()]).unwrap().runs.swap_remove(0)
}

fn names_of(runs: &mut Runs) -> Vec<String> {
    runs.look().map(|run| run.name.clone()).collect()
}

#[test]
fn a_run_is_followed_over_its_restart_to_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = folder(dir.path(), "one");
    let lock = File::create(path.join("lock")).unwrap();
    lock.try_lock().unwrap();
    let metrics = path.join("metrics.jsonl");
    append(&metrics, &[train(1, 1, 5.0), train(2, 1, 4.5), train(3, 1, 4.0)]);
    let mut run = open(&path);
    let view = run.look();
    assert_eq!((view.name.as_str(), view.model.as_str(), view.state), ("one", "xlnet", RunState::Training));
    assert_eq!((view.step, view.steps, view.checkpoints.as_slice()), (3, 6, &[2][..]));
    assert_eq!(view.series["train/loss"], [(1, 5.0), (2, 4.5), (3, 4.0)]);
    // Resumed after step 2: the row of step 3 goes elsewhere, the file is a new one.
    fs::write(path.join("m"), format!("{}\n{}\n", train(1, 1, 5.0), train(2, 1, 4.5))).unwrap();
    fs::rename(path.join("m"), &metrics).unwrap();
    append(&path.join("metrics.superseded.jsonl"), &[train(3, 1, 4.0)]);
    append(&metrics, &[train(3, 2, 3.9), json!({ "kind": "eval", "step": 3, "attempt": 2, "loss": 4.2 })]);
    let view = run.look();
    assert_eq!(view.series["train/loss"], [(1, 5.0), (2, 4.5), (3, 3.9)]);
    assert_eq!((view.restarts.as_slice(), view.superseded, view.last("eval/loss")), (&[2][..], 1, Some(4.2)));
    append(&metrics, &[train(6, 2, 3.0)]);
    drop(lock);
    let view = run.look();
    assert_eq!((view.state, view.step, view.problems.as_slice()), (RunState::Done, 6, &[][..]));
    // The same rows as somebody sees them who comes only then.
    assert_eq!(open(&path).look(), &run.view);
}

#[test]
fn a_run_that_ended_before_its_last_step_is_done_where_it_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = folder(dir.path(), "one");
    append(&path.join("metrics.jsonl"), &[train(3, 1, 4.0)]);
    let mut run = open(&path);
    assert_eq!(run.look().state, RunState::Stopped);
    fs::write(path.join(DONE_FILE), "").unwrap();
    assert_eq!(run.look().state, RunState::Done);
    // One of another version says nothing, and its last step may have no row.
    fs::remove_file(path.join(DONE_FILE)).unwrap();
    fs::create_dir(path.join("checkpoints/step-00000006")).unwrap();
    assert_eq!(run.look().state, RunState::Done);
}

#[test]
fn ranks_are_those_of_the_supervisor_and_after_it_those_of_its_report() {
    let dir = tempfile::tempdir().unwrap();
    let path = folder(dir.path(), "one");
    fs::create_dir(path.join("launch")).unwrap();
    let mut run = open(&path);
    assert_eq!(run.look().ranks, RanksView::default());
    let rank = RankState { rank: 1, host: "n1".into(), step: 4, resident: 9, ..RankState::default() };
    let live = |written| LiveRanks { attempt: 2, world_size: 2, written, ranks: vec![rank.clone()] };
    let write = |live: &LiveRanks| {
        fs::write(path.join("launch/ranks.json"), serde_json::to_string(live).unwrap()).unwrap();
    };
    let seen = live(now().floor());
    write(&seen);
    assert_eq!(run.look().ranks, RanksView { from: RanksFrom::Live, seen });
    // By a clock of its own: what is new is live.
    write(&live(5.0));
    assert_eq!(run.look().ranks, RanksView { from: RanksFrom::Live, seen: live(5.0) });
    // A supervisor that was killed leaves its file behind.
    let mut run = open(&path);
    assert_eq!(run.look().ranks, RanksView::default());
    let waits = json!({ "call": "MPI_Allgather", "peer": null, "seconds": 3.5 });
    let report = json!({
        "attempt": 1, "began": 100, "seconds": 20.0, "world_size": 1, "from_step": 0, "to_step": 2, "code": 137, "hung": null,
        "first": { "rank": 0, "host": null, "what": "signal 9" }, "next": "restart", "command": ["mpirun"], "hosts": [],
        "ranks": [{ "rank": 0, "host": "n0", "silent_s": 1.5, "left": true, "last": { "step": 3, "resident": 7, "waits": waits } }],
    });
    fs::write(path.join("launch/attempt-0001.json"), report.to_string()).unwrap();
    let view = run.look();
    assert_eq!((view.attempts[0].why().as_str(), view.attempts[0].to_step), ("rank 0: signal 9", 2));
    let seen = &view.ranks.seen;
    assert_eq!(
        (view.ranks.from, seen.written, seen.ranks[0].step, seen.ranks[0].age_s),
        (RanksFrom::Report, 120.0, 3, 1.5)
    );
    assert_eq!(seen.ranks[0].waits.as_ref().map(|wait| wait.call.as_str()), Some("MPI_Allgather"));
}

#[test]
fn a_folder_of_seeds_is_as_many_runs_and_names_tell_them_apart() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a/seed-1", "a/seed-2", "b/seed-1"] {
        folder(dir.path(), name);
    }
    // As `segue launch` leaves them with what it starts.
    fs::create_dir(dir.path().join("a/launch")).unwrap();
    File::create(dir.path().join("a/lock")).unwrap();
    let mut runs = Runs::open(&[dir.path().join("a"), dir.path().join("b")]).unwrap();
    assert_eq!(names_of(&mut runs), ["a/seed-1", "a/seed-2", "b/seed-1"]);
    assert_eq!(runs.runs[0].launch, dir.path().join("a/launch"));
    assert_eq!(open(&dir.path().join("a/seed-2")).launch, dir.path().join("a/launch"));
    let error = Runs::open(&[dir.path().join("none")]).unwrap_err();
    assert_eq!(error.exit_code(), 66);
}

#[test]
fn seeds_that_begin_later_are_seen_and_those_before_keep_their_numbers() {
    let dir = tempfile::tempdir().unwrap();
    // As `segue launch` has them before its ranks begin.
    for name in ["a", "b"] {
        fs::create_dir_all(dir.path().join(name).join("launch")).unwrap();
    }
    folder(dir.path(), "b/seed-2");
    let mut runs = Runs::open(&[dir.path().join("a"), dir.path().join("b")]).unwrap();
    assert_eq!(names_of(&mut runs), ["a", "seed-2"]);
    folder(dir.path(), "a/seed-2");
    assert_eq!(names_of(&mut runs), ["a/seed-2", "b/seed-2"]);
    folder(dir.path(), "b/seed-1");
    folder(dir.path(), "a/seed-3");
    assert_eq!(names_of(&mut runs), ["a/seed-2", "b/seed-2", "a/seed-3", "b/seed-1"]);
    assert_eq!((runs.count(), names_of(&mut runs).len()), (4, 4));
}

#[test]
fn what_is_damaged_is_told_and_the_rest_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let path = folder(dir.path(), "one");
    fs::write(path.join("config.json"), "{\"train\":").unwrap();
    fs::write(path.join("metrics.jsonl"), format!("no JSON\n[1]\n{}\n{{\"kind\":", train(1, 1, 5.0)))
        .unwrap();
    let mut run = open(&path);
    let view = run.look();
    assert_eq!(view.series["train/loss"], [(1, 5.0)]);
    assert!(view.problems[0].starts_with("config.json: "), "{:?}", view.problems);
}

/// The names of the numbers in this row of 171 kB would have 810 MB.
#[test]
fn a_row_makes_no_more_of_its_numbers_than_it_is_long() {
    let dir = tempfile::tempdir().unwrap();
    let path = folder(dir.path(), "one");
    let leaves: serde_json::Map<String, Value> = (0..9000).map(|i| (i.to_string(), json!(1))).collect();
    let row = json!({ "kind": "train", "step": 1, "loss": 2.5, "n".repeat(90_000): leaves });
    append(&path.join("metrics.jsonl"), &[row]);
    let mut run = open(&path);
    let view = run.look();
    assert_eq!((view.series.len(), view.last("train/loss")), (1, Some(2.5)));
    assert!(view.problems[0].starts_with("metrics.jsonl: numbers left out: 9000;"), "{:?}", view.problems);
    // It is said as long as the row is there.
    assert_eq!(run.look().problems.len(), 1);
    fs::write(path.join("metrics.jsonl"), "").unwrap();
    assert_eq!(run.look().problems.len(), 0);
}

#[test]
fn a_row_that_is_too_long_is_told_of_as_long_as_it_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = folder(dir.path(), "one");
    let row = |step: usize, of: &str| json!({ "kind": "train", "step": step, "loss": 2.5, "of": of });
    append(&path.join("metrics.jsonl"), &[row(1, ""), row(2, &"x".repeat(2 << 20)), row(3, "")]);
    let mut run = open(&path);
    for _ in 0..2 {
        let view = run.look();
        assert_eq!(view.series["train/loss"].len(), 2);
        assert_eq!(view.problems, ["metrics.jsonl: rows left out: 1; rows have up to 1048576 bytes"]);
    }
    fs::write(path.join("metrics.jsonl"), "").unwrap();
    assert_eq!(run.look().problems.len(), 0);
}

#[test]
fn a_run_has_so_many_curves_whatever_its_rows_and_their_kinds_are_called() {
    let dir = tempfile::tempdir().unwrap();
    let path = folder(dir.path(), "one");
    let row = |row: usize| {
        let leaves: serde_json::Map<String, Value> =
            (0..1000).map(|i| (format!("{row}-{i}"), json!(1))).collect();
        json!({ "kind": "train", "step": row, "of": leaves, "loss": 1 })
    };
    let long = json!({ "kind": "k".repeat(90_000), "step": 9, "loss": 1, "other": 2 });
    let rows: Vec<Value> = (1..=6).map(row).chain([long]).collect();
    append(&path.join("metrics.jsonl"), &rows);
    let mut run = open(&path);
    let view = run.look();
    assert_eq!((view.series.len(), view.series["train/loss"].len()), (MOST_CURVES, 6));
    let left_out = 6 * 1000 + 1 - MOST_CURVES + 2;
    assert!(view.problems[0].contains(&format!("left out: {left_out};")), "{:?}", view.problems);
}
