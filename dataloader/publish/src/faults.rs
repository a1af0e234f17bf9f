//! Writers that fail or die at every step they take: what is left is the old folder or the new one, never half of one.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{self, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use crate::disk::exchange;
use crate::folder::Step;
use crate::{FreshFolder, PublishError, clean_up};

/// Whether a test starts programs. Between its fork and its exec, a child holds the locks that other tests of this process let go of.
static CHILDREN: RwLock<()> = RwLock::new(());

/// Held by a test whose locks are to end with their files.
pub(crate) fn no_children() -> RwLockReadGuard<'static, ()> {
    CHILDREN.read().unwrap_or_else(PoisonError::into_inner)
}

/// Paths below a folder, with the contents of files.
type Tree = BTreeMap<String, Option<String>>;

fn tree(folder: &Path) -> Tree {
    let mut found = Tree::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_string();
            let content = path.is_file().then(|| fs::read_to_string(&path).unwrap());
            if content.is_none() {
                open.push(path);
            }
            found.insert(name, content);
        }
    }
    found
}

/// Fills a folder with files that say `text`, at two depths.
fn fill(folder: &Path, text: &str) {
    fs::create_dir(folder.join("inner")).unwrap();
    for name in ["a", "b", "inner/c"] {
        fs::write(folder.join(name), text).unwrap();
    }
}

fn full(text: &str) -> Tree {
    let files = ["a", "b", "inner/c"].map(|name| (name.to_string(), Some(text.to_string())));
    files.into_iter().chain([("inner".to_string(), None)]).collect()
}

/// What is there before a writer comes, and what its file system can do.
#[derive(Clone, Copy, Debug)]
struct Case {
    old: bool,
    replaces: bool,
    exchanges: bool,
}

const CASES: [Case; 4] = [
    Case { old: false, replaces: false, exchanges: true },
    Case { old: false, replaces: true, exchanges: true },
    Case { old: true, replaces: true, exchanges: true },
    Case { old: true, replaces: true, exchanges: false },
];

impl Case {
    /// A place with the old folder, if there is one.
    fn place(self) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        if self.old {
            fs::create_dir(dir.path().join("model")).unwrap();
            fill(&dir.path().join("model"), "old");
        }
        dir
    }

    /// Writes the new folder; `at_step` is asked before each step, with its number.
    fn write(
        self,
        place: &Path,
        mut at_step: impl FnMut(usize, Step) -> io::Result<()> + Send + 'static,
    ) -> Result<(), PublishError> {
        let mut number = 0;
        let before = move |step| {
            let now = number;
            number += 1;
            at_step(now, step)?;
            match step {
                Step::Exchange if !self.exchanges => Err(rustix::io::Errno::INVAL.into()),
                _ => Ok(()),
            }
        };
        let fresh = FreshFolder::begin(&place.join("model"), self.replaces, Box::new(before))?;
        fill(fresh.path(), "new");
        fresh.publish()
    }

    /// The steps of a writer that nothing happens to.
    fn steps(self) -> Vec<Step> {
        let steps = Arc::new(Mutex::new(Vec::new()));
        let seen = steps.clone();
        let place = self.place();
        self.write(place.path(), move |_, step| {
            seen.lock().unwrap().push(step);
            Ok(())
        })
        .unwrap();
        assert_eq!(tree(&place.path().join("model")), full("new"), "{self:?}");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "{self:?}");
        let steps = steps.lock().unwrap();
        steps.clone()
    }
}

/// Whether the folder is the new one. It has to be that or the old one, whole.
fn is_new(place: &Path, case: Case, what: &str) -> bool {
    let target = place.join("model");
    if !target.exists() {
        assert!(!case.old, "{what}: the old folder is gone");
        return false;
    }
    let found = tree(&target);
    assert!(found == full("new") || case.old && found == full("old"), "{what}: {found:?}");
    found == full("new")
}

fn hidden_names(place: &Path) -> Vec<String> {
    let names = fs::read_dir(place).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with('.')).collect()
}

#[test]
fn everything_is_flushed_before_the_rename_and_the_folder_around_it_after() {
    let _guard = no_children();
    use Step::*;
    let filled = [MakePart, LockPart, SyncFile, SyncFile, SyncFile, SyncFolder, SyncFolder];
    let ends: [&[Step]; 4] = [
        &[Rename, SyncParent],
        &[Rename, SyncParent],
        &[Exchange, SyncParent, RemoveOld],
        &[Exchange, Retire, Rename, SyncParent, RemoveOld],
    ];
    for (case, end) in CASES.into_iter().zip(ends) {
        let (mut begin, rest) = (case.steps(), case.steps().split_off(filled.len()));
        begin.truncate(filled.len());
        // Files and folders come in the order of the file system.
        begin[2..].sort_by_key(|step| *step == SyncFolder);
        assert_eq!((&begin[..], &rest[..]), (&filled[..], end), "{case:?}");
    }
}

