//! What lanes carry, in files by lane: a rank reads those of its own lanes.
//!
//! The lanes of one micro-step share a file. A micro-step is never split over ranks, so that every file is written by one
//! rank, and its bytes do not depend on how many there are.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use segue_foreign::SafetensorsEntry;
use segue_kernels::TrainError;
use tch::Tensor;

use super::files::read_error;
use super::tensors::{MappedTensors, map_tensors, rows_of};

/// Where checkpoints of earlier versions hold what all lanes carry.
pub(super) const OF_ALL_LANES: &str = "memory.safetensors";

/// Name of the file of the lanes from `first` on, numbered over the job.
pub fn carry_file(first: usize) -> String {
    format!("carry-{first:05}.safetensors")
}

/// The first lane of those whose carry a file of this name holds; `None` where it holds something else.
pub fn first_lane(name: &str) -> Option<usize> {
    let digits = name.strip_prefix("carry-")?.strip_suffix(".safetensors")?;
    digits.parse().ok().filter(|first| carry_file(*first) == name)
}

/// The files of a checkpoint that hold what lanes carry.
pub struct CarryFiles {
    folder: PathBuf,
    /// Lanes of the job.
    lanes: usize,
    /// By their first lane.
    paths: BTreeMap<usize, PathBuf>,
    /// The last that was opened, with its first lane.
    open: Option<(usize, MappedTensors)>,
}

impl CarryFiles {
    /// Finds the files in `folder`, the checkpoint of a job of `lanes` lanes.
    pub fn find(folder: &Path, lanes: usize) -> Result<Self, TrainError> {
        let mut paths = BTreeMap::new();
        for entry in fs::read_dir(folder).map_err(read_error(folder))? {
            let entry = entry.map_err(read_error(folder))?;
            let name = entry.file_name();
            let first = name.to_str().and_then(|name| match name {
                OF_ALL_LANES => Some(0),
                name => first_lane(name),
            });
            if let Some(first) = first {
                paths.insert(first, entry.path());
            }
        }
        let files = Self { folder: folder.into(), lanes, paths, open: None };
        match files.paths.last_key_value() {
            Some((first, path)) if *first >= lanes => Err(files.not_of_these_lanes(path)),
            _ => Ok(files),
        }
    }

    /// Reads the tables `names` of the lanes `range`, numbered over the job: `[range.len(), ..]` each, in the order of the
    /// names. Of the files that is read what belongs to these lanes.
    pub fn read(&mut self, names: &[String], range: Range<usize>) -> Result<Vec<Tensor>, TrainError> {
        let mut parts: Vec<Vec<Tensor>> = names.iter().map(|_| Vec::new()).collect();
        let mut next = range.start;
        while next < range.end {
            let (first, path) = match self.paths.range(..=next).next_back() {
                Some((first, path)) => (*first, path.clone()),
                None => return Err(self.not_of_these_lanes(&self.folder)),
            };
            let tables = self.tables(first, &path, names)?;
            let held = tables.first().and_then(|table| table.shape.first()).copied().unwrap_or(0);
            if next >= first + held || first + held > self.lanes {
                return Err(self.not_of_these_lanes(&path));
            }
            let end = range.end.min(first + held);
            for (parts, table) in parts.iter_mut().zip(&tables) {
                let rows = rows_of(table, next - first..end - first);
                parts.push(rows.ok_or_else(|| self.not_of_these_lanes(&path))?);
            }
            next = end;
        }
        let joined = |mut parts: Vec<Tensor>| match parts.len() {
            1 => parts.remove(0),
            _ => Tensor::cat(&parts, 0),
        };
        Ok(parts.into_iter().map(joined).collect())
    }

