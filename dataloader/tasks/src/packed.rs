//! Files of tasks as people keep them: as they are, compressed, or in columns.

use std::io::Read;
use std::path::Path;

use flate2::read::MultiGzDecoder;
use segue_columnar::{Format, table_lines};
use segue_data_error::DataError;
use segue_publish::read_regular;

/// What a file holds: that of a `.gz` or `.zst` decompressed, that of Parquet and Arrow as JSON lines.
pub(super) fn read_unpacked(path: &Path) -> Result<Vec<u8>, DataError> {
    let bytes = read_regular(path).map_err(|e| DataError::read(path, e))?;
    unpacked(path, bytes)
}

/// The same of the `bytes` of a file of that name.
pub(super) fn unpacked(path: &Path, bytes: Vec<u8>) -> Result<Vec<u8>, DataError> {
    if Format::of(path).is_some() {
        return table_lines(path, bytes);
    }
    let mut unpacked = Vec::new();
    let read = match packing(path) {
        Some("gz") => MultiGzDecoder::new(&bytes[..]).read_to_end(&mut unpacked),
        Some("zst") => {
            zstd::Decoder::with_buffer(&bytes[..]).and_then(|mut text| text.read_to_end(&mut unpacked))
        }
        _ => return Ok(bytes),
    };
    read.map_err(|e| DataError::foreign(path, format!("it is damaged or truncated: {e}")))?;
    Ok(unpacked)
}

/// The extension of a file's name, without that of its packing.
pub(super) fn extension(path: &Path) -> Option<&str> {
    match packing(path) {
        Some(_) => Path::new(path.file_stem()?).extension()?.to_str(),
        None => path.extension()?.to_str(),
    }
}

fn packing(path: &Path) -> Option<&str> {
    path.extension()?.to_str().filter(|extension| matches!(*extension, "gz" | "zst"))
}
