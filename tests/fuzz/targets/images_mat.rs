//! Any bytes as a file of SVHN: as they are, behind a header, and as what its arrays are changed to before they are compressed.
#![no_main]

use std::io::Write;

use libfuzzer_sys::fuzz_target;
use segue_images::svhn;

fuzz_target!(|bytes: &[u8]| {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("train_32x32.mat");
    let read = |file: &[u8]| {
        std::fs::write(&path, file).unwrap();
        if let Ok(set) = svhn::read(&path) {
            assert!(set.labels().unwrap().of_images.iter().all(|label| *label < 10));
        }
    };
    read(bytes);
    let header = [&[b' '; 124][..], &[0, 1, b'I', b'M']].concat();
    read(&[&header, bytes].concat());
    let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(bytes).unwrap();
    let packed = packer.finish().unwrap();
    let tag = [15u32, packed.len() as u32].map(u32::to_le_bytes).concat();
    read(&[header, tag, packed].concat());
});