    /// The tables `names` of the file at `path`, whose first lane is `first`.
    fn tables(
        &mut self,
        first: usize,
        path: &Path,
        names: &[String],
    ) -> Result<Vec<SafetensorsEntry>, TrainError> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != first) {
            self.open = Some((first, map_tensors(path)?));
        }
        let find = |name: &String| self.open.as_ref().and_then(|(_, file)| file.entry(name)).cloned();
        names.iter().map(find).collect::<Option<_>>().ok_or_else(|| self.not_of_these_lanes(path))
    }

    fn not_of_these_lanes(&self, path: &Path) -> TrainError {
        let what = format!("it does not hold the memory of {} lanes", self.lanes);
        TrainError::Damaged { path: path.into(), what }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tensors::write_tensors;
    use super::*;

    /// A table that says which lane is where, `[lanes, 2]`, and one without values, `[lanes, 0]`.
    fn tables(lanes: Range<usize>) -> Vec<(String, Tensor)> {
        let values: Vec<f32> = lanes.clone().flat_map(|lane| [lane as f32, -1.0]).collect();
        let lanes = lanes.len() as i64;
        let empty = Tensor::zeros([lanes, 0], (tch::Kind::Float, tch::Device::Cpu));
        vec![("lane".into(), Tensor::from_slice(&values).view([lanes, 2])), ("empty".into(), empty)]
    }

    fn names() -> Vec<String> {
        vec!["lane".into(), "empty".into()]
    }

    fn lanes_read(files: &mut CarryFiles, range: Range<usize>) -> Result<Vec<f32>, TrainError> {
        let tables = files.read(&names(), range.clone())?;
        assert_eq!(tables[1].size(), [range.len() as i64, 0]);
        Ok(Vec::try_from(tables[0].select(1, 0)).unwrap())
    }

    #[test]
    fn lanes_are_found_in_files_of_any_number_of_lanes_each() {
        for each in [1, 2, 3, 4, 6, 12] {
            let dir = tempfile::tempdir().unwrap();
            for first in (0..12).step_by(each) {
                let name = if each == 12 { OF_ALL_LANES.into() } else { carry_file(first) };
                write_tensors(&dir.path().join(name), &tables(first..first + each)).unwrap();
            }
            let mut files = CarryFiles::find(dir.path(), 12).unwrap();
            for range in [0..12, 0..1, 3..6, 5..11, 11..12] {
                let expected: Vec<f32> = range.clone().map(|lane| lane as f32).collect();
                assert_eq!(lanes_read(&mut files, range).unwrap(), expected, "{each} lanes a file");
            }
        }
    }

    #[test]
    fn files_of_another_number_of_lanes_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let write = |first, end| write_tensors(&dir.path().join(carry_file(first)), &tables(first..end));
        write(0, 4).unwrap();
        write(4, 8).unwrap();
        let read = |lanes, range| {
            let files = CarryFiles::find(dir.path(), lanes);
            let found = files.and_then(|mut files| lanes_read(&mut files, range));
            found.map_err(|error| (error.exit_code(), error.to_string()))
        };
        assert_eq!(read(8, 4..8).unwrap(), [4.0, 5.0, 6.0, 7.0]);
        // More lanes than there are, and fewer.
        for (lanes, range) in [(12, 8..12), (6, 4..6), (4, 0..4)] {
            let (code, why) = read(lanes, range).unwrap_err();
            assert!(code == 65 && why.contains(&format!("the memory of {lanes} lanes")), "{why}");
        }
        fs::remove_file(dir.path().join(carry_file(0))).unwrap();
        assert!(read(8, 0..4).is_err());
    }

    #[test]
    fn names_tell_the_first_lane() {
        assert_eq!(
            [carry_file(0), carry_file(123_456)],
            ["carry-00000.safetensors", "carry-123456.safetensors"]
        );
        assert_eq!(
            [first_lane("carry-00016.safetensors"), first_lane("carry-123456.safetensors")],
            [Some(16), Some(123_456)]
        );
        for other in ["carry-16.safetensors", "carry-.safetensors", "model.safetensors", "carry-00016.json"] {
            assert_eq!(first_lane(other), None, "{other}");
        }
    }
}
