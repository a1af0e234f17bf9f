//! Files with bytes changed, or cut: they are read or refused, and what is read is whole.

use std::fs;

use png::{BitDepth, ColorType};
use proptest::prelude::*;
use segue_data_error::DataError;

use crate::made::{cifar_record, gzip, idx, mat, pickled_batch, png};
use crate::{ImageSet, Split, open};

/// A file with bytes changed, possibly cut.
fn changed(
    mut file: Vec<u8>,
    changes: &[(prop::sample::Index, u8)],
    end: Option<prop::sample::Index>,
) -> Vec<u8> {
    changes.iter().for_each(|(place, value)| *place.get_mut(&mut file) = *value);
    file.truncate(end.map_or(file.len(), |end| end.index(file.len())));
    file
}

/// Reads the test split of these files.
fn read(files: &[(&str, &[u8])]) -> Result<ImageSet, DataError> {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("test/a")).unwrap();
    files.iter().for_each(|(name, bytes)| fs::write(dir.path().join(name), bytes).unwrap());
    open(dir.path(), Split::Test)
}

proptest! {
    #[test]
    fn changed_files_end_with_a_set_or_an_error(
        which in 0usize..9,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        end in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let change = |file: Vec<u8>| changed(file, &changes, end);
        let (images, labels) = (idx(&[2, 1, 2], &[1, 2, 3, 4]), idx(&[2], &[0, 1]));
        let (of_images, of_labels) = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte");
        let array = || mat::array(false, "X", 9, &[1, 2, 3, 1], (2, &[1, 2, 3, 4, 5, 6]));
        let packed = |array: Vec<u8>| [mat::header(false), mat::compressed(false, &array)].concat();
        let colours = || png(5, 4, ColorType::Rgb, BitDepth::Eight);
        let found = match which {
            0 => read(&[(of_images, &change(images)), (of_labels, &labels)]),
            1 => read(&[(of_images, &gzip(&change(images))), (of_labels, &labels)]),
            2 => read(&[(of_images, &change(gzip(&images))), (of_labels, &change(labels))]),
            3 => read(&[("test_batch.bin", &change(cifar_record(1, 2)))]),
            4 => read(&[("test_batch", &change(pickled_batch(&[1, 2], "u1", "labels")))]),
            5 => read(&[("test_32x32.mat", &change(mat::file(true, false)))]),
            6 => read(&[("test_32x32.mat", &change(mat::file(false, true)))]),
            7 => read(&[("test_32x32.mat", &packed(change(array())))]),
            _ => read(&[("test/a/0.png", &change(colours()))]),
        };
        match found {
            Ok(set) => prop_assert_eq!(set.image(set.len() - 1).len(), set.shape().bytes().unwrap()),
            Err(error) => prop_assert!(error.exit_code() == 65, "{}", error),
        }
    }
}
