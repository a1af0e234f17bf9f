//! TensorFlow checkpoints: an index as it is, and the input as the only block of a table whose checksums match (others
//! would end most runs at once); then every variable they list, in a data file of zeros.
#![no_main]

use segue_foreign::Bundle;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let data = vec![0u8; 64];
    for index in [bytes.to_vec(), as_table(bytes)] {
        let Ok(bundle) = Bundle::from_bytes(&index, vec![data.clone().into()]) else { continue };
        for entry in bundle.entries().iter().take(64) {
            let _ = bundle.tensor(entry);
        }
    }
});

/// `bytes` as the entries of the only block of a table, with checksums that match.
fn as_table(bytes: &[u8]) -> Vec<u8> {
    let restart = [0u8, 0, 0, 0, 1, 0, 0, 0];
    let mut file = [bytes, &restart[..]].concat();
    let first = close(&mut file, 0);
    // Key "", value: the handle of the block before.
    let mut entry = vec![0, 0, first.len() as u8];
    entry.extend(&first);
    let start = file.len();
    file.extend(entry);
    file.extend(restart);
    let index = close(&mut file, start);
    let mut footer = [&[0u8, 0][..], &index].concat();
    footer.resize(40, 0);
    footer.extend(0xDB47_7524_8B80_FB57u64.to_le_bytes());
    file.extend(footer);
    file
}

/// Ends the block that begins at `start`; its handle.
fn close(file: &mut Vec<u8>, start: usize) -> Vec<u8> {
    let size = file.len() - start;
    file.push(0);
    let crc = crc32c::crc32c(&file[start..]).rotate_right(15).wrapping_add(0xA282_EAD8);
    file.extend(crc.to_le_bytes());
    [varint(start), varint(size)].concat()
}

fn varint(mut value: usize) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}
