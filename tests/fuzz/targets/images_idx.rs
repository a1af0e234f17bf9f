//! Any bytes as the two IDX files of a split, plain or compressed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use segue_images::idx;

fuzz_target!(|bytes: &[u8]| {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let (images, labels) = (folder.path().join("images"), folder.path().join("labels"));
    // The first byte says where the labels begin.
    let Some((place, bytes)) = bytes.split_first() else { return };
    let (first, second) = bytes.split_at(usize::from(*place).min(bytes.len()));
    std::fs::write(&images, first).unwrap();
    std::fs::write(&labels, second).unwrap();
    if let Ok(set) = idx::read(&images, Some(&labels)) {
        assert_eq!(set.labels().unwrap().of_images.len(), set.len());
    }
});
