//! What a folder must hold: size and hash of each file.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::io::Read;
use std::path::Path;

use segue_kernels::TrainError;
use segue_publish::{open_regular, read_regular};
use serde::{Deserialize, Serialize};

use super::contents::AVERAGES;
use super::files::{read_error, write_bytes};
use super::tensors::map_tensors;

/// Name of the manifest in a checkpoint folder. It is written last: a folder without it is not whole.
pub const MANIFEST: &str = "MANIFEST.json";
/// Version of the layout this program writes.
const VERSION: u32 = 1;
/// Bytes that are read before they are hashed: enough for several threads, and little beside any model.
const READ_BUFFER: u64 = 4 << 20;

/// Size and hash of every file of a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the layout.
    pub version: u32,
    /// By file name.
    pub files: FileRecords,
}

/// What is known of files, by name.
pub type FileRecords = BTreeMap<String, FileRecord>;

/// What a manifest says of one file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Length in bytes.
    pub bytes: u64,
    /// BLAKE3 of the contents, hexadecimal.
    pub blake3: String,
}

impl Manifest {
    /// Writes the manifest of `folder`. Every file is hashed that `known` does not tell of; those it tells of must be there.
    pub fn write(folder: &Path, known: FileRecords) -> Result<(), TrainError> {
        let mut files = known;
        for (name, record) in &files {
            // Another rank may have written it, to another disk of the same name.
            record.check_length(&folder.join(name))?;
        }
        for entry in fs::read_dir(folder).map_err(read_error(folder))? {
            let entry = entry.map_err(read_error(folder))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if let Entry::Vacant(unknown) = files.entry(name) {
                unknown.insert(FileRecord::of(&entry.path())?);
            }
        }
        let text = serde_json::to_string_pretty(&Manifest { version: VERSION, files }).unwrap_or_default();
        write_bytes(&folder.join(MANIFEST), text.as_bytes())
    }

    /// Reads the manifest of `folder` and checks every file against it.
    pub fn verify(folder: &Path) -> Result<(), TrainError> {
        Self::read(folder)?.check(folder, |_, _| true)
    }

    /// Reads the manifest of `folder`, and no file that it lists.
    pub fn read(folder: &Path) -> Result<Self, TrainError> {
        let path = folder.join(MANIFEST);
        let text = read_regular(&path).map_err(read_error(&path))?;
        let damaged = |what: String| TrainError::Damaged { path: path.clone(), what };
        let manifest: Manifest = serde_json::from_slice(&text).map_err(|e| damaged(e.to_string()))?;
        if manifest.version != VERSION {
            return Err(damaged(format!(
                "layout version {}, this program reads {VERSION}",
                manifest.version
            )));
        }
        match manifest.files.keys().find(|name| name.contains('/') || *name == "..") {
            Some(name) => Err(damaged(format!("file name {name:?} leaves the folder"))),
            None => Ok(manifest),
        }
    }

    /// Checks that every file of `folder` is there, and its length.
    pub fn check_lengths(&self, folder: &Path) -> Result<(), TrainError> {
        self.files.iter().try_for_each(|(name, record)| record.check_length(&folder.join(name)))
    }

    /// [`Manifest::check`] of a checkpoint to go on from, whose weights, moments and what lanes carry have to be finite besides. Averages that are not
    /// the model need not: the next evaluation drops those.
    pub fn check_sound(&self, folder: &Path, chosen: impl Fn(usize, &str) -> bool) -> Result<(), TrainError> {
        self.check(folder, &chosen)?;
        let is_table = |name: &str| name.ends_with(".safetensors") && !name.ends_with(AVERAGES);
        let tables =
            self.files.keys().enumerate().filter(|(number, name)| is_table(name) && chosen(*number, name));
        for path in tables.map(|(_, name)| folder.join(name)) {
            if let Some(tensor) = map_tensors(&path)?.first_not_finite() {
                let what = format!("`{tensor}` holds a value that is not finite");
                return Err(TrainError::Damaged { path, what });
            }
        }
        Ok(())
    }

    /// Checks the files of `folder` that `chosen` takes, by their number in the manifest and their name.
    pub fn check(&self, folder: &Path, chosen: impl Fn(usize, &str) -> bool) -> Result<(), TrainError> {
        let files = self.files.iter().enumerate().filter(|(number, (name, _))| chosen(*number, name));
        for (_, (name, expected)) in files {
            let path = folder.join(name);
            // A file of another length need not be read.
            expected.check_length(&path)?;
            let found = FileRecord::of(&path)?;
            if found != *expected {
                let what = format!("BLAKE3 is {} instead of {}", found.blake3, expected.blake3);
                return Err(TrainError::Damaged { path, what });
            }
        }
        Ok(())
    }
}

impl FileRecord {
    /// What is to be said of the file at `path`. It is read once, and hashed on all cores.
    pub fn of(path: &Path) -> Result<Self, TrainError> {
        let mut file = open_regular(path).map_err(read_error(path))?;
        let mut hasher = blake3::Hasher::new();
        let mut buffer = Vec::new();
        loop {
            buffer.clear();
            let read = file.by_ref().take(READ_BUFFER).read_to_end(&mut buffer).map_err(read_error(path))?;
            if read == 0 {
                return Ok(Self { bytes: hasher.count(), blake3: hasher.finalize().to_hex().to_string() });
            }
            hasher.update_rayon(&buffer);
            segue_faults::gets_on();
        }
    }

    fn check_length(&self, path: &Path) -> Result<(), TrainError> {
        let found = fs::metadata(path).map_err(read_error(path))?.len();
        match found == self.bytes {
            true => Ok(()),
            false => {
                let what = format!("{found} bytes instead of {}", self.bytes);
                Err(TrainError::Damaged { path: path.into(), what })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_the_hash_of_the_whole_file_whatever_its_length() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let buffer = READ_BUFFER as usize;
        for length in [0, 1, buffer - 1, buffer, buffer + 1, 2 * buffer + 7] {
            let bytes: Vec<u8> = (0..length).map(|i| (i * 31 % 251) as u8).collect();
            fs::write(&path, &bytes).unwrap();
            let expected =
                FileRecord { bytes: length as u64, blake3: blake3::hash(&bytes).to_hex().to_string() };
            assert_eq!(FileRecord::of(&path).unwrap(), expected);
        }
    }

    #[test]
    fn files_that_are_known_are_not_read_and_must_be_there() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("own"), "abc").unwrap();
        let known =
            |bytes| FileRecords::from([("other".into(), FileRecord { bytes, blake3: "told".into() })]);
        assert!(matches!(Manifest::write(dir.path(), known(2)), Err(TrainError::Read { .. })));
        fs::write(dir.path().join("other"), "de").unwrap();
        assert!(matches!(Manifest::write(dir.path(), known(3)), Err(TrainError::Damaged { .. })));
        Manifest::write(dir.path(), known(2)).unwrap();
        let files = Manifest::read(dir.path()).unwrap().files;
        assert_eq!((files["other"].blake3.as_str(), files["own"].bytes), ("told", 3));
    }
}
