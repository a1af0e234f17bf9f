//! Text inputs: files, folders, standard input, plain or compressed, read in chunks of bounded size.

mod chunks;
mod expand;
mod range;
mod source;

pub(crate) use chunks::{CHUNK_BYTES, Chunk, ChunkReader, Cut, Part, Position};
pub(crate) use range::{align_to_line, measure, place_of};
pub use source::open_text;
pub(crate) use source::{Files, STDIN, Source};