#[test]
fn an_error_at_any_step_leaves_the_old_folder_or_the_new_one_and_no_part() {
    let _guard = no_children();
    for case in CASES {
        for (number, step) in case.steps().into_iter().enumerate() {
            let place = case.place();
            let fail = move |now, _| match now == number {
                true => Err(io::ErrorKind::StorageFull.into()),
                false => Ok(()),
            };
            let what = format!("{case:?} {step:?} {number}");
            let error = case.write(place.path(), fail).expect_err(&what);
            assert_eq!(error.source.kind(), io::ErrorKind::StorageFull, "{what}");
            let published = matches!(step, Step::SyncParent | Step::RemoveOld);
            assert_eq!(is_new(place.path(), case, &what), published, "{what}");
            // Where the disk did not take the new folder, the old one is all there is to fall back on.
            let left = if published && case.old { 1 } else { 0 };
            assert_eq!(hidden_names(place.path()).len(), left, "{what}");
            // The next writer is not disturbed by any of it.
            case_after(case).write(place.path(), |_, _| Ok(())).unwrap();
            assert!(is_new(place.path(), case, &what) && hidden_names(place.path()).is_empty(), "{what}");
        }
    }
}

/// The same writer once more, which finds a folder perhaps.
fn case_after(case: Case) -> Case {
    Case { replaces: true, ..case }
}

const DIE_AT: &str = "SEGUE_PUBLISH_DIE_AT";

/// Run by the test below in a process of its own.
#[test]
fn a_writer_that_dies() {
    let Ok(text) = env::var(DIE_AT) else { return };
    let [case, number, place] = *text.splitn(3, ' ').collect::<Vec<_>>() else { panic!("{text}") };
    let number: usize = number.parse().unwrap();
    let die = move |now, _| match now == number {
        // Nothing is unwound and nothing dropped, as in a process that is killed.
        true => process::exit(9),
        false => Ok(()),
    };
    let _ = CASES[case.parse::<usize>().unwrap()].write(Path::new(place), die);
}

#[test]
fn a_writer_killed_at_any_step_leaves_the_old_folder_or_the_new_one_and_the_next_one_cleans_up() {
    let _alone = CHILDREN.write().unwrap_or_else(PoisonError::into_inner);
    for (case_number, case) in CASES.into_iter().enumerate() {
        for (number, step) in case.steps().into_iter().enumerate() {
            let place = case.place();
            let what = format!("{case:?} {step:?} {number}");
            let died = Command::new(env::current_exe().unwrap())
                .args(["faults::a_writer_that_dies", "--exact", "--quiet"])
                .env(DIE_AT, format!("{case_number} {number} {}", place.path().display()))
                .stdout(Stdio::null())
                .status()
                .unwrap();
            assert_eq!(died.code(), Some(9), "{what}");
            // Between two renames the old folder is whole under its other name.
            let between = step == Step::Rename && case.old;
            assert_eq!(between, case.old && !place.path().join("model").exists(), "{what}");
            if between {
                clean_up(place.path(), |name| name == "model").unwrap();
                assert!(hidden_names(place.path()).is_empty(), "{what}");
            }
            let published = matches!(step, Step::SyncParent | Step::RemoveOld);
            assert_eq!(is_new(place.path(), case, &what), published, "{what}");
            case_after(case).write(place.path(), |_, _| Ok(())).unwrap();
            assert!(is_new(place.path(), case, &what) && hidden_names(place.path()).is_empty(), "{what}");
        }
    }
}

#[test]
fn a_fill_that_fails_leaves_nothing_of_the_new_folder() {
    let _guard = no_children();
    for case in CASES {
        let place = case.place();
        let begin = || FreshFolder::begin(&place.path().join("model"), case.replaces, Box::new(|_| Ok(())));
        let fresh = begin().unwrap();
        fs::write(fresh.path().join("half"), "new").unwrap();
        drop(fresh);
        assert!(!is_new(place.path(), case, "dropped") && hidden_names(place.path()).is_empty());
    }
}

#[test]
fn a_reader_always_finds_a_folder_that_is_being_replaced() {
    let _guard = no_children();
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (dir.path().join("one"), dir.path().join("other"));
    fs::create_dir(&one).unwrap();
    fs::create_dir(&other).unwrap();
    if exchange(&one, &other).is_err() {
        segue_skip::skip(
            segue_skip::Need::Machine,
            "the file system of the temporary folder cannot exchange two names",
        );
        return;
    }
    let target = dir.path().join("model");
    // A process that another test starts holds each lock of this one until it is another program.
    let replacing = || {
        loop {
            match FreshFolder::replacing(&target) {
                Err(error) if error.source.kind() == io::ErrorKind::ResourceBusy => std::thread::yield_now(),
                fresh => break fresh.unwrap(),
            }
        }
    };
    let write = |text: &str| {
        let fresh = replacing();
        fs::write(fresh.path().join("a"), text).unwrap();
        fresh.publish().unwrap();
    };
    write("0");
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut last = 0;
            while last < 20 {
                target.symlink_metadata().unwrap();
                // A folder that was found may be replaced, and its files gone, before they are opened.
                let Ok(text) = fs::read_to_string(target.join("a")) else { continue };
                let now: u32 = text.parse().unwrap();
                assert!(now >= last);
                last = now;
            }
        });
        (1..=20).for_each(|text| write(&text.to_string()));
        reader.join().unwrap();
    });
}

