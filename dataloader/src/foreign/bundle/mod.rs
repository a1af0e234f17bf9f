//! TensorFlow's checkpoints, version 2 ("tensor bundles"): a sorted table of names in `PREFIX.index` and the tensors'
//! bytes in `PREFIX.data-00000-of-00001` and so on. The format is written down in `docs/formats.md`.

mod locate;
mod message;
mod read;
mod table;
mod write;

pub use read::{Bundle, BundleEntry};
pub use write::{BundleTensor, write_bundle};

/// TensorFlow keeps checksums of data that may itself hold checksums under this disguise.
fn masked_crc32c(bytes: &[u8]) -> u32 {
    mask(crc32c::crc32c(bytes))
}

fn mask(crc: u32) -> u32 {
    const DELTA: u32 = 0xA282_EAD8;
    crc.rotate_right(15).wrapping_add(DELTA)
}

/// Name of data shard `shard` of `shards`.
fn shard_suffix(shard: u32, shards: u32) -> String {
    format!(".data-{shard:05}-of-{shards:05}")
}
