//! Any bytes as a batch of CIFAR-10, binary or a pickle, and as the names of its classes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use segue_images::{Split, cifar_binary, cifar_python};

fuzz_target!(|bytes: &[u8]| {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    for name in ["test_batch.bin", "test_batch", "batches.meta"] {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    let _ = cifar_python::read_folder(folder.path(), Split::Test);
    std::fs::remove_file(folder.path().join("batches.meta")).unwrap();
    let read =
        [cifar_binary::read_folder, cifar_python::read_folder].map(|read| read(folder.path(), Split::Test));
    for set in read.into_iter().flatten() {
        assert!(set.labels().unwrap().of_images.iter().all(|label| *label < 10));
    }
});
