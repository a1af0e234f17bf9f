//! TFRecord files of examples: the input as it is, and as the payload of a record whose checksums match (others would end
//! most runs at once).
#![no_main]

use segue_foreign::{Example, RecordFile};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for file in [bytes.to_vec(), as_record(bytes)] {
        let Ok(file) = RecordFile::from_bytes("input".into(), file.into()) else { continue };
        for record in 0..file.len().min(64) {
            let Ok(payload) = file.payload(record) else { continue };
            let Ok(example) = Example::parse(payload) else { continue };
            for name in ["input", "is_masked", "seg_id", "label", ""] {
                let _ = example.int64s(name);
            }
        }
    }
});

fn as_record(payload: &[u8]) -> Vec<u8> {
    let masked =
        |bytes: &[u8]| crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xA282_EAD8).to_le_bytes();
    let length = (payload.len() as u64).to_le_bytes();
    [&length[..], &masked(&length), payload, &masked(payload)].concat()
}
