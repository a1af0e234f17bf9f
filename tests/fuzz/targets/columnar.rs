//! Parquet and Arrow files. The first byte chooses which: the text of a column, and all columns as a table.
#![no_main]

use std::io::Read;
use std::sync::Arc;

use segue_columnar::{TextLines, table_lines};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join(["a.parquet", "a.arrow"][*choice as usize % 2]);
    std::fs::write(&path, bytes).unwrap();
    for column in ["text", "meta.body"] {
        if let Ok(lines) = TextLines::open(&path, column, Arc::default()) {
            // A few bytes may promise rows without end, all alike.
            let _ = lines.take(1 << 20).read_to_end(&mut Vec::new());
        }
    }
    let _ = table_lines(&path, bytes.to_vec());
});
