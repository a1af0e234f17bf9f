//! Any bytes as an image of a folder of classes, and once more with the checksums of its chunks set right.
#![no_main]

use libfuzzer_sys::fuzz_target;
use segue_images::folder;

fuzz_target!(|bytes: &[u8]| {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    std::fs::create_dir(folder.path().join("a")).unwrap();
    for file in [bytes.to_vec(), with_checksums(bytes.to_vec())] {
        std::fs::write(folder.path().join("a/0.png"), file).unwrap();
        if let Ok(set) = folder::read(folder.path()) {
            assert_eq!((set.len(), set.label(0)), (1, Some(0)));
        }
    }
});

/// The same file with the signature of PNG, and the checksum of each chunk as its content has it.
fn with_checksums(mut file: Vec<u8>) -> Vec<u8> {
    let signature = b"\x89PNG\r\n\x1A\n";
    file.splice(..signature.len().min(file.len()), *signature);
    let mut at = signature.len();
    // A chunk: four bytes of length, four of type, the data, four of checksum.
    while let Some(length) = file.get(at..at + 4) {
        let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize;
        let end = at + 8 + length;
        let Some(chunk) = file.get(at + 4..end).filter(|_| end + 4 <= file.len()) else { break };
        let mut sum = flate2::Crc::new();
        sum.update(chunk);
        file[end..end + 4].copy_from_slice(&sum.sum().to_be_bytes());
        at = end + 4;
    }
    file
}
