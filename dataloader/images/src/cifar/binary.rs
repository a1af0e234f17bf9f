//! The binary version: `data_batch_1.bin` to `data_batch_5.bin`, `test_batch.bin` and `batches.meta.txt`. Records of 3073 bytes, a
//! label and an image, and no header: a file that was cut between two records looks whole.

use std::path::Path;

use segue_data_error::DataError;
use segue_foreign::SharedBytes;

use super::{Batches, CLASSES, IMAGE, class};
use crate::bytes::bad;
use crate::{ImageSet, Split};

const ENDING: &str = ".bin";
/// Bytes of a record.
const RECORD: usize = 1 + IMAGE;

/// Reads a split from the folder of its batches. Names of the classes are those of `batches.meta.txt`, where it is there.
///
/// # Errors
///
/// Batches that are missing or empty, end inside a record, or have a label above 9.
pub fn read_folder(folder: &Path, split: Split) -> Result<ImageSet, DataError> {
    let batches = Batches::read(folder, split, ENDING, add_batch)?;
    batches.into_set("CIFAR-10, binary version", folder, class_names(&folder.join("batches.meta.txt"))?)
}

pub(crate) fn has(folder: &Path, split: Split) -> bool {
    super::has_batches(folder, split, ENDING)
}

fn add_batch(batches: &mut Batches, path: &Path) -> Result<(), DataError> {
    let file = SharedBytes::map(path)?;
    let (records, rest) = file.as_chunks::<RECORD>();
    if records.is_empty() || !rest.is_empty() {
        let why = format!("a record of {} bytes, expected {RECORD}", rest.len());
        return Err(bad(path, RECORD * records.len(), why));
    }
    for (record, [label, pixels @ ..]) in records.iter().enumerate() {
        let class = class(i64::from(*label));
        let class =
            class.ok_or_else(|| bad(path, RECORD * record, format!("label {label}, expected 0 to 9")))?;
        batches.labels.push(class);
        batches.pixels.extend(pixels);
    }
    Ok(())
}

/// The names of a file with one a line.
fn class_names(path: &Path) -> Result<Option<Vec<String>>, DataError> {
    if !path.is_file() {
        return Ok(None);
    }
    let text = SharedBytes::map(path)?;
    let text = std::str::from_utf8(&text).map_err(|e| bad(path, e.valid_up_to(), "it is not UTF-8"))?;
    let names: Vec<String> = text.split_whitespace().take(CLASSES + 1).map(String::from).collect();
    match names.len() == CLASSES {
        true => Ok(Some(names)),
        false => Err(DataError::foreign(path, format!("not the names of {CLASSES} classes, one a line"))),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::made::{cifar_record, refusals_of_beginnings};

    fn test_batch(bytes: &[u8]) -> Result<ImageSet, DataError> {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("test_batch.bin"), bytes).unwrap();
        read_folder(dir.path(), Split::Test)
    }

    #[test]
    fn batches_are_joined_in_their_order() {
        let dir = tempfile::tempdir().unwrap();
        for batch in 1..=5u8 {
            let records = [cifar_record(batch, batch), cifar_record(0, 100 + batch)].concat();
            fs::write(dir.path().join(format!("data_batch_{batch}.bin")), records).unwrap();
        }
        let set = read_folder(dir.path(), Split::Train).unwrap();
        let labels = set.labels().unwrap();
        assert_eq!((&labels.of_images[..], labels.classes), (&[1, 0, 2, 0, 3, 0, 4, 0, 5, 0][..], 10));
        assert_eq!((set.image(4), labels.names.as_ref()), (&cifar_record(3, 3)[1..], None));
        fs::remove_file(dir.path().join("data_batch_4.bin")).unwrap();
        let error = read_folder(dir.path(), Split::Train).unwrap_err();
        assert!(error.to_string().ends_with("data_batch_4.bin is missing"), "{error}");
    }

    #[test]
    fn classes_have_the_names_of_their_file() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("test_batch.bin"), cifar_record(1, 7)).unwrap();
        let meta = dir.path().join("batches.meta.txt");
        fs::write(&meta, "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n").unwrap();
        let set = read_folder(dir.path(), Split::Test).unwrap();
        assert_eq!(set.labels().unwrap().names.as_ref().unwrap()[9], "j");
        for bad in [&b"a\nb\n"[..], b"a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\n", b"\xFF"] {
            fs::write(&meta, bad).unwrap();
            let error = read_folder(dir.path(), Split::Test).unwrap_err().to_string();
            assert!(error.contains("batches.meta.txt"), "{error}");
        }
    }

    #[test]
    fn records_that_are_cut_and_labels_beyond_nine_are_named() {
        refusals_of_beginnings(&cifar_record(1, 7), test_batch);
        let error = test_batch(&[cifar_record(1, 7), vec![0; 5]].concat()).unwrap_err().to_string();
        assert!(
            error.ends_with("test_batch.bin, at byte 3073: a record of 5 bytes, expected 3073"),
            "{error}"
        );
        let error = test_batch(&[cifar_record(1, 7), cifar_record(10, 0)].concat()).unwrap_err().to_string();
        assert!(error.ends_with("at byte 3073: label 10, expected 0 to 9"), "{error}");
    }
}
