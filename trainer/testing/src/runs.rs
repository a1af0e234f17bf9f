//! Whole runs of a family within one process.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Files of tensors of the run in a folder: those of its checkpoint of step `last`, and of its best model.
pub fn tables(run: &Path, last: u64) -> BTreeMap<String, Vec<u8>> {
    let mut tables = BTreeMap::new();
    for folder in [format!("checkpoints/step-{last:08}"), "best".into()] {
        for file in fs::read_dir(run.join(&folder)).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|ending| ending == "safetensors") {
                let name = path.file_name().unwrap().to_string_lossy();
                tables.insert(format!("{folder}/{name}"), fs::read(&path).unwrap());
            }
        }
    }
    tables
}

/// Asserts that `run`, which trains `last` steps in a folder on a number of ranks, or stops after one and says that it has stopped, ends with the same bytes on
/// 1, 2 and 4 ranks, and stopped after every step. Gives the tables of the run on one rank.
pub fn assert_same_bytes(last: u64, run: impl Fn(&Path, usize, bool) -> bool) -> BTreeMap<String, Vec<u8>> {
    let on = |ranks: usize| {
        let folder = tempfile::tempdir().unwrap();
        run(folder.path(), ranks, false);
        tables(folder.path(), last)
    };
    let alone = on(1);
    assert!(alone.len() >= 2, "{:?}", alone.keys());
    for ranks in [2, 4] {
        assert!(on(ranks) == alone, "{ranks} ranks");
    }
    let parts = tempfile::tempdir().unwrap();
    let mut ranks = [1, 2, 4].into_iter().cycle();
    while run(parts.path(), ranks.next().unwrap_or(1), true) {}
    assert!(tables(parts.path(), last) == alone, "stopped at every step");
    alone
}

/// Writes images of these sizes, `[images, rows, columns]`, in MNIST's files, image i of class i mod `classes`.
pub fn write_idx(folder: &Path, split: &str, sizes: [u32; 3], pixels: Vec<u8>, classes: u32) {
    let header = |sizes: &[u32]| -> Vec<u8> {
        let magic = [0, 0, 8, sizes.len() as u8];
        magic.into_iter().chain(sizes.iter().flat_map(|size| size.to_be_bytes())).collect()
    };
    let labels: Vec<u8> = (0..sizes[0]).map(|image| (image % classes) as u8).collect();
    let file = |part: &str| folder.join(format!("{split}-{part}-ubyte"));
    fs::write(file("images-idx3"), [header(&sizes), pixels].concat()).unwrap();
    fs::write(file("labels-idx1"), [header(&sizes[..1]), labels].concat()).unwrap();
}
