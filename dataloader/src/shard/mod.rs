//! Shards: files of token ids, their block hashes and their indices of documents and sentences.

mod checked;
mod header;
mod index;
mod lazy;
mod mapped;
mod writer;

pub(crate) use checked::{CheckedShard, block_fault};
pub use header::{HEADER_BYTES, SHARD_MAGIC, SHARD_VERSION, ShardHeader};
pub use index::{BLOCK_BYTES, INDEX_HEADER_BYTES, INDEX_MAGIC, INDEX_VERSION, IndexHeader};
pub(crate) use index::{MappedIndex, missing_part};
pub(crate) use lazy::Lazy;
pub(crate) use mapped::MappedShard;
pub(crate) use writer::ShardWriter;
