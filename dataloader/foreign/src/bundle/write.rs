use std::fs::File;
use std::io::Write;
use std::path::Path;

use segue_data_error::DataError;

use super::message::{Record, header, type_number};
use super::shard_suffix;
use super::table::write_table;
use crate::ElementType;
use crate::checksum::masked_crc32c;

/// A variable to write.
pub struct BundleTensor {
    /// Its name.
    pub name: String,
    /// Type of its elements.
    pub dtype: ElementType,
    /// Sizes.
    pub shape: Vec<usize>,
    /// Row-major elements, little-endian.
    pub bytes: Vec<u8>,
}

/// Writes `PREFIX.index` and `PREFIX.data-00000-of-00001`, and waits until they are on the disk. The same tensors
/// give the same bytes, in whatever order they come. The index, without which there is no checkpoint, is last.
pub fn write_bundle(folder: &Path, prefix: &str, mut tensors: Vec<BundleTensor>) -> Result<(), DataError> {
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    let data = folder.join(format!("{prefix}{}", shard_suffix(0, 1)));
    let mut entries = vec![(Vec::new(), header(1))];
    let mut offset = 0;
    let failed = |e| DataError::write(&data, e);
    let mut file = File::create(&data).map_err(failed)?;
    for tensor in &tensors {
        let record = Record {
            dtype: type_number(tensor.dtype),
            shape: tensor.shape.iter().map(|&size| size as u64).collect(),
            shard: 0,
            offset,
            size: tensor.bytes.len() as u64,
            crc: masked_crc32c(&tensor.bytes),
            slices: 0,
        };
        offset += record.size;
        entries.push((tensor.name.clone().into_bytes(), record.encode()));
        file.write_all(&tensor.bytes).map_err(failed)?;
    }
    file.sync_all().map_err(failed)?;
    let index = folder.join(format!("{prefix}.index"));
    let publish = || {
        let mut file = File::create(&index)?;
        file.write_all(&write_table(&entries))?;
        file.sync_all()
    };
    publish().map_err(|e| DataError::write(&index, e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bundle;

    fn sample(folder: &Path) {
        let tensor = |name: &str, values: &[f32], shape: &[usize]| BundleTensor {
            name: name.into(),
            dtype: ElementType::F32,
            shape: shape.into(),
            bytes: values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        };
        let all = vec![tensor("b/c", &[1.0, 2.0, 3.0, 4.0], &[2, 2]), tensor("a", &[5.0], &[])];
        write_bundle(folder, "model.ckpt", all).unwrap();
    }

    #[test]
    fn bundles_read_back_by_any_of_their_paths() {
        let dir = tempfile::tempdir().unwrap();
        sample(dir.path());
        for path in ["", "model.ckpt", "model.ckpt.index", "model.ckpt.data-00000-of-00001"] {
            let bundle = Bundle::open(&dir.path().join(path)).unwrap();
            let names: Vec<_> = bundle.entries().iter().map(|entry| entry.name.as_str()).collect();
            assert_eq!(names, ["a", "b/c"], "{path}");
            let tensor = bundle.tensor(&bundle.entries()[1]).unwrap();
            assert_eq!((tensor.shape(), tensor.to_bytes()[4]), (&[2, 2][..], 0));
        }
    }

    #[test]
    fn a_renamed_data_file_is_found_or_given() {
        let dir = tempfile::tempdir().unwrap();
        sample(dir.path());
        let (old, new) =
            (dir.path().join("model.ckpt.data-00000-of-00001"), dir.path().join("other.data-00000-of-00001"));
        std::fs::rename(&old, &new).unwrap();
        assert!(Bundle::open(&dir.path().join("model.ckpt")).is_ok());
        let odd = dir.path().join("weights");
        std::fs::rename(&new, &odd).unwrap();
        // By its length, where no other file has it.
        assert!(Bundle::open(&dir.path().join("model.ckpt")).is_ok());
        std::fs::copy(&odd, dir.path().join("copy")).unwrap();
        assert_eq!(Bundle::open(&dir.path().join("model.ckpt")).err().unwrap().exit_code(), 66);
        assert!(Bundle::open(&odd).is_ok());
    }

    #[test]
    fn a_file_of_another_kind_is_not_taken_for_the_checkpoint_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        sample(dir.path());
        for name in ["pytorch_model.bin", "notes.txt", "other.ckpt.data-00000-of-00001"] {
            let path = dir.path().join(name);
            std::fs::write(&path, [0; 100]).unwrap();
            assert_eq!(Bundle::open(&path).err().unwrap().exit_code(), 66, "{name}");
        }
        std::fs::write(dir.path().join("checkpoint"), "model_checkpoint_path: \"model.ckpt\"").unwrap();
        assert!(Bundle::open(&dir.path().join("checkpoint")).is_ok());
    }

    #[test]
    fn a_changed_value_does_not_match_its_checksum() {
        let dir = tempfile::tempdir().unwrap();
        sample(dir.path());
        let data = dir.path().join("model.ckpt.data-00000-of-00001");
        let mut bytes = std::fs::read(&data).unwrap();
        bytes[0] ^= 1;
        std::fs::write(&data, &bytes).unwrap();
        let bundle = Bundle::open(dir.path()).unwrap();
        let error = bundle.tensor(&bundle.entries()[0]).unwrap_err();
        assert!(error.exit_code() == 65 && error.to_string().contains("`a`"), "{error}");
        std::fs::write(&data, &bytes[..10]).unwrap();
        let bundle = Bundle::open(dir.path()).unwrap();
        assert!(bundle.tensor(&bundle.entries()[1]).unwrap_err().to_string().contains("truncated"));
    }
}