#[test]
fn a_folder_that_somebody_is_filling_is_left_alone() {
    let _guard = no_children();
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("model");
    let first = FreshFolder::create(&target).unwrap();
    fs::write(first.path().join("a"), "new").unwrap();
    let error = FreshFolder::create(&target).err().unwrap();
    assert_eq!(error.source.kind(), io::ErrorKind::ResourceBusy);
    assert_eq!(
        error.to_string(),
        format!("cannot write {}: another process is writing it", first.path().display())
    );
    clean_up(dir.path(), |_| true).unwrap();
    first.publish().unwrap();
    assert_eq!(fs::read_to_string(target.join("a")).unwrap(), "new");
}

#[test]
fn a_new_folder_takes_the_place_of_an_empty_one_and_of_no_other() {
    let _guard = no_children();
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str| {
        let fresh = FreshFolder::create(&dir.path().join(name))?;
        fill(fresh.path(), "new");
        fresh.publish()
    };
    for name in ["empty", "full"] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    fs::write(dir.path().join("full/mine"), "x").unwrap();
    write("empty").unwrap();
    write("far/away").unwrap();
    assert_eq!(tree(&dir.path().join("empty")), full("new"));
    assert_eq!(tree(&dir.path().join("far/away")), full("new"));
    assert_eq!(write("full").unwrap_err().source.kind(), io::ErrorKind::DirectoryNotEmpty);
    assert_eq!(tree(&dir.path().join("full")).len(), 1);
    assert!(hidden_names(dir.path()).is_empty());
}

#[test]
fn a_new_folder_appears_where_a_link_leads() {
    let _guard = no_children();
    let dir = tempfile::tempdir().unwrap();
    let (link, real) = (dir.path().join("link"), dir.path().join("disk/model"));
    std::os::unix::fs::symlink("disk/model", &link).unwrap();
    // Before the work is done, not after it.
    assert_eq!(FreshFolder::create(&link).err().unwrap().source.kind(), io::ErrorKind::NotFound);
    fs::create_dir_all(&real).unwrap();
    let fresh = FreshFolder::create(&link).unwrap();
    fill(fresh.path(), "new");
    fresh.publish().unwrap();
    assert!(link.is_symlink());
    assert_eq!(tree(&real), full("new"));
    assert!(hidden_names(dir.path()).is_empty() && hidden_names(&dir.path().join("disk")).is_empty());
}

#[test]
fn a_mount_point_is_refused_before_anything_is_written() {
    let _guard = no_children();
    for begin in [FreshFolder::create, FreshFolder::replacing] {
        let error = begin(Path::new("/proc")).err().unwrap();
        assert_eq!(error.source.kind(), io::ErrorKind::CrossesDevices, "{error}");
        assert!(!Path::new("/.proc.part").exists());
    }
}

#[test]
fn what_is_in_the_way_gives_way_whatever_it_is() {
    let _guard = no_children();
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("model");
    fs::create_dir(dir.path().join("elsewhere")).unwrap();
    let write = || {
        let fresh = FreshFolder::replacing(&target)?;
        fill(fresh.path(), "new");
        fresh.publish()
    };
    std::os::unix::fs::symlink("elsewhere", &target).unwrap();
    write().unwrap();
    assert!(dir.path().join("elsewhere").is_dir());
    fs::remove_dir_all(&target).unwrap();
    fs::write(&target, "a file").unwrap();
    fs::write(dir.path().join(".model.part"), "another").unwrap();
    write().unwrap();
    assert_eq!(tree(&target), full("new"));
    assert!(hidden_names(dir.path()).is_empty());
}

#[test]
fn parts_of_other_names_go_where_they_are_asked_for() {
    let _guard = no_children();
    let dir = tempfile::tempdir().unwrap();
    for name in [".step-1.part", ".step-1.old", ".step-2.old", "step-2", ".mine.part", "step-3.part"] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    clean_up(dir.path(), |name| name.starts_with("step-")).unwrap();
    let names: Vec<String> = tree(dir.path()).into_keys().collect();
    assert_eq!(names, [".mine.part", "step-1", "step-2", "step-3.part"]);
    clean_up(&dir.path().join("none"), |_| true).unwrap();
}
