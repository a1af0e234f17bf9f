/// Bytes of memory for each byte of a text where ids are all that is kept: four for an id, twice where the list of them grows.
pub(crate) const MEMORY_OF_IDS: usize = 8;
/// The same for SentencePiece models: six for the normal form of the text and its best segmentation, and the ids.
pub(crate) const MEMORY_OF_PIECES: usize = 6 + MEMORY_OF_IDS;
