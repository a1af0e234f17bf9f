//! A disk that keeps for certain what was synced, and of all else what it likes.
//!
//! The files are real ones, in a folder of memory. The simulation hears what is synced: the bytes of a file, the names in a folder. When
//! the power fails, names that were not synced are there or not, a rename as one, and bytes that were not synced are there in part.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use segue_random::Draws;

/// What is on the disk under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    File(u64),
    Folder(u64),
    Link(u64, PathBuf),
}

type Names = BTreeMap<String, Node>;

/// The disk of one history.
pub struct Disk {
    root: PathBuf,
    files: BTreeMap<u64, Vec<u8>>,
    folders: BTreeMap<u64, Names>,
    /// While they are open, their numbers belong to nobody else.
    open: BTreeMap<u64, File>,
    /// Files are never synced: a program that forgets to looks like this.
    forgets_files: bool,
}

/// What a folder comes back as.
enum Tree {
    File(Vec<u8>),
    Folder(BTreeMap<String, Tree>),
    Link(PathBuf),
}

impl Disk {
    /// Of the folder `root`, as it is now.
    pub fn new(root: &Path, forgets_files: bool) -> Self {
        let mut disk = Self {
            root: root.into(),
            files: BTreeMap::new(),
            folders: BTreeMap::new(),
            open: BTreeMap::new(),
            forgets_files,
        };
        disk.all_synced();
        disk
    }

    /// What is at `path` is on the disk as it is now.
    pub fn synced(&mut self, path: &Path) {
        // What is gone by now was on the disk under another name.
        let (true, Ok(found)) = (path.starts_with(&self.root), fs::metadata(path)) else { return };
        if found.is_file() && self.forgets_files {
            return;
        }
        if let Ok(file) = File::open(path) {
            self.open.insert(found.ino(), file);
        }
        match found.is_dir() {
            true => _ = self.folders.insert(found.ino(), names(path)),
            false => _ = self.files.insert(found.ino(), fs::read(path).unwrap_or_default()),
        }
    }

    /// The power fails, and comes back.
    pub fn lose_power(&mut self, draws: &mut Draws) {
        let tree = self.after(&self.root, draws);
        for entry in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let removed = if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) };
            removed.expect("the simulation's folder can be emptied");
        }
        tree.into_iter().for_each(|(name, tree)| tree.write(&self.root.join(name)));
        self.all_synced();
    }

    /// After a start of the system nothing is on its way to the disk.
    fn all_synced(&mut self) {
        (self.files, self.folders, self.open) = Default::default();
        let (root, forgets) = (self.root.clone(), std::mem::take(&mut self.forgets_files));
        self.sync_all(&root);
        self.forgets_files = forgets;
    }

    fn sync_all(&mut self, folder: &Path) {
        self.synced(folder);
        for (name, node) in names(folder) {
            match node {
                Node::Folder(_) => self.sync_all(&folder.join(name)),
                Node::File(_) => self.synced(&folder.join(name)),
                Node::Link(..) => {}
            }
        }
    }

    /// What `folder` holds after the power failed.
    fn after(&self, folder: &Path, draws: &mut Draws) -> BTreeMap<String, Tree> {
        let number = fs::metadata(folder).map_or(0, |found| found.ino());
        let nothing = Names::new();
        let (old, new) = (self.folders.get(&number).unwrap_or(&nothing), names(folder));
        let mut chosen: Names =
            old.iter().filter(|(name, node)| new.get(*name) == Some(node)).map(own).collect();
        for group in changes(old, &new) {
            let from = if draws.below(2) == 0 { old } else { &new };
            chosen.extend(group.iter().filter_map(|name| from.get_key_value(name)).map(own));
        }
        let paths: BTreeMap<u64, PathBuf> =
            new.iter().map(|(name, node)| (node.number(), folder.join(name))).collect();
        chosen
            .into_iter()
            .filter_map(|(name, node)| Some((name, self.node_after(node, &paths, draws)?)))
            .collect()
    }

    /// What `node` comes back as, which now lies at one of `paths`, or nowhere.
    fn node_after(&self, node: Node, paths: &BTreeMap<u64, PathBuf>, draws: &mut Draws) -> Option<Tree> {
        match node {
            Node::Link(_, target) => Some(Tree::Link(target)),
            Node::Folder(number) => match paths.get(&number) {
                Some(path) => Some(Tree::Folder(self.after(path, draws))),
                // It was removed, and the removal lost: so is what happened to what was in it, or not.
                None => Some(Tree::Folder(self.removed(number, draws))),
            },
            Node::File(number) => {
                let synced = self.files.get(&number);
                let now = paths.get(&number).and_then(|path| fs::read(path).ok());
                Some(Tree::File(match (synced, now) {
                    (Some(synced), None) => synced.clone(),
                    (Some(synced), Some(now)) if *synced == now => now,
                    (synced, now) => torn(synced, now.unwrap_or_default(), draws),
                }))
            }
        }
    }

    fn removed(&self, number: u64, draws: &mut Draws) -> BTreeMap<String, Tree> {
        let mut back = BTreeMap::new();
        for (name, node) in self.folders.get(&number).into_iter().flatten() {
            if draws.below(2) == 0
                && let Some(tree) = self.node_after(node.clone(), &BTreeMap::new(), draws)
            {
                back.insert(name.clone(), tree);
            }
        }
        back
    }
}

