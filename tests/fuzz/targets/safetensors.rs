//! safetensors files: the input as a whole file and as a header over 64 bytes of values; every tensor they list; and
//! the input as the list of a model's pieces.
#![no_main]

use segue_foreign::{SafetensorsFile, ShardIndex};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let with_values = [&(bytes.len() as u64).to_le_bytes()[..], bytes, &[0; 64]].concat();
    for input in [bytes.to_vec(), with_values] {
        let Ok(file) = SafetensorsFile::from_bytes(&input.into()) else { continue };
        for entry in file.entries().iter().take(64) {
            let Ok(tensor) = entry.tensor() else { continue };
            assert_eq!(tensor.to_bytes().len(), entry.bytes());
        }
    }
    if let Ok(index) = ShardIndex::parse(bytes) {
        assert!(index.files.keys().all(|name| !name.contains('/') && name != ".."));
    }
});
