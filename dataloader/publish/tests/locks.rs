//! File systems without locks, as some that are shared over a network.

use std::fs::File;
use std::path::Path;
use std::sync::mpsc;

use rustix::fs::{Mode, OFlags, open};
use segue_publish::{Claim, claim, on_missing_locks};

#[test]
fn missing_locks_are_told_once() {
    let dir = tempfile::tempdir().unwrap();
    let (tell, told) = mpsc::channel();
    on_missing_locks(move |path: &Path| tell.send(path.to_path_buf()).unwrap());
    let with = File::open(dir.path()).unwrap();
    assert_eq!(claim(&with, dir.path()).unwrap(), Claim::Ours);
    // Such a descriptor has no locks, like files of those file systems.
    let without = File::from(open(dir.path(), OFlags::PATH, Mode::empty()).unwrap());
    for _ in 0..2 {
        assert_eq!(claim(&without, dir.path()).unwrap(), Claim::Unknown);
    }
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [dir.path()]);
}
