//! TensorFlow's checkpoints, version 2 ("tensor bundles"): a sorted table of names in `PREFIX.index` and the tensors'
//! bytes in `PREFIX.data-00000-of-00001` and so on. The format is written down in `docs/book/src/formats/others.md`.

mod locate;
mod message;
mod read;
mod table;
mod write;

pub use read::{Bundle, BundleEntry};
pub use write::{BundleTensor, write_bundle};

/// Name of data shard `shard` of `shards`.
fn shard_suffix(shard: u32, shards: u32) -> String {
    format!(".data-{shard:05}-of-{shards:05}")
}
