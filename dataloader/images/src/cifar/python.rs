//! The Python version: `data_batch_1` to `data_batch_5`, `test_batch` and `batches.meta`, pickles of Python 2, or of Python 3 with
//! text or bytes for keys. They are read, not executed.

use std::path::Path;

use segue_configs::counted;
use segue_data_error::DataError;
use segue_foreign::{ElementType, Pickle, SharedBytes, View};

use super::{Batches, CLASSES, IMAGE, class};
use crate::{ImageSet, Split};

const ENDING: &str = "";

/// Reads a split from the folder of its batches. Names of the classes are those of `batches.meta`, where it is there.
///
/// # Errors
///
/// Batches that are missing, damaged or empty, have no `data` or `labels`, or a label above 9.
pub fn read_folder(folder: &Path, split: Split) -> Result<ImageSet, DataError> {
    let batches = Batches::read(folder, split, ENDING, |batches, path| {
        of_pickle(path, |root| add_batch(batches, root))
    })?;
    let meta = folder.join("batches.meta");
    let names = if meta.is_file() { Some(of_pickle(&meta, class_names)?) } else { None };
    batches.into_set("CIFAR-10, Python version", folder, names)
}

pub(crate) fn has(folder: &Path, split: Split) -> bool {
    super::has_batches(folder, split, ENDING)
}

/// What `read` makes of the value of a pickle.
fn of_pickle<T>(path: &Path, read: impl FnOnce(View<'_>) -> Result<T, String>) -> Result<T, DataError> {
    let file = SharedBytes::map(path)?;
    let value = Pickle::parse(&file).and_then(|pickle| {
        let value = read(pickle.root())?;
        pickle.root().check_work()?;
        Ok(value)
    });
    value.map_err(|why| DataError::foreign(path, why))
}

/// Adds the images of `{"data": uint8 [images, 3072], "labels": [int, ..]}`.
fn add_batch(batches: &mut Batches, root: View<'_>) -> Result<(), String> {
    let data = entry(root, "data")?.array().map_err(|why| format!("`data`: {why}"))?;
    let images = match (data.dtype(), data.shape()) {
        (ElementType::U8, &[images, IMAGE]) if images > 0 => images,
        (dtype, shape) => {
            return Err(format!(
                "`data` of type {dtype} and shape {shape:?}, expected u8 and [images, {IMAGE}]"
            ));
        }
    };
    let labels = entry(root, "labels")?;
    let labels =
        labels.elements().ok_or_else(|| format!("`labels`: {}, expected a list", labels.described()))?;
    if labels.len() != images {
        return Err(format!("{} for {}", counted(labels.len(), "label"), counted(images, "image")));
    }
    for (image, label) in labels.enumerate() {
        let bad = || match label.int() {
            Some(label) => format!("label {label} of image {image}, expected 0 to 9"),
            None => format!("{} for the label of image {image}", label.described()),
        };
        batches.labels.push(label.int().and_then(class).ok_or_else(bad)?);
    }
    batches.pixels.extend(data.to_bytes());
    Ok(())
}

/// The names of `{"label_names": [text, ..]}`.
fn class_names(root: View<'_>) -> Result<Vec<String>, String> {
    let names = entry(root, "label_names")?.elements();
    let names: Option<Vec<String>> = names.and_then(|names| names.map(text).collect());
    let names = names.filter(|names| names.len() == CLASSES);
    names.ok_or_else(|| format!("`label_names` is not a list of {CLASSES} texts"))
}

/// The value of a key of a dict. Of bytes that Python 3 writes for an older protocol the key is the call that would make them.
fn entry<'a>(root: View<'a>, key: &str) -> Result<View<'a>, String> {
    let spelled = || {
        let is_key = |found: View<'_>| found.bytes().is_some_and(|bytes| bytes[..] == *key.as_bytes());
        root.pairs()?.into_iter().find(|(found, _)| is_key(*found)).map(|(_, value)| value)
    };
    root.get(key).or_else(spelled).ok_or_else(|| match root.pairs() {
        Some(_) => format!("it has no `{key}`"),
        None => format!("{}, expected a dict with `{key}`", root.described()),
    })
}

fn text(value: View<'_>) -> Option<String> {
    value.text().map(String::from).or_else(|| String::from_utf8(value.bytes()?.to_vec()).ok())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::made::{pickled_batch, pickled_names, refusals_of_beginnings};

    fn test_batch(bytes: &[u8]) -> Result<ImageSet, DataError> {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("test_batch"), bytes).unwrap();
        read_folder(dir.path(), Split::Test)
    }

    #[test]
    fn batches_and_names_of_python_2_are_read() {
        let dir = tempfile::tempdir().unwrap();
        for batch in 1..=5u8 {
            let pickle = pickled_batch(&[batch, 9], "u1", "labels");
            fs::write(dir.path().join(format!("data_batch_{batch}")), pickle).unwrap();
        }
        fs::write(dir.path().join("batches.meta"), pickled_names(10)).unwrap();
        let set = read_folder(dir.path(), Split::Train).unwrap();
        let labels = set.labels().unwrap();
        assert_eq!(labels.of_images, [1, 9, 2, 9, 3, 9, 4, 9, 5, 9]);
        // Byte `i` of image `n` of a batch is `7 n + i`.
        let second: Vec<u8> = (0..3072u32).map(|i| (7 + i) as u8).collect();
        assert_eq!((set.image(1), set.image(9)), (&second[..], &second[..]));
        assert_eq!(labels.names.as_ref().unwrap()[3], "class3");
        fs::write(dir.path().join("batches.meta"), pickled_names(9)).unwrap();
        let error = read_folder(dir.path(), Split::Train).unwrap_err().to_string();
        assert!(error.ends_with("`label_names` is not a list of 10 texts"), "{error}");
    }

    /// Python 3 has no bytes in protocol 2: a key `b"data"` is the call that makes it from text.
    #[test]
    fn keys_may_be_bytes_of_python_3() {
        let file = pickled_batch(&[3], "u1", "labels");
        let (start, end) = file.split_at(4);
        let key = b"c_codecs\nencode\nX\x04\0\0\0dataX\x06\0\0\0latin1\x86R";
        let spelled = [start, key, end.strip_prefix(b"U\x04data").unwrap()].concat();
        assert_eq!(test_batch(&spelled).unwrap(), test_batch(&file).unwrap());
    }

    #[test]
    fn what_is_no_batch_is_named() {
        for (bytes, expected) in [
            (pickled_batch(&[1, 10], "u1", "labels"), "label 10 of image 1, expected 0 to 9"),
            (pickled_batch(&[1], "u1", "fine_labels"), "it has no `labels`"),
            (pickled_batch(&[1], "i1", "labels"), "`data` of type i8 and shape [1, 3072], expected u8 and"),
            (pickled_batch(&[], "u1", "labels"), "`data` of type u8 and shape [0, 3072], expected"),
            (b"\x80\x02K\x05.".to_vec(), "expected a dict with `data`"),
            (b"<html>".to_vec(), "is it a pickle?"),
        ] {
            let error = test_batch(&bytes).unwrap_err().to_string();
            assert!(error.contains("test_batch cannot be read: ") && error.contains(expected), "{error}");
        }
    }

    #[test]
    fn every_beginning_of_a_batch_is_refused() {
        refusals_of_beginnings(&pickled_batch(&[3], "u1", "labels"), test_batch);
    }
}