/// Bytes of a file of which not all reached the disk.
fn torn(synced: Option<&Vec<u8>>, now: Vec<u8>, draws: &mut Draws) -> Vec<u8> {
    let cut = draws.below(now.len() as u64 + 1) as usize;
    match (draws.below(4), synced) {
        (0, _) => now,
        (1, Some(synced)) => synced.clone(),
        (1 | 2, _) => now[..cut].to_vec(),
        _ => [&now[..cut], vec![0; now.len() - cut].as_slice()].concat(),
    }
}

/// Names that differ, in groups that change together: what was renamed, or has changed places.
fn changes(old: &Names, new: &Names) -> Vec<BTreeSet<String>> {
    let differs = |name: &&String| old.get(*name) != new.get(*name);
    let mut groups: Vec<(BTreeSet<String>, BTreeSet<u64>)> = Vec::new();
    for name in old.keys().chain(new.keys()).filter(differs).collect::<BTreeSet<_>>() {
        let nodes = [old.get(name), new.get(name)].into_iter().flatten();
        let mut group = (BTreeSet::from([name.clone()]), nodes.map(Node::number).collect::<BTreeSet<u64>>());
        groups.retain(|(names, numbers)| {
            let apart = numbers.is_disjoint(&group.1);
            if !apart {
                group.0.extend(names.iter().cloned());
                group.1.extend(numbers);
            }
            apart
        });
        groups.push(group);
    }
    groups.into_iter().map(|(names, _)| names).collect()
}

fn names(folder: &Path) -> Names {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let node = |entry: fs::DirEntry| {
        let (path, name) = (entry.path(), entry.file_name().into_string().ok()?);
        let found = fs::symlink_metadata(&path).ok()?;
        let node = match found.file_type() {
            kind if kind.is_dir() => Node::Folder(found.ino()),
            kind if kind.is_symlink() => Node::Link(found.ino(), fs::read_link(path).ok()?),
            _ => Node::File(found.ino()),
        };
        Some((name, node))
    };
    entries.filter_map(node).collect()
}

fn own((name, node): (&String, &Node)) -> (String, Node) {
    (name.clone(), node.clone())
}

impl Node {
    fn number(&self) -> u64 {
        match self {
            Self::File(number) | Self::Folder(number) | Self::Link(number, _) => *number,
        }
    }
}

impl Tree {
    fn write(self, path: &Path) {
        let written = match self {
            Self::File(bytes) => fs::write(path, bytes),
            Self::Link(target) => symlink(target, path),
            Self::Folder(all) => fs::create_dir(path).map(|()| {
                all.into_iter().for_each(|(name, tree)| tree.write(&path.join(name)));
            }),
        };
        written.expect("the simulation's folder can be filled");
    }
}

#[cfg(test)]
mod tests {
    use segue_random::Purpose;

    use super::*;

    /// What may lie at `name` after the power failed in the state that `make` leaves, over many draws.
    fn outcomes(make: impl Fn(&Path, &mut Disk), name: &str) -> BTreeSet<Option<Vec<u8>>> {
        let one = |seed| {
            let dir = tempfile::tempdir().unwrap();
            let mut disk = Disk::new(dir.path(), false);
            make(dir.path(), &mut disk);
            disk.lose_power(&mut Draws::new(seed, Purpose::Simulation, &[9]));
            fs::read(dir.path().join(name)).ok()
        };
        (0..64).map(one).collect()
    }

    #[test]
    fn what_is_synced_stays_and_all_else_may_be_lost_in_part() {
        let whole = Some(b"abcdefgh".to_vec());
        let write = |dir: &Path| fs::write(dir.join("f"), "abcdefgh").unwrap();
        let both = outcomes(
            |dir, disk| {
                write(dir);
                disk.synced(&dir.join("f"));
                disk.synced(dir);
            },
            "f",
        );
        assert_eq!(both, BTreeSet::from([whole.clone()]));
        let bytes = outcomes(
            |dir, disk| {
                write(dir);
                disk.synced(&dir.join("f"));
            },
            "f",
        );
        assert_eq!(bytes, BTreeSet::from([None, whole.clone()]));
        let name = outcomes(
            |dir, disk| {
                write(dir);
                disk.synced(dir);
            },
            "f",
        );
        assert!(name.len() > 4 && name.contains(&whole) && !name.contains(&None), "{name:?}");
    }

    #[test]
    fn a_rename_happens_as_one() {
        let make = |dir: &Path, disk: &mut Disk| {
            for (name, text) in [("a", "new"), ("b", "old")] {
                fs::write(dir.join(name), text).unwrap();
                disk.synced(&dir.join(name));
            }
            disk.synced(dir);
            fs::rename(dir.join("a"), dir.join("b")).unwrap();
        };
        let found = outcomes(make, "b");
        assert_eq!(found, BTreeSet::from([Some(b"new".to_vec()), Some(b"old".to_vec())]));
    }
}
